/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Limits of cgroups: `cpu.max`.
 *
 * Problem: all tasks of a cgroup, and of those below it, get its quota of CPU time in each period and no
 * more, on however many CPUs they run. Slices end at ticks, which is too coarse: a quota may be shorter than
 * a tick, and 64 CPUs that run on until the next one use a quarter of a second.
 *
 * Approach: each limited cgroup has a bucket of time, into which its quota flows once per period;
 * `cpu.max.burst` of the rest stays. A CPU reserves a grant in the buckets of all limited cgroups above a
 * task before the task runs, and returns what the task has not used. So no more can be used than there is,
 * except by delays of timers, which are subtracted from the next quota: averages are exact. A grant is the
 * smaller the less there is and the more CPUs have one, GRANT_MIN_NS to GRANT_MAX_NS: little lies idle in the
 * grants of others, and yet few timers expire. A timer of the CPU ends the grant. Then the task continues
 * with another one, or stops.
 *
 * A task that finds a bucket empty is parked: it waits in a queue of that bucket, from which no CPU takes
 * tasks, and does not count for the load of its LLC, nor for its cgroup's weight. The bucket's timer releases
 * tasks when it is filled, when a grant comes back, and when the limit changes: the task that ran longest ago
 * first, each to the queue where it would have waited. Where so many are parked that a round would take
 * longer than ROUND_MAX_NS, each has a grant at a time. The time at which a task last ran does not change
 * while it is parked, and that of all others does: no task starves.
 *
 * Kernel threads are not limited. Nor are tasks that exit, which may hold what others wait for; the bucket
 * owes what they use.
 *
 * Limits: a cgroup that still has time may find all of it in the grants of other CPUs, and waits until one
 * comes back, or is used up: some GRANT_MAX_NS. MAX_LIMITS cgroups can be limited. Kernels before 6.17 do not
 * pass limits on, and none is enforced there. If a round of all its threads, GRANT_MIN_NS each, takes a
 * cgroup longer than the watchdog waits, the kernel unloads the scheduler: with 30 s, 3,000 threads that
 * share 1% of a CPU.
 */
#ifndef TANDEM_LIMITS_H
#define TANDEM_LIMITS_H

enum {
	/* One more than the number of cgroups with limits. */
	MAX_LIMITS = 1024,
	/* Tasks that are released at a time; for more, the timer expires again at once. */
	RELEASES_MAX = 32,
	/* A grant is this part of the available time per CPU that has one. */
	GRANT_PART = 4,
	/* Queues of parked tasks, by bucket. */
	PARKED_QUEUE = 0x40000,
};

/*
 * A timer and a switch cost some 5 us: 5% of the shortest. The longest is that of CFS
 * (`sched_cfs_bandwidth_slice_us`).
 */
#define GRANT_MIN_NS (100ULL * 1000)
#define GRANT_MAX_NS (5000ULL * 1000)
/*
 * If a round of all parked tasks took longer than this, one after the other in each period, they take turns
 * grant by grant.
 */
#define ROUND_MAX_NS (5000ULL * 1000 * 1000)
/* For each such time in the bucket, one task is released. */
#define RELEASE_NS (1000ULL * 1000)
/* Most periods for which an unused bucket is filled: a debt is less than that. */
#define PERIODS_MAX (1ULL << 16)
/* The kernel's value for no limit: RUNTIME_INF. */
#define NO_QUOTA (~0ULL)

/* The time of a limited cgroup. All CPUs write here. */
struct time_bucket {
	/* Releases tasks, and when it expires; 0: it is not set. */
	struct bpf_timer timer;
	u64 expires_ns;
	u64 quota_ns;
	u64 period_ns;
	u64 burst_ns;
	/* When it is filled next, and its content; negative: it owes. */
	u64 fill_ns;
	s64 left_ns;
	/* Tasks that are parked here, and CPUs that have a grant of it. */
	s32 nr_parked;
	s32 nr_grants;
	/* The bucket of the next limited cgroup above; 0: there is none. */
	u32 above;
	/* A cgroup owns it; and has a limit. */
	u32 used;
	bool limited;
};

