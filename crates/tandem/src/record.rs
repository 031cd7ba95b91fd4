//! `tandem record`: what the kernel's scheduler does on this machine, into a file.

use crate::bar::Bar;
use crate::reproduce::KILLED_BY_INTERRUPT;
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::fs::{Access, access};
use std::ffi::OsString;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};
use tandem_file::new_file::NewFile;
use tandem_file::units::Size;
use tandem_host::recording::{Options, Recorder, Summary};
use tandem_host::topology::read_sysfs_assuming;
use tandem_lab::machine_file::to_toml;
use tandem_machine::format_cpulist;
use tandemd::error::{BadInput, one_line};
use tandemd::observe;

/// Shortest recording: below, it has hardly any events.
const SHORTEST: Duration = Duration::from_millis(1);
/// Time between two reports of progress, on a terminal and elsewhere.
const REPORT_EVERY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));
/// Who may read and write a recording, which names everybody's tasks.
const OWNER_ONLY: u32 = 0o600;
/// The recorder's thread, which the recording has as well: of at most 15 bytes.
const THREAD: &str = "tandem-record";

const HELP: &str = "With a command, the recording begins before it and ends with it, and its exit status is the \
command's. Without one, the recording ends after the time of --for, or with Ctrl-C. The file is complete in all of \
these cases.

The recording has all tasks of the machine: who runs when and where, who wakes whom, which interrupts and timers wake \
tasks, and which vCPUs halt or spin. Tasks, cgroups and VMs are in it by their names. Only root may record, and the \
file is for root alone. Nothing stays in the kernel, even if the command is killed.

The command runs as root: to run it as somebody else, use `sudo tandem record --out FILE -- sudo -u USER COMMAND`.

The file is in Parquet format: its columns are time_ns, cpu, kind, task, other, detail.

Examples:
  tandem record --out host.parquet --for 10s
  tandem record --out build.parquet -- make -j8
  tandem record --out busy.parquet --for 5s --buffer '32 MiB'";

/// Arguments of `tandem record`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// The file that will have the recording; an older one is replaced
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// End after this time, in seconds or with a unit; a command then runs on without being recorded
    #[arg(long = "for", value_name = "TIME", value_parser = parse_time)]
    time: Option<Duration>,
    /// Buffer of each CPU in the kernel's memory, where events wait for at most 250 ms [default: 8 MiB]
    #[arg(long, value_name = "SIZE")]
    buffer: Option<Size>,
    /// Record all entries and exits of guests, of which there may be more than all other events
    #[arg(long)]
    guest_exits: bool,
    /// Record while this command runs
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn parse_time(text: &str) -> Result<Duration, String> {
    observe::parse_interval(text, SHORTEST)
}

/// Records, and writes the file. Ends the process with the status of the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let record = || record(args);
    // A thread of its own has a name of its own.
    let status = thread::scope(|scope| {
        let thread = thread::Builder::new().name(THREAD.into()).spawn_scoped(scope, record);
        // A panic ends the process.
        thread
            .context("cannot start a thread")?
            .join()
            .unwrap_or_else(|_| anyhow::bail!("the recorder failed"))
    })?;
    match status {
        Some(code) if code != 0 => std::process::exit(code),
        _ => Ok(()),
    }
}

/// What ends a recording before its time is over.
enum End {
    Signal,
    Command(io::Result<ExitStatus>),
}

