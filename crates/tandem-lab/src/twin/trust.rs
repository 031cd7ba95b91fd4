//! Tasks whose replay is not to be trusted, and why.

use super::model::{Model, ModelTask};
use serde::Serialize;
use tandem_recording::{Event, Kind, Recording, TaskState};

/// Why a replay of a task may mislead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doubt {
    /// It gives its CPU away again and again without waiting for anything, as one that spins with
    /// `sched_yield`: how long it runs depends on others.
    Spins,
    /// It is a vCPU whose guest spins: exits for loops of PAUSE.
    GuestSpins,
    /// Both timers and tasks end its waits: with other timing, timeouts may expire, or not.
    Timeouts,
    /// Most of its wake-ups have no known cause.
    UnknownWakers,
    /// It is a real-time or deadline task, which the replay takes for an urgent one of the fair class.
    RealTime,
}

impl Doubt {
    /// The reason, in words that follow the names of tasks.
    pub fn words(self) -> &'static str {
        match self {
            Self::Spins => "yield again and again: how long they run depends on others",
            Self::GuestSpins => "are vCPUs whose guests spin: how long they run depends on others",
            Self::Timeouts => "are woken by timers as well as by tasks: other timing may change what they do",
            Self::UnknownWakers => "are woken mostly by something that the recording does not show",
            Self::RealTime => "are real-time tasks, which the replay runs as urgent ones of the fair class",
        }
    }
}

/// Turns that end without waiting and are as short as this, ns, may be yields: shorter than any slice.
const YIELD_MAX_NS: u64 = 100_000;
/// Share of a task's turns that must be so, for it to count as spinning; a share of its waits that each of two
/// causes must have; and the share of unknown causes. Assumptions.
const SHARE: f64 = 0.25;
/// Fewest events from which anything is said.
const EVENTS_MIN: u64 = 20;
/// Exits for loops of PAUSE: VMX (40), SVM (0x77).
const PAUSE_EXITS: [u32; 2] = [40, 0x77];

/// The doubts about each task of the model.
pub fn doubts(recording: &Recording, model: &Model) -> Vec<Vec<Doubt>> {
    let tasks = recording.about.tasks.len();
    let (mut turns, mut yields, mut pauses) = (vec![0u64; tasks], vec![0u64; tasks], vec![0u64; tasks]);
    let mut since_ns = vec![0; tasks];
    // Woken tasks preempt, on any CPU: a turn during which a task was woken need not end by a yield.
    let mut last_wake_ns = 0;
    for Event { at_ns, kind, task, other, detail, .. } in recording.events.iter().copied() {
        let task = task as usize;
        match kind {
            Kind::Switch => {
                if task < tasks {
                    turns[task] += 1;
                    let is_short = at_ns - since_ns[task] < YIELD_MAX_NS;
                    let by_wake = last_wake_ns >= since_ns[task];
                    if detail == TaskState::Runnable as u32 && is_short && !by_wake {
                        yields[task] += 1;
                    }
                }
                if let Some(since_ns) = since_ns.get_mut(other as usize) {
                    *since_ns = at_ns;
                }
            }
            Kind::Wake | Kind::WakeNew => last_wake_ns = at_ns,
            Kind::GuestExit if PAUSE_EXITS.contains(&detail) && task < tasks => pauses[task] += 1,
            _ => {}
        }
    }
    let of_task = |task: &ModelTask| {
        let at = task.recorded;
        let wakeups = task.wakeups;
        let part = |count: u64, of: u64| of >= EVENTS_MIN && count as f64 >= SHARE * of as f64;
        let found = [
            (Doubt::Spins, part(yields[at], turns[at])),
            (Doubt::GuestSpins, part(pauses[at], turns[at])),
            (
                Doubt::Timeouts,
                part(wakeups.by_tasks, wakeups.total()) && part(wakeups.by_timers, wakeups.total()),
            ),
            (Doubt::UnknownWakers, 2 * wakeups.unknown > wakeups.total() && wakeups.total() >= EVENTS_MIN),
            (Doubt::RealTime, recording.about.tasks[at].is_real_time() && turns[at] >= EVENTS_MIN),
        ];
        found.into_iter().filter_map(|(doubt, is_so)| is_so.then_some(doubt)).collect()
    };
    model.tasks.iter().map(of_task).collect()
}
