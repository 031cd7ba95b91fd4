//! Processors, which execute, and the CPUs of kernels, which are scheduled on: what runs there, what comes
//! next, and where the time goes.

use super::halt_poll::Halt;
use super::kernels::{CpuRef, TaskRef};
use super::presence::Presence;
use super::task::TimerTarget;
use crate::engine::event_queue::NEVER;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tandem_machine::ids::{CpuId, TaskId};

/// How fast work progresses: time per unit of work.
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

/// A hardware thread, which does the work of what the kernels have put on it.
#[derive(Clone, Debug)]
pub(crate) struct Processor {
    /// The task whose program it executes: the one that the host runs or, if that is a vCPU of a guest
    /// kernel, the one that the guest runs there.
    pub executes: Option<TaskRef>,
    /// The guest kernel's CPU that it is at the moment.
    pub guest: Option<CpuRef>,
    pub speed: Speed,
    /// Its time is accounted for up to here. Lies in the future while a kernel's own code runs; until then it
    /// takes no event.
    pub settled_ns: u64,
    /// The part of the time since it was settled last that a guest kernel's code takes, and which guest's CPU
    /// that is.
    pub ahead_by_guest: Option<(CpuRef, u64)>,
    /// When the burst of its program ends, or when its spinning has lasted for a whole window.
    pub burst_end_ns: u64,
    /// It is stalled because the host's code on it waits for a lock.
    pub waits_for_lock: bool,
    /// It has left its guest to search for a vCPU to yield to.
    pub searches: bool,
    /// The host's code on it waits for something that its vCPU, which has halted, can do.
    pub polls: bool,
}

impl Processor {
    pub fn new() -> Self {
        Self {
            executes: None,
            guest: None,
            speed: Speed::FULL,
            settled_ns: 0,
            ahead_by_guest: None,
            burst_end_ns: NEVER,
            waits_for_lock: false,
            searches: false,
            polls: false,
        }
    }
}

/// Where the time of a CPU went, and how often it switched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuUse {
    /// In tasks, ns.
    pub busy_ns: u64,
    /// With nothing to do, ns. Not counted for vCPUs, where it is what remains.
    pub idle_ns: u64,
    /// Not its scheduler's: in tasks of higher classes, or offline, ns.
    pub away_ns: u64,
    /// In the kernel's own code, ns.
    pub overhead_ns: u64,
    /// Part of that in which it waits for locks of run queues, ns.
    pub spin_ns: u64,
    /// With something to do, but without a pCPU, ns.
    pub stolen_ns: u64,
    /// Out of its guest after a pause-loop exit, while it has a pCPU, ns.
    pub searched_ns: u64,
    /// Halted, while the host polls for it, ns.
    pub polled_ns: u64,
    pub schedules: u64,
}

/// What the host knows of a vCPU that spins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spinning {
    /// How long it may spin, in cycles, once that has grown.
    pub window_cycles: Option<u32>,
    /// It has left its guest because it spins, and has not been back since.
    pub in_search: bool,
    /// The last search passed it over although it waits, and the next will not.
    pub is_eligible: bool,
    /// It could have gone on when it lost its pCPU, and has not had one since.
    pub is_preempted: bool,
    /// It has lost its pCPU because it gave way, and has not had one since.
    pub has_yielded: bool,
    /// The pCPU that has counted its references to the vCPU's task last, since that ran; else that of the
    /// task itself.
    pub referenced_by: Option<CpuId>,
}

/// A CPU as its kernel sees it.
#[derive(Clone, Debug)]
pub(crate) struct Cpu {
    pub current: Option<TaskId>,
    /// The task whose state the CPU still holds; coming back to it needs no switch.
    pub loaded: Option<TaskId>,
    pub slice_end_ns: u64,
    pub tick_ns: u64,
    /// When the timer expires by which the policy ends the turn of the task.
    pub turn_end_ns: u64,
    /// When a kick arrives.
    pub resched_ns: u64,
    /// It is to decide when it next returns from its kernel to its task.
    pub resched_at_return: bool,
    /// The kick comes from another vCPU by way of the host, and interrupts this one.
    pub kicked_from_afar: bool,
    /// A decision was due while its task held or wanted a spin lock, and waits for that to end.
    pub resched_deferred: bool,
    pub timers: BinaryHeap<Reverse<(u64, TimerTarget)>>,
    pub used: CpuUse,
    /// The pCPU beneath; none while a vCPU has none.
    pub pcpu: Option<CpuId>,
    /// Since when a vCPU has wanted a pCPU and had none; [`NEVER`] while it has one, or wants none.
    pub deprived_since_ns: u64,
    /// For a vCPU.
    pub spinning: Spinning,
    /// For a vCPU.
    pub halt: Halt,
    /// Whether its scheduler has it, for a CPU of the host.
    pub presence: Presence,
    /// Its scheduler does not have it, and knows that.
    pub is_away: bool,
}

/// What a CPU has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Timer,
    Tick,
    TurnEnd,
    Reschedule,
}

impl Cpu {
    /// A CPU on that pCPU, for good or for now.
    pub fn new(pcpu: Option<CpuId>) -> Self {
        Self {
            current: None,
            loaded: None,
            slice_end_ns: NEVER,
            tick_ns: NEVER,
            turn_end_ns: NEVER,
            resched_ns: NEVER,
            resched_at_return: false,
            kicked_from_afar: false,
            resched_deferred: false,
            timers: BinaryHeap::new(),
            used: CpuUse::default(),
            pcpu,
            deprived_since_ns: NEVER,
            spinning: Spinning::default(),
            halt: Halt::default(),
            presence: Presence::Present,
            is_away: false,
        }
    }

    /// When it next has something to do besides its task's work.
    #[inline]
    pub fn next_event_ns(&self) -> u64 {
        let own = self.slice_end_ns.min(self.tick_ns).min(self.turn_end_ns).min(self.resched_ns);
        own.min(self.next_timer_ns())
    }

    /// When its next timer expires.
    #[inline]
    pub fn next_timer_ns(&self) -> u64 {
        self.timers.peek().map_or(NEVER, |Reverse((at_ns, _))| *at_ns)
    }

    /// When an interrupt next ends a halt: with a task that waits for a lock, the CPU ticks.
    #[inline]
    pub fn next_interrupt_ns(&self) -> u64 {
        let tick_ns = if self.current.is_some() { self.tick_ns } else { NEVER };
        self.resched_ns.min(self.next_timer_ns()).min(tick_ns)
    }

    /// What is due now. Decisions come last, as a softirq does.
    #[inline]
    pub fn due(&self, now_ns: u64) -> Option<Due> {
        if self.next_timer_ns() <= now_ns {
            Some(Due::Timer)
        } else if self.tick_ns <= now_ns {
            Some(Due::Tick)
        } else if self.turn_end_ns <= now_ns {
            Some(Due::TurnEnd)
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
