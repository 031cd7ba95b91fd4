/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A scheduler with alternatives, from which evolve.py breeds others.
 *
 * Its heart is that of `tandem new`: tasks that wait are in a queue in the order of a key, and are charged the CPU time that
 * they have, divided by their weight. What can be done in several ways is a *gene*, one of the lines below: a number among
 * alternatives (0..3), or a constant in a range (200..20000). A search writes other numbers there; as they stand, the
 * scheduler decides as `tandem new` leaves it.
 */

/* What a task that waits is ordered by: 0 its virtual time; 1 that and a slice of its own, a deadline;
 * 2 that and what it usually runs at a stretch; 3 that, less what it usually sleeps. */
#define ORDER 2			/* 0..3 */
/* How much of this second part counts, percent. */
#define ORDER_PCT 49		/* 10..1000 */
/* How far behind the others a task may wake: the credit of sleepers, us. */
#define CREDIT_US 3900		/* 200..40000 */
/* When what a task is owed beyond that is forgotten: 0 whenever it waits; 1 when it wakes. */
#define FORGET 0		/* 0..1 */
/* What the credit is for: 0 all who wake; 1 those who sleep for longer than they run. */
#define CREDIT_FOR 0		/* 0..1 */
/* How long a task runs while others wait, us; */
#define SLICE_US 8200		/* 500..20000 */
/* and which one: 0 that; 1 less, the more wait; 2 less for those who usually run for long; 3 more for these. */
#define SLICE_RULE 0		/* 0..3 */
/* Whom a task that wakes may stop: 0 nobody; 1 who runs where it ran; 2 the furthest ahead of some CPUs; */
#define PREEMPT 1		/* 0..2 */
/* of how many; */
#define PREEMPT_AMONG 4		/* 1..16 */
/* if that is ahead by this much, us, */
#define PREEMPT_LEAD_US 3200	/* 50..20000 */
/* and has run for at least this long, us. */
#define PREEMPT_AFTER_US 0	/* 0..4000 */
/* Which idle CPU a task gets: 0 as the kernel finds one; 1 its last one first; 2 one of an idle core first. */
#define IDLE 0			/* 0..2 */
/* One queue for: 0 all CPUs; 1 the CPUs of a node, others help when they have none. */
#define QUEUES 1		/* 0..1 */
/* A CPU goes on with its task until that is ahead of the first one that waits by this much, us. */
#define KEEP_US 120		/* 0..8000 */
/* Whom a CPU takes: 0 the first one; 1 one that ran here before; 2 one that ran on this node before; */
#define WARM 0			/* 0..2 */
/* if its key is later than that of the first one by less than this, us. */
#define WARM_US 7400		/* 100..20000 */
/* What a stretch costs at least, us. */
#define CHARGE_MIN_US 0		/* 0..500 */
/* What weighs: 0 the task's weight; 1 that of its process, which those of its tasks divide that can run; 2 nothing. */
#define WEIGHT 1		/* 0..2 */
/* A task that yields, as a virtual CPU that spins for a lock does: 0 goes on as others let it; 1 waits behind who is
 * there; 2 pays for a slice. */
#define YIELDS 0		/* 0..2 */
/* What the time of the queue is: 0 the key of its first task; 1 the virtual time of the furthest that began to run. */
#define CLOCK 1			/* 0..1 */

/* The kernel's constants are those of vmlinux.h, so that no loader has to fill them in. */
#define __SCX_ENUMS_BPF_H
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define CPUS_MAX 1024
#define NODES_MAX 64
#define USUAL_WEIGHT 100
/* How many tasks of a process can run, usually. */
#define USUAL_RUNNABLE 8
#define US 1000ULL
#define SLICE_NS (SLICE_US * US)
#define SLICE_MIN_NS (200 * US)
/* How far a task may be ahead of the others in virtual time, whatever it weighs. */
#define AHEAD_MAX_NS 100000000ULL
#define TICK_NS 4000000ULL
/* How many tasks a CPU looks at to find a warm one. */
#define WARM_AMONG 16

/* By queue: the time by which latecomers are placed. */
static u64 clocks_ns[NODES_MAX];
static u32 nr_cpus, nr_nodes;

/* What a CPU runs. */
struct cpu_state {
	/* By what its task was ordered when it began to run; and when that was. */
	u64 key_ns;
	u64 since_ns;
	u32 weight;
	bool busy;
} __attribute__((aligned(64)));

static struct cpu_state cpus[CPUS_MAX];

