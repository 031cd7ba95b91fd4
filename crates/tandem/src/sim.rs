//! `tandem sim`: run one scenario and print what it measured.

mod domains;

use crate::bar::Bar;
use crate::reproduce::interrupt_flag;
use crate::scenario_source;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use tandem_file::units::Duration;
use tandem_lab::request::{Level, Request, RequestError, parse_level};
use tandem_lab::results::Key;
use tandem_lab::runner::Progress;
use tandem_lab::scenario::Parameters;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_lab::simulate::{Simulation, SimulationError, Watched, end_ns};
use tandem_lab::tables;
use tandem_lab::trace::{Selection, TraceError, TraceFile, TracedRun};
use tandemd::error::{BadInput, one_line};
use tandemd::out::out;
use tandemd::text::to_json_text;

const NS_PER_MS: u64 = 1_000_000;

/// Arguments of `tandem sim`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem sim experiments/numa-affinity/specjbb2005.toml\n  \
    tandem sim experiments/numa-affinity/specjbb2005.toml --set vms=6 --seed 7 --format json\n  \
    tandem sim experiments/rate-control/specvirt.toml --stat\n  \
    tandem sim noisy-neighbour --format parquet > run.parquet\n  \
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

/// How to print the result of runs.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Format {
    /// Readable text
    Table,
    /// One JSON object
    Json,
    /// A Parquet file: a table with a row for each measure of each run
    Parquet,
}

impl Format {
    /// Refuses to write what no terminal can show into one, before the work.
    pub fn check(self) -> Result<(), BadInput> {
        match self {
            Self::Parquet if io::stdout().is_terminal() => {
                Err(BadInput::new("`--format parquet` is no text for a terminal; append `> FILE`"))
            }
            _ => Ok(()),
        }
    }
}

/// A seed, of `tandem reproduce` too.
pub fn parse_seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("allowed are whole numbers from 0 to {}", u64::MAX))
}

/// Parameters by name, of `tandem compare` too. Of two values for one name it would not be clear which one is meant.
pub fn each_once(settings: &[(String, Key)]) -> Result<Parameters, BadInput> {
    let mut parameters = Parameters::new();
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
pub fn note_left_out(request: &Request, policies: &[PolicyTable]) {
    if let Some(note) = request.left_out(policies) {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "tandem: note: {}: {note}", request.name);
    }
}

/// In the words of the command line, of `tandem compare` too.
pub fn without_effect() -> BadInput {
    BadInput::new("`--policy guest=` has no effect: no VM of the scenario has a guest kernel; remove it")
}

/// Runs the scenario and prints its metrics.
pub fn run(args: &Args) -> anyhow::Result<()> {
    args.format.check()?;
    let source = scenario_source::read(&args.scenario)?;
    let parameters = each_once(&args.settings)?;
    let policy = policy(args)?;
    let name = one_line(&args.scenario.display().to_string());
    let request = Request { name, source, parameters };
    let scenario = request.scenario(&policy).map_err(|error| match error {
        RequestError::NoGuests => without_effect(),
        other => BadInput::new(other),
    })?;
    if args.domains {
        return Ok(domains::print(&scenario, &mut out())?);
    }
    note_left_out(&request, std::slice::from_ref(&policy));
    let name = &request.name;
    let selection = args.part.selection();
    let create = |file: &PathBuf| {
        let run =
            TracedRun { scenario_name: name, scenario: &scenario, seed: args.seed, selection: &selection };
        TraceFile::create(file, run).map_err(|error| match error {
            TraceError::Selection(message) => BadInput::new(format!("{name}: {message}")),
            other => BadInput::new(other),
        })
    };
    let trace = args.trace.as_ref().map(create).transpose()?;
    let cancel = interrupt_flag("the run ends here")?;
    let bar = Bar::new(name, "ms simulated");
    bar.planned(usize::try_from(end_ns(&scenario).div_ceil(NS_PER_MS)).unwrap_or(usize::MAX));
    let reach = |now_ns| bar.reach(now_ns / NS_PER_MS, String::new());
    let simulation = Simulation { name, scenario: &scenario, seed: args.seed, with_stat: args.stat };
    let watched = Watched::new(trace, &scenario, &reach, &cancel);
    let (simulated, trace) = simulation.run(watched).map_err(|error| match error {
        SimulationError::Run(error) => BadInput::new(format!("{name}: {error}")),
        counting => BadInput::new(counting),
    })?;
    drop(bar);
    let cut_ns = simulated.cut_ns;
    if let Some(trace) = trace {
        trace.finish(cut_ns.unwrap_or(scenario.warmup_ns + simulated.length_ns()))?;
    }
    if let Some(cut_ns) = cut_ns.filter(|_| simulated.is_cut_in_warmup()) {
        let traced = if args.trace.is_some() { "; the trace is of the time until then" } else { "" };
        anyhow::bail!(
            "interrupted at {} s, within the warm-up, before anything was measured{traced}",
            s(cut_ns)
        );
    }
    let summary = simulated.summary();
    let mut out = out();
    match args.format {
        Format::Table => write!(out, "{summary}")?,
        Format::Json => out.write_all(to_json_text(&summary)?.as_bytes())?,
        Format::Parquet => tables::of_runs([&simulated.table()]).write_parquet(&mut out)?,
    }
    for warning in summary.warnings() {
        // Standard error may be closed.
        let _ = writeln!(io::stderr(), "tandem: warning: {name}: {warning}");
    }
    if let Some(cut_ns) = cut_ns {
        out.flush()?;
        anyhow::bail!(
            "interrupted at {} s of {} s; the results are of the time until then",
            s(cut_ns),
            s(end_ns(&scenario))
        );
    }
    Ok(())
}

/// Seconds.
fn s(ns: u64) -> f64 {
    ns as f64 / 1e9
}
