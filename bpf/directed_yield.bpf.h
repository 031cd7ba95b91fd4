/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Directed yield: a vCPU that spins lets another of its VM run, which may hold the lock.
 *
 * Problem: KVM calls yield_to() for each candidate in turn, and most of them run already; and when many vCPUs spin at
 * once, they yield to each other in circles.
 *
 * Approach: yield_to() is refused, so that KVM tries its next candidate, unless the target waits in a queue, may run on
 * the yielder's CPU, was not last on a CPU that is itself in a directed yield, and has not had more than its share. All
 * tests are reads; nothing is taken for a target that cannot be helped. Otherwise the target's number and queue are
 * noted, and the yielder's CPU, which schedules next, moves it out of that queue.
 *
 * The yielder keeps its virtual time and the queue its clock, so that it gets back what it gave: it was charged for
 * what it ran, and the target is charged for what it runs. The target has had more than its share if it is ahead of the
 * first who waits for the CPU by more than YIELD_AHEAD_SLICES slices. Otherwise two vCPUs that yield to each other would
 * keep a third off the CPU for ever, and be it the one that has the lock.
 *
 * Limits: a target that waits in the local queue of a CPU cannot be moved, and is next there anyway. At most
 * YIELD_SEARCH_MAX tasks of a queue are looked at.
 */
#ifndef TANDEM_DIRECTED_YIELD_H
#define TANDEM_DIRECTED_YIELD_H

enum {
	YIELD_SEARCH_MAX = 256,
	/* Who has a lock often waits because its slice is over: it is ahead by that one, and needs another to go on. */
	YIELD_AHEAD_SLICES = 2,
};

/* Whether the first of a queue is behind `vtime`, told by the clock of the CPU's LLC, by more than `ahead`. */
static __always_inline bool is_too_far_ahead(u64 vtime, u64 ahead, u64 queue)
{
	u64 first;

	return first_vtime(queue, &first) && before(first + ahead, vtime);
}

/* Whether the target has had more than its share against those who wait for the yielder's CPU. */
static __always_inline bool had_its_share(const struct task_struct *to, s32 cpu, const struct cpu_state *state)
{
	u32 llc = llc_of(cpu);
	u64 vtime = vtime_in(to->scx.dsq_vtime, llc);
	/* vCPUs of a VM usually have one weight. */
	u64 ahead = charge(YIELD_AHEAD_SLICES * settings.slice_ns, state->weight);

	return is_too_far_ahead(vtime, ahead, llc) ||
	       (state->pinned_wait && is_too_far_ahead(vtime, ahead, CPU_QUEUE | cpu));
}

/* Whether the running task `from` yields its CPU to `to`. */
static __always_inline bool yield_to(struct task_struct *from, struct task_struct *to)
{
	s32 cpu = scx_bpf_task_cpu(from);
	struct cpu_state *state = cpu_state(cpu), *targets = cpu_state(scx_bpf_task_cpu(to));
	u64 queue;

	if (!settings.directed_yield || !state || !targets)
		return false;
	count(COUNTER_yield_to);
	if (scx_bpf_task_running(to)) {
		count(COUNTER_yield_to_running);
		return false;
	}
	if (targets != state && targets->yield_to) {
		count(COUNTER_yield_to_busy);
		return false;
	}
	if (!bpf_cpumask_test_cpu(cpu, to->cpus_ptr)) {
		count(COUNTER_yield_to_forbidden);
		return false;
	}
	queue = BPF_CORE_READ(to, scx.dsq, id);
	if (!(to->scx.flags & SCX_TASK_QUEUED) || !to->scx.dsq || queue & SCX_DSQ_FLAG_BUILTIN) {
		count(COUNTER_yield_to_gone);
		return false;
	}
	if (had_its_share(to, cpu, state)) {
		count(COUNTER_yield_to_unfair);
		return false;
	}
	state->yield_to = to->pid;
	state->yield_queue = queue;
	scx_bpf_task_set_slice(from, 0);
	return true;
}

/* Moves the target of the CPU's directed yield here, if there is one; false: there is none, or it has gone. */
static bool run_yield_target(struct cpu_state *state)
{
	s32 target = state->yield_to;
	struct task_struct *p;
	bool moved = false;
	u32 looked = 0;

	if (!target)
		return false;
	bpf_for_each(scx_dsq, p, state->yield_queue, 0) {
		if (p->pid == target) {
			moved = scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL, 0);
			break;
		}
		if (++looked >= YIELD_SEARCH_MAX)
			break;
	}
	count(moved ? COUNTER_yield_to_honoured : COUNTER_yield_to_gone);
	/* Otherwise this CPU is in a directed yield until the target runs. */
	if (!moved)
		state->yield_to = 0;
	return moved;
}

#endif
