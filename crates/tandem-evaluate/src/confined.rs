//! The processes of an evaluation, each behind a fence: one becomes the compiler, the other simulates.
//!
//! Neither reads a file of the user's, reaches the network or another process, or writes anything but its result: see
//! [`tandem_fence`].

use crate::compile::{self, NO_FENCE};
use crate::{Error, Own, limit};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tandem_fence::run::{Bounds, Broke, run as run_bounded};
use tandem_fence::{Duty, Limits, Reading, build};
use tandem_file::named_file::OBJECT_MAX;
use tandem_file::shown::one_line;
use tandem_lab::evaluate::reasons::{Kind, Reason};
use tandem_lab::evaluate::run::{Loaded, Outcome};
use tandem_lab::evaluate::suite::{Split, Suite};
use tandem_lab::evaluate::{Candidate, Options};

/// CPU time of a simulation, s: far beyond what a candidate may execute, which ends on every machine at the same point.
const CPU_S: u64 = 120;
/// Address space of a simulation, bytes: an instance of a scheduler may have 1 GiB, and the suite `guests` has several.
const MEMORY_BYTES: u64 = 6 << 30;
/// How long it may take if it gets little CPU time.
const TIME: Duration = Duration::from_secs(600);
/// Most bytes of its result.
const RESULT_MAX: u64 = 8 << 20;
/// Files that are open at the same time: a compiler's include files.
const FILES: u64 = 256;
/// What the names of unnamed files in memory begin with that this library makes.
const HEADERS: &str = "/memfd:tandem";
/// The exit status of a process that failed by a fault of its own.
const BUG: i32 = 70;

/// What to simulate: the last argument.
#[derive(Serialize, Deserialize)]
struct Simulation {
    name: String,
    suite: Suite,
    split: Split,
    seed: u64,
}

/// A command for one piece of work, without an environment.
fn command(own: &Own, work: &str) -> Command {
    let mut command = Command::new(&own.command);
    command.args(&own.arguments).arg(process::id().to_string()).arg(work);
    command.env_clear().current_dir("/");
    command
}

/// A command that becomes this program, which may read these files and folders. Its arguments follow.
pub(crate) fn to_become(own: &Own, reads: &[PathBuf], program: &Path) -> Command {
    let mut command = command(own, "become");
    command.args(reads).arg("--").arg(program);
    command
}

/// Does the work that the arguments name, behind a fence. They begin with the number of the process that has started this one,
/// which must have one thread.
///
/// # Errors
/// If they are not those of a process that this library starts, or the result cannot be written.
pub fn run(arguments: &[OsString]) -> Result<(), Error> {
    let wrong = || Error::Input("this is for an evaluation to start".into());
    let [parent, work, rest @ ..] = arguments else { return Err(wrong()) };
    let parent: u32 = parent.to_str().and_then(|parent| parent.parse().ok()).ok_or_else(wrong)?;
    match (work.to_str(), rest) {
        (Some("become"), rest) => {
            let mut parts = rest.splitn(2, |argument| argument == "--");
            let (Some(reads), Some([program, rest @ ..])) = (parts.next(), parts.next()) else {
                return Err(wrong());
            };
            let limits = Limits { cpu_s: compile::CPU_S, memory_bytes: compile::MEMORY_BYTES, files: FILES };
            let reads = Reading::Beneath(reads.iter().map(PathBuf::from).collect());
            behind_fence(parent, limits, &reads, Duty::Compile);
            let error = Command::new(program).args(rest).exec();
            let program = program.display();
            no_fence(&format!(
                "{program}: {error}; a compiler of strangers' sources has to be a program, no script"
            ));
        }
        (Some("simulate"), [told]) => {
            let told = told.to_str().and_then(|told| serde_json::from_str(told).ok()).ok_or_else(wrong)?;
            let limits = Limits { cpu_s: CPU_S, memory_bytes: MEMORY_BYTES, files: FILES };
            behind_fence(parent, limits, &Reading::Nothing, Duty::Compute);
            match catch_unwind(AssertUnwindSafe(|| simulate(&told))) {
                Ok(result) => result,
                // The panic has been told.
                Err(_) => process::exit(BUG),
            }
        }
        _ => Err(wrong()),
    }
}

