//! When the ticks of a recorded machine came.

use tandem_recording::{Kind, Recording, Source};

/// Kernel functions that handle the tick, in releases before and from 6.9 on.
const TICKS: [&str; 2] = ["tick_sched_timer", "tick_nohz_handler"];
/// Ticks this close together have the same phase, ns: more than they are late by, as a rule.
const BIN_NS: u64 = 20_000;

/// The phase of the ticks in the period, ns since the start of the recording; `None` if it shows no ticks.
pub(super) fn phase_ns(recording: &Recording, period_ns: u64) -> Option<u64> {
    let timers = &recording.about.timers;
    let is_tick = |source: Source| match source {
        Source::HrTimer(timer) => {
            timers.get(timer as usize).is_some_and(|name| TICKS.contains(&name.as_str()))
        }
        _ => false,
    };
    let ticks =
        recording.events.iter().filter(|event| event.kind == Kind::Interrupt && is_tick(event.source()));
    let mut phases: Vec<u64> = ticks.map(|event| event.at_ns % period_ns).collect();
    phases.sort_unstable();
    // The earliest of the most frequent ones: an interrupt is late, and never early.
    let begins = |phase: &u64| phases.partition_point(|other| *other < phase + BIN_NS);
    let counts = phases.iter().enumerate().map(|(at, phase)| (begins(phase) - at, std::cmp::Reverse(*phase)));
    counts.max().map(|(_, std::cmp::Reverse(phase_ns))| phase_ns)
}
