//! What an administrator of the credit scheduler can set, and the era of its code.

/// Which release of Xen the scheduler behaves like, where its behaviour changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Era {
    /// 2011: no rate limit yet; affinity is hard only.
    Xen4_1,
    /// 2012: rate limit (the timer is the whole limit); affinity is hard only; tickling ignores where idle CPUs
    /// are when a wake-up has the same priority as the running task.
    Xen4_2,
    /// 2013: one node affinity a VM (not a vCPU) is preferred; tickling looks for idle CPUs first.
    Xen4_3,
    /// 2015: soft affinity a vCPU.
    Xen4_5,
    /// 2016 and later: rate-limit timer is the remainder, yields pass the rate limit, tickled CPUs leave the
    /// idle mask at once.
    Xen4_9,
}

/// The scheduler rate controller (SRC) of 2011: see [`crate::policy::credit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateControl {
    /// Scheduling decisions in one interval from which on control is taken (`sched_rate_high`).
    pub rate_high: u32,
    /// Length of the interval, ns.
    pub interval_ns: u64,
}

impl Default for RateControl {
    /// The posted patch: 50 decisions in 10 ms.
    fn default() -> Self {
        Self {
            rate_high: 50,
            interval_ns: 10_000_000,
        }
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

impl Default for CreditSettings {
    /// Xen 4.5 and later as shipped: 30 ms timeslice, 1 ms rate limit.
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
