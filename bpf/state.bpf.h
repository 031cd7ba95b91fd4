/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the scheduler knows: settings and topology (read-only), each CPU, each LLC, counters, queues.
 */
#ifndef TANDEM_STATE_H
#define TANDEM_STATE_H

const volatile struct settings settings;
const volatile struct cpu_place cpu_places[MAX_CPUS];
const volatile struct llc_place llc_places[MAX_LLCS];
const volatile struct node_place node_places[MAX_NODES];

/*
 * Queues (DSQs), all by virtual time. One an LLC, with the LLC's number, holds tasks that woke, any of which all its CPUs may
 * run. Two a CPU: of tasks that ran there last and whose caches are warm, which all CPUs of the LLC may run as well; and of
 * tasks that may not use all CPUs of the LLC.
 */
enum { WARM_QUEUE = 0x10000, BOUND_QUEUE = 0x20000 };

/* A CPU. Only its own scheduling writes here, but for what says so; others read, and a stale value does no harm. */
struct cpu_state {
	/* When the running task began; up to when its time has been charged, and by what virtual times were told then. */
	u64 since_ns;
	u64 charged_ns;
	u64 charged_base;
	/* Its virtual time at `charged_ns`, and its weight (see fairness.bpf.h). */
	u64 vtime;
	u64 weight;
	/* The weight of the task that ran before, which could go on; 0: it could not. */
	u64 stopped_weight;
	/* When it was chosen last. */
	u64 turn_ns;
	/* The slice that it was given then. */
	u64 given_ns;
	/* Rate control: the window, decisions in it, and whether this window is limited. */
	u64 window_start_ns;
	u32 decisions;
	bool limited;
	/* A task runs, and is of this scheduler. */
	bool running;
	/* One has, since the scheduler was loaded. */
	bool has_run;
	/* A higher class takes it, and what was sent there is enqueued again: see must_stay(). */
	bool releases;
	/* That task may not use all CPUs of the LLC; it could go on when it stopped last. */
	bool bound;
	bool goes_on;
	/* How far behind the LLC's clock the last one was, when it was chosen, that may not and went on; when that was noted, and the clock then. */
	s64 bound_lag;
	u64 bound_ns;
	u64 bound_clock;
	/* The weight of the heaviest of those, and when it was seen last; others write it, too. See note_heavy(). */
	u64 heaviest;
	u64 heaviest_ns;
	/* By how much virtual times of those have grown as lags faded. */
	u64 drift;
	/* The preferred set of the running task, if it is outside of it and may use all of it; else 0. */
	u32 strays_from;
	/* The running task has an endless slice, so that no tick may come; the one that has just stopped is to get one. */
	bool tickless;
	bool wants_tickless;
	/* The running task woke one that waits behind it on this CPU. */
	bool stayed;
	/* The running task yielded: its virtual time does not keep it here. */
	bool yielded;
	/* Tasks in the CPU's own queues, those in each and those that other CPUs may take; others write it, too. See may_wait_in(). */
	s32 nr_warm;
	s32 nr_bound;
	s32 nr_movable;
	/* When its queues were looked at for those that stand too far back. */
	u64 refreshed_ns;
	u64 bound_refreshed_ns;
	/* When a task last waited for this CPU alone. */
	u64 waited_ns;
	/* Tasks of queues that it has looked at for this decision. */
	u32 looked;
	/* The CPU of the LLC that this one looks at next for one that is owed more. */
	u32 look_at;
	/* The CPU of the LLC that it looks at next for one whose task has had more than one that stops here. */
	u32 push_at;
	/* When it looked last at another LLC, and at which. */
	u64 balanced_ns;
	u32 balance_with;
	/* The same for one to take a task from; and the CPU there whose queues it looked at. */
	u64 pulled_ns;
	u32 pull_from;
	u32 pull_at;
	/* Directed yield: the target's number, 0 for none, and the queue it waits in. Others write it. */
	s32 yield_to;
	u64 yield_queue;
	/* Guest mode: steal time that the CPU's last tick saw, and when it had grown. */
	u64 steal_ns;
	u64 stolen_at_ns;
} __attribute__((aligned(64)));

struct cpu_state cpu_states[MAX_CPUS];

/* Some CPU is one whose tick the kernel may stop. */
bool some_tickless;

/* See fairness.bpf.h. All of it is shared by the CPUs of the LLC. */
struct llc_state {
	/* The virtual time of a task that gets exactly its share. */
	u64 clock;
	/* The sum of the weights of its runnable tasks, and their number. */
	s64 weight;
	s32 nr_runnable;
	/* How many of them wait in its queue, and how many anywhere in it that more than one CPU may run: see may_wait_in(). */
	s32 nr_queued;
	s32 nr_movable;
	/* The CPU in one of whose queues such a one began to wait last. */
	u32 waits_at;
	/* When one of the latter ended to wait last. */
	u64 waited_ns;
	/* How far behind the base of virtual times one was that may use all of it and went on, and when. */
	s64 unbound;
	u64 unbound_ns;
	/* When CPUs of it where no tick comes were last made to decide, because tasks waited elsewhere, and which one is next. */
	u64 ended_ns;
	u32 end_at;
	/* By what virtual times are told, see base_of(); and where the clock was and when as that was worked out. */
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

/* NULL where there is no such CPU or LLC; the verifier sees the bound. */
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
 * Lets a CPU decide, or wakes it. Not from a CPU that is about to be off: kernels up to 7.3 would wait for ever, as they unload the
 * scheduler, until that CPU has sent what it was asked to send. They restart the scheduler then, so that nothing is lost. Not static: it
 * is verified once, and not again for each place that calls it.
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

/* Whether only tasks that name the CPU run there. */
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

/* Masks to compute in, two a CPU. */
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
