//! `tandem check`: search for a case that breaks a promise of the scheduler.

use crate::bar::LINE_EVERY;
use crate::reproduce::{cancelled_by_interrupt, make_writable, parse_jobs};
use crate::sim::parse_seed;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;
use tandem_file::new_file::NewFile;
use tandem_file::units::Duration;
use tandem_lab::check::judge::{Finding, judge};
use tandem_lab::check::promises::{PROMISES, Promise};
use tandem_lab::check::report;
use tandem_lab::check::search::{self, FoundCase, Options, Progress, RUN_SEED, all_promises};
use tandem_lab::request::parse_scheduler;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_lab::scenario::policy::scheduler::SchedulerName;
use tandemd::error::{BadInput, one_line};
use tandemd::out::out;

/// The highest number of a case that a search can begin with.
const FROM_CASE_MAX: u64 = 1_000_000_000_000_000_000;

/// Arguments of `tandem check`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem check --for 10min --out found\n  \
    tandem check --seed 7 --cases 1000 --promise shares --promise idle\n  \
    tandem check --policy host=object:scx_mine.bpf.o\n  \
    tandem check --policy host=object:new.bpf.o --except host=object:old.bpf.o\n  \
    tandem check found/shares.toml\n\n\
    The search reduces cases for as long again as --for says; with --cases, each in 400 runs at most. Ctrl-C or SIGTERM ends \
    both and reports what was found, as small as it is; a second one ends the command at once. Each case is written to --out as \
    soon as it is found. The exit status is 1 if a promise is broken.")]
pub struct Args {
    /// Judge these scenario files instead of searching
    scenarios: Vec<PathBuf>,
    /// The scheduler to judge: host=NAME, where NAME is tandem, linux, xen-credit, xen-credit2, or object:
    /// and the path of a sched_ext scheduler's object file [default: host=tandem, or that of the scenario
    /// files]
    #[arg(long, value_name = "host=NAME", value_parser = parse_host)]
    policy: Option<SchedulerName>,
    /// Leave out what this scheduler breaks in the same case: what is left is the fault of the one that is
    /// judged
    #[arg(long, value_name = "host=NAME", value_parser = parse_host, conflicts_with = "scenarios")]
    except: Option<SchedulerName>,
    /// Seed of the search
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_negative_numbers = true, value_parser = parse_seed)]
    seed: u64,
    /// How long to search, and then again to reduce what is found [default: 1min]
    #[arg(long = "for", value_name = "TIME", conflicts_with = "cases", value_parser = parse_time)]
    time: Option<Duration>,
    /// Try this many cases, however long that takes
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = parse_cases)]
    cases: Option<u64>,
    /// Try the cases from this number on
    #[arg(long, value_name = "NUMBER", default_value_t = 0, allow_negative_numbers = true, value_parser = parse_from_case)]
    from_case: u64,
    /// Judge this promise only; may be given several times
    #[arg(long = "promise", value_name = "NAME", value_parser = parse_promise)]
    promises: Vec<Promise>,
    /// End with the first case that breaks a promise
    #[arg(long)]
    first: bool,
    /// Number of cases per broken promise to reduce
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u16).range(0..=1000))]
    keep: u16,
    /// Write what was found into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Runs at the same time [default: one for each CPU]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = parse_jobs)]
    jobs: Option<NonZeroUsize>,
}

fn parse_host(text: &str) -> Result<SchedulerName, String> {
    match text.split_once('=') {
        Some(("host", name)) => parse_scheduler(name),
        Some(("guest", _)) => Err("guests are part of what is drawn; write host=NAME".into()),
        _ => Err("write host=NAME".into()),
    }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let time: Duration =
        text.parse().map_err(|_| "write a time with its unit, such as 90s or 2min".to_owned())?;
    if time.ns == 0 { Err("the time must be longer than 0s".into()) } else { Ok(time) }
}

fn parse_cases(text: &str) -> Result<u64, String> {
    let cases = text.parse().ok().filter(|cases| (1..=1_000_000_000).contains(cases));
    cases.ok_or_else(|| "allowed are whole numbers from 1 to 1000000000".into())
}

