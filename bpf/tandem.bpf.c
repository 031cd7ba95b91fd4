/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tandem: a scheduler for hosts of virtual machines and for their guests, for Linux's sched_ext (6.12 and later).
 *
 * How it decides
 * 1. A task that wakes stays with a waker that is about to sleep, or takes an idle CPU: one of those that it prefers,
 *    if it has a preference (placement.bpf.h); a vCPU that really runs, in a guest (guest.bpf.h).
 * 2. With no idle CPU it waits in the queue of its LLC, ordered by virtual time (fairness.bpf.h, cgroup_weights.bpf.h),
 *    and preempts who is too far ahead, unless rate control says no (rate_control.bpf.h).
 * 3. A CPU takes the target of a directed yield first (directed_yield.bpf.h), then the first of its LLC's queue, then
 *    what other LLCs have, in two steps (queues.bpf.h).
 * 4. A task whose slice ends goes on while nobody deserves the CPU more, and otherwise waits for the CPU where its caches
 *    are; unless it shares a core while another one idles, or is away from its set, which has room.
 *
 * Each mechanism has its switch in `settings` (settings.h), which is read-only when the object is loaded: what is off is
 * not there. Preferences are set while it runs (requests.h). Counters tell what happened (counters.h).
 *
 * One object serves all kernels: what differs between them is in scx's headers. Of the kernel's own enums the values
 * of vmlinux.h are used: none of those used here has changed since 6.12.
 */
#define __SCX_ENUMS_BPF_H
#include <scx/common.bpf.h>
#include "settings.h"
#include "requests.h"
#include "state.bpf.h"
#include "fairness.bpf.h"
#include "cgroup_weights.bpf.h"
#include "preferences.bpf.h"
#include "requests.bpf.h"
#include "placement.bpf.h"
#include "guest.bpf.h"
#include "rate_control.bpf.h"
#include "queues.bpf.h"
#include "directed_yield.bpf.h"

char _license[] SEC("license") = "GPL";

UEI_DEFINE(exit_info);

/*
 * Whether a task that is woken synchronously stays on this CPU: its waker has run so briefly that it is taken to sleep
 * soon, or exits and wakes its parent, and nobody else stayed already. The two then share a warm cache, and no other
 * CPU has to be woken. In a guest, where waking another vCPU costs most, the same holds for a new task: who forks mostly
 * waits for the child. But on a vCPU that the host stops at times both would wait for that, beside vCPUs that idle.
 */
static __always_inline bool stays_with_waker(struct task_struct *p, s32 prev_cpu, s32 this_cpu, u64 wake_flags, u64 now_ns)
{
	bool forked = settings.guest && (wake_flags & SCX_WAKE_FORK);
	struct cpu_state *state = cpu_state(this_cpu);
	struct preference_set *set;
	struct bpf_cpumask *mask;

	if (!state || !(forked || (wake_flags & SCX_WAKE_SYNC)))
		return false;
	if (!state->running || state->stayed)
		return false;
	if (settings.guest && !really_runs(this_cpu, now_ns))
		return false;
	if (!forked && now_ns - state->since_ns >= settings.sync_run_max_ns &&
	    !(bpf_get_current_task_btf()->flags & PF_EXITING))
		return false;
	if (node_of(prev_cpu) != node_of(this_cpu) || !bpf_cpumask_test_cpu(this_cpu, p->cpus_ptr))
		return false;
	set = preferred_set(p, preference_of_task(p));
	if (set) {
		mask = set->mask;
		if (!mask || !bpf_cpumask_test_cpu(this_cpu, cast_mask(mask)))
			return false;
	}
	state->stayed = true;
	return true;
}

/* Gives a task a CPU at once: it is next there. */
static __always_inline void insert_local(struct task_struct *p, s32 cpu, u64 queue, u64 enq_flags)
{
	u32 llc = llc_of(cpu);

	scx_bpf_task_set_dsq_vtime(p, vtime_to_queue(p, llc, true));
	scx_bpf_dsq_insert(p, queue, settings.slice_ns, enq_flags);
}

/* Lets a task wait in the queue of an LLC. */
static __always_inline void insert_queued(struct task_struct *p, u32 llc, u64 vtime, u64 enq_flags)
{
	scx_bpf_dsq_insert_vtime(p, llc, slice_in(llc), vtime, enq_flags);
}

