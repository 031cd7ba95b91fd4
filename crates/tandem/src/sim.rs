//! `tandem sim`: run one scenario and print what it measured.

mod domains;
mod watched;

use crate::bar::Bar;
use crate::reproduce::interrupt_flag;
use crate::scenario_source;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use tandem_file::units::Duration;
use tandem_lab::results::Key;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_lab::scenario::policy::scheduler::{GuestScheduler, HostScheduler, SchedulerName};
use tandem_lab::stat::RunStat;
use tandem_lab::summary::RunSummary;
use tandem_lab::trace::{Selection, TraceError, TraceFile, TracedRun};
use tandem_sim::scenario::{PolicySettings, Scenario};
use tandemd::error::{BadInput, one_line};
use tandemd::out::out;
use tandemd::text::to_json_text;
use watched::Watched;

/// Arguments of `tandem sim`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem sim experiments/numa-affinity/specjbb2005.toml\n  \
    tandem sim experiments/numa-affinity/specjbb2005.toml --set vms=6 --seed 7 --format json\n  \
    tandem sim experiments/rate-control/specvirt.toml --stat\n  \
    tandem sim experiments/rate-control/specvirt.toml --trace run.pftrace\n  \
    tandem sim noisy-neighbour --trace part.jsonl --trace-from 10ms --trace-to 20ms --trace-cpu 0-3\n  \
    tandem sim experiments/rate-control/specvirt.toml --policy host=tandem\n  \
    tandem sim oltp --set vcpus=16 --set connections=64 --set host=tandem")]
pub struct Args {
    /// The scenario: a file, the name of one of the library, such as noisy-neighbour, or - for standard input
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
    #[command(flatten)]
    part: TracedPart,
    /// Print the scheduling domains of every Linux kernel, as it does when booted for debugging, and do not
    /// run
    #[arg(long, conflicts_with_all = ["format", "stat", "trace", "trace_from", "trace_to", "trace_vm", "trace_cpu"])]
    domains: bool,
}

/// Which part of a run is traced.
#[derive(clap::Args)]
struct TracedPart {
    /// Trace nothing before this simulated time, such as 10ms; the warm-up counts
    #[arg(long, value_name = "TIME", requires = "trace")]
    trace_from: Option<Duration>,
    /// Trace nothing from this simulated time on
    #[arg(long, value_name = "TIME", requires = "trace")]
    trace_to: Option<Duration>,
    /// Trace only these VMs, by their names or those of their groups, such as web,batch-0; may be given several times
    #[arg(long, value_name = "NAMES", requires = "trace", value_delimiter = ',')]
    trace_vm: Vec<String>,
    /// Trace only what happens on these pCPUs, such as 0-3,8 or node:1
    #[arg(long, value_name = "LIST", requires = "trace")]
    trace_cpu: Option<String>,
}

impl TracedPart {
    fn selection(&self) -> Selection {
        Selection {
            from_ns: self.trace_from.map(|time| time.ns),
            to_ns: self.trace_to.map(|time| time.ns),
            vms: self.trace_vm.clone(),
            cpus: self.trace_cpu.clone(),
        }
    }
}

/// Whose scheduler, and which; of `tandem compare` too.
#[derive(Clone)]
pub enum Level {
    /// The host's.
    Host(HostScheduler),
    /// That of all guests.
    Guest(GuestScheduler),
}

impl Level {
    /// That scheduler and no other.
    pub fn alone(self) -> PolicyTable {
        let nothing = PolicyTable::default();
        match self {
            Self::Host(host) => PolicyTable { host: Some(host), ..nothing },
            Self::Guest(guest) => PolicyTable { guest: Some(guest), ..nothing },
        }
    }
}

/// How to print the result of runs.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Format {
    /// Readable text
    Table,
    /// One JSON object
    Json,
}

/// A seed, of `tandem reproduce` too.
pub fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("allowed are whole numbers from 0 to {}", u64::MAX))
}

/// Parameters by name, of `tandem compare` too. Of two values for one name it would not be clear which one is meant.
pub fn each_once(settings: &[(String, Key)]) -> Result<BTreeMap<String, Key>, BadInput> {
    let mut parameters = BTreeMap::new();
    for (name, value) in settings {
        if parameters.insert(name.clone(), value.clone()).is_some() {
            return Err(BadInput::new(format!("`--set {}` is given twice; leave one out", one_line(name))));
        }
    }
    Ok(parameters)
}

