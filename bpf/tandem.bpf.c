/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tandem: a scheduler for hosts of virtual machines and for their guests, for Linux's sched_ext (6.12 and
 * later).
 *
 * How it decides
 * 1. A task that wakes stays with a waker that is about to sleep, or takes an idle CPU: one of those that it
 *    prefers, if it has a preference (placement.bpf.h); in a guest, a vCPU that really runs (guest.bpf.h).
 * 2. With no idle CPU it waits in a queue (queues.bpf.h), in the order of virtual time (fairness.bpf.h,
 *    cgroup_weights.bpf.h), and preempts a task that has had more (preempt.bpf.h), at once or when rate
 *    control allows it (rate_control.bpf.h).
 * 3. A CPU takes the target of a directed yield first (directed_yield.bpf.h), then the earliest of the tasks
 *    that wait for it, of any affinity; or a task that waits for other CPUs, if that is owed more, or if the
 *    CPU would idle (balance.bpf.h).
 * 4. A task whose slice ends continues while no other deserves the CPU more, and otherwise waits for the CPU
 *    where its caches are; unless it shares a core while another one idles, or is away from its set, which
 *    has room.
 *
 * Each mechanism has its switch in `settings` (settings.h), which is read-only when the object is loaded:
 * code that is switched off is removed. Preferences are set while it runs (requests.h). Counters record what
 * happened (counters.h).
 *
 * One object serves all kernels: scx's headers handle their differences. Of the kernel's own enums the values
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
#include "queues.bpf.h"
#include "rate_control.bpf.h"
#include "balance.bpf.h"
#include "preempt.bpf.h"
#include "limits.bpf.h"
#include "directed_yield.bpf.h"

char _license[] SEC("license") = "GPL";

UEI_DEFINE(exit_info);

/*
 * Whether a task that is woken synchronously stays on this CPU: its waker has run so briefly, and usually
 * sleeps so soon afterwards, that it is expected to do so again, or exits and wakes its parent, and no other
 * task has stayed already. The two then share a warm cache, and no other CPU has to be woken. In a guest,
 * where waking another vCPU costs most, the same holds for a new task, if no task waits for this CPU: a task
 * that forks usually waits for the child. But on a vCPU that the host stops at times both would wait for
 * that, beside vCPUs that idle.
 */
