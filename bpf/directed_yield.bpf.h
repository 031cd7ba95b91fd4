/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Directed yield: a vCPU that spins lets another vCPU of its VM run, which may hold the lock.
 *
 * Problem: KVM calls yield_to() for each candidate in turn, and most of them run already; and when many vCPUs
 * spin at once, they yield to each other in circles.
 *
 * Approach: the target runs next on the CPU where it ran last, and preempts the task there. Its caches are
 * there, and the yielder continues where its own are. vCPUs that wait for each other thus come to run at the
 * same time, and few of their spins last long enough to be noticed. A VM with more threads than a quarter of
 * the CPUs is too large for that: it and others only push each other away. Its targets get the yielder's CPU
 * in exchange, which moves them.
 *
 * yield_to() is refused, so that KVM tries its next candidate, unless the target waits in a queue, its CPU is
 * not itself in a directed yield, and it has not had more than its share. All tests are reads; no lock is
 * taken for a target that cannot be helped. Otherwise the target's number and queue are noted for the CPU,
 * which moves it out of that queue. A target that waits for another LLC than that of its last CPU, since the
 * queues were balanced, gets the yielder's CPU as well.
 *
 * A task that loses a CPU keeps its virtual time, so that it gets back what it gave: it was charged for what
 * it ran, and the target is charged for what it runs. The target has had more than its share if it is ahead
 * of the preempted task, or of the first task that waits for that CPU, by more than YIELD_AHEAD_SLICES
 * slices. Otherwise two vCPUs that yield to each other would keep a third off the CPU for ever, even one that
 * holds the lock.
 *
 * Limits: a target that waits in the local queue of a CPU cannot be moved, and is next there anyway. At most
 * SEARCH_ALL_MAX tasks of a queue are examined.
 */
#ifndef TANDEM_DIRECTED_YIELD_H
#define TANDEM_DIRECTED_YIELD_H

enum {
	/*
	 * A task that holds a lock often waits because its slice is over: it is ahead by that one, and needs
	 * another to continue.
	 */
	YIELD_AHEAD_SLICES = 2,
	/*
	 * The vCPUs of a VM with more threads than this part of the CPUs do not run at once: other VMs push
	 * back.
	 */
	VM_CPU_SHARE = 4,
};

/*
 * Whether the first task of a queue is behind `vtime`, by the clock of the CPU's LLC, by more than `ahead`.
 */
static __always_inline bool is_too_far_ahead(u64 vtime, u64 ahead, u64 queue, u64 now_ns)
{
	u64 first;

	return first_vtime(queue, now_ns, &first) && before(first + ahead, vtime);
}

/*
 * Whether the target has had more than its share against the tasks that wait for a CPU, and the one that runs
 * there unless that is the yielder, whose CPU is `own`. vCPUs of a VM usually have the same weight.
 */
static __always_inline bool had_its_share(struct task_struct *to, s32 cpu, const struct cpu_state *state,
					  const struct cpu_state *own, u64 now_ns)
{
	u32 llc = llc_of(cpu);
	struct task_state *task = task_state(to);
	u64 vtime = vtime_of_waiting(to, now_ns) + (task ? from_to(task, llc, now_ns) : 0);
	u64 ahead = charge(YIELD_AHEAD_SLICES * settings.slice_ns, own->weight);

	return (state != own && state->running && before(running_vtime(state, base_of(llc, now_ns), now_ns) + ahead, vtime)) ||
	       is_too_far_ahead(vtime, ahead, llc, now_ns) || is_too_far_ahead(vtime, ahead, WARM_QUEUE | cpu, now_ns) ||
	       is_too_far_ahead(vtime, ahead, BOUND_QUEUE | cpu, now_ns);
}

/*
 * Whether all threads of the task's process may come to run at the same time although other VMs want CPUs,
 * too.
 */
static __always_inline bool may_run_at_once(struct task_struct *p)
{
	u32 nr_threads = BPF_CORE_READ(p, signal, nr_threads);

	return nr_threads * VM_CPU_SHARE <= settings.nr_online;
}

/* Whether the running task `from` yields to `to`. */
static __always_inline bool yield_to(struct task_struct *from, struct task_struct *to, u64 now_ns)
{
	s32 own_cpu = scx_bpf_task_cpu(from), cpu = scx_bpf_task_cpu(to);
	struct cpu_state *own = cpu_state(own_cpu), *state = cpu_state(cpu);
	bool may_move;
	u64 queue;

	if (!settings.directed_yield || !own || !state)
		return false;
	count(COUNTER_yield_to);
	if (scx_bpf_task_running(to)) {
		count(COUNTER_yield_to_running);
		return false;
	}
	if (state != own && state->yield_to) {
		count(COUNTER_yield_to_busy);
		return false;
	}
	queue = BPF_CORE_READ(to, scx.dsq, id);
	if (!(to->scx.flags & SCX_TASK_QUEUED) || !to->scx.dsq || queue & (SCX_DSQ_FLAG_BUILTIN | PARKED_QUEUE)) {
		count(COUNTER_yield_to_gone);
		return false;
	}
	may_move = bpf_cpumask_test_cpu(own_cpu, to->cpus_ptr);
	if ((queue != llc_of(cpu) && queue != (WARM_QUEUE | cpu) && queue != (BOUND_QUEUE | cpu)) || (may_move && !may_run_at_once(to))) {
		if (!may_move) {
			count(COUNTER_yield_to_forbidden);
			return false;
		}
		cpu = own_cpu;
		state = own;
	}
	if (had_its_share(to, cpu, state, own, now_ns)) {
		count(COUNTER_yield_to_unfair);
		return false;
	}
	state->yield_to = to->pid;
	state->yield_queue = queue;
	if (state == own)
		scx_bpf_task_set_slice(from, 0);
	else
		kick_cpu(cpu, SCX_KICK_PREEMPT);
	return true;
}

/* Moves the target of the CPU's directed yield here, if there is one; false: there is none, or it is gone. */
static bool run_yield_target(struct cpu_state *state, s32 cpu)
{
	s32 target = state->yield_to;
	struct task_struct *p;
	bool moved = false;

	if (!target || !may_move(cpu))
		return false;
	bpf_for_each(scx_dsq, p, state->yield_queue, 0) {
		if (p->pid == target) {
			moved = may_use(p, cpu) && move_here(BPF_FOR_EACH_ITER, p, cpu);
			break;
		}
		if (++state->looked >= SEARCH_ALL_MAX)
			break;
	}
	count(moved ? COUNTER_yield_to_honoured : COUNTER_yield_to_gone);
	/* Otherwise this CPU is in a directed yield until the target runs. */
	if (!moved)
		state->yield_to = 0;
	return moved;
}

#endif
