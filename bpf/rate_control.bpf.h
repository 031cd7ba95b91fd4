/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Rate control: a CPU that is interrupted too often lets the running task continue.
 *
 * Problem: a storm of wake-ups makes a CPU switch so often that it gets less done.
 *
 * Approach: two limits, which only delay preemption; fairness still decides which task runs next and for how
 * long.
 * - Each CPU counts its decisions in windows of `rate_window_ns`; after a window with `rate_threshold` of
 *   them or more, the next one is limited: until it ends, tasks that wake do not preempt on this CPU.
 * - A task that began to run less than `ratelimit_ns` ago is not preempted.
 *
 * When the time is over, a tick preempts the task for those that wait for any CPU, and a timer for one that
 * waits for this CPU. Latency-critical tasks (nice < 0, or marked so) are exempt if `latency_exempt`.
 */
#ifndef TANDEM_RATE_CONTROL_H
#define TANDEM_RATE_CONTROL_H

/* A CPU's timer for delayed preemptions. */
struct preempt_timer {
	struct bpf_timer timer;
	/* When the task that it would preempt began to run. */
	u64 since_ns;
	/* When it expires; 0: it is not set. */
	u64 expires_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct preempt_timer);
} preempt_timers SEC(".maps");

/*
 * For how long a CPU's running task is protected from preemption, ns: the less its weight against that of the
 * preempting task, the shorter.
 */
static __always_inline u64 protected_ns(const struct cpu_state *state, u64 by_weight, u64 now_ns)
{
	u64 until_ns = now_ns, ratelimit_ns = settings.ratelimit_ns;

	if (!settings.rate_control)
		return 0;
	if (state->weight < by_weight)
		ratelimit_ns = ratelimit_ns * state->weight / by_weight;
	until_ns = later(until_ns, state->since_ns + ratelimit_ns);
	if (state->limited)
		until_ns = later(until_ns, state->window_start_ns + settings.rate_window_ns);
	return until_ns - now_ns;
}

/*
 * If that task has left the CPU meanwhile, the next one runs by right, and is not stopped for tasks that came
 * before it.
 */
static int preempt_now(void *map, u32 *cpu, struct preempt_timer *timer)
{
	struct cpu_state *state = cpu_state(*cpu);
	u64 now_ns = scx_bpf_now(), wait_ns;

	timer->expires_ns = 0;
	if (!state || !state->running || state->since_ns != timer->since_ns || !somebody_waits(*cpu))
		return 0;
	/* A window may have become limited meanwhile. */
	wait_ns = protected_ns(state, 0, now_ns);
	if (wait_ns) {
		timer->expires_ns = now_ns + wait_ns;
		bpf_timer_start(&timer->timer, wait_ns, 0);
	} else {
		kick_cpu(*cpu, SCX_KICK_PREEMPT);
	}
	return 0;
}

static int make_preempt_timer(u32 cpu)
{
	struct preempt_timer *timer = bpf_map_lookup_elem(&preempt_timers, &cpu);
	int error;

	if (!timer)
		return -ENOENT;
	error = bpf_timer_init(&timer->timer, &preempt_timers, CLOCK_MONOTONIC);
	return error ? error : bpf_timer_set_callback(&timer->timer, preempt_now);
}

/* Counts a decision of the CPU, and closes its window when it is over. */
static __always_inline void count_decision(struct cpu_state *cpu, u64 now_ns)
{
	u64 age_ns;

	if (!settings.rate_control)
		return;
	age_ns = now_ns - cpu->window_start_ns;
	if (age_ns >= settings.rate_window_ns) {
		/* The window before this one is the last only if it ended inside this one. */
		cpu->limited = cpu->decisions >= settings.rate_threshold && age_ns < 2 * settings.rate_window_ns;
		if (cpu->limited)
			count(COUNTER_rate_windows);
		cpu->window_start_ns = now_ns;
		cpu->decisions = 0;
	}
	cpu->decisions++;
}

static __always_inline bool is_latency_critical(struct task_struct *p)
{
	struct task_preference *preference;

	if (!settings.latency_exempt)
		return false;
	if (p->scx.weight > 100)
		return true;
	preference = preference_of_task(p);
	return preference && preference->latency_critical;
}

/* Makes a CPU decide about its running task in `wait_ns`, or when that is no longer protected. */
static void preempt_later(u32 cpu, const struct cpu_state *state, u64 wait_ns, u64 now_ns)
{
	struct preempt_timer *timer = bpf_map_lookup_elem(&preempt_timers, &cpu);
	u64 at_ns = now_ns + wait_ns;

	/* Another task may have set it for the same one. */
	if (!timer || (timer->since_ns == state->since_ns && timer->expires_ns && !before(at_ns, timer->expires_ns)))
		return;
	timer->since_ns = state->since_ns;
	timer->expires_ns = at_ns;
	/*
	 * There may be no memory: see expire_in(). Then the next tick decides, or the next task that wakes.
	 */
	if (bpf_timer_start(&timer->timer, wait_ns, 0))
		timer->expires_ns = 0;
}

#endif
