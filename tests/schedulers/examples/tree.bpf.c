/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shares CPU time by weight, as `weighted` does, in an order of its own: waiting tasks are objects in a tree.
 *
 * A scheduler that orders tasks by more than one number cannot leave the order to a dispatch queue. This one has a
 * tree of objects (`bpf_obj_new()`), each of which stands for a turn of a task that waits, and compares them by
 * itself: by virtual time, and those with the same by who came first.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

/* The weight of a task with nice 0. */
#define USUAL_WEIGHT 100

const volatile u64 slice_ns = 5000000;

/* What has happened. */
u64 nr_added, nr_taken, nr_gone;

/* A task that waits for its turn. */
struct turn {
	struct bpf_rb_node node;
	u64 vtime;
	u64 number;
	s32 pid;
};

/* The lock and the tree that it protects lie in one section. */
private(TURNS) struct bpf_spin_lock turns_lock;
private(TURNS) struct bpf_rb_root turns __contains(turn, node);

/* The virtual time of the task that has been furthest when it began to run. */
static u64 vtime_now;
static u64 next_number;

static bool is_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

static bool is_earlier(struct bpf_rb_node *a, const struct bpf_rb_node *b)
{
	struct turn *first = container_of(a, struct turn, node);
	struct turn *second = container_of(b, struct turn, node);

	if (first->vtime != second->vtime)
		return is_before(first->vtime, second->vtime);
	return is_before(first->number, second->number);
}

s32 BPF_STRUCT_OPS(tree_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);

	if (is_idle)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(tree_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct turn *turn = bpf_obj_new(typeof(*turn));
	u64 vtime = p->scx.dsq_vtime;

	/* Without memory, the kernel's order has to do. */
	if (!turn) {
		scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, slice_ns, enq_flags);
		return;
	}
	if (is_before(vtime, vtime_now - slice_ns))
		vtime = vtime_now - slice_ns;
	turn->vtime = vtime;
	turn->number = __sync_fetch_and_add(&next_number, 1);
	turn->pid = p->pid;
	/* The tree owns the turn from here on. */
	bpf_spin_lock(&turns_lock);
	bpf_rbtree_add(&turns, &turn->node, is_earlier);
	bpf_spin_unlock(&turns_lock);
	__sync_fetch_and_add(&nr_added, 1);
}

/* The turn that comes next, which the caller drops; NULL if no task waits. */
static struct turn *take_next(void)
{
	struct bpf_rb_node *node;

	bpf_spin_lock(&turns_lock);
	node = bpf_rbtree_first(&turns);
	if (node)
		node = bpf_rbtree_remove(&turns, node);
	bpf_spin_unlock(&turns_lock);
	return node ? container_of(node, struct turn, node) : NULL;
}

/*
 * Where the next task goes that a CPU has taken: there if it may run there, else to a CPU that idles. If none does, those
 * where it may run look into the kernel's queue before they idle.
 */
static u64 place_of(struct task_struct *p, s32 cpu)
{
	s32 idle_cpu;

	if (bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return SCX_DSQ_LOCAL;
	idle_cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	return idle_cpu >= 0 ? SCX_DSQ_LOCAL_ON | idle_cpu : SCX_DSQ_GLOBAL;
}

void BPF_STRUCT_OPS(tree_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p = NULL;
	struct turn *turn;

	bpf_repeat(BPF_MAX_LOOPS) {
		turn = take_next();
		if (!turn)
			return;
		p = bpf_task_from_pid(turn->pid);
		bpf_obj_drop(turn);
		if (p)
			break;
		/* The task has ended while it waited. */
		__sync_fetch_and_add(&nr_gone, 1);
	}
	if (!p)
		return;
	scx_bpf_dsq_insert(p, place_of(p, cpu), slice_ns, 0);
	bpf_task_release(p);
	__sync_fetch_and_add(&nr_taken, 1);
}

void BPF_STRUCT_OPS(tree_running, struct task_struct *p)
{
	if (is_before(vtime_now, p->scx.dsq_vtime))
		vtime_now = p->scx.dsq_vtime;
}

void BPF_STRUCT_OPS(tree_stopping, struct task_struct *p, bool runnable)
{
	/*
	 * The kernel takes what a task has run off its slice; one that yields loses all that is left. A task that goes on
	 * because no other waits gets the kernel's slice, which is longer: what it runs of the difference costs nothing.
	 */
	u64 ran_ns = p->scx.slice < slice_ns ? slice_ns - p->scx.slice : 0;

	scx_bpf_task_set_dsq_vtime(p, p->scx.dsq_vtime + ran_ns * USUAL_WEIGHT / p->scx.weight);
}

void BPF_STRUCT_OPS(tree_enable, struct task_struct *p)
{
	scx_bpf_task_set_dsq_vtime(p, vtime_now);
}

SCX_OPS_DEFINE(tree_ops,
	       .select_cpu = (void *)tree_select_cpu,
	       .enqueue = (void *)tree_enqueue,
	       .dispatch = (void *)tree_dispatch,
	       .running = (void *)tree_running,
	       .stopping = (void *)tree_stopping,
	       .enable = (void *)tree_enable,
	       .name = "tree");
