/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where a task that wakes goes: idle CPUs, soft affinity, NUMA homes.
 *
 * Problem: a task prefers some of the CPUs that it may use: those of its VM's home nodes, or those that an
 * operator named. It should run there while there is room, use others when there is none, and return; no CPU
 * may idle while it waits.
 *
 * Approach: 1. an idle CPU of the preferred set; 2. any other idle CPU that it may use; 3. with none idle, it
 * waits for its set. Only where it starts is a matter of degree: with
 *
 *     preferred x utilisation of the set > allowed x utilisation of the CPUs outside
 *
 * the set is so much busier that the task starts in the whole allowed set: it goes to its last CPU if that
 * idles, even one outside, and waits where it is rather than for its set. Utilisations are those of the sets,
 * not of a CPU of each, smoothed over some milliseconds. Hysteresis, for NUMA homes: a task that had to leave
 * home keeps using CPUs around its last one until it has been away for `away_min_ns`; then home comes first
 * again. A task that does not sleep returns when its slice ends: to an idle CPU, or to that of a running task
 * which is outside of its own set and takes this one in return.
 *
 * Among idle CPUs, those whose core is idle come first. A task that computes beside a busy thread moves to
 * such a core when its slice ends.
 *
 * A task without a preference goes where the kernel's own search for an idle CPU sends it, which knows cores,
 * caches and nodes; in guest mode, see guest.bpf.h.
 */
#ifndef TANDEM_PLACEMENT_H
#define TANDEM_PLACEMENT_H

/* CPUs of its set that a task outside checks for one to swap places with, when its slice ends. */
#define SWAP_LOOKS 4

/* Utilisation 1, and how often a set is sampled: smoothed over four samples. */
#define USED_ONE 1024
#define LOOK_INTERVAL_NS (1000ULL * 1000)

/*
 * An idle CPU of `cpus`, which is busy from now on: `near` itself first, then its LLC; with `core`, one whose
 * core idles. `room` provides a mask. Negative: none.
 */
static s32 take_idle_near(const struct cpumask *cpus, s32 near, struct bpf_cpumask *room, bool core)
{
	struct bpf_cpumask *llc = cpus_of_llc(llc_of(near));
	u64 flags = core ? SCX_PICK_IDLE_CORE : 0;
	s32 cpu = -1;

	if (bpf_cpumask_test_cpu(near, cpus) && !(core && shares_core(near)) && scx_bpf_test_and_clear_cpu_idle(near))
		return near;
	if (llc && bpf_cpumask_and(room, cpus, cast_mask(llc)))
		cpu = scx_bpf_pick_idle_cpu(cast_mask(room), flags);
	return cpu >= 0 ? cpu : scx_bpf_pick_idle_cpu(cpus, flags);
}

/* The same, but whole idle cores first; with `cores_alone`, nothing else. */
static __always_inline s32 take_idle(const struct cpumask *cpus, s32 near, struct bpf_cpumask *room, bool cores_alone)
{
	s32 cpu = -1;

	if (settings.smt)
		cpu = take_idle_near(cpus, near, room, true);
	if (cpu < 0 && !cores_alone)
		cpu = take_idle_near(cpus, near, room, false);
	return cpu;
}

/* Smooths the set's utilisation and that of the CPUs outside. `room` provides a mask. */
static __always_inline void look_at(struct preference_set *set, struct bpf_cpumask *mask, struct bpf_cpumask *room, u64 now_ns)
{
	u32 nr_rest = settings.nr_online > set->nr_cpus ? settings.nr_online - set->nr_cpus : 0;
	const struct cpumask *idle;
	u32 idle_set, idle_rest, used;

	if (now_ns - set->looked_ns < LOOK_INTERVAL_NS || !set->nr_cpus)
		return;
	set->looked_ns = now_ns;
	idle = scx_bpf_get_idle_cpumask();
	bpf_cpumask_and(room, idle, cast_mask(mask));
	idle_set = bpf_cpumask_weight(cast_mask(room));
	idle_rest = bpf_cpumask_weight(idle) - idle_set;
	scx_bpf_put_idle_cpumask(idle);

	used = idle_set < set->nr_cpus ? USED_ONE - USED_ONE * idle_set / set->nr_cpus : 0;
	set->used = (3 * set->used + used) / 4;
	used = nr_rest && idle_rest < nr_rest ? USED_ONE - USED_ONE * idle_rest / nr_rest : 0;
	set->used_rest = nr_rest ? (3 * set->used_rest + used) / 4 : USED_ONE;
}

