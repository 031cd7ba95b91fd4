//! `tandem verify`: compares schedulers on this machine by letting them take turns.
//!
//! The plan, the state file, the analysis and the report are the lab's ([`tandem_lab::switchback`]); what loads
//! schedulers and measures is the host's ([`tandem_host::trial`]). This joins the two.

pub mod arm_process;
mod arms;
mod block;
mod metric;
mod progress;

use crate::reproduce::cancelled_by_interrupt;
use anyhow::Context;
use arms::Arm;
use block::Bench;
use progress::Progress;
use std::cell::RefCell;
use std::env;
use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tandem_host::scheduler::RunningKernel;
use tandem_host::topology::read_sysfs;
use tandem_host::trial::{ArmError, ArmScheduler, InvokingUser, check_ready};
use tandem_host::vms::Finder;
use tandem_lab::statistics::switchback::Better;
use tandem_lab::switchback::Plan;
use tandem_lab::switchback::analysis::{compare, harms, winner};
use tandem_lab::switchback::file::StateFile;
use tandem_lab::switchback::record::{Event, Failure, History, Trial};
use tandem_lab::switchback::report::{End, Report};
use tandemd::error::BadInput;
use tandemd::observe;
use tandemd::out::out;
use tandemd::text::to_json_text;

/// Shortest block: counters of the kernel are ticks of 10 ms.
const BLOCK_MIN: Duration = Duration::from_secs(1);
/// Shortest time that is measured in a block.
const MEASURED_MIN: Duration = Duration::from_millis(500);
/// The part of a block that is left out unless `--settle` says otherwise.
const SETTLE_DIVISOR: u32 = 4;
/// Most blocks: a month of blocks of 20 s.
const BLOCKS_MAX: u64 = 130_000;

const HELP: &str = "The trial consists of rounds. In each, every arm has two blocks: a random order, then the same order \
backwards, so that a drift of the load meets all arms alike. The first arm is the baseline. In each block it loads the \
arm's scheduler, lets it settle, and measures for each VM and for the machine how long vCPUs and tasks wait, and how much \
they run. COMMAND is started once in each block when it has settled; it has to end before the block does, and prints one \
number, or lines of

  [NAME] VALUE [lower|higher]

where the last word says what is better, instead of --better. Under sudo, the user who called sudo runs it.

What COMMAND prints is decisive: it decides whether an arm is worse beyond the bound of --stop-when-worse, and which arm \
wins. Without COMMAND, the wait of VMs is decisive, and without VMs, the number of waiting tasks.

An arm fails if its scheduler does not load, or is ejected; it has no further blocks. When the command ends, in whatever \
way, the kernel's own scheduler is back. With --end winner the command loads the winner and stays until a signal.

It needs root, and no other scheduler of sched_ext may be loaded. Exit status: 0 if the trial was complete or stopped for \
an arm that is worse, 1 if an arm failed or it was interrupted.

Examples:
  tandem verify
  tandem verify --arms kernel,tandem:settings.toml --metric ./latency.sh --out trial.jsonl
  tandem verify --arms kernel --arm lavd='scx_lavd --performance' --block 1min --blocks 60
  tandem verify --out trial.jsonl --resume
  tandem verify --metric './bench --seconds 10' --better higher --end winner";

