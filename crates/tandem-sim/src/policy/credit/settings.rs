//! The settings that an administrator of the credit scheduler has, and the era of its code.

use std::ops::RangeInclusive;

/// Which release of Xen the scheduler behaves like, where its behaviour changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Era {
    /// 2011 and 2012: affinity is hard only; a wake-up of higher priority preempts at once even if another
    /// CPU idles; the timer of the rate limit is the whole limit.
    Xen4_2,
    /// 2013: one node affinity for each VM, not for each vCPU, is preferred; a wake-up looks for an idle CPU
    /// before it preempts.
    Xen4_3,
    /// 2015: soft affinity for each vCPU.
    Xen4_5,
    /// 2016 and later: the timer of the rate limit is its remainder, a yield passes it, tickled CPUs leave
    /// the idle mask at once, stealing skips CPUs with empty queues and starts where it last found a vCPU.
    Xen4_9,
    /// 2019 and later: a running vCPU no longer moves to an idle CPU because a more urgent one comes; a vCPU
    /// that was parked is not boosted.
    Xen4_13,
}

/// The scheduler rate controller (SRC) of 2011: see [`crate::policy::credit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateControl {
    /// Scheduling decisions in one interval that turn control on (`sched_rate_high`).
    pub rate_high: u32,
    /// Length of the interval, ns.
    pub interval_ns: u64,
}

impl Default for RateControl {
    /// The posted patch: 50 decisions in 10 ms.
    fn default() -> Self {
        Self { rate_high: 50, interval_ns: 10_000_000 }
    }
}

/// Settings of the credit scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditSettings {
    /// Release whose behaviour to follow.
    pub era: Era,
    /// Timeslice (`sched_credit_tslice_ms`), ns; 1 ms to 1 s.
    pub timeslice_ns: u64,
    /// Least run time before a preemption (`sched_ratelimit_us`), ns; 0 for off, else 100 us to 500 ms.
    pub ratelimit_ns: u64,
    /// A task that ran less than this ago is not stolen (`vcpu_migration_delay`), ns; 0 for off.
    pub migration_delay_ns: u64,
    /// The rate controller (`sched_rate_control`), if on.
    pub rate_control: Option<RateControl>,
}

impl CreditSettings {
    /// Timeslices that Xen allows, ns.
    pub const TIMESLICES_NS: RangeInclusive<u64> = 1_000_000..=1_000_000_000;
    /// Rate limits that Xen allows besides 0, ns.
    pub const RATELIMITS_NS: RangeInclusive<u64> = 100_000..=500_000_000;
}

impl Default for CreditSettings {
    /// As shipped since 2012: 30 ms timeslice, 1 ms rate limit; the latest behaviour.
    fn default() -> Self {
        Self {
            era: Era::Xen4_9,
            timeslice_ns: 30_000_000,
            ratelimit_ns: 1_000_000,
            migration_delay_ns: 0,
            rate_control: None,
        }
    }
}