/* By number, from 1. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_LIMITS);
	__type(key, u32);
	__type(value, struct time_bucket);
} buckets SEC(".maps");

/* A CPU's grant. Only the CPU itself writes here, with interrupts off or in its timer. */
struct grant {
	/* Ends the grant, and when it expires; 0: it is not set. */
	struct bpf_timer timer;
	u64 expires_ns;
	/* Time that is reserved and not used, and until when use is known. */
	s64 left_ns;
	u64 settled_ns;
	/*
	 * The generation of limits that it is for, and the buckets from which it comes; none: the running
	 * task is not limited.
	 */
	u32 generation;
	u32 nr_buckets;
	u32 buckets[MAX_DEPTH];
	/* The running task has got some time; has to stop; may not be stopped. */
	bool granted;
	bool over;
	bool exempt;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__type(value, struct grant);
} grants SEC(".maps");

/* Number of limits: with none, all of this costs one load. How often they have changed. Number of buckets. */
u32 nr_limits;
u32 limits_generation;
u32 nr_buckets = 1;

static __always_inline struct time_bucket *bucket_at(u32 number)
{
	return number ? bpf_map_lookup_elem(&buckets, &number) : NULL;
}

static __always_inline struct grant *grant_on(u32 cpu)
{
	return bpf_map_lookup_elem(&grants, &cpu);
}

/*
 * Makes a bucket's timer expire in `wait_ns` or before; false: it cannot be started. With interrupts off,
 * kernels since 7.0 leave the start to a later interrupt, and may lack memory to remember it. In a timer's
 * callback they need none.
 */
static bool expire_in(struct time_bucket *bucket, u64 wait_ns, u64 now_ns)
{
	/*
	 * Atomic, to be read after the parked task has been counted: the callback clears it before it reads
	 * that count.
	 */
	u64 at_ns = now_ns + wait_ns, expires_ns = __sync_fetch_and_add(&bucket->expires_ns, 0);

	if (expires_ns && before(now_ns, expires_ns)) {
		if (!before(at_ns, expires_ns))
			return true;
	} else if (expires_ns) {
		/*
		 * It is late, or expired before this was noted: one more costs little, and a later one would
		 * lose time.
		 */
		wait_ns = 0;
		at_ns = now_ns;
	}
	if (bpf_timer_start(&bucket->timer, wait_ns, 0))
		return false;
	bucket->expires_ns = at_ns;
	return true;
}

/*
 * Makes a bucket's timer expire now. The old expiry stays noted: a task that parks meanwhile is counted
 * before it reads that, and the callback clears it before it reads the count, and sets the timer anew. If the
 * timer cannot be started, it expires at the old time.
 */
static void expire_now(struct time_bucket *bucket)
{
	bpf_timer_start(&bucket->timer, 0, 0);
}

/* Fills a bucket, if it is time. */
static void fill(struct time_bucket *bucket, u64 now_ns)
{
	u64 at_ns = bucket->fill_ns, periods;
	s64 added, most;

	if (before(now_ns, at_ns) || !bucket->period_ns)
		return;
	periods = (now_ns - at_ns) / bucket->period_ns + 1;
	if (!__sync_bool_compare_and_swap(&bucket->fill_ns, at_ns, at_ns + periods * bucket->period_ns))
		return;
	if (periods > PERIODS_MAX)
		periods = PERIODS_MAX;
	added = periods * bucket->quota_ns;
	/* A late timer takes nothing away from the tasks that wait for it. */
	most = (bucket->nr_parked > 0 ? (u64)added : bucket->quota_ns) + bucket->burst_ns;
	if (bucket->left_ns + added > most)
		added = most - bucket->left_ns;
	__sync_fetch_and_add(&bucket->left_ns, added);
}

/*
 * What a CPU may reserve in a bucket. Not static: it is verified once, and not again for each iteration of a
 * loop.
 */
