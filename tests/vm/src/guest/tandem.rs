//! The `tandem` command: the scheduler that it runs, and what it says.

use super::process::Process;
use super::sched_ext;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::process::{Command, Output};

/// The scheduler, while it is loaded.
pub struct Tandem {
    process: Process,
}

impl Tandem {
    /// Starts `tandem run` with these arguments, and waits until it schedules.
    pub fn run(arguments: &[&str]) -> Result<Self> {
        let mut process = Process::start(command("run").args(arguments))?;
        super::wait::until("`tandem run`", || {
            if let Some(status) = process.ended()? {
                anyhow::bail!("`tandem run` ended with {status}: {}", process.output().trim());
            }
            Ok((sched_ext::state()? == "enabled").then_some(()))
        })?;
        Ok(Self { process })
    }

    /// The process of the command.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Stops it as an operator does, with SIGINT, and checks that all is well; what it printed.
    pub fn stop(self) -> Result<String> {
        self.stop_by(Signal::INT)
    }

    /// Stops it with a signal after which it has to end well; what it printed.
    pub fn stop_by(mut self, signal: Signal) -> Result<String> {
        self.process.signal(signal)?;
        let output = self.process.wait_success()?;
        let state = sched_ext::state()?;
        ensure!(state == "disabled", "after `tandem run` ended, sched_ext is {state}");
        Ok(output)
    }
}

/// What `tandem stat --json` tells.
pub fn stat() -> Result<serde_json::Value> {
    let output = call(&["stat", "--json"])?;
    ensure!(output.status.success(), "`tandem stat --json` ended with {}", describe(&output));
    serde_json::from_slice(&output.stdout).context("`tandem stat --json` printed no JSON")
}

/// Runs a verb to its end.
pub fn call(arguments: &[&str]) -> Result<Output> {
    command(arguments[0]).args(&arguments[1..]).output().context("cannot start tandem")
}

fn command(verb: &str) -> Command {
    let mut command = Command::new("tandem");
    command.arg(verb);
    command
}

/// Exit status and messages, for an error.
fn describe(output: &Output) -> String {
    format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())
}