s32 BPF_STRUCT_OPS(tandem_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 this_cpu = bpf_get_smp_processor_id(), cpu = -1;
	u64 now_ns = scx_bpf_now();
	bool idle = false;

	if (stays_with_waker(p, prev_cpu, this_cpu, wake_flags, now_ns)) {
		count(COUNTER_wake_stay);
		/* A new task is there for any CPU that has nothing to do; this one's tick calls one, if need be. */
		if (wake_flags & SCX_WAKE_FORK)
			insert_queued(p, llc_of(this_cpu), vtime_to_queue(p, llc_of(this_cpu), true) | WARM, 0);
		/* Straight to this CPU only if nobody waits in the queue, who would otherwise be overtaken for ever. */
		else if (!scx_bpf_dsq_nr_queued(llc_of(this_cpu)))
			insert_local(p, this_cpu, SCX_DSQ_LOCAL, 0);
		return this_cpu;
	}
	if (nr_preferences)
		cpu = place_preferring(p, prev_cpu, now_ns, &idle);
	if (cpu < 0 && settings.guest) {
		cpu = place_in_guest(p, prev_cpu, now_ns);
		idle = cpu >= 0;
		if (!idle)
			cpu = prev_cpu;
	} else if (cpu < 0) {
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &idle);
	}
	if (idle) {
		count(COUNTER_wake_idle);
		insert_local(p, cpu, SCX_DSQ_LOCAL, 0);
	}
	return cpu;
}

void BPF_STRUCT_OPS(tandem_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p), place = -1;
	bool woke = enq_flags & SCX_ENQ_WAKEUP, idle = false;
	u64 now_ns = scx_bpf_now(), vtime;
	u32 llc = llc_of(cpu);

	if (is_pinned(p)) {
		count(COUNTER_pinned);
		if (scx_bpf_test_and_clear_cpu_idle(cpu)) {
			insert_local(p, cpu, SCX_DSQ_LOCAL, enq_flags);
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
			return;
		}
		vtime = vtime_to_queue_pinned(p, cpu, llc, woke);
		scx_bpf_dsq_insert_vtime(p, CPU_QUEUE | cpu, slice_in(llc), vtime, enq_flags);
		note_pinned(cpu);
		if (woke)
			preempt(p, cpu, vtime, now_ns);
		return;
	}
	if (woke) {
		count(COUNTER_wake_queued);
	} else {
		count(COUNTER_expired);
		if (nr_preferences)
			place = place_preferring(p, cpu, now_ns, &idle);
		if (place < 0 && shares_core(cpu)) {
			place = spread(p, cpu);
			idle = place >= 0;
		}
		/* Its CPU would idle: better here than waiting for a place that has been taken meanwhile. */
		if (enq_flags & SCX_ENQ_LAST && !idle) {
			insert_local(p, cpu, SCX_DSQ_LOCAL, enq_flags);
			scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
			return;
		}
		if (place >= 0)
			llc = llc_of(place);
	}
	if (place < 0)
		llc = balanced_llc(p, llc, now_ns);
	vtime = vtime_to_queue(p, llc, woke);
	if (!woke && llc == llc_of(cpu))
		vtime |= WARM;
	insert_queued(p, llc, vtime, enq_flags);
	if (idle)
		scx_bpf_kick_cpu(place, SCX_KICK_IDLE);
	else
		wake_idle(p);
	if (woke && llc == llc_of(cpu))
		preempt(p, cpu, vtime, now_ns);
}

/* The running task goes on, by its own right now if it began by a directed yield. */
static __always_inline void own_time(struct cpu_state *state, u32 llc)
{
	state->by_yield = false;
	advance_clock(llc, state->vtime);
}

