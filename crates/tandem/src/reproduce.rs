//! `tandem reproduce`: run experiments and print the published results beside the simulated ones.

use crate::bar::Bar;
use crate::scenario_source::library;
use crate::sim::parse_seed;
use anyhow::Context;
use clap::builder::PossibleValuesParser;
use std::fs;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tandem_file::new_file::NewFile;
use tandem_lab::experiment::{Experiment, ExperimentFolder};
use tandem_lab::report::{self, Csv, Format, Html, Json};
use tandem_lab::results::ExperimentResults;
use tandem_lab::runner::{self, Progress, RunOptions};
use tandemd::error::BadInput;
use tandemd::out::out;

/// Most runs at the same time.
const MAX_JOBS: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
/// Exit status of a command that a second Ctrl-C ended: 128 and the number of the signal, as shells have it.
pub const KILLED_BY_INTERRUPT: i32 = 130;

/// Arguments of `tandem reproduce`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem reproduce --quick\n  \
    tandem reproduce rate-control --out report\n  \
    tandem reproduce numa-affinity --format json --seed 7 > numa.json\n\n\
    Ctrl-C ends the runs and reports what is complete, with --out in files whose names begin with partial-; a second one \
    ends the command at once.")]
pub struct Args {
    /// Experiments, by the names of their folders; all if none is named
    names: Vec<String>,
    /// Fewer and shorter runs, for a first impression
    #[arg(long)]
    quick: bool,
    /// How to print the results
    #[arg(long, default_value = "table", value_parser = PossibleValuesParser::new(report::FORMATS.map(Format::name)))]
    format: String,
    /// Write report.html, results.json and results.csv into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    runs: RunArgs,
}

/// How to run which experiments, for `tandem calibrate` too.
#[derive(clap::Args)]
pub struct RunArgs {
    /// Seed of the first replication; the next ones count up from it
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_negative_numbers = true, value_parser = parse_seed)]
    seed: u64,
    /// Runs at the same time [default: one for each CPU]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = parse_jobs)]
    jobs: Option<NonZeroUsize>,
    /// The folder of the experiments [default: `experiments` here or in a folder above, or the installed
    /// ones]
    #[arg(long, value_name = "DIR")]
    experiments: Option<PathBuf>,
}

impl RunArgs {
    /// The seed, and how many runs at the same time.
    pub fn options(&self) -> RunOptions {
        let jobs = self.jobs.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
        RunOptions { seed: self.seed, jobs }
    }

    /// The experiments of these names with their folders, each once, or all if there are none.
    pub fn read(&self, names: &[String]) -> anyhow::Result<Vec<(PathBuf, Experiment)>> {
        let busy = Bar::new("reading", "experiments");
        let paths = find_experiments(self.experiments.as_deref(), names)?;
        busy.planned(paths.len());
        let mut experiments = Vec::new();
        for path in paths {
            let experiment = Experiment::read(&path).map_err(BadInput::new)?;
            experiments.push((path, experiment));
            busy.done();
        }
        Ok(experiments)
    }
}

/// Runs the experiments and prints their results.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let experiments = read_experiments(args)?;
    if let Some(folder) = &args.out {
        make_writable(folder)
            .map_err(|error| BadInput::new(format!("--out {}: {error}", folder.display())))?;
    }
    let options = args.runs.options();
    let cancel = cancelled_by_interrupt()?;
    let mut results = Vec::new();
    for experiment in &experiments {
        let bar = Bar::new(&experiment.name, "runs");
        results.push(runner::run(experiment, options, &bar, &cancel).map_err(BadInput::new)?);
        bar.line();
    }
    let is_cut = results.iter().any(|result| result.is_cut);
    results.retain(|result| !result.cells.is_empty());

    let format = report::format(&args.format).context("clap lets only known formats pass")?;
    if let Some(folder) = &args.out {
        // What was interrupted takes the place of no whole report.
        let part = if is_cut { "partial-" } else { "" };
        write_files(folder, part, &results)?;
        let report = folder.join(format!("{part}report.html"));
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "report: {}", report.canonicalize().unwrap_or(report).display());
    }
    // Last: who reads it may not read to its end.
    let mut out = BufWriter::new(out());
    format.write(&results, &mut out)?;
    out.flush()?;
    if is_cut {
        anyhow::bail!("interrupted; the results are of the replications that were complete");
    }
    Ok(())
}

