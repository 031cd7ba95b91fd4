/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Fairness: which task runs next, and for how long.
 *
 * Problem: tasks share the CPUs in proportion to their weights, whatever CPUs each of them may use, and tasks
 * that slept are neither punished nor rewarded for it. No task starves.
 *
 * Approach: virtual time. A task that runs for t has its virtual time advance by t x 100 / weight, and each
 * queue returns its tasks in the order of their virtual times. The virtual times of all tasks of an LLC refer
 * to one time, wherever the tasks wait, so that a CPU takes the first of all queues that it serves. Among
 * tasks of different affinities, that gives the weighted max-min fair shares: the task that has had least
 * goes first wherever it may run.
 *
 * 1. The LLC's clock advances as far as the virtual time of a task that gets exactly its share: by the time
 *    that its CPUs ran, over the weights of its runnable tasks. Where tasks are confined, that is the pace of
 *    none of them; so the clock is drawn to tasks that run, and most to those that have had most and still
 *    run: a new task competes with these. A task's lag is the clock less its virtual time: what it is owed,
 *    times its weight. A task that slept may have a little, `sleeper_credit_ns`. A new task has half of its
 *    creator's lag, or owes what its creator owes; and when it ends, the change of its lag passes to the
 *    creator. So a creator that works through one short task after another gets what one task would get.
 * 2. Run time while no task waits that could have the CPU counts for nothing: the task's virtual time
 *    advances no farther than the clock.
 * 3. No task can use more than a CPU. What its weight would give it beyond that is no load; and a task that
 *    never has to wait keeps only as much lead over the first waiting task as their turns make.
 * 4. Tasks that are confined to busy CPUs fall behind the clock, others get ahead. So that neither has to be
 *    compensated when they meet later, lags fade, those of all tasks alike: by half in 1.5 s (FADE_SHIFT).
 *    Fading alike keeps their order. A task that sleeps, moves to other CPUs, or is no longer confined is
 *    owed at most KEPT_SLICES there.
 * 5. A bound or a margin is CPU time of the task concerned: charge() turns it into virtual time by the
 *    weight.
 * 6. LLCs have clocks of their own. The `pace` of an LLC is how far its clock has advanced lately, which
 *    fades in the same way: a task that moves takes along its lag, and the difference by which the LLC that
 *    it leaves was slower. balance.bpf.h explains how tasks move.
 *
 * A task whose slice ends continues if its virtual time is still before that of the first in the queues:
 * this, not the length of slices, makes weights count where there is only one CPU.
 *
 * Limits: a task gets at least LEAST_SHARE of a CPU, however small its weight, so that it does not wait for
 * ever.
 */
#ifndef TANDEM_FAIRNESS_H
#define TANDEM_FAIRNESS_H

/* Weights are in 1/1024 of the kernel's, where 100 is the usual one. */
#define WEIGHT_SHIFT 10
#define WEIGHT_USUAL (100ULL << WEIGHT_SHIFT)
/* An upper limit on the weight of a task. */
#define WEIGHT_MOST (1ULL << 40)

/* 1/512 of the average load of a CPU of the LLC, or of the task that it takes turns with. */
#define LEAST_SHARE_SHIFT 9

/*
 * With more tasks per CPU than this, slices are shorter, so that the length of a round stays. Shorter ones
 * for fewer tasks gain little, since a task that wakes need not wait for their end, and stop more vCPUs that
 * hold a lock.
 */
#define ROUND_SLICES 3

/*
 * A task that slept or moved is owed at most this many slices at its destination; it owes at most one where
 * it moves to.
 */
#define KEPT_SLICES 5

/*
 * The tick of most distributions' kernels (CONFIG_HZ=250), by which a slice may be longer than it should be.
 */
#define TICK_NS (4ULL * 1000 * 1000)

/*
 * Lags fade with a time constant of 2^31 ns, 2.1 s: 180 times the margin for moves, so that tasks which take
 * turns between CPUs forget 1% of what they get, and short against what people notice when tasks that were
 * confined to different CPUs meet.
 */
#define FADE_SHIFT 31