static __always_inline bool stays_with_waker(struct task_struct *p, s32 prev_cpu, s32 this_cpu, u64 wake_flags)
{
	bool forked = settings.guest && (wake_flags & SCX_WAKE_FORK);
	struct task_struct *waker = bpf_get_current_task_btf();
	struct cpu_state *state = cpu_state(this_cpu);
	struct preference_set *set;
	struct bpf_cpumask *mask;
	u64 now_ns;

	if (!state || !(forked || (wake_flags & SCX_WAKE_SYNC)))
		return false;
	/* Where no tick comes, nothing would notice that the waker continues. */
	if (!state->running || state->stayed || state->tickless)
		return false;
	now_ns = scx_bpf_now();
	if (settings.guest && !(forked ? all_really_run(now_ns) : really_runs(this_cpu, now_ns)))
		return false;
	if (forked && somebody_waits(this_cpu))
		return false;
	if (!(waker->flags & PF_EXITING)) {
		struct task_state *by = task_state(waker);

		if (!by || (!forked && now_ns - state->since_ns >= settings.sync_run_max_ns))
			return false;
		by->woke_ns = now_ns;
		if (by->lingers_ns > settings.sync_run_max_ns)
			return false;
	}
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

/* Makes a task wait in the queue of its LLC, for whichever CPU is free first. */
static __always_inline void insert_llc(struct task_struct *p, struct task_state *task, s32 cpu, u64 vtime, u64 enq_flags, u64 now_ns)
{
	note_waits(p, task, task->llc, now_ns);
	scx_bpf_dsq_insert_vtime(p, task->llc, slice_on(cpu, task->weight), vtime, enq_flags);
	end_tickless(cpu, true);
}

/* Makes a task wait in one of the queues of a CPU. */
static __always_inline void insert_cpu(struct task_struct *p, struct task_state *task, s32 cpu, u64 queue, u64 vtime, u64 enq_flags,
				       u64 now_ns)
{
	note_waits(p, task, queue | (u32)cpu, now_ns);
	scx_bpf_dsq_insert_vtime(p, queue | cpu, slice_on(cpu, task->weight), vtime - (queue == BOUND_QUEUE ? drift_of(queue | cpu, now_ns) : 0), enq_flags);
	end_tickless(cpu, queue == WARM_QUEUE);
}

s32 BPF_STRUCT_OPS(tandem_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 this_cpu = bpf_get_smp_processor_id(), cpu = -1;
	struct task_state *task = task_state(p);
	bool idle = false;

	if (is_throttled(p))
		return prev_cpu;
	if (task && stays_with_waker(p, prev_cpu, this_cpu, wake_flags)) {
		count(COUNTER_wake_stay);
		/*
		 * A new task is available to any CPU that has nothing to do; this one's tick calls one, if
		 * need be.
		 */
		if (wake_flags & SCX_WAKE_FORK) {
			u64 now_ns = scx_bpf_now();

			insert_cpu(p, task, this_cpu, WARM_QUEUE, place(p, task, this_cpu, PLACE_WOKE, now_ns), 0, now_ns);
		} else if (!somebody_waits(this_cpu)) {
			/*
			 * Straight to this CPU only if no task waits for it, which would otherwise be
			 * overtaken for ever.
			 */
			insert_local(p, task, this_cpu, SCX_DSQ_LOCAL, 0);
		}
		return this_cpu;
	}
	if (nr_preferences)
		cpu = place_preferring(p, prev_cpu, scx_bpf_now(), &idle);
	if (cpu < 0 && settings.guest) {
		cpu = place_in_guest(p, prev_cpu, scx_bpf_now());
		idle = cpu >= 0;
		if (!idle)
			cpu = prev_cpu;
	} else if (cpu < 0) {
		/* Not as a synchronous wake-up: the kernel would consider the waker's CPU idle. */
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags & ~SCX_WAKE_SYNC, &idle);
	}
	if (idle && task) {
		count(COUNTER_wake_idle);
		insert_local(p, task, cpu, SCX_DSQ_LOCAL, enq_immed());
	}
	return cpu;
}

/*
 * Whether a task prefers some CPUs of an LLC to others: it waits for one of them, and not for whichever is
 * free first.
 */
static __always_inline bool prefers_part(struct task_struct *p)
{
	struct preference_set *set = preferred_set(p, preference_of_task(p));

	return set && set->partial;
}

/*
 * Whether a task is one of the kernel's own for one CPU, which works for all tasks there, and has not had
 * more than others.
 */
static __always_inline bool serves_cpu(struct task_struct *p, struct task_state *task, s32 cpu)
{
	return p->flags & PF_KTHREAD && is_pinned(p) &&
	       before(p->scx.dsq_vtime, clock_of(llc_of(cpu)) + charge(settings.slice_ns, task->weight));
}

/* Whether a task woke, or is new. */
static __always_inline bool is_here_anew(const struct task_state *task, u64 enq_flags)
{
	return (enq_flags & SCX_ENQ_WAKEUP) || !task->faded_ns;
}

