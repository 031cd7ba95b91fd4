/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Queues: where tasks wait, and which one a CPU takes next.
 *
 * A task that woke, or is new, waits in its LLC's queue, for whichever CPU is free first. A task whose slice
 * ended, or that woke among many that take turns and has had its share (waits_for_own() in preempt.bpf.h),
 * waits for the CPU where it ran, whose caches are warm; other CPUs of the LLC take it rather than idle, or
 * if it is owed too much (balance.bpf.h). So does one that prefers some CPUs of the LLC to others. A task
 * that may not use all CPUs of the LLC is bound: it waits in a queue of one of those that it may use. Every
 * CPU of the LLC may run any task in the first two queues, so that it never has to search behind the first.
 *
 * A CPU takes the earliest of the three heads. Virtual times are of one clock for all CPUs of an LLC, which
 * makes that fair: see fairness.bpf.h. They change while tasks wait, and so does the right order of a queue:
 * a CPU that decides checks the first task, and once per tick the last, and moves them to their present
 * places.
 *
 * Limits: from when the kernel begins to take a CPU offline until it notifies schedulers, a grace period of
 * RCU later, that CPU gets no tasks of others. Tasks in its queues wait for so long, or until another CPU
 * takes them.
 */
#ifndef TANDEM_QUEUES_H
#define TANDEM_QUEUES_H

enum {
	/*
	 * Tasks of a queue that are searched for one that this CPU may run, or prefers; and of all queues for
	 * a decision.
	 */
	SEARCH_MAX = 12,
	SEARCH_ALL_MAX = 24,
	/*
	 * Other CPUs may have changed a queue between a check and the move out of it; how often a CPU checks
	 * again.
	 */
	TAKE_TRIES = 3,
	/* CPUs that a waking task checks for one to preempt. */
	PREEMPT_LOOKS = 4,
	/* How often the first task of a queue is moved to its present place, for a decision. */
	REFRESH_TRIES = 3,
	/* With this many runnable tasks per CPU an LLC is overloaded. */
	OVERLOAD = 4,
	/* At most this many of its own turns keep a task waiting. */
	KEPT_TURNS = 4,
	/*
	 * Where a task waits: that it does; that other CPUs may take it; the queue, if that is a CPU's; the
	 * LLC of that CPU.
	 */
	WAITS = 1,
	WAITS_MOVABLE = 2,
	WAITS_QUEUE_SHIFT = 2,
	WAITS_LLC_SHIFT = 20,
};

/*
 * Whether a task may wait in a queue of an LLC or a CPU. A task that joins is counted before, one that leaves
 * when it runs: false is certain, and saves the kernel's search in a queue that is empty, as most are.
 */
static __always_inline bool may_wait_in(u64 queue)
{
	struct cpu_state *cpu;
	struct llc_state *llc;

	if (queue < WARM_QUEUE) {
		llc = llc_state(queue);
		return llc && llc->nr_queued > 0;
	}
	cpu = cpu_state(queue & (WARM_QUEUE - 1));
	return cpu && (queue & BOUND_QUEUE ? cpu->nr_bound : cpu->nr_warm) > 0;
}

/* The number of tasks that wait in a queue of an LLC or a CPU. */
static __always_inline s32 nr_in(u64 queue)
{
	return may_wait_in(queue) ? scx_bpf_dsq_nr_queued(queue) : 0;
}

/*
 * Whether a task must stay on its CPU because it has disabled its migration. Kernels before 6.14 enqueue it
 * nevertheless, with all CPUs that it may use otherwise, and eject a scheduler that sends it to one of these.
 * Each BPF program disables migration, too, for the task that runs it: the one that asks, and that of
 * cpu_release(), from within which the kernel enqueues the task that it has just stopped.
 */
static __always_inline bool must_stay(const struct task_struct *p)
{
	struct cpu_state *state;

	if (LINUX_KERNEL_VERSION >= KERNEL_VERSION(6, 14, 0) || !bpf_core_field_exists(p->migration_disabled))
		return false;
	if (p != bpf_get_current_task_btf())
		return p->migration_disabled > 0;
	state = cpu_state(bpf_get_smp_processor_id());
	return p->migration_disabled > (state && state->releases ? 2 : 1);
}

/* Whether a task that waits may move to a CPU. */
static __always_inline bool may_use(struct task_struct *p, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr) && (scx_bpf_task_cpu(p) == cpu || !must_stay(p));
}