__noinline u64 grant_of(u32 number, u64 now_ns)
{
	struct time_bucket *bucket = bucket_at(number);
	s64 left_ns, grant_ns;
	s32 nr_grants;

	if (!bucket)
		return 0;
	fill(bucket, now_ns);
	left_ns = bucket->left_ns;
	if (left_ns <= 0)
		return 0;
	nr_grants = bucket->nr_grants > 0 ? bucket->nr_grants : 1;
	grant_ns = (u64)left_ns / (GRANT_PART * (u32)nr_grants);
	if (grant_ns > GRANT_MAX_NS)
		return GRANT_MAX_NS;
	/* A rest that is too small for another grant belongs to this one. */
	if (left_ns < 2 * GRANT_MIN_NS)
		return left_ns;
	return grant_ns > GRANT_MIN_NS ? grant_ns : GRANT_MIN_NS;
}

/* The bucket of a grant at an index, if there are so many. */
static __always_inline struct time_bucket *bucket_of(const struct grant *grant, u32 at)
{
	return at < grant->nr_buckets && at < MAX_DEPTH ? bucket_at(grant->buckets[at]) : NULL;
}

/*
 * Adds to the content of all buckets of a CPU's grant, or subtracts from it; returns whether one of them had
 * nothing before. Not static: it is verified once, and not again for each caller.
 */
__noinline bool change_left(u32 cpu, s64 delta_ns)
{
	const struct grant *grant = grant_on(cpu);
	bool was_empty = false;
	u32 at;

	if (!grant)
		return false;
	bpf_for(at, 0, MAX_DEPTH) {
		struct time_bucket *bucket = bucket_of(grant, at);

		if (!bucket)
			break;
		if (__sync_fetch_and_add(&bucket->left_ns, delta_ns) <= 0)
			was_empty = true;
	}
	return was_empty;
}

/* Reserves time for a CPU's task; false: there is none. Not static: see change_left(). */
__noinline bool reserve(u32 cpu, u64 now_ns)
{
	struct grant *grant = grant_on(cpu);
	u64 least_ns = GRANT_MAX_NS;
	u32 at;

	if (!grant)
		return false;
	bpf_for(at, 0, MAX_DEPTH) {
		u64 grant_ns;

		if (at >= grant->nr_buckets || at >= MAX_DEPTH)
			break;
		grant_ns = grant_of(grant->buckets[at], now_ns);
		if (grant_ns < least_ns)
			least_ns = grant_ns;
	}
	if (!least_ns)
		return false;
	if (change_left(cpu, -(s64)least_ns)) {
		/* Another CPU has taken it meanwhile. */
		change_left(cpu, least_ns);
		return false;
	}
	grant->left_ns += least_ns;
	grant->granted = true;
	return true;
}

/* Charges a CPU's task up to now: its grant, then the buckets. */
static void use_grant(struct grant *grant, u32 cpu, u64 now_ns)
{
	if (!before(grant->settled_ns, now_ns))
		return;
	grant->left_ns -= now_ns - grant->settled_ns;
	grant->settled_ns = now_ns;
	if (grant->left_ns < 0) {
		change_left(cpu, grant->left_ns);
		grant->left_ns = 0;
	}
}

/*
 * Makes the CPU's timer expire when the grant is used up, or before; on this CPU, because only this CPU may
 * use the grant. False: it cannot be started, see expire_in().
 */
static bool time_grant(struct grant *grant, u64 now_ns)
{
	u64 at_ns = now_ns + grant->left_ns;

	if (grant->expires_ns && before(now_ns, grant->expires_ns) && !before(at_ns, grant->expires_ns))
		return true;
	if (bpf_timer_start(&grant->timer, grant->left_ns, BPF_F_TIMER_CPU_PIN))
		return false;
	grant->expires_ns = at_ns;
	return true;
}

/* The CPU's task has no time left, or nothing would end its grant: it stops, and tries again. */
static void stop_granted(struct grant *grant, u32 cpu)
{
	if (grant->exempt)
		return;
	grant->over = true;
	kick_cpu(cpu, SCX_KICK_PREEMPT);
}

