/* SPDX-License-Identifier: GPL-2.0-only */
/* The scheduler's state: settings and topology (read-only), each CPU, each LLC, counters, queues. */
#ifndef TANDEM_STATE_H
#define TANDEM_STATE_H

const volatile struct settings settings;
const volatile struct cpu_place cpu_places[MAX_CPUS];
const volatile struct llc_place llc_places[MAX_LLCS];
const volatile struct node_place node_places[MAX_NODES];

/*
 * Queues (DSQs), all ordered by virtual time. One per LLC, with the LLC's number, holds tasks that woke,
 * which all its CPUs may run. Two per CPU: one for tasks that ran there last and whose caches are warm, which
 * all CPUs of the LLC may run as well; and one for tasks that may not use all CPUs of the LLC.
 */
enum { WARM_QUEUE = 0x10000, BOUND_QUEUE = 0x20000 };

/*
 * A CPU. Only its own scheduling writes here, except where noted; others read, and a stale value is harmless.
 */
struct cpu_state {
	/*
	 * When the running task began; until when its time has been charged, and the base of virtual times
	 * then.
	 */
	u64 since_ns;
	u64 charged_ns;
	u64 charged_base;
	/* Its virtual time at `charged_ns`, and its weight (see fairness.bpf.h). */
	u64 vtime;
	u64 weight;
	/* The weight of the previous task, which could have continued; 0: it could not. */
	u64 stopped_weight;
	/* When it was last chosen. */
	u64 turn_ns;
	/* The slice that it got then. */
	u64 given_ns;
	/* Rate control: the window, decisions in it, and whether this window is limited. */
	u64 window_start_ns;
	u32 decisions;
	bool limited;
	/* A task of this scheduler runs. */
	bool running;
	/* One has run since the scheduler was loaded. */
	bool has_run;
	/*
	 * A higher class takes the CPU, and tasks that were sent there are enqueued again: see must_stay().
	 */
	bool releases;
	/* That task may not use all CPUs of the LLC; it could continue when it last stopped. */
	bool bound;
	bool goes_on;
	/*
	 * The lag behind the LLC's clock of the last task that is bound and continued, when it was chosen;
	 * when that was noted, and the clock then.
	 */
	s64 bound_lag;
	u64 bound_ns;
	u64 bound_clock;
	/*
	 * The weight of the heaviest bound task, and when it was last seen; other CPUs write it, too. See
	 * note_heavy().
	 */
	u64 heaviest;
	u64 heaviest_ns;
	/* How much the virtual times of bound tasks have grown as their lags faded. */
	u64 drift;
	/*
	 * The preferred set of the running task, if the task runs outside of it and may use all of it; else
	 * 0.
	 */
	u32 strays_from;
	/*
	 * The running task has an endless slice, so that there may be no tick; the one that has just stopped
	 * is to get one.
	 */
	bool tickless;
	bool wants_tickless;
	/* The running task woke one that waits behind it on this CPU. */
	bool stayed;
	/* The running task yielded: its virtual time does not keep it here. */
	bool yielded;
	/*
	 * Tasks in the CPU's own queues, in each and those that other CPUs may take; other CPUs write it,
	 * too. See may_wait_in().
	 */
	s32 nr_warm;
	s32 nr_bound;
	s32 nr_movable;
	/* When its queues were last checked for tasks that stand too far back. */
	u64 refreshed_ns;
	u64 bound_refreshed_ns;
	/* When a task last waited for this CPU alone. */
	u64 waited_ns;
	/* Tasks of queues that it has examined for this decision. */
	u32 looked;
	/* The CPU of the LLC that this one checks next for a task that is owed more. */
	u32 look_at;
	/*
	 * The CPU of the LLC that it checks next for a running task that has had more than one that stops
	 * here.
	 */
	u32 push_at;
	/* When it last checked another LLC, and which. */
	u64 balanced_ns;
	u32 balance_with;
	/* The same for an LLC to take a task from; and the CPU there whose queues it checked. */
	u64 pulled_ns;
	u32 pull_from;
	u32 pull_at;
	/*
	 * Directed yield: the target's number, 0 for none, and the queue where it waits. Other CPUs write it.
	 */
	s32 yield_to;
	u64 yield_queue;
	/* Guest mode: the steal time at the CPU's last tick, and when it had grown. */
	u64 steal_ns;
	u64 stolen_at_ns;
} __attribute__((aligned(64)));

struct cpu_state cpu_states[MAX_CPUS];

/* Whether there is a CPU whose tick the kernel may stop. */
bool some_tickless;

/* See fairness.bpf.h. The CPUs of the LLC share all of it. */
struct llc_state {
	/* The virtual time of a task that gets exactly its share. */
	u64 clock;
	/* The sum of the weights of its runnable tasks, and their number. */
	s64 weight;
	s32 nr_runnable;
	/*
	 * How many of them wait in its queue, and how many wait anywhere in it that more than one CPU may
	 * run: see may_wait_in().
	 */
	s32 nr_queued;
	s32 nr_movable;
	/* The CPU in one of whose queues such a task last began to wait. */
	u32 waits_at;
	/* When such a task last ceased to wait. */
	u64 waited_ns;
	/*
	 * The lag behind the base of virtual times of a task that may use the whole LLC and continued, and
	 * when.
	 */
	s64 unbound;
	u64 unbound_ns;
	/*
	 * When its CPUs without ticks last had to decide because tasks waited elsewhere, and which one is
	 * next.
	 */
	u64 ended_ns;
	u32 end_at;
	/* The base of virtual times, see base_of(); and the clock and the time when it was computed. */
	u64 base;
	u64 based_clock;
	u64 based_ns;
} __attribute__((aligned(64)));