static __always_inline bool is_pinned(const struct task_struct *p)
{
	return p->nr_cpus_allowed == 1 || must_stay(p);
}

/* Whether a task may not use all CPUs of the LLC, or may use one CPU only. */
static __always_inline bool is_bound(struct task_struct *p, u32 llc)
{
	struct bpf_cpumask *cpus;

	if (is_pinned(p))
		return true;
	if (p->nr_cpus_allowed >= settings.nr_cpus)
		return false;
	cpus = cpus_of_llc(llc);
	return !cpus || bpf_cpumask_empty(cast_mask(cpus)) || !bpf_cpumask_subset(cast_mask(cpus), p->cpus_ptr);
}

/* The virtual time of a task that waits, whose lag fades meanwhile. */
static __always_inline u64 vtime_of_waiting(struct task_struct *p, u64 now_ns)
{
	struct task_state *task = task_state(p);

	return task ? vtime_after_wait(task, now_ns) : p->scx.dsq_vtime;
}

/*
 * By how much the virtual times of tasks that wait in a queue have grown as their lags have faded. Tasks that
 * are bound to a CPU are behind by about as much, and are queued by their virtual times beyond that;
 * otherwise each would stand behind all later ones.
 */
__noinline u64 drift_of(u64 queue, u64 now_ns)
{
	u32 cpu = queue & (WARM_QUEUE - 1);
	struct cpu_state *state = queue & BOUND_QUEUE ? cpu_state(cpu) : NULL;
	s64 by;

	if (!state)
		return 0;
	if (!state->bound_ns || !before(state->bound_ns, now_ns))
		return state->drift;
	by = clock_of(llc_of(cpu)) - state->bound_clock;
	return state->drift + by - (grown(state->bound_lag, by, now_ns - state->bound_ns) - state->bound_lag);
}

/* Whether something is recent enough to show which tasks take turns with each other: two rounds. */
static __always_inline bool is_lately(u64 ago_ns)
{
	return ago_ns < 2 * ROUND_SLICES * settings.slice_ns;
}

/*
 * Notes the weight of a task that is bound to a CPU, as it arrives there or begins to run. That of the
 * heaviest is kept for a while after it was last seen: tasks that wait for the CPU beside it get less,
 * whichever of them is first at the moment.
 */
static __always_inline void note_heavy(struct cpu_state *state, u64 weight, u64 now_ns)
{
	if (weight < state->heaviest && is_lately(since(state->heaviest_ns, now_ns)))
		return;
	state->heaviest = weight;
	state->heaviest_ns = now_ns;
}

/*
 * Notes the lag behind the LLC's clock, when it was chosen, of a task that is bound to a CPU and continues or
 * would do so; and its weight.
 */
static __always_inline void note_bound(struct cpu_state *state, s32 cpu, u64 vtime, u64 now_ns)
{
	note_heavy(state, state->weight, now_ns);
	state->drift = drift_of(BOUND_QUEUE | (u32)cpu, now_ns);
	state->bound_clock = clock_of(llc_of(cpu));
	state->bound_lag = state->bound_clock - vtime;
	state->bound_ns = now_ns;
}

/*
 * Whether a task that waits is so much later than its place in the queue that it may be behind others there.
 */
static __always_inline bool is_stale(const struct task_struct *p, const struct task_state *task, u64 vtime, u64 drift)
{
	return before(p->scx.dsq_vtime + drift + charge(settings.slice_min_ns, task->weight), vtime);
}

/* The first task of a queue. */
struct first {
	/* Its virtual time, the length of its last turn, and its weight. */
	u64 vtime;
	u64 turn_ns;
	u64 weight;
	/* It stands before others that it may be behind by now: see refresh_first(). */
	bool stale;
	/* See struct task_state. */
	bool tick_looks;
};

static __always_inline void look_at_first(struct task_struct *p, u64 queue, u64 now_ns, struct first *first)
{
	struct task_state *task = task_state(p);

	first->vtime = task ? vtime_after_wait(task, now_ns) : p->scx.dsq_vtime;
	first->turn_ns = task ? task->turn_ns : 0;
	first->weight = task ? task->weight : WEIGHT_USUAL;
	first->tick_looks = task && task->tick_looks;
	first->stale = task && is_stale(p, task, first->vtime, queue & BOUND_QUEUE ? drift_of(queue, now_ns) : 0);
}

/*
 * The first task of a queue in which a task may wait: see first_of(). Not static: it is verified once, and
 * not again for each caller.
 */
