//! `tandem record`: it has every switch, with who woke whom, and leaves nothing in the kernel.

use super::bad_input::{FAILURE, NOBODY, refused};
use crate::guest::process::Process;
use crate::guest::{Guest, tandem, wait};
use anyhow::{Context as _, Result, ensure};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use tandem_recording::{Context, Kind, NO_TASK, Recording, TaskState};

const FILE: &str = "/tmp/recording.tandem";
const TRACING: &str = "/sys/kernel/tracing";
/// Rounds of the recorded program, of two wake-ups each.
const ROUNDS: u64 = 20_000;
/// Switches of a task on its way out, which the kernel counts no more when its parent asks, and others of
/// that kind: none was ever seen beside the last one.
const LAST_SWITCHES: u64 = 2;
/// The share of the program's wake-ups that come from its other process.
const BY_PARTNER: f64 = 0.99;

/// Every switch of two processes that wake each other is in the recording, by the kernel's own counts; so is
/// every wake-up, with its waker.
pub fn has_every_switch(guest: &Guest) -> Result<()> {
    let mut record = Process::start(Command::new("tandem").args([
        "record",
        "--out",
        FILE,
        "--",
        "switches",
        &ROUNDS.to_string(),
    ]))?;
    let output = record.wait_success()?;
    let recording = Recording::read(Path::new(FILE))?;
    let report = output.lines().find(|line| line.starts_with("tandem: ")).context("it reports nothing")?;
    guest.note(report.to_owned())?;
    ensure!(recording.about.lost.is_empty(), "events were lost: {:?}", recording.about.lost);
    ensure!(
        recording.about.machine.is_some() && recording.about.scheduler.base_slice_ns.is_some(),
        "{:?}",
        { &recording.about.scheduler }
    );

    let counts: Vec<[u64; 3]> = output.lines().filter_map(numbers).collect();
    ensure!(counts.len() == 2, "the program prints {output}");
    let of = |pid: u64| {
        let at = recording.about.tasks.iter().position(|task| u64::from(task.tid) == pid);
        at.map(|at| at as u32).with_context(|| format!("task {pid} is not in the recording"))
    };
    let players = [of(counts[0][0])?, of(counts[1][0])?];
    for ([pid, blocked, preempted], player) in counts.iter().zip(players) {
        let task = &recording.about.tasks[player as usize];
        ensure!(
            task.name == "switches" && task.process == "switches" && u64::from(task.pid) == *pid,
            "it is {task:?}"
        );
        let events = || recording.events.iter().filter(|event| event.task == player);
        let left = |state: fn(TaskState) -> bool| {
            events().filter(|event| event.kind == Kind::Switch && state(event.state())).count() as u64
        };
        let found = (
            left(|state| ![TaskState::Runnable, TaskState::Dead].contains(&state)),
            left(|state| state == TaskState::Runnable),
        );
        guest.note(format!(
            "{pid}: {found:?} switches recorded, the kernel counted {:?}",
            (blocked, preempted)
        ))?;
        // When its parent asks, a task may have left its CPU for the last time, or not yet.
        let agree = |found: u64, counted: u64| found <= counted + LAST_SWITCHES && counted <= found + 1;
        ensure!(
            agree(found.0, *blocked) && agree(found.1, *preempted),
            "the kernel counted {blocked} and {preempted} switches, the recording has {found:?}"
        );
        // A wake-up may come when a task is about to block: before it has left its CPU, or instead of that.
        let (mut has_blocked, mut is_woken) = (false, false);
        for event in &recording.events {
            match event.kind {
                Kind::Switch if event.task == player => has_blocked = event.state() != TaskState::Runnable,
                Kind::Wake if event.task == player => is_woken = true,
                Kind::Switch if event.other == player => {
                    ensure!(!has_blocked || is_woken, "at {} ns {pid} runs, and was not woken", event.at_ns);
                    is_woken = false;
                }
                _ => {}
            }
        }
        let wakes: Vec<_> = events().filter(|event| event.kind == Kind::Wake).collect();
        let by_partner = wakes
            .iter()
            .filter(|event| event.context() == Context::Task && event.other != NO_TASK)
            .filter(|event| players.contains(&event.other))
            .count();
        ensure!(
            by_partner as f64 > BY_PARTNER * wakes.len() as f64,
            "{by_partner} of {} wake-ups are the other process's",
            wakes.len()
        );
    }
    Ok(())
}