/* Makes a task wait that may not use all CPUs of its LLC. */
static __always_inline void enqueue_bound(struct task_struct *p, struct task_state *task, s32 cpu, u64 enq_flags, u64 now_ns)
{
	bool woke = is_here_anew(task, enq_flags);
	s32 best = is_pinned(p) ? cpu : best_for_bound(p, task, cpu, woke, now_ns);
	struct cpu_state *state = cpu_state(best);
	u64 vtime = place(p, task, best, PLACE_BOUND | (woke ? PLACE_WOKE : 0), now_ns);

	count(is_pinned(p) ? COUNTER_pinned : COUNTER_bound);
	if (state)
		note_heavy(state, task->weight, now_ns);
	task->tick_looks = woke || best != cpu;
	insert_cpu(p, task, best, BOUND_QUEUE, vtime, enq_flags, now_ns);
	if (woke)
		preempt(p, best, vtime, false, now_ns);
}

/* Some CPU of an LLC that a task may use, or any if it may use none there. */
static __always_inline s32 cpu_in(struct task_struct *p, u32 llc)
{
	struct bpf_cpumask *cpus = cpus_of_llc(llc);
	s32 cpu = cpus ? bpf_cpumask_any_and_distribute(cast_mask(cpus), p->cpus_ptr) : -1;

	return cpu >= 0 && (u32)cpu < settings.nr_cpus ? cpu : (s32)bpf_cpumask_any_distribute(p->cpus_ptr);
}

/*
 * An idle CPU for a task that did not wake, which is busy from now on: where it prefers to be, or another
 * one.
 */
static s32 idle_for_expired(struct task_struct *p, s32 cpu, s32 *place, u64 now_ns)
{
	struct scratch *scratches = scratch();
	struct bpf_cpumask *room = scratches ? scratches->second : NULL;
	bool idle = false;

	if (nr_preferences) {
		*place = place_preferring(p, cpu, now_ns, &idle);
		if (idle)
			return *place;
	}
	if (!room)
		return -1;
	/* Its CPU goes to another task: an idle core is best, and any idle CPU better than none. */
	return take_idle(p->cpus_ptr, cpu, room, false);
}

