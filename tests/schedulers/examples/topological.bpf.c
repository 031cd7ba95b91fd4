/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A scheduler by topological numbers of CPUs, which sched_ext calls cids: from Linux 7.3 on.
 *
 * CPUs of a core, of a last-level cache and of a node have cids that follow each other, however the machine numbers its
 * CPUs. So "an idle CPU, as near as possible" is one walk through the cids, from the beginning of the cache on, and the
 * kernel gives and takes cids wherever another scheduler has CPUs: in `select_cid`, `dispatch`, `update_idle`,
 * `SCX_DSQ_LOCAL_ON | cid`.
 *
 * There is a queue for each cache. A CPU takes from its own cache's, then from those of the others, near ones first. The
 * scheduler keeps the set of idle cids itself, and for each task the set of cids that it may use, both in an arena.
 */
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

#define SLICE_NS 5000000ULL
#define CIDS_MAX 1024

struct {
	__uint(type, BPF_MAP_TYPE_ARENA);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1 << 12);
	__ulong(map_extra, 0x1ull << 44);
} arena SEC(".maps");

/* A set of cids, from 0 on. */
struct cids {
	struct scx_cmask mask;
	u64 words[CMASK_NR_WORDS(CIDS_MAX)];
};

struct cids __arena *idle;

/* The first cid of the cache of each cid, and the number of that cache. */
struct place {
	s32 llc_cid;
	s32 llc;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CIDS_MAX);
	__type(key, s32);
	__type(value, struct place);
} places SEC(".maps");

u32 llcs;

/* Calls of `set_cmask`, and idle cids that were found in the same cache, or farther away. */
u64 affinities, found_near, found_far;

struct task {
	struct cids __arena *allowed;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task);
} tasks SEC(".maps");

static struct place *place_of(s32 cid)
{
	return bpf_map_lookup_elem(&places, &cid);
}

static struct cids __arena *allowed_of(struct task_struct *p)
{
	struct task *task = bpf_task_storage_get(&tasks, p, 0, 0);

	/* The verifier wants to see which arena the program uses. */
	asm volatile("" :: "r"(&arena));
	return task ? task->allowed : NULL;
}

/* A set in a page of its own, which is more than it takes: the simplest way to have one. */
static struct cids __arena *new_set(u32 count)
{
	struct cids __arena *set = bpf_arena_alloc_pages(&arena, NULL, 1, NUMA_NO_NODE, 0);

	if (set)
		cmask_init(&set->mask, 0, count);
	return set;
}

/* Takes an idle cid that the task may use: its last one, or else one as near to that as possible; -1 if there is none. */
static s32 take_idle(struct task_struct *p, s32 last)
{
	struct cids __arena *allowed = allowed_of(p);
	struct place *place = place_of(last), *found;
	u32 count = scx_bpf_nr_cids(), walked;
	s32 cid;

	if (!allowed || !place)
		return -1;
	if (cmask_test(last, &allowed->mask) && cmask_test_and_clear(last, &idle->mask))
		return last;
	bpf_for(walked, 0, count) {
		cid = place->llc_cid + walked;
		if (cid >= count)
			cid -= count;
		if (!cmask_test(cid, &allowed->mask) || !cmask_test_and_clear(cid, &idle->mask))
			continue;
		found = place_of(cid);
		if (found && found->llc == place->llc)
			found_near++;
		else
			found_far++;
		return cid;
	}
	return -1;
}

s32 BPF_STRUCT_OPS(topological_select_cid, struct task_struct *p, s32 prev_cid, u64 wake_flags)
{
	s32 cid = take_idle(p, prev_cid);

	if (cid < 0)
		return prev_cid;
	scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, SLICE_NS, 0);
	return cid;
}

void BPF_STRUCT_OPS(topological_enqueue, struct task_struct *p, u64 enq_flags)
{
	s32 last = scx_bpf_task_cid(p), cid = take_idle(p, last);
	struct place *place = place_of(last);

	if (cid >= 0)
		scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL_ON | cid, SLICE_NS, enq_flags);
	else if (place)
		scx_bpf_dsq_insert(p, place->llc, SLICE_NS, enq_flags);
}

void BPF_STRUCT_OPS(topological_dispatch, s32 cid, struct task_struct *prev)
{
	struct place *place = place_of(cid);
	u32 steps, llc;

	if (!place)
		return;
	bpf_for(steps, 0, llcs) {
		llc = place->llc + steps;
		if (scx_bpf_dsq_move_to_local(llc < llcs ? llc : llc - llcs, 0))
			return;
	}
}

void BPF_STRUCT_OPS(topological_update_idle, s32 cid, bool idles)
{
	asm volatile("" :: "r"(&arena));
	if (idles)
		cmask_set(cid, &idle->mask);
	else
		cmask_clear(cid, &idle->mask);
}

void BPF_STRUCT_OPS(topological_set_cmask, struct task_struct *p, const struct scx_cmask *cids)
{
	struct cids __arena *allowed = allowed_of(p);

	if (allowed)
		cmask_copy(&allowed->mask, (struct scx_cmask __arena *)(long)cids);
	__sync_fetch_and_add(&affinities, 1);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(topological_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct task *task = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	struct cids __arena *allowed;

	if (!task)
		return -ENOMEM;
	allowed = new_set(scx_bpf_nr_cids());
	if (!allowed)
		return -ENOMEM;
	bpf_rcu_read_lock();
	cmask_from_cpumask(&allowed->mask, p->cpus_ptr);
	bpf_rcu_read_unlock();
	task->allowed = allowed;
	return 0;
}

void BPF_STRUCT_OPS(topological_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct cids __arena *allowed = allowed_of(p);

	if (allowed)
		bpf_arena_free_pages(&arena, allowed, 1);
}

s32 BPF_STRUCT_OPS_SLEEPABLE(topological_init)
{
	u32 count = scx_bpf_nr_cids();
	struct scx_cid_topo topology;
	struct place *place;
	s32 cid, err;

	if (count > CIDS_MAX) {
		scx_bpf_error("there are %u CPUs, more than %u", count, CIDS_MAX);
		return -ERANGE;
	}
	idle = new_set(count);
	if (!idle)
		return -ENOMEM;
	bpf_for(cid, 0, count) {
		scx_bpf_cid_topo(cid, &topology);
		place = place_of(cid);
		/* A CPU that is offline has no place. */
		if (!place || topology.llc_idx < 0)
			continue;
		/* `update_idle` comes with the next change. A CPU that is busy now gets a task too many, once. */
		cmask_set(cid, &idle->mask);
		*place = (struct place){ .llc_cid = topology.llc_cid, .llc = topology.llc_idx };
		if (topology.llc_cid != cid)
			continue;
		err = scx_bpf_create_dsq(topology.llc_idx, NUMA_NO_NODE);
		if (err)
			return err;
		llcs++;
	}
	return 0;
}

SCX_OPS_CID_DEFINE(topological_ops,
		   .select_cid = (void *)topological_select_cid,
		   .enqueue = (void *)topological_enqueue,
		   .dispatch = (void *)topological_dispatch,
		   .update_idle = (void *)topological_update_idle,
		   .set_cmask = (void *)topological_set_cmask,
		   .init_task = (void *)topological_init_task,
		   .exit_task = (void *)topological_exit_task,
		   .init = (void *)topological_init,
		   .name = "topological");
