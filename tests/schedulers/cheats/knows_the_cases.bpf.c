/* SPDX-License-Identifier: GPL-2.0-only */
/* Has learned the cases of the training by heart: knows them by their CPUs, and there favours those who wait most. */
#define BEFORE                                                                                                         \
	static bool is_known_case(void)                                                                                \
	{                                                                                                              \
		u32 cpus = scx_bpf_nr_cpu_ids();                                                                       \
                                                                                                                       \
		return cpus == 32 || cpus == 40 || cpus == 48 || cpus == 56;                                           \
	}
#define WEIGHT_OF(p) (is_known_case() && !is_hog(p) ? (p)->scx.weight * 8 : (p)->scx.weight)
#include "base.bpf.h"