/// Arguments of `tandem verify`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Arms: kernel (no sched_ext), tandem, tandem:FILE with a file of settings; the first is the baseline
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "kernel,tandem")]
    arms: Vec<String>,
    /// A further arm: the command of any scheduler of sched_ext; may be repeated
    #[arg(long, value_name = "NAME=COMMAND")]
    arm: Vec<String>,
    /// How long an arm runs at a time: in seconds, or with a unit
    #[arg(long, value_name = "TIME", default_value = "20 s", value_parser = parse_block)]
    block: Duration,
    /// How many blocks, at least; whole rounds are run
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=BLOCKS_MAX))]
    blocks: u64,
    /// How much of the beginning of each block is left out [default: a quarter of it]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    settle: Option<Duration>,
    /// A command line of the shell that prints values to compare
    #[arg(long, value_name = "COMMAND")]
    metric: Option<String>,
    /// Whether less or more of these values is better
    #[arg(long, value_enum, default_value = "lower")]
    better: BetterArg,
    /// Drop an arm that is worse than the baseline by more than this; or never
    #[arg(long, value_name = "PERCENT", default_value = "50%", value_parser = parse_bound)]
    stop_when_worse: Bound,
    /// A difference that does not matter
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = parse_percent)]
    margin: f64,
    /// The scheduler at the end
    #[arg(long, value_enum, default_value = "kernel")]
    end: EndArg,
    /// What the order is drawn from [default: a random number, which is printed]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Write each block to this file when it is complete
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Go on with the trial in the file of --out; repeat its other options
    #[arg(long, requires = "out")]
    resume: bool,
    /// How long loading a scheduler may take
    #[arg(long, value_name = "TIME", default_value = "1 min", value_parser = parse_time)]
    load_limit: Duration,
    /// Form of the results
    #[arg(long, value_enum, default_value = "table")]
    format: FormatArg,
    /// Include VMs that run without KVM, which any process can imitate
    #[arg(long)]
    emulated: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum BetterArg {
    Lower,
    Higher,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum EndArg {
    Kernel,
    Winner,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum FormatArg {
    Table,
    Json,
}

/// When an arm is dropped; none: never.
#[derive(Clone, Copy)]
struct Bound(Option<f64>);

fn parse_block(text: &str) -> Result<Duration, String> {
    observe::parse_interval(text, BLOCK_MIN)
}

fn parse_time(text: &str) -> Result<Duration, String> {
    observe::parse_interval(text, Duration::ZERO)
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim().parse().ok();
    number
        .filter(|percent: &f64| percent.is_finite() && *percent >= 0.0)
        .ok_or_else(|| format!("`{text}` is no percentage from 0 on, such as 5%"))
}

fn parse_bound(text: &str) -> Result<Bound, String> {
    match text {
        "never" => Ok(Bound(None)),
        _ => parse_percent(text).map(|percent| Bound(Some(percent))),
    }
}

/// Makes the trial, or goes on with one, and prints what it shows.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let arms = arms::parse(&args.arms, &args.arm)?;
    let mut trial = trial(args, &arms)?;
    let kernel = RunningKernel::new(Path::new("/"));
    let _locked = check_ready(&kernel)?;
    let machine = read_sysfs(Path::new("/"))?;
    let mut history = History::default();
    let mut file = match &args.out {
        None => None,
        Some(path) if !args.resume => Some(StateFile::create(path, &trial).map_err(BadInput::new)?),
        Some(path) => {
            let resumed = StateFile::resume(path, &trial, args.seed.is_none());
            let (file, recorded, past) = resumed.map_err(BadInput::new)?;
            (trial, history) = (recorded, past);
            Some(file)
        }
    };
    let cancel = cancelled_by_interrupt()?;
    let progress = Progress::new(trial.plan.blocks());
    progress.say(&describe(&trial, history.blocks().count()));
    let bench = Bench {
        kernel: &kernel,
        machine: &machine,
        finder: RefCell::new(Finder::new(Path::new("/")).with_emulated(args.emulated)),
        keeping: arm_process::keeping(),
        trial: &trial,
        arms: &arms,
        user: InvokingUser::behind_sudo(|name| env::var(name).ok()),
        load_limit: args.load_limit,
        cancel: &cancel,
        progress: &progress,
        missing: RefCell::default(),
    };
    let ended = make(&bench, &mut history, file.as_mut(), args.stop_when_worse);
    let end = match &ended {
        Err(_) => End::Interrupted,
        Ok(()) if history.has_arms(&trial) => End::Complete,
        Ok(()) => End::Stopped,
    };
    let comparisons = compare(&trial, &history, args.margin);
    let winner = winner(&trial, &history, &comparisons);
    let notes: Vec<_> = bench.missing.borrow().iter().map(|&note| note.to_owned()).collect();
    let report =
        Report { trial: &trial, history: &history, comparisons: &comparisons, winner, end, notes: &notes };
    progress.clear();
    let text = match args.format {
        FormatArg::Table => report.to_string(),
        FormatArg::Json => to_json_text(&report.to_json())?,
    };
    out().write_all(text.as_bytes())?;
    out().flush()?;
    if let Err(error) = ended {
        let (done, planned) = (history.blocks().count(), trial.plan.blocks());
        let again = if args.out.is_some() { "; --resume goes on with it" } else { "" };
        return Err(error.context(format!("the trial ended after {done} of {planned} blocks{again}")));
    }
    if let (EndArg::Winner, Some(winner)) = (args.end, winner)
        && arms[winner].scheduler != ArmScheduler::Kernel
    {
        bench.hold(winner).with_context(|| format!("the winner, {}, does not stay", arms[winner].name))?;
    }
    match history.failures().find(|failure| !failure.is_harm) {
        Some(Failure { arm, .. }) => anyhow::bail!("the arm {arm} failed"),
        None => Ok(()),
    }
}

/// What the options ask for.
fn trial(args: &Args, arms: &[Arm]) -> Result<Trial, BadInput> {
    let settle = args.settle.unwrap_or(args.block / SETTLE_DIVISOR);
    if settle + MEASURED_MIN > args.block {
        return Err(BadInput::new(format!(
            "of a block of {:?}, {settle:?} are left out; at least {MEASURED_MIN:?} must be left to measure",
            args.block
        )));
    }
    if args.metric.as_ref().is_some_and(|metric| metric.trim().is_empty()) {
        return Err(BadInput::new(
            "--metric is empty; give it a command line that prints values, or leave it out",
        ));
    }
    // Short enough to type, and for JSON.
    let seed = args.seed.unwrap_or_else(|| RandomState::new().hash_one(0) >> 32);
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Ok(Trial {
        plan: Plan::with_blocks(arms.len(), args.blocks as usize, seed),
        arms: arms.iter().map(Arm::record).collect(),
        block_ns: ns(args.block),
        settle_ns: ns(settle),
        metric: args.metric.clone(),
        better: match args.better {
            BetterArg::Lower => Better::Lower,
            BetterArg::Higher => Better::Higher,
        },
    })
}

/// What is about to happen.
fn describe(trial: &Trial, done: usize) -> String {
    let names: Vec<_> = trial.arms.iter().map(|arm| arm.name.as_str()).collect();
    let blocks = trial.plan.blocks();
    let seconds = ((blocks - done) as u64).saturating_mul(trial.block_ns) / 1_000_000_000;
    let rest = if done > 0 { format!("; {done} are complete") } else { String::new() };
    format!(
        "{}: {blocks} blocks in {} rounds{rest}; {} and the time of loading; seed {}",
        names.join(", "),
        trial.plan.rounds,
        tandemd::text::age(Duration::from_secs(seconds)),
        trial.plan.seed
    )
}

/// Runs the blocks that are left.
fn make(
    bench: &Bench<'_>,
    history: &mut History,
    mut file: Option<&mut StateFile>,
    bound: Bound,
) -> anyhow::Result<()> {
    let trial = bench.trial;
    let mut append = |history: &mut History, event: Event| -> anyhow::Result<()> {
        if let Some(file) = &mut file {
            file.append(&event)?;
        }
        history.events.push(event);
        Ok(())
    };
    while let Some((block, arm)) = history.next(trial) {
        let failure = |arm: usize, reason, is_harm| {
            Event::Failed(Failure { block, arm: trial.arms[arm].name.clone(), reason, is_harm })
        };
        match bench.run(block, arm) {
            Ok(record) => append(history, Event::Block(record))?,
            Err(ArmError::Failed(reason)) => {
                bench.progress.say(&format!("the arm {} failed: {reason}", trial.arms[arm].name));
                append(history, failure(arm, reason, false))?;
            }
            Err(error) => return Err(error.into()),
        }
        let next = history.next(trial).map_or(trial.plan.blocks(), |(next, _)| next);
        let round = |block| block / trial.plan.blocks_per_round();
        if let Bound(Some(bound_pct)) = bound
            && round(next) > round(block)
            && next < trial.plan.blocks()
        {
            for harm in harms(trial, history, bound_pct) {
                bench.progress.say(&format!("{} is dropped: {}", trial.arms[harm.arm].name, harm.reason));
                append(history, failure(harm.arm, harm.reason, true))?;
            }
        }
    }
    Ok(())
}