/*
 * The clock is drawn to a task that runs and is ahead of it with a time constant of 2^26 ns, 67 ms: three
 * slices, so that it follows the first of the tasks that take turns, and no single turn; to a task that is
 * behind it with twice that, all CPUs of the LLC together.
 */
#define AHEAD_SHIFT 26
#define BEHIND_SHIFT 27

/* The pace does not fade for this long, in which it would fade by 1/4096. */
#define BASE_NS (1ULL << (FADE_SHIFT - 12))

/* The initial value of clocks: far from 0, so that lags may be longer than the scheduler has run. */
#define CLOCK_BEGINS (1ULL << 62)

/* The scheduler's state of a task, besides its virtual time, which is `p->scx.dsq_vtime` while it sleeps. */
struct task_state {
	/* Its weight with those of its cgroups, when last read. */
	u64 weight;
	/* Its part in its LLC's sum while it is runnable. */
	u64 counted;
	/* Its lag, and by how much that exceeded the LLC's pace; when that was noted, 0: the task is new. */
	s64 lag;
	s64 beyond_pace;
	u64 faded_ns;
	/* The length of its last turn, and the part of it beyond its slice: CPU time, since weights change. */
	u64 turn_ns;
	u64 overrun_ns;
	/*
	 * What it has had lately, and what others had had when it began, both fading like a lag: virtual
	 * time.
	 */
	u64 had;
	u64 spared;
	/*
	 * The number of its creator, and when that began, since numbers are reused; 0: it has none since this
	 * scheduler was loaded.
	 */
	s32 creator;
	u64 creator_began_ns;
	/* Its initial lag, less the part that came from its creator. */
	s64 began_lag;
	/*
	 * What tasks that it created, and that have ended, have had beyond their share: CPU time, which it
	 * pays. Other CPUs write it.
	 */
	s64 created_owe_ns;
	/* It has created a task since it last woke. */
	bool has_created;
	/*
	 * When it woke another task synchronously, 0: not in this turn; and how long it usually continues
	 * then.
	 */
	u64 woke_ns;
	u64 lingers_ns;
	/* Where it last ran, and whether it was bound there. */
	s32 ran_on;
	bool was_bound;
	/* It could continue when it last stopped. */
	bool goes_on;
	/* It woke or moved to where it waits: ticks check whether it is to stop the running task. */
	bool tick_looks;
	/* Where it is to take the place of a running task, which takes its own: that CPU + 1, or 0. */
	u32 swap_with;
	/* The LLC whose clock its virtual time refers to. */
	u32 llc;
	bool runnable;
	/* Where it waits and is counted as waiting, see note_waits(); 0: it does not wait. */
	u32 waits;
	/*
	 * See limits.bpf.h: the bucket in which it is parked, and its virtual time then; when it last ran
	 * while limited.
	 */
	u32 parked_in;
	u64 parked_vtime;
	u64 ran_ns;
	/* Its last grant is used up; it does not count as runnable, though it is. */
	bool grant_over;
	bool uncounted;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} task_states SEC(".maps");

static __always_inline struct task_state *task_state(struct task_struct *p)
{
	return bpf_task_storage_get(&task_states, p, NULL, 0);
}

static __always_inline u64 clock_of(u32 llc)
{
	struct llc_state *state = llc_state(llc);

	return state ? state->clock : CLOCK_BEGINS;
}

static __always_inline bool before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

static __always_inline u64 earlier(u64 a, u64 b)
{
	return before(a, b) ? a : b;
}

static __always_inline u64 later(u64 a, u64 b)
{
	return before(a, b) ? b : a;
}

/* How long ago a time is; 0 if another CPU noted it after this one read its clock. */
static __always_inline u64 since(u64 then_ns, u64 now_ns)
{
	return before(then_ns, now_ns) ? now_ns - then_ns : 0;
}

/* The virtual time of running for `delta_ns`. */
static __always_inline u64 charge(u64 delta_ns, u64 weight)
{
	if (weight == WEIGHT_USUAL || !weight)
		return delta_ns;
	/* A task may be alone for days. */
	return delta_ns >> 46 ? delta_ns / weight * WEIGHT_USUAL : delta_ns * WEIGHT_USUAL / weight;
}

