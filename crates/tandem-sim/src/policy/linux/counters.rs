//! The scheduler's counters, by the names of `/proc/schedstat` where that has them. Each part counts its own
//! events.

use super::{LinuxSettings, SoftAffinity};

/// Events of queues since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueCounters {
    /// Yields, including directed ones.
    pub yld_count: u64,
    /// Decisions.
    pub sched_count: u64,
    /// Decisions by which a CPU became idle.
    pub sched_goidle: u64,
    /// Wake-ups.
    pub ttwu_count: u64,
    /// Wake-ups of a task onto the CPU of its waker.
    pub ttwu_local: u64,
    /// Tasks that preempted another one when they came into its CPU's queue.
    pub wakeup_preemptions: u64,
    /// Slices that ended at a tick or wake-up while others waited.
    pub slices_ended: u64,
    /// Tasks that blocked and stayed in the queue because they were ahead of their share.
    pub delayed: u64,
    /// Those of these that woke up before they had left.
    pub delayed_stayed: u64,
    /// Periods of limits that groups have used.
    pub nr_periods: u64,
    /// Groups that were throttled on a CPU.
    pub nr_throttled: u64,
}

/// Events of placement since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PlacementCounters {
    /// Wake-ups that pulled a task to the CPU of its waker.
    pub ttwu_move_affine: u64,
    /// Decisions to search for a CPU only among those that the task prefers; with work-conserving soft
    /// affinity, placements on one of these.
    pub soft_preferred: u64,
    /// Decisions to search all that it may use; placements on one that it does not prefer.
    pub soft_allowed: u64,
}

/// Events of balancing since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct BalanceCounters {
    /// Tasks that balancing moved from one queue to another.
    pub lb_gained: u64,
    /// Running tasks that active balancing moved.
    pub alb_pushed: u64,
    /// Tasks that a CPU without work took, or asked for, because they prefer it to their CPU.
    pub soft_returned: u64,
    /// Tasks that NUMA balancing moved to the node that they prefer.
    pub numa_moves: u64,
    /// Pairs of tasks that NUMA balancing swapped.
    pub numa_swaps: u64,
}

/// Names and values; those of soft affinity and of NUMA balancing only if the kernel has it.
pub(super) fn named(
    settings: &LinuxSettings,
    queues: &QueueCounters,
    placement: &PlacementCounters,
    balance: &BalanceCounters,
) -> Vec<(&'static str, u64)> {
    let mut named = vec![
        ("yld_count", queues.yld_count),
        ("sched_count", queues.sched_count),
        ("sched_goidle", queues.sched_goidle),
        ("ttwu_count", queues.ttwu_count),
        ("ttwu_local", queues.ttwu_local),
        ("ttwu_move_affine", placement.ttwu_move_affine),
        ("lb_gained", balance.lb_gained),
        ("alb_pushed", balance.alb_pushed),
        ("wakeup_preemptions", queues.wakeup_preemptions),
        ("slices_ended", queues.slices_ended),
        ("delayed", queues.delayed),
        ("delayed_stayed", queues.delayed_stayed),
    ];
    if settings.soft_affinity != SoftAffinity::Ignored {
        named.extend([
            ("soft_preferred", placement.soft_preferred),
            ("soft_allowed", placement.soft_allowed),
            ("soft_returned", balance.soft_returned),
        ]);
    }
    if queues.nr_periods > 0 {
        named.extend([("nr_periods", queues.nr_periods), ("nr_throttled", queues.nr_throttled)]);
    }
    if settings.numa_balancing {
        named.extend([("numa_moves", balance.numa_moves), ("numa_swaps", balance.numa_swaps)]);
    }
    named
}