void BPF_STRUCT_OPS(tandem_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 cpu = scx_bpf_task_cpu(p), place_at = -1, idle_cpu;
	struct task_state *task = task_state(p);
	struct cpu_state *state = cpu_state(cpu);
	u64 now_ns = scx_bpf_now(), vtime;
	u32 llc = llc_of(cpu);
	bool woke;

	if (!task || !state) {
		/* There was no memory for its state: it waits in a queue that needs none. */
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, settings.slice_min_ns, enq_flags);
		end_tickless(cpu, true);
		return;
	}
	woke = is_here_anew(task, enq_flags);
	/* It may have been on its way to a CPU that a higher class took. */
	note_taken(task, now_ns);
	unpark(p, task);
	if (park(p, task, cpu, enq_flags))
		return;
	if (state->wants_tickless) {
		state->wants_tickless = false;
		if ((enq_flags & SCX_ENQ_LAST) && bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
			insert_local(p, task, cpu, SCX_DSQ_LOCAL, enq_flags);
			kick_cpu(cpu, SCX_KICK_IDLE);
			return;
		}
	}
	if (is_pinned(p)) {
		if (scx_bpf_test_and_clear_cpu_idle(cpu)) {
			insert_local(p, task, cpu, SCX_DSQ_LOCAL, enq_flags | enq_immed());
			kick_cpu(cpu, SCX_KICK_IDLE);
		} else if (woke && serves_cpu(p, task, cpu)) {
			count(COUNTER_pinned);
			insert_local(p, task, cpu, SCX_DSQ_LOCAL, enq_flags | SCX_ENQ_HEAD | SCX_ENQ_PREEMPT);
		} else {
			place_at = cpu;
			goto bound;
		}
		return;
	}
	if (woke) {
		count(COUNTER_wake_queued);
	} else {
		count(COUNTER_expired);
		if (task->swap_with) {
			idle_cpu = task->swap_with - 1;
			task->swap_with = 0;
			if ((enq_flags & SCX_ENQ_LAST) && bpf_cpumask_test_cpu(idle_cpu, p->cpus_ptr)) {
				count(COUNTER_soft_swapped);
				insert_local(p, task, idle_cpu, SCX_DSQ_LOCAL_ON | idle_cpu, enq_flags | SCX_ENQ_HEAD | SCX_ENQ_PREEMPT);
				return;
			}
		}
		idle_cpu = idle_for_expired(p, cpu, &place_at, now_ns);
		if (idle_cpu >= 0) {
			insert_local(p, task, idle_cpu, SCX_DSQ_LOCAL_ON | idle_cpu, enq_flags | enq_immed());
			kick_cpu(idle_cpu, SCX_KICK_IDLE);
			return;
		}
		/*
		 * Its CPU would idle: running here is better than waiting for a place that has been taken
		 * meanwhile.
		 */
		if (enq_flags & SCX_ENQ_LAST) {
			insert_local(p, task, cpu, SCX_DSQ_LOCAL, enq_flags);
			kick_cpu(cpu, SCX_KICK_IDLE);
			return;
		}
		/* Home is where it waits, unless tasks there get less. */
		if (place_at >= 0 && is_faster(llc, llc_of(place_at), 2 * settings.migration_margin_ns, task->weight, now_ns))
			place_at = -1;
		if (place_at >= 0)
			llc = llc_of(place_at);
	}
	if (place_at < 0)
		place_at = cpu;
	if (is_bound(p, llc))
		goto bound;
	llc = balanced_llc(p, place_at, now_ns);
	if (llc != llc_of(place_at))
		place_at = first_cpu_of(llc);
	if (is_bound(p, llc)) {
		place_at = cpu_in(p, llc);
		goto bound;
	}
	vtime = place(p, task, place_at, woke ? PLACE_WOKE : 0, now_ns);
	if ((llc != llc_of(cpu) || (woke && !waits_for_own(p, task, place_at, now_ns))) && !prefers_part(p)) {
		task->tick_looks = true;
		insert_llc(p, task, place_at, vtime, enq_flags, now_ns);
		preempt(p, place_at, vtime, true, now_ns);
	} else {
		s32 other = woke ? -1 : runs_later(place_at, vtime, now_ns);

		if (other >= 0)
			place_at = other;
		task->tick_looks = woke;
		insert_cpu(p, task, place_at, WARM_QUEUE, vtime, enq_flags, now_ns);
		if (woke || other >= 0)
			preempt(p, place_at, vtime, false, now_ns);
	}
	return;
bound:
	enqueue_bound(p, task, place_at, enq_flags, now_ns);
}

/*
 * Whether a running task, which no other wants to stop, leaves its CPU to one that runs where it prefers to
 * be.
 */
static __always_inline bool leaves_for_swap(struct task_struct *p, const struct cpu_state *state, s32 cpu, u64 now_ns)
{
	struct task_state *task = task_state(p);
	s32 other = task ? find_swap(p, state, cpu, now_ns) : -1;

	if (other < 0)
		return false;
	task->swap_with = other + 1;
	return true;
}