void BPF_STRUCT_OPS(tandem_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_state *state = cpu_state(cpu);
	u64 now_ns = scx_bpf_now();
	bool runs_on = prev && (prev->scx.flags & SCX_TASK_QUEUED), bounded;
	u32 llc = llc_of(cpu);

	if (!state)
		return;
	if (run_yield_target(state, cpu))
		return;
	if (runs_on) {
		if (nr_preferences)
			note_time(prev, cpu, state, now_ns);
		settle(state, now_ns);
		/* As one that waits: where the clock has run ahead, who has a CPU would keep it until it had caught up. */
		if (!is_pinned(prev))
			state->vtime = in_bounds(state->vtime, clock_of(llc), lag_max_ns());
		if (nr_preferences && should_return(prev, cpu, now_ns))
			runs_on = false;
		else if (shares_core(cpu) && should_spread(prev, cpu))
			runs_on = false;
	}
	/* Who goes on unless somebody deserves the CPU more. */
	bounded = runs_on && !state->yielded;
	if (state->pinned_wait && take_pinned(state, cpu, llc, state->vtime, bounded))
		return;
	if (take_own(cpu, llc, state->vtime, bounded))
		return;
	if (runs_on) {
		own_time(state, llc);
		count(COUNTER_kept);
		count_decision(state, now_ns);
		state->yielded = false;
		scx_bpf_task_set_slice(prev, slice_in(llc));
	} else {
		steal(cpu);
	}
}

void BPF_STRUCT_OPS(tandem_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_state *state = cpu_state(cpu);
	u64 now_ns = scx_bpf_now();
	u32 llc = llc_of(cpu);

	if (!state)
		return;
	state->vtime = vtime_in(p->scx.dsq_vtime, llc);
	state->weight = weight_of(p, now_ns);
	state->since_ns = now_ns;
	state->charged_ns = now_ns;
	state->running = true;
	state->stayed = false;
	state->yielded = false;
	state->by_yield = state->yield_to;
	state->yield_to = 0;
	if (!state->by_yield)
		advance_clock(llc, state->vtime);
	count_decision(state, now_ns);
	if (nr_preferences)
		note_place(p, cpu, now_ns);
}

void BPF_STRUCT_OPS(tandem_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_state *state = cpu_state(cpu);
	u64 now_ns = scx_bpf_now();

	if (!state)
		return;
	if (nr_preferences)
		note_time(p, cpu, state, now_ns);
	settle(state, now_ns);
	state->running = false;
	scx_bpf_task_set_dsq_vtime(p, (state->vtime & ~TAGS) | llc_of(cpu));
}

void BPF_STRUCT_OPS(tandem_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_state *state = cpu_state(cpu);

	if (!state)
		return;
	if (settings.guest)
		note_steal(state, scx_bpf_now());
	/* It did not sleep after all: the task that stayed waited long enough. */
	if (state->stayed) {
		scx_bpf_task_set_slice(p, 0);
		if (scx_bpf_dsq_nr_queued(llc_of(cpu)))
			wake_idle(p);
	}
}

bool BPF_STRUCT_OPS(tandem_yield, struct task_struct *from, struct task_struct *to)
{
	struct cpu_state *state;

	if (to)
		return yield_to(from, to, scx_bpf_now());
	count(COUNTER_yields);
	state = cpu_state(scx_bpf_task_cpu(from));
	if (state)
		state->yielded = true;
	scx_bpf_task_set_slice(from, 0);
	return true;
}

s32 BPF_STRUCT_OPS(tandem_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_preference *preference;

	if (args->fork)
		return inherit_preference(p);
	/* The scheduler is being loaded, perhaps again. */
	preference = bpf_task_storage_get(&preferences_of_tasks, p, NULL, 0);
	if (preference) {
		preference->away_since_ns = 0;
		count_user(preference->own_set, false, 1);
		if (preference->latency_critical)
			__sync_fetch_and_add(&nr_preferences, 1);
	}
	return 0;
}

void BPF_STRUCT_OPS(tandem_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task_preference *preference;

	/* All other tasks are about to be initialised again, if the scheduler is only loaded anew. */
	if (!nr_preferences || (!args->cancelled && !(p->flags & PF_EXITING)))
		return;
	preference = bpf_task_storage_get(&preferences_of_tasks, p, NULL, 0);
	if (preference) {
		count_user(preference->own_set, false, -1);
		mark(preference, false);
	}
}

s32 BPF_STRUCT_OPS_SLEEPABLE(tandem_cgroup_init, struct cgroup *cgroup, struct scx_cgroup_init_args *args)
{
	struct cgroup_state *state;

	if (cgroup->level == 0)
		return 0;
	state = bpf_cgrp_storage_get(&cgroup_states, cgroup, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!state)
		return -ENOMEM;
	state->weight = args->weight;
	__sync_fetch_and_add(&nr_cgroups, 1);
	return 0;
}