__noinline bool find_first(u64 queue, u64 now_ns, struct first *first __arg_nonnull)
{
	struct task_struct *p;
	bool found = false;

	if (bpf_ksym_exists(scx_bpf_dsq_peek) && LINUX_KERNEL_VERSION >= KERNEL_VERSION(7, 1, 0)) {
		p = scx_bpf_dsq_peek(queue);
		if (p)
			look_at_first(p, queue, now_ns, first);
		return p;
	}
	/* Sleepable programs call this as well: their timers release tasks. */
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, queue, 0) {
		look_at_first(p, queue, now_ns, first);
		found = true;
		break;
	}
	bpf_rcu_read_unlock();
	return found;
}

/* False: the queue is empty, and `first` is unchanged. */
static __always_inline bool first_of(u64 queue, u64 now_ns, struct first *first)
{
	return may_wait_in(queue) && find_first(queue, now_ns, first);
}

/*
 * The slice of a task of average weight on a CPU: such that a round of all waiting tasks takes ROUND_SLICES
 * of the longest slice.
 */
__noinline u64 usual_slice(s32 cpu)
{
	u32 llc = llc_of(cpu), nr_cpus = nr_cpus_of(llc);
	struct llc_state *state = llc_state(llc);
	u64 slice_ns = settings.slice_ns, round_ns = ROUND_SLICES * settings.slice_ns;
	s32 nr_bound = nr_in(BOUND_QUEUE | (u32)cpu);

	if (state && state->nr_runnable > 0)
		slice_ns = round_ns * nr_cpus / (u32)state->nr_runnable;
	if (nr_bound > 0 && slice_ns > round_ns / (u32)(nr_bound + 1))
		slice_ns = round_ns / (u32)(nr_bound + 1);
	return slice_ns < settings.slice_ns ? slice_ns : settings.slice_ns;
}

/*
 * The same for a task of any weight: one that has less than others gets less, or it would have to wait longer
 * afterwards. `beside_bound`: also beside tasks that wait for this CPU alone.
 */
__noinline u64 weighed_slice(u64 slice_ns, s32 cpu, u64 weight, bool beside_bound)
{
	struct cpu_state *state = cpu_state(cpu);
	u64 mean = mean_weight(llc_of(cpu));

	if (beside_bound && state && may_wait_in(BOUND_QUEUE | (u32)cpu) && state->heaviest > mean)
		mean = state->heaviest;
	if (weight < mean)
		slice_ns = slice_ns * weight / mean;
	return slice_ns > settings.slice_min_ns ? slice_ns : settings.slice_min_ns;
}

/* The slice of a task on a CPU. */
static __always_inline u64 slice_on(s32 cpu, u64 weight)
{
	return weighed_slice(usual_slice(cpu), cpu, weight, true);
}

/*
 * How long a turn of a task may be: a tick ends it, but a timer does if the task is so light that it gets at
 * most half of what others get (time_slice() in preempt.bpf.h).
 */
static u64 longest_turn(s32 cpu, u64 weight, bool beside_bound)
{
	u64 usual_ns = usual_slice(cpu), slice_ns = weighed_slice(usual_ns, cpu, weight, beside_bound);

	return slice_ns < later(usual_ns, settings.slice_min_ns) / 2 ? slice_ns : slice_ns + TICK_NS;
}

static __always_inline bool first_vtime(u64 queue, u64 now_ns, u64 *vtime)
{
	struct first first;

	if (!first_of(queue, now_ns, &first))
		return false;
	*vtime = first.vtime;
	return true;
}

/*
 * The kernel's structure, which the headers in this build may not have: with core scheduling, and with the
 * fix of its fault.
 */
struct rq___core {
	unsigned int core_enabled;
} __attribute__((preserve_access_index));
struct scx_rq___mended {
	u64 lock_drop_seq;
} __attribute__((preserve_access_index));

/*
 * Whether a CPU that decides may move single tasks. While tasks with core scheduling cookies run, kernels
 * before 7.2.4 decide for all threads of a core on any of them, and scx_bpf_dsq_move() then assumes that the
 * core's lock is free while this CPU holds it.
 */
static __always_inline bool may_move(s32 cpu)
{
	struct rq___core *rq;

	if (!bpf_core_field_exists(struct rq___core, core_enabled) || bpf_core_field_exists(struct scx_rq___mended, lock_drop_seq))
		return true;
	rq = (struct rq___core *)scx_bpf_cpu_rq(cpu);
	return !rq || !rq->core_enabled;
}

