/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues: joining them, preempting, stealing, balancing.
 *
 * Each LLC has a queue; tasks that may use one CPU only wait in that CPU's. A CPU with nothing to run takes from other
 * LLCs, nearest node first, in two steps: tasks that prefer this CPU, then any that may run here. With sets that divide
 * an LLC, the own queue is looked at in the same two steps, so that a set's tasks wait for its CPUs, and others take
 * them only rather than idle. From time to time a queue that gets a task looks for a shorter one.
 *
 * A task whose slice ended, or that is new, waits for the CPU where it ran, whose caches know it. Another CPU of the LLC
 * takes it if it would idle, or if the task is further behind than `migration_margin_ns`.
 *
 * Limits: from when the kernel begins to take a CPU offline until it tells schedulers, a grace period of RCU later, that
 * CPU gets no tasks of others. Those in its LLC's queue that may use none of the other CPUs there wait so long, or until
 * a CPU of another LLC idles; if one of them was preempted in a read-side section, the grace period waits for it.
 */
#ifndef TANDEM_QUEUES_H
#define TANDEM_QUEUES_H

enum {
	/* Tasks of another LLC's queue that are asked for their preference. */
	PREFERENCE_SEARCH_MAX = 32,
	/* Tasks of the own LLC's queue that are looked at for a better one than the first. */
	OWN_SEARCH_MAX = 64,
	/* A task moves to another queue if its own is longer by so many percent. */
	IMBALANCE_PCT = 125,
};

static __always_inline bool is_pinned(const struct task_struct *p)
{
	return p->nr_cpus_allowed == 1;
}

