/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * First come, first served, and an account of what the kernel tells of tasks: for a test of that, not to be used.
 *
 * Where a task begins to run, what the kernel has counted for it since the last time is added up for all tasks.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define SHARED_DSQ 0

const volatile u64 slice_ns = 8000000;

struct accounts {
	u64 voluntary_switches;
	u64 involuntary_switches;
	u64 migrations;
	u64 user_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct accounts);
} accounts SEC(".maps");

/* What a task had when it began to run last. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct accounts);
} accounts_of_tasks SEC(".maps");

s32 BPF_STRUCT_OPS_SLEEPABLE(accounts_init)
{
	return scx_bpf_create_dsq(SHARED_DSQ, NUMA_NO_NODE);
}

void BPF_STRUCT_OPS(accounts_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, SHARED_DSQ, slice_ns, enq_flags);
}

void BPF_STRUCT_OPS(accounts_dispatch, s32 cpu, struct task_struct *prev)
{
	scx_bpf_dsq_move_to_local(SHARED_DSQ, 0);
}

void BPF_STRUCT_OPS(accounts_running, struct task_struct *p)
{
	u32 first = 0;
	struct accounts *all = bpf_map_lookup_elem(&accounts, &first);
	struct accounts *own = bpf_task_storage_get(&accounts_of_tasks, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!all || !own)
		return;
	all->voluntary_switches += p->nvcsw - own->voluntary_switches;
	all->involuntary_switches += p->nivcsw - own->involuntary_switches;
	all->migrations += p->se.nr_migrations - own->migrations;
	all->user_ns += p->utime - own->user_ns;
	own->voluntary_switches = p->nvcsw;
	own->involuntary_switches = p->nivcsw;
	own->migrations = p->se.nr_migrations;
	own->user_ns = p->utime;
}

SCX_OPS_DEFINE(accounts_ops,
	       .enqueue = (void *)accounts_enqueue,
	       .dispatch = (void *)accounts_dispatch,
	       .running = (void *)accounts_running,
	       .init = (void *)accounts_init,
	       .name = "accounts");