/*
 * Moves the first task of a queue to its present place. A queue is in the order that virtual times had when
 * tasks joined it; those of tasks that are owed more than others have grown by more since. So the first by
 * that order may be behind others by now. It suffices to check the first, again and again.
 */
static void refresh_first(u64 queue, u64 now_ns)
{
	struct task_struct *p;
	int i;

	bpf_for(i, 0, REFRESH_TRIES) {
		bool moved = false;

		bpf_for_each(scx_dsq, p, queue, 0) {
			struct task_state *task = task_state(p);
			u64 drift = drift_of(queue, now_ns), vtime;

			if (!task)
				break;
			vtime = vtime_after_wait(task, now_ns);
			if (is_stale(p, task, vtime, drift)) {
				scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, vtime - drift);
				moved = scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, queue, 0);
			}
			break;
		}
		if (!moved)
			break;
	}
}

/*
 * The virtual time of the first task of a queue, which is moved to its present place before. Only for
 * dispatch.
 */
static bool fresh_vtime(s32 cpu, u64 queue, u64 now_ns, u64 *vtime)
{
	struct first first;

	if (!first_of(queue, now_ns, &first))
		return false;
	if (first.stale && may_move(cpu)) {
		refresh_first(queue, now_ns);
		if (!first_of(queue, now_ns, &first))
			return false;
	}
	*vtime = first.vtime;
	return true;
}

/*
 * Whether a CPU runs a task by which others are measured. A task that woke and has just begun may be far
 * behind because it sleeps so often that it cannot use what it is owed.
 */
static __always_inline bool runs_measure(const struct cpu_state *state, u64 now_ns)
{
	return state && state->running && (state->goes_on || before(state->since_ns + settings.preempt_margin_ns, now_ns));
}

/*
 * How far a CPU has served the tasks that run there: where the running task would be if it had not been
 * chosen, or the first of the tasks that are bound to the CPU and wait; the clock if there is neither.
 */
__noinline u64 served_by(s32 cpu, u32 llc, u64 now_ns)
{
	struct cpu_state *state = cpu_state(cpu);
	u64 served = clock_of(llc), first;

	if (runs_measure(state, now_ns))
		served = vtime_up_to(state, base_of(llc, now_ns), now_ns, true);
	return first_vtime(BOUND_QUEUE | cpu, now_ns, &first) ? earlier(served, first) : served;
}

/*
 * The measure for tasks that come to a CPU and may use the whole LLC: the clock, which the running task may
 * be behind; not tasks that are bound to the CPU, which may be far behind.
 */
static u64 turn_on(s32 cpu, u32 llc, u64 now_ns)
{
	struct cpu_state *state = cpu_state(cpu);
	u64 clock = clock_of(llc);

	if (!runs_measure(state, now_ns) || state->bound)
		return clock;
	return earlier(vtime_up_to(state, base_of(llc, now_ns), now_ns, true), clock);
}

/*
 * The measure for bound tasks. If none of them runs or waits there at the moment, it is where the last one
 * was that continued; that fades like a lag.
 */
__noinline u64 bound_turn_on(s32 cpu, u32 llc, u64 now_ns)
{
	struct cpu_state *state = cpu_state(cpu);
	u64 turn = earlier(served_by(cpu, llc, now_ns), clock_of(llc));

	if (!state || state->bound_lag <= 0 || !before(state->bound_ns, now_ns))
		return turn;
	return earlier(turn, clock_of(llc) - left_of(state->bound_lag, now_ns - state->bound_ns));
}

/* Notes where the running task is, if it may use the whole LLC, and continues or would do so. */
static __always_inline void note_unbound(const struct cpu_state *state, u32 llc, u64 now_ns)
{
	struct llc_state *all = llc_state(llc);

	if (!all || state->bound)
		return;
	all->unbound = base_of(llc, now_ns) - state->vtime;
	all->unbound_ns = now_ns;
}

/* Where tasks are that may use the whole LLC: not with the clock, if the bound ones are far from them. */
static u64 unbound_turn(u32 llc, u64 now_ns)
{
	struct llc_state *all = llc_state(llc);
	u64 ago_ns = all ? since(all->unbound_ns, now_ns) : 0;

	return all && is_lately(ago_ns) ? base_of(llc, now_ns) - left_of(all->unbound, ago_ns) : clock_of(llc);
}

