/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fairness: who runs next, and for how long.
 *
 * Problem: tasks share the CPUs of an LLC in proportion to their weights, and those that slept are neither punished
 * nor paid for it.
 *
 * Approach: virtual time. A task that runs for t has its virtual time advance by t x 100 / weight, and a queue gives
 * its tasks out in the order of their virtual times. Each LLC has a clock: the latest virtual time at which one of its
 * tasks began to run. A task whose slice is over is never so far behind the clock that its lag could bring it to another
 * CPU more than twice (queues.bpf.h), one that slept never further than `sleeper_credit_ns` behind those who wait, and none
 * is further ahead than LAG_MAX_NS.
 *
 * Clocks of different LLCs run apart, so a virtual time says whose clock it is told by: its low byte is the LLC's number,
 * and vtime_in() tells it by another clock. The next bit is for the queue's use (some hundred ns do not matter).
 *
 * A task whose slice ends goes on if its virtual time is still before that of the first in the queue: this, not the
 * length of slices, is what makes weights count where there is only one CPU.
 *
 * Limits: LLCs are fair inside; between them, queues are compared by their lengths (queues.bpf.h), not by weights. Tasks
 * that may use some CPUs of an LLC, but not all, follow the LLC's clock: where their CPUs are busier than the others, they
 * fall behind it as far as they can, and share those CPUs evenly whatever their weights. Those that may use one only have
 * a queue of their own, and do not.
 */
#ifndef TANDEM_FAIRNESS_H
#define TANDEM_FAIRNESS_H

/* Weights are in 1/1024 of the kernel's, where 100 is the usual one. */
#define WEIGHT_SHIFT 10
#define WEIGHT_USUAL (100ULL << WEIGHT_SHIFT)

/* A queue is never further ahead: a task of the least weight may use 10 ms and wait for it. */
#define LAG_MAX_NS (1000ULL * 1000 * 1000)

/*
 * With more tasks a CPU than this, slices are shorter, so that a round stays as long. Shorter ones for fewer tasks gain little,
 * since who wakes need not wait for their end, and stop more vCPUs that hold a lock.
 */
#define ROUND_SLICES 3

#define LLC_BITS 8
#define LLC_MASK ((1ULL << LLC_BITS) - 1)
/* In a queue: the task was stopped, or is new, and its caches are warm on its last CPU, which is one of this LLC. */
#define WARM (1ULL << LLC_BITS)
#define TAGS (LLC_MASK | WARM)
_Static_assert(MAX_LLCS <= 1 << LLC_BITS, "an LLC's number fits into a virtual time");

static __always_inline u64 clock_of(u32 llc)
{
	struct llc_state *state = llc_state(llc);

	return state ? state->clock : 0;
}

static __always_inline bool before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

/* A virtual time, told by the clock of `llc`. */
static __always_inline u64 vtime_in(u64 vtime, u32 llc)
{
	u32 told_by = vtime & LLC_MASK;

	if (told_by != llc)
		vtime += clock_of(llc) - clock_of(told_by);
	return (vtime & ~TAGS) | llc;
}

/* The virtual time by which a task that is new or slept is measured: see llc_state. */
static __always_inline u64 turn_of(u32 llc)
{
	struct llc_state *state = llc_state(llc);

	if (!state)
		return 0;
	if (scx_bpf_dsq_nr_queued(llc) <= 0)
		state->turn = state->clock;
	return before(state->turn, state->clock) ? state->turn : state->clock;
}

/* How far behind the clock a task may be that has not slept: its lag can bring it to another CPU, but not twice. */
static __always_inline u64 lag_max_ns(void)
{
	return settings.sleeper_credit_ns + 2 * settings.migration_margin_ns;
}

/* A virtual time, told by the clock, that is not further behind it than `behind_max_ns`, and not too far ahead. */
static __always_inline u64 in_bounds(u64 vtime, u64 clock, u64 behind_max_ns)
{
	if (before(vtime, clock - behind_max_ns))
		return ((clock - behind_max_ns) & ~TAGS) | (vtime & LLC_MASK);
	if (before(clock + LAG_MAX_NS, vtime))
		return ((clock + LAG_MAX_NS) & ~TAGS) | (vtime & LLC_MASK);
	return vtime;
}

/*
 * The virtual time with which a task joins a queue. One whose slice is over keeps its own, inside the bounds around the
 * clock. One that is new or slept is measured by those whose turn it is: by the clock it would wait until all of them,
 * however many there are, had caught up with the one that is furthest.
 */
static __always_inline u64 vtime_to_queue(const struct task_struct *p, u32 llc, bool woke)
{
	/* A new task neither owes nor is owed anything. */
	if (!p->scx.dsq_vtime)
		return (turn_of(llc) & ~TAGS) | llc;
	if (woke)
		return in_bounds(vtime_in(p->scx.dsq_vtime, llc), turn_of(llc), settings.sleeper_credit_ns);
	return in_bounds(vtime_in(p->scx.dsq_vtime, llc), clock_of(llc), lag_max_ns());
}

static __always_inline void advance_clock(u32 llc, u64 vtime)
{
	struct llc_state *state = llc_state(llc);

	if (state && before(state->clock, vtime))
		state->clock = vtime;
}

/* A CPU of the LLC comes to a task that waits: it is the first of those that this CPU may run. */
static __always_inline void advance_turn(u32 llc, u64 vtime)
{
	struct llc_state *state = llc_state(llc);

	if (state && before(state->turn, vtime))
		state->turn = vtime & ~WARM;
}

/* What running for `delta_ns` adds to a virtual time. */
static __always_inline u64 charge(u64 delta_ns, u64 weight)
{
	if (weight == WEIGHT_USUAL || !weight)
		return delta_ns;
	return delta_ns * WEIGHT_USUAL / weight;
}

/* The virtual time of what runs on a CPU, up to now. */
static __always_inline u64 running_vtime(const struct cpu_state *cpu, u64 now_ns)
{
	return cpu->vtime + charge(now_ns - cpu->charged_ns, cpu->weight);
}

/* Charges the running task up to now. */
static __always_inline void settle(struct cpu_state *cpu, u64 now_ns)
{
	if (before(cpu->charged_ns, now_ns)) {
		cpu->vtime += charge(now_ns - cpu->charged_ns, cpu->weight);
		cpu->charged_ns = now_ns;
	}
}

/* The slice of a task that joins the queue of `llc`. */
static __always_inline u64 slice_in(u32 llc)
{
	s32 nr_queued = scx_bpf_dsq_nr_queued(llc);
	u32 nr_cpus = nr_cpus_of(llc);
	u64 slice_ns;

	if (nr_queued <= 0)
		return settings.slice_ns;
	slice_ns = ROUND_SLICES * settings.slice_ns * nr_cpus / (nr_cpus + nr_queued);
	if (slice_ns > settings.slice_ns)
		return settings.slice_ns;
	return slice_ns > settings.slice_min_ns ? slice_ns : settings.slice_min_ns;
}

#endif
