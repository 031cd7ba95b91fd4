/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One queue for each last-level cache, in maps of user space's making: an array of maps of queues of PIDs.
 *
 * User space knows how many caches there are, and makes a queue for each: `queues = [{ each = "llc", key = "@llc",
 * value = [] }]` in a scenario. A CPU takes tasks of its own cache first, then those of others.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define CPUS_MAX 1024
#define QUEUES_MAX 64

const volatile u64 slice_ns = 5000000;
/* The number of queues, and that of each CPU. */
const volatile u32 nr_queues = 1;
const volatile u32 cpu_queue[CPUS_MAX];

/* What has happened. */
u64 nr_own, nr_others, nr_full;

struct queue {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 4096);
	__type(value, s32);
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, QUEUES_MAX);
	__type(key, u32);
	__array(values, struct queue);
} queues SEC(".maps");

static u32 queue_of(s32 cpu)
{
	const volatile u32 *queue = MEMBER_VPTR(cpu_queue, [cpu]);

	return queue ? *queue : 0;
}

s32 BPF_STRUCT_OPS(queues_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(queues_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 at = queue_of(scx_bpf_task_cpu(p));
	void *queue = bpf_map_lookup_elem(&queues, &at);
	s32 pid = p->pid;

	if (!queue) {
		scx_bpf_error("there is no queue %u", at);
		return;
	}
	if (bpf_map_push_elem(queue, &pid, 0)) {
		__sync_fetch_and_add(&nr_full, 1);
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, enq_flags);
	}
}

/* Sends the next task of a queue to this CPU; returns whether there was one. */
static bool take_from(u32 at, s32 cpu)
{
	void *queue = bpf_map_lookup_elem(&queues, &at);
	struct task_struct *p;
	s32 pid;

	if (!queue)
		return false;
	bpf_repeat(BPF_MAX_LOOPS) {
		if (bpf_map_pop_elem(queue, &pid))
			return false;
		p = bpf_task_from_pid(pid);
		if (!p)
			continue;
		scx_bpf_dsq_insert(p, bpf_cpumask_test_cpu(cpu, p->cpus_ptr) ? SCX_DSQ_LOCAL : SCX_DSQ_GLOBAL,
				   slice_ns, 0);
		bpf_task_release(p);
		return true;
	}
	return false;
}

void BPF_STRUCT_OPS(queues_dispatch, s32 cpu, struct task_struct *prev)
{
	u32 own = queue_of(cpu), i;

	if (take_from(own, cpu)) {
		__sync_fetch_and_add(&nr_own, 1);
		return;
	}
	bpf_for(i, 0, nr_queues) {
		if (i != own && take_from(i, cpu)) {
			__sync_fetch_and_add(&nr_others, 1);
			return;
		}
	}
}

SCX_OPS_DEFINE(queues_ops,
	       .select_cpu = (void *)queues_select_cpu,
	       .enqueue = (void *)queues_enqueue,
	       .dispatch = (void *)queues_dispatch,
	       .name = "queues");
