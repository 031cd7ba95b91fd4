/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A scheduler by cids that makes the mistake it is told to make, for tests. Without one it numbers the CPUs itself, in
 * reverse, and finds its tasks by numbers that are never used twice.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

const volatile u32 mistake;

enum mistake {
	NO_MISTAKE,
	SELECTS_NOTHING,
	KICKS_NOTHING,
	SENDS_NOWHERE,
	NUMBERS_LATE,
	NUMBERS_TWICE,
	NUMBERS_TOO_FEW,
	GRANTS_TO_NOBODY,
	FAILS_TO_NUMBER,
	ASKS_NOTHING,
};

#define CPUS_MAX 1024
#define NO_CID 12345

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 16);
	__ulong(map_extra, 0x1ull << 44);
} arena SEC(".maps");

/* The cid of each CPU, and the first cid of the only shard. */
s32 __arena *cids;
s32 __arena *shards;

s32 BPF_STRUCT_OPS_SLEEPABLE(broken_init_cids)
{
	u32 count = scx_bpf_nr_cids();
	s32 cpu;

	if (mistake == FAILS_TO_NUMBER)
		return -EINVAL;
	cids = bpf_arena_alloc_pages(&arena, NULL, 1, NUMA_NO_NODE, 0);
	shards = bpf_arena_alloc_pages(&arena, NULL, 1, NUMA_NO_NODE, 0);
	if (!cids || !shards || count > CPUS_MAX)
		return -ENOMEM;
	bpf_for(cpu, 0, count)
		cids[cpu] = mistake == NUMBERS_TWICE ? cpu / 2 : count - 1 - cpu;
	scx_bpf_cid_override(cids, mistake == NUMBERS_TOO_FEW ? count - 1 : count, shards, 1);
	return 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(broken_init)
{
	u32 count = scx_bpf_nr_cids();
	struct scx_cid_topo topology;
	s32 cid, error;

	if (mistake == NUMBERS_LATE)
		scx_bpf_cid_override(cids, count, shards, 1);
	if (mistake == ASKS_NOTHING)
		scx_bpf_cid_topo(-1, &topology);
	if (mistake == GRANTS_TO_NOBODY) {
		error = scx_bpf_sub_kill(77, "nobody is there");
		scx_bpf_error("nobody is there: %d", error);
	}
	bpf_for(cid, 0, count) {
		scx_bpf_cid_topo(cid, &topology);
		if (scx_bpf_cid_to_cpu(cid) != count - 1 - cid || scx_bpf_cpu_to_cid(count - 1 - cid) != cid ||
		    topology.core_cid != -1 || topology.shard_cid != 0)
			scx_bpf_error("cid %d is not what it was made", cid);
	}
	return 0;
}

s32 BPF_STRUCT_OPS(broken_select_cid, struct task_struct *p, s32 prev_cid, u64 wake_flags)
{
	if (prev_cid != scx_bpf_task_cid(p))
		scx_bpf_error("cid %d and %d are one CPU", prev_cid, scx_bpf_task_cid(p));
	if (mistake == KICKS_NOTHING)
		scx_bpf_kick_cid(NO_CID, 0);
	return mistake == SELECTS_NOTHING ? NO_CID : prev_cid;
}

void BPF_STRUCT_OPS(broken_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct task_struct *same;
	s32 cid = mistake == SENDS_NOWHERE ? NO_CID : scx_bpf_task_cid(p);

	bpf_rcu_read_lock();
	same = scx_bpf_tid_to_task(p->scx.tid);
	if (!same || same->pid != p->pid)
		scx_bpf_error("task %d is not found by its number", p->pid);
	bpf_rcu_read_unlock();
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cid, SCX_SLICE_DFL, enq_flags);
}

SCX_OPS_CID_DEFINE(broken_ops,
		   .select_cid = (void *)broken_select_cid,
		   .enqueue = (void *)broken_enqueue,
		   .init_cids = (void *)broken_init_cids,
		   .init = (void *)broken_init,
		   .flags = SCX_OPS_TID_TO_TASK,
		   .name = "broken_cids");
