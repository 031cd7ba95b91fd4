/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preferences: the CPUs that a task prefers to use, for soft affinity and for NUMA homes.
 *
 * Sets of CPUs are shared: `preference_sets` contains each different set of a user once, with the number of
 * its users, and a task or cgroup refers to its set by index, where 0 is none. A task's own preference comes
 * before those of its cgroups, the nearest first. The set in force for a task is looked up when needed and
 * remembered until `generation` changes. A child inherits its parent's preference. All maps here stay when
 * the command loads the scheduler again.
 *
 * Limits: MAX_SETS different sets; cgroups are those of the unified hierarchy.
 */
#ifndef TANDEM_PREFERENCES_H
#define TANDEM_PREFERENCES_H

enum {
	MAX_SETS = 1024,
	/* Sets that users other than root can take: the rest is reserved for root and the agent. */
	USER_SETS = 768,
	/* Sets that one user can have. */
	SETS_OF_USER = 32,
};

struct preference_set {
	struct bpf_cpumask __kptr *mask;
	u64 cpus[CPU_WORDS];
	u64 nodes[NODE_WORDS];
	u32 kind;
	/* Its owner, who alone shares it: see struct preference_request. */
	u32 payer;
	u32 nr_cpus;
	/* It contains one CPU of an LLC and leaves out another. */
	bool partial;
	/* Number of its users: a set with none may be replaced. */
	u32 tasks;
	u32 cgroups;
	/*
	 * Utilisation of the set and of the CPUs outside of it, of USED_ONE, smoothed; and when it was
	 * sampled.
	 */
	u32 used;
	u32 used_rest;
	u64 looked_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_SETS);
	__type(key, u32);
	__type(value, struct preference_set);
} preference_sets SEC(".maps");

struct task_preference {
	/* The task's own set, and the one in force: its own or a cgroup's. */
	u32 own_set;
	u32 set;
	/* The `generation` and the cgroup for which `set` was found. */
	u32 found_for;
	u32 latency_critical;
	u64 found_in;
	/* Since when it has run outside of its set; 0: it runs inside, or has not run. */
	u64 away_since_ns;
	/* How long it has run on CPUs of its sets, and on others. */
	u64 home_ns;
	u64 away_ns;
	/* The agent chose `own_set`. */
	u32 by_agent;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_preference);
} preferences_of_tasks SEC(".maps");

struct cgroup_preference {
	u32 set;
};

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct cgroup_preference);
} preferences_of_cgroups SEC(".maps");

/* Counts changes of preferences; differs between loads, so that nothing remembered from before is current. */
u32 generation;
/*
 * Number of preferences and marks in force, of tasks and cgroups together, and of preferences of cgroups
 * alone: with none, nothing here costs anything.
 */
u32 nr_preferences;
u32 nr_cgroup_preferences;

static __always_inline struct preference_set *set_at(u32 index)
{
	return index ? bpf_map_lookup_elem(&preference_sets, &index) : NULL;
}

/* Counts a task or cgroup that begins to use a set (`by` 1), or ceases to (-1). */
static __always_inline void count_user(u32 index, bool cgroup, s32 by)
{
	struct preference_set *set = set_at(index);

	if (!set)
		return;
	__sync_fetch_and_add(cgroup ? &set->cgroups : &set->tasks, by);
	__sync_fetch_and_add(&nr_preferences, by);
	if (cgroup)
		__sync_fetch_and_add(&nr_cgroup_preferences, by);
}

static __always_inline void mark(struct task_preference *preference, bool latency_critical)
{
	if (latency_critical && !preference->latency_critical)
		__sync_fetch_and_add(&nr_preferences, 1);
	else if (!latency_critical && preference->latency_critical)
		__sync_fetch_and_sub(&nr_preferences, 1);
	preference->latency_critical = latency_critical;
}