/* The average load of a CPU of the LLC: weight. */
static __always_inline u64 load_of(u32 llc)
{
	struct llc_state *state = llc_state(llc);

	return state && state->weight > 0 ? (u64)state->weight / nr_cpus_of(llc) : 0;
}

/* The mean weight of the LLC's runnable tasks. */
static __always_inline u64 mean_weight(u32 llc)
{
	struct llc_state *state = llc_state(llc);

	if (!state || state->weight <= 0 || state->nr_runnable <= 0)
		return WEIGHT_USUAL;
	return (u64)state->weight / (u32)state->nr_runnable ?: 1;
}

/*
 * The weight by which a task of `weight` is charged that shares a CPU with one of the weight `beside`: one
 * that gives it at least LEAST_SHARE.
 */
static __always_inline u64 charged_weight(u64 weight, u32 llc, u64 beside)
{
	u64 load = load_of(llc), least = (load > beside ? load : beside) >> LEAST_SHARE_SHIFT;

	return weight > least ? weight : least;
}

/* How much of a lag, or of a pace, fades in `delta_ns`: 1 - exp(-x) of it, with the time x in FADE_SHIFT, as x - x^2 / 2. */
static __always_inline s64 faded(s64 lag, u64 delta_ns)
{
	if (delta_ns >> FADE_SHIFT)
		return lag;
	delta_ns -= (delta_ns * delta_ns) >> (FADE_SHIFT + 1);
	/* In steps, so that the product fits; lags are long where all weights are small. */
	if (lag >> 44 != lag >> 63)
		return ((lag >> 20) * (s64)(delta_ns >> 5)) >> (FADE_SHIFT - 25);
	return ((lag >> 8) * (s64)(delta_ns >> 5)) >> (FADE_SHIFT - 13);
}

/*
 * A lag, or a pace, after it has faded for `delta_ns` and grown evenly meanwhile: the growth at the end has
 * not faded at all. That matters where weights are far apart: in the turn of a heavy task, a lag fades by
 * more than the turn adds to its virtual time.
 */
static __always_inline s64 grown(s64 lag, s64 by, u64 delta_ns)
{
	u64 long_ago = delta_ns >> FADE_SHIFT;

	/* After so long, only the growth of the last two seconds is left. */
	if (long_ago)
		return by > 0 ? (s64)((u64)by / (long_ago + 1)) : -(s64)((u64)-by / (long_ago + 1));
	return lag - faded(lag, delta_ns) + by - faded(by, delta_ns) / 2;
}

/* What is left of a lag after any time: exp(-x) of it, as the 1024th power of exp(-x / 1024). */
__noinline s64 left_of(s64 lag, u64 delta_ns)
{
	u64 x = delta_ns >> (FADE_SHIFT - 22), left;
	int i;

	if (!x)
		return lag;
	if (x >> 26)
		return 0;
	left = (1ULL << 32) - x + (x * x >> 33);
	for (i = 0; i < 10; i++)
		left = left * left >> 32;
	return ((lag >> 6) * (s64)(left >> 12)) >> 14;
}

/* A virtual time that has referred to the clock for so long. */
static __always_inline u64 fade(u64 vtime, u64 clock, u64 delta_ns)
{
	return vtime + faded(clock - vtime, delta_ns);
}

/*
 * Recomputes the base of virtual times, once enough time has passed for the pace to fade noticeably. Not
 * static: it is verified once, and not again for each caller.
 */
__noinline u64 renewed_base(u32 llc, u64 now_ns)
{
	struct llc_state *state = llc_state(llc);
	u64 clock, based_ns, delta_ns, base;

	if (!state)
		return CLOCK_BEGINS;
	clock = state->clock;
	based_ns = state->based_ns;
	base = state->base;
	delta_ns = since(based_ns, now_ns);
	base = clock - grown(state->based_clock - base, clock - state->based_clock, delta_ns);
	/* If several CPUs get here together, one of them counts the time. */
	if (!__sync_bool_compare_and_swap(&state->based_ns, based_ns, now_ns))
		return base;
	state->based_clock = clock;
	state->base = base;
	return base;
}

