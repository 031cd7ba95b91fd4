//! Spin locks of kernels: the cost of taking them, and of handing them from one CPU to the next.
//!
//! Taking a free lock costs a fixed time. A contended lock is handed over: its cache line travels from the
//! CPU that releases it to the one whose turn it is, near or far. The waiters of a *ticket* lock all watch
//! that one line: the release takes it from all of them, they all fetch it again one after the other, and the
//! one whose turn it is may be the first or the last with equal chance (Boyd-Wickizer and others,
//! "Non-scalable locks are dangerous", Ottawa Linux Symposium 2012). A waiter of a *queued* lock watches a
//! line of its own, so that the other waiters do not matter.
//!
//! Limits: a free lock costs the same wherever its line is.

use crate::policy::linux::SpinLockKind;

/// Cost of taking a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpinLock {
    /// Lock and unlock without contention, ns.
    pub uncontended_ns: u64,
    /// From one `PAUSE` of a loop that waits for a lock to the next, cycles.
    pub pause_interval_cycles: u32,
}

impl Default for SpinLock {
    /// - 14.9 ns on a 2.4 GHz Westmere (Waiman Long's queued read/write lock series, lkml, 2013).
    /// - `PAUSE` takes about 10 cycles before Skylake (Intel 64 and IA-32 Architectures Optimization
    ///   Reference Manual); as much again is assumed for the load, the comparison and the jump around it.
    fn default() -> Self {
        Self { uncontended_ns: 15, pause_interval_cycles: 20 }
    }
}

/// Looks at a paravirtual lock after which a waiter halts (`SPIN_THRESHOLD`).
const SPIN_THRESHOLD: u64 = 1 << 15;

/// Looks at a queued paravirtual lock after which a waiter looks at the one before it (`PV_PREV_CHECK_MASK`).
const PREV_CHECK: u64 = 1 << 8;

impl SpinLock {
    /// How long a waiter of a paravirtual lock spins until it halts, ns.
    pub fn threshold_ns(self, clock_mhz: u32) -> u64 {
        self.looks_ns(SPIN_THRESHOLD, clock_mhz)
    }

    /// How long it spins until it looks at the waiter before it, ns.
    pub fn prev_check_ns(self, clock_mhz: u32) -> u64 {
        self.looks_ns(PREV_CHECK, clock_mhz)
    }

    fn looks_ns(self, looks: u64, clock_mhz: u32) -> u64 {
        (looks * u64::from(self.pause_interval_cycles) * 1_000).div_ceil(u64::from(clock_mhz.max(1))).max(1)
    }

    /// From the release of a lock to the moment at which the CPU whose turn it is has it, ns: `transfer_ns`
    /// is the time in which a cache line travels between the two, `spinning` how many CPUs watch the lock,
    /// that one included.
    #[inline]
    pub fn hand_over_ns(kind: SpinLockKind, transfer_ns: u64, spinning: u32) -> u64 {
        match kind {
            SpinLockKind::Queued => transfer_ns,
            SpinLockKind::Ticket => transfer_ns * (u64::from(spinning) + 1) / 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_waiters_of_a_ticket_lock_fetch_its_line() {
        for (spinning, ticket_ns) in [(1, 100), (2, 150), (3, 200), (79, 4_000)] {
            assert_eq!(SpinLock::hand_over_ns(SpinLockKind::Ticket, 100, spinning), ticket_ns);
            assert_eq!(SpinLock::hand_over_ns(SpinLockKind::Queued, 100, spinning), 100);
        }
    }
}
