/* SPDX-License-Identifier: GPL-2.0-only */
/* A mistake: CPU 0 alone takes tasks from the queue, and the others idle beside it. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define SHARED_DSQ 0

s32 BPF_STRUCT_OPS_SLEEPABLE(one_cpu_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, NUMA_NO_NODE);
}

s32 BPF_STRUCT_OPS(one_cpu_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void BPF_STRUCT_OPS(one_cpu_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SHARED_DSQ, SCX_SLICE_DFL, enq_flags);
	scx_bpf_kick_cpu(0, SCX_KICK_IDLE);
}

void BPF_STRUCT_OPS(one_cpu_dispatch, s32 cpu, struct task_struct *prev)
{
	if (cpu == 0)
		scx_bpf_dsq_move_to_local(SHARED_DSQ, 0);
}

SCX_OPS_DEFINE(one_cpu_ops,
	       .select_cpu = (void *)one_cpu_select_cpu,
	       .enqueue = (void *)one_cpu_enqueue,
	       .dispatch = (void *)one_cpu_dispatch,
	       .init = (void *)one_cpu_init,
	       .name = "one_cpu");