/* What is known of a task. */
struct task {
	/* CPU time that it has had, by its weight. */
	u64 vtime_ns;
	/* CPU time between a wake-up and the next sleep, and how long it sleeps: means, ns. */
	u64 runs_ns;
	u64 sleeps_ns;
	/* CPU time since it woke; when it began to sleep. */
	u64 stretch_ns;
	u64 slept_at_ns;
	bool yielded;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task);
} tasks SEC(".maps");

static struct task *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static struct cpu_state *state_of(s32 cpu)
{
	return cpu >= 0 && cpu < CPUS_MAX ? &cpus[cpu] : NULL;
}

static u32 queue_of(s32 cpu)
{
#if QUEUES == 1
	s32 node = scx_bpf_cpu_node(cpu);

	return node >= 0 && node < NODES_MAX ? node : 0;
#else
	return 0;
#endif
}

static u64 *clock_of(u32 queue)
{
	return &clocks_ns[queue % NODES_MAX];
}

/* Virtual times wrap around in the end, so their difference is compared. */
static bool is_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

#if WEIGHT == 1
/* By process, as a VM is one: how many of its tasks can run. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, s32);
	__type(value, s64);
} runnable SEC(".maps");

static void count_runnable(struct task_struct *p, s64 more)
{
	s64 none = 0, *count;
	s32 process = p->tgid;

	count = bpf_map_lookup_elem(&runnable, &process);
	if (!count) {
		bpf_map_update_elem(&runnable, &process, &none, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&runnable, &process);
	}
	if (count)
		__sync_fetch_and_add(count, more);
}

void BPF_STRUCT_OPS(one_runnable, struct task_struct *p, u64 enq_flags)
{
	count_runnable(p, 1);
}

void BPF_STRUCT_OPS(one_quiescent, struct task_struct *p, u64 deq_flags)
{
	count_runnable(p, -1);
}
#endif

/* What a task weighs here. */
static u32 weight_of(struct task_struct *p)
{
	u32 weight = p->scx.weight;

#if WEIGHT == 1
	s32 process = p->tgid;
	s64 *count = bpf_map_lookup_elem(&runnable, &process);

	/* As much as before if some tasks can run, so that times mean the same. */
	if (count && *count > 0)
		weight = weight * USUAL_RUNNABLE / (u32)*count;
#elif WEIGHT == 2
	weight = USUAL_WEIGHT;
#endif
	return weight ?: 1;
}

/* A mean that forgets: an eighth is new. */
static u64 mean(u64 mean_ns, u64 new_ns)
{
	return mean_ns - mean_ns / 8 + new_ns / 8;
}

/* What a time on a CPU costs at this weight. */
static u64 cost(u64 ran_ns, u32 weight)
{
	return ran_ns * USUAL_WEIGHT / (weight ?: 1);
}

static u64 slice_of(struct task *task, u32 queue)
{
	u64 slice_ns = SLICE_NS;

#if SLICE_RULE == 1
	s32 waiting = scx_bpf_dsq_nr_queued(queue);
	s32 share = nr_cpus / (QUEUES ? nr_nodes : 1);

	if (waiting > share)
		slice_ns = slice_ns * share / waiting;
#elif SLICE_RULE >= 2
	if ((task->runs_ns > SLICE_NS) == (SLICE_RULE == 2))
		slice_ns /= 4;
#endif
	return slice_ns < SLICE_MIN_NS ? SLICE_MIN_NS : slice_ns;
}

/*
 * Keeps a task near the others. One that has slept would otherwise keep a CPU until it had caught up, and one that was
 * alone, or is very light, would wait for seconds.
 */
static u64 near_clock(struct task *task, u32 weight, u32 queue, bool woke)
{
	u64 vtime_ns = task->vtime_ns, clock_ns = *clock_of(queue), credit_ns = CREDIT_US * US;
	u64 ahead_ns = cost(SLICE_NS + 2 * TICK_NS, weight);

#if CREDIT_FOR == 1
	if (task->sleeps_ns < task->runs_ns)
		credit_ns = 0;
#endif
	if (FORGET == 1 && !woke)
		credit_ns = AHEAD_MAX_NS;
	if (ahead_ns > AHEAD_MAX_NS)
		ahead_ns = AHEAD_MAX_NS;
	if (is_before(vtime_ns, clock_ns - credit_ns))
		return clock_ns - credit_ns;
	if (is_before(clock_ns + ahead_ns, vtime_ns))
		return clock_ns + ahead_ns;
	return vtime_ns;
}

/* What a task that waits is ordered by. */
static u64 key_of(struct task *task, u32 weight)
{
	u64 part_ns = 0;

#if ORDER == 1
	part_ns = cost(SLICE_NS, weight);
#elif ORDER == 2
	part_ns = cost(task->runs_ns, weight);
#elif ORDER == 3
	part_ns = task->sleeps_ns;
#endif
	part_ns = part_ns * ORDER_PCT / 100;
	/* Nobody goes first, or last, for ever. */
	if (part_ns > AHEAD_MAX_NS)
		part_ns = AHEAD_MAX_NS;
	return ORDER == 3 ? task->vtime_ns - part_ns : task->vtime_ns + part_ns;
}