fn behind_fence(parent: u32, limits: Limits, reading: &Reading, duty: Duty) {
    close_inherited();
    if let Err(error) = build(parent, limits, reading, duty) {
        no_fence(&error.to_string());
    }
}

/// Closes the files that the caller left open, but for standard ones and the [headers](crate::headers).
fn close_inherited() {
    let numbers = |entry: io::Result<fs::DirEntry>| {
        let entry = entry.ok()?;
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        let is_header =
            fs::read_link(entry.path()).is_ok_and(|link| link.to_string_lossy().starts_with(HEADERS));
        (number > 2 && !is_header).then_some(number)
    };
    // One of them is that of this folder, which is closed by then.
    let open: Vec<i32> = fs::read_dir("/proc/self/fd").into_iter().flatten().filter_map(numbers).collect();
    for number in open {
        let _ = nix::unistd::close(number);
    }
}

fn no_fence(message: &str) -> ! {
    // Standard error may be closed.
    let _ = writeln!(io::stderr(), "{message}");
    process::exit(NO_FENCE)
}

/// Runs the object on standard input, and writes the outcomes.
fn simulate(told: &Simulation) -> Result<(), Error> {
    let failed = |error: io::Error| Error::machine("the simulation", error);
    let mut object = Vec::new();
    io::stdin().lock().take(OBJECT_MAX.bytes).read_to_end(&mut object).map_err(failed)?;
    let cases = told.suite.cases(Options { split: told.split, seed: told.seed });
    let told: Result<Vec<Outcome>, String> =
        match Loaded::new(Candidate::object(&told.name, &object), told.suite) {
            Ok(loaded) => {
                let outcomes = loaded.outcomes(&cases, &AtomicBool::new(false));
                Ok(outcomes.map_err(Error::Machine)?.unwrap_or_default())
            }
            Err(message) => Err(message),
        };
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &told).map_err(io::Error::from).and_then(|()| out.flush()).map_err(failed)
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
    own: &Own,
    ended: &AtomicBool,
) -> Result<Result<Vec<Outcome>, Reason>, Error> {
    let told = Simulation { name: name.into(), suite, split: options.split, seed: options.seed };
    let told = serde_json::to_string(&told).map_err(|error| Error::machine("the simulation", error))?;
    let mut command = command(own, "simulate");
    command.arg(told);
    let bounds = Bounds { output_bytes: RESULT_MAX, error_bytes: 4096, time: TIME };
    let ended = run_bounded(&mut command, object, bounds, ended);
    let ended = ended.map_err(|error| Error::machine("the simulation cannot be run", error))?;
    let said = String::from_utf8_lossy(&ended.errors);
    let simulator = |what: String| {
        Reason::new(Kind::Simulator, None, format!("the simulator {what}: {}", one_line(&said)))
    };
    Ok(match (ended.broke, ended.status.signal(), ended.status.code()) {
        (Some(Broke::Ended), ..) => return Err(Error::Ended),
        (Some(Broke::Output), ..) => Err(limit(format!("its result has more than {RESULT_MAX} bytes"))),
        (Some(Broke::Time), ..) => {
            Err(limit(format!("the simulation did not come to an end in {} s", TIME.as_secs())))
        }
        (None, Some(signal), _) if signal == Signal::KILL.as_raw() => Err(limit(format!(
            "its callbacks take so long that the simulation had {CPU_S} s of CPU time and did not come to an end"
        ))),
        (None, Some(_), _) if said.contains("memory allocation of") => Err(limit(format!(
            "it takes more memory than the {} MiB that a simulation may have",
            MEMORY_BYTES >> 20
        ))),
        (None, Some(signal), _) => Err(simulator(format!("was ended by signal {signal}"))),
        (None, None, Some(0)) => {
            let told: Result<Vec<Outcome>, String> = serde_json::from_slice(&ended.output)
                .map_err(|error| Error::machine("the simulation has told nothing", error))?;
            told.map_err(|message| Reason::new(Kind::Load, None, message))
        }
        (None, None, Some(BUG)) => Err(simulator("failed".into())),
        (None, None, _) => return Err(Error::Machine(one_line(&said))),
    })
}
