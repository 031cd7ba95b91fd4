/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What user space asks the loaded scheduler, by running its programs `prefer` and `preference_of` with one of these
 * as context. They return 0, or a negative error number.
 */
#ifndef TANDEM_REQUESTS_H
#define TANDEM_REQUESTS_H

/* Whom a request is about. */
enum preference_scope {
	/* One thread, by its thread number in the initial namespace. */
	SCOPE_TASK = 0,
	/* A cgroup and all below it, by its id (the inode number of its directory). */
	SCOPE_CGROUP = 1,
};

/* What a preference is for; the two differ in the switch that turns them on and in hysteresis. */
enum preference_kind {
	/* None: a request of this kind clears. */
	KIND_NONE = 0,
	/* Soft affinity to CPUs. */
	KIND_CPUS = 1,
	/* NUMA homes: `cpus` are the CPUs of `nodes`. */
	KIND_NODES = 2,
};

/* For `user`: whose task it is does not matter. No user has this number. */
enum { ANY_USER = 0xffffffff };

/*
 * Sets or clears a preference: `prefer`. Reads it back: `preference_of`, which fills all fields but `id`, `scope` and
 * `user` and returns -ENOENT where there is none. One caller at a time may set.
 * -ESRCH: no such task or cgroup; -EINVAL: an empty set; -ENOSPC: all MAX_SETS sets are in use, -EDQUOT: all that one payer may have; -EPERM: the task is not
 * `user`'s. Looking and setting are one here, so that no other task can have got the number in between.
 */
struct preference_request {
	u64 id;
	enum preference_scope scope;
	enum preference_kind kind;
	/* Exempt from rate control; of tasks only. */
	u32 latency_critical;
	/* Of tasks only: the agent chose it, not somebody who asked for it. Inherited like the preference. */
	u32 by_agent;
	/* Whose task it has to be; of cgroups, for whom it is asked. */
	u32 user;
	/* Among whose sets it counts: `user`, or who is behind several; ANY_USER for root. */
	u32 payer;
	/* How long the task has run on CPUs of its set, and on others, ns; told by `preference_of`, of tasks only. */
	u64 home_ns;
	u64 away_ns;
	u64 cpus[CPU_WORDS];
	u64 nodes[NODE_WORDS];
};

#endif