void BPF_STRUCT_OPS(tandem_cgroup_exit, struct cgroup *cgroup)
{
	forget_cgroup(cgroup);
	if (cgroup->level > 0)
		__sync_fetch_and_sub(&nr_cgroups, 1);
}

void BPF_STRUCT_OPS(tandem_cgroup_set_weight, struct cgroup *cgroup, u32 weight)
{
	struct cgroup_state *state = bpf_cgrp_storage_get(&cgroup_states, cgroup, 0, 0);

	if (!state)
		return;
	state->weight = weight;
	if (state->nr_runnable > 0) {
		struct cgroup_state *parent = state_of_ancestor(cgroup, cgroup->level - 1);

		if (parent)
			__sync_fetch_and_add(&parent->sum, (s64)weight - state->counted);
		state->counted = weight;
	}
}

void BPF_STRUCT_OPS(tandem_runnable, struct task_struct *p, u64 enq_flags)
{
	change_runnable(p, 1);
}

void BPF_STRUCT_OPS(tandem_quiescent, struct task_struct *p, u64 deq_flags)
{
	change_runnable(p, -1);
}

static int init_llc(u32 llc)
{
	struct llc_cpus *cpus = bpf_map_lookup_elem(&llc_cpus, &llc);
	const volatile struct llc_place *place = MEMBER_VPTR(llc_places, [llc]);
	const volatile struct node_place *node = place ? node_place(place->node) : NULL;
	struct bpf_cpumask *mask;
	u32 cpu;

	if (!cpus || !node)
		return -ENOENT;
	mask = bpf_cpumask_create();
	if (!mask)
		return -ENOMEM;
	bpf_for(cpu, 0, MAX_CPUS) {
		const volatile struct cpu_place *place = MEMBER_VPTR(cpu_places, [cpu]);

		if (place && place->online && place->llc == llc)
			bpf_cpumask_set_cpu(cpu, mask);
	}
	mask = bpf_kptr_xchg(&cpus->mask, mask);
	if (mask)
		bpf_cpumask_release(mask);
	return scx_bpf_create_dsq(llc, node->id);
}

static int init_cpu(u32 cpu)
{
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_percpu_elem(&scratch_masks, &zero, cpu);
	int error = make_preempt_timer(cpu);

	if (!error)
		error = scx_bpf_create_dsq(CPU_QUEUE | cpu, -1);
	/* A CPU number in a gap has none. */
	if (!error && scratch) {
		error = new_mask(&scratch->first);
		if (!error)
			error = new_mask(&scratch->second);
	}
	return error;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(tandem_init)
{
	u32 cpu, llc;
	int error;

	bpf_for(llc, 0, MAX_LLCS) {
		if (llc >= settings.nr_llcs)
			break;
		error = init_llc(llc);
		if (error)
			return error;
	}
	bpf_for(cpu, 0, MAX_CPUS) {
		if (cpu >= settings.nr_cpus)
			break;
		error = init_cpu(cpu);
		if (error)
			return error;
	}
	init_preferences();
	return 0;
}

void BPF_STRUCT_OPS(tandem_exit, struct scx_exit_info *info)
{
	UEI_RECORD(exit_info, info);
}

SCX_OPS_DEFINE(tandem,
	       .select_cpu = (void *)tandem_select_cpu,
	       .enqueue = (void *)tandem_enqueue,
	       .dispatch = (void *)tandem_dispatch,
	       .running = (void *)tandem_running,
	       .stopping = (void *)tandem_stopping,
	       .runnable = (void *)tandem_runnable,
	       .quiescent = (void *)tandem_quiescent,
	       .tick = (void *)tandem_tick,
	       .yield = (void *)tandem_yield,
	       .init_task = (void *)tandem_init_task,
	       .exit_task = (void *)tandem_exit_task,
	       .cgroup_init = (void *)tandem_cgroup_init,
	       .cgroup_exit = (void *)tandem_cgroup_exit,
	       .cgroup_set_weight = (void *)tandem_cgroup_set_weight,
	       .init = (void *)tandem_init,
	       .exit = (void *)tandem_exit,
	       /* A task that should return to its set is enqueued even if nobody else wants its CPU. */
	       .flags = SCX_OPS_ENQ_LAST,
	       .name = "tandem");
