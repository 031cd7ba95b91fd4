//! The estimate of what a task will use when it wakes up (`util_est`; 5.2, 6.12).
//!
//! The average use of a task fades while it sleeps, and grows again only while it runs, so that a CPU with
//! tasks that have just woken up seems less used than it will be. Therefore a task keeps the use that it had
//! when it last went to sleep, and an average of that, and a CPU counts the sum over its tasks that run or
//! wait, if it is more than its own average.

use super::load::FULL_USE;
use crate::policy::linux::features::UseEstimates;

/// Difference from the average that makes none (`UTIL_EST_MARGIN`), in 1024ths of a CPU.
const MARGIN: u64 = FULL_USE / 100;
/// The newest use has a weight of one in this many (`UTIL_EST_WEIGHT_SHIFT`).
const WEIGHT: u64 = 4;

/// The estimate of a task, in 1024ths of a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UseEstimate {
    /// Use at the end of its last turn (5.2).
    last: u64,
    average: u64,
    /// Its use has not been averaged anew since the last update (`UTIL_AVG_UNCHANGED`).
    pub is_current: bool,
    /// How much of it counts in the sum of its CPU: all while it is in the queue.
    pub counted: u64,
}

impl UseEstimate {
    /// The estimate (`_task_util_est()`).
    pub fn value(&self) -> u64 {
        self.average.max(self.last)
    }

    /// The task goes to sleep with this use, and this average time of being runnable, in 1024ths
    /// (`util_est_dequeue()`, in 6.12 `util_est_update()`).
    pub fn update(&mut self, rule: UseEstimates, used: u64, runnable: u64) {
        if self.is_current {
            return;
        }
        let average = (self.average * (WEIGHT - 1) + used) / WEIGHT;
        match rule {
            UseEstimates::None => {}
            UseEstimates::LastAndAverage => {
                if used.abs_diff(self.average) < MARGIN {
                    return;
                }
                (self.last, self.average) = (used, average);
            }
            UseEstimates::RisesAtOnce => {
                if self.average <= used {
                    self.average = used;
                } else if self.average - used >= MARGIN && used + MARGIN >= runnable {
                    self.average = average;
                }
            }
        }
        self.is_current = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn util_est_follows_slowly_and_rises_at_once_in_6_12() {
        for (rule, values) in [
            (UseEstimates::LastAndAverage, [400, 400, 300, 400]),
            (UseEstimates::RisesAtOnce, [400, 325, 325, 400]),
        ] {
            let mut estimate = UseEstimate::default();
            let found = [(400, 400), (100, 100), (300, 400), (400, 400)].map(|(used, runnable)| {
                estimate.is_current = false;
                estimate.update(rule, used, runnable);
                estimate.value()
            });
            assert_eq!(found, values, "{rule:?}");
        }
    }
}
