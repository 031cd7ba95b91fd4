/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fairness: who runs next, and for how long.
 *
 * Problem: tasks share the CPUs of an LLC in proportion to their weights, and those that slept are neither punished
 * nor paid for it.
 *
 * Approach: virtual time. A task that runs for t has its virtual time advance by t x 100 / weight, and a queue gives
 * its tasks out in the order of their virtual times. Each LLC has a clock: the latest virtual time at which one of its
 * tasks began to run. A task that slept is never further behind the clock than `sleeper_credit_ns`, one that did not by
 * so much more that its lag can bring it to another CPU (queues.bpf.h), and none is further ahead than LAG_MAX_NS.
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

/* The virtual time with which a task joins a queue: inside the bounds around the clock. */
static __always_inline u64 vtime_to_queue(const struct task_struct *p, u32 llc, bool woke)
{
	u64 behind_max = settings.sleeper_credit_ns + (woke ? 0 : 2 * settings.migration_margin_ns);
	u64 clock = clock_of(llc), vtime;

	/* A new task neither owes nor is owed anything. */
	if (!p->scx.dsq_vtime)
		return (clock & ~TAGS) | llc;
	vtime = vtime_in(p->scx.dsq_vtime, llc);
	if (before(vtime, clock - behind_max))
		vtime = ((clock - behind_max) & ~TAGS) | llc;
	else if (before(clock + LAG_MAX_NS, vtime))
		vtime = ((clock + LAG_MAX_NS) & ~TAGS) | llc;
	return vtime;
}

static __always_inline void advance_clock(u32 llc, u64 vtime)
{
	struct llc_state *state = llc_state(llc);

	if (state && before(state->clock, vtime))
		state->clock = vtime;
}

/* What running for `delta_ns` adds to a virtual time. */
static __always_inline u64 charge(u64 delta_ns, u64 weight)
{
	if (weight == WEIGHT_USUAL || !weight)
		return delta_ns;
	return delta_ns * WEIGHT_USUAL / weight;
}

/* Charges the running task up to now. */
static __always_inline void settle(struct cpu_state *cpu, u64 now_ns)
{
	if (before(cpu->charged_ns, now_ns)) {
		cpu->vtime += charge(now_ns - cpu->charged_ns, cpu->weight);
		cpu->charged_ns = now_ns;
	}
}

/* The slice of a task that joins the queue of `llc`: shorter the more wait there. */
static __always_inline u64 slice_in(u32 llc)
{
	s32 nr_queued = scx_bpf_dsq_nr_queued(llc);
	u32 nr_cpus = nr_cpus_of(llc);
	u64 slice_ns;

	if (nr_queued <= 0)
		return settings.slice_ns;
	slice_ns = settings.slice_ns * nr_cpus / (nr_cpus + nr_queued);
	return slice_ns > settings.slice_min_ns ? slice_ns : settings.slice_min_ns;
}

#endif