/*
 * Moves the last task of a queue to its present place. What it ran before others came, or heavier ones, may
 * be many turns by its present weight: it pays for KEPT_TURNS, and for what it ran beyond its slice. And
 * tasks that joined later may stand before it for what has faded meanwhile: see drift_of(). It suffices to
 * check the last, again and again, since every misplaced task gets there. Among bound tasks the running task
 * is the measure: the first of them may be far behind because it sleeps so often that it cannot use what it
 * is owed.
 */
__noinline int refresh_last(s32 cpu, u64 queue, u64 now_ns)
{
	struct cpu_state *state = cpu_state(cpu);
	u32 llc = llc_of(cpu);
	struct task_struct *p;

	if (!may_wait_in(queue))
		return 0;
	bpf_for_each(scx_dsq, p, queue, SCX_DSQ_ITER_REV) {
		struct task_state *task = task_state(p);
		u64 drift = drift_of(queue, now_ns), turn, vtime, last, weight;

		if (!task || !state || task->llc != llc)
			break;
		weight = charged_weight(task->weight, llc, state->running ? state->weight : 0);
		turn = queue & BOUND_QUEUE ? bound_turn_on(cpu, llc, now_ns) : later(unbound_turn(llc, now_ns), clock_of(llc));
		if (queue & BOUND_QUEUE && state->running && state->bound)
			turn = later(turn, state->vtime);
		vtime = vtime_after_wait(task, now_ns);
		last = turn + charge(KEPT_TURNS * longest_turn(cpu, weight, queue & BOUND_QUEUE) + task->overrun_ns, weight);
		if (before(last, vtime)) {
			vtime = last;
			note_lag(task, vtime, now_ns);
		}
		if (before(vtime + charge(settings.slice_min_ns, weight), p->scx.dsq_vtime + drift)) {
			scx_bpf_dsq_move_set_vtime(BPF_FOR_EACH_ITER, vtime - drift);
			scx_bpf_dsq_move_vtime(BPF_FOR_EACH_ITER, p, queue, 0);
		}
		break;
	}
	return 0;
}

/*
 * The same for all queues of a CPU, once per tick; for that of bound tasks once in a while, if no task
 * continues that is the measure. Only for dispatch.
 */
static __always_inline void refresh_queues(struct cpu_state *state, s32 cpu, u64 now_ns)
{
	if (!may_move(cpu))
		return;
	if (now_ns - state->bound_refreshed_ns >= TICK_NS && (state->running || !is_lately(now_ns - state->bound_refreshed_ns))) {
		state->bound_refreshed_ns = now_ns;
		refresh_last(cpu, BOUND_QUEUE | (u32)cpu, now_ns);
	}
	if (now_ns - state->refreshed_ns < TICK_NS)
		return;
	state->refreshed_ns = now_ns;
	refresh_last(cpu, WARM_QUEUE | (u32)cpu, now_ns);
	if (!is_isolated(cpu))
		refresh_last(cpu, llc_of(cpu), now_ns);
}

/*
 * Counts a task that waits, if `sign` is 1, and no longer if -1. `waits` is where: see WAITS. Not static: it
 * is verified once, and not again for each caller.
 */
__noinline int count_waiting(u32 waits, s32 sign, u64 now_ns)
{
	u32 queue = waits >> WAITS_QUEUE_SHIFT & (1U << (WAITS_LLC_SHIFT - WAITS_QUEUE_SHIFT)) - 1;
	struct llc_state *llc = llc_state(waits >> WAITS_LLC_SHIFT);
	struct cpu_state *state = queue ? cpu_state(queue & (WARM_QUEUE - 1)) : NULL;

	if (!llc)
		return 0;
	if (!state)
		__sync_fetch_and_add(&llc->nr_queued, sign);
	else
		__sync_fetch_and_add(queue & BOUND_QUEUE ? &state->nr_bound : &state->nr_warm, sign);
	if (!(waits & WAITS_MOVABLE)) {
		if (sign < 0 && state)
			state->waited_ns = now_ns;
		return 0;
	}
	if (sign < 0)
		llc->waited_ns = now_ns;
	__sync_fetch_and_add(&llc->nr_movable, sign);
	if (state) {
		__sync_fetch_and_add(&state->nr_movable, sign);
		if (sign > 0)
			llc->waits_at = queue & (WARM_QUEUE - 1);
	}
	return 0;
}