/// The exit status of the command, if there is one.
fn record(args: &Args) -> anyhow::Result<Option<i32>> {
    let name = one_line(&args.out.display().to_string());
    check_command(&args.command)?;
    let (sender, ends) = mpsc::channel();
    let part = Arc::new(AtomicU8::new(RECORDS));
    // Before there is a file that a signal could leave behind.
    catch_signals(sender.clone(), part.clone())?;
    let unwritable = |error: io::Error| BadInput::new(format!("--out {name}: {error}"));
    let file = NewFile::create_for(&args.out, OWNER_ONLY).map_err(unwritable)?;
    let folder = args.out.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let machine = read_sysfs_assuming(Path::new("/")).map(|(machine, _)| to_toml(&machine));
    let options =
        Options { buffer_bytes: args.buffer.map(|size| size.bytes), all_guest_exits: args.guest_exits };
    let recorder = Recorder::start(Path::new("/"), folder, options)?;
    let command = Started::run(&args.command, sender)?;
    let mut progress = Progress::new(args.time, command.is_none());
    let mut end = None;
    let recorded = recorder.record(|sleep, recorder| {
        progress.report(recorder);
        let left = args.time.map_or(sleep, |time| sleep.min(time.saturating_sub(recorder.elapsed())));
        end = ends.recv_timeout(left).ok();
        end.is_none() && args.time.is_none_or(|time| recorder.elapsed() < time)
    });
    progress.end();
    part.store(WRITES, Ordering::Relaxed);
    let busy = Bar::busy(&name, "writing the recording");
    let written = || -> anyhow::Result<()> {
        let (out, summary) = recorded?.write(machine.ok(), BufWriter::new(file))?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error);
        file.and_then(NewFile::complete).with_context(|| format!("cannot write {name}"))?;
        let bytes = std::fs::metadata(&args.out).map_or(0, |file| file.len());
        drop(busy);
        report(&summary, bytes, &name);
        Ok(())
    };
    let written = written();
    if command.is_some() {
        part.store(WAITS, Ordering::Relaxed);
    }
    if let (Err(error), Some(_)) = (&written, &command) {
        // The command goes on, and is waited for: its user need not wait for the message.
        let _ = writeln!(io::stderr(), "tandem: {error:#}; waiting for the command to end");
    }
    let status = command.map(|command| command.wait(&ends, end)).transpose()?;
    written.map(|()| status)
}

/// What the process is doing, which decides what a signal does.
const RECORDS: u8 = 0;
/// The recording has ended, and is being written.
const WRITES: u8 = 1;
/// It is written, or cannot be, and the command may still run.
const WAITS: u8 = 2;

/// The first signal ends the recording, and none ends the process before it is written. One after that does, if it
/// is not the first.
fn catch_signals(sender: Sender<End>, part: Arc<AtomicU8>) -> anyhow::Result<()> {
    let (mut is_first, mut has_told) = (true, false);
    ctrlc::set_handler(move || {
        let is_later = !std::mem::take(&mut is_first);
        match part.load(Ordering::Relaxed) {
            WAITS if is_later => std::process::exit(KILLED_BY_INTERRUPT),
            WRITES if !std::mem::replace(&mut has_told, true) => {
                // Standard error may be closed.
                let _ =
                    writeln!(io::stderr(), "tandem: the recording is being written, which no signal ends");
            }
            _ => {}
        }
        // Nobody listens when the recording has ended.
        let _ = sender.send(End::Signal);
    })
    .context("cannot catch signals")
}

/// Whether a command can be run, as far as that shows before it is: the recording begins before it.
fn check_command(command: &[OsString]) -> Result<(), BadInput> {
    let Some(program) = command.first() else { return Ok(()) };
    let wrong = |what: &str| {
        Err(BadInput::new(format!("'{}' cannot be run: {what}", one_line(&program.display().to_string()))))
    };
    if program.is_empty() {
        return wrong("the command is empty; name a program");
    }
    let is_path = program.as_encoded_bytes().contains(&b'/');
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places: Vec<PathBuf> = match is_path {
        true => vec![program.into()],
        false => std::env::split_paths(&path).map(|folder| folder.join(program)).collect(),
    };
    let is_program = |place: &PathBuf| place.is_file() && access(place, Access::EXEC_OK).is_ok();
    if places.iter().any(is_program) {
        return Ok(());
    }
    match is_path {
        true if places[0].is_dir() => wrong("it is a folder"),
        true if places[0].exists() => wrong("it is no file that may be executed"),
        true => wrong("there is no such file"),
        false => wrong("there is no such program in the folders of PATH"),
    }
}

