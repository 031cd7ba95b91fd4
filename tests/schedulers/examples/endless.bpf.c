/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks of one CPU that are alone there run without an end of their slice: for a test of CPUs without ticks,
 * not to be used.
 *
 * Each task goes to the local queue of its CPU, which gives it an infinite slice if no other task is there. A
 * task that comes to one with an infinite slice takes its CPU, because no tick would end that turn. Ticks are
 * counted.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define CPUS_MAX 1024

const volatile u64 slice_ns = 8000000;

struct ticks {
	/* Of tasks whose slice ends, and of others. */
	u64 finite;
	u64 infinite;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct ticks);
} ticks SEC(".maps");

/* Tasks that can run, by CPU, and whether the one that runs has an infinite slice. */
static u64 runnable_count[CPUS_MAX];
static bool is_endless[CPUS_MAX];

static u64 *runnable_on(s32 cpu)
{
	return cpu >= 0 && cpu < CPUS_MAX ? &runnable_count[cpu] : NULL;
}

static bool *endless_on(s32 cpu)
{
	return cpu >= 0 && cpu < CPUS_MAX ? &is_endless[cpu] : NULL;
}

s32 BPF_STRUCT_OPS(endless_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return prev_cpu;
}

void BPF_STRUCT_OPS(endless_runnable, struct task_struct *p, u64 enq_flags)
{
	u64 *count = runnable_on(scx_bpf_task_cpu(p));

	if (count)
		__sync_fetch_and_add(count, 1);
}

void BPF_STRUCT_OPS(endless_quiescent, struct task_struct *p, u64 deq_flags)
{
	u64 *count = runnable_on(scx_bpf_task_cpu(p));

	if (count)
		__sync_fetch_and_sub(count, 1);
}

void BPF_STRUCT_OPS(endless_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 *count = runnable_on(scx_bpf_task_cpu(p));
	bool *endless = endless_on(scx_bpf_task_cpu(p));
	bool alone = count && *count == 1;

	if (endless && *endless)
		enq_flags |= SCX_ENQ_PREEMPT;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, alone ? SCX_SLICE_INF : slice_ns, enq_flags);
}

/* A task that stays alone is kept: its slice becomes infinite, and the tick stays. */
void BPF_STRUCT_OPS(endless_dispatch, s32 cpu, struct task_struct *prev)
{
	u64 *count = runnable_on(cpu);

	bool *endless = endless_on(cpu);

	if (prev && (prev->scx.flags & SCX_TASK_QUEUED) && count && *count == 1 && endless) {
		prev->scx.slice = SCX_SLICE_INF;
		*endless = true;
	}
}

void BPF_STRUCT_OPS(endless_running, struct task_struct *p)
{
	bool *endless = endless_on(scx_bpf_task_cpu(p));

	if (endless)
		*endless = p->scx.slice == SCX_SLICE_INF;
}

void BPF_STRUCT_OPS(endless_stopping, struct task_struct *p, bool runnable)
{
	bool *endless = endless_on(scx_bpf_task_cpu(p));

	if (endless)
		*endless = false;
}

void BPF_STRUCT_OPS(endless_tick, struct task_struct *p)
{
	u32 first = 0;
	struct ticks *counts = bpf_map_lookup_elem(&ticks, &first);

	if (!counts)
		return;
	if (p->scx.slice == SCX_SLICE_INF)
		counts->infinite++;
	else
		counts->finite++;
}

SCX_OPS_DEFINE(endless_ops,
	       .select_cpu = (void *)endless_select_cpu,
	       .runnable = (void *)endless_runnable,
	       .quiescent = (void *)endless_quiescent,
	       .enqueue = (void *)endless_enqueue,
	       .dispatch = (void *)endless_dispatch,
	       .running = (void *)endless_running,
	       .stopping = (void *)endless_stopping,
	       .tick = (void *)endless_tick,
	       .name = "endless");