/*
 * Notes that a task no longer waits. Only the CPU that exchanges the word counts, so that two which do it at
 * once count once.
 */
static __always_inline void note_taken(struct task_state *task, u64 now_ns)
{
	u32 waits = task->waits ? __sync_lock_test_and_set(&task->waits, 0) : 0;

	if (waits)
		count_waiting(waits, -1, now_ns);
}

/* Describes where a task waits, in its LLC's queue or in one of a CPU's. */
static __always_inline u32 waits_in(struct task_struct *p, const struct task_state *task, u64 queue)
{
	return WAITS | (is_pinned(p) ? 0 : WAITS_MOVABLE) | (queue >= WARM_QUEUE ? (u32)queue << WAITS_QUEUE_SHIFT : 0) | task->llc << WAITS_LLC_SHIFT;
}

/* Notes that a task is about to wait there. */
static __always_inline void note_waits(struct task_struct *p, struct task_state *task, u64 queue, u64 now_ns)
{
	u32 waits = waits_in(p, task, queue), before = __sync_lock_test_and_set(&task->waits, waits);

	if (before)
		count_waiting(before, -1, now_ns);
	count_waiting(waits, 1, now_ns);
}

/*
 * Where a new task begins: with the tasks that are there; but its creator, on this CPU, gives it half of what
 * the creator is owed, or it begins with what the creator owes. Not static: it is verified once, and not
 * again for each caller.
 */
__noinline u64 new_vtime(struct task_state *task __arg_nonnull, s32 cpu, bool bound, u64 now_ns)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct task_state *by = task->creator == current->pid ? task_state(current) : NULL;
	u32 llc = llc_of(cpu), this_cpu = bpf_get_smp_processor_id(), from = llc_of(this_cpu);
	u64 vtime = bound ? bound_turn_on(cpu, llc, now_ns) : clock_of(llc), turn;
	struct cpu_state *creator = cpu_state(this_cpu);
	s64 ns;

	task->began_lag = clock_of(llc) - vtime;
	if (!by || !creator || !creator->running)
		return vtime;
	creator->vtime = pay_for_created(by, creator->vtime);
	turn = creator->bound ? bound_turn_on(this_cpu, from, now_ns) : clock_of(from);
	ns = owed_ns(turn - running_vtime(creator, base_of(from, now_ns), now_ns), creator->weight);
	if (ns > 0) {
		ns /= 2;
		creator->vtime += charge(ns, creator->weight);
	} else {
		task->began_lag += lag_of(ns, task->weight);
	}
	return vtime - lag_of(ns, task->weight);
}

/* How a task comes to a place: it may not use the whole LLC; it woke. */
enum { PLACE_BOUND = 1, PLACE_WOKE = 2 };

/* The task's virtual time as it comes to an LLC, or to one of its CPUs: see vtime_to_queue(). */
static u64 place(struct task_struct *p, struct task_state *task, s32 cpu, u32 how, u64 now_ns)
{
	bool bound = how & PLACE_BOUND, woke = how & PLACE_WOKE;
	u32 llc = llc_of(cpu), from = task->llc;
	u64 first, vtime;

	if (!task->faded_ns) {
		change_llc(task, llc);
		vtime = new_vtime(task, cpu, bound, now_ns);
		note_lag(task, vtime, now_ns);
		return vtime;
	}
	first = bound ? bound_turn_on(cpu, llc, now_ns) : turn_on(cpu, llc, now_ns);
	/* It waits, so that it can use more than was assumed. */
	if (!woke && task->counted < task->weight)
		note_load(task, task->weight < 2 * task->counted ? task->weight : 2 * task->counted);
	vtime = vtime_after_wait(task, now_ns);
	/*
	 * A task that sleeps falls no farther behind the clock than one that waits, and what it owes it still
	 * owes. A task that sleeps until one that it created has ended is owed nothing for that.
	 */
	if (woke && task->has_created) {
		vtime = clock_of(from) - left_of(task->lag, since(task->faded_ns, now_ns));
		task->has_created = false;
	} else if (woke) {
		vtime = later(vtime, p->scx.dsq_vtime);
	}
	vtime = vtime_in(task, vtime, llc, now_ns);
	/* The tasks here need not compensate for what it had or missed elsewhere. */
	if (from != llc || (bound && task->ran_on != cpu))
		vtime = within(vtime, bound ? first : served_by(cpu, llc, now_ns), bound ? first : clock_of(llc), task->weight);
	else if (!bound && task->was_bound)
		vtime = within(vtime, clock_of(llc), clock_of(llc), task->weight);
	task->was_bound = bound;
	vtime = pay_for_created(task, vtime_to_queue(task, vtime, first, woke, now_ns));
	note_lag(task, vtime, now_ns);
	return vtime;
}

