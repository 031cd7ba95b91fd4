//! The cases for guests, one file per subject. [`crate::leg`] has the table of legs and cases.

pub mod abuse;
pub mod agreement;
pub mod arena;
pub mod bad_input;
pub mod bench;
pub mod churn;
pub mod control_socket;
pub mod core_scheduling;
pub mod directed_yield;
pub mod ejection;
pub mod fairness;
pub mod guest_mode;
pub mod harness;
pub mod hotplug;
pub mod large;
pub mod latency;
pub mod life;
pub mod metrics;
pub mod numa_homes;
pub mod observing;
pub mod partial;
pub mod programs;
pub mod rate_control;
pub mod recording;
pub mod schedulers;
pub mod service;
pub mod soft_affinity;
pub mod starvation;
pub mod tickless;
pub mod verify;
pub mod vms;

use crate::guest::process::Process;
use crate::guest::switches::Trace;
use crate::guest::{Guest, cpus, idle_beside, tandem};
use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::time::Duration;

/// The share of its time, or more, that a task spends where it should be. Not all of it: on emulated CPUs the
/// kernel's own work takes long enough for a task to find its CPU taken now and then.
const MOSTLY: f64 = 0.75;

/// The scheduler's longest slice, ns.
const SLICE_NS: u64 = 20_000_000;
/// How long waits beside idle CPUs are measured, by a CPU's own clock.
const OBSERVED: Duration = Duration::from_secs(4);
/// Part of their time that tasks may wait beside a CPU that idles for longer than a slice.
const BESIDE_IDLE_MAX: f64 = 0.01;

/// Fails if threads that keep CPU 0 busy, and may use all CPUs, wait for long while one idles.
fn wait_little_beside_idle(guest: &Guest, threads: &[u32]) -> Result<()> {
    let trace = Trace::start_with_ticks()?;
    cpus::wait_for_own_time(&[0], OBSERVED)?;
    let waited = idle_beside::waited(&trace.stop()?, threads, SLICE_NS);
    let ms = |ns: u64| ns as f64 / 1e6;
    guest.note(format!(
        "in {} ms of the CPUs' own time {} waits of {:.1} ms in all, at most {:.1} ms at a time beside an idle CPU",
        waited.observed_ns / 1_000_000,
        waited.waits,
        ms(waited.waited_ns),
        ms(waited.longest_ns)
    ))?;
    let share = waited.beside_idle_ns as f64 / (waited.observed_ns * threads.len() as u64) as f64;
    guest.note(format!(
        "{:.2}% of their time waiting beside a CPU that idled for longer than a slice",
        100.0 * share
    ))?;
    ensure!(share < BESIDE_IDLE_MAX, "tasks wait while CPUs idle");
    Ok(())
}

/// Runs hackbench: 80 processes that wake each other all the time. Returns its report of the time.
fn hackbench() -> Result<String> {
    let mut hackbench = Process::start(Command::new("hackbench").args(["--groups", "2", "--loops", "50"]))?;
    let output = hackbench.wait_success()?;
    let time = output.lines().find_map(|line| line.strip_prefix("Time: "));
    Ok(format!("hackbench: {} s", time.context("hackbench reports no time")?))
}

/// The preferences of tasks and cgroups, a line each, without their effects.
fn preferences() -> Result<String> {
    let shown = succeeds(&["prefer", "show"])?;
    Ok(shown.lines().map(|line| line.split(';').next().unwrap_or_default().to_owned() + "\n").collect())
}

/// Runs a verb that must succeed; returns its output.
fn succeeds(arguments: &[&str]) -> Result<String> {
    let output = tandem::call(arguments)?;
    ensure!(output.status.success(), "`tandem {}`: {}", arguments.join(" "), tandem::describe(&output));
    String::from_utf8(output.stdout).context("it printed no text")
}
