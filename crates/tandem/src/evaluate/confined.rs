//! `tandem confined`: the processes of an evaluation, each behind a fence: one becomes the compiler, the other simulates.
//!
//! Neither reads a file of the user's, reaches the network or another process, or writes anything but its result: see
//! [`tandem_fence`].

use super::compile::{self, NO_FENCE};
use super::{limit, parse_split, parse_suite};
use crate::sim::parse_seed;
use anyhow::{Context, bail};
use rustix::process::Signal;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{self, Command};
use std::time::Duration;
use tandem_fence::run::{Bounds, Broke, run as run_bounded};
use tandem_fence::{Duty, Limits, Reading, build};
use tandem_file::named_file::OBJECT_MAX;
use tandem_lab::evaluate::reasons::{Kind, Reason};
use tandem_lab::evaluate::run::{Loaded, Outcome};
use tandem_lab::evaluate::suite::{Split, Suite};
use tandem_lab::evaluate::{Candidate, Options};
use tandemd::error::one_line;
use tandemd::out::out;

/// An update may have replaced the file.
pub const PROGRAM: &str = "/proc/self/exe";
/// CPU time of a simulation, s: one of a reasonable scheduler takes less than a second.
const CPU_S: u64 = 30;
/// Address space of a simulation, bytes: an instance of a scheduler may have 1 GiB, and the suite `guests` has several.
const MEMORY_BYTES: u64 = 6 << 30;
/// How long it may take if it gets little CPU time.
const TIME: Duration = Duration::from_secs(300);
/// Most bytes of its result.
const RESULT_MAX: u64 = 8 << 20;
/// Files that are open at the same time: a compiler's include files.
const FILES: u64 = 256;

/// Arguments of `tandem confined`.
#[derive(clap::Args)]
pub struct Args {
    /// The process that started this one
    #[arg(long, value_name = "PID")]
    parent: u32,
    #[command(subcommand)]
    work: Work,
}

#[derive(clap::Subcommand)]
enum Work {
    /// Become a compiler
    Become {
        /// What it may read; may be given several times
        #[arg(long = "read", value_name = "PATH")]
        reads: Vec<PathBuf>,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Run the scheduler on standard input
    Judge {
        /// Its name
        #[arg(long)]
        name: String,
        #[arg(long, value_parser = parse_suite)]
        suite: Suite,
        #[arg(long, value_parser = parse_split)]
        split: Split,
        #[arg(long, value_parser = parse_seed)]
        seed: u64,
    },
}

/// The arguments of a process that becomes a compiler, but for its command.
pub fn become_arguments(reads: &[PathBuf]) -> Vec<OsString> {
    let mut arguments = own("become");
    arguments.extend(reads.iter().flat_map(|path| ["--read".into(), path.clone().into_os_string()]));
    arguments
}

fn own(work: &str) -> Vec<OsString> {
    ["confined".into(), format!("--parent={}", process::id()).into(), work.into()].into()
}

/// Does the work.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (limits, reading, duty) = match &args.work {
        Work::Become { reads, .. } => (
            Limits { cpu_s: compile::CPU_S, memory_bytes: compile::MEMORY_BYTES, files: FILES },
            Reading::Beneath(reads.clone()),
            Duty::Compile,
        ),
        Work::Judge { .. } => (
            Limits { cpu_s: CPU_S, memory_bytes: MEMORY_BYTES, files: FILES },
            Reading::Nothing,
            Duty::Compute,
        ),
    };
    if let Err(error) = build(args.parent, limits, &reading, duty) {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "{error}");
        process::exit(NO_FENCE);
    }
    match &args.work {
        Work::Become { command, .. } => {
            let error = Command::new(&command[0]).args(&command[1..]).exec();
            let _ = writeln!(io::stderr(), "{}: {error}", command[0].display());
            process::exit(NO_FENCE);
        }
        Work::Judge { name, suite, split, seed } => {
            let mut object = Vec::new();
            io::stdin().lock().take(OBJECT_MAX.bytes).read_to_end(&mut object)?;
            let cases = suite.cases(Options { split: *split, seed: *seed });
            let loaded = Loaded::new(Candidate { name, object: &object }, *suite);
            let told: Result<Vec<Outcome>, String> = match loaded {
                Ok(loaded) => {
                    let outcomes = cases.iter().map(|case| loaded.run(case));
                    Ok(outcomes.collect::<Result<_, _>>().map_err(anyhow::Error::msg)?)
                }
                Err(message) => Err(message),
            };
            Ok(serde_json::to_writer(out(), &told)?)
        }
    }
}

/// The outcomes of all cases, or why there are none.
///
/// # Errors
/// If the process cannot be started, has no fence, or the suite is wrong.
pub fn judge(
    name: &str,
    object: &[u8],
    suite: Suite,
    options: Options,
) -> anyhow::Result<Result<Vec<Outcome>, Reason>> {
    let mut command = Command::new(PROGRAM);
    command.args(own("judge")).arg(format!("--name={name}")).arg(format!("--suite={}", suite.name()));
    command.arg(format!("--split={}", options.split.name())).arg(format!("--seed={}", options.seed));
    command.env_clear().current_dir("/");
    let bounds = Bounds { output_bytes: RESULT_MAX, error_bytes: 4096, time: TIME };
    let ended = run_bounded(&mut command, object, bounds).context("the simulation cannot be run")?;
    let said = String::from_utf8_lossy(&ended.errors);
    let simulator = |what: String| {
        Reason::new(Kind::Simulator, None, format!("the simulator {what}: {}", one_line(&said)))
    };
    Ok(match (ended.broke, ended.status.signal(), ended.status.code()) {
        (Some(Broke::Output), ..) => Err(limit(format!("its result has more than {RESULT_MAX} bytes"))),
        (Some(Broke::Time), ..) => {
            Err(limit(format!("the simulation did not come to an end in {} s", TIME.as_secs())))
        }
        (None, Some(signal), _) if signal == Signal::XCPU.as_raw() || signal == Signal::KILL.as_raw() => {
            Err(limit(format!(
                "its callbacks take so long that the simulation had {CPU_S} s of CPU time and did not come to an end"
            )))
        }
        (None, Some(_), _) if said.contains("memory allocation of") => Err(limit(format!(
            "it takes more memory than the {} MiB that a simulation may have",
            MEMORY_BYTES >> 20
        ))),
        (None, Some(signal), _) => Err(simulator(format!("was ended by signal {signal}"))),
        (None, None, Some(0)) => {
            let told: Result<Vec<Outcome>, String> =
                serde_json::from_slice(&ended.output).context("the simulation has told nothing")?;
            told.map_err(|message| Reason::new(Kind::Load, None, message))
        }
        (None, None, Some(70)) => Err(simulator("failed".into())),
        (None, None, _) => bail!("{}", one_line(&said)),
    })
}
