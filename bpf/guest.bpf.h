/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Guest mode: one flat domain over all vCPUs.
 *
 * Problem: the cores, caches and nodes that a guest sees are often wrong, or true only for a moment; a task
 * sent to an idle vCPU waits until the host runs that vCPU.
 *
 * Approach: no topology. A task that wakes stays with its waker if that is about to sleep (see
 * stays_with_waker()), returns to its previous vCPU if that idles, or goes to any idle vCPU, preferably one
 * with an idle core. An idle vCPU is only suitable if it really runs when woken: one whose steal time grew
 * less than `steal_memory_ns` ago is skipped while there is a better one, and no other task waits there. With
 * no better one it is taken nevertheless, since waiting is worse. A new task stays with its creator while the
 * host lets all vCPUs run: where it does not, locks are held by vCPUs that are stopped, and work that is
 * spread finishes sooner.
 *
 * Limits: steal time is what the kernel's tick accounted on that vCPU; an idle vCPU has no tick, so its steal
 * time is from when it was last busy.
 */
#ifndef TANDEM_GUEST_H
#define TANDEM_GUEST_H

enum {
	/* How many idle vCPUs are checked for a better one. */
	VCPUS_LOOKED_AT = 4,
	/*
	 * Less steal time between two ticks means nothing: waking a vCPU counts as steal, too, and takes up
	 * to 200 us from a deep sleep. Another vCPU that has the CPU keeps it for longer: 700 us with EEVDF's
	 * shortest base slice, 1 ms with Xen's rate limit.
	 */
	STEAL_MIN_NS = 300 * 1000,
};

extern const struct kernel_cpustat kernel_cpustat __ksym;

/* When the host last stole time from any vCPU. */
u64 last_stolen_ns;

/* Notes the time that the host has stolen from the CPU; called from its tick. */
static __always_inline void note_steal(struct cpu_state *state, u64 now_ns)
{
	const struct kernel_cpustat *stat = bpf_this_cpu_ptr(&kernel_cpustat);
	u64 steal_ns = stat->cpustat[CPUTIME_STEAL];

	if (steal_ns - state->steal_ns >= STEAL_MIN_NS)
		state->stolen_at_ns = last_stolen_ns = now_ns;
	state->steal_ns = steal_ns;
}

static __always_inline bool really_runs(s32 cpu, u64 now_ns)
{
	struct cpu_state *state = cpu_state(cpu);

	return !state || !state->stolen_at_ns || now_ns - state->stolen_at_ns >= settings.steal_memory_ns;
}

/* Whether the host lets all vCPUs run. */
static __always_inline bool all_really_run(u64 now_ns)
{
	return !last_stolen_ns || since(last_stolen_ns, now_ns) >= settings.steal_memory_ns;
}

/* An idle vCPU for a task that wakes; negative: none. */
static __always_inline s32 place_in_guest(struct task_struct *p, s32 prev_cpu, u64 now_ns)
{
	const struct cpumask *idle, *idle_cores;
	s32 cpu, found = -1, stolen = -1, i;
	bool lost = false;

	if (bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) && really_runs(prev_cpu, now_ns) &&
	    scx_bpf_test_and_clear_cpu_idle(prev_cpu))
		return prev_cpu;
	/* None is taken before it is known to be good: a skipped one would have to be woken for nothing. */
	idle = scx_bpf_get_idle_cpumask();
	idle_cores = scx_bpf_get_idle_smtmask();
	bpf_for(i, 0, VCPUS_LOOKED_AT) {
		if (found >= 0)
			break;
		cpu = bpf_cpumask_any_and_distribute(idle_cores, p->cpus_ptr);
		if ((u32)cpu >= settings.nr_cpus)
			cpu = bpf_cpumask_any_and_distribute(idle, p->cpus_ptr);
		if ((u32)cpu >= settings.nr_cpus)
			break;
		if (!really_runs(cpu, now_ns)) {
			count(COUNTER_guest_stolen);
			stolen = cpu;
		} else if (scx_bpf_test_and_clear_cpu_idle(cpu)) {
			found = cpu;
		} else {
			lost = true;
		}
	}
	scx_bpf_put_idle_cpumask(idle_cores);
	scx_bpf_put_idle_cpumask(idle);
	if (found >= 0 || (stolen >= 0 && scx_bpf_test_and_clear_cpu_idle(stolen)))
		return found >= 0 ? found : stolen;
	/* Other tasks have taken the checked ones: any is better than none. */
	return lost || stolen >= 0 ? scx_bpf_pick_idle_cpu(p->cpus_ptr, 0) : -1;
}

#endif
