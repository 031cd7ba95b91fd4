//! A CPU of a kernel: what runs on it, its next events, and where its time goes.

use super::task::TimerTarget;
use crate::engine::event_queue::NEVER;
use crate::ids::TaskId;
use crate::machine::cost::SpinLockState;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How fast work gets done: time per unit of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Speed {
    /// While the footprint comes back into the caches.
    pub refill_slowdown: f64,
    /// From then on.
    pub steady_slowdown: f64,
}

impl Speed {
    pub const FULL: Self = Self { refill_slowdown: 1.0, steady_slowdown: 1.0 };

    /// Time for the work, of which the first `refill_work_ns` meet cold caches; ns, rounded up.
    #[inline]
    pub fn time_ns(&self, work_ns: u64, refill_work_ns: u64) -> u64 {
        let refill_ns = work_ns.min(refill_work_ns);
        let time =
            refill_ns as f64 * self.refill_slowdown + (work_ns - refill_ns) as f64 * self.steady_slowdown;
        time.ceil() as u64
    }

    /// Work done in a time: the part with cold caches and the rest, ns, rounded down.
    #[inline]
    pub fn work_ns(&self, time_ns: u64, refill_work_ns: u64) -> (u64, u64) {
        let time = time_ns as f64;
        let refill_time = refill_work_ns as f64 * self.refill_slowdown;
        if time < refill_time {
            ((time / self.refill_slowdown) as u64, 0)
        } else {
            (refill_work_ns, ((time - refill_time) / self.steady_slowdown) as u64)
        }
    }
}

/// Where the time of a CPU went, and how often it switched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuUse {
    pub busy_ns: u64,
    pub idle_ns: u64,
    pub overhead_ns: u64,
    pub schedules: u64,
    pub context_switches: u64,
    pub preemptions: u64,
}

/// A CPU.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    pub current: Option<TaskId>,
    /// The task whose state the CPU still holds; coming back to it needs no switch.
    pub loaded: Option<TaskId>,
    pub speed: Speed,
    /// Its time is accounted for up to here. Lies in the future while host code runs; until then the CPU takes
    /// no event.
    pub settled_ns: u64,
    pub burst_end_ns: u64,
    pub slice_end_ns: u64,
    pub tick_ns: u64,
    /// When a kick arrives.
    pub resched_ns: u64,
    pub timers: BinaryHeap<Reverse<(u64, TimerTarget)>>,
    pub queue_lock: SpinLockState,
    pub used: CpuUse,
}

/// What a CPU has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    BurstEnd,
    Timer,
    Tick,
    Reschedule,
}

impl Cpu {
    pub fn new() -> Self {
        Self {
            current: None,
            loaded: None,
            speed: Speed::FULL,
            settled_ns: 0,
            burst_end_ns: NEVER,
            slice_end_ns: NEVER,
            tick_ns: NEVER,
            resched_ns: NEVER,
            timers: BinaryHeap::new(),
            queue_lock: SpinLockState::default(),
            used: CpuUse::default(),
        }
    }

    /// When it next has something to do.
    #[inline]
    pub fn next_event_ns(&self) -> u64 {
        let own = self.burst_end_ns.min(self.slice_end_ns).min(self.tick_ns).min(self.resched_ns);
        let first = match self.timers.peek() {
            Some(Reverse((at_ns, _))) => own.min(*at_ns),
            None => own,
        };
        first.max(self.settled_ns)
    }

    /// What is due now. Work that is done is done first; decisions come last, as a softirq does.
    #[inline]
    pub fn due(&self, now_ns: u64) -> Option<Due> {
        if self.burst_end_ns <= now_ns {
            Some(Due::BurstEnd)
        } else if self.timers.peek().is_some_and(|Reverse((at_ns, _))| *at_ns <= now_ns) {
            Some(Due::Timer)
        } else if self.tick_ns <= now_ns {
            Some(Due::Tick)
        } else if self.resched_ns <= now_ns || self.slice_end_ns <= now_ns {
            Some(Due::Reschedule)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cold_caches_slow_the_first_part_only() {
        let speed = Speed { refill_slowdown: 3.0, steady_slowdown: 1.5 };
        assert_eq!(speed.time_ns(100, 40), 120 + 90);
        assert_eq!(speed.time_ns(30, 40), 90);
        assert_eq!(speed.work_ns(210, 40), (40, 60));
        assert_eq!(speed.work_ns(60, 40), (20, 0));
        assert_eq!(Speed::FULL.work_ns(77, 0), (0, 77));
    }
}
