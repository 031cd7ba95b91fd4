/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Writes down what the kernel tells, and complains of what it must not: for tests of that, not to be used.
 *
 * Tasks come into a queue by virtual time, from there into one by arrival, and from that to CPUs; who may run on one CPU only
 * is sent there at once.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define BY_VTIME_DSQ 1
#define BY_ARRIVAL_DSQ 2
#define CPUS_MAX 1024
#define GROUPS_MAX 1024

const volatile u64 slice_ns = 8000000;
/* Time after which the timer of each cgroup expires. */
const volatile u64 timer_ns = 1000000;
/* Whether a task without storage is an error. */
const volatile bool needs_storage = true;

struct seen {
	u64 groups_init;
	u64 groups_exit;
	u64 levels;
	u64 weights;
	u64 quota_us;
	u64 period_us;
	u64 group_weight;
	u64 group_quota_us;
	u64 group_period_us;
	u64 tasks_init;
	u64 tasks_exit;
	u64 tasks_enabled;
	u64 tasks_disabled;
	u64 without_storage;
	u64 set_weight;
	u64 task_weights;
	u64 task_policies;
	u64 set_cpumask;
	u64 stopped_runnable;
	u64 released;
	u64 acquired;
	u64 reenqueued;
	u64 online;
	u64 offline;
	u64 idle;
	u64 busy;
	u64 exiting;
	u64 moved;
	u64 sent_on;
	u64 timers;
	u64 timer_late_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct seen);
} seen_map SEC(".maps");

struct task_state {
	bool is_runnable;
	bool is_running;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} states SEC(".maps");

struct group_state {
	u32 level;
};

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct group_state);
} group_states SEC(".maps");

struct group_timer {
	struct bpf_timer timer;
	struct bpf_spin_lock lock;
	u64 expires_at;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, GROUPS_MAX);
	__type(key, u64);
	__type(value, struct group_timer);
} group_timers SEC(".maps");

/* CPUs that the scheduler does not have. */
static bool is_away[CPUS_MAX];

static struct seen *seen(void)
{
	u32 first = 0;

	return bpf_map_lookup_elem(&seen_map, &first);
}

#define COUNT(what, amount)                                                                                            \
	do {                                                                                                           \
		struct seen *seen_ = seen();                                                                           \
		if (seen_)                                                                                             \
			seen_->what += (amount);                                                                       \
	} while (0)

static struct task_state *state_of(struct task_struct *p)
{
	return bpf_task_storage_get(&states, p, NULL, 0);
}