fn numbers(line: &str) -> Option<[u64; 3]> {
    let numbers: Vec<u64> = line.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
    numbers.try_into().ok()
}

/// Whatever ends a recording, its file is complete and nothing stays in the kernel; after SIGKILL, the next
/// recording clears up. That tracing is not mounted makes no difference.
pub fn leaves_nothing(_: &Guest) -> Result<()> {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut record = started()?;
        record.signal(signal)?;
        record.wait_success()?;
        let recording = Recording::read(Path::new(FILE))?;
        ensure!(
            !recording.events.is_empty() && recording.about.length_ns > 0,
            "after {signal:?} it is empty"
        );
        ensure!(instances()?.is_empty(), "after {signal:?} there is {:?}", instances()?);
        fs::remove_file(FILE)?;
    }
    let mut record = started()?;
    record.signal(Signal::KILL)?;
    record.wait()?;
    ensure!(!Path::new(FILE).exists(), "a part of a recording has the name of a whole one");
    ensure!(instances()?.len() == 1, "the kernel removed the instance of a process that was killed");

    // debugfs may show the same files.
    unmount(TRACING, UnmountFlags::DETACH)?;
    let output = tandem::call(&["record", "--out", FILE, "--for", "200ms"]);
    mount("tracefs", TRACING, "tracefs", MountFlags::empty(), None)?;
    let output = output?;
    ensure!(output.status.success(), "without a mount: {}", tandem::describe(&output));
    ensure!(instances()?.is_empty(), "the next recording leaves {:?}", instances()?);
    Recording::read(Path::new(FILE))?;
    Ok(())
}

/// The status of a command is passed on, and one that is not there is reported; an ordinary user is refused
/// in one sentence.
pub fn passes_status_on(_: &Guest) -> Result<()> {
    let record = |command: &[&str]| tandem::call(&[&["record", "--out", FILE, "--"], command].concat());
    let ended = record(&["busybox", "false"])?;
    ensure!(ended.status.code() == Some(1), "{}", tandem::describe(&ended));
    refused(&record(&["no-such-command"])?, 2, "'no-such-command' cannot be run")?;
    let mut command = Command::new("tandem");
    command.args(["record", "--out", "/tmp/of-nobody", "--for", "1s"]).uid(NOBODY).gid(NOBODY);
    refused(&command.output()?, FAILURE, "recording a machine needs root")?;
    ensure!(instances()?.is_empty(), "there is {:?}", instances()?);
    Ok(())
}

/// A recording that has begun.
fn started() -> Result<Process> {
    let mut record = Process::start(Command::new("tandem").args(["record", "--out", FILE]))?;
    wait::until("a recording", || {
        ensure!(record.ended()?.is_none(), "it ended: {}", record.output());
        let is_on = |name: &String| {
            fs::read_to_string(format!("{TRACING}/instances/{name}/tracing_on"))
                .is_ok_and(|on| on.trim() == "1")
        };
        // An event that is enabled, too: `tracing_on` is 1 in a new instance.
        let has_events = |name: &String| {
            fs::read_to_string(format!("{TRACING}/instances/{name}/set_event"))
                .is_ok_and(|events| events.contains("sched_switch"))
        };
        Ok(instances()?.iter().find(|name| has_events(name) && is_on(name)).is_some().then_some(()))
    })?;
    Ok(record)
}

/// Instances of the kernel's tracing.
fn instances() -> Result<Vec<String>> {
    let entries = fs::read_dir(format!("{TRACING}/instances"))?;
    entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}
