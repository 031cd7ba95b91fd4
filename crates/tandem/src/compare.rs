//! `tandem compare`: schedulers on one scenario or many, by runs with the same seeds.

mod arena;

use crate::bar::Bar;
use crate::out_file::OutFile;
use crate::reproduce::{cancelled_by_interrupt, make_writable, parse_jobs};
use crate::scenario_source;
use crate::sim::{Format, each_once, note_left_out, parse_seed, parse_setting, without_effect};
use std::fmt::Display;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tandem_lab::compare::{Comparison, Runs, compare, moments, page};
use tandem_lab::request::{self, Level, Request, RequestError};
use tandem_lab::results::Key;
use tandem_lab::tables;
use tandem_recording::parquet::Table;
use tandem_sim::scenario::Scenario;
use tandemd::error::{BadInput, one_line};
use tandemd::out::out;
use tandemd::text::to_json_text;

/// Most seeds: more than any interval needs, and a bound on what is kept in memory.
const SEEDS_MAX: usize = 10_000;
/// How many there are if nothing is said; with a precision, at most.
const SEEDS: usize = 10;
const SEEDS_FOR_PRECISION: usize = 100;
/// The least precision, percent: what the table prints.
const PRECISION_MIN_PCT: f64 = 0.1;

/// Arguments of `tandem compare`.
#[derive(clap::Args)]
#[command(
    after_help = "The first policy is the baseline of the others; with one alone, the scenario's own is. Intervals are of 95%; \
    better and worse stand where one does not hold zero.\n\nExamples:\n  \
    tandem compare noisy-neighbour --policy linux --policy tandem\n  \
    tandem compare experiments/rate-control/specvirt.toml --policy tandem --seeds 5\n  \
    tandem compare mine.toml --policy linux --policy object:my.bpf.o --format json\n  \
    tandem compare mine.toml --policy linux --policy tandem --format parquet > runs.parquet\n  \
    tandem compare mine.toml --policy linux --policy tandem --precision 2 --out report\n  \
    tandem compare experiments/flat-domain/unixbench.toml --policy guest=linux --policy guest=tandem\n  \
    tandem compare --all --out arena\n  \
    tandem compare schbench build --policy linux --policy object:my.bpf.o --machine 1x8x2 --machine 2x64x2"
)]
pub struct Args {
    /// The scenario: a file, the name of one of the library, such as noisy-neighbour, or - for standard input. Of several,
    /// the standings in all of them are printed
    #[arg(value_name = "SCENARIO", required_unless_present = "all")]
    scenarios: Vec<PathBuf>,
    /// Compare on all ready scenarios
    #[arg(long, conflicts_with = "scenarios")]
    all: bool,
    /// A scheduler of the host, or guest=NAME of all guests; may be given several times. NAME is xen-credit or
    /// xen-credit2 (hosts only), linux, tandem, or object: and the path of a sched_ext scheduler's object file [default with
    /// --all: linux, tandem, xen-credit and xen-credit2]
    #[arg(long = "policy", value_name = "NAME", required_unless_present = "all", value_parser = parse_policy)]
    policies: Vec<(String, Level)>,
    /// Set a parameter of the scenario; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, Key)>,
    /// Run on this machine: set the parameter `machine`, which all ready scenarios have; may be given several times
    #[arg(long = "machine", value_name = "NAME")]
    machines: Vec<String>,
    /// How many seeds each runs with [default: 10; with --precision, at most 100]
    #[arg(long, value_name = "NUMBER", value_parser = parse_seeds)]
    seeds: Option<usize>,
    /// Run with as many seeds as make the intervals reach no further than so many percent of the baseline to either
    /// side, at most --seeds: of what programs count and of response times up to the 99th percentile, or, where there
    /// are none, of wake-ups
    #[arg(long, value_name = "PERCENT", value_parser = parse_precision)]
    precision: Option<f64>,
    /// The first seed; the next ones count up from it
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_negative_numbers = true, value_parser = parse_seed)]
    seed: u64,
    /// How to print the comparison
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write compare.html, with pictures, and compare.json into this folder; of several scenarios, into a folder of each, and
    /// index.html and arena.json beside these
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Runs at the same time [default: one for each CPU]
    #[arg(long, value_name = "NUMBER", value_parser = parse_jobs)]
    jobs: Option<NonZeroUsize>,
}

