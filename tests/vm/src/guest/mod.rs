//! The guest's side: the first process, which sets the system up, the runner of a leg's cases, and what
//! cases are made of.

pub mod capped;
pub mod cgroup;
pub mod cpus;
pub mod hostile;
pub mod idle_beside;
mod init;
pub mod kernel_log;
pub mod object;
pub mod parameters;
pub mod perform;
pub mod probe;
pub mod process;
mod runner;
pub mod sched_ext;
pub mod switches;
pub mod tandem;
pub mod tasks;
pub mod vm;
pub mod wait;
pub mod wakeups;
pub mod watch;
pub mod work;

use crate::leg::Leg;
use crate::record::Record;
use crate::report::Event;
use anyhow::{Context, Result, anyhow};
use clap::Parser;
use std::cell::Cell;
use std::env;
use std::fs::File;
use std::process::ExitCode;
use std::time::Duration;
use work::Work;

/// The input of a case.
pub struct Guest {
    /// The leg that it runs in.
    pub leg: &'static Leg,
    /// Its name.
    pub case: Cell<&'static str>,
    /// Length of the churn.
    pub churn: Duration,
    /// The scheduler of cases that take any, by the name of its object file.
    pub object: Option<String>,
    port: File,
    ejection_expected: Cell<bool>,
}

impl Guest {
    /// Puts a figure or remark into the results.
    pub fn note(&self, text: impl Into<String>) -> Result<()> {
        self.report(&Event::Note(text.into()))
    }

    /// Puts into the results how long a workload took.
    pub fn took(&self, workload: &str, time: Duration) -> Result<()> {
        self.report(&Event::Took { workload: workload.into(), seconds: time.as_secs_f64() })
    }

    /// Announces that the kernel will eject a scheduler in this case: it complains about that in its log.
    pub fn expect_ejection(&self) {
        self.ejection_expected.set(true);
    }

    /// Hands over the record of a program.
    pub fn record(&self, record: Record) -> Result<()> {
        self.report(&Event::Recorded(record))
    }

    fn report(&self, event: &Event) -> Result<()> {
        event.write(&self.port).context("cannot write to the serial port")
    }
}

/// Runs in the role that the arguments name: the first process, the runner, [`work`], or a [`capped`]
/// command.
pub fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let result = match arguments.first().map(String::as_str) {
        _ if std::process::id() == 1 => init::run(),
        Some(runner::ARGUMENT) => runner::run(),
        Some(capped::ARGUMENT) => capped::run(&arguments),
        Some(work::ARGUMENT) => Work::parse_from(arguments).run(),
        _ => Err(anyhow!("this is the first process of a guest; `make test-vm` boots one")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vm-guest: {error:#}");
            ExitCode::FAILURE
        }
    }
}
