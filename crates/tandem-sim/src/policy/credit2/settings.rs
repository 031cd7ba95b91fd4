//! The settings that an administrator of credit2 has, and the release of its code.

use std::ops::RangeInclusive;

/// Which release of Xen the scheduler behaves like, where its behaviour changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Release {
    /// 4.12 and 4.13: a run queue has all CPUs of its part of the machine.
    Xen4_12,
    /// 4.14 and 4.15: a run queue has a limited number of CPUs (`cpu_add_to_runqueue()`).
    Xen4_14,
    /// 4.16 to 4.18: the one run queue of `credit2_runqueue=all` may hold more threads than cores fit.
    Xen4_17,
    /// 4.19 and later: a turn ends when the credit is down to that of the vCPU that was preempted for it, too
    /// (`csched2_runtime()`).
    Xen4_20,
}

/// Which CPUs share a run queue (`credit2_runqueue`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// None: a queue for each.
    Cpu,
    /// The threads of a core.
    Core,
    /// Those of a socket.
    Socket,
    /// Those of a NUMA node.
    Node,
    /// All.
    All,
}

/// Settings of credit2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit2Settings {
    /// Release whose behaviour to follow.
    pub release: Release,
    /// Which CPUs share a run queue.
    pub sharing: Sharing,
    /// Most CPUs of a run queue (`sched_credit2_max_cpus_runqueue`), at least 1; threads of a core stay
    /// together in any case. No limit before 4.14.
    pub queue_cpus_max: u32,
    /// Least run time before a preemption (`sched_ratelimit_us`), ns; 0 for off, else 100 us to 500 ms.
    pub ratelimit_ns: u64,
    /// Credit that a vCPU must be ahead of another to take a CPU other than its last
    /// (`sched_credit2_migrate_resist`), ns.
    pub migrate_resist_ns: u64,
    /// Time after which capped VMs get their budget anew (`credit2_cap_period_ms`), ns; at least 1 ms.
    pub cap_period_ns: u64,
}

impl Credit2Settings {
    /// Rate limits that Xen allows besides 0, ns.
    pub const RATELIMITS_NS: RangeInclusive<u64> = 100_000..=500_000_000;
    /// Periods of caps that this model allows, ns. Xen has no upper limit.
    pub const CAP_PERIODS_NS: RangeInclusive<u64> = 1_000_000..=1_000_000_000;
    /// Largest resistance that this model allows, ns: a vCPU starts with that much credit.
    pub const MIGRATE_RESIST_MAX_NS: u64 = 10_000_000;
}

impl Default for Credit2Settings {
    /// As shipped: a run queue for each socket, of at most 16 CPUs; a rate limit of 1 ms; the latest
    /// behaviour.
    fn default() -> Self {
        Self {
            release: Release::Xen4_20,
            sharing: Sharing::Socket,
            queue_cpus_max: 16,
            ratelimit_ns: 1_000_000,
            migrate_resist_ns: 500_000,
            cap_period_ns: 10_000_000,
        }
    }
}