/*
 * The base of virtual times: that of a task which has had nothing for so long that its lag is the pace. The
 * clock adds to all lags as to the pace, and they fade alike, so that a task's lag beyond the pace fades
 * alone, and decreases by what the task has. It is small where lags are long, and the clock has no part in
 * it.
 */
static __always_inline u64 base_of(u32 llc, u64 now_ns)
{
	struct llc_state *state = llc_state(llc);

	return state && since(state->based_ns, now_ns) < BASE_NS ? state->base : renewed_base(llc, now_ns);
}

/* How far the LLC's clock has advanced lately. */
static __always_inline u64 pace_of(u32 llc, u64 now_ns)
{
	u64 base = base_of(llc, now_ns);

	return clock_of(llc) - base;
}

/* The virtual time of a task that has waited since its lag was noted. */
static u64 vtime_after_wait(const struct task_state *task, u64 now_ns)
{
	u64 waited_ns = before(task->faded_ns, now_ns) ? now_ns - task->faded_ns : 0;

	return base_of(task->llc, now_ns) - left_of(task->beyond_pace, waited_ns);
}

/* Notes a task's lag, and lets what it has had fade. */
static __always_inline void note_lag(struct task_state *task, u64 vtime, u64 now_ns)
{
	task->lag = clock_of(task->llc) - vtime;
	task->beyond_pace = task->lag - (s64)pace_of(task->llc, now_ns);
	if (!task->faded_ns) {
		task->spared = pace_of(task->llc, now_ns);
	} else if (before(task->faded_ns, now_ns)) {
		task->had -= faded(task->had, now_ns - task->faded_ns);
		task->spared -= faded(task->spared, now_ns - task->faded_ns);
	}
	task->faded_ns = now_ns;
}

/*
 * By how much a task's virtual time grows from one LLC to another. The clocks differ; and a task that comes
 * from a slower one is owed the difference, one that comes from a faster one owes it: no more than it has had
 * itself, so that no task gains by moving back and forth, and no more than exceeds what the tasks there have
 * had.
 */
static u64 from_to(const struct task_state *task, u32 to, u64 now_ns)
{
	s64 had, faster, more;

	if (task->llc == to)
		return 0;
	had = left_of(task->had, since(task->faded_ns, now_ns));
	faster = pace_of(task->llc, now_ns) - pace_of(to, now_ns);
	more = had - (s64)pace_of(to, now_ns);
	if (faster > 0 && faster > more)
		faster = more > 0 ? more : 0;
	if (faster < -had)
		faster = -had;
	return clock_of(to) - clock_of(task->llc) + faster;
}

/* Adds to the load of an LLC, or subtracts from it. */
static __always_inline void add_load(u32 llc, s64 weight, s32 tasks)
{
	struct llc_state *state = llc_state(llc);

	if (!state)
		return;
	__sync_fetch_and_add(&state->weight, weight);
	if (tasks)
		__sync_fetch_and_add(&state->nr_runnable, tasks);
}

/*
 * How much of its weight a task can use, since it never has more than one CPU: no more than the others have
 * on each of the CPUs that they can use beside it.
 */
static __always_inline u64 useful_weight(const struct task_state *task, u64 weight)
{
	struct llc_state *state = llc_state(task->llc);
	u32 nr_cpus = nr_cpus_of(task->llc) - 1;
	s64 load;
	s32 nr;

	if (!state)
		return weight;
	load = state->weight - (s64)task->counted;
	nr = state->nr_runnable - (task->runnable ? 1 : 0);
	if (load <= 0 || nr <= 0 || !nr_cpus)
		return weight;
	load = (u64)load / ((u32)nr < nr_cpus ? (u32)nr : nr_cpus) ?: 1;
	return weight < (u64)load ? weight : (u64)load;
}

