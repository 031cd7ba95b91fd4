/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Balance: how tasks get from CPU to CPU and from LLC to LLC.
 *
 * Problem: no CPU may idle while a task waits that may use it; CPU time is to be fair over all CPUs that
 * tasks can reach; and a move costs caches, the more the farther it goes.
 *
 * Approach, in the order of distance:
 * 1. A CPU with nothing to run takes tasks that wait: in its LLC, then in others, nearest node first, there
 *    tasks that prefer this CPU before the rest.
 * 2. At each decision and each tick a CPU checks two others of its LLC, where a task last began to wait and
 *    the next in turn, and takes the first task that waits there if that is owed `migration_margin_ns` more
 *    than the task that would run here.
 * 3. A task that may only use some CPUs of an LLC, and whose slice ended or that wakes, checks two others of
 *    them and goes where it is owed more than others by that margin, or by `preempt_margin_ns` if it wakes,
 *    because its caches are colder. While some CPU idles, it goes where a task runs that could use that CPU,
 *    which then makes room. So does a task that may go to another LLC, where a CPU idles, for one that waits
 *    and may not.
 * 4. A task that joins a queue goes to another LLC if that has less to do for each of its CPUs, weights
 *    counted, by more than IMBALANCE_*_PCT; or if the clock there has advanced lately by twice the margin
 *    more than here, which is how tasks take turns where their number does not divide.
 * 5. A task that waits does not choose again. So a CPU that decides checks another LLC once in
 *    `balance_interval_ns`, in turn, and takes the task that waits there first if it would be better off here
 *    by the same rule.
 *
 * All checks are of a constant number of places, whatever the size of the machine, except those of a CPU that
 * would idle.
 */
#ifndef TANDEM_BALANCE_H
#define TANDEM_BALANCE_H

enum {
	/* Other CPUs that a bound task checks, and that a CPU checks for a queue with a task to take. */
	BOUND_LOOKS = 2,
	SIBLING_LOOKS = 4,
	/*
	 * How much more an LLC must have to do for a task to leave it: inside a node, for another node, and
	 * away from home.
	 */
	IMBALANCE_NEAR_PCT = 110,
	IMBALANCE_FAR_PCT = 150,
	IMBALANCE_HOME_PCT = 400,
};

/*
 * How far a CPU has served the tasks that run there, against the clocks of all: a task that comes from where
 * this is less is owed the difference. `*known` is false if the CPU does not run tasks of this scheduler.
 */
static s64 served_on(s32 cpu, u64 now_ns, bool *known)
{
	struct cpu_state *state = cpu_state(cpu);
	u32 llc = llc_of(cpu);

	*known = state && state->running;
	return bound_turn_on(cpu, llc, now_ns) - clock_of(llc) + pace_of(llc, now_ns);
}

/* Whether some CPU of an LLC idles. */
__noinline int some_cpu_idles(u32 llc)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	struct bpf_cpumask *cpus = cpus_of_llc(llc);
	bool found = cpus && bpf_cpumask_intersects(idle, cast_mask(cpus));

	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/*
 * The CPU in whose queue a bound task is to wait, which is on `cpu`, and has just run there if it did not
 * wake.
 */
static s32 best_for_bound(struct task_struct *p, struct task_state *task, s32 cpu, bool woke, u64 now_ns)
{
	s64 served, best_served;
	s32 best = cpu, other, i;
	bool known;

	best_served = served_on(cpu, now_ns, &known);
	if (!woke && task->llc == llc_of(cpu))
		best_served = vtime_after_wait(task, now_ns) - clock_of(task->llc) + pace_of(task->llc, now_ns);
	if (known || !woke)
		best_served += charge(woke ? settings.preempt_margin_ns : settings.migration_margin_ns, task->weight);
	for (i = 0; i < BOUND_LOOKS; i++) {
		struct cpu_state *state;

		other = bpf_cpumask_any_distribute(p->cpus_ptr);
		state = cpu_state(other);
		if (other == cpu || !state)
			continue;
		/* The task that runs there could go to an idle CPU, and this task could not. */
		if (state->running && !state->bound && some_cpu_idles(llc_of(other)))
			return other;
		served = served_on(other, now_ns, &known);
		if (known && served > best_served) {
			best = other;
			best_served = served;
		}
	}
	return best;
}