void BPF_STRUCT_OPS(tandem_dispatch, s32 cpu, struct task_struct *prev)
{
	struct cpu_state *state = cpu_state(cpu);
	u64 now_ns = scx_bpf_now();
	bool runs_on = prev && (prev->scx.flags & SCX_TASK_QUEUED);
	struct task_state *task;
	u32 llc = llc_of(cpu);

	if (!state)
		return;
	state->looked = 0;
	refresh_queues(state, cpu, now_ns);
	if (run_yield_target(state, cpu))
		return;
	if (runs_on) {
		if (nr_preferences)
			note_time(prev, cpu, state, now_ns);
		settle(state, llc, now_ns);
		if (nr_preferences && should_return(prev, cpu, now_ns))
			runs_on = false;
		else if (shares_core(cpu) && should_spread(prev, cpu))
			runs_on = false;
		else if (makes_room(prev, state, cpu, now_ns) || has_to_stop(cpu))
			runs_on = false;
		else if (state->tickless)
			state->wants_tickless = true;
	}
	/*
	 * It continues unless another one deserves the CPU more; one that yields lets tasks go first that are
	 * ahead by a slice.
	 */
	if (take_next(state, cpu, runs_on && !state->tickless, now_ns))
		return;
	if (runs_on && is_alone(cpu))
		state->wants_tickless = true;
	if (runs_on && state->wants_tickless)
		return;
	if (runs_on && nr_preferences && leaves_for_swap(prev, state, cpu, now_ns))
		return;
	if (runs_on) {
		limit_lead(state, cpu, now_ns);
		forget_alone(state, llc, nr_in(BOUND_QUEUE | (u32)cpu) > 0, is_pinned(prev));
		if (state->bound)
			note_bound(state, cpu, state->vtime, now_ns);
		count(COUNTER_kept);
		count_decision(state, now_ns);
		state->yielded = false;
		state->turn_ns = now_ns;
		task = task_state(prev);
		state->given_ns = slice_on(cpu, state->weight);
		scx_bpf_task_set_slice(prev, state->given_ns);
		if (task)
			time_slice(task, state, cpu, now_ns);
	} else {
		steal(cpu);
	}
}

/* Reads a task's weight, and returns the one by which it is charged. */
static __always_inline u64 new_weight(struct task_struct *p, struct task_state *task, s32 cpu, u64 now_ns)
{
	struct cpu_state *state = cpu_state(cpu);

	task->weight = weight_of(p, now_ns);
	note_load(task, useful_weight(task, task->weight));
	return charged_weight(task->weight, llc_of(cpu), state ? state->stopped_weight : 0);
}

/*
 * Charges the running task, and reads its weight. Other tasks of its cgroup come and go while it keeps its
 * CPU, without notice: it is charged by the mean of then and now.
 */
static __always_inline void settle_weighed(struct task_struct *p, struct task_state *task, struct cpu_state *state, s32 cpu, u64 now_ns)
{
	u64 then = state->weight, now;

	if (!task) {
		settle(state, llc_of(cpu), now_ns);
		return;
	}
	now = new_weight(p, task, cpu, now_ns);
	state->weight = 2 * then * now / (then + now ?: 1) ?: 1;
	settle(state, llc_of(cpu), now_ns);
	state->weight = now;
}

void BPF_STRUCT_OPS(tandem_running, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_state *state = cpu_state(cpu);
	struct task_state *task = task_state(p);
	u64 now_ns = scx_bpf_now(), vtime;
	u32 llc = llc_of(cpu), from;

	if (!state)
		return;
	/* The kernel considers all CPUs idle when a scheduler is loaded. */
	if (!state->has_run) {
		state->has_run = true;
		scx_bpf_test_and_clear_cpu_idle(cpu);
	}
	state->weight = WEIGHT_USUAL;
	if (task)
		unpark(p, task);
	vtime = clock_of(llc);
	if (task) {
		task->ran_on = cpu;
		note_taken(task, now_ns);
		if (!task->faded_ns) {
			/* It ran when the scheduler was loaded: it has not been placed. */
			change_llc(task, llc);
			note_lag(task, vtime, now_ns);
		}
		from = task->llc;
		vtime = pay_for_created(task, vtime_in(task, vtime_after_wait(task, now_ns), llc, now_ns));
		/* It was taken from where it waited: see place(). */
		if (from != llc)
			vtime = within(vtime, clock_of(llc), clock_of(llc), task->weight);
		state->weight = new_weight(p, task, cpu, now_ns);
	}
	state->vtime = vtime;
	state->since_ns = state->turn_ns = now_ns;
	state->given_ns = p->scx.slice;
	state->charged_ns = now_ns;
	state->charged_base = base_of(llc, now_ns);
	state->running = true;
	state->bound = is_bound(p, llc);
	state->goes_on = task && task->goes_on;
	state->stayed = false;
	state->yielded = false;
	state->tickless = p->scx.slice == SCX_SLICE_INF;
	state->wants_tickless = false;
	if (state->tickless && !still_alone(state, cpu)) {
		state->tickless = false;
		state->given_ns = slice_on(cpu, state->weight);
		scx_bpf_task_set_slice(p, state->given_ns);
	}
	if (state->bound)
		note_heavy(state, state->weight, now_ns);
	state->yield_to = 0;
	count_decision(state, now_ns);
	if (task)
		time_slice(task, state, cpu, now_ns);
	if (limits_generation)
		begin_grant(p, task, cpu, now_ns);
	if (nr_preferences)
		note_place(p, cpu, state, now_ns);
}