static __always_inline bool starts_in_whole(const struct preference_set *set)
{
	return (u64)settings.preferred * set->used > (u64)settings.allowed * set->used_rest;
}

/*
 * Whether a core outside is better than a thread of a shared one inside: for NUMA homes that are clearly
 * busier than the other nodes, since sharing a core costs more than distance. A set of CPUs is taken
 * literally.
 */
static __always_inline bool cores_to_spare(const struct preference_set *set)
{
	return settings.smt && set->kind == KIND_NODES && 2 * set->used > 3 * set->used_rest;
}

static __always_inline bool stays_away(const struct preference_set *set, const struct task_preference *preference, u64 now_ns)
{
	return set->kind == KIND_NODES && preference->away_since_ns &&
	       now_ns - preference->away_since_ns < settings.away_min_ns;
}

/* Keeps the CPUs of a mask that are online: no CPU serves the queues of others. False: there are none. */
static __always_inline bool only_online(struct bpf_cpumask *mask)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	bool some = bpf_cpumask_and(mask, cast_mask(mask), online);

	scx_bpf_put_cpumask(online);
	return some;
}

/*
 * A CPU for a task with a preference: an idle one, and `*idle` is true, or one to wait for. Negative: it
 * prefers nothing, or may use none of what it prefers, and is placed like others.
 */
static s32 place_preferring(struct task_struct *p, s32 prev_cpu, u64 now_ns, bool *idle)
{
	struct task_preference *preference = preference_of_task(p);
	struct preference_set *set = preferred_set(p, preference);
	struct scratch *scratches = scratch();
	struct bpf_cpumask *mask, *mine, *room;
	bool whole, away;
	s32 cpu;

	if (!set || !preference || !scratches)
		return -1;
	mask = set->mask;
	mine = scratches->first;
	room = scratches->second;
	if (!mask || !mine || !room)
		return -1;
	look_at(set, mask, room, now_ns);
	if (!bpf_cpumask_and(mine, cast_mask(mask), p->cpus_ptr))
		return -1;

	*idle = true;
	whole = starts_in_whole(set);
	away = stays_away(set, preference, now_ns);
	if (whole && bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) && !shares_core(prev_cpu) &&
	    scx_bpf_test_and_clear_cpu_idle(prev_cpu))
		return prev_cpu;
	if (!away) {
		cpu = take_idle(cast_mask(mine), prev_cpu, room, cores_to_spare(set));
		if (cpu >= 0) {
			count(COUNTER_soft_preferred);
			return cpu;
		}
	}
	cpu = take_idle(p->cpus_ptr, prev_cpu, room, false);
	if (cpu >= 0) {
		count(away ? COUNTER_stays_away : COUNTER_soft_rest);
		return cpu;
	}
	*idle = false;
	if (whole || away) {
		count(COUNTER_soft_whole);
		return prev_cpu;
	}
	count(COUNTER_soft_waited);
	if (bpf_cpumask_test_cpu(prev_cpu, cast_mask(mine)) || !only_online(mine))
		return prev_cpu;
	return bpf_cpumask_any_distribute(cast_mask(mine));
}

/* Notes whether a task that begins to run does so in its set. */
static __always_inline void note_place(struct task_struct *p, s32 cpu, struct cpu_state *state, u64 now_ns)
{
	struct task_preference *preference = preference_of_task(p);
	struct preference_set *set = preferred_set(p, preference);
	struct bpf_cpumask *mask;

	state->strays_from = 0;
	if (!set || !preference)
		return;
	mask = set->mask;
	if (!mask)
		return;
	if (!bpf_cpumask_test_cpu(cpu, cast_mask(mask))) {
		if (bpf_cpumask_subset(cast_mask(mask), p->cpus_ptr))
			state->strays_from = preference->set;
		if (!preference->away_since_ns)
			preference->away_since_ns = now_ns;
	} else if (preference->away_since_ns) {
		preference->away_since_ns = 0;
		count(COUNTER_soft_returned);
	}
}