/// What was written, and what it means.
fn parse_policy(text: &str) -> Result<(String, Level), String> {
    Ok((text.to_owned(), request::parse_policy(text)?))
}

fn parse_seeds(text: &str) -> Result<usize, String> {
    let seeds = text.parse().ok().filter(|seeds| (1..=SEEDS_MAX).contains(seeds));
    seeds.ok_or_else(|| format!("allowed are whole numbers from 1 to {SEEDS_MAX}"))
}

fn parse_precision(text: &str) -> Result<f64, String> {
    let precision = text.parse().ok().filter(|pct| (PRECISION_MIN_PCT..=100.0).contains(pct));
    precision.ok_or_else(|| format!("allowed are percentages from {PRECISION_MIN_PCT} to 100"))
}

/// A scenario with its contenders, each with the word that it was asked for by where that says more than its name.
struct Match {
    scenario: String,
    contenders: Vec<(Option<String>, Scenario)>,
}

impl Match {
    fn new(args: &Args, path: &Path, machine: Option<&String>) -> Result<Self, BadInput> {
        let source = scenario_source::read(path)?;
        let name = one_line(&path.display().to_string());
        let mut request = Request { name, source, parameters: each_once(&args.settings)? };
        if machine.is_some_and(|machine| !request.set_machine(machine)) {
            return Err(BadInput::new("`--set machine=` and `--machine` are both given; keep one"));
        }
        let contenders = contenders(args, &request)?;
        note_left_out(&request, &policies(args).map(|(_, level)| level.alone()).collect::<Vec<_>>());
        Ok(Self { scenario: request.name, contenders })
    }

    /// The comparison, written into the folder if there is one; `None` if nothing has run with a whole seed.
    fn run(&self, runs: Runs, out: Option<&Path>, cancel: &AtomicBool) -> anyhow::Result<Option<Comparison>> {
        let bar = Bar::new(&self.scenario, "runs");
        let refused = |error: &dyn Display| BadInput::new(format!("{}: {error}", self.scenario));
        let comparison =
            compare(&self.scenario, &self.contenders, runs, &bar, cancel).map_err(|error| refused(&error))?;
        if let (Some(comparison), Some(folder)) = (&comparison, out) {
            let moments =
                moments(comparison, &self.contenders, &bar, cancel).map_err(|error| refused(&error))?;
            write(folder, "compare.html", &page::html(comparison, &moments)?)?;
            write(folder, "compare.json", &to_json_text(comparison)?)?;
        }
        bar.line();
        Ok(comparison)
    }
}

/// The schedulers that are compared, with what was written; where none is named, all of hosts.
fn policies(args: &Args) -> impl Iterator<Item = (String, Level)> {
    let named = args.policies.iter().cloned();
    let all =
        ["linux", "tandem", "xen-credit", "xen-credit2"].into_iter().filter(|_| args.policies.is_empty());
    named.chain(all.map(|name| parse_policy(name).expect("they are the names of schedulers")))
}

/// The contenders of a scenario. What is wrong with them is said in the words of the command line.
fn contenders(args: &Args, request: &Request) -> Result<Vec<(Option<String>, Scenario)>, BadInput> {
    let policies: Vec<_> = policies(args).collect();
    request.contenders(&policies).map_err(|error| match error {
        RequestError::NoGuests => without_effect(),
        RequestError::Same { one, other } => {
            let word = |at: usize| format!("`--policy {}`", one_line(&policies[at].0));
            let (one, other) = (one.map_or("the scenario's own".into(), word), word(other));
            let message =
                format!("{other} is the same as {one}, which leaves nothing to compare; give another");
            BadInput::new(message)
        }
        other => BadInput::new(other),
    })
}