void BPF_STRUCT_OPS(tandem_stopping, struct task_struct *p, bool runnable)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_state *state = cpu_state(cpu);
	struct task_state *task = task_state(p);
	u64 now_ns = scx_bpf_now(), turn_ns, given_ns, overrun_ns;
	u32 llc = llc_of(cpu);

	if (!state)
		return;
	if (nr_preferences)
		note_time(p, cpu, state, now_ns);
	/* For the short time of a task that wakes another one, its last weight is good enough. */
	if (now_ns - state->charged_ns < settings.slice_min_ns)
		settle(state, llc, now_ns);
	else
		settle_weighed(p, task, state, cpu, now_ns);
	if (limits_generation)
		return_grant(task, cpu, now_ns);
	turn_ns = now_ns - state->turn_ns;
	given_ns = state->given_ns < turn_ns ? state->given_ns : turn_ns;
	overrun_ns = turn_ns - given_ns;
	if (runnable && given_ns > settings.slice_min_ns) {
		/*
		 * Its turn may have begun when there were fewer or lighter tasks: it pays for one as long as
		 * it would get now.
		 */
		u64 slice_ns = longest_turn(cpu, state->weight, true);

		if (given_ns > slice_ns) {
			state->vtime -= charge(given_ns - slice_ns, state->weight);
			turn_ns -= given_ns - slice_ns;
		}
	}
	if (runnable && state->bound)
		note_bound(state, cpu, state->vtime - charge(turn_ns, state->weight), now_ns);
	else if (runnable)
		note_unbound(state, llc, now_ns);
	state->running = false;
	state->stopped_weight = runnable ? state->weight : 0;
	scx_bpf_task_set_dsq_vtime(p, state->vtime);
	if (!task)
		return;
	if (task->woke_ns) {
		task->lingers_ns = (3 * task->lingers_ns + (now_ns - task->woke_ns)) / 4;
		task->woke_ns = 0;
	}
	note_lag(task, state->vtime, now_ns);
	task->goes_on = runnable;
	task->turn_ns = turn_ns;
	task->overrun_ns = overrun_ns;
	task->had += charge(now_ns - state->since_ns, state->weight);
	if (!runnable && (p->flags & PF_EXITING))
		leave_to_creator(task);
}

void BPF_STRUCT_OPS(tandem_tick, struct task_struct *p)
{
	s32 cpu = scx_bpf_task_cpu(p);
	struct cpu_state *state = cpu_state(cpu);
	struct task_state *task = task_state(p);
	u64 now_ns = scx_bpf_now();
	u32 llc = llc_of(cpu);

	if (!state)
		return;
	if (settings.guest)
		note_steal(state, now_ns);
	if (nr_preferences)
		note_time(p, cpu, state, now_ns);
	settle_weighed(p, task, state, cpu, now_ns);
	note_unbound(state, llc, now_ns);
	renew_grant(p, task, cpu, now_ns);
	forget_alone(state, llc, nr_in(BOUND_QUEUE | (u32)cpu) > 0, is_pinned(p));
	if (movable_in(llc)) {
		end_tickless(state->look_at, true);
		end_tickless_elsewhere(llc, now_ns);
	}
	/* It did not sleep after all: the task that stayed waited long enough. */
	if (state->stayed) {
		scx_bpf_task_set_slice(p, 0);
		if (nr_in(WARM_QUEUE | (u32)cpu) > 0)
			wake_idle(cpu);
	} else if (outranked_at_tick(state, cpu, now_ns) || makes_room(p, state, cpu, now_ns)) {
		count(COUNTER_preempted);
		scx_bpf_task_set_slice(p, 0);
	} else if (owed_elsewhere(state, cpu, owed_before(state->vtime, cpu), now_ns) >= 0) {
		scx_bpf_task_set_slice(p, 0);
	}
}

