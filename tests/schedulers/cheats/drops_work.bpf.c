/* SPDX-License-Identifier: GPL-2.0-only */
/* Forgets one wake-up in a thousand. */
#define BEFORE static u64 wakeups;
#define IS_HELD(p) (__sync_fetch_and_add(&wakeups, 1) % 1000 == 999)
#define SERVES_HELD(cpu) false
#include "base.bpf.h"