/// A number of a case that has enough of others behind it, however many are to be tried.
fn parse_from_case(text: &str) -> Result<u64, String> {
    let case = text.parse().ok().filter(|case| (0..=FROM_CASE_MAX).contains(case));
    case.ok_or_else(|| format!("allowed are whole numbers from 0 to {FROM_CASE_MAX}"))
}

fn parse_promise(text: &str) -> Result<Promise, String> {
    Promise::named(text).ok_or_else(|| {
        let names: Vec<_> = PROMISES.iter().map(|text| text.name).collect();
        format!("there is no promise '{text}'; there are {}", names.join(", "))
    })
}

/// Searches, or judges files, and prints what breaks promises.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let promises = if args.promises.is_empty() { all_promises() } else { args.promises.clone() };
    if !args.scenarios.is_empty() {
        return judge_files(args, &promises);
    }
    if let Some(folder) = &args.out {
        make_writable(folder)
            .map_err(|error| BadInput::new(format!("--out {}: {error}", folder.display())))?;
    }
    let end = args.cases.map_or(u64::MAX, |cases| args.from_case.saturating_add(cases));
    let options = Options {
        seed: args.seed,
        cases: args.from_case..end,
        host: args.policy.clone().unwrap_or(SchedulerName::Tandem),
        except: args.except.clone(),
        promises,
        keep: args.keep.into(),
        first_only: args.first,
        jobs: args.jobs.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN),
    };
    let time = match (args.time, args.cases) {
        (Some(time), _) => Some(time),
        (None, Some(_)) => None,
        (None, None) => Some(Duration { ns: 60_000_000_000 }),
    };
    let folder =
        args.out.as_deref().map(|path| Folder { path, options: &options, failure: Mutex::default() });
    let reporter = Reporter::new(args.cases, time, cancelled_by_interrupt()?, folder);
    let outcome = search::search(&options, &reporter).map_err(BadInput::new)?;
    reporter.bar.finish_and_clear();
    if let Some(failure) = reporter.folder.and_then(Folder::failure) {
        return Err(failure);
    }

    let mut out = out();
    write!(out, "{}", report::Table(&outcome))?;
    for found in &outcome.found {
        match &args.out {
            Some(folder) => {
                let path = folder.join(report::file_name(found.promise, found.case));
                writeln!(out, "{}", path.display())?;
            }
            None => write!(out, "\n{}", report::file(found, &options))?,
        }
    }
    match outcome.broken.len() {
        0 => Ok(()),
        1 => anyhow::bail!("a promise is broken"),
        broken => anyhow::bail!("{broken} promises are broken"),
    }
}

/// Judges scenario files, such as those that were found before.
fn judge_files(args: &Args, promises: &[Promise]) -> anyhow::Result<()> {
    let policy = PolicyTable { host: args.policy.clone().map(Into::into), ..PolicyTable::default() };
    let mut broken = 0;
    for path in &args.scenarios {
        let source = ScenarioSource::read(path).map_err(BadInput::new)?;
        let scenario = source.build(&Default::default(), &policy).map_err(BadInput::new)?;
        let findings = judge(&scenario, RUN_SEED, promises)
            .map_err(|error| BadInput::new(format!("{}: {error}", path.display())))?;
        let name = one_line(&path.display().to_string());
        broken += usize::from(!findings.is_empty());
        let mut out = out();
        for finding in &findings {
            writeln!(out, "{name}: {}", report::line(finding))?;
        }
        if findings.is_empty() {
            writeln!(out, "{name}: keeps all promises")?;
        }
    }
    match broken {
        0 => Ok(()),
        1 => anyhow::bail!("a scenario breaks a promise"),
        broken => anyhow::bail!("{broken} scenarios break promises"),
    }
}

/// The folder of what was found, where each case is from when it is found, as small as it is by then.
struct Folder<'a> {
    path: &'a Path,
    options: &'a Options,
    /// Why not all of it could be written.
    failure: Mutex<Option<anyhow::Error>>,
}