/// A parameter and its value, of `tandem compare` too.
pub fn parse_setting(text: &str) -> Result<(String, Key), String> {
    text.split_once('=')
        .map(|(name, value)| (name.trim().to_owned(), Key::parse(value.trim())))
        .ok_or_else(|| "write NAME=VALUE, such as vms=6".into())
}

/// A level and the name of its scheduler, of `tandem compare` too.
pub fn parse_level(text: &str) -> Result<Level, String> {
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

/// Says what of the scenario does not hold under these schedulers; of `tandem compare` too.
pub fn note_left_out(name: &str, source: &ScenarioSource, policies: &[PolicyTable]) {
    let mut left_out: Vec<_> = policies.iter().flat_map(|policy| source.left_out_by(policy)).collect();
    left_out.sort_unstable();
    left_out.dedup();
    if !left_out.is_empty() {
        // Standard error may be closed.
        let _ = writeln!(
            io::stderr(),
            "tandem: note: {name}: `{}` is for the scenario's own host scheduler and does not hold under another one; \
             to keep it, change `host` in a copy of the scenario",
            left_out.join("` and `")
        );
    }
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
    let source = scenario_source::read(&args.scenario)?;
    let parameters = each_once(&args.settings)?;
    let policy = policy(args)?;
    let scenario = source.build(&parameters, &policy).map_err(BadInput::new)?;
    if policy.guest.is_some() && !source.has_guests() {
        let message = "`--policy guest=` has no effect: no VM of the scenario has a guest kernel; remove it";
        return Err(BadInput::new(message).into());
    }
    if args.domains {
        return Ok(domains::print(&scenario, &mut out())?);
    }
    let name = one_line(&args.scenario.display().to_string());
    note_left_out(&name, &source, std::slice::from_ref(&policy));
    let counted = if args.stat { counting(&scenario)? } else { scenario.clone() };
    let selection = args.part.selection();
    let create = |file: &PathBuf| {
        let run =
            TracedRun { scenario_name: &name, scenario: &scenario, seed: args.seed, selection: &selection };
        TraceFile::create(file, run).map_err(|error| match error {
            TraceError::Selection(message) => BadInput::new(format!("{name}: {message}")),
            other => BadInput::new(other),
        })
    };
    let trace = args.trace.as_ref().map(create).transpose()?;
    let cancel = interrupt_flag("the run ends here")?;
    let bar = Bar::new(&name, "ms simulated");
    let mut watched = Watched::new(trace, &scenario, &bar, &cancel);
    let metrics = tandem_sim::run_observed(&counted, args.seed, &mut watched)
        .map_err(|error| BadInput::new(format!("{name}: {error}")))?;
    let (trace, cut_ns) = watched.end();
    drop(bar);
    if let Some(trace) = trace {
        trace.finish(cut_ns.unwrap_or(scenario.warmup_ns + metrics.length_ns))?;
    }
    if let Some(cut_ns) = cut_ns.filter(|&cut_ns| cut_ns <= scenario.warmup_ns) {
        let traced = if args.trace.is_some() { "; the trace is of the time until then" } else { "" };
        anyhow::bail!(
            "interrupted at {} s, within the warm-up, before anything was measured{traced}",
            s(cut_ns)
        );
    }
    let mut summary = RunSummary::new(&name, &scenario, args.seed, &metrics);
    summary.is_cut = cut_ns.is_some();
    summary.stat = args.stat.then(|| RunStat::new(&metrics));
    let mut out = out();
    match args.format {
        Format::Table => write!(out, "{summary}")?,
        Format::Json => out.write_all(to_json_text(&summary)?.as_bytes())?,
    }
    for warning in summary.warnings() {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "tandem: warning: {name}: {warning}");
    }
    if let Some(cut_ns) = cut_ns {
        out.flush()?;
        let end_ns = scenario.warmup_ns + scenario.length_ns;
        anyhow::bail!(
            "interrupted at {} s of {} s; the results are of the time until then",
            s(cut_ns),
            s(end_ns)
        );
    }
    Ok(())
}

/// Seconds.
fn s(ns: u64) -> f64 {
    ns as f64 / 1e9
}