/* Whether a task waits for this CPU or for any of its LLC. */
static __always_inline bool somebody_waits(s32 cpu)
{
	return nr_in(BOUND_QUEUE | (u32)cpu) > 0 || nr_in(WARM_QUEUE | (u32)cpu) > 0 ||
	       (!is_isolated(cpu) && nr_in(llc_of(cpu)) > 0);
}

/* Whether a task waits in an LLC that more than one of its CPUs may run. */
static __always_inline bool movable_in(u32 llc)
{
	struct llc_state *state = llc_state(llc);

	return state && state->nr_movable > 0;
}

/* The LLC whose CPUs without ticks last had to decide. */
u32 ends_next;

/*
 * How often CPUs without ticks decide while tasks wait elsewhere: as often as kernels had residual ticks
 * there before 4.17.
 */
#define END_TICKLESS_NS (1000ULL * 1000 * 1000)

/*
 * CPUs of `nohz_full`: the kernel stops their tick while one task runs, if that had an endless slice when it
 * was switched in. It has one here while no other task waits for the CPU, nor for any of its LLC. A task that
 * comes then makes the CPU decide, which does not keep the running task: a kept task is not switched in.
 */
static __always_inline bool is_alone(s32 cpu)
{
	const volatile struct cpu_place *place = MEMBER_VPTR(cpu_places, [(u32)cpu]);

	return some_tickless && place && place->tickless && !somebody_waits(cpu) && (place->isolated || !movable_in(llc_of(cpu)));
}

/*
 * The same as the task begins to run. Others may have come since it was sent there, when nothing ran that
 * would have been stopped for them: a task that comes is counted first and checks the CPU then, and here the
 * order is reversed.
 */
static __always_inline bool still_alone(struct cpu_state *state, s32 cpu)
{
	__sync_fetch_and_add(&state->nr_bound, 0);
	return is_alone(cpu);
}

/* A task waits for a CPU, or for any from there on: if no tick comes there, it is time for one. */
static __always_inline void end_tickless(u32 cpu, bool anywhere)
{
	s32 i;

	if (!some_tickless)
		return;
	bpf_for(i, 0, PREEMPT_LOOKS) {
		struct cpu_state *state = cpu_state(cpu);

		if (state && state->running && state->tickless)
			kick_cpu(cpu, SCX_KICK_PREEMPT);
		if (!anywhere)
			break;
		cpu = next_in_llc(cpu);
	}
}

/*
 * A task waits in an LLC: the task that is alone without ticks in another one, each in turn, has the weight
 * that it had when it began, by which the two are compared.
 */
static __always_inline void end_tickless_elsewhere(u32 llc, u64 now_ns)
{
	u32 other = ends_next + 1 < settings.nr_llcs ? ends_next + 1 : 0, i;
	struct llc_state *state = llc_state(other);

	if (!some_tickless || settings.nr_llcs < 2)
		return;
	ends_next = other;
	if (!state || other == llc || since(state->ended_ns, now_ns) < END_TICKLESS_NS)
		return;
	state->ended_ns = now_ns;
	if (llc_of(state->end_at) != other)
		state->end_at = first_cpu_of(other);
	end_tickless(state->end_at, true);
	for (i = 0; i < PREEMPT_LOOKS; i++)
		state->end_at = next_in_llc(state->end_at);
}

/*
 * The kernel's flag, which the headers in this build may not have. CO-RE ignores the suffix after the
 * underscores.
 */
enum scx_enq_flags___immed { SCX_ENQ_IMMED___immed = 1ULL << 33 };

/*
 * For a task that is sent to an idle CPU: if a higher class has taken that meanwhile, the kernel enqueues the
 * task again (since Linux 7.1; before, it waits until that CPU is free).
 */
static __always_inline u64 enq_immed(void)
{
	if (!bpf_core_enum_value_exists(enum scx_enq_flags___immed, SCX_ENQ_IMMED___immed))
		return 0;
	return bpf_core_enum_value(enum scx_enq_flags___immed, SCX_ENQ_IMMED___immed);
}

