//! What stolen time leaves of a CPU's capacity.
//!
//! A guest that is told of stolen time counts it as time that its tasks do not have
//! (`update_rq_clock_task()`), and gives a CPU the less to do the more is stolen from it (`scale_rt_power()`,
//! `scale_rt_capacity()`). 3.6 and 4.2 remember it for half a second to one second, later kernels with the
//! half-life of their other averages.

use super::decay::Decay;
use crate::policy::linux::domains::CPU_CAPACITY;

const SCALE: u64 = CPU_CAPACITY as u64;

/// Half of `sched_time_avg_ms` (`sched_avg_period()`), ns.
const PERIOD_NS: u64 = 500_000_000;

/// How a CPU remembers time that was stolen from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy::linux) enum StolenMemory {
    /// A sum that is halved every half a second (`rt_avg`, `sched_avg_update()`).
    Halved,
    /// An average like that of load (`avg_irq`, `update_irq_load_avg()`).
    Average,
}

/// The time that was stolen from a CPU of late.
#[derive(Clone, Copy, Debug)]
pub(in crate::policy::linux) struct Stolen {
    memory: StolenMemory,
    sum: u64,
    /// Start of the present period of a sum that is halved, ns.
    age_stamp_ns: u64,
    decay: Decay,
}

impl Stolen {
    pub fn new(memory: StolenMemory) -> Self {
        Self { memory, sum: 0, age_stamp_ns: 0, decay: Decay::default() }
    }

    /// So much of the time up to now was stolen, and has just become known. As in the kernels, it counts as
    /// the last before now.
    pub fn add(&mut self, now_ns: u64, stolen_ns: u64) {
        match self.memory {
            StolenMemory::Halved => self.sum += stolen_ns,
            StolenMemory::Average => {
                self.advance(now_ns.saturating_sub(stolen_ns), 0);
                self.advance(now_ns, 1);
            }
        }
    }

    fn advance(&mut self, now_ns: u64, is_stolen: u64) {
        if let Some(elapsed) = self.decay.advance(now_ns) {
            self.sum = elapsed.apply(self.sum, is_stolen);
        }
    }

    /// What is left of the capacity, in 1024ths, at least 1.
    pub fn left(&mut self, now_ns: u64) -> u64 {
        let used = match self.memory {
            StolenMemory::Halved => {
                while now_ns - self.age_stamp_ns > PERIOD_NS {
                    self.age_stamp_ns += PERIOD_NS;
                    self.sum /= 2;
                }
                let total_ns = PERIOD_NS + now_ns - self.age_stamp_ns;
                SCALE * self.sum.min(total_ns) / total_ns
            }
            StolenMemory::Average => {
                self.advance(now_ns, 0);
                SCALE * self.sum / self.decay.divider()
            }
        };
        SCALE.saturating_sub(used).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    /// What is left after so many periods, at the end of each of which so much of it was stolen.
    fn left(memory: StolenMemory, period_ns: u64, stolen_ns: u64, periods: u64) -> u64 {
        let mut stolen = Stolen::new(memory);
        (1..=periods)
            .map(|nth| {
                stolen.add(nth * period_ns, stolen_ns);
                stolen.left(nth * period_ns)
            })
            .last()
            .unwrap()
    }

    #[test]
    fn scale_rt_capacity_leaves_the_share_that_is_not_stolen() {
        for memory in [StolenMemory::Halved, StolenMemory::Average] {
            assert_eq!(left(memory, MS, 0, 5_000), SCALE, "{memory:?}");
            let half = left(memory, MS, MS / 2, 5_000);
            assert!(half.abs_diff(SCALE / 2) <= 16, "{memory:?}: {half}");
            assert!(left(memory, MS, MS, 5_000) <= 8, "{memory:?}: {}", left(memory, MS, MS, 5_000));
        }
    }

    #[test]
    fn update_irq_load_avg_and_sched_avg_update_forget_at_their_rates() {
        for (memory, after_ns, left_after) in [
            // One half-life of 32 periods of 1024 us after all was stolen.
            (StolenMemory::Average, 32 * 1024 * 1024, SCALE / 2),
            // 5 s of all of it: the sum is a little under 1 s, half of which is left after the next half
            // second.
            (StolenMemory::Halved, 500 * MS, SCALE / 2),
        ] {
            let mut stolen = Stolen::new(memory);
            for nth in 1..=5_000 {
                stolen.add(nth * MS, MS);
                stolen.left(nth * MS);
            }
            let left = stolen.left(5_000 * MS + after_ns);
            assert!(left.abs_diff(left_after) <= 12, "{memory:?}: {left}");
            assert!(stolen.left(60_000 * MS) >= SCALE - 1, "{memory:?}");
        }
    }

    proptest! {
        #[test]
        fn capacity_is_between_1_and_all(steps in prop::collection::vec((1..900_000_000u64, 0..=100u64), 1..60)) {
            for memory in [StolenMemory::Halved, StolenMemory::Average] {
                let (mut stolen, mut now_ns) = (Stolen::new(memory), 0);
                for &(passed_ns, stolen_pct) in &steps {
                    now_ns += passed_ns;
                    stolen.add(now_ns, passed_ns * stolen_pct / 100);
                    prop_assert!((1..=SCALE).contains(&stolen.left(now_ns)));
                }
            }
        }
    }
}
