/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * One CPU decides for all others.
 *
 * Tasks that wait stand in a queue of the scheduler's own, a BPF map of process numbers, where the kernel does not see
 * them. Only the central CPU takes them out, and puts them into the local queues of CPUs that have asked for work. The
 * others run their tasks without slices; a timer of the scheduler's takes the CPU from those that had it long enough.
 * So no CPU but the central one ever has to decide anything, which is what such a design is for.
 *
 *     wakes:          enqueue -> `waiting` (map)              then kick the central CPU
 *     runs dry:       dispatch on CPU n -> wants[n] = true    then kick the central CPU
 *     central CPU:    dispatch: `waiting` -> local queue of each CPU that wants one, and kick that
 *     timer:          kick each CPU whose task has run for a slice, if a task waits
 *
 * Limits, which are those of the design: the central CPU's own task keeps it while others want CPUs, since only
 * this CPU decides, and only its timer could take the task away. A task that must not wait should not run there.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define CPUS_MAX 1024
#define WAITING_MAX 8192
/* For tasks that cannot go where the central CPU would send them: CPUs look there first. */
#define FALLBACK_DSQ 0

const volatile s32 central_cpu;
const volatile u64 slice_ns = 4000000;
/* The timer's. */
const volatile u64 period_ns = 1000000;

/* What `dispatch` of the central CPU has to know of a CPU, and the timer. */
static bool wants[CPUS_MAX];
static u64 started_ns[CPUS_MAX];
/* How many tasks are in `waiting`. */
static u64 waiting_count;
static u32 cpu_count;

/* A queue: no keys, only push and pop. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, WAITING_MAX);
	__type(value, s32);
} waiting SEC(".maps");

/* A timer lives in a map: the kernel has to know when the scheduler goes, and the timer with it. */
struct slice_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct slice_timer);
} timers SEC(".maps");

/* A place of a CPU in an array; the verifier does not believe that CPUs have small numbers. */
static bool *wants_of(s32 cpu)
{
	return cpu >= 0 && cpu < CPUS_MAX ? &wants[cpu] : NULL;
}

static u64 *started_of(s32 cpu)
{
	return cpu >= 0 && cpu < CPUS_MAX ? &started_ns[cpu] : NULL;
}

/* Tasks wake towards the central CPU, so that they cost no other CPU any time. */
s32 BPF_STRUCT_OPS(central_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return central_cpu;
}

void BPF_STRUCT_OPS(central_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 pid = p->pid;

	/* Tasks of one CPU (kernel threads, above all) are urgent, and there is nothing to decide. */
	if (p->nr_cpus_allowed == 1) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	if (bpf_map_push_elem(&waiting, &pid, 0)) {
		scx_bpf_dsq_insert(p, FALLBACK_DSQ, slice_ns, enq_flags);
		return;
	}
	__sync_fetch_and_add(&waiting_count, 1);
	/* Preemption: the central CPU may be running a task itself. */
	scx_bpf_kick_cpu(central_cpu, SCX_KICK_PREEMPT);
}

/*
 * Sends a CPU the first task of those that wait and may run there; whether there was one. Others that stand before it
 * go to the fallback queue, from where the CPUs where they may run take them.
 *
 * A function of its own, whose loop has one end: of several, clang makes a register that only one of them sets, which
 * the verifier refuses.
 */
static __noinline bool send_task_to(s32 cpu)
{
	struct task_struct *p;
	s32 pid, idle_cpu;
	bool sent = false;

	bpf_repeat(WAITING_MAX) {
		if (bpf_map_pop_elem(&waiting, &pid))
			break;
		__sync_fetch_and_sub(&waiting_count, 1);
		/* It may have ended while it stood in the map, which knows nothing of that. */
		p = bpf_task_from_pid(pid);
		if (!p)
			continue;
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cpu, SCX_SLICE_INF, 0);
			bpf_task_release(p);
			sent = true;
			break;
		}
		scx_bpf_dsq_insert(p, FALLBACK_DSQ, slice_ns, 0);
		idle_cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (idle_cpu >= 0)
			scx_bpf_kick_cpu(idle_cpu, SCX_KICK_IDLE);
		bpf_task_release(p);
		if (!scx_bpf_dispatch_nr_slots())
			break;
	}
	if (sent && cpu != central_cpu)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	return sent;
}