/// Each scenario on each machine. What is wrong with the last one is said before the first one runs; of all ready
/// scenarios, those that do not fit are left out.
fn matches(args: &Args, scenarios: &[PathBuf]) -> Result<Vec<Match>, BadInput> {
    let machines: Vec<Option<&String>> = match &args.machines[..] {
        [] => vec![None],
        machines => machines.iter().map(Some).collect(),
    };
    let (mut matches, mut refusals) = (Vec::new(), Vec::new());
    for scenario in scenarios {
        let name = one_line(&scenario.display().to_string());
        for machine in &machines {
            match Match::new(args, scenario, *machine) {
                Ok(fit) => matches.push(fit),
                Err(refusal) if args.all => refusals.push((name.clone(), refusal)),
                Err(refusal) if scenarios.len() > 1 => {
                    return Err(BadInput::new(format!("{name}: {refusal}")));
                }
                Err(refusal) => return Err(refusal),
            }
        }
    }
    if matches.is_empty()
        && let Some((_, refusal)) = refusals.pop()
    {
        return Err(refusal);
    }
    for (scenario, refusal) in refusals {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "tandem: {scenario} is left out: {refusal}");
    }
    Ok(matches)
}

/// What is given twice would count twice.
fn refuse_twice<T: PartialEq>(what: &str, given: &[T], shown: impl Fn(&T) -> String) -> Result<(), BadInput> {
    let again = given.iter().enumerate().find(|(at, one)| given[..*at].contains(one));
    again.map_or(Ok(()), |(_, one)| {
        let name = one_line(&shown(one));
        Err(BadInput::new(format!("the {what} `{name}` is given twice; leave one out")))
    })
}

/// Runs all and prints them side by side.
pub fn run(args: &Args) -> anyhow::Result<()> {
    args.format.check()?;
    let scenarios = if args.all { scenario_source::ready()? } else { args.scenarios.clone() };
    let jobs = args.jobs.or_else(|| thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN);
    let seeds = args.seeds.unwrap_or(if args.precision.is_some() { SEEDS_FOR_PRECISION } else { SEEDS });
    if args.precision.is_some() && seeds < 2 {
        return Err(BadInput::new("`--precision` needs an interval, which takes `--seeds 2` or more").into());
    }
    let runs = Runs { seed: args.seed, seeds, precision_pct: args.precision, jobs };
    refuse_twice("scenario", &scenarios, |scenario| scenario.display().to_string())?;
    refuse_twice("machine", &args.machines, String::clone)?;
    let matches = matches(args, &scenarios)?;
    if let Some(folder) = &args.out {
        make_writable(folder)
            .map_err(|error| BadInput::new(format!("--out {}: {error}", folder.display())))?;
    }
    let cancel = cancelled_by_interrupt()?;
    match &matches[..] {
        [only] if !args.all => {
            let comparison = only.run(runs, args.out.as_deref(), &cancel)?;
            let Some(comparison) = comparison else {
                anyhow::bail!("interrupted before all had run with one seed")
            };
            let table = || tables::of_comparisons([&comparison]);
            print(args.format, &comparison, &to_json_text(&comparison)?, table)?;
            if cancel.load(Ordering::Relaxed) && comparison.is_cut_short(runs) {
                anyhow::bail!("interrupted; the comparison is of the seeds that all had run with");
            }
            Ok(())
        }
        several => arena::run(args, several, runs, &cancel),
    }
}

/// Prints the result: as text, as its JSON, or the values of its runs as a table.
fn print(
    format: Format,
    text: &impl Display,
    json: &str,
    table: impl FnOnce() -> Table,
) -> anyhow::Result<()> {
    let mut out = out();
    match format {
        Format::Table => write!(out, "{text}")?,
        Format::Json => out.write_all(json.as_bytes())?,
        Format::Parquet => table().write_parquet(&mut out)?,
    }
    Ok(out.flush()?)
}

fn write(folder: &Path, file: &str, text: &str) -> anyhow::Result<()> {
    OutFile::create(&folder.join(file), &[])?.write(text)?;
    Ok(())
}