/// A command that runs.
struct Started {
    pid: u32,
}

impl Started {
    fn run(command: &[OsString], sender: Sender<End>) -> anyhow::Result<Option<Self>> {
        let [program, arguments @ ..] = command else { return Ok(None) };
        let child = Command::new(program).args(arguments).spawn();
        let mut child = child
            .map_err(|error| BadInput::new(format!("'{}' cannot be run: {error}", program.display())))?;
        let pid = child.id();
        thread::spawn(move || {
            let _ = sender.send(End::Command(child.wait()));
        });
        Ok(Some(Self { pid }))
    }

    /// Waits for its end, and returns its exit status as a shell gives it. A signal that was for this process
    /// is for the command, too.
    fn wait(self, ends: &Receiver<End>, first: Option<End>) -> anyhow::Result<i32> {
        let mut next = first;
        loop {
            match next {
                Some(End::Command(status)) => {
                    let status = status.context("cannot wait for the command")?;
                    let of_signal = || status.signal().map_or(1, |signal| 128 + signal);
                    return Ok(status.code().unwrap_or_else(of_signal));
                }
                Some(End::Signal) => {
                    let pid = rustix::process::Pid::from_raw(self.pid.cast_signed());
                    let term = |pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM);
                    // One that has ended needs no signal: it is waited for, so that no other has its number.
                    let _ = pid.map(term);
                }
                None => {}
            }
            next = Some(ends.recv().context("cannot wait for the command")?);
        }
    }
}

/// Reports how far the recording is, on standard error: a bar on a terminal, lines elsewhere.
struct Progress {
    bar: Option<ProgressBar>,
    every: Duration,
    last: Instant,
    is_shown: bool,
}

impl Progress {
    /// Nothing is reported while a command has the terminal.
    fn new(time: Option<Duration>, is_shown: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let bar = (is_shown && is_terminal).then(|| {
            let template = if time.is_some() {
                "recording {wide_bar} {msg}"
            } else {
                "recording, {msg}; Ctrl-C ends it"
            };
            let style =
                ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
            let length = time.map_or(0, |time| time.as_millis().try_into().unwrap_or(u64::MAX));
            ProgressBar::new(length).with_style(style)
        });
        let every = if is_terminal { REPORT_EVERY.0 } else { REPORT_EVERY.1 };
        Self { bar, every, last: Instant::now(), is_shown }
    }

    fn report(&mut self, recorder: &Recorder) {
        if !self.is_shown || self.last.elapsed() < self.every {
            return;
        }
        self.last = Instant::now();
        let elapsed = recorder.elapsed();
        let text = format!("{} s, {} of raw events", elapsed.as_secs(), megabytes(recorder.raw_bytes()));
        match &self.bar {
            Some(bar) => {
                bar.set_position(elapsed.as_millis().try_into().unwrap_or(u64::MAX));
                bar.set_message(text);
            }
            // Standard error may be closed.
            None => drop(writeln!(io::stderr(), "tandem: recording: {text}")),
        }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// One line on standard error, because standard output is the command's.
fn report(summary: &Summary, bytes: u64, name: &str) {
    let lost: u64 = summary.lost.iter().map(|lost| lost.events).sum();
    let cpus: Vec<u32> = summary.lost.iter().map(|lost| lost.cpu).collect();
    let lost = match lost {
        0 => "none lost".to_owned(),
        lost => format!("{lost} lost on CPUs {}; a larger --buffer loses fewer", format_cpulist(cpus)),
    };
    let full = if summary.is_full { "; it ended because it can have no more" } else { "" };
    let _ = writeln!(
        io::stderr(),
        "tandem: {name}: {} events of {} tasks in {:.1} s, {}, {lost}{full}",
        summary.events,
        summary.tasks,
        summary.length.as_secs_f64(),
        megabytes(bytes),
    );
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
