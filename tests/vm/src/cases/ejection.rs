//! The kernel ejects the scheduler.

use super::hackbench;
use crate::guest::tandem::Tandem;
use crate::guest::{Guest, sched_ext, tasks, wait, work};
use anyhow::{Context, Result, ensure};
use std::fs;

/// The CPU on which a task starves.
const CPU: u32 = 1;
/// Share of a CPU that the kernel saves for sched_ext's tasks from real-time ones, ns a period; since Linux
/// 7.0.
const SERVER_RUNTIME: &str = "/sys/kernel/debug/sched/ext_server/cpu1/runtime";

/// The kernel's dump that the command keeps.
const DUMP: &str = "/var/log/tandem/ejection.txt";
/// The file of its counts over all ends.
const HISTORY: &str = "/var/log/tandem/history.json";

/// A task that may run on one CPU only does not get it, so that the kernel's watchdog ejects the scheduler.
/// The command says so and keeps what the kernel found, nothing hangs, and the scheduler can be loaded again.
pub fn stalled_task(guest: &Guest) -> Result<()> {
    guest.expect_ejection();
    fs::create_dir_all("/var/log")?;
    let tandem = Tandem::run_with("watchdog = \"5 s\"")?;
    let victim = work::burn(1).on(&[CPU]).start()?;

    let share = save_for_tasks("0")?;
    let hog = work::burn(1).on(&[CPU]).real_time().start()?;
    let (status, output) = tandem.wait()?;
    drop(hog);
    if let Some(share) = share {
        save_for_tasks(&share)?;
    }

    ensure!(status.code() == Some(1), "`tandem run` ended with {status}: {output}");
    let reason =
        output.lines().find(|line| line.contains("the kernel ejected the scheduler: runnable task stall"));
    guest.note(reason.with_context(|| format!("`tandem run` does not report why it ended: {output}"))?)?;
    ensure!(!sched_ext::is_loaded()?, "the scheduler is still loaded");
    ensure!(output.contains(DUMP), "`tandem run` does not report where the dump is: {output}");
    let dump = fs::read_to_string(DUMP).with_context(|| format!("{DUMP} cannot be read"))?;
    let names_victim = dump.contains(&format!("[{}]", victim.pid()));
    ensure!(dump.starts_with("runnable task stall") && names_victim, "{DUMP} has {dump}");

    let history = fs::read_to_string(HISTORY).with_context(|| format!("{HISTORY} cannot be read"))?;
    ensure!(history.contains("\"runnable task stall\": 1"), "{HISTORY} has {history}");

    let ran_ns = tasks::usage(victim.pid())?.run_ns;
    wait::until("the stalled task going on", || {
        Ok((tasks::usage(victim.pid())?.run_ns > ran_ns).then_some(()))
    })?;
    hackbench()?;
    let tandem = Tandem::run(&[])?;
    hackbench()?;
    tandem.stop()?;
    Ok(())
}

/// Sets the share of the CPU that real-time tasks must leave; returns the former one, if the kernel has such
/// a share.
fn save_for_tasks(runtime_ns: &str) -> Result<Option<String>> {
    let Ok(before) = fs::read_to_string(SERVER_RUNTIME) else { return Ok(None) };
    fs::write(SERVER_RUNTIME, runtime_ns)
        .with_context(|| format!("cannot write {runtime_ns} to {SERVER_RUNTIME}"))?;
    Ok(Some(before.trim().to_owned()))
}
