//! `tandem study`: run a scenario at many points, and keep what comes out in a folder.
//!
//! A study goes on where it was interrupted, in parts on many machines, and with whatever other studies have left in its folder.

use crate::bar::Bar;
use crate::reproduce::{interrupt_flag, make_writable, parse_jobs};
use crate::scenario_source::library;
use crate::sim::Format;
use anyhow::bail;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;
use tandem_lab::library::LibraryError;
use tandem_lab::runner::Progress;
use tandem_lab::study::{
    Job, Part, Plan, Results, Shard, Shards, Study, StudyError, batches, compute, run as run_jobs,
};
use tandemd::error::{BadInput, one_line};
use tandemd::out::out;
use tandemd::text::to_json_text;

/// Arguments of `tandem study`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem study slices.toml --out results --plan\n  \
    tandem study slices.toml --out results\n  \
    tandem study slices.toml --out results --shard 3/100     # one of 100 jobs, in any order, on any machine\n  \
    tandem study slices.toml --out results --format parquet > runs.parquet\n\n\
    What is in the folder is not computed again. Folders merge by copying their files into one.")]
pub struct Args {
    /// The study: a file that `tandem schema study` describes
    study: PathBuf,
    /// Keep the results in this folder, which may have those of other studies too
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Say what there is to do, and what it takes, and do not do it
    #[arg(long, conflicts_with_all = ["shard", "format"])]
    plan: bool,
    /// Compute only this part of the points, such as 3/100, and print no results: for job arrays
    #[arg(long, value_name = "I/N", value_parser = parse_part)]
    shard: Option<Part>,
    /// Points that are computed together and kept in one file [default: as many as make 4096 files at most]
    #[arg(long, value_name = "NUMBER")]
    batch: Option<NonZeroUsize>,
    /// Points at the same time [default: one for each CPU]
    #[arg(long, value_name = "NUMBER", value_parser = parse_jobs)]
    jobs: Option<NonZeroUsize>,
    /// How to print the results
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

fn parse_part(text: &str) -> Result<Part, String> {
    let wrong = || "write I/N, such as 3/100, where I counts from 1 to N".to_owned();
    let (number, of) = text.split_once('/').ok_or_else(wrong)?;
    match (number.parse::<usize>(), of.parse::<usize>()) {
        (Ok(number), Ok(of)) if (1..=of).contains(&number) => Ok(Part { number: number - 1, of }),
        _ => Err(wrong()),
    }
}

/// Computes what is missing, and prints the results.
pub fn run(args: &Args) -> anyhow::Result<()> {
    args.format.check()?;
    let study = Study::read(&args.study, &library()).map_err(|error| match error {
        LibraryError::File(error) => BadInput::new(error),
        other => BadInput::new(other),
    })?;
    let threads = args.jobs.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let plan = {
        let _busy = Bar::busy(&study.title, "reading the points");
        Plan::new(&study)
    };
    if let Some(refusal) = plan.refusal() {
        return Err(BadInput::new(refusal).into());
    }
    let mut shards = Shards::open(&args.out).map_err(|error| BadInput::new(format!("--out {error}")))?;
    for stranger in shards.strangers() {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "tandem: note: left aside: {stranger}");
    }
    let part = args.shard.unwrap_or(Part::WHOLE);
    let jobs = batches(&study, &plan, args.batch, part, |key| shards.has(key));
    let missing: usize = jobs.iter().map(|job| job.points.len()).sum();
    if args.plan {
        return print_plan(&study, &plan, &jobs, args.out.as_path());
    }
    if missing > 0 {
        make_writable(&args.out)
            .map_err(|error| BadInput::new(format!("--out {}: {error}", args.out.display())))?;
    }
    // Until here nothing is lost by an end at once.
    let cancel = interrupt_flag("what is computed is kept; run again to go on")?;
    let bar = Bar::new(&study.title, "points");
    bar.planned(missing);
    let outcome = run_jobs(&study, jobs, &mut shards, threads, &cancel, &|| bar.done());
    if missing > 0 {
        bar.line();
    }
    drop(bar);
    outcome.map_err(|error| match error {
        StudyError::Shards(error) => anyhow::anyhow!("{error}"),
        StudyError::Point(message) => BadInput::new(message).into(),
    })?;
    let there = plan.points.iter().flatten().filter(|key| shards.has(key)).count();
    if cancel.load(Ordering::Relaxed) {
        bail!(
            "interrupted; {there} of {} points are in {}; run again to go on",
            plan.runnable(),
            one_line(&args.out.display().to_string())
        );
    }
    let mut out = out();
    if let Some(Part { number, of }) = args.shard {
        writeln!(
            out,
            "shard {}/{of}: computed {missing} points; of all {}, {there} are here",
            number + 1,
            plan.runnable()
        )?;
        return Ok(out.flush()?);
    }
    let results = Results::collect(&study, &plan, &shards).map_err(anyhow::Error::new)?;
    match args.format {
        Format::Table => write!(out, "{results}")?,
        Format::Json => out.write_all(to_json_text(&results)?.as_bytes())?,
        Format::Parquet => results.write_parquet(&shards, &mut out)?,
    }
    Ok(out.flush()?)
}

/// Says what there is to do. One run shows what all take.
fn print_plan(study: &Study, plan: &Plan, jobs: &[Job], folder: &Path) -> anyhow::Result<()> {
    let mut out = out();
    let replications = study.replications;
    let (least, most) = (replications.min, replications.max);
    let runs = |points: usize| match least == most {
        true => format!("{} runs", points * least),
        false => format!("{} to {} runs", points * least, points * most),
    };
    let refused = study.points().len() - plan.runnable();
    let missing: usize = jobs.iter().map(|job| job.points.len()).sum();
    writeln!(
        out,
        "{}: {} points of {} dimensions, {}",
        one_line(&study.title),
        study.points().len(),
        study.dimensions().len(),
        runs(plan.runnable())
    )?;
    if refused > 0 {
        writeln!(out, "{refused} points do not fit the scenario")?;
    }
    let folder = one_line(&folder.display().to_string());
    writeln!(
        out,
        "{} points are in {folder}; {missing} are missing: {}",
        plan.runnable() - missing,
        runs(missing)
    )?;
    // The middle one: ends of ranges are the cheapest or the dearest.
    if let Some(job) = jobs.get(jobs.len() / 2) {
        let one = Job { points: job.points[..1].to_vec(), keys: job.keys[..1].to_vec() };
        let start = Instant::now();
        let done = compute(study, &one, &AtomicBool::new(false), &|| ()).map_err(BadInput::new)?;
        let took_s = start.elapsed().as_secs_f64();
        let made: usize = done.iter().map(|done| done.runs.len()).sum();
        let run_s = took_s / made.max(1) as f64;
        let bytes = Shard::new(&done).bytes.len() as f64 / made.max(1) as f64;
        let of_all = |a_run: f64| (a_run * (missing * least) as f64, a_run * (missing * most) as f64);
        let (least_s, most_s) = of_all(run_s);
        let (least_bytes, most_bytes) = of_all(bytes);
        writeln!(out, "the point {} takes {run_s:.3} s a run on this machine", study.shown(&one.points[0]))?;
        writeln!(
            out,
            "if all do: {} of one CPU, {} in the folder",
            between(least_s, most_s, "s"),
            between(least_bytes / 1e6, most_bytes / 1e6, "MB")
        )?;
    }
    Ok(out.flush()?)
}

fn between(least: f64, most: f64, unit: &str) -> String {
    match least == most {
        true => format!("{least:.1} {unit}"),
        false => format!("{least:.1} to {most:.1} {unit}"),
    }
}
