/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Asks for idle CPUs in each way that the kernel has, and complains of answers that it must not give: for tests of
 * that, not to be used.
 *
 * Whom nobody has found an idle CPU for waits in a queue of all.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define SHARED_DSQ 0
#define CPUS_MAX 1024

enum way {
	OF_THE_MACHINE,
	OF_A_NODE,
	THE_KERNELS_CHOICE,
	A_WHOLE_CORE,
};

const volatile u32 way = OF_THE_MACHINE;
const volatile u64 slice_ns = 5000000;
/* Siblings as user space tells them, of CPUs that have one. */
const volatile s32 sibling_of[CPUS_MAX];
static u32 turn;

/*
 * Searches that found a CPU where they began, elsewhere, and nowhere; those that had to find a sibling, or found a CPU
 * whose sibling is offline.
 */
struct found {
	u64 near;
	u64 far;
	u64 nowhere;
	u64 sibling;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct found);
} found_map SEC(".maps");

#define COUNT(what)                                                                                                    \
	do {                                                                                                           \
		u32 first_ = 0;                                                                                        \
		struct found *found_ = bpf_map_lookup_elem(&found_map, &first_);                                       \
		if (found_)                                                                                            \
			found_->what++;                                                                                \
	} while (0)

static void check_node(const struct cpumask *idle, s32 node)
{
	s32 cpu;

	bpf_for(cpu, 0, scx_bpf_nr_cpu_ids()) {
		if (bpf_cpumask_test_cpu(cpu, idle) && scx_bpf_cpu_node(cpu) != node)
			scx_bpf_error("CPU %d idles on node %d", cpu, node);
	}
}

static s32 pick_of_node(struct task_struct *p)
{
	s32 node = turn++ % scx_bpf_nr_node_ids();
	u64 flags = turn & 1 ? SCX_PICK_IDLE_IN_NODE : 0;
	const struct cpumask *idle = scx_bpf_get_idle_cpumask_node(node);
	bool has_near = bpf_cpumask_intersects(idle, p->cpus_ptr);
	s32 cpu;

	check_node(idle, node);
	scx_bpf_put_idle_cpumask(idle);
	cpu = scx_bpf_pick_idle_cpu_node(p->cpus_ptr, node, flags);
	if (cpu < 0) {
		if (has_near)
			scx_bpf_error("no CPU is found on node %d, where one idles", node);
		COUNT(nowhere);
		return cpu;
	}
	if ((scx_bpf_cpu_node(cpu) == node) != has_near)
		scx_bpf_error("CPU %d is found from node %d, where one idles: %d", cpu, node, has_near);
	if (scx_bpf_cpu_node(cpu) == node)
		COUNT(near);
	else
		COUNT(far);
	if (flags && scx_bpf_cpu_node(cpu) != node)
		scx_bpf_error("CPU %d is not on node %d", cpu, node);
	return cpu;
}

/* The sibling that idles, if the CPU and all cores are busy, for a task that may run there; -1 if there is none. */
static s32 idle_sibling(struct task_struct *p, s32 prev_cpu, s32 sibling)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask(), *cores = scx_bpf_get_idle_smtmask();
	s32 found = -1;

	if (!bpf_cpumask_test_cpu(prev_cpu, idle) && !bpf_cpumask_intersects(cores, p->cpus_ptr) &&
	    bpf_cpumask_test_cpu(sibling, idle) && bpf_cpumask_test_cpu(sibling, p->cpus_ptr))
		found = sibling;
	scx_bpf_put_idle_cpumask(cores);
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

static s32 choose(struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu, sibling = -1;

	if (prev_cpu >= 0 && prev_cpu < CPUS_MAX)
		sibling = idle_sibling(p, prev_cpu, sibling_of[prev_cpu]);
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags & ~SCX_WAKE_SYNC, &is_idle);
	if (sibling >= 0) {
		COUNT(sibling);
		if (cpu != sibling)
			scx_bpf_error("CPU %d is chosen where the sibling %d idles", cpu, sibling);
	}
	if (is_idle)
		COUNT(near);
	return is_idle ? cpu : -EBUSY;
}

static s32 pick_core(struct task_struct *p)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	s32 cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, SCX_PICK_IDLE_CORE);

	if (cpu < 0)
		COUNT(nowhere);
	else if (cpu < CPUS_MAX && sibling_of[cpu] >= 0 && !bpf_cpumask_test_cpu(sibling_of[cpu], online))
		COUNT(sibling);
	else
		COUNT(near);
	if (cpu >= 0 && !bpf_cpumask_test_cpu(cpu, online))
		scx_bpf_error("CPU %d is found, which is offline", cpu);
	scx_bpf_put_cpumask(online);
	return cpu;
}

s32 BPF_STRUCT_OPS(idle_nodes_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	s32 cpu;

	switch (way) {
	case OF_A_NODE:
		cpu = pick_of_node(p);
		break;
	case THE_KERNELS_CHOICE:
		cpu = choose(p, prev_cpu, wake_flags);
		break;
	case A_WHOLE_CORE:
		cpu = pick_core(p);
		break;
	default:
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (cpu >= 0)
			COUNT(near);
	}
	if (cpu < 0)
		return prev_cpu;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cpu, slice_ns, 0);
	return cpu;
}

void BPF_STRUCT_OPS(idle_nodes_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SHARED_DSQ, slice_ns, enq_flags);
}

void BPF_STRUCT_OPS(idle_nodes_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED_DSQ, 0);
}

/* Its presence alone stops the kernel's tracking, unless a flag keeps that. */
void BPF_STRUCT_OPS(idle_nodes_update_idle, s32 cpu, bool idle)
{
}

/* Without these the kernel unloads a scheduler when CPUs go and come. */
void BPF_STRUCT_OPS(idle_nodes_cpu_online, s32 cpu)
{
}

void BPF_STRUCT_OPS(idle_nodes_cpu_offline, s32 cpu)
{
}

s32 BPF_STRUCT_OPS_SLEEPABLE(idle_nodes_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, NUMA_NO_NODE);
}

SCX_OPS_DEFINE(idle_nodes_ops,
	       .select_cpu = (void *)idle_nodes_select_cpu,
	       .enqueue = (void *)idle_nodes_enqueue,
	       .dispatch = (void *)idle_nodes_dispatch,
	       .update_idle = (void *)idle_nodes_update_idle,
	       .cpu_online = (void *)idle_nodes_cpu_online,
	       .cpu_offline = (void *)idle_nodes_cpu_offline,
	       .init = (void *)idle_nodes_init,
	       .name = "idle_nodes");