void BPF_STRUCT_OPS(central_dispatch, s32 cpu, struct task_struct *prev)
{
	bool *wants_task;
	s32 other;

	if (cpu != central_cpu) {
		bool has_task = scx_bpf_dsq_move_to_local(FALLBACK_DSQ, 0);

		wants_task = wants_of(cpu);
		if (wants_task)
			*wants_task = !has_task;
		if (!has_task && waiting_count)
			scx_bpf_kick_cpu(central_cpu, SCX_KICK_PREEMPT);
		return;
	}

	bpf_for(other, 0, cpu_count) {
		wants_task = wants_of(other);
		if (other == central_cpu || !wants_task || !*wants_task)
			continue;
		/* No more insertions in this call: come back for the rest. */
		if (!scx_bpf_dispatch_nr_slots()) {
			scx_bpf_kick_cpu(central_cpu, SCX_KICK_PREEMPT);
			break;
		}
		if (!send_task_to(other))
			break;
		*wants_task = false;
	}
	/* The central CPU computes as well, after all others. */
	if (!scx_bpf_dsq_move_to_local(FALLBACK_DSQ, 0) && scx_bpf_dispatch_nr_slots())
		send_task_to(central_cpu);
}

void BPF_STRUCT_OPS(central_running, struct task_struct *p)
{
	u64 *started = started_of(scx_bpf_task_cpu(p));

	/* 0 stands for none. */
	if (started)
		*started = scx_bpf_now() ?: 1;
}

void BPF_STRUCT_OPS(central_stopping, struct task_struct *p, bool runnable)
{
	u64 *started = started_of(scx_bpf_task_cpu(p));

	if (started)
		*started = 0;
}

static int end_slices(void *map, int *key, struct bpf_timer *timer)
{
	u64 now_ns = scx_bpf_now();
	u64 *started;
	s32 cpu;

	bpf_for(cpu, 0, cpu_count) {
		started = started_of(cpu);
		if (!started || !*started || now_ns - *started < slice_ns)
			continue;
		/* Without slices nothing else would ever end a task's turn. */
		if (waiting_count || scx_bpf_dsq_nr_queued(FALLBACK_DSQ) > 0 ||
		    scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) > 0)
			scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
	bpf_timer_start(timer, period_ns, 0);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(central_init)
{
	struct bpf_timer *timer;
	u32 first = 0;
	s32 error, cpu;

	cpu_count = scx_bpf_nr_cpu_ids();
	/* A CPU that idles since before the scheduler was there has not asked yet. */
	bpf_for(cpu, 0, cpu_count) {
		bool *wants_task = wants_of(cpu);

		if (wants_task)
			*wants_task = true;
	}
	error = scx_bpf_create_dsq(FALLBACK_DSQ, NUMA_NO_NODE);
	if (error)
		return error;
	timer = bpf_map_lookup_elem(&timers, &first);
	if (!timer)
		return -ESRCH;
	bpf_timer_init(timer, &timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(timer, end_slices);
	return bpf_timer_start(timer, period_ns, 0);
}

SCX_OPS_DEFINE(central_ops,
	       /* A CPU whose task is its last one must ask for another, too. */
	       .flags = SCX_OPS_ENQ_LAST,
	       .select_cpu = (void *)central_select_cpu,
	       .enqueue = (void *)central_enqueue,
	       .dispatch = (void *)central_dispatch,
	       .running = (void *)central_running,
	       .stopping = (void *)central_stopping,
	       .init = (void *)central_init,
	       .name = "central");