struct llc_state llc_states[MAX_LLCS];

enum counter {
#define COUNTER(name, description) COUNTER_##name,
#include "counters.h"
#undef COUNTER
	NR_COUNTERS,
};

struct counters {
	u64 value[NR_COUNTERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counters);
} counters SEC(".maps");

static __always_inline void count(enum counter counter)
{
	u32 zero = 0;
	struct counters *all = bpf_map_lookup_elem(&counters, &zero);

	if (all)
		all->value[counter]++;
}

/* NULL if there is no such CPU or LLC; the verifier sees the bound. */
static __always_inline struct cpu_state *cpu_state(s32 cpu)
{
	return MEMBER_VPTR(cpu_states, [(u32)cpu]);
}

static __always_inline struct llc_state *llc_state(u32 llc)
{
	return MEMBER_VPTR(llc_states, [llc]);
}

static __always_inline u32 llc_of(s32 cpu)
{
	const volatile struct cpu_place *place = MEMBER_VPTR(cpu_places, [(u32)cpu]);

	return place ? place->llc : 0;
}

static __always_inline u32 node_of(s32 cpu)
{
	const volatile struct cpu_place *place = MEMBER_VPTR(cpu_places, [(u32)cpu]);

	return place ? place->node : 0;
}

/*
 * Makes a CPU decide, or wakes it. Not from a CPU that is about to go offline: kernels up to 7.3 would wait
 * for ever, while they unload the scheduler, until that CPU has sent its requests. They restart the scheduler
 * then, so that nothing is lost. Not static: it is verified once, and not again for each caller.
 */
__noinline int kick_cpu(s32 cpu, u64 flags)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	bool on = bpf_cpumask_test_cpu(bpf_get_smp_processor_id(), online);

	scx_bpf_put_cpumask(online);
	if (on)
		scx_bpf_kick_cpu(cpu, flags);
	return 0;
}

/* Whether another thread of the CPU's core runs a task of this scheduler. */
static __always_inline bool shares_core(s32 cpu)
{
	s32 other = cpu, i;

	if (!settings.smt)
		return false;
	bpf_for(i, 1, MAX_CORE_THREADS) {
		const volatile struct cpu_place *place = MEMBER_VPTR(cpu_places, [(u32)other]);
		struct cpu_state *state;

		if (!place)
			break;
		other = place->next_thread;
		if (other == cpu)
			break;
		state = cpu_state(other);
		if (state && state->running)
			return true;
	}
	return false;
}

static __always_inline const volatile struct node_place *node_place(u32 node)
{
	return MEMBER_VPTR(node_places, [node]);
}

static __always_inline u32 nr_cpus_of(u32 llc)
{
	const volatile struct llc_place *place = MEMBER_VPTR(llc_places, [llc]);

	return place && place->nr_cpus ? place->nr_cpus : 1;
}

static __always_inline u32 node_of_llc(u32 llc)
{
	const volatile struct llc_place *place = MEMBER_VPTR(llc_places, [llc]);

	return place ? place->node : 0;
}

/* Whether only tasks that are bound to the CPU run there. */
static __always_inline bool is_isolated(s32 cpu)
{
	const volatile struct cpu_place *place = MEMBER_VPTR(cpu_places, [(u32)cpu]);

	return place && place->isolated;
}

static __always_inline u32 first_cpu_of(u32 llc)
{
	const volatile struct llc_place *place = MEMBER_VPTR(llc_places, [llc]);

	return place ? place->first_cpu : 0;
}

/* The next CPU of the LLC, in a ring. */
static __always_inline u32 next_in_llc(u32 cpu)
{
	const volatile struct cpu_place *place = MEMBER_VPTR(cpu_places, [cpu]);

	return place ? place->next_in_llc : cpu;
}

/* The CPUs of each LLC. */
struct llc_cpus {
	struct bpf_cpumask __kptr *mask;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LLCS);
	__type(key, u32);
	__type(value, struct llc_cpus);
} llc_cpus SEC(".maps");

static __always_inline struct bpf_cpumask *cpus_of_llc(u32 llc)
{
	struct llc_cpus *cpus = bpf_map_lookup_elem(&llc_cpus, &llc);

	return cpus ? cpus->mask : NULL;
}

/* Masks for intermediate results, two per CPU. */
struct scratch {
	struct bpf_cpumask __kptr *first;
	struct bpf_cpumask __kptr *second;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct scratch);
} scratch_masks SEC(".maps");

static __always_inline struct scratch *scratch(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&scratch_masks, &zero);
}

/* Puts a new, empty mask into `place`. */
static int new_mask(struct bpf_cpumask **place)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();

	if (!mask)
		return -ENOMEM;
	mask = bpf_kptr_xchg(place, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return 0;
}

#endif