/* The set of the nearest cgroup that has one. */
static u32 set_of_cgroups(struct task_struct *p)
{
	struct cgroup *cgroup;
	u32 set = 0;
	int level, i;

	if (!nr_cgroup_preferences)
		return 0;
	cgroup = p->cgroups->dfl_cgrp;
	level = cgroup->level;
	bpf_for(i, 0, MAX_DEPTH) {
		struct cgroup *ancestor = bpf_cgroup_ancestor(cgroup, level - i);
		struct cgroup_preference *preference;

		if (!ancestor)
			break;
		preference = bpf_cgrp_storage_get(&preferences_of_cgroups, ancestor, 0, 0);
		if (preference)
			set = preference->set;
		bpf_cgroup_release(ancestor);
		if (set)
			break;
	}
	return set;
}

static __always_inline struct task_preference *preference_of_task(struct task_struct *p)
{
	if (!nr_preferences)
		return NULL;
	return bpf_task_storage_get(&preferences_of_tasks, p, NULL,
				    nr_cgroup_preferences ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
}

/* The set in force for a task; NULL: it prefers nothing, or its kind of preference is switched off. */
static struct preference_set *preferred_set(struct task_struct *p, struct task_preference *preference)
{
	struct preference_set *set;
	u32 now = generation;
	u64 cgroup = 0;

	if (!preference)
		return NULL;
	/* A task may have moved to another cgroup. */
	if (nr_cgroup_preferences)
		cgroup = p->cgroups->dfl_cgrp->kn->id;
	if (preference->found_for != now || preference->found_in != cgroup) {
		preference->set = preference->own_set ?: set_of_cgroups(p);
		preference->found_for = now;
		preference->found_in = cgroup;
	}
	set = set_at(preference->set);
	if (!set)
		return NULL;
	if (set->kind == KIND_NODES ? settings.numa_homes : settings.soft_affinity)
		return set;
	return NULL;
}

/* Gives a new task its parent's preference. */
static s32 inherit_preference(struct task_struct *p)
{
	struct task_preference *parents, *own;

	if (!nr_preferences)
		return 0;
	parents = bpf_task_storage_get(&preferences_of_tasks, bpf_get_current_task_btf(), NULL, 0);
	if (!parents || (!parents->own_set && !parents->latency_critical))
		return 0;
	own = bpf_task_storage_get(&preferences_of_tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!own)
		return -ENOMEM;
	own->own_set = parents->own_set;
	own->by_agent = parents->by_agent;
	count_user(own->own_set, false, 1);
	mark(own, parents->latency_critical);
	return 0;
}

/* Returns a cgroup's set when it is removed; a cgroup that only changes its scheduler keeps it. */
static __always_inline void forget_cgroup(struct cgroup *cgroup)
{
	struct cgroup_preference *preference;

	if (!(cgroup->self.flags & CSS_DYING))
		return;
	preference = bpf_cgrp_storage_get(&preferences_of_cgroups, cgroup, 0, 0);
	if (preference)
		count_user(preference->set, true, -1);
}

/* Whether the set contains one CPU of an LLC and leaves out another. */
static bool is_partial(struct preference_set *set)
{
	bool partial = false;
	u32 llc;

	bpf_rcu_read_lock();
	bpf_for(llc, 0, MAX_LLCS) {
		struct bpf_cpumask *llc_mask, *mask = set->mask;

		if (llc >= settings.nr_llcs)
			break;
		llc_mask = cpus_of_llc(llc);
		if (mask && llc_mask && bpf_cpumask_intersects(cast_mask(mask), cast_mask(llc_mask)) &&
		    !bpf_cpumask_subset(cast_mask(llc_mask), cast_mask(mask)))
			partial = true;
	}
	bpf_rcu_read_unlock();
	return partial;
}

/*
 * Takes over what was set before the scheduler was loaded again. Users that are cgroups are still counted;
 * tasks are counted anew as each one is initialised, since tasks may have ended meanwhile.
 */
static void init_preferences(void)
{
	u32 index;

	generation = (u32)bpf_ktime_get_ns() | 1;
	bpf_for(index, 1, MAX_SETS) {
		struct preference_set *set = set_at(index);

		if (!set)
			break;
		set->tasks = 0;
		nr_preferences += set->cgroups;
		nr_cgroup_preferences += set->cgroups;
		if (set->kind)
			set->partial = is_partial(set);
	}
}

#endif