/* The weight of all runnable tasks of an LLC. */
static __always_inline u64 weight_in(u32 llc)
{
	struct llc_state *state = llc_state(llc);

	return state && state->weight > 0 ? (u64)state->weight : 0;
}

/*
 * Whether the clock of an LLC has advanced lately by so much CPU time of a task more than that of another
 * one.
 */
static __always_inline bool is_faster(u32 llc, u32 than, u64 by_ns, u64 weight, u64 now_ns)
{
	return (s64)(pace_of(llc, now_ns) - pace_of(than, now_ns)) > (s64)charge(by_ns, weight);
}

/*
 * Whether a task of `llc` is to go to another one, whose CPUs it may use: that has less to do for each of
 * them, with the task; or, if they take turns, is faster, and does not have more to do already.
 */
static bool better_in(struct task_struct *p, u32 llc, u32 other, bool turns, u64 now_ns)
{
	u64 here = weight_in(llc) * nr_cpus_of(other), there = weight_in(other) * nr_cpus_of(llc);
	u32 pct = node_of_llc(other) == node_of_llc(llc) ? IMBALANCE_NEAR_PCT : IMBALANCE_FAR_PCT;
	struct preference_set *set = preferred_set(p, preference_of_task(p));
	struct task_state *task = task_state(p);
	u64 margin_ns = 2 * settings.migration_margin_ns;

	if (!task)
		return false;
	if (set) {
		struct bpf_cpumask *mask = set->mask, *cpus = cpus_of_llc(other);

		if (!mask || !cpus || !bpf_cpumask_intersects(cast_mask(cpus), cast_mask(mask))) {
			pct = IMBALANCE_HOME_PCT;
			margin_ns *= 2;
		}
	}
	return here * 100 > (there + task->weight * nr_cpus_of(llc)) * pct ||
	       (turns && there <= here && is_faster(other, llc, margin_ns, task->weight, now_ns));
}

/* The LLC whose queue a task is to join that would join that of `cpu`. */
static u32 balanced_llc(struct task_struct *p, s32 cpu, u64 now_ns)
{
	struct cpu_state *state = cpu_state(cpu);
	u32 llc = llc_of(cpu), other;
	struct bpf_cpumask *cpus;

	if (settings.nr_llcs < 2 || !state || now_ns - state->balanced_ns < settings.balance_interval_ns)
		return llc;
	state->balanced_ns = now_ns;
	other = state->balance_with + 1 < settings.nr_llcs ? state->balance_with + 1 : 0;
	state->balance_with = other;
	cpus = cpus_of_llc(other);
	if (other == llc || !cpus || !bpf_cpumask_intersects(cast_mask(cpus), p->cpus_ptr) || !better_in(p, llc, other, true, now_ns))
		return llc;
	count(COUNTER_balanced);
	return other;
}

/* Whether a task may run on `cpu` and, with `preferring`, prefers it. */
static __always_inline bool fits(struct task_struct *p, s32 cpu, bool preferring)
{
	struct preference_set *set;
	struct bpf_cpumask *mask;

	if (!may_use(p, cpu))
		return false;
	if (!preferring)
		return true;
	set = preferred_set(p, preference_of_task(p));
	mask = set ? set->mask : NULL;
	return mask && bpf_cpumask_test_cpu(cpu, cast_mask(mask));
}

/*
 * Moves the first task of a queue that may run on `cpu`, or prefers it, to this CPU; with `bounded`, one that
 * is earlier than `bound`.
 */