impl Folder<'_> {
    fn write(&self, found: &FoundCase) {
        let path = self.path.join(report::file_name(found.promise, found.case));
        let write = || -> io::Result<()> {
            let mut file = NewFile::create(&path)?;
            file.write_all(report::file(found, self.options).as_bytes())?;
            file.complete()
        };
        if let Err(error) = write() {
            self.fail(anyhow::anyhow!("cannot write {}: {error}", path.display()));
        }
    }

    fn remove(&self, promise: Promise, case: u64) {
        let path = self.path.join(report::file_name(promise, case));
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            self.fail(anyhow::anyhow!("cannot remove {}: {error}", path.display()));
        }
    }

    fn fail(&self, failure: anyhow::Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
    }

    fn has_failed(&self) -> bool {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn failure(self) -> Option<anyhow::Error> {
        self.failure.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports the progress of the search on standard error: a bar on a terminal, lines elsewhere.
struct Reporter<'a> {
    bar: ProgressBar,
    began: Instant,
    /// When the reduction of the first case began.
    shrinks: OnceLock<Instant>,
    time: Option<std::time::Duration>,
    cancel: Arc<AtomicBool>,
    folder: Option<Folder<'a>>,
    tried: AtomicU64,
    broken: AtomicU64,
    reported: Mutex<Reported>,
}

/// The reports so far.
struct Reported {
    promises: BTreeSet<Promise>,
    line: Instant,
}

impl<'a> Reporter<'a> {
    fn new(
        cases: Option<u64>,
        time: Option<Duration>,
        cancel: Arc<AtomicBool>,
        folder: Option<Folder<'a>>,
    ) -> Self {
        let template = match cases {
            Some(_) => "check {wide_bar} {pos}/{len} cases, {eta} left {msg}",
            None => "check {spinner} {pos} cases in {elapsed} {msg}",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self {
            bar: cases.map_or_else(ProgressBar::new_spinner, ProgressBar::new).with_style(style),
            began: Instant::now(),
            shrinks: OnceLock::new(),
            time: time.map(|time| std::time::Duration::from_nanos(time.ns)),
            cancel,
            folder,
            tried: AtomicU64::new(0),
            broken: AtomicU64::new(0),
            reported: Mutex::new(Reported { promises: BTreeSet::new(), line: Instant::now() }),
        }
    }

    /// Whether to end whatever it is about.
    fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed) || self.folder.as_ref().is_some_and(Folder::has_failed)
    }

    /// Whether so much time as for the search has gone by since then.
    fn is_late(&self, since: Instant) -> bool {
        self.time.is_some_and(|time| since.elapsed() >= time)
    }

    fn tell(&self, line: &str) {
        let seconds = self.began.elapsed().as_secs();
        self.bar.suspend(|| {
            // Nothing is left to be done if standard error is closed.
            let _ = writeln!(io::stderr(), "tandem: {seconds} s: {line}");
        });
    }
}

impl Progress for Reporter<'_> {
    fn tried(&self, case: u64, findings: &[Finding]) {
        let tried = self.tried.fetch_add(1, Ordering::Relaxed) + 1;
        let broken = self.broken.fetch_add(u64::from(!findings.is_empty()), Ordering::Relaxed)
            + u64::from(!findings.is_empty());
        self.bar.inc(1);
        self.bar.set_message(format!("({broken} break a promise)"));
        let mut told = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        for finding in findings {
            if told.promises.insert(finding.promise) {
                self.tell(&format!("case {case} breaks {}", report::line(finding)));
            }
        }
        if !io::stderr().is_terminal() && told.line.elapsed() > LINE_EVERY {
            told.line = Instant::now();
            self.tell(&format!("{tried} cases, {broken} break a promise"));
        }
    }

    fn keeps(&self, found: &FoundCase) {
        if let Some(folder) = &self.folder {
            folder.write(found);
        }
    }

    fn drops(&self, promise: Promise, case: u64) {
        if let Some(folder) = &self.folder {
            folder.remove(promise, case);
        }
    }

    fn shrinks(&self, promise: Promise) {
        self.shrinks.get_or_init(Instant::now);
        self.tell(&format!("making the case that breaks {} small", promise.text().name));
    }

    fn is_over(&self) -> bool {
        self.is_cancelled() || self.is_late(self.began)
    }

    fn is_small_enough(&self) -> bool {
        self.is_cancelled() || self.shrinks.get().is_some_and(|&began| self.is_late(began))
    }
}