static int group_timer_expires(void *map, u64 *id, struct group_timer *group)
{
	u64 expires_at;

	bpf_spin_lock(&group->lock);
	expires_at = group->expires_at;
	bpf_spin_unlock(&group->lock);
	COUNT(timers, 1);
	COUNT(timer_late_ns, bpf_ktime_get_ns() - expires_at);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(witness_cgroup_init, struct cgroup *cgrp, struct scx_cgroup_init_args *args)
{
	u64 id = cgrp->kn->id;
	struct group_timer none = {}, *group;
	struct group_state *own;
	s32 level;

	/* Each of those above has been told of before. */
	bpf_for(level, 0, cgrp->level + 1) {
		struct cgroup *above = bpf_cgroup_ancestor(cgrp, level);
		struct group_state *state;

		if (!above) {
			scx_bpf_error("cgroup %llu has none above it on level %d", id, level);
			return -EINVAL;
		}
		state = bpf_cgrp_storage_get(&group_states, above, NULL,
					     level == cgrp->level ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
		if (!state || (level != cgrp->level && state->level != level))
			scx_bpf_error("cgroup %llu comes before the one above it on level %d", id, level);
		bpf_cgroup_release(above);
	}
	own = bpf_cgrp_storage_get(&group_states, cgrp, NULL, 0);
	if (own)
		own->level = cgrp->level;
	COUNT(groups_init, 1);
	COUNT(levels, cgrp->level);
	COUNT(weights, args->weight);
	if (bpf_core_field_exists(args->bw_quota_us) && args->bw_quota_us != ~0ULL) {
		COUNT(quota_us, args->bw_quota_us);
		COUNT(period_us, args->bw_period_us);
	}

	bpf_map_update_elem(&group_timers, &id, &none, BPF_ANY);
	group = bpf_map_lookup_elem(&group_timers, &id);
	if (!group)
		return -ENOMEM;
	bpf_spin_lock(&group->lock);
	group->expires_at = bpf_ktime_get_ns() + timer_ns;
	bpf_spin_unlock(&group->lock);
	bpf_timer_init(&group->timer, &group_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&group->timer, group_timer_expires);
	bpf_timer_start(&group->timer, timer_ns, 0);
	return 0;
}

void BPF_STRUCT_OPS(witness_cgroup_exit, struct cgroup *cgrp)
{
	COUNT(groups_exit, 1);
}

void BPF_STRUCT_OPS(witness_cgroup_move, struct task_struct *p, struct cgroup *from, struct cgroup *to)
{
	scx_bpf_error("nobody moves task %d", p->pid);
}

void BPF_STRUCT_OPS(witness_cgroup_set_weight, struct cgroup *cgrp, u32 weight)
{
	COUNT(group_weight, cgrp->kn->id * 100000 + weight);
}

void BPF_STRUCT_OPS(witness_cgroup_set_bandwidth, struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us)
{
	COUNT(group_period_us, period_us);
	COUNT(group_quota_us, quota_us);
}

s32 BPF_STRUCT_OPS(witness_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_state *state = bpf_task_storage_get(&states, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	COUNT(tasks_init, 1);
	if (!state)
		COUNT(without_storage, 1);
	if (!state && needs_storage)
		return -ENOMEM;
	return 0;
}

void BPF_STRUCT_OPS(witness_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task_state *state = state_of(p);

	if (state && state->is_runnable)
		scx_bpf_error("task %d ends while it is runnable", p->pid);
	COUNT(tasks_exit, 1);
}

void BPF_STRUCT_OPS(witness_enable, struct task_struct *p)
{
	COUNT(tasks_enabled, 1);
}

void BPF_STRUCT_OPS(witness_disable, struct task_struct *p)
{
	COUNT(tasks_disabled, 1);
}

void BPF_STRUCT_OPS(witness_set_weight, struct task_struct *p, u32 weight)
{
	if (weight != p->scx.weight)
		scx_bpf_error("task %d has weight %u, not %u", p->pid, p->scx.weight, weight);
	COUNT(set_weight, 1);
	COUNT(task_weights, weight);
	COUNT(task_policies, p->policy);
}

void BPF_STRUCT_OPS(witness_set_cpumask, struct task_struct *p, const struct cpumask *cpumask)
{
	if (bpf_cpumask_empty(cpumask))
		scx_bpf_error("task %d may run nowhere", p->pid);
	COUNT(set_cpumask, 1);
}

void BPF_STRUCT_OPS(witness_runnable, struct task_struct *p, u64 enq_flags)
{
	struct task_state *state = state_of(p);

	if (state && state->is_runnable)
		scx_bpf_error("task %d is runnable twice", p->pid);
	if (state)
		state->is_runnable = true;
}

void BPF_STRUCT_OPS(witness_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task_state *state = state_of(p);

	if (state && (!state->is_runnable || state->is_running))
		scx_bpf_error("task %d is quiescent out of turn", p->pid);
	if (state)
		state->is_runnable = false;
}

void BPF_STRUCT_OPS(witness_running, struct task_struct *p)
{
	struct task_state *state = state_of(p);
	s32 cpu = bpf_get_smp_processor_id();

	if (state && (!state->is_runnable || state->is_running))
		scx_bpf_error("task %d runs out of turn", p->pid);
	if (state)
		state->is_running = true;
	if (!bpf_cpumask_test_cpu(scx_bpf_task_cpu(p), p->cpus_ptr))
		scx_bpf_error("task %d runs on CPU %d, where it may not", p->pid, scx_bpf_task_cpu(p));
	if (cpu >= 0 && cpu < CPUS_MAX && is_away[cpu])
		scx_bpf_error("task %d runs on CPU %d, which somebody else has", p->pid, cpu);
}

void BPF_STRUCT_OPS(witness_stopping, struct task_struct *p, bool runnable)
{
	struct task_state *state = state_of(p);

	if (state && !state->is_running)
		scx_bpf_error("task %d stops and does not run", p->pid);
	if (state)
		state->is_running = false;
	if (runnable)
		COUNT(stopped_runnable, 1);
}

void BPF_STRUCT_OPS(witness_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct bpf_cpumask *idle;

	if (enq_flags & SCX_ENQ_REENQ)
		COUNT(reenqueued, 1);
	if (p->flags & 4 /* PF_EXITING */)
		COUNT(exiting, 1);
	if (p->nr_cpus_allowed == 1) {
		COUNT(sent_on, 1);
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | scx_bpf_task_cpu(p), slice_ns, enq_flags);
		return;
	}
	scx_bpf_dsq_insert_vtime(p, BY_VTIME_DSQ, slice_ns, bpf_ktime_get_ns(), enq_flags);

	idle = bpf_cpumask_create();
	if (!idle)
		return;
	const struct cpumask *idle_cpus = scx_bpf_get_idle_cpumask();

	if (bpf_cpumask_and(idle, idle_cpus, p->cpus_ptr))
		scx_bpf_kick_cpu(bpf_cpumask_first((const struct cpumask *)idle), SCX_KICK_IDLE);
	scx_bpf_put_idle_cpumask(idle_cpus);
	bpf_cpumask_release(idle);
}

void BPF_STRUCT_OPS(witness_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p;

	if (cpu >= 0 && cpu < CPUS_MAX && is_away[cpu])
		scx_bpf_error("CPU %d is asked for, which somebody else has", cpu);
	if (__COMPAT_scx_bpf_dsq_peek(BY_VTIME_DSQ)) {
		bpf_for_each(scx_dsq, p, BY_VTIME_DSQ, 0) {
			if (!bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
				continue;
			if (scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, BY_ARRIVAL_DSQ, 0))
				COUNT(moved, 1);
			break;
		}
	}
	scx_bpf_dsq_move_to_local(BY_ARRIVAL_DSQ, 0);
}

void BPF_STRUCT_OPS(witness_update_idle, s32 cpu, bool idle)
{
	if (idle)
		COUNT(idle, 1);
	else
		COUNT(busy, 1);
}

void BPF_STRUCT_OPS(witness_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	COUNT(released, 1);
	if (args->task->policy != 1 /* SCHED_FIFO */)
		scx_bpf_error("CPU %d was taken by nobody", cpu);
	if (cpu >= 0 && cpu < CPUS_MAX)
		is_away[cpu] = true;
	scx_bpf_reenqueue_local();
}

void BPF_STRUCT_OPS(witness_cpu_acquire, s32 cpu, struct scx_cpu_acquire_args *args)
{
	COUNT(acquired, 1);
	if (cpu >= 0 && cpu < CPUS_MAX)
		is_away[cpu] = false;
}

void BPF_STRUCT_OPS(witness_cpu_online, s32 cpu)
{
	COUNT(online, 1);
}

void BPF_STRUCT_OPS(witness_cpu_offline, s32 cpu)
{
	COUNT(offline, 1);
}

bool BPF_STRUCT_OPS(witness_core_sched_before, struct task_struct *a, struct task_struct *b)
{
	return a->scx.dsq_vtime < b->scx.dsq_vtime;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(witness_init)
{
	s32 error = scx_bpf_create_dsq(BY_VTIME_DSQ, NUMA_NO_NODE);

	return error ?: scx_bpf_create_dsq(BY_ARRIVAL_DSQ, NUMA_NO_NODE);
}

void BPF_STRUCT_OPS(witness_exit, struct scx_exit_info *info)
{
}

SCX_OPS_DEFINE(witness_ops,
	       .enqueue = (void *)witness_enqueue,
	       .dispatch = (void *)witness_dispatch,
	       .runnable = (void *)witness_runnable,
	       .quiescent = (void *)witness_quiescent,
	       .running = (void *)witness_running,
	       .stopping = (void *)witness_stopping,
	       .set_weight = (void *)witness_set_weight,
	       .set_cpumask = (void *)witness_set_cpumask,
	       .update_idle = (void *)witness_update_idle,
	       .cpu_release = (void *)witness_cpu_release,
	       .cpu_acquire = (void *)witness_cpu_acquire,
	       .cpu_online = (void *)witness_cpu_online,
	       .cpu_offline = (void *)witness_cpu_offline,
	       .core_sched_before = (void *)witness_core_sched_before,
	       .init_task = (void *)witness_init_task,
	       .exit_task = (void *)witness_exit_task,
	       .enable = (void *)witness_enable,
	       .disable = (void *)witness_disable,
	       .cgroup_init = (void *)witness_cgroup_init,
	       .cgroup_exit = (void *)witness_cgroup_exit,
	       .cgroup_move = (void *)witness_cgroup_move,
	       .cgroup_set_weight = (void *)witness_cgroup_set_weight,
	       .cgroup_set_bandwidth = (void *)witness_cgroup_set_bandwidth,
	       .init = (void *)witness_init,
	       .exit = (void *)witness_exit,
	       .flags = SCX_OPS_KEEP_BUILTIN_IDLE | SCX_OPS_ENQ_EXITING,
	       .name = "witness");