/* Whether tasks have been parked for so long that running ones have to take turns with them. */
static __always_inline bool is_crowded(const struct time_bucket *bucket)
{
	return bucket->nr_parked > 0 && (u64)bucket->nr_parked * bucket->period_ns > ROUND_MAX_NS;
}

/* Whether a CPU's task has to leave the rest of a bucket to parked tasks. */
static bool has_had_its_turn(const struct grant *grant)
{
	u32 at;

	bpf_for(at, 0, MAX_DEPTH) {
		struct time_bucket *bucket = bucket_of(grant, at);

		if (!bucket)
			break;
		if (is_crowded(bucket))
			return true;
	}
	return false;
}

/* A CPU's timer: the task continues if there is time for it, and no other task's turn. */
static int end_grant(void *map, u32 *cpu, struct grant *grant)
{
	u64 now_ns = scx_bpf_now();

	grant->expires_ns = 0;
	if (!grant->nr_buckets || grant->over)
		return 0;
	use_grant(grant, *cpu, now_ns);
	if (grant->left_ns <= 0 && ((!grant->exempt && has_had_its_turn(grant)) || !reserve(*cpu, now_ns)))
		stop_granted(grant, *cpu);
	else if (!time_grant(grant, now_ns))
		stop_granted(grant, *cpu);
	return 0;
}

static int make_grant_timer(u32 cpu)
{
	struct grant *grant = grant_on(cpu);
	int error;

	if (!grant)
		return -ENOENT;
	error = bpf_timer_init(&grant->timer, &grants, CLOCK_MONOTONIC);
	return error ? error : bpf_timer_set_callback(&grant->timer, end_grant);
}

/* Links the buckets of all limited cgroups from a cgroup up to the root; the number of the first, or 0. */
static u32 link_buckets(struct cgroup *cgroup)
{
	struct time_bucket *below = NULL;
	int level = cgroup->level, i;
	u32 first = 0;

	bpf_for(i, 0, MAX_DEPTH) {
		struct cgroup_state *state;
		struct time_bucket *bucket;

		if (level <= 0)
			break;
		state = state_of_ancestor(cgroup, level--);
		bucket = state ? bucket_at(state->bucket) : NULL;
		if (!bucket || !bucket->limited)
			continue;
		if (below)
			below->above = state->bucket;
		else
			first = state->bucket;
		below = bucket;
	}
	if (below)
		below->above = 0;
	return first;
}

/*
 * The first bucket from which a task's time comes; 0: it is not limited. Only for the task of the present
 * callback.
 */
static u32 first_bucket(struct task_struct *p)
{
	u32 number = 0, generation = limits_generation;
	struct cgroup_state *state = NULL;
	struct cgroup *cgroup;

	cgroup = scx_bpf_task_cgroup(p);
	if (!cgroup)
		return 0;
	if (cgroup->level > 0)
		state = bpf_cgrp_storage_get(&cgroup_states, cgroup, 0, 0);
	if (state) {
		if (state->limits_generation != generation) {
			state->limited_by = link_buckets(cgroup);
			state->limits_generation = generation;
		}
		number = state->limited_by;
	}
	bpf_cgroup_release(cgroup);
	return number;
}

static __always_inline bool is_exempt(const struct task_struct *p)
{
	return p->flags & (PF_KTHREAD | PF_EXITING);
}

/*
 * The bucket in which a task has to wait; 0: it may run. A task whose grant is over leaves the available time
 * to tasks that are parked already (`takes_turns`).
 */
static u32 empty_bucket(struct task_struct *p, bool takes_turns, u64 now_ns)
{
	u32 number;
	int i;

	if (!nr_limits || is_exempt(p))
		return 0;
	number = first_bucket(p);
	bpf_for(i, 0, MAX_DEPTH) {
		struct time_bucket *bucket = bucket_at(number);

		if (!bucket)
			return 0;
		if (bucket->limited) {
			fill(bucket, now_ns);
			if (bucket->left_ns <= 0 || (takes_turns && is_crowded(bucket)))
				return number;
		}
		number = bucket->above;
	}
	return 0;
}

