/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Weights of cgroups.
 *
 * Problem: a cgroup's tasks together get a share according to its `cpu.weight` against its siblings, however
 * many they are; a queue knows only single tasks.
 *
 * Approach: the tree is flattened. Inside a cgroup, runnable tasks and cgroups with runnable tasks share the
 * cgroup's part by weight: factor(cgroup) = factor(parent) x weight / sum of the weights in it, and a task
 * counts with its own weight x its cgroup's factor. Tasks of the root count with their own weights, as in
 * CFS, where a cgroup of weight 100 weighs as much as one usual task beside it. The sums change as tasks wake
 * and sleep; factors are recomputed when they are older than FACTOR_AGE_NS.
 *
 * Limits: as in CFS, weights hold where tasks compete: LLCs are not balanced by weight. MAX_DEPTH levels
 * count.
 */
#ifndef TANDEM_CGROUP_WEIGHTS_H
#define TANDEM_CGROUP_WEIGHTS_H

#define FACTOR_ONE (1U << 20)
#define FACTOR_AGE_NS (1000ULL * 1000)
#define MAX_DEPTH 16
/* How often a cgroup's contribution is checked, if it changes meanwhile. */
#define COUNT_TRIES 3

struct cgroup_state {
	/* The kernel's weight, 1 to 10,000, and its part in the parent's sum: 0 while nothing is runnable. */
	s64 weight;
	s64 counted;
	/* Runnable tasks and cgroups in it, and the sum of their weights. */
	s64 nr_runnable;
	s64 sum;
	/* In units of 1/FACTOR_ONE, and when it was computed. */
	u64 factor;
	u64 computed_ns;
	/*
	 * See limits.bpf.h: its own bucket, that of the nearest limited cgroup upwards from it, and for which
	 * generation of limits.
	 */
	u32 bucket;
	u32 limited_by;
	u32 limits_generation;
};

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct cgroup_state);
} cgroup_states SEC(".maps");

/* Number of cgroups that the scheduler knows, except the root: with none, nothing here costs anything. */
u32 nr_cgroups;

static struct cgroup_state *state_of_ancestor(struct cgroup *cgroup, int level)
{
	struct cgroup *ancestor = bpf_cgroup_ancestor(cgroup, level);
	struct cgroup_state *state;

	if (!ancestor)
		return NULL;
	state = bpf_cgrp_storage_get(&cgroup_states, ancestor, 0, 0);
	bpf_cgroup_release(ancestor);
	return state;
}

/*
 * Updates the part that a cgroup's parent has of its weight. Other CPUs may do so at the same time, for tasks
 * that became or ceased to be runnable there, or for another weight: each adds its change, and checks again
 * whether that is still right.
 */
static __always_inline void count_in_parent(struct cgroup_state *state, struct cgroup_state *parent)
{
	s64 counts;
	int i;

	for (i = 0; i < COUNT_TRIES; i++) {
		counts = state->nr_runnable > 0 ? state->weight : 0;
		__sync_fetch_and_add(&parent->sum, counts - __sync_lock_test_and_set(&state->counted, counts));
		if (counts == (state->nr_runnable > 0 ? state->weight : 0))
			break;
	}
}

/*
 * Adds a runnable task's weight to its cgroup, or subtracts it (`sign` -1). The first runnable entity of a
 * cgroup adds the cgroup to its parent, and so on upwards; the last one removes it.
 */
static void change_runnable(struct task_struct *p, s64 sign)
{
	struct cgroup_state *below = NULL;
	struct cgroup *cgroup;
	int level, i;

	if (!settings.cgroup_weights || !nr_cgroups)
		return;
	cgroup = scx_bpf_task_cgroup(p);
	if (!cgroup)
		return;
	level = cgroup->level;
	bpf_for(i, 0, MAX_DEPTH) {
		struct cgroup_state *state;

		if (level <= 0)
			break;
		state = state_of_ancestor(cgroup, level--);
		if (!state)
			continue;
		if (below)
			count_in_parent(below, state);
		else
			__sync_fetch_and_add(&state->sum, sign * (s64)p->scx.weight);
		if (__sync_fetch_and_add(&state->nr_runnable, sign) != (sign > 0 ? 0 : 1))
			break;
		below = state;
	}
	bpf_cgroup_release(cgroup);
}

/* The factor of a cgroup's tasks, computed from the root down. */
static u64 compute_factor(struct cgroup *cgroup)
{
	u64 factor = FACTOR_ONE;
	int level;

	bpf_for(level, 1, MAX_DEPTH) {
		struct cgroup_state *state;
		s64 sum;

		if (level > cgroup->level)
			break;
		state = state_of_ancestor(cgroup, level);
		if (!state)
			continue;
		sum = state->sum;
		factor = factor * state->weight / (sum > 0 ? sum : state->weight);
	}
	return factor ?: 1;
}

/* A task's weight with those of its cgroups: 1/1024 of the kernel's units, see fairness.bpf.h. */
static __always_inline u64 weight_of(struct task_struct *p, u64 now_ns)
{
	u64 weight = (u64)p->scx.weight << WEIGHT_SHIFT;
	struct cgroup_state *state;
	struct cgroup *cgroup;

	if (!settings.cgroup_weights || !nr_cgroups)
		return weight;
	cgroup = scx_bpf_task_cgroup(p);
	if (!cgroup)
		return weight;
	if (cgroup->level > 0) {
		state = bpf_cgrp_storage_get(&cgroup_states, cgroup, 0, 0);
		if (state) {
			if (now_ns - state->computed_ns > FACTOR_AGE_NS) {
				state->factor = compute_factor(cgroup);
				state->computed_ns = now_ns;
			}
			weight = weight * state->factor / FACTOR_ONE;
		}
	}
	bpf_cgroup_release(cgroup);
	return weight ?: 1;
}

#endif
