//! Whether a program fits the VM that runs it.

use super::check_amount;
use crate::program::{CHANNEL_LINES_MAX, LOOP_DEPTH_MAX, MemoryProfile, Op, Program, SharedData};
use crate::scenario::Workload;

/// What the programs of a workload can refer to.
pub(super) struct Limits {
    channels: usize,
    counters: usize,
    locks: usize,
    /// Programs that tasks can start; `None` without a guest kernel.
    programs: Option<usize>,
}

impl Limits {
    /// For the programs of its tasks, or of its guest.
    pub fn new(workload: &Workload) -> Self {
        let guest = workload.guest();
        let family_channels = guest.map_or(0, |guest| guest.family_channels);
        Self {
            channels: workload.channels.saturating_add(family_channels),
            counters: workload.counters.len(),
            locks: guest.map_or(0, |guest| guest.locks),
            programs: guest.map(|guest| guest.programs.len()),
        }
    }
}

pub(super) fn check_program(program: &Program, limits: &Limits) -> Result<(), String> {
    program.profiles.iter().try_for_each(|profile| check_profile(profile))?;
    check_ops(&program.ops, 0, program, limits)
}

fn check_profile(profile: &MemoryProfile) -> Result<(), String> {
    let sane = |value: f64| (0.0..=1e6).contains(&value);
    if !sane(profile.memory_lines_per_us) || !sane(profile.cache_sensitivity) {
        return Err("a memory profile has a negative or huge number".into());
    }
    if !(1.0..=1e3).contains(&profile.parallelism) {
        return Err("the parallelism of a memory profile is outside 1 to 1000".into());
    }
    if profile.smt_slowdown.is_some_and(|slowdown| !(1.0..=1e3).contains(&slowdown)) {
        return Err("the SMT slowdown of a memory profile is outside 1 to 1000".into());
    }
    if profile.footprint_bytes > 0 && profile.sweep_ns == 0 {
        return Err("a memory profile has a footprint but no sweep time".into());
    }
    if let Some(shared) = &profile.shared {
        if shared.data >= SharedData::SETS_MAX {
            let most = SharedData::SETS_MAX;
            return Err(format!("its programs share more than {most} data sets, which is the most allowed"));
        }
        if !sane(shared.lines_per_us) || !(0.0..=1.0).contains(&shared.write_share) {
            return Err(
                "a memory profile shares a negative or huge number of lines, or writes more than it accesses"
                    .into(),
            );
        }
    }
    Ok(())
}

fn check_ops(ops: &[Op], depth: usize, program: &Program, limits: &Limits) -> Result<(), String> {
    for op in ops {
        match op {
            Op::Compute { work, profile } => {
                check_amount(*work)?;
                if profile.is_some_and(|at| at >= program.profiles.len()) {
                    return Err("a program computes with a memory profile that it lacks".into());
                }
            }
            Op::Sleep(amount) => check_amount(*amount)?,
            Op::Wait { channel }
            | Op::WaitAll { channel }
            | Op::Signal { channel }
            | Op::SignalAll { channel }
            | Op::Send { channel, .. }
                if *channel >= limits.channels =>
            {
                return Err(format!("a program uses channel {channel}, but there are {}", limits.channels));
            }
            Op::Send { capacity: 0, .. } => {
                return Err("a program sends into a channel without capacity; 1 is the least".into());
            }
            Op::Send { capacity, resume_at: Some(tokens), .. } if tokens >= capacity => {
                return Err("a program that found a channel full would be woken while it still is".into());
            }
            Op::Send { message_lines, queue_lines, .. }
                if *message_lines.max(queue_lines) > CHANNEL_LINES_MAX =>
            {
                return Err(format!("a program sends more than {CHANNEL_LINES_MAX} cache lines at once"));
            }
            Op::Lock { .. }
            | Op::Unlock { .. }
            | Op::FlushTlbs
            | Op::Fork { .. }
            | Op::Exec { .. }
            | Op::WaitChild
            | Op::WaitChildSignal
                if limits.programs.is_none() =>
            {
                return Err(
                    "a program locks, flushes TLBs, forks, executes or waits for a child, which needs a guest".into()
                );
            }
            Op::Lock { lock } | Op::Unlock { lock } if *lock >= limits.locks => {
                return Err(format!("a program uses lock {lock}, but there are {}", limits.locks));
            }
            Op::Fork { program } | Op::Exec { program }
                if limits.programs.is_some_and(|count| *program >= count) =>
            {
                return Err(format!("a program starts program {program}, but there are fewer"));
            }
            Op::Count { counter, .. } if *counter >= limits.counters => {
                return Err(format!("a program counts in counter {counter}, but there are fewer"));
            }
            Op::Repeat { .. } if depth == LOOP_DEPTH_MAX => {
                return Err(format!("a program nests more than {LOOP_DEPTH_MAX} repeats"));
            }
            Op::Repeat { body, .. } => check_ops(body, depth + 1, program, limits)?,
            _ => {}
        }
    }
    Ok(())
}
