/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Another build of Tandem, to judge by its name, in which the settings are of another size: it cannot be told anything.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

const volatile u32 settings;

void BPF_STRUCT_OPS(other_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, settings, enq_flags);
}

SCX_OPS_DEFINE(other_ops,
	       .enqueue = (void *)other_enqueue,
	       .name = "tandem");
