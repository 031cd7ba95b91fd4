//! The `tandem` command: the scheduler that it runs, and its output.

use super::process::Process;
use super::{cpus, sched_ext, wait};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::Signal;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::ops::Index;
use std::process::{Command, ExitStatus, Output};

/// Where settings are written for `tandem run`.
const SETTINGS_FILE: &str = "/tmp/settings.toml";
/// An emulated CPU may stop for longer than the watchdog waits by default, because the host has others to
/// run.
const PATIENCE: &str = "watchdog = \"30 s\"\n";
/// What `tandem run` prints whenever the scheduler has been loaded.
const SCHEDULING: &str = "tandem: scheduling\n";

/// The scheduler, while it is loaded.
pub struct Tandem {
    process: Process,
}

impl Tandem {
    /// Starts `tandem run` with these arguments, and waits until it schedules.
    pub fn run(arguments: &[&str]) -> Result<Self> {
        let mut command = service();
        if !arguments.contains(&"--config") {
            write_settings("")?;
            command.args(["--config", SETTINGS_FILE]);
        }
        Self::start(command.args(arguments))
    }

    /// Starts a command that becomes `tandem run`, and waits until it schedules.
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut process = Process::start(command)?;
        wait::until("`tandem run`", || {
            let status = process.ended()?;
            ensure!(status.is_none(), "`tandem run` ended: {}", process.output().trim());
            Ok(process.output().contains(SCHEDULING).then_some(()))
        })?;
        let state = sched_ext::state()?;
        ensure!(state == "enabled", "`tandem run` reports that it schedules, but sched_ext is {state}");
        Ok(Self { process })
    }

    /// Starts `tandem run` with a file of these settings, and waits until it schedules.
    pub fn run_with(settings: &str) -> Result<Self> {
        write_settings(settings)?;
        Self::run(&["--config", SETTINGS_FILE])
    }

    /// Stops or starts a CPU, and waits until the scheduler has been loaded again for that.
    pub fn hotplug(&self, cpu: u32, online: bool) -> Result<()> {
        let loadings = || self.process.output().matches(SCHEDULING).count();
        let before = loadings();
        cpus::set_online(cpu, online)?;
        wait::until("loading again after hotplug", || Ok((loadings() > before).then_some(())))
    }

    /// Writes other settings, and makes it read them.
    pub fn reload(&self, settings: &str) -> Result<()> {
        write_settings(settings)?;
        self.process.signal(Signal::HUP)
    }

    /// The process of the command.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Waits until the command ends by itself; returns its exit status and its output.
    pub fn wait(mut self) -> Result<(ExitStatus, String)> {
        let status = self.process.wait()?;
        Ok((status, self.process.output()))
    }

    /// Stops it as an operator does, with SIGINT, and checks that all is well; returns its output.
    pub fn stop(self) -> Result<String> {
        self.stop_by(Signal::INT)
    }

    /// Stops it with a signal after which it has to end well; returns its output.
    pub fn stop_by(mut self, signal: Signal) -> Result<String> {
        self.process.signal(signal)?;
        let output = self.process.wait_success()?;
        ensure!(!sched_ext::is_loaded()?, "`tandem run` has ended, and its scheduler is still loaded");
        Ok(output)
    }
}

/// Writes the settings file, with a long watchdog unless the settings have one.
fn write_settings(settings: &str) -> Result<()> {
    let patience = if settings.contains("watchdog") { "" } else { PATIENCE };
    fs::write(SETTINGS_FILE, format!("{patience}{settings}"))
        .with_context(|| format!("cannot write {SETTINGS_FILE}"))
}

/// The number of the agent's process.
pub fn agent() -> Result<u32> {
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"\0agent\0")) {
            return Ok(pid);
        }
    }
    bail!("there is no agent")
}

/// The scheduler's counters, from `tandem stat --json`.
#[derive(Debug)]
pub struct Counters(BTreeMap<String, u64>);

/// The part of what `tandem stat --json` prints that is needed here.
#[derive(Deserialize)]
struct Stat {
    counters: Vec<Counter>,
}

#[derive(Deserialize)]
struct Counter {
    name: String,
    value: u64,
}

/// The counters now.
pub fn counters() -> Result<Counters> {
    let output = call(&["stat", "--json"])?;
    ensure!(output.status.success(), "`tandem stat --json` ended with {}", describe(&output));
    let stat: Stat =
        serde_json::from_slice(&output.stdout).context("`tandem stat --json` printed something else")?;
    Ok(Counters(stat.counters.into_iter().map(|counter| (counter.name, counter.value)).collect()))
}

impl Counters {
    /// How many more they are than earlier ones.
    pub fn since(&self, earlier: &Self) -> Self {
        Self(self.0.iter().map(|(name, value)| (name.clone(), value - earlier[name])).collect())
    }

    /// All of them by name.
    pub fn into_map(self) -> BTreeMap<String, u64> {
        self.0
    }
}

impl Index<&str> for Counters {
    type Output = u64;

    /// A counter's value.
    ///
    /// # Panics
    /// If there is no such counter, which fails the case.
    fn index(&self, name: &str) -> &u64 {
        self.0.get(name).unwrap_or_else(|| panic!("there is no counter {name}"))
    }
}

/// Runs a verb to its end.
pub fn call(arguments: &[&str]) -> Result<Output> {
    command(arguments[0]).args(&arguments[1..]).output().context("cannot start tandem")
}

/// Whether `tandem doctor` finds something, in these words.
pub fn doctor_finds(words: &str) -> Result<bool> {
    Ok(String::from_utf8(call(&["doctor"])?.stdout)?.contains(words))
}

/// `tandemd run`, as the unit starts it, to be given arguments and environment.
pub fn service() -> Command {
    let mut command = Command::new("tandemd");
    command.arg("run");
    command
}

/// A verb, to be given arguments and environment.
pub fn command(verb: &str) -> Command {
    let mut command = Command::new("tandem");
    command.arg(verb);
    command
}

/// Exit status and messages, for an error.
pub fn describe(output: &Output) -> String {
    format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())
}
