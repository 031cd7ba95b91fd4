/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * my_sched: shares CPU time by weight, and runs soon what has slept.
 *
 * All tasks that wait are in one queue, in the order of their virtual time: the CPU time that a task has had,
 * divided by its weight. Whoever has had least goes first, so that all advance equally, each with time in
 * proportion to its weight. That holds for tasks that may run everywhere; those that are bound to CPUs of more or
 * less work than others only never wait for long.
 *
 * The life of a task, in callbacks:
 *   select_cpu   it wakes: which CPU is it for? If one idles, it goes there at once.
 *   enqueue      it has to wait: it goes into the queue, and may call a CPU.
 *   dispatch     a CPU needs a task: the first one of the queue, or the one that ran there.
 *   running      it begins to run, until
 *   stopping     it sleeps, its slice is over, or another one preempts it. In the last two cases it comes to
 *                enqueue again.
 */

/* The kernel's constants are those of vmlinux.h, so that no loader has to fill them in. */
#define __SCX_ENUMS_BPF_H
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

/* A dispatch queue (DSQ) has a number of the scheduler's choice. */
#define QUEUE 0
/* The weight of a task of nice 0, by the kernel's count. */
#define USUAL_WEIGHT 100
/* How far a task may be ahead of the others in virtual time, whatever it weighs. */
#define AHEAD_MAX_NS 100000000
/* Ticks end slices, and come every 4 ms with CONFIG_HZ=250: a task may run for that much longer. */
#define TICK_NS 4000000

/*
 * Settings: constant once the scheduler is loaded, and written before that by who loads it. In a scenario:
 * host = { object = "my-sched.bpf.o", settings = { slice_ns = 1_000_000 } }
 */

/* How long a task runs at a stretch while others wait. */
const volatile u64 slice_ns = 5000000;
/* A task that wakes preempts one that is ahead of it by more virtual time than this. */
const volatile u64 preempt_ns = 1000000;

/* The furthest that the first task in the queue has been: the time by which latecomers are placed. */
static u64 clock_ns;

/* What a CPU runs. */
struct cpu_state {
	/* Virtual time with which its task began to run; and when that was. */
	u64 vtime_ns;
	u64 since_ns;
	u32 weight;
	bool busy;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct cpu_state);
} cpu_states SEC(".maps");

static struct cpu_state *state_of(s32 cpu)
{
	u32 first = 0;

	return bpf_map_lookup_percpu_elem(&cpu_states, &first, cpu);
}

/* Virtual times wrap around in the end, so their difference is compared. */
static bool is_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

/* What a time on a CPU costs a task of this weight. */
static u64 cost(u64 ran_ns, u32 weight)
{
	return ran_ns * USUAL_WEIGHT / (weight ?: 1);
}

/*
 * Keeps a task near the others. One that has slept would otherwise keep a CPU until it had caught up, and one
 * that was alone, or is very light, would wait for seconds.
 */
static u64 near_clock(u64 vtime_ns, u32 weight)
{
	u64 ahead_ns = cost(slice_ns + 2 * TICK_NS, weight);

	if (ahead_ns > AHEAD_MAX_NS)
		ahead_ns = AHEAD_MAX_NS;
	if (is_before(vtime_ns, clock_ns - slice_ns))
		return clock_ns - slice_ns;
	if (is_before(clock_ns + ahead_ns, vtime_ns))
		return clock_ns + ahead_ns;
	return vtime_ns;
}

/* Whether a task with this virtual time is behind the one that runs on a CPU by more than a lead. */
static bool is_behind(u64 vtime_ns, s32 cpu, u64 lead_ns)
{
	struct cpu_state *state = state_of(cpu);

	if (!state || !state->busy)
		return false;
	return is_before(vtime_ns + lead_ns,
			 state->vtime_ns + cost(scx_bpf_now() - state->since_ns, state->weight));
}

s32 BPF_STRUCT_OPS(my_sched_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	/* The kernel's own search: the last CPU, its core, its cache, its node, all. */
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	/* In the queue of the CPU that is returned; enqueue is not called then. */
	if (is_idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(my_sched_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 vtime_ns = near_clock(p->scx.dsq_vtime, p->scx.weight);
	s32 cpu;

	scx_bpf_dsq_insert_vtime(p, QUEUE, slice_ns, vtime_ns, enq_flags);

	/* No CPU sleeps beside a task that waits. */
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	else if ((enq_flags & SCX_ENQ_WAKEUP) && is_behind(vtime_ns, scx_bpf_task_cpu(p), preempt_ns))
		scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_PREEMPT);
}

/*
 * The task that ran here is not in the queue yet: it goes on, with another slice, if it has had less than all who
 * wait for this CPU. If nobody waits, the kernel lets it go on anyway.
 */
void BPF_STRUCT_OPS(my_sched_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_state *state = state_of(cpu);
	bool is_first = true, goes_on = false;
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, QUEUE, 0) {
		if (is_first && is_before(clock_ns, p->scx.dsq_vtime))
			clock_ns = p->scx.dsq_vtime;
		is_first = false;
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
			goes_on = prev && state && state->busy && !is_behind(p->scx.dsq_vtime, cpu, 0);
			break;
		}
	}
	if (goes_on)
		scx_bpf_task_set_slice(prev, slice_ns);
	else
		scx_bpf_dsq_move_to_local(QUEUE, 0);
}

void BPF_STRUCT_OPS(my_sched_running, struct task_struct *p)
{
	struct cpu_state *state = state_of(scx_bpf_task_cpu(p));

	if (!state)
		return;
	state->vtime_ns = p->scx.dsq_vtime;
	state->since_ns = scx_bpf_now();
	state->weight = p->scx.weight;
	state->busy = true;
}

void BPF_STRUCT_OPS(my_sched_stopping, struct task_struct *p, bool runnable)
{
	struct cpu_state *state = state_of(scx_bpf_task_cpu(p));

	if (!state)
		return;
	state->busy = false;
	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + cost(scx_bpf_now() - state->since_ns, state->weight));
}

/* A task comes to this scheduler, new or from another one: behind those who wait. */
void BPF_STRUCT_OPS(my_sched_enable, struct task_struct *p)
{
	scx_bpf_task_set_dsq_vtime(p, clock_ns + slice_ns);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(my_sched_init)
{
	/* On no node in particular. */
	return scx_bpf_create_dsq(QUEUE, NUMA_NO_NODE);
}

SCX_OPS_DEFINE(my_sched_ops,
	       .select_cpu = (void *)my_sched_select_cpu,
	       .enqueue = (void *)my_sched_enqueue,
	       .dispatch = (void *)my_sched_dispatch,
	       .running = (void *)my_sched_running,
	       .stopping = (void *)my_sched_stopping,
	       .enable = (void *)my_sched_enable,
	       .init = (void *)my_sched_init,
	       .name = "my_sched");
