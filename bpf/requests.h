/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Requests of user space to the loaded scheduler: user space runs the programs `prefer` and `preference_of`
 * with one of these as context. They return 0, or a negative error number.
 */
#ifndef TANDEM_REQUESTS_H
#define TANDEM_REQUESTS_H

/* The subject of a request. */
enum preference_scope {
	/* One thread, by its thread number in the initial namespace. */
	SCOPE_TASK = 0,
	/* A cgroup and all below it, by its id (the inode number of its directory). */
	SCOPE_CGROUP = 1,
};

/* The kind of a preference; the kinds differ in the switch that turns them on and in hysteresis. */
enum preference_kind {
	/* None: a request of this kind clears. */
	KIND_NONE = 0,
	/* Soft affinity to CPUs. */
	KIND_CPUS = 1,
	/* NUMA homes: `cpus` are the CPUs of `nodes`. */
	KIND_NODES = 2,
};

/* In place of `user`: the owner of the task does not matter. No user has this number. */
enum { ANY_USER = 0xffffffff };

/*
 * `prefer` sets or clears a preference. `preference_of` reads it: it fills all fields but `id`, `scope` and
 * `user`, and returns -ENOENT if there is none. Only one caller at a time may set.
 * -ESRCH: no such task or cgroup; -EINVAL: an empty set; -ENOSPC: all MAX_SETS sets are in use; -EDQUOT: all
 * sets of this payer are in use; -EPERM: the task is not `user`'s. Checking and setting are one step here, so
 * that no other task can have got the number in between.
 */
struct preference_request {
	u64 id;
	enum preference_scope scope;
	enum preference_kind kind;
	/* Exempt from rate control; for tasks only. */
	u32 latency_critical;
	/* For tasks only: the agent chose it, not a user. Inherited like the preference. */
	u32 by_agent;
	/* The owner that the task must have; for cgroups, the user on whose behalf the request is made. */
	u32 user;
	/* Whose quota of sets it counts towards: `user`, or the owner of several users; ANY_USER for root. */
	u32 payer;
	/*
	 * How long the task has run on CPUs of its set, and on others, ns; from `preference_of`, for tasks
	 * only.
	 */
	u64 home_ns;
	u64 away_ns;
	u64 cpus[CPU_WORDS];
	u64 nodes[NODE_WORDS];
};

#endif
