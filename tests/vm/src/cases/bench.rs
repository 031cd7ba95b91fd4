//! The benchmarks: each function runs all workloads under one scheduler, and reports how long they took.

use crate::guest::Guest;
use crate::guest::object::Loaded;
use crate::guest::tandem::Tandem;
use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The sections of `tandem`'s settings that can be switched off.
const SWITCHES: [&str; 4] = ["soft_affinity", "numa_homes", "rate_control", "directed_yield"];

/// How long the guest is left alone before each workload. A kernel that has just booted has work left that it
/// put off, a second of it, and so has one that has just loaded a scheduler or seen many processes end; in
/// instruction-counted time any CPU's work delays all others. It costs nothing: the clock of a guest that
/// idles is put forward.
const PAUSE: Duration = Duration::from_secs(5);

/// Work whose time is taken, from the start of its command to its end.
struct Workload {
    /// Its name in the results.
    name: &'static str,
    command: &'static [&'static str],
}

/// Sizes are such that each takes some tenths of a second of the guest's clock.
const WORKLOADS: [Workload; 5] = [
    Workload {
        name: "hackbench, pipes",
        command: &["hackbench", "--pipe", "--process", "--groups", "4", "--loops", "100"],
    },
    Workload {
        name: "hackbench, sockets",
        command: &["hackbench", "--threads", "--groups", "4", "--loops", "50"],
    },
    Workload { name: "ping-pong", command: &["ping-pong", "15000"] },
    Workload { name: "fork-exec", command: &["fork-exec", "400"] },
    Workload { name: "build", command: &["make", "--directory=/zlib", "--jobs=8"] },
];

/// Under the kernel's own scheduler.
pub fn eevdf(guest: &Guest) -> Result<()> {
    run_workloads(guest)
}

/// Under `tandem`, as it is without settings.
pub fn tandem(guest: &Guest) -> Result<()> {
    tandem_with(guest, "")
}

/// Under `tandem` with these of the [`SWITCHES`] on and the others off.
pub fn tandem_with_only(guest: &Guest, on: &[&str]) -> Result<()> {
    let sections = SWITCHES.map(|name| format!("[{name}]\nenabled = {}\n", on.contains(&name)));
    tandem_with(guest, &sections.concat())
}

/// Under `tandem` in guest mode.
pub fn tandem_guest(guest: &Guest) -> Result<()> {
    tandem_with(guest, "mode = \"guest\"\n")
}

fn tandem_with(guest: &Guest, settings: &str) -> Result<()> {
    let tandem = Tandem::run_with(settings)?;
    run_workloads(guest)?;
    tandem.stop()?;
    Ok(())
}

/// Under scx_bpfland.
pub fn scx_bpfland(guest: &Guest) -> Result<()> {
    let loaded = Loaded::start("scx_bpfland", &mut Command::new("scx_bpfland"))?;
    run_workloads(guest)?;
    loaded.stop()
}

/// Under the scheduler of the object file that the guest's parameters name.
pub fn object(guest: &Guest) -> Result<()> {
    let loaded = Loaded::object(guest.object.as_ref().context("no object file is named")?)?;
    run_workloads(guest)?;
    loaded.stop()
}

fn run_workloads(guest: &Guest) -> Result<()> {
    for Workload { name, command } in &WORKLOADS {
        let mut process = Command::new(command[0]);
        process.args(&command[1..]);
        thread::sleep(PAUSE);
        let start = Instant::now();
        let output = process.output().with_context(|| format!("cannot start {}", command[0]))?;
        let time = start.elapsed();
        ensure!(
            output.status.success(),
            "{command:?} ended with {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        guest.took(name, time)?;
    }
    Ok(())
}
