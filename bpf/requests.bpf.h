/* SPDX-License-Identifier: GPL-2.0-only */
/* Programs that user space runs to set, clear and read preferences: see requests.h. */
#ifndef TANDEM_REQUESTS_BPF_H
#define TANDEM_REQUESTS_BPF_H

static bool same_set(const struct preference_set *set, const struct preference_request *request)
{
	int i;

	if (set->kind != request->kind || set->payer != request->payer)
		return false;
	bpf_for(i, 0, CPU_WORDS) {
		if (set->cpus[i] != request->cpus[i])
			return false;
	}
	return true;
}

/* Fills a set that is not in use. */
static int fill_set(struct preference_set *set, const struct preference_request *request)
{
	struct bpf_cpumask *mask = bpf_cpumask_create();
	u32 cpu, nr_cpus;
	int i;

	if (!mask)
		return -ENOMEM;
	bpf_for(cpu, 0, MAX_CPUS) {
		u32 word = cpu / 64;

		if (word < CPU_WORDS && request->cpus[word] & 1ULL << (cpu % 64))
			bpf_cpumask_set_cpu(cpu, mask);
	}
	nr_cpus = bpf_cpumask_weight(cast_mask(mask));
	if (!nr_cpus) {
		bpf_cpumask_release(mask);
		return -EINVAL;
	}
	mask = bpf_kptr_xchg(&set->mask, mask);
	if (mask)
		bpf_cpumask_release(mask);
	bpf_for(i, 0, CPU_WORDS)
		set->cpus[i] = request->cpus[i];
	bpf_for(i, 0, NODE_WORDS)
		set->nodes[i] = request->nodes[i];
	set->kind = request->kind;
	set->payer = request->payer;
	set->nr_cpus = nr_cpus;
	set->used = 0;
	set->used_rest = 0;
	set->partial = is_partial(set);
	return 0;
}

/*
 * The index of the set that the request describes, which is created if there is none; or a negative error.
 * Only requests with the same payer share a set: no user can keep another user's set in use.
 */
static int find_set(const struct preference_request *request)
{
	struct preference_set *set;
	int index, unused = 0, own = 0, error;

	/* Unknown to the verifier, which would otherwise follow each possible value through the loops. */
	__sink(unused);
	__sink(own);
	bpf_for(index, 1, MAX_SETS) {
		set = set_at(index);
		if (!set)
			break;
		if (!set->tasks && !set->cgroups) {
			if (!unused && (request->user == ANY_USER || index < USER_SETS))
				unused = index;
		} else if (same_set(set, request)) {
			return index;
		} else if (set->payer == request->payer) {
			own++;
		}
	}
	set = set_at(unused);
	if (!set)
		return -ENOSPC;
	if (request->user != ANY_USER && own >= SETS_OF_USER)
		return -EDQUOT;
	error = fill_set(set, request);
	return error ? error : unused;
}

/*
 * The rule of sched_setaffinity(): users may change their own tasks, by either of the two users that a task
 * has.
 */
static bool is_of_user(struct task_struct *p, u32 user)
{
	return user == ANY_USER || BPF_CORE_READ(p, real_cred, uid.val) == user || BPF_CORE_READ(p, real_cred, euid.val) == user;
}

static int prefer_for_task(const struct preference_request *request)
{
	struct task_preference *preference = NULL;
	struct task_struct *p = bpf_task_from_pid(request->id);
	int set = 0;
	u32 old;

	if (!p)
		return -ESRCH;
	/* First of all: a refused request takes nothing that others may need. */
	if (!is_of_user(p, request->user))
		set = -EPERM;
	else if (request->kind != KIND_NONE)
		set = find_set(request);
	if (set >= 0)
		preference = bpf_task_storage_get(&preferences_of_tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	bpf_task_release(p);
	if (!preference)
		return set < 0 ? set : -ENOMEM;
	count_user(set, false, 1);
	old = preference->own_set;
	preference->own_set = set;
	preference->by_agent = request->by_agent;
	mark(preference, request->latency_critical);
	preference->found_for = 0;
	count_user(old, false, -1);
	return 0;
}

static int prefer_for_cgroup(const struct preference_request *request)
{
	struct cgroup_preference *preference = NULL;
	struct cgroup *cgroup = bpf_cgroup_from_id(request->id);
	int set = 0;
	u32 old;

	if (!cgroup)
		return -ESRCH;
	if (request->kind != KIND_NONE)
		set = find_set(request);
	if (set >= 0)
		preference = bpf_cgrp_storage_get(&preferences_of_cgroups, cgroup, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	bpf_cgroup_release(cgroup);
	if (!preference)
		return set < 0 ? set : -ENOMEM;
	count_user(set, true, 1);
	old = preference->set;
	preference->set = set;
	count_user(old, true, -1);
	return 0;
}

SEC("syscall")
int prefer(struct preference_request *context)
{
	struct preference_request request = *context;
	int error;

	if (request.kind > KIND_NODES || request.scope > SCOPE_CGROUP)
		return -EINVAL;
	error = request.scope == SCOPE_TASK ? prefer_for_task(&request) : prefer_for_cgroup(&request);
	/* Invalidates what tasks remember of cgroups' preferences; each task's own is read anew anyway. */
	if (!error)
		__sync_fetch_and_add(&generation, 1);
	return error;
}

SEC("syscall")
int preference_of(struct preference_request *context)
{
	u32 index = 0, latency_critical = 0;
	struct preference_set *set;

	if (context->scope == SCOPE_TASK) {
		struct task_struct *p = bpf_task_from_pid(context->id);
		struct task_preference *preference;

		if (!p)
			return -ESRCH;
		if (!is_of_user(p, context->user)) {
			bpf_task_release(p);
			return -EPERM;
		}
		preference = bpf_task_storage_get(&preferences_of_tasks, p, NULL, 0);
		if (preference) {
			index = preference->own_set;
			latency_critical = preference->latency_critical;
			context->by_agent = preference->by_agent;
			context->home_ns = preference->home_ns;
			context->away_ns = preference->away_ns;
		}
		bpf_task_release(p);
	} else {
		struct cgroup *cgroup = bpf_cgroup_from_id(context->id);
		struct cgroup_preference *preference;

		if (!cgroup)
			return -ESRCH;
		preference = bpf_cgrp_storage_get(&preferences_of_cgroups, cgroup, NULL, 0);
		if (preference)
			index = preference->set;
		bpf_cgroup_release(cgroup);
	}
	set = set_at(index);
	if (!set && !latency_critical)
		return -ENOENT;
	context->latency_critical = latency_critical;
	context->kind = set ? set->kind : KIND_NONE;
	if (set) {
		__builtin_memcpy(context->cpus, set->cpus, sizeof(set->cpus));
		__builtin_memcpy(context->nodes, set->nodes, sizeof(set->nodes));
	}
	return 0;
}

#endif
