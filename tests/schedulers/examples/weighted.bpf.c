/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shares CPU time by weight: one queue for all CPUs, in the order of virtual time.
 *
 * The virtual time of a task is the time that it has run, divided by its weight: twice the weight, half the
 * speed. The task that is least advanced goes first, so that all runnable tasks advance equally, each with
 * time in proportion to its weight.
 *
 * A task that has slept is far behind. Without a limit, it could keep a CPU until it had caught up; so no
 * task is more than a slice behind the furthest that has run.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define SHARED_DSQ 0
/* The weight of a task with nice 0. */
#define USUAL_WEIGHT 100

/*
 * How long a task runs at a stretch. `const volatile` makes it a setting: user space writes it before the scheduler is
 * loaded, and it is read-only from then on.
 */
const volatile u64 slice_ns = 5000000;

/* The virtual time of the task that has been furthest when it began to run. */
static u64 vtime_now;

/* What has happened. User space reads it as it likes, so it is a map. */
struct counters {
	u64 to_idle_cpu;
	u64 queued;
	u64 runs;
};

/* Each CPU counts for itself: none waits for a cache line. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counters);
} counters SEC(".maps");

static struct counters *own_counters(void)
{
	u32 first = 0;

	return bpf_map_lookup_elem(&counters, &first);
}

/* Virtual times wrap around, so they are compared by their difference. */
static bool is_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

s32 BPF_STRUCT_OPS(weighted_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct counters *own = own_counters();
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	/* Inserted here, the task does not come to `enqueue`: SCX_DSQ_LOCAL is the queue of the CPU that is returned. */
	if (is_idle) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
		if (own)
			own->to_idle_cpu++;
	}
	return cpu;
}

void BPF_STRUCT_OPS(weighted_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct counters *own = own_counters();
	u64 vtime = p->scx.dsq_vtime;

	if (is_before(vtime, vtime_now - slice_ns))
		vtime = vtime_now - slice_ns;
	scx_bpf_dsq_insert_vtime(p, SHARED_DSQ, slice_ns, vtime, enq_flags);
	if (own)
		own->queued++;
}

void BPF_STRUCT_OPS(weighted_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED_DSQ, 0);
}

void BPF_STRUCT_OPS(weighted_running, struct task_struct *p)
{
	struct counters *own = own_counters();

	if (is_before(vtime_now, p->scx.dsq_vtime))
		vtime_now = p->scx.dsq_vtime;
	if (own)
		own->runs++;
}

void BPF_STRUCT_OPS(weighted_stopping, struct task_struct *p, bool runnable)
{
	/*
	 * The kernel takes what a task has run off its slice; one that yields loses all that is left. A task that goes on
	 * because no other waits gets the kernel's slice, which is longer: what it runs of the difference costs nothing.
	 */
	u64 ran_ns = p->scx.slice < slice_ns ? slice_ns - p->scx.slice : 0;

	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + ran_ns * USUAL_WEIGHT / p->scx.weight);
}

/* A task comes to this scheduler: it begins where the others are, not at 0. */
void BPF_STRUCT_OPS(weighted_enable, struct task_struct *p)
{
	scx_bpf_task_set_dsq_vtime(p, vtime_now);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(weighted_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, NUMA_NO_NODE);
}

SCX_OPS_DEFINE(weighted_ops,
	       .select_cpu = (void *)weighted_select_cpu,
	       .enqueue = (void *)weighted_enqueue,
	       .dispatch = (void *)weighted_dispatch,
	       .running = (void *)weighted_running,
	       .stopping = (void *)weighted_stopping,
	       .enable = (void *)weighted_enable,
	       .init = (void *)weighted_init,
	       .name = "weighted");