/* Whether a task that wakes has to wait until its cgroup gets time. */
static __always_inline bool is_throttled(struct task_struct *p)
{
	return nr_limits && empty_bucket(p, false, scx_bpf_now());
}

/* A task is no longer parked: with its virtual time, unless it has been released with another one. */
static void unpark(struct task_struct *p, struct task_state *task)
{
	struct time_bucket *bucket = bucket_at(__sync_lock_test_and_set(&task->parked_in, 0));

	if (bucket) {
		__sync_fetch_and_sub(&bucket->nr_parked, 1);
		scx_bpf_task_set_dsq_vtime(p, task->parked_vtime);
	}
	if (task->uncounted) {
		task->uncounted = false;
		change_runnable(p, 1);
		count_runnable(task, true);
	}
}

/*
 * Parks a task that is to be queued, if its cgroup has no time. A task that nothing would release runs a
 * little, in debt, and comes again.
 */
static bool park(struct task_struct *p, struct task_state *task, s32 cpu, u64 enq_flags)
{
	u64 now_ns = scx_bpf_now();
	bool takes_turns = task->grant_over;
	struct time_bucket *bucket;
	u32 number;

	task->grant_over = false;
	number = nr_limits ? empty_bucket(p, takes_turns, now_ns) : 0;
	bucket = bucket_at(number);
	if (!bucket)
		return false;
	__sync_fetch_and_add(&bucket->nr_parked, 1);
	if (!expire_in(bucket, bucket->left_ns > 0 ? GRANT_MIN_NS : later(bucket->fill_ns, now_ns) - now_ns, now_ns)) {
		__sync_fetch_and_sub(&bucket->nr_parked, 1);
		return false;
	}
	count(COUNTER_throttled);
	task->parked_vtime = place(p, task, cpu, (is_bound(p, llc_of(cpu)) ? PLACE_BOUND : 0) | (enq_flags & SCX_ENQ_WAKEUP ? PLACE_WOKE : 0), now_ns);
	change_runnable(p, -1);
	count_runnable(task, false);
	task->uncounted = true;
	if (!task->ran_ns)
		task->ran_ns = now_ns;
	task->parked_in = number;
	scx_bpf_dsq_insert_vtime(p, PARKED_QUEUE | number, settings.slice_ns, task->ran_ns, 0);
	return true;
}

/*
 * The virtual time with which a parked task is released: it is owed nothing, and what it owes has faded
 * since. Not static: it is verified once, and not again for each iteration of the loop.
 */
__noinline u64 vtime_let_out(struct task_state *task __arg_nonnull, s32 cpu, bool bound, u64 now_ns)
{
	u64 vtime = task->parked_vtime, clock = clock_of(task->llc), first = bound ? bound_turn_on(cpu, task->llc, now_ns) : clock;

	if (before(first, vtime) && before(task->faded_ns, now_ns))
		vtime = fade(vtime, clock, now_ns - task->faded_ns);
	vtime = later(vtime, first);
	note_lag(task, vtime, now_ns);
	return vtime;
}

/* Releases the parked task at which an iteration over its queue is, to where it would have waited. */
static bool let_out(struct bpf_iter_scx_dsq *at, struct task_struct *p, struct task_state *task, u64 now_ns)
{
	u32 llc = task->llc, number = __sync_lock_test_and_set(&task->parked_in, 0);
	s32 cpu = scx_bpf_task_cpu(p), idle = -1;
	bool bound = is_bound(p, llc) || llc_of(cpu) != llc;
	struct time_bucket *bucket = bucket_at(number);
	u64 queue = bound ? BOUND_QUEUE | cpu : llc;
	u32 waits = waits_in(p, task, queue);
	bool let_out = false;

	if (!bucket)
		return false;
	/* It may leave at any time, and wait elsewhere, where it is counted. */
	if (!__sync_val_compare_and_swap(&task->waits, 0, waits)) {
		count_waiting(waits, 1, now_ns);
		scx_bpf_dsq_move_set_slice(at, slice_on(cpu, task->weight));
		scx_bpf_dsq_move_set_vtime(at, vtime_let_out(task, cpu, bound, now_ns) - drift_of(queue, now_ns));
		let_out = scx_bpf_dsq_move_vtime(at, p, queue, 0);
		if (!let_out && __sync_bool_compare_and_swap(&task->waits, waits, 0))
			count_waiting(waits, -1, now_ns);
	}
	__sync_fetch_and_sub(&bucket->nr_parked, 1);
	if (!let_out)
		return false;
	end_tickless(cpu, !bound);
	if (scx_bpf_test_and_clear_cpu_idle(cpu))
		idle = cpu;
	else if (!is_pinned(p))
		idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (idle >= 0)
		kick_cpu(idle, SCX_KICK_IDLE);
	return true;
}