/// How many runs at the same time, of `tandem check` too.
pub fn parse_jobs(text: &str) -> Result<NonZeroUsize, String> {
    let jobs = text.parse().ok().filter(|jobs| *jobs <= MAX_JOBS);
    jobs.ok_or_else(|| format!("allowed are whole numbers from 1 to {MAX_JOBS}"))
}

/// Makes the folder, and tries that files can be written into it, before the work rather than after it.
pub fn make_writable(folder: &Path) -> Result<(), String> {
    if folder.exists() && !folder.is_dir() {
        return Err("is not a folder".into());
    }
    fs::create_dir_all(folder).map_err(|error| format!("the folder cannot be made: {error}"))?;
    let trial = NewFile::create(&folder.join("trial"));
    trial.map(drop).map_err(|error| format!("nothing can be written there: {error}"))
}

/// Reads the experiments that are asked for, each once, before any is run.
fn read_experiments(args: &Args) -> anyhow::Result<Vec<Experiment>> {
    let mut experiments = Vec::new();
    for (_, experiment) in args.runs.read(&args.names)? {
        experiments.push(if args.quick { experiment.quick() } else { experiment });
    }
    Ok(experiments)
}

/// The folders of the experiments of these names, each once, or of all if there are none.
fn find_experiments(folder: Option<&Path>, names: &[String]) -> anyhow::Result<Vec<PathBuf>> {
    let folder = match folder {
        Some(path) => ExperimentFolder::open(path),
        None => {
            let here = std::env::current_dir().context("the current folder is gone")?;
            library().experiments(&here)
        }
    };
    let folder = folder.map_err(BadInput::new)?;
    let names = if names.is_empty() { folder.names() } else { names };
    let mut paths = Vec::new();
    for (position, name) in names.iter().enumerate() {
        if !names[..position].contains(name) {
            paths.push(folder.path_of(name).map_err(BadInput::new)?);
        }
    }
    Ok(paths)
}

/// A flag that the first Ctrl-C sets, after which runs that have begun end first; the second ends the process.
pub fn cancelled_by_interrupt() -> anyhow::Result<Arc<AtomicBool>> {
    interrupt_flag("what has begun ends first, unless Ctrl-C comes again")
}

/// A flag that the first Ctrl-C sets, which then says what happens; the second ends the process.
pub fn interrupt_flag(what_happens: &'static str) -> anyhow::Result<Arc<AtomicBool>> {
    let cancel = Arc::new(AtomicBool::new(false));
    let flag = cancel.clone();
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(KILLED_BY_INTERRUPT);
        }
        // A terminal has a bar on this line; standard error may be closed.
        let line = if io::stderr().is_terminal() { "\n" } else { "" };
        let _ = writeln!(io::stderr(), "{line}tandem: interrupted; {what_happens}");
    })
    .context("cannot listen for Ctrl-C")?;
    Ok(cancel)
}

/// Writes the results into files, whose names begin with `part`. Each appears under its name when it is complete.
fn write_files(folder: &Path, part: &str, results: &[ExperimentResults]) -> anyhow::Result<()> {
    let files: [(&str, &dyn Format); 3] =
        [("report.html", &Html), ("results.json", &Json), ("results.csv", &Csv)];
    for (name, format) in files {
        let path = folder.join(format!("{part}{name}"));
        let write = || -> io::Result<()> {
            let mut out = BufWriter::new(NewFile::create(&path)?);
            format.write(results, &mut out)?;
            out.into_inner()?.complete()
        };
        write().with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