/* Counts the time that a running task has had since it was last charged: at home, or away. */
static __always_inline void note_time(struct task_struct *p, s32 cpu, const struct cpu_state *state, u64 now_ns)
{
	struct task_preference *preference = preference_of_task(p);
	struct preference_set *set = preferred_set(p, preference);
	struct bpf_cpumask *mask;

	if (!set || !preference || !before(state->charged_ns, now_ns))
		return;
	mask = set->mask;
	if (!mask)
		return;
	if (bpf_cpumask_test_cpu(cpu, cast_mask(mask)))
		preference->home_ns += now_ns - state->charged_ns;
	else
		preference->away_ns += now_ns - state->charged_ns;
}

/*
 * Whether a running task should leave `cpu` for its set, which has an idle CPU, or an idle core if it has one
 * to itself here.
 */
static __always_inline bool should_return(struct task_struct *p, s32 cpu, u64 now_ns)
{
	struct task_preference *preference = preference_of_task(p);
	struct preference_set *set = preferred_set(p, preference);
	const struct cpumask *idle;
	struct bpf_cpumask *mask;
	bool room;

	if (!set || !preference || stays_away(set, preference, now_ns))
		return false;
	mask = set->mask;
	if (!mask || bpf_cpumask_test_cpu(cpu, cast_mask(mask)) ||
	    !bpf_cpumask_intersects(cast_mask(mask), p->cpus_ptr))
		return false;
	idle = cores_to_spare(set) && !shares_core(cpu) ? scx_bpf_get_idle_smtmask() :
									   scx_bpf_get_idle_cpumask();
	room = bpf_cpumask_intersects(idle, cast_mask(mask));
	scx_bpf_put_idle_cpumask(idle);
	return room;
}

/*
 * A CPU of its set for a running task that is outside: one whose task is outside of its own set, which
 * contains `cpu`. The two can swap places, where no CPU idles to which either could return. Negative: none
 * was found.
 */
static __always_inline s32 find_swap(struct task_struct *p, const struct cpu_state *state, s32 cpu, u64 now_ns)
{
	struct task_preference *preference;
	struct preference_set *set;
	struct bpf_cpumask *mask;
	s32 i;

	if (!state->strays_from)
		return -1;
	preference = preference_of_task(p);
	set = preferred_set(p, preference);
	if (!set || !preference || stays_away(set, preference, now_ns))
		return -1;
	mask = set->mask;
	if (!mask || !bpf_cpumask_subset(cast_mask(mask), p->cpus_ptr))
		return -1;
	bpf_for(i, 0, SWAP_LOOKS) {
		s32 other = bpf_cpumask_any_distribute(cast_mask(mask));
		struct cpu_state *there = cpu_state(other);
		struct preference_set *theirs = there && there->running ? set_at(there->strays_from) : NULL;
		struct bpf_cpumask *their_mask = theirs ? theirs->mask : NULL;

		if (their_mask && bpf_cpumask_test_cpu(cpu, cast_mask(their_mask)))
			return other;
	}
	return -1;
}

/*
 * Whether a running task should leave `cpu`, whose core it shares, for an idle core: one of its set if it is
 * there, unless other nodes have cores to spare.
 */
static __always_inline bool should_spread(struct task_struct *p, s32 cpu)
{
	struct preference_set *set = preferred_set(p, preference_of_task(p));
	struct bpf_cpumask *mask = set ? set->mask : NULL;
	struct scratch *scratches = scratch();
	const struct cpumask *cores;
	struct bpf_cpumask *room;
	bool found;

	room = scratches ? scratches->second : NULL;
	if (!room)
		return false;
	cores = scx_bpf_get_idle_smtmask();
	found = bpf_cpumask_and(room, cores, p->cpus_ptr);
	if (found && mask && bpf_cpumask_test_cpu(cpu, cast_mask(mask)) && !cores_to_spare(set))
		found = bpf_cpumask_intersects(cast_mask(room), cast_mask(mask));
	scx_bpf_put_idle_cpumask(cores);
	return found;
}

/* An idle core for a task without a preference that shares the core of `cpu`; negative: none. */
static __always_inline s32 spread(struct task_struct *p, s32 cpu)
{
	struct scratch *scratches = scratch();
	struct bpf_cpumask *room = scratches ? scratches->second : NULL;

	return room ? take_idle(p->cpus_ptr, cpu, room, true) : -1;
}

#endif
