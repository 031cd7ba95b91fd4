/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preemption: when a task that waits stops one that runs.
 *
 * Problem: a task that uses less than its share should run when it wakes, and tasks that use more should not
 * be stopped needlessly.
 *
 * Approach: a task that wakes, or is new, preempts the one that runs where it waits, if that has had
 * `preempt_margin_ns` more than the task itself, has run for as long, and rate control does not protect it. A
 * task that waits for any CPU also checks the next CPUs of the LLC, and preempts the task that has had most.
 * It need not let others run for so long first if it has had less than half of its share lately. Each tick
 * checks for tasks that still wait; a timer does so for a task that waits for one protected CPU, and ends
 * slices that are shorter than ticks. A task whose slice has ended stops another one only where runs_later()
 * has found that it has had much less (balance.bpf.h).
 *
 * The credit of a task that slept is only for its place in the queue: otherwise tasks that wake each other
 * all the time would preempt each other as often, since all of them have it.
 */
#ifndef TANDEM_PREEMPT_H
#define TANDEM_PREEMPT_H

/*
 * By how much a task with this virtual time is before the task that runs on a CPU, if it may stop that, rate
 * control aside; else 0 or less. The running task first continues for `least_ns`, less if it has less weight
 * than `by_weight`: otherwise tasks that do little each time they wake would stop each other all the time,
 * wherever some of them have had less than others.
 */
static __always_inline s64 outranks(u64 vtime, u64 by_weight, u64 least_ns, const struct cpu_state *state, u64 base, u64 now_ns)
{
	if (!state->running)
		return 0;
	if (state->weight < by_weight)
		least_ns = least_ns * state->weight / by_weight;
	if (!before(state->since_ns + least_ns, now_ns))
		return 0;
	return running_vtime(state, base, now_ns) - charge(settings.preempt_margin_ns, state->weight) - vtime;
}

/*
 * Whether so many tasks take turns in an LLC that tasks which wake each other have no claim to an early turn.
 */
static __always_inline bool is_overloaded(u32 llc)
{
	const struct llc_state *state = llc_state(llc);

	return state && state->nr_runnable >= (s32)(OVERLOAD * nr_cpus_of(llc));
}

/*
 * How long a running task continues before this task stops it: a task that has had less than half of its
 * share lately stops others sooner, the less it has had. Where many take turns a quarter counts, because with
 * half most tasks that wake each other would qualify at times; and a new task counts as having had its share.
 */
static __always_inline u64 least_run(const struct task_state *task, u64 base)
{
	s64 pace = (s64)(clock_of(task->llc) - base) >> 20;
	u64 had = is_overloaded(task->llc) ? (task->had + task->spared) >> 18 : task->had >> 19;

	if (pace <= 0)
		return 0;
	return had < (u64)pace ? settings.preempt_margin_ns * had / (u64)pace : settings.preempt_margin_ns;
}

/*
 * Whether a task that wakes waits for the CPU where it ran, and not for whichever is free first. Otherwise,
 * where many take turns, tasks that wake each other would run on all CPUs as soon as each has something to
 * do, and do little each time. Not a task that has had little lately; nor in a guest where the host stops
 * that vCPU.
 */
static __always_inline bool waits_for_own(struct task_struct *p, const struct task_state *task, s32 cpu, u64 now_ns)
{
	return is_overloaded(task->llc) && !is_latency_critical(p) && !(settings.guest && !really_runs(cpu, now_ns)) &&
	       least_run(task, base_of(task->llc, now_ns)) == settings.preempt_margin_ns;
}

/*
 * Lets a task that waits with virtual time `vtime` for `cpu`, or for any CPU of its LLC (`anywhere`), preempt
 * the task that has had most of those that are not protected; the one on `cpu` itself if the others have not
 * had much more, since the caches are there. Not static: it is verified once, and not again for each caller.
 */
__noinline int preempt(struct task_struct *p __arg_trusted, s32 cpu, u64 vtime, bool anywhere, u64 now_ns)
{
	struct task_state *task = task_state(p);
	struct cpu_state *state, *protected = NULL;
	u64 base, turn, wait_ns = 0, least_ns;
	bool exempt = is_latency_critical(p);
	s64 most = 0;
	s32 best = -1, i;
	u32 at = cpu;

	if (!task)
		return 0;
	base = base_of(task->llc, now_ns);
	turn = anywhere ? clock_of(task->llc) : bound_turn_on(cpu, task->llc, now_ns);
	if (before(vtime, turn))
		vtime = earlier(vtime + charge(settings.sleeper_credit_ns, task->weight), turn);
	least_ns = exempt ? 0 : least_run(task, base);
	for (i = 0; i < PREEMPT_LOOKS; i++) {
		s64 by = 0;

		state = cpu_state(at);
		if (state)
			by = outranks(vtime, task->weight, least_ns, state, base, now_ns);
		if (by > 0) {
			u64 protected_for_ns = protected_ns(state, task->weight, now_ns);

			if (protected_for_ns && exempt) {
				count(COUNTER_latency_exempted);
				protected_for_ns = 0;
			}
			if (!i)
				by += charge(settings.migration_margin_ns, mean_weight(task->llc));
			if (!protected_for_ns && by > most) {
				best = at;
				most = by;
			} else if (protected_for_ns && !protected) {
				protected = state;
				wait_ns = protected_for_ns;
			}
		}
		if (!anywhere)
			break;
		at = next_in_llc(at);
	}
	if (best >= 0) {
		count(COUNTER_preempted);
		kick_cpu(best, SCX_KICK_PREEMPT);
	} else if (protected) {
		count(protected->limited ? COUNTER_rate_limited : COUNTER_ratelimit_delayed);
		/* Ticks check for tasks that wait for any CPU. */
		if (!anywhere)
			preempt_later(cpu, protected, wait_ns, now_ns);
	}
	return 0;
}

/* Whether the first task of a queue, which woke or moved there, is to stop the running task at a tick. */
static bool first_outranks(u64 queue, const struct cpu_state *state, u64 base, u64 now_ns)
{
	struct first first;

	return first_of(queue, now_ns, &first) && first.tick_looks &&
	       outranks(first.vtime, 0, settings.preempt_margin_ns, state, base, now_ns) > 0;
}

/* The same for all queues of a CPU. */
static __always_inline bool outranked_at_tick(const struct cpu_state *state, s32 cpu, u64 now_ns)
{
	u64 base = base_of(llc_of(cpu), now_ns);

	return !protected_ns(state, 0, now_ns) &&
	       (first_outranks(llc_of(cpu), state, base, now_ns) || first_outranks(BOUND_QUEUE | (u32)cpu, state, base, now_ns) ||
		first_outranks(WARM_QUEUE | (u32)cpu, state, base, now_ns));
}

/*
 * A slice begins. If it is short because the task has less weight than the one that stopped for it, a timer
 * ends it instead of a tick, which would make the slice several times as long, and the wait that the task
 * pays for it as well.
 */
static __always_inline void time_slice(const struct task_state *task, const struct cpu_state *state, s32 cpu, u64 now_ns)
{
	u64 slice_ns;

	if (task->weight >= state->stopped_weight)
		return;
	slice_ns = settings.slice_ns * task->weight / state->stopped_weight;
	if (slice_ns < settings.slice_min_ns)
		slice_ns = settings.slice_min_ns;
	if (slice_ns < settings.slice_ns / 2 && somebody_waits(cpu))
		preempt_later(cpu, state, slice_ns, now_ns);
}

#endif
