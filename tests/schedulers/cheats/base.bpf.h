/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The honest scheduler that every cheat is a change of: one queue in the order of virtual time, which weights make pass
 * faster or slower, and preemption by tasks that are far behind.
 *
 * A cheat defines some of the macros below before it includes this.
 */
#define __SCX_ENUMS_BPF_H
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define QUEUE 0
#define HELD 1
#define USUAL_WEIGHT 100
#define SLICE_NS 5000000ULL
#define PREEMPT_NS 1000000ULL
#define AHEAD_MAX_NS 100000000ULL
#define MS 1000000ULL

/* What is known about a task. */
struct about {
	u64 since_ns;
	/* CPU time since it woke up, and in all. */
	u64 burst_ns;
	u64 ran_ns;
	u64 wakes;
	/* Of its last burst. */
	u64 last_burst_ns;
	u64 woke_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct about);
} abouts SEC(".maps");

struct cpu_state {
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

static u64 clock_ns;
static u64 begin_ns;

static inline struct about *about(struct task_struct *p)
{
	return bpf_task_storage_get(&abouts, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

/* Time since the scheduler began. */
static inline u64 now_ns(void)
{
	return scx_bpf_now() - begin_ns;
}

/* Whether it computes for long, as batch work does. */
static inline bool is_hog(struct task_struct *p)
{
	struct about *own = about(p);

	return own && (own->burst_ns > 1500000 || own->last_burst_ns > 1500000);
}

#ifdef BEFORE
BEFORE
#endif
#ifndef WEIGHT_OF
#define WEIGHT_OF(p) ((p)->scx.weight)
#endif
#ifndef SLICE_OF
#define SLICE_OF(p) SLICE_NS
#endif
/* Virtual time that is added where a task waits, ns. */
#ifndef DEBT_OF
#define DEBT_OF(p) 0
#endif
/* Tasks that go into the other queue. */
#ifndef IS_HELD
#define IS_HELD(p) false
#endif
/* Whether a CPU without anything else takes tasks from there. */
#ifndef SERVES_HELD
#define SERVES_HELD(cpu) true
#endif
/* Whether a CPU runs tasks at all. */
#ifndef IS_OPEN
#define IS_OPEN(cpu) true
#endif
#ifndef ON_ENQUEUE
#define ON_ENQUEUE(p)
#endif
#ifndef PREEMPTS
#define PREEMPTS(p) true
#endif
#ifndef ON_INIT
#define ON_INIT
#endif
#ifndef ON_INIT_TASK
#define ON_INIT_TASK(p) 0
#endif

static struct cpu_state *state_of(s32 cpu)
{
	u32 first = 0;

	return bpf_map_lookup_percpu_elem(&cpu_states, &first, cpu);
}

static bool is_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

static u64 cost(u64 ran_ns, u32 weight)
{
	return ran_ns * USUAL_WEIGHT / (weight ?: 1);
}

static u64 near_clock(u64 vtime_ns, u32 weight)
{
	u64 ahead_ns = cost(SLICE_NS + 8 * MS, weight);

	if (ahead_ns > AHEAD_MAX_NS)
		ahead_ns = AHEAD_MAX_NS;
	if (is_before(vtime_ns, clock_ns - SLICE_NS))
		return clock_ns - SLICE_NS;
	if (is_before(clock_ns + ahead_ns, vtime_ns))
		return clock_ns + ahead_ns;
	return vtime_ns;
}

static bool is_behind(u64 vtime_ns, s32 cpu, u64 lead_ns)
{
	struct cpu_state *state = state_of(cpu);

	if (!state || !state->busy)
		return false;
	return is_before(vtime_ns + lead_ns, state->vtime_ns + cost(scx_bpf_now() - state->since_ns, state->weight));
}

s32 BPF_STRUCT_OPS(base_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct about *own = about(p);
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (own) {
		own->wakes++;
		own->last_burst_ns = own->burst_ns;
		own->burst_ns = 0;
		own->woke_ns = scx_bpf_now();
	}
	if (is_idle && !IS_HELD(p) && IS_OPEN(cpu))
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SLICE_OF(p), 0);
	return cpu;
}

void BPF_STRUCT_OPS(base_enqueue, struct task_struct *p, u64 enq_flags)
{
	u64 vtime_ns = near_clock(p->scx.dsq_vtime, WEIGHT_OF(p)) + DEBT_OF(p);
	s32 cpu;

	ON_ENQUEUE(p);
	if (IS_HELD(p)) {
		scx_bpf_dsq_insert(p, HELD, SLICE_OF(p), enq_flags);
		return;
	}
	scx_bpf_dsq_insert_vtime(p, QUEUE, SLICE_OF(p), vtime_ns, enq_flags);
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	else if ((enq_flags & SCX_ENQ_WAKEUP) && PREEMPTS(p) && is_behind(vtime_ns, scx_bpf_task_cpu(p), PREEMPT_NS))
		scx_bpf_kick_cpu(scx_bpf_task_cpu(p), SCX_KICK_PREEMPT);
}

void BPF_STRUCT_OPS(base_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_state *state = state_of(cpu);
	bool is_first = true, goes_on = false;
	struct task_struct *p;

	if (!IS_OPEN(cpu))
		return;
	bpf_for_each(scx_dsq, p, QUEUE, 0) {
		if (is_first && is_before(clock_ns, p->scx.dsq_vtime))
			clock_ns = p->scx.dsq_vtime;
		is_first = false;
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
			goes_on = prev && state && state->busy && !IS_HELD(prev) && !is_behind(p->scx.dsq_vtime, cpu, 0);
			break;
		}
	}
	if (goes_on)
		scx_bpf_task_set_slice(prev, SLICE_OF(prev));
	else if (!scx_bpf_dsq_move_to_local(QUEUE, 0) && SERVES_HELD(cpu))
		scx_bpf_dsq_move_to_local(HELD, 0);
}

void BPF_STRUCT_OPS(base_running, struct task_struct *p)
{
	struct cpu_state *state = state_of(scx_bpf_task_cpu(p));

	if (!state)
		return;
	state->vtime_ns = p->scx.dsq_vtime;
	state->since_ns = scx_bpf_now();
	state->weight = WEIGHT_OF(p);
	state->busy = true;
}

void BPF_STRUCT_OPS(base_stopping, struct task_struct *p, bool runnable)
{
	struct cpu_state *state = state_of(scx_bpf_task_cpu(p));
	struct about *own = about(p);
	u64 ran_ns;

	if (!state)
		return;
	state->busy = false;
	ran_ns = scx_bpf_now() - state->since_ns;
	if (own) {
		own->ran_ns += ran_ns;
		own->burst_ns += ran_ns;
	}
	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + cost(ran_ns, state->weight));
}

void BPF_STRUCT_OPS(base_enable, struct task_struct *p)
{
	scx_bpf_task_set_dsq_vtime(p, clock_ns + SLICE_NS);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(base_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	return ON_INIT_TASK(p);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(base_init)
{
	s32 error;

	begin_ns = scx_bpf_now();
	ON_INIT;
	error = scx_bpf_create_dsq(QUEUE, NUMA_NO_NODE);
	return error ?: scx_bpf_create_dsq(HELD, NUMA_NO_NODE);
}

SCX_OPS_DEFINE(base_ops,
	       .select_cpu = (void *)base_select_cpu,
	       .enqueue = (void *)base_enqueue,
	       .dispatch = (void *)base_dispatch,
	       .running = (void *)base_running,
	       .stopping = (void *)base_stopping,
	       .enable = (void *)base_enable,
	       .init_task = (void *)base_init_task,
	       .init = (void *)base_init,
	       .name = "base");