__noinline int take_fitting(s32 cpu, u64 queue, bool preferring, u64 bound, bool bounded)
{
	u64 now_ns = bounded ? scx_bpf_now() : 0;
	struct cpu_state *state = cpu_state(cpu);
	struct task_struct *p;
	u32 looked = 0;

	if (!state || state->looked >= SEARCH_ALL_MAX || !may_wait_in(queue) || !may_move(cpu))
		return false;
	bpf_for_each(scx_dsq, p, queue, 0) {
		if (bounded && !before(vtime_of_waiting(p, now_ns), bound))
			break;
		if (fits(p, cpu, preferring) && move_here(BPF_FOR_EACH_ITER, p, cpu))
			return true;
		state->looked++;
		if (++looked >= SEARCH_MAX || state->looked >= SEARCH_ALL_MAX)
			break;
	}
	return false;
}

/* Takes a task that waits for another CPU. */
static __always_inline bool take_from_cpu(s32 cpu, u32 other, bool preferring)
{
	struct cpu_state *state = cpu_state(other);

	if (!state || !state->nr_movable || other == cpu)
		return false;
	return take_fitting(cpu, WARM_QUEUE | other, preferring, 0, false) ||
	       take_fitting(cpu, BOUND_QUEUE | other, preferring, 0, false);
}

/* Takes a task that waits in an LLC, for a CPU that would idle. */
__noinline int take_from_llc(s32 cpu, u32 llc, bool preferring)
{
	const volatile struct llc_place *place = MEMBER_VPTR(llc_places, [llc]);
	struct llc_state *state = llc_state(llc);
	u32 first, other, i;

	if (!place || !state || state->nr_movable <= 0)
		return false;
	if (llc != llc_of(cpu) && take_fitting(cpu, llc, preferring, 0, false))
		return true;
	first = other = llc == llc_of(cpu) ? next_in_llc(cpu) : place->first_cpu;
	bpf_for(i, 0, MAX_CPUS) {
		if (take_from_cpu(cpu, other, preferring))
			return true;
		other = next_in_llc(other);
		if (other == first)
			break;
	}
	return false;
}

/* One step of stealing: from the LLCs of this node and of others, nearest first. */
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
			if (llc != own_llc && take_from_llc(cpu, llc, preferring)) {
				if (preferring)
					count(COUNTER_stolen_preferring);
				else
					count(i ? COUNTER_stolen_far : COUNTER_stolen_near);
				return true;
			}
		}
	}
	return false;
}

/* Takes a task that waits elsewhere, for a CPU that would idle. */
static __always_inline bool steal(s32 cpu)
{
	if (take_from_llc(cpu, llc_of(cpu), false)) {
		count(COUNTER_stolen_sibling);
		return true;
	}
	if (settings.nr_llcs < 2)
		return false;
	return (nr_preferences && steal_step(cpu, true)) || steal_step(cpu, false);
}

/*
 * The virtual time before which a task that waits on another CPU is owed so much more than one with this
 * virtual time, which would run on `cpu`, that moving it is worth the cost.
 */
static __always_inline u64 owed_before(u64 vtime, s32 cpu)
{
	return vtime - charge(settings.migration_margin_ns, mean_weight(llc_of(cpu)));
}

/* Whether a task waits for a CPU that other CPUs may take, and that is earlier than `bound`. */
__noinline int is_owed_at(u32 cpu, u64 bound, u64 now_ns)
{
	u64 first;

	return (first_vtime(WARM_QUEUE | cpu, now_ns, &first) && before(first, bound)) ||
	       (first_vtime(BOUND_QUEUE | cpu, now_ns, &first) && before(first, bound));
}

/*
 * A CPU of the LLC where a task waits that other CPUs may take, and that is earlier than `bound`: the one
 * where a task last began to wait, or the next in turn; -1: none of these.
 */