/* Notes what a runnable task adds to its LLC's load. */
static __always_inline void note_load(struct task_state *task, u64 load)
{
	if (!task->runnable)
		return;
	/* Small changes are not worth writing to what all CPUs of the LLC read. */
	if (load > task->counted + task->counted / 16 || task->counted > load + load / 16) {
		add_load(task->llc, (s64)(load - task->counted), 0);
		task->counted = load;
	}
}

/* The task becomes runnable in its LLC, or ceases to be. */
static __always_inline void count_runnable(struct task_state *task, bool runnable)
{
	if (task->runnable == runnable)
		return;
	if (runnable) {
		task->counted = useful_weight(task, task->weight);
		add_load(task->llc, task->counted, 1);
	} else {
		add_load(task->llc, -(s64)task->counted, -1);
		task->counted = 0;
	}
	task->runnable = runnable;
}

/* Assigns a task to another LLC. */
static __always_inline void change_llc(struct task_state *task, u32 llc)
{
	bool runnable = task->runnable;

	if (task->llc == llc)
		return;
	count_runnable(task, false);
	task->llc = llc;
	count_runnable(task, runnable);
}

/* The CPU time of a task for this lag, at most a slice. */
static __always_inline s64 owed_ns(s64 lag, u64 weight)
{
	s64 most = charge(settings.slice_ns, weight);

	if (lag > most || lag < -most)
		return lag > 0 ? (s64)settings.slice_ns : -(s64)settings.slice_ns;
	return lag > 0 ? (u64)lag * weight / WEIGHT_USUAL : -((u64)-lag * weight / WEIGHT_USUAL);
}

/* The other way round. */
static __always_inline s64 lag_of(s64 owed_ns, u64 weight)
{
	return owed_ns > 0 ? charge(owed_ns, weight) : -charge(-owed_ns, weight);
}

/*
 * A task's virtual time after it has paid for tasks that it created and that have ended, or has received what
 * they were owed; at most a slice. So a creator that works through one short task after another has the share
 * of one. Not static: it is verified once, and not again for each caller.
 */
__noinline u64 pay_for_created(struct task_state *task __arg_nonnull, u64 vtime)
{
	s64 owe_ns = task->created_owe_ns ? __sync_lock_test_and_set(&task->created_owe_ns, 0) : 0;
	u64 clock = clock_of(task->llc), slice = charge(settings.slice_ns, task->weight);

	if (owe_ns > 0)
		return later(vtime, earlier(vtime + charge(owe_ns, task->weight), clock + slice));
	return owe_ns < 0 ? earlier(vtime, later(vtime - charge(-owe_ns, task->weight), clock - slice)) : vtime;
}

/* A task ends, whose lag has been noted: the change of its lag passes to its creator. */
static __always_inline void leave_to_creator(const struct task_state *task)
{
	struct task_struct *creator = task->creator ? bpf_task_from_pid(task->creator) : NULL;
	struct task_state *state;

	if (!creator)
		return;
	state = creator->start_boottime == task->creator_began_ns ? task_state(creator) : NULL;
	if (state)
		__sync_fetch_and_add(&state->created_owe_ns, owed_ns(task->began_lag - task->lag, task->weight));
	bpf_task_release(creator);
}

/* A task's virtual time, by the clock of `llc`, to which it belongs from now on. */
static u64 vtime_in(struct task_state *task, u64 vtime, u32 llc, u64 now_ns)
{
	vtime += from_to(task, llc, now_ns);
	change_llc(task, llc);
	return vtime;
}

/*
 * The virtual time with which a task joins a queue: its place against others there. `first` is where the
 * tasks are that are served, if that is before the clock. A task that slept may be before `first` by its
 * credit, or keep the lag with which it went to sleep; what it owes it still owes.
 */
static u64 vtime_to_queue(const struct task_state *task, u64 vtime, u64 first, bool woke, u64 now_ns)
{
	u64 slept_ns = before(task->faded_ns, now_ns) ? now_ns - task->faded_ns : 0, clock = clock_of(task->llc), kept;

	if (!woke)
		return vtime;
	if (before(first, vtime))
		return later(earlier(vtime, fade(vtime, clock, slept_ns)), first);
	kept = later(clock - left_of(task->lag, slept_ns), first - charge(KEPT_SLICES * settings.slice_ns, task->weight));
	return later(vtime, earlier(first - charge(settings.sleeper_credit_ns, task->weight), kept));
}