/* Lets an idle CPU that may run the task, if there is one, look at the queues. */
static __always_inline void wake_idle(const struct task_struct *p)
{
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/*
 * Lets a task that woke, with virtual time `vtime`, preempt what runs on `cpu` if it is far enough behind. The credit of one
 * that slept is for its place in the queue alone: tasks that wake each other all the time would otherwise preempt each other
 * as often, since all of them have it.
 */
static __always_inline void preempt(struct task_struct *p, s32 cpu, u64 vtime, u64 now_ns)
{
	struct cpu_state *state = cpu_state(cpu);
	u64 turn;

	if (!state || !state->running)
		return;
	turn = turn_of(llc_of(cpu));
	if (before(vtime, turn))
		vtime = before(vtime + settings.sleeper_credit_ns, turn) ? vtime + settings.sleeper_credit_ns : turn;
	if (before(vtime + settings.preempt_margin_ns, running_vtime(state, now_ns)) && may_preempt(p, cpu, state, now_ns)) {
		count(COUNTER_preempted);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

/* The queue that a task of `llc` joins: another LLC's if that is shorter by IMBALANCE_PCT and the task may run there. */
static __always_inline u32 balanced_llc(struct task_struct *p, u32 llc, u64 now_ns)
{
	struct llc_state *state = llc_state(llc);
	u32 other, best = llc, length, best_length;

	if (settings.nr_llcs < 2 || !state || now_ns - state->balanced_ns < settings.balance_interval_ns)
		return llc;
	state->balanced_ns = now_ns;
	/* Lengths are in 1/1024 tasks a CPU. */
	best_length = scx_bpf_dsq_nr_queued(llc) * 1024 / nr_cpus_of(llc);
	bpf_for(other, 0, MAX_LLCS) {
		struct bpf_cpumask *cpus;

		if (other >= settings.nr_llcs)
			break;
		length = (scx_bpf_dsq_nr_queued(other) + 1) * 1024 / nr_cpus_of(other);
		if (other == llc || length * IMBALANCE_PCT / 100 >= best_length)
			continue;
		cpus = cpus_of_llc(other);
		if (cpus && bpf_cpumask_intersects(cast_mask(cpus), p->cpus_ptr)) {
			best = other;
			best_length = length;
		}
	}
	if (best != llc)
		count(COUNTER_balanced);
	return best;
}

/* Whether a task may run on `cpu` and prefers it, or, with `or_none`, prefers nothing. */
static __always_inline bool prefers(struct task_struct *p, s32 cpu, bool or_none)
{
	struct preference_set *set = preferred_set(p, preference_of_task(p));
	struct bpf_cpumask *mask = set ? set->mask : NULL;

	return (mask ? bpf_cpumask_test_cpu(cpu, cast_mask(mask)) : or_none) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

/*
 * Moves a task, at which an iteration over a queue is, to this CPU. While the kernel takes the CPU offline, before it
 * tells schedulers, it puts tasks of other CPUs into its global queue instead: the CPU must not take that for work.
 */
static __always_inline bool move_here(struct bpf_iter_scx_dsq *at, struct task_struct *p, s32 cpu)
{
	return scx_bpf_dsq_move(at, p, SCX_DSQ_LOCAL, 0) && scx_bpf_task_cpu(p) == cpu;
}

/*
 * Functions that are not static are verified once, for any arguments, and not again for each place that calls them.
 */

/* Moves the first task of a queue that prefers `cpu` to this CPU. */
__noinline int take_preferring(s32 cpu, u64 queue)
{
	struct task_struct *p;
	u32 looked = 0;

	bpf_for_each(scx_dsq, p, queue, 0) {
		if (prefers(p, cpu, false) && move_here(BPF_FOR_EACH_ITER, p, cpu))
			return true;
		if (++looked >= PREFERENCE_SEARCH_MAX)
			break;
	}
	return false;
}

/* One step of stealing: from the LLCs of other nodes and of this one, nearest first. */
__noinline int steal_step(s32 cpu, bool preferring)
{
	const volatile struct node_place *own = node_place(node_of(cpu)), *node;
	u32 own_llc = llc_of(cpu), i, j;

	bpf_for(i, 0, MAX_NODES) {
		if (i >= settings.nr_nodes || !own)
			break;
		node = node_place(own->by_distance[i]);
		if (!node)
			continue;
		bpf_for(j, 0, MAX_LLCS) {
			u32 llc = node->first_llc + j;

			if (j >= node->nr_llcs)
				break;
			if (llc == own_llc || scx_bpf_dsq_nr_queued(llc) <= 0)
				continue;
			if (preferring) {
				if (take_preferring(cpu, llc)) {
					count(COUNTER_stolen_preferring);
					return true;
				}
			} else if (scx_bpf_dsq_move_to_local(llc, 0)) {
				count(i ? COUNTER_stolen_far : COUNTER_stolen_near);
				return true;
			}
		}
	}
	return false;
}

static __always_inline bool steal(s32 cpu)
{
	if (settings.nr_llcs < 2)
		return false;
	return (nr_preferences && steal_step(cpu, true)) || steal_step(cpu, false);
}

/* Notes that a task joined the CPU's own queue. */
static __always_inline void note_pinned(s32 cpu)
{
	struct cpu_state *state = cpu_state(cpu);

	if (state)
		state->pinned_wait = true;
}

/* The virtual time of the first task of a queue; false: it is empty. */
static __always_inline bool first_vtime(u64 queue, u64 *vtime)
{
	struct task_struct *p = __COMPAT_scx_bpf_dsq_peek(queue);

	if (!p)
		return false;
	*vtime = p->scx.dsq_vtime;
	return true;
}

/*
 * The virtual time with which a task joins the CPU's own queue. Where the CPU is busier than others of its LLC, the tasks
 * of this queue fall behind the LLC's clock, all together: one whose slice is over keeps its distance from the others,
 * and one that wakes is measured by the earliest of them, not by the clock, or it would wait until they had caught up.
 */
static __always_inline u64 vtime_to_queue_pinned(const struct task_struct *p, s32 cpu, u32 llc, bool woke)
{
	struct cpu_state *state = cpu_state(cpu);
	u64 vtime = vtime_in(p->scx.dsq_vtime, llc), earliest = clock_of(llc), first;

	if (!woke && p->scx.dsq_vtime)
		return vtime;
	if (state && state->running && before(state->vtime, earliest))
		earliest = state->vtime;
	if (first_vtime(CPU_QUEUE | cpu, &first) && before(first, earliest))
		earliest = first;
	if (!p->scx.dsq_vtime || before(earliest, vtime))
		vtime = earliest;
	else if (before(vtime, earliest - settings.sleeper_credit_ns))
		vtime = earliest - settings.sleeper_credit_ns;
	return (vtime & ~TAGS) | llc;
}

/*
 * Takes the next task of the CPU's LLC; with `bounded`, only one that deserves the CPU more than who has virtual time
 * `bound`. A task whose caches are warm elsewhere counts as `migration_margin_ns` further ahead than it is.
 *
 * Tasks that may not run here do not count: if none of the CPUs that they may use takes them, the first of them stays
 * first, and whatever else is in the queue would pass for as early as that.
 */
__noinline int take_own(s32 cpu, u32 llc, u64 bound, bool bounded)
{
	struct task_struct *p;
	bool found = false;
	u64 earliest = 0;
	u32 looked = 0;

	bpf_for_each(scx_dsq, p, llc, 0) {
		u64 vtime = p->scx.dsq_vtime;

		if (looked++ >= OWN_SEARCH_MAX)
			break;
		if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		if (!found) {
			advance_turn(llc, vtime);
			earliest = vtime + settings.migration_margin_ns;
			found = true;
		}
		if (before(earliest, vtime) || (bounded && !before(vtime, bound)))
			break;
		if ((!(vtime & WARM) || scx_bpf_task_cpu(p) == cpu) &&
		    (!partial_sets || !nr_preferences || prefers(p, cpu, true)) && move_here(BPF_FOR_EACH_ITER, p, cpu))
			return true;
	}
	if (!found)
		advance_turn(llc, clock_of(llc));
	if (!looked || (bounded && !(found && before(earliest, bound))))
		return false;
	return scx_bpf_dsq_move_to_local(llc, 0);
}

/* The same from the CPU's own queue, or the LLC's if that has an earlier one. */
static bool take_pinned(struct cpu_state *state, s32 cpu, u32 llc, u64 bound, bool bounded)
{
	u64 first;

	if (!first_vtime(CPU_QUEUE | cpu, &first)) {
		state->pinned_wait = false;
		return false;
	}
	if (bounded && !before(first, bound))
		return false;
	return take_own(cpu, llc, first, true) || scx_bpf_dsq_move_to_local(CPU_QUEUE | cpu, 0);
}

#endif