static __always_inline s32 owed_elsewhere(struct cpu_state *state, s32 cpu, u64 bound, u64 now_ns)
{
	struct llc_state *llc = llc_state(llc_of(cpu));
	u32 other, i;
	bool found = false;
	struct cpu_state *sibling;

	if (!llc || llc->nr_movable <= 0)
		return -1;
	other = llc->waits_at;
	sibling = cpu_state(other);
	if (sibling && sibling->nr_movable && other != cpu && llc_of(other) == llc_of(cpu) && is_owed_at(other, bound, now_ns))
		return other;
	other = state->look_at;
	if (llc_of(other) != llc_of(cpu))
		other = next_in_llc(cpu);
	for (i = 0; i < SIBLING_LOOKS; i++) {
		sibling = cpu_state(other);
		found = sibling && sibling->nr_movable && other != cpu;
		if (found)
			break;
		other = next_in_llc(other);
	}
	state->look_at = other;
	if (!found)
		return -1;
	if (is_owed_at(other, bound, now_ns))
		return other;
	state->look_at = next_in_llc(other);
	return -1;
}

/* Takes the first task that waits on another CPU, if it is owed more than the task that would run here. */
static __always_inline bool take_owed(struct cpu_state *state, s32 cpu, u64 vtime, u64 now_ns)
{
	u64 bound = owed_before(vtime, cpu);
	s32 other = owed_elsewhere(state, cpu, bound, now_ns);

	if (other < 0)
		return false;
	if (state->look_at == other)
		state->look_at = next_in_llc(other);
	if (!take_fitting(cpu, WARM_QUEUE | other, false, bound, true) &&
	    !take_fitting(cpu, BOUND_QUEUE | other, false, bound, true))
		return false;
	count(COUNTER_moved_owed);
	return true;
}

/*
 * Takes the first task that waits in a queue of another LLC, if it is better off on this CPU and does not
 * prefer others.
 */
__noinline int take_from_queue(s32 cpu, u64 queue, u32 llc, u64 now_ns)
{
	struct task_struct *p;

	if (!may_wait_in(queue) || !may_move(cpu))
		return false;
	bpf_for_each(scx_dsq, p, queue, 0) {
		if (!fits(p, cpu, preferred_set(p, preference_of_task(p)) != NULL) || !better_in(p, llc, llc_of(cpu), false, now_ns) ||
		    !move_here(BPF_FOR_EACH_ITER, p, cpu))
			break;
		count(COUNTER_balanced);
		return true;
	}
	return false;
}

/* Takes a task that waits in another LLC and is better off here. */
__noinline int take_from_busier(s32 cpu, u64 now_ns)
{
	struct cpu_state *state = cpu_state(cpu);
	u32 llc, other, i;

	if (settings.nr_llcs < 2 || !state || is_isolated(cpu) || now_ns - state->pulled_ns < settings.balance_interval_ns)
		return false;
	state->pulled_ns = now_ns;
	llc = state->pull_from;
	for (i = 0; i < SIBLING_LOOKS; i++) {
		llc = llc + 1 < settings.nr_llcs ? llc + 1 : 0;
		if (llc != llc_of(cpu) && movable_in(llc))
			break;
	}
	state->pull_from = llc;
	if (llc == llc_of(cpu) || !movable_in(llc))
		return false;
	other = state->pull_at;
	other = llc_of(other) == llc ? next_in_llc(other) : first_cpu_of(llc);
	state->pull_at = other;
	state = cpu_state(other);
	return take_from_queue(cpu, llc, llc, now_ns) ||
	       (state && state->nr_movable > 0 && (take_from_queue(cpu, WARM_QUEUE | other, llc, now_ns) ||
						   take_from_queue(cpu, BOUND_QUEUE | other, llc, now_ns)));
}

/*
 * Takes the task that deserves this CPU most: one that waits for it, or one that waits for another CPU and is
 * owed more. False: the running task deserves it, which can continue (`runs_on`), or no task waits.
 */
static bool take_next(struct cpu_state *state, s32 cpu, bool runs_on, u64 now_ns)
{
	u64 bound = state->vtime, first;
	s32 try;

	if (state->yielded)
		bound += charge(settings.slice_ns, state->weight);
	for (try = 0; try < TAKE_TRIES; try++) {
		s64 queue = earliest_queue(cpu, now_ns, &first);
		bool waits = queue >= 0 && (!runs_on || before(first, bound));

		if (!try && (waits || runs_on) &&
		    (take_owed(state, cpu, waits ? first : state->vtime, now_ns) || take_from_busier(cpu, now_ns)))
			return true;
		if (!waits)
			return false;
		if (scx_bpf_dsq_move_to_local(queue, 0))
			return true;
	}
	return false;
}

