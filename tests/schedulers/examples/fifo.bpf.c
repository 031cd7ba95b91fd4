/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The smallest useful scheduler: one queue for all CPUs, first come, first served.
 *
 * The life of a task here, as sched_ext sees it:
 * 1. It wakes. There is no `select_cpu`, so the kernel looks for an idle CPU itself. If it finds one, the task goes
 *    straight into that CPU's local queue, and `enqueue` is not called at all.
 * 2. All CPUs are busy: `enqueue` puts it at the end of the shared queue.
 * 3. A CPU has nothing in its local queue: `dispatch` moves the first task of the shared queue that may run on that CPU
 *    into the local one, and the CPU runs it.
 * 4. Its slice ends: it goes through `enqueue` again, behind everybody who waits.
 *
 * Fair to tasks that compute, whatever their weights; hard on those that sleep often, which wait behind all others
 * each time.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

/* A dispatch queue (DSQ) is known by a number of the scheduler's choice. */
#define SHARED_DSQ 0

s32 BPF_STRUCT_OPS_SLEEPABLE(fifo_init)
{
	/* On no node in particular. */
	return scx_bpf_create_dsq(SHARED_DSQ, NUMA_NO_NODE);
}

void BPF_STRUCT_OPS(fifo_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SHARED_DSQ, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(fifo_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED_DSQ, 0);
}

SCX_OPS_DEFINE(fifo_ops,
	       .enqueue = (void *)fifo_enqueue,
	       .dispatch = (void *)fifo_dispatch,
	       .init = (void *)fifo_init,
	       .name = "fifo");