/*
 * How many parked tasks there is time for; no more than a timer releases at once. Not static: the verifier
 * would follow each of the counts through the loop.
 */
__noinline u32 releases(u32 number, u64 now_ns)
{
	struct time_bucket *bucket = bucket_at(number);
	s64 left_ns;

	if (!bucket)
		return 0;
	if (!bucket->limited)
		return RELEASES_MAX;
	fill(bucket, now_ns);
	left_ns = bucket->left_ns;
	if (left_ns <= 0)
		return 0;
	return left_ns < RELEASES_MAX * RELEASE_NS ? (u64)left_ns / RELEASE_NS + 1 : RELEASES_MAX;
}

/*
 * A bucket's timer: fills it, and releases as many tasks as there is time for, all if there is no limit any
 * longer.
 */
static int let_out_parked(void *map, u32 *number, struct time_bucket *bucket)
{
	u64 queue = PARKED_QUEUE | *number, now_ns = scx_bpf_now(), wait_ns;
	u32 left, most;
	struct task_struct *p;

	__sync_lock_test_and_set(&bucket->expires_ns, 0);
	most = left = releases(*number, now_ns);
	bpf_rcu_read_lock();
	bpf_for_each(scx_dsq, p, queue, 0) {
		struct task_state *task;

		if (!left--)
			break;
		task = task_state(p);
		if (task && let_out(BPF_FOR_EACH_ITER, p, task, now_ns))
			count(COUNTER_unthrottled);
	}
	bpf_rcu_read_unlock();
	if (bucket->nr_parked <= 0)
		return 0;
	/* Some are left, or on their way into the queue. */
	if (most == RELEASES_MAX)
		wait_ns = scx_bpf_dsq_nr_queued(queue) > 0 ? 0 : GRANT_MIN_NS;
	else
		wait_ns = later(bucket->fill_ns, now_ns) - now_ns;
	expire_in(bucket, wait_ns, now_ns);
	return 0;
}

/* A task begins to run: it gets a grant, or stops at once. */
static void begin_grant(struct task_struct *p, struct task_state *task, s32 cpu, u64 now_ns)
{
	struct grant *grant = grant_on(cpu);
	u32 number, at;

	if (!grant)
		return;
	grant->generation = limits_generation;
	grant->nr_buckets = 0;
	if (task)
		task->grant_over = false;
	number = nr_limits ? first_bucket(p) : 0;
	if (!number)
		return;
	grant->left_ns = 0;
	grant->settled_ns = now_ns;
	grant->granted = grant->over = false;
	/* A task without state cannot be parked. */
	grant->exempt = !task || is_exempt(p);
	bpf_for(at, 0, MAX_DEPTH) {
		struct time_bucket *bucket = bucket_at(number);

		if (!bucket)
			break;
		if (at < MAX_DEPTH)
			grant->buckets[at] = number;
		grant->nr_buckets = at + 1;
		__sync_fetch_and_add(&bucket->nr_grants, 1);
		number = bucket->above;
	}
	if (!reserve(cpu, now_ns) || !time_grant(grant, now_ns))
		stop_granted(grant, cpu);
}

