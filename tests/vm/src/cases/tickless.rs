//! CPUs of `nohz_full=`, whose tick the kernel stops while one task runs and the scheduler allows it. For a
//! leg in which they are [`TICKLESS`] and another one.

use super::fairness;
use crate::guest::cpus::{self, TimerInterrupts};
use crate::guest::process::Process;
use crate::guest::tandem::Tandem;
use crate::guest::{Guest, tasks, wait, work};
use anyhow::{Result, ensure};
use std::time::Duration;

/// The CPU without a tick on which tasks run.
const TICKLESS: u32 = 2;
/// A CPU that has its tick, beside a task that keeps it busy: its ticks are the measure.
const USUAL: u32 = 1;
/// How many of these are waited for.
const TICKS: u64 = 1_000;
/// How long the task without ticks has to run meanwhile. For want of ticks, the kernel updates that once per
/// second.
const RUN: Duration = Duration::from_secs(3);
/// The most timer interrupts without a tick, and the fewest with it, relative to those of the other CPU.
const STOPPED_MAX: f64 = 0.2;
const TICKING_MIN: f64 = 0.33;
/// How often each of two tasks is switched while their shares are measured.
const SWITCHES: u64 = 200;

/// A task that is alone on a CPU of `nohz_full=` is not interrupted by ticks.
pub fn alone_without_ticks(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    ensure!(cpus::without_ticks()?.contains(&TICKLESS), "CPU {TICKLESS} is not one of nohz_full");
    let beside = work::burn(1).on(&[USUAL]).start()?;
    let alone = work::burn(1).on(&[TICKLESS]).start()?;
    let ticks = ticks_while_alone(&alone)?;
    guest.note(format!("alone: {ticks:.3} of the timer interrupts of a CPU with ticks"))?;
    ensure!(ticks < STOPPED_MAX, "the tick goes on while a task is alone");
    drop((alone, beside));
    tandem.stop()?;
    Ok(())
}

/// A second task on such a CPU gets half of it, by ticks, which stop again when it has gone.
pub fn together_with_ticks(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let beside = work::burn(1).on(&[USUAL]).start()?;
    let first = work::burn(1).on(&[TICKLESS]).start()?;
    // Its tick has stopped when the second one comes.
    ticks_while_alone(&first)?;
    let second = work::burn(1).on(&[TICKLESS]).start()?;
    let before = TimerInterrupts::read()?;
    let used = fairness::used(&[&first, &second], SWITCHES)?;
    let ticks = ratio(&before, &TimerInterrupts::read()?);
    let share = used[1].run_ns as f64 / (used[0].run_ns + used[1].run_ns) as f64;
    guest.note(format!(
        "the second one gets {share:.2} of the CPU, with {ticks:.2} of the timer interrupts"
    ))?;
    ensure!((0.4..=0.6).contains(&share), "the second one did not get half");
    ensure!(ticks > TICKING_MIN, "the tick is not back for two tasks");
    drop(second);
    let ticks = ticks_while_alone(&first)?;
    guest.note(format!("alone again: {ticks:.3}"))?;
    ensure!(ticks < STOPPED_MAX, "the tick goes on when a task is alone again");
    drop((first, beside));
    tandem.stop()?;
    Ok(())
}

/// Timer interrupts of the CPU without ticks to those of the other one, while this task alone runs there.
fn ticks_while_alone(task: &Process) -> Result<f64> {
    // Until the scheduler has noticed that it is alone, and tasks that started it are gone.
    run_for(task, Duration::from_secs(1), 1)?;
    let before = TimerInterrupts::read()?;
    run_for(task, RUN, TICKS)?;
    Ok(ratio(&before, &TimerInterrupts::read()?))
}

/// Waits until the task has run that long, and the other CPU has taken this many ticks.
fn run_for(task: &Process, time: Duration, ticks: u64) -> Result<()> {
    let (before, used) = (TimerInterrupts::read()?, tasks::usage(task.pid())?);
    wait::until("that a task runs for some seconds", || {
        let ran = tasks::usage(task.pid())?.since(&used).run();
        Ok((ran >= time && TimerInterrupts::read()?.since(&before, USUAL) >= ticks).then_some(()))
    })
}

fn ratio(before: &TimerInterrupts, now: &TimerInterrupts) -> f64 {
    now.since(before, TICKLESS) as f64 / now.since(before, USUAL).max(1) as f64
}
