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

/* Queues (DSQs): one an LLC, with the LLC's number, and one a CPU, for tasks that may run nowhere else. */
enum { CPU_QUEUE = 0x10000 };

/* A CPU. Only its own scheduling writes here, but for directed yields; others read, and a stale value does no harm. */
struct cpu_state {
	/* When the running task began, and up to when its time has been charged. */
	u64 since_ns;
	u64 charged_ns;
	/* Its virtual time at `charged_ns`, and its weight (see fairness.bpf.h). */
	u64 vtime;
	u64 weight;
	/* Rate control: the window, decisions in it, and whether this window is limited. */
	u64 window_start_ns;
	u32 decisions;
	bool limited;
	/* A task runs, and is of this scheduler. */
	bool running;
	/* The running task woke one that waits behind it on this CPU. */
	bool stayed;
	/* The running task yielded: its virtual time does not keep it here. */
	bool yielded;
	/* The running task is the target of a directed yield: it runs before its time, and does not move the clock. */
	bool by_yield;
	/* Tasks may wait in the CPU's own queue. */
	bool pinned_wait;
	/* Directed yield: the target's number, 0 for none, and the queue it waits in. */
	s32 yield_to;
	u64 yield_queue;
	/* Guest mode: steal time that the CPU's last tick saw, and when it had grown. */
	u64 steal_ns;
	u64 stolen_at_ns;
} __attribute__((aligned(64)));

struct cpu_state cpu_states[MAX_CPUS];

struct llc_state {
	/* The virtual time up to which tasks of the LLC have run: see fairness.bpf.h. */
	u64 clock;
	/*
	 * Up to where its queue has been served: behind the clock, which a single task that has its CPU for long moves, by as
	 * much as those who wait for their own CPUs lag. Whom no CPU takes does not hold it up.
	 */
	u64 turn;
	/* When the queue looked last for a shorter one. */
	u64 balanced_ns;
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