/*
 * A CPU of the LLC that runs a task which has had so much more than one with this virtual time, which would
 * wait for `cpu`, that this one is to go there and stop it; -1: none was found. Not a task that is bound
 * there, which could go nowhere else.
 */
__noinline s32 runs_later(s32 cpu, u64 vtime, u64 now_ns)
{
	struct cpu_state *state = cpu_state(cpu);
	u64 bound = vtime + charge(settings.migration_margin_ns, mean_weight(llc_of(cpu))), base = base_of(llc_of(cpu), now_ns);
	u32 other, i;

	if (!state)
		return -1;
	other = state->push_at;
	if (llc_of(other) != llc_of(cpu))
		other = next_in_llc(cpu);
	for (i = 0; i < SIBLING_LOOKS; i++) {
		struct cpu_state *sibling = cpu_state(other);

		if (sibling && sibling->running && !sibling->bound && other != cpu && before(sibling->since_ns + settings.preempt_margin_ns, now_ns) &&
		    before(bound, running_vtime(sibling, base, now_ns))) {
			/*
			 * The next check begins here: a caller that asks twice, to decide and to act, gets
			 * the same answer.
			 */
			state->push_at = other;
			return other;
		}
		other = next_in_llc(other);
	}
	state->push_at = other;
	return -1;
}

/* Whether there is an idle CPU that a task may use. */
static bool idle_cpu_for(struct task_struct *p)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	bool found = bpf_cpumask_intersects(idle, p->cpus_ptr);

	scx_bpf_put_idle_cpumask(idle);
	return found;
}

/* Whether the first task of a queue may use none of the idle CPUs. */
static bool waits_in_vain(u64 queue, const struct cpumask *idle)
{
	struct task_struct *p;

	if (!may_wait_in(queue))
		return false;
	bpf_for_each(scx_dsq, p, queue, 0) {
		return !bpf_cpumask_intersects(idle, p->cpus_ptr);
	}
	return false;
}

/*
 * Whether a task that runs on `cpu` is to leave it for an idle CPU of another LLC, because a task waits here
 * that may not leave the LLC.
 */
__noinline int leaves_llc(struct task_struct *p __arg_trusted, s32 cpu)
{
	struct cpu_state *state = cpu_state(cpu);
	const struct cpumask *idle;
	bool leaves = false;
	u32 other, i;

	if (!state)
		return false;
	other = state->look_at;
	if (llc_of(other) != llc_of(cpu))
		other = cpu;
	idle = scx_bpf_get_idle_cpumask();
	if (bpf_cpumask_intersects(idle, p->cpus_ptr)) {
		leaves = waits_in_vain(llc_of(cpu), idle) || waits_in_vain(WARM_QUEUE | cpu, idle);
		for (i = 0; i < SIBLING_LOOKS; i++) {
			if (leaves)
				break;
			leaves = waits_in_vain(WARM_QUEUE | other, idle);
			other = next_in_llc(other);
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	return leaves;
}

/*
 * Whether a running task that may use the whole LLC is to leave a CPU to tasks that are bound to it: for an
 * idle one, or for one where a task runs that has had more than they have; or to tasks that may not leave the
 * LLC.
 */
static bool makes_room(struct task_struct *p, struct cpu_state *state, s32 cpu, u64 now_ns)
{
	u64 first;

	if (is_bound(p, llc_of(cpu)))
		return false;
	if (first_vtime(BOUND_QUEUE | cpu, now_ns, &first) && (idle_cpu_for(p) || runs_later(cpu, first, now_ns) >= 0))
		return true;
	return settings.nr_llcs > 1 && movable_in(llc_of(cpu)) && leaves_llc(p, cpu);
}

#endif
