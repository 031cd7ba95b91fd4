/* SPDX-License-Identifier: GPL-2.0-only */
/* Leaves every second CPU idle, so that each task computes faster on a core of its own. */
#define IS_OPEN(cpu) ((cpu) % 2 == 0 || (u32)(cpu) >= scx_bpf_nr_cpu_ids())
#include "base.bpf.h"
