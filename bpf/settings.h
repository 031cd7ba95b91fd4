/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The scheduler's input before it is loaded: settings, and the machine's topology. All of it is read-only for
 * the scheduler, so the verifier knows the values and removes code that is switched off.
 */
#ifndef TANDEM_SETTINGS_H
#define TANDEM_SETTINGS_H

enum limits {
	/* CPUs that a machine may have; the command refuses larger ones. */
	MAX_CPUS = 1024,
	/* Groups of CPUs that share a last-level cache inside one NUMA node. */
	MAX_LLCS = 256,
	MAX_NODES = 128,
	/* Threads of a core that are considered. */
	MAX_CORE_THREADS = 8,
	/* 64-bit words of a set of CPUs, and of a set of nodes. */
	CPU_WORDS = MAX_CPUS / 64,
	NODE_WORDS = MAX_NODES / 64,
};

struct settings {
	/* CPUs have numbers below this one. */
	u32 nr_cpus;
	u32 nr_llcs;
	u32 nr_nodes;
	/* Number of online CPUs. */
	u32 nr_online;
	/* Whether some core has more than one thread. */
	bool smt;
	/* Guest mode: one domain over all vCPUs; the topology then has one LLC and one node. */
	bool guest;
	bool cgroup_weights;
	bool soft_affinity;
	bool numa_homes;
	bool rate_control;
	bool directed_yield;

	/*
	 * Longest and shortest time that a task runs while others wait: higher, fewer switches; lower,
	 * shorter waits. With more than ROUND_SLICES tasks per CPU slices are shorter, down to the shortest.
	 */
	u64 slice_ns;
	u64 slice_min_ns;
	/*
	 * Most CPU time that a task may be owed when it wakes: higher, sleepers run sooner after they wake;
	 * lower, they catch up less of what they missed.
	 */
	u64 sleeper_credit_ns;
	/*
	 * How much more CPU time than a waking task, its credit aside, a running one must have had to be
	 * preempted, and for how long it must have run: higher, fewer preemptions.
	 */
	u64 preempt_margin_ns;
	/*
	 * A task that has run for less than this, and wakes another synchronously, is expected to sleep soon:
	 * the other stays on its CPU. 0: never.
	 */
	u64 sync_run_max_ns;
	/*
	 * How much CPU time a task must be owed before it moves from the CPU where its slice ended to another
	 * one of its LLC; twice that to another LLC: higher, fewer moves; lower, fairer.
	 */
	u64 migration_margin_ns;
	/* How often a CPU checks whether another LLC is less loaded. */
	u64 balance_interval_ns;

	/*
	 * Soft affinity: with preferred x utilisation of the set > allowed x utilisation of the rest, a task
	 * that finds no idle CPU waits anywhere, not only in its set.
	 */
	u32 allowed;
	u32 preferred;
	/* NUMA homes: a task that had to leave stays away for at least this long. */
	u64 away_min_ns;

	/* Rate control: a CPU that made `rate_threshold` decisions in a window is limited in the next one. */
	u64 rate_window_ns;
	u32 rate_threshold;
	/* A task runs for at least this long before one that wakes may preempt it; 0: off. */
	u64 ratelimit_ns;
	/* Tasks with nice < 0 or marked as latency-critical preempt in spite of rate control. */
	bool latency_exempt;

	/* Guest mode: an idle vCPU that lost time to the host less than this ago counts as not running. */
	u64 steal_memory_ns;
};

/* A CPU's place. */
struct cpu_place {
	u16 llc;
	u16 node;
	/* The next thread of its core, in a ring; itself if it has none. */
	u16 next_thread;
	/* The next CPU of its LLC that is not isolated, in a ring; an isolated one leads into it. */
	u16 next_in_llc;
	bool online;
	/* Only tasks that are bound to it run here: it counts for no LLC. */
	bool isolated;
	/* The kernel stops its tick while one task runs there (nohz_full). */
	bool tickless;
};

/* An LLC's place: the LLCs of a node have consecutive numbers. */
struct llc_place {
	u16 node;
	/* Without isolated CPUs; the first of those that count. */
	u16 nr_cpus;
	u16 first_cpu;
};

/* A node's LLCs, and all nodes in order of their distance from it, itself first. */
struct node_place {
	u16 first_llc;
	u16 nr_llcs;
	/* The kernel's number of the node. */
	s32 id;
	u8 by_distance[MAX_NODES];
};

#endif
