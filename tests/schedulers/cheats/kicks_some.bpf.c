/* SPDX-License-Identifier: GPL-2.0-only */
/* Interrupts some CPUs whenever somebody waits, so that somebody makes room. */
#define ON_ENQUEUE(p) kick_some()
#define BEFORE                                                                                                         \
	static void kick_some(void)                                                                                     \
	{                                                                                                              \
		s32 cpu;                                                                                               \
                                                                                                                       \
		bpf_for(cpu, 0, scx_bpf_nr_cpu_ids() / 2)                                                                \
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);                                                       \
	}
#include "base.bpf.h"
