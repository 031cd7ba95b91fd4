//! `tandem sim`: run one scenario and print what it measured.

mod domains;

use std::io::Write;
use std::path::PathBuf;
use tandem_lab::results::Key;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_lab::scenario::policy::scheduler::{GuestScheduler, HostScheduler, SchedulerName};
use tandem_lab::stat::RunStat;
use tandem_lab::summary::RunSummary;
use tandem_lab::trace::{TraceFile, TracedRun};
use tandem_sim::RunError;
use tandem_sim::scenario::{PolicySettings, Scenario};
use tandemd::error::{BadInput, one_line};
use tandemd::text::to_json_text;

/// Arguments of `tandem sim`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem sim experiments/numa-affinity/specjbb2005.toml\n  \
    tandem sim experiments/numa-affinity/specjbb2005.toml --set vms=6 --seed 7 --format json\n  \
    tandem sim experiments/rate-control/specvirt.toml --stat\n  \
    tandem sim experiments/rate-control/specvirt.toml --trace run.pftrace\n  \
    tandem sim experiments/rate-control/specvirt.toml --policy host=tandem\n  \
    tandem sim programs/oltp.toml --set vcpus=16 --set connections=64 --set host=tandem")]
pub struct Args {
    /// The scenario file
    scenario: PathBuf,
    /// Seed of the random numbers; the same seed gives the same run
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_negative_numbers = true, value_parser = parse_seed)]
    seed: u64,
    /// Set a parameter of the scenario; may be given several times
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = parse_setting)]
    settings: Vec<(String, Key)>,
    /// Give the host, or all guests, another scheduler: host=NAME or guest=NAME, where NAME is xen-credit
    /// or xen-credit2 (hosts only), linux, tandem, or object: and the path of a sched_ext scheduler's object
    /// file
    #[arg(long = "policy", value_name = "LEVEL=NAME", value_parser = parse_level)]
    policies: Vec<Level>,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Print accounting too, as perf stat and perf sched latency do: of the host, and of each VM and its
    /// guest
    #[arg(long)]
    stat: bool,
    /// Write every scheduling event into this file: .pftrace for Perfetto, .jsonl for JSON lines
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print the scheduling domains of every Linux kernel, as it does when booted for debugging, and do not
    /// run
    #[arg(long, conflicts_with_all = ["format", "stat", "trace"])]
    domains: bool,
}

/// Whose scheduler, and which.
#[derive(Clone)]
enum Level {
    /// The host's.
    Host(HostScheduler),
    /// That of all guests.
    Guest(GuestScheduler),
}

/// How to print the result of a run.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Readable text
    Table,
    /// One JSON object
    Json,
}

/// A seed, of `tandem reproduce` too.
pub fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("allowed are whole numbers from 0 to {}", u64::MAX))
}

fn parse_setting(text: &str) -> Result<(String, Key), String> {
    text.split_once('=')
        .map(|(name, value)| (name.trim().to_owned(), Key::parse(value.trim())))
        .ok_or_else(|| "write NAME=VALUE, such as vms=6".into())
}

fn parse_level(text: &str) -> Result<Level, String> {
    match text.split_once('=').ok_or("write host=NAME or guest=NAME")? {
        ("host", name) => Ok(Level::Host(parse_scheduler(name)?.into())),
        ("guest", name) => Ok(Level::Guest(parse_scheduler(name)?.try_into()?)),
        (level, _) => Err(format!("'{level}' has no scheduler; write host=NAME or guest=NAME")),
    }
}

/// The name of a scheduler, of `tandem check` too.
pub fn parse_scheduler(text: &str) -> Result<SchedulerName, String> {
    let name = SchedulerName::parse(text)
        .map_err(|expected| format!("'{text}' is no scheduler; it is {expected}"))?;
    // Paths begin here, not where the scenario lies.
    let here =
        std::env::current_dir().map_err(|error| format!("the current folder cannot be read: {error}"))?;
    Ok(name.in_directory(&here))
}

/// The schedulers that the command line names.
fn policy(args: &Args) -> Result<PolicyTable, BadInput> {
    let mut policy = PolicyTable::default();
    for level in args.policies.iter().cloned() {
        let (level, is_second) = match level {
            Level::Host(host) => ("host", policy.host.replace(host).is_some()),
            Level::Guest(guest) => ("guest", policy.guest.replace(guest).is_some()),
        };
        if is_second {
            return Err(BadInput::new(format!("`--policy {level}=` is given twice; keep one")));
        }
    }
    Ok(policy)
}

/// The scenario with a host that counts the instructions of its scheduler, if that is a compiled one. It
/// decides the same.
fn counting(scenario: &Scenario) -> anyhow::Result<Scenario> {
    let mut scenario = scenario.clone();
    if let PolicySettings::SchedExt(settings) = &mut scenario.policy {
        *settings = settings.counting().map_err(BadInput::new)?.into();
    }
    Ok(scenario)
}

/// Runs the scenario and prints its metrics.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let source = ScenarioSource::read(&args.scenario).map_err(BadInput::new)?;
    let parameters = args.settings.iter().cloned().collect();
    let policy = policy(args)?;
    let scenario = source.build(&parameters, &policy).map_err(BadInput::new)?;
    if policy.guest.is_some() && !source.has_guests() {
        let message = "`--policy guest=` has no effect: no VM of the scenario has a guest kernel; remove it";
        return Err(BadInput::new(message).into());
    }
    if args.domains {
        return Ok(domains::print(&scenario, &mut std::io::stdout().lock())?);
    }
    let name = one_line(&args.scenario.display().to_string());
    let counted = if args.stat { counting(&scenario)? } else { scenario.clone() };
    let wrong = |error: RunError| BadInput::new(format!("{name}: {error}"));
    let metrics = match &args.trace {
        None => tandem_sim::run(&counted, args.seed).map_err(wrong)?,
        Some(file) => {
            let run = TracedRun { scenario_name: &name, scenario: &scenario, seed: args.seed };
            let mut trace = TraceFile::create(file, run).map_err(BadInput::new)?;
            let metrics = tandem_sim::run_observed(&counted, args.seed, &mut trace).map_err(wrong)?;
            trace.finish(scenario.warmup_ns + metrics.length_ns)?;
            metrics
        }
    };
    let mut summary = RunSummary::new(&name, &scenario, args.seed, &metrics);
    summary.stat = args.stat.then(|| RunStat::new(&metrics));
    let mut out = std::io::stdout().lock();
    match args.format {
        Format::Table => write!(out, "{summary}")?,
        Format::Json => out.write_all(to_json_text(&summary)?.as_bytes())?,
    }
    Ok(())
}
