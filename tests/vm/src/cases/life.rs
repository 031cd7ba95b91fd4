//! Loading and unloading.

use super::hackbench;
use crate::guest::tandem::{self, Tandem};
use crate::guest::{Guest, sched_ext};
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;

/// The scheduler is loaded, schedules everything, and is unloaded without a trace; twice.
pub fn loads_schedules_unloads(guest: &Guest) -> Result<()> {
    for signal in [Signal::INT, Signal::TERM] {
        let loadings = sched_ext::loadings()?;
        let tandem = Tandem::run(&[])?;
        let name = sched_ext::scheduler().context("no scheduler is loaded")?;
        ensure!(name.contains("tandem"), "{name} is loaded");
        guest.note(hackbench()?)?;
        let counters = tandem::counters()?;
        let wake_ups = counters["wake_stay"] + counters["wake_idle"] + counters["wake_queued"];
        // Each of 80 tasks blocks at least once.
        ensure!(wake_ups > 100, "only {wake_ups} wake-ups were counted");
        ensure!(sched_ext::rejected_tasks()? == 0, "tasks were refused");
        let output = tandem.stop_by(signal)?;
        ensure!(sched_ext::loadings()? == loadings + 1, "it was loaded more than once: {output}");
        hackbench()?;
    }
    Ok(())
}

/// When the command is killed, the kernel continues with its own scheduler, and the command can be started
/// again.
pub fn survives_kill(_: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    tandem.process().signal(Signal::KILL)?;
    tandem.wait()?;
    sched_ext::wait_disabled()?;
    hackbench()?;
    let stat = tandem::call(&["stat"])?;
    ensure!(stat.status.code() == Some(1), "`tandem stat` without a scheduler: {}", tandem::describe(&stat));

    let tandem = Tandem::run(&[])?;
    hackbench()?;
    tandem::counters()?;
    tandem.stop()?;
    Ok(())
}
