/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Guest mode: one flat domain over all vCPUs.
 *
 * Problem: what a guest is told of cores, caches and nodes is often wrong, or true for a moment only; a task sent to
 * an idle vCPU waits until the host runs that vCPU.
 *
 * Approach: no topology. A task that wakes stays with its waker if that is about to sleep (see stays_with_waker()), or
 * goes back to its previous vCPU if that idles, or else to any idle vCPU. Idle vCPUs are taken only if they really run
 * when woken: one whose steal time grew less than `steal_memory_ns` ago is passed over while there is a better one,
 * and no one else waits there: with no better one it is taken after all, since waiting is worse.
 *
 * Limits: steal time is what the kernel's tick accounted on that vCPU; a vCPU that idles has no tick, so what is known
 * of it is what its last busy time saw.
 */
#ifndef TANDEM_GUEST_H
#define TANDEM_GUEST_H

enum {
	/* How many idle vCPUs are looked at for a better one. */
	VCPUS_LOOKED_AT = 4,
	/*
	 * Less steal time between two ticks tells nothing: waking a vCPU counts as steal, too, and takes up to 200 us from a deep
	 * sleep. Another vCPU that has the CPU keeps it for longer: 700 us with EEVDF's shortest base slice, 1 ms with Xen's rate
	 * limit.
	 */
	STEAL_MIN_NS = 300 * 1000,
};

extern const struct kernel_cpustat kernel_cpustat __ksym;

/* Notes what the host has stolen from the CPU; called from its tick. */
static __always_inline void note_steal(struct cpu_state *state, u64 now_ns)
{
	const struct kernel_cpustat *stat = bpf_this_cpu_ptr(&kernel_cpustat);
	u64 steal_ns = stat->cpustat[CPUTIME_STEAL];

	if (steal_ns - state->steal_ns >= STEAL_MIN_NS)
		state->stolen_at_ns = now_ns;
	state->steal_ns = steal_ns;
}

static __always_inline bool really_runs(s32 cpu, u64 now_ns)
{
	struct cpu_state *state = cpu_state(cpu);

	return !state || !state->stolen_at_ns || now_ns - state->stolen_at_ns >= settings.steal_memory_ns;
}

/* An idle vCPU for a task that wakes; negative: none. */
static __always_inline s32 place_in_guest(struct task_struct *p, s32 prev_cpu, u64 now_ns)
{
	s32 cpu, stolen = -1, i;

	if (bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) && really_runs(prev_cpu, now_ns) &&
	    scx_bpf_test_and_clear_cpu_idle(prev_cpu))
		return prev_cpu;
	bpf_for(i, 0, VCPUS_LOOKED_AT) {
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (cpu < 0)
			break;
		if (really_runs(cpu, now_ns)) {
			/* What was passed over is idle still: its kick lets it be found again. */
			if (stolen >= 0)
				scx_bpf_kick_cpu(stolen, SCX_KICK_IDLE);
			return cpu;
		}
		count(COUNTER_guest_stolen);
		if (stolen >= 0)
			scx_bpf_kick_cpu(stolen, SCX_KICK_IDLE);
		stolen = cpu;
	}
	return stolen;
}

#endif
