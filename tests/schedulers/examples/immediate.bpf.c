/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Sends each task to an idle CPU, to run there at once (SCX_ENQ_IMMED): for tests of that, not to be used.
 *
 * The object is as one that was compiled against a vmlinux.h without the flag: it finds out from the kernel that runs.
 */
#define __SCX_ENUMS_BPF_H
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define SHARED_DSQ 0

/* The kernel's flag has a type and a name of our own: CO-RE ignores what follows the three underscores. */
enum scx_enq_flags___immed { SCX_ENQ_IMMED___immed = 1ULL << 33 };

/*
 * Where tasks go: to an idle CPU; to where they were, busy or not; to the shared queue, to which the flag
 * does not apply.
 */
enum { TO_IDLE, TO_PREVIOUS, TO_SHARED };

/* Whether to use the flag where the kernel has it. */
const volatile bool asks = true;
const volatile u32 where = TO_IDLE;
/* Flags beside it. */
const volatile u64 more_flags;

struct seen {
	u64 has_flag;
	u64 reenqueued;
	u64 told_immed;
	u64 told_preempted;
	u64 marked;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct seen);
} seen_map SEC(".maps");

#define COUNT(what)                                                                                                    \
	do {                                                                                                           \
		u32 first_ = 0;                                                                                        \
		struct seen *seen_ = bpf_map_lookup_elem(&seen_map, &first_);                                          \
		if (seen_)                                                                                             \
			seen_->what++;                                                                                 \
	} while (0)

static __always_inline u64 enq_immed(void)
{
	if (!bpf_core_enum_value_exists(enum scx_enq_flags___immed, SCX_ENQ_IMMED___immed))
		return 0;
	return bpf_core_enum_value(enum scx_enq_flags___immed, SCX_ENQ_IMMED___immed);
}

static __always_inline u64 flags(void)
{
	return (asks ? enq_immed() : 0) | more_flags;
}

static void send_to(struct task_struct *p, s32 cpu)
{
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cpu, SCX_SLICE_DFL, flags());
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

s32 BPF_STRUCT_OPS(immediate_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	bool is_idle = false;
	s32 cpu;

	if (enq_immed())
		COUNT(has_flag);
	if (where == TO_PREVIOUS) {
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, flags());
		return prev_cpu;
	}
	cpu = scx_bpf_select_cpu_dfl(p, prev_cpu, wake_flags, &is_idle);
	if (is_idle && where == TO_IDLE)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SCX_SLICE_DFL, flags());
	return cpu;
}

void BPF_STRUCT_OPS(immediate_enqueue, struct task_struct *p, u64 enq_flags)
{
	u32 reason = p->scx.flags & SCX_TASK_REENQ_REASON_MASK;
	s32 cpu;

	if (where == TO_SHARED) {
		scx_bpf_dsq_insert(p, SHARED_DSQ, SCX_SLICE_DFL, flags());
		return;
	}
	if (enq_flags & SCX_ENQ_REENQ) {
		COUNT(reenqueued);
		if (reason == SCX_TASK_REENQ_IMMED)
			COUNT(told_immed);
		if (reason == SCX_TASK_REENQ_PREEMPTED)
			COUNT(told_preempted);
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (cpu >= 0) {
			send_to(p, cpu);
			return;
		}
	}
	scx_bpf_dsq_insert(p, SHARED_DSQ, SCX_SLICE_DFL, 0);
}

void BPF_STRUCT_OPS(immediate_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED_DSQ, 0);
}

void BPF_STRUCT_OPS(immediate_running, struct task_struct *p)
{
	if (p->scx.flags & SCX_TASK_IMMED)
		COUNT(marked);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(immediate_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, NUMA_NO_NODE);
}

SCX_OPS_DEFINE(immediate_ops,
	       .select_cpu = (void *)immediate_select_cpu,
	       .enqueue = (void *)immediate_enqueue,
	       .dispatch = (void *)immediate_dispatch,
	       .running = (void *)immediate_running,
	       .init = (void *)immediate_init,
	       .name = "immediate");