/*
 * Makes all CPUs decide where no tick comes. Not static: it is verified once, and not again for each caller.
 */
__noinline int kick_tickless(void)
{
	u32 cpu;

	if (!some_tickless)
		return 0;
	bpf_for(cpu, 0, MAX_CPUS) {
		if (cpu >= settings.nr_cpus)
			break;
		end_tickless(cpu, false);
	}
	return 0;
}

/* Gives a task a CPU at once: it is next there. */
static void insert_local(struct task_struct *p, struct task_state *task, s32 cpu, u64 queue, u64 enq_flags)
{
	u64 vtime = place(p, task, cpu, PLACE_WOKE | (is_bound(p, llc_of(cpu)) ? PLACE_BOUND : 0), scx_bpf_now());

	scx_bpf_task_set_dsq_vtime(p, vtime);
	scx_bpf_dsq_insert(p, queue, is_alone(cpu) ? SCX_SLICE_INF : slice_on(cpu, task->weight), enq_flags);
}

/*
 * Moves the task at which an iteration over a queue is to this CPU. While the kernel takes the CPU offline,
 * before it notifies schedulers, it puts tasks of other CPUs into its global queue instead: the CPU must not
 * consider that as work.
 */
static __always_inline bool move_here(struct bpf_iter_scx_dsq *at, struct task_struct *p, s32 cpu)
{
	return scx_bpf_dsq_move(at, p, SCX_DSQ_LOCAL, 0) && scx_bpf_task_cpu(p) == cpu;
}

/*
 * The queue with the earliest first task among those that this CPU serves, and its virtual time in `first`;
 * -1: no task waits. Not static: it is verified once, and not again for each caller.
 */
__noinline s64 earliest_queue(s32 cpu, u64 now_ns, u64 *first __arg_nonnull)
{
	u32 llc = llc_of(cpu);
	s64 queue = -1;
	u64 vtime;

	if (fresh_vtime(cpu, BOUND_QUEUE | cpu, now_ns, &vtime)) {
		queue = BOUND_QUEUE | cpu;
		*first = vtime;
	}
	if (!is_isolated(cpu) && fresh_vtime(cpu, llc, now_ns, &vtime) && (queue < 0 || before(vtime, *first))) {
		queue = llc;
		*first = vtime;
	}
	if (fresh_vtime(cpu, WARM_QUEUE | cpu, now_ns, &vtime) && (queue < 0 || before(vtime, *first))) {
		queue = WARM_QUEUE | cpu;
		*first = vtime;
	}
	return queue;
}

/*
 * The running task continues before others. If it has weight for more than a CPU, that is always so: its lead
 * over the first waiting task grows beyond what their turns make, and lasts when it has to share the CPU. It
 * keeps no more than these, by what the waiting task weighs beside it now: the last turn of one that ran
 * before heavier tasks came was charged as hundreds of turns.
 */
static void limit_lead(struct cpu_state *state, s32 cpu, u64 now_ns)
{
	u32 llc = llc_of(cpu);
	struct llc_state *others = llc_state(llc);
	struct first first = { .vtime = clock_of(llc), .turn_ns = KEPT_SLICES * settings.slice_ns, .weight = mean_weight(llc) };
	u64 weight, turn_ns, longest_ns;

	/* All tasks that are bound here may be behind those that are not. */
	if (!first_of(BOUND_QUEUE | cpu, now_ns, &first) &&
	    (state->bound || ((is_isolated(cpu) || !first_of(llc, now_ns, &first)) && !first_of(WARM_QUEUE | cpu, now_ns, &first) &&
			      (!others || others->nr_movable <= 0))))
		return;
	weight = charged_weight(first.weight, llc, state->weight);
	longest_ns = longest_turn(cpu, weight, true);
	turn_ns = first.turn_ns < longest_ns ? first.turn_ns : longest_ns;
	state->vtime = later(state->vtime, earlier(first.vtime - charge(turn_ns, weight) - charge(settings.slice_ns, state->weight), clock_of(llc)));
}

/* Makes an idle CPU that may run what waits in a CPU's queue, if there is one, check the queues. */
static __always_inline void wake_idle(s32 cpu)
{
	struct bpf_cpumask *cpus = cpus_of_llc(llc_of(cpu));
	s32 idle = cpus ? scx_bpf_pick_idle_cpu(cast_mask(cpus), 0) : -1;

	if (idle >= 0)
		kick_cpu(idle, SCX_KICK_IDLE);
}

#endif
