/* SPDX-License-Identifier: GPL-2.0-only */
/* A scheduler by cids that calls a function about CPUs, for tests: a kernel refuses it. */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

void BPF_STRUCT_OPS(cpus_by_cid_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SCX_SLICE_DFL, enq_flags);
	scx_bpf_kick_cpu(0, SCX_KICK_IDLE);
}

SCX_OPS_CID_DEFINE(cpus_by_cid_ops,
		   .enqueue = (void *)cpus_by_cid_enqueue,
		   .name = "cpus_by_cid");