/*
 * The running task's virtual time up to now, by the base of the LLC; with `chosen`, without what it has run
 * since it was chosen, as if it had waited instead.
 */
static __always_inline u64 vtime_up_to(const struct cpu_state *cpu, u64 base, u64 now_ns, bool chosen)
{
	u64 vtime = cpu->vtime, ran = 0, delta_ns = before(cpu->charged_ns, now_ns) ? now_ns - cpu->charged_ns : 0;

	if (chosen)
		vtime -= charge(cpu->charged_ns - cpu->turn_ns, cpu->weight);
	else
		ran = charge(delta_ns, cpu->weight);
	return base - grown(cpu->charged_base - vtime, -(s64)ran, delta_ns);
}

static __always_inline u64 running_vtime(const struct cpu_state *cpu, u64 base, u64 now_ns)
{
	return vtime_up_to(cpu, base, now_ns, false);
}

/* How far the clock is drawn to a running task whose virtual time is so far ahead of it. */
static __always_inline s64 drawn(s64 ahead, u64 delta_ns, s32 nr_cpus)
{
	u32 shift = ahead > 0 ? AHEAD_SHIFT : BEHIND_SHIFT;

	if (delta_ns >> shift)
		delta_ns = 1ULL << shift;
	ahead = ((ahead >> 8) * (s64)(delta_ns >> 5)) >> (shift - 13);
	return ahead > 0 ? ahead : ahead / nr_cpus;
}

/* Charges the running task up to now. */
static __always_inline void settle(struct cpu_state *cpu, u32 llc, u64 now_ns)
{
	struct llc_state *state = llc_state(llc);
	u64 delta_ns;
	s64 beyond;

	if (!state || !before(cpu->charged_ns, now_ns))
		return;
	delta_ns = now_ns - cpu->charged_ns;
	beyond = grown(cpu->charged_base - cpu->vtime, -(s64)charge(delta_ns, cpu->weight), delta_ns);
	if (state->weight > 0)
		__sync_fetch_and_add(&state->clock, charge(delta_ns, state->weight) + drawn(cpu->vtime - state->clock, delta_ns, nr_cpus_of(llc)));
	cpu->charged_base = base_of(llc, now_ns);
	cpu->vtime = cpu->charged_base - beyond;
	cpu->charged_ns = now_ns;
}

/*
 * A virtual time that is at most KEPT_SLICES before `first`, and at most a slice behind `last`. A task that
 * may go anywhere pays up to the clock: if it had to pay no more than the tasks pay that are served, it could
 * stay before the waiting ones for ever by moving back and forth.
 */
static __always_inline u64 within(u64 vtime, u64 first, u64 last, u64 weight)
{
	return earlier(later(vtime, first - charge(KEPT_SLICES * settings.slice_ns, weight)), later(first, last) + charge(settings.slice_ns, weight));
}

/*
 * The running task continues, and for a slice no task has waited for its CPU, nor anywhere in the LLC one
 * that could move: it owes nothing for what no other task wanted, and it is owed nothing that it could not
 * have used. `awaited`: a task waits for the CPU; `pinned`: the running task can go nowhere else.
 */
static __always_inline void forget_alone(struct cpu_state *cpu, u32 llc, bool awaited, bool pinned)
{
	struct llc_state *state = llc_state(llc);

	if (!state)
		return;
	if (awaited)
		cpu->waited_ns = cpu->charged_ns;
	/* It could run elsewhere, and the task that waits for it here. */
	if (awaited && !pinned)
		state->waited_ns = cpu->charged_ns;
	/* Others may have waited since it was charged. */
	if (state->nr_movable <= 0 && before(later(state->waited_ns, cpu->waited_ns) + settings.slice_ns, cpu->charged_ns))
		cpu->vtime = later(earlier(cpu->vtime, state->clock), state->clock - charge(settings.slice_ns, cpu->weight));
}

#endif
