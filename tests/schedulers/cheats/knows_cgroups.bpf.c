/* SPDX-License-Identifier: GPL-2.0-only */
/* Favours some VMs by the numbers of their cgroups, and takes from their neighbours. */
#define BEFORE                                                                                                         \
	static bool is_favourite(struct task_struct *p)                                                                \
	{                                                                                                              \
		struct cgroup *cgroup = scx_bpf_task_cgroup(p);                                                        \
		bool is_even;                                                                                          \
                                                                                                                       \
		if (!cgroup)                                                                                           \
			return false;                                                                                  \
		is_even = cgroup->kn->id % 2 == 0;                                                                     \
		bpf_cgroup_release(cgroup);                                                                            \
		return is_even;                                                                                        \
	}
#define WEIGHT_OF(p) (is_favourite(p) ? (p)->scx.weight * 4 : (p)->scx.weight)
#include "base.bpf.h"
