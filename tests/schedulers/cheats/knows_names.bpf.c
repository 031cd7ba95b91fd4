/* SPDX-License-Identifier: GPL-2.0-only */
/* Favours tasks by their names. */
#define BEFORE                                                                                                         \
	static bool has_good_name(struct task_struct *p)                                                               \
	{                                                                                                              \
		return p->comm[0] == 'w' || p->comm[0] == 'v';                                                         \
	}
#define WEIGHT_OF(p) (has_good_name(p) ? (p)->scx.weight * 8 : (p)->scx.weight)
#include "base.bpf.h"