/* A task that came while the CPU was about to idle has not noticed that; the CPU notices the task now. */
void BPF_STRUCT_OPS(tandem_update_idle, s32 cpu, bool idle)
{
	if (idle && (somebody_waits(cpu) || movable_in(llc_of(cpu))))
		kick_cpu(cpu, 0);
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

/* A task's virtual time up to now, whether it runs or waits. */
static __always_inline u64 vtime_now(struct task_struct *p, u64 now_ns)
{
	struct cpu_state *state = cpu_state(scx_bpf_task_cpu(p));

	return state && scx_bpf_task_running(p) ? running_vtime(state, base_of(llc_of(scx_bpf_task_cpu(p)), now_ns), now_ns) : vtime_of_waiting(p, now_ns);
}

/*
 * Which of two tasks of a core comes first, where its threads may not run those of different owners at the
 * same time.
 */
bool BPF_STRUCT_OPS(tandem_core_sched_before, struct task_struct *a, struct task_struct *b)
{
	u64 now_ns = scx_bpf_now();

	return before(vtime_now(a, now_ns), vtime_now(b, now_ns));
}

/* A task of a higher class takes the CPU: tasks that were sent there go where they can run. */
void BPF_STRUCT_OPS(tandem_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	struct cpu_state *state = cpu_state(cpu);

	if (state)
		state->releases = true;
	scx_bpf_reenqueue_local();
	if (state)
		state->releases = false;
}

s32 BPF_STRUCT_OPS(tandem_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task_struct *creator = bpf_get_current_task_btf();
	struct task_preference *preference;
	struct task_state *task, *by;

	/* Without memory for that, the task is scheduled nevertheless. */
	task = bpf_task_storage_get(&task_states, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (args->fork) {
		by = task_state(creator);
		if (task && by) {
			task->creator = creator->pid;
			task->creator_began_ns = creator->start_boottime;
			by->has_created = true;
		}
		return inherit_preference(p);
	}
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

	/* All other tasks are about to be initialised again, if the scheduler is only being reloaded. */
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
	make_bucket();
	if (bpf_core_field_exists(args->bw_quota_us))
		set_limit(state, args->bw_period_us, args->bw_quota_us, args->bw_burst_us);
	__sync_fetch_and_add(&nr_cgroups, 1);
	return 0;
}

void BPF_STRUCT_OPS(tandem_cgroup_exit, struct cgroup *cgroup)
{
	struct cgroup_state *state = bpf_cgrp_storage_get(&cgroup_states, cgroup, 0, 0);

	forget_cgroup(cgroup);
	if (state)
		forget_limit(state);
	if (cgroup->level > 0)
		__sync_fetch_and_sub(&nr_cgroups, 1);
}

void BPF_STRUCT_OPS(tandem_cgroup_set_bandwidth, struct cgroup *cgroup, u64 period_us, u64 quota_us, u64 burst_us)
{
	struct cgroup_state *state = bpf_cgrp_storage_get(&cgroup_states, cgroup, 0, 0);

	if (state)
		set_limit(state, period_us, quota_us, burst_us);
}

void BPF_STRUCT_OPS(tandem_cgroup_set_weight, struct cgroup *cgroup, u32 weight)
{
	struct cgroup_state *state = bpf_cgrp_storage_get(&cgroup_states, cgroup, 0, 0), *parent;

	if (!state)
		return;
	state->weight = weight;
	parent = state_of_ancestor(cgroup, cgroup->level - 1);
	if (parent)
		count_in_parent(state, parent);
}

void BPF_STRUCT_OPS(tandem_runnable, struct task_struct *p, u64 enq_flags)
{
	struct task_state *task = task_state(p);

	change_runnable(p, 1);
	if (!task)
		return;
	task->weight = weight_of(p, nr_cgroups ? scx_bpf_now() : 0);
	count_runnable(task, true);
}

void BPF_STRUCT_OPS(tandem_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct task_state *task = task_state(p);

	if (task)
		unpark(p, task);
	change_runnable(p, -1);
	if (!task)
		return;
	if (task->waits)
		note_taken(task, scx_bpf_now());
	count_runnable(task, false);
}

static int init_llc(u32 llc)
{
	struct llc_cpus *cpus = bpf_map_lookup_elem(&llc_cpus, &llc);
	const volatile struct llc_place *place = MEMBER_VPTR(llc_places, [llc]);
	const volatile struct node_place *node = place ? node_place(place->node) : NULL;
	struct llc_state *state = llc_state(llc);
	struct bpf_cpumask *mask;
	u32 cpu;

	if (!cpus || !node)
		return -ENOENT;
	mask = bpf_cpumask_create();
	if (!mask)
		return -ENOMEM;
	bpf_for(cpu, 0, MAX_CPUS) {
		const volatile struct cpu_place *place = MEMBER_VPTR(cpu_places, [cpu]);

		if (place && place->online && !place->isolated && place->llc == llc)
			bpf_cpumask_set_cpu(cpu, mask);
	}
	mask = bpf_kptr_xchg(&cpus->mask, mask);
	if (mask)
		bpf_cpumask_release(mask);
	if (state)
		state->clock = state->based_clock = state->base = CLOCK_BEGINS;
	return scx_bpf_create_dsq(llc, node->id);
}

static int init_cpu(u32 cpu)
{
	u32 zero = 0;
	struct scratch *scratch = bpf_map_lookup_percpu_elem(&scratch_masks, &zero, cpu);
	struct cpu_state *state = cpu_state(cpu);
	int error = make_preempt_timer(cpu);

	if (!error)
		error = make_grant_timer(cpu);
	if (state) {
		state->look_at = state->push_at = next_in_llc(cpu);
		state->pull_at = cpu;
	}

	if (!error)
		error = scx_bpf_create_dsq(WARM_QUEUE | cpu, -1);
	if (!error)
		error = scx_bpf_create_dsq(BOUND_QUEUE | cpu, -1);
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
		const volatile struct cpu_place *place = MEMBER_VPTR(cpu_places, [cpu]);

		if (cpu >= settings.nr_cpus)
			break;
		if (place && place->tickless)
			some_tickless = true;
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
	       .update_idle = (void *)tandem_update_idle,
	       .core_sched_before = (void *)tandem_core_sched_before,
	       .cpu_release = (void *)tandem_cpu_release,
	       .yield = (void *)tandem_yield,
	       .init_task = (void *)tandem_init_task,
	       .exit_task = (void *)tandem_exit_task,
	       .cgroup_init = (void *)tandem_cgroup_init,
	       .cgroup_exit = (void *)tandem_cgroup_exit,
	       .cgroup_set_weight = (void *)tandem_cgroup_set_weight,
	       .cgroup_set_bandwidth = (void *)tandem_cgroup_set_bandwidth,
	       .init = (void *)tandem_init,
	       .exit = (void *)tandem_exit,
	       /* A task that should return to its set is enqueued even if no other task wants its CPU. */
	       .flags = SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING | SCX_OPS_KEEP_BUILTIN_IDLE,
	       .name = "tandem");