/* By how much who runs on a CPU is ahead of a key; less than 0: behind, or nobody, or not for long enough. */
static s64 lead_of(s32 cpu, u64 key_ns, u64 after_ns)
{
	struct cpu_state *state = state_of(cpu);
	u64 ran_ns;

	if (!state || !state->busy)
		return -1;
	ran_ns = scx_bpf_now() - state->since_ns;
	if (ran_ns < after_ns)
		return -1;
	return state->key_ns + cost(ran_ns, state->weight) - key_ns;
}

s32 BPF_STRUCT_OPS(one_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	struct task *task = task_of(p);
	bool is_idle = false;
	s32 cpu = prev_cpu;

	if (!task)
		return prev_cpu;
#if IDLE == 1
	is_idle = scx_bpf_test_and_clear_cpu_idle(prev_cpu);
#elif IDLE == 2
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, SCX_PICK_IDLE_CORE);
	is_idle = cpu >= 0;
#endif
	if (!is_idle)
		cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);
	/* In the queue of the CPU that is returned; enqueue is not called then. */
	if (is_idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_of(task, queue_of(cpu)), 0);
	return cpu;
}

/* Stops who has had most of those that a task which wakes may stop. */
static void preempt(struct task_struct *p, u64 key_ns)
{
	s32 own = scx_bpf_task_cpu(p), victim = -1;
	s64 most_ns = PREEMPT_LEAD_US * US, lead_ns;

#if PREEMPT >= 1
	lead_ns = lead_of(own, key_ns, PREEMPT_AFTER_US * US);
	if (lead_ns > most_ns) {
		most_ns = lead_ns;
		victim = own;
	}
#endif
#if PREEMPT == 2
	u32 start = bpf_get_prandom_u32();
	s32 i;

	bpf_for(i, 0, PREEMPT_AMONG) {
		s32 cpu = (start + i * 7) % nr_cpus;

		if (queue_of(cpu) != queue_of(own) || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		lead_ns = lead_of(cpu, key_ns, PREEMPT_AFTER_US * US);
		if (lead_ns > most_ns) {
			most_ns = lead_ns;
			victim = cpu;
		}
	}
#endif
	if (victim >= 0)
		scx_bpf_kick_cpu(victim, SCX_KICK_PREEMPT);
}

void BPF_STRUCT_OPS(one_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 queue = queue_of(scx_bpf_task_cpu(p)), weight = weight_of(p);
	struct task *task = task_of(p);
	u64 key_ns;
	s32 cpu;

	if (!task) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, SLICE_NS, enq_flags);
		return;
	}
#if YIELDS == 1
	if (task->yielded && is_before(task->vtime_ns, *clock_of(queue)))
		task->vtime_ns = *clock_of(queue);
#elif YIELDS == 2
	if (task->yielded)
		task->vtime_ns += cost(SLICE_NS, weight);
#endif
	task->yielded = false;
	task->vtime_ns = near_clock(task, weight, queue, enq_flags & SCX_ENQ_WAKEUP);
	key_ns = key_of(task, weight);
	scx_bpf_dsq_insert_vtime(p, queue, slice_of(task, queue), key_ns, enq_flags);

	/* No CPU sleeps beside a task that waits. */
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu >= 0)
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	else if (enq_flags & SCX_ENQ_WAKEUP)
		preempt(p, key_ns);
}

/* Takes the first one whose caches are here, among those whose turn is almost as near as the first one's. */
static bool take_warm(s32 cpu, u32 queue)
{
	u64 last_key_ns = 0;
	struct task_struct *p;
	u32 seen = 0;
	bool is_warm;

	bpf_for_each(scx_dsq, p, queue, 0) {
		if (!seen)
			last_key_ns = p->scx.dsq_vtime + WARM_US * US;
		if (seen++ == WARM_AMONG || is_before(last_key_ns, p->scx.dsq_vtime))
			break;
		is_warm = WARM == 1 ? scx_bpf_task_cpu(p) == cpu :
				      scx_bpf_cpu_node(scx_bpf_task_cpu(p)) == scx_bpf_cpu_node(cpu);
		if (is_warm && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			return scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu, 0);
	}
	return false;
}

/*
 * The task that ran here is not in the queue yet: it goes on, with another slice, unless it is ahead of the first one that
 * waits for this CPU. If nobody waits, the kernel lets it go on anyway.
 */
