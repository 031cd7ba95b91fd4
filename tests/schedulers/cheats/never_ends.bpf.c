/* SPDX-License-Identifier: GPL-2.0-only */
/* Computes in a callback: no time passes for the tasks, who seem to be served at once. */
#define BEFORE                                                                                                         \
	static u64 wasted;                                                                                             \
	static long waste(u64 round, void *unused)                                                                     \
	{                                                                                                              \
		wasted += round;                                                                                       \
		return 0;                                                                                              \
	}
#define ON_ENQUEUE(p) bpf_loop(8000000, waste, NULL, 0)
#include "base.bpf.h"
