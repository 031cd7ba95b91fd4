//! Limits on the rate of decisions: the rate controller of 2011, and the rate limit that was merged instead.
//!
//! *Rate controller* (SRC, posted to xen-devel on 2011-10-24): each CPU counts its decisions in intervals of
//! 10 ms. An interval with 50 or more turns control on for the next one. While it is on, the running vCPU
//! goes on if it can, even if others are queued. The posted diff returns a value from a helper of type
//! `void`, so that its text and its intent differ; this module follows the intent, with the counters `src`
//! (control taken) and `nosrc` (control on, but the CPU idled or its vCPU could not go on).
//!
//! *Rate limit* (Xen 4.2): a vCPU that has run for less than `ratelimit_ns` goes on.

use super::settings::{Era, RateControl};
use super::{Credit, RATELIMIT_TIMER_MIN_NS};
use tandem_machine::ids::TaskId;

/// The rate controller of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateController {
    decisions: u32,
    interval_start_ns: u64,
    in_control: bool,
}

impl RateController {
    /// Counts a decision; whether control is on.
    pub fn decision(&mut self, settings: &RateControl, now_ns: u64) -> bool {
        self.decisions += 1;
        if now_ns - self.interval_start_ns >= settings.interval_ns {
            self.in_control = self.decisions >= settings.rate_high;
            self.interval_start_ns = now_ns;
            self.decisions = 0;
        }
        self.in_control
    }
}

impl Credit {
    /// The timer to set if the rate limit lets the vCPU go on, ns.
    pub(super) fn ratelimit_timer_ns(&self, task: TaskId, now_ns: u64) -> Option<u64> {
        let limit_ns = self.settings.ratelimit_ns;
        let vcpu = &self.vcpus[task.index()];
        let ran_ns = now_ns - vcpu.started_ns;
        let modern = self.settings.era >= Era::Xen4_9;
        if ran_ns >= limit_ns || (modern && vcpu.yielded) {
            return None;
        }
        Some(match modern {
            // The shortest timer is for a vCPU that has just begun, not for one whose limit ends soon.
            true if ran_ns < RATELIMIT_TIMER_MIN_NS => RATELIMIT_TIMER_MIN_NS,
            true => limit_ns - ran_ns,
            false => limit_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fifty_decisions_in_an_interval_turn_control_on_for_the_next() {
        let settings = RateControl::default();
        let mut controller = RateController::default();
        let mut run = |from_ms: u64, decisions: u64| {
            // Evenly over the interval; the last decision is the first of the next interval.
            (1..=decisions)
                .map(|at| controller.decision(&settings, from_ms * 1_000_000 + at * 10_000_000 / decisions))
                .collect::<Vec<_>>()
        };
        assert!(run(0, 49).iter().all(|on| !on), "49 are not enough");
        let busy = run(10, 50);
        assert_eq!((busy[48], busy[49]), (false, true), "the 50th ends the interval and turns control on");
        let quiet = run(20, 10);
        assert!(quiet[..9].iter().all(|on| *on), "on for the whole of the next");
        assert!(!quiet[9], "which was quiet");
    }
}