/* A task stops: the rest of its grant returns, for tasks that wait for it. */
static void return_grant(struct task_state *task, s32 cpu, u64 now_ns)
{
	struct grant *grant = grant_on(cpu);
	u32 at;

	if (!grant || !grant->nr_buckets)
		return;
	use_grant(grant, cpu, now_ns);
	if (grant->left_ns > 0)
		change_left(cpu, grant->left_ns);
	if (task) {
		task->grant_over = grant->over;
		if (grant->granted)
			task->ran_ns = now_ns;
	}
	bpf_for(at, 0, MAX_DEPTH) {
		struct time_bucket *bucket = bucket_of(grant, at);

		if (!bucket)
			break;
		__sync_fetch_and_sub(&bucket->nr_grants, 1);
		if (bucket->nr_parked > 0 && bucket->left_ns > 0)
			expire_now(bucket);
	}
	grant->nr_buckets = 0;
}

/* Whether the running task of a CPU has to stop. */
static __always_inline bool has_to_stop(s32 cpu)
{
	struct grant *grant;

	if (!limits_generation)
		return false;
	grant = grant_on(cpu);
	return grant && grant->nr_buckets && grant->over;
}

/* Limits have changed while a task runs: it continues under the new ones. */
static __always_inline void renew_grant(struct task_struct *p, struct task_state *task, s32 cpu, u64 now_ns)
{
	struct grant *grant;

	if (!limits_generation)
		return;
	grant = grant_on(cpu);
	if (!grant || grant->generation == limits_generation)
		return;
	return_grant(task, cpu, now_ns);
	begin_grant(p, task, cpu, now_ns);
}

/*
 * Creates one more bucket, if there is room: for a cgroup that may be limited later, when no queue can be
 * created.
 */
static void make_bucket(void)
{
	u32 number = nr_buckets;
	struct time_bucket *bucket = bucket_at(number);

	if (!bucket || scx_bpf_create_dsq(PARKED_QUEUE | number, -1))
		return;
	if (bpf_timer_init(&bucket->timer, &buckets, CLOCK_MONOTONIC) ||
	    bpf_timer_set_callback(&bucket->timer, let_out_parked))
		return;
	nr_buckets = number + 1;
}

/* The number of a bucket that no cgroup owns; 0: there is none. */
static u32 take_bucket(void)
{
	u32 number;

	bpf_for(number, 1, MAX_LIMITS) {
		struct time_bucket *bucket;

		if (number >= nr_buckets)
			break;
		bucket = bucket_at(number);
		if (bucket && __sync_bool_compare_and_swap(&bucket->used, 0, 1))
			return number;
	}
	return 0;
}

/* Gives a cgroup a limit, another one, or none; as in CFS, it begins with a full bucket. */
static void set_limit(struct cgroup_state *state, u64 period_us, u64 quota_us, u64 burst_us)
{
	bool limited = quota_us != NO_QUOTA && period_us;
	u64 now_ns = scx_bpf_now();
	struct time_bucket *bucket;

	if (!state->bucket) {
		if (!limited)
			return;
		state->bucket = take_bucket();
		if (!state->bucket) {
			count(COUNTER_limits_refused);
			return;
		}
	}
	bucket = bucket_at(state->bucket);
	if (!bucket)
		return;
	if (limited) {
		bucket->quota_ns = quota_us * 1000;
		bucket->period_ns = period_us * 1000;
		bucket->burst_ns = burst_us * 1000;
		bucket->left_ns = bucket->quota_ns;
		bucket->fill_ns = now_ns + bucket->period_ns;
	}
	if (limited != bucket->limited)
		__sync_fetch_and_add(&nr_limits, limited ? 1 : -1);
	bucket->limited = limited;
	__sync_fetch_and_add(&limits_generation, 1);
	kick_tickless();
	if (bucket->nr_parked > 0)
		expire_now(bucket);
}

/* A cgroup is removed: its bucket is free for another one. */
static void forget_limit(struct cgroup_state *state)
{
	struct time_bucket *bucket = bucket_at(state->bucket);

	if (!bucket)
		return;
	set_limit(state, 0, NO_QUOTA, 0);
	state->bucket = 0;
	bucket->used = 0;
}

#endif
