//! Whether a task that a timer woke had waited for a time, or until a time.
//!
//! A program that sleeps between two pieces of work waits for a time: if it is held up, all that follows is
//! late. One that follows a clock waits until a time: if it is held up, it has less time to wait. A recording
//! shows only when they woke. Whichever is more regular tells: the times of sleeping, or the times from one
//! wake-up to the next. Timers that a program does not set anew for each sleep (intervals of `setitimer`,
//! `timer_settime`, timer descriptors, delayed work of the kernel) are clocks.

use super::model::Wait;

/// Kernel functions that handle timers which are not set by the task when it begins to wait.
const CLOCKS: [&str; 4] = ["it_real_fn", "posix_timer_fn", "timerfd_tmrproc", "delayed_work_timer_fn"];
/// Fewest waits of a task that are enough to decide.
const WAITS_MIN: usize = 4;
/// How much more regular the times between wake-ups must be than those of sleeping: an assumption.
const CLEARER: f64 = 2.0;

/// A wait that a timer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimerWait {
    pub from_ns: u64,
    pub to_ns: u64,
}

/// What a task waited for each time, from all its waits for timers with one function, in the order of time.
pub(super) fn told(function: &str, waits: &[TimerWait]) -> Vec<Wait> {
    let is_clock = CLOCKS.contains(&function) || follows_clock(waits);
    let wait = |wait: &TimerWait| match is_clock {
        true => Wait::Until(wait.to_ns),
        false => Wait::For(wait.to_ns - wait.from_ns),
    };
    waits.iter().map(wait).collect()
}

fn follows_clock(waits: &[TimerWait]) -> bool {
    if waits.len() < WAITS_MIN {
        return false;
    }
    let lengths: Vec<u64> = waits.iter().map(|wait| wait.to_ns - wait.from_ns).collect();
    let periods: Vec<u64> = waits.windows(2).map(|pair| pair[1].to_ns - pair[0].to_ns).collect();
    irregularity(periods) * CLEARER < irregularity(lengths)
}

/// The median distance from the median, ns.
fn irregularity(mut times_ns: Vec<u64>) -> f64 {
    let median = middle(&mut times_ns);
    let mut distances: Vec<u64> = times_ns.iter().map(|ns| ns.abs_diff(median)).collect();
    middle(&mut distances) as f64
}

fn middle(times_ns: &mut [u64]) -> u64 {
    let at = times_ns.len() / 2;
    *times_ns.select_nth_unstable(at).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Waits of a program that works for these times, and waits as `next` says from what it has done and the
    /// last wake-up.
    fn waits(work_ns: &[u64], next: impl Fn(u64, u64) -> u64) -> Vec<TimerWait> {
        let (mut now_ns, mut waits) = (0, Vec::new());
        for work_ns in work_ns {
            let from_ns = now_ns + work_ns;
            let to_ns = next(from_ns, now_ns);
            waits.push(TimerWait { from_ns, to_ns });
            now_ns = to_ns;
        }
        waits
    }

    proptest! {
        #[test]
        fn clocks_and_pauses_are_told_apart(work_ns in prop::collection::vec(100_000u64..900_000, 8..40)) {
            prop_assume!(irregularity(work_ns.clone()) > 10_000.0);
            let clock = waits(&work_ns, |_, woken_ns| woken_ns + 1_000_000);
            prop_assert!(follows_clock(&clock));
            let pause = waits(&work_ns, |from_ns, _| from_ns + 1_000_000);
            prop_assert!(!follows_clock(&pause));
        }
    }

    #[test]
    fn an_interval_timer_is_a_clock_at_once() {
        let wait = TimerWait { from_ns: 5, to_ns: 30 };
        assert_eq!(told("it_real_fn", &[wait]), [Wait::Until(30)]);
        assert_eq!(told("hrtimer_wakeup", &[wait]), [Wait::For(25)]);
    }
}