void BPF_STRUCT_OPS(one_dispatch, s32 cpu, struct task_struct *prev)
{
	u32 queue = queue_of(cpu), other;
	u64 *clock_ns = clock_of(queue);
	bool is_first = true, goes_on = false;
	struct task_struct *p;
	struct task *task;

	bpf_for_each(scx_dsq, p, queue, 0) {
		if (is_first && CLOCK == 0) {
			task = task_of(p);
			if (task && is_before(*clock_ns, task->vtime_ns))
				*clock_ns = task->vtime_ns;
		}
		is_first = false;
		if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr)) {
			goes_on = prev && state_of(cpu) && state_of(cpu)->busy &&
				  lead_of(cpu, p->scx.dsq_vtime, 0) <= (s64)(KEEP_US * US);
			break;
		}
	}
	task = goes_on ? task_of(prev) : NULL;
	if (task && !task->yielded) {
		scx_bpf_task_set_slice(prev, slice_of(task, queue));
		return;
	}
	if ((WARM && take_warm(cpu, queue)) || scx_bpf_dsq_move_to_local(queue, 0) || !QUEUES)
		return;
	bpf_for(other, 0, nr_nodes) {
		if (other != queue && scx_bpf_dsq_move_to_local(other, 0))
			return;
	}
}

void BPF_STRUCT_OPS(one_running, struct task_struct *p)
{
	struct cpu_state *state = state_of(scx_bpf_task_cpu(p));
	struct task *task = task_of(p);
	u64 *clock_ns = clock_of(queue_of(scx_bpf_task_cpu(p)));
	u64 now_ns = scx_bpf_now();

	if (!state || !task)
		return;
	if (CLOCK == 1 && is_before(*clock_ns, task->vtime_ns))
		*clock_ns = task->vtime_ns;
	if (task->slept_at_ns) {
		task->sleeps_ns = mean(task->sleeps_ns, now_ns - task->slept_at_ns);
		task->slept_at_ns = 0;
	}
	state->weight = weight_of(p);
	state->key_ns = key_of(task, state->weight);
	state->since_ns = now_ns;
	state->busy = true;
}

void BPF_STRUCT_OPS(one_stopping, struct task_struct *p, bool runnable)
{
	struct cpu_state *state = state_of(scx_bpf_task_cpu(p));
	struct task *task = task_of(p);
	u64 now_ns = scx_bpf_now(), ran_ns;

	if (!state || !task)
		return;
	ran_ns = now_ns - state->since_ns;
	task->stretch_ns += ran_ns;
	if (ran_ns < CHARGE_MIN_US * US)
		ran_ns = CHARGE_MIN_US * US;
	task->vtime_ns += cost(ran_ns, state->weight);
	state->busy = false;
	/* One that computes on is known by how long it has done so. */
	if (!runnable || task->stretch_ns > task->runs_ns)
		task->runs_ns = mean(task->runs_ns, task->stretch_ns);
	if (!runnable) {
		task->stretch_ns = 0;
		task->slept_at_ns = now_ns;
	}
}

#if YIELDS >= 1
bool BPF_STRUCT_OPS(one_yield, struct task_struct *from, struct task_struct *to)
{
	struct task *task = task_of(from);

	if (task)
		task->yielded = true;
	scx_bpf_task_set_slice(from, 0);
	return true;
}
#endif

/* A task comes to this scheduler, new or from another one: behind those who wait. */
void BPF_STRUCT_OPS(one_enable, struct task_struct *p)
{
	struct task *task = task_of(p);

	if (task)
		task->vtime_ns = *clock_of(queue_of(scx_bpf_task_cpu(p))) + SLICE_NS;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(one_init)
{
	s32 error = 0;
	u32 node;

	nr_cpus = scx_bpf_nr_cpu_ids();
	nr_nodes = QUEUES ? scx_bpf_nr_node_ids() : 1;
	if (nr_nodes > NODES_MAX)
		nr_nodes = NODES_MAX;
	bpf_for(node, 0, nr_nodes) {
		error = error ?: scx_bpf_create_dsq(node, NUMA_NO_NODE);
	}
	return error;
}

SCX_OPS_DEFINE(one_ops,
	       .select_cpu = (void *)one_select_cpu,
	       .enqueue = (void *)one_enqueue,
	       .dispatch = (void *)one_dispatch,
#if WEIGHT == 1
	       .runnable = (void *)one_runnable,
	       .quiescent = (void *)one_quiescent,
#endif
	       .running = (void *)one_running,
	       .stopping = (void *)one_stopping,
#if YIELDS >= 1
	       .yield = (void *)one_yield,
#endif
	       .enable = (void *)one_enable,
	       .init = (void *)one_init,
	       .name = "one_of_many");
