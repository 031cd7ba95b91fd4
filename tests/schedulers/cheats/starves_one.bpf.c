/* SPDX-License-Identifier: GPL-2.0-only */
/* Starves a few tasks, for the good of all others. */
#define IS_HELD(p) ((p)->pid % 16 == 3)
#define SERVES_HELD(cpu) false
#include "base.bpf.h"
