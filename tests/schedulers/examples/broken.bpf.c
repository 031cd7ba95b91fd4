/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a scheduler can do wrong, one mistake at a time. Never load it.
 *
 * Of some of these a real kernel never gets to know: its verifier reads the programs before they run, and refuses to
 * load one that may follow a null pointer or may not end. Others it finds out while the scheduler runs, takes it out,
 * and goes on with its own. The simulator has no verifier: it finds everything when it happens, and ends the run.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define SHARED_DSQ 0

enum mistake {
	NO_MISTAKE,
	/* Uses what a map does not have. The verifier: "invalid mem access 'map_value_or_null'". */
	NULL_VALUE,
	/* The verifier: "infinite loop detected", or too many instructions. */
	NO_END,
	/* Sends a task to a CPU where it may not run. */
	FORBIDDEN_CPU,
	/* Inserts into a queue that has not been created. */
	NO_SUCH_QUEUE,
	/* Chooses a CPU that does not exist. */
	NO_SUCH_CPU,
	/* Inserts a task twice. */
	TWICE,
	/* Gives up, for a reason of its own. */
	GIVES_UP,
	/* Reports that to its loader. */
	FAILS_TO_START,
	/* Takes tasks and never gives them back. The kernel's watchdog would find it after some seconds. */
	LOSES_TASKS,
};

const volatile u32 mistake = NO_MISTAKE;
const volatile u8 small_setting;
const volatile u16 settings_list[4];

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} empty SEC(".maps");

static volatile u64 rounds;

/* clang does not see through it that the address is 0, and keeps the access. */
static void follow_null(void)
{
	u32 key = 1;
	u64 *value = bpf_map_lookup_elem(&empty, &key);

	*(volatile u64 *)value = 1;
}

s32 BPF_STRUCT_OPS(broken_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	return mistake == NO_SUCH_CPU ? 12345 : prev_cpu;
}

void BPF_STRUCT_OPS(broken_enqueue, struct task_struct *p, u64 enq_flags)
{
	switch (mistake) {
	case NULL_VALUE:
		follow_null();
		break;
	case NO_END:
		while (rounds + 1)
			rounds = rounds & 1;
		break;
	case FORBIDDEN_CPU:
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | bpf_cpumask_first_zero(p->cpus_ptr), SCX_SLICE_DFL, enq_flags);
		return;
	case NO_SUCH_QUEUE:
		scx_bpf_dsq_insert(p, 77, SCX_SLICE_DFL, enq_flags);
		return;
	case TWICE:
		scx_bpf_dsq_insert(p, SHARED_DSQ, SCX_SLICE_DFL, enq_flags);
		break;
	case GIVES_UP:
		scx_bpf_error("task %d is one too many", p->pid);
		break;
	case LOSES_TASKS:
		return;
	}
	scx_bpf_dsq_insert(p, SHARED_DSQ, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(broken_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED_DSQ, 0);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(broken_init)
{
	if (mistake == FAILS_TO_START)
		return -ENOMEM;
	return scx_bpf_create_dsq(SHARED_DSQ, NUMA_NO_NODE);
}

SCX_OPS_DEFINE(broken_ops,
	       .select_cpu = (void *)broken_select_cpu,
	       .enqueue = (void *)broken_enqueue,
	       .dispatch = (void *)broken_dispatch,
	       .init = (void *)broken_init,
	       .name = "broken");
