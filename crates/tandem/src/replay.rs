//! `tandem replay`: run what was recorded again, as it was or otherwise, and print both side by side.

use crate::machine_source::preset_or_file;
use crate::out_file::OutFile;
use crate::recording_source::RecordingSource;
use crate::sim::{parse_scheduler, parse_seed};
use std::io::Write;
use std::path::PathBuf;
use tandem_file::units::Duration;
use tandem_lab::twin::comparison::Comparison;
use tandem_lab::twin::plan::{GroupPlan, Plan};
use tandem_lab::twin::situation::Situation;
use tandem_lab::twin::trust::doubts;
use tandemd::error::BadInput;
use tandemd::text::to_json_text;

/// Arguments of `tandem replay`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem replay host.parquet\n  \
    tandem replay host.parquet --policy host=tandem --format json\n  \
    tandem replay host.parquet --set web.weight=200 --set backup.nice=10\n  \
    tandem replay host.parquet --set '*.cpus=0-7'\n  \
    tandem replay host.parquet --machine xeon-e5620-2s --copies web=2\n  \
    tandem replay perf.data\n  \
    tandem replay host.parquet --policy host=tandem --out plan.toml && tandem replay plan.toml")]
pub struct Args {
    #[command(flatten)]
    source: RecordingSource,
    /// Give the machine another scheduler: host=NAME, where NAME is linux, tandem, or object: and the path of
    /// a sched_ext scheduler's object file [default: the recorded one]
    #[arg(long = "policy", value_name = "host=NAME", value_parser = parse_policy)]
    policy: Option<String>,
    /// Settings of the scheduler, for `--policy host=tandem`, as `tandem run` reads them
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Set the slice of Linux's scheduler (`base_slice_ns`), such as 3ms
    #[arg(long, value_name = "TIME")]
    slice: Option<Duration>,
    /// Another machine: a preset, such as xeon-e5620-2s, or a machine file [default: the recorded one]
    #[arg(long, value_name = "FILE|PRESET")]
    machine: Option<String>,
    /// Change a group (* is all): its weight (cpu.weight, 100 if nothing else was recorded), the nice value of
    /// its tasks, or the cpus that they may use; may be given several times
    #[arg(long = "set", value_name = "GROUP.KEY=VALUE", value_parser = parse_setting)]
    changes: Vec<(String, GroupPlan)>,
    /// Let a group be there several times; may be given several times
    #[arg(long, value_name = "GROUP=NUMBER", value_parser = parse_copies)]
    copies: Vec<(String, u32)>,
    /// Seed of the first run; the next ones count up from it
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_negative_numbers = true, value_parser = parse_seed)]
    seed: u64,
    /// Runs, each with its seed
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// How to print the result
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Write what was replayed into this file, which can be edited, and is a recording to `tandem replay`
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// How to print the result.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Readable text
    Table,
    /// One JSON object
    Json,
}

fn parse_setting(text: &str) -> Result<(String, GroupPlan), String> {
    let form = "write GROUP.KEY=VALUE, such as web.weight=200, web.nice=5 or web.cpus=0-3";
    // Names of groups may have dots and equals signs; values have none.
    let (name, value) = text.rsplit_once('=').ok_or(form)?;
    let (group, key) = name.rsplit_once('.').ok_or(form)?;
    let mut plan = GroupPlan::default();
    match key {
        "weight" => plan.weight = Some(value.parse().unwrap_or(0)),
        "nice" => plan.nice = Some(value.parse().unwrap_or(i8::MAX)),
        "cpus" => plan.cpus = Some(value.to_owned()),
        other => return Err(format!("'{other}' cannot be set; allowed are weight, nice and cpus")),
    }
    match plan.problem() {
        Some(problem) => Err(problem.into()),
        None => Ok((group.to_owned(), plan)),
    }
}

fn parse_copies(text: &str) -> Result<(String, u32), String> {
    let form = "write GROUP=NUMBER, such as web=2; allowed are 1 to 1000";
    let (group, number) = text.rsplit_once('=').ok_or(form)?;
    match number.parse() {
        Ok(number @ 1..=1000) => Ok((group.to_owned(), number)),
        _ => Err(form.into()),
    }
}

fn parse_policy(text: &str) -> Result<String, String> {
    let name = text.strip_prefix("host=").ok_or("write host=NAME, such as host=tandem")?;
    parse_scheduler(name).map(|_| name.to_owned())
}

/// Replays the recording and prints both.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut plan = args.source.plan()?;
    lay_over(&mut plan, args);
    let recording = args.source.read_file(&plan.recording)?;
    let twin = args.source.understand(&recording)?;
    let name = args.source.name();
    let machine = plan.machine.as_deref().map(preset_or_file).transpose()?;
    let situation =
        plan.situation(&twin, machine).map_err(|message| BadInput::new(format!("{name}: {message}")))?;
    let file = args.out.as_deref().map(OutFile::create).transpose()?;
    let recorded = twin.recorded().map_err(BadInput::new)?;
    let seeds: Vec<u64> = (0..u64::from(args.runs)).map(|at| args.seed.wrapping_add(at)).collect();
    let run = |situation: &Situation| {
        twin.run_all(situation, &seeds).map_err(|error| BadInput::new(format!("{name}: {error}")))
    };
    let runs = run(&situation)?;
    // How far to trust it, the recorded situation says.
    let original = Situation::recorded(&recording).map_err(BadInput::new)?;
    let baseline = (situation != original).then(|| run(&original)).transpose()?;
    let baseline = baseline.as_deref().unwrap_or(&runs);
    let doubts = doubts(&recording, &twin.model);
    let comparison = Comparison::new(&recording, &twin.model, &recorded, &runs, baseline, &doubts);
    if let Some(file) = file {
        file.write(&to_be_written(plan).to_toml(&twin))?;
    }
    let mut out = std::io::stdout().lock();
    match args.format {
        Format::Table => write!(out, "{comparison}")?,
        Format::Json => out.write_all(to_json_text(&comparison.to_json())?.as_bytes())?,
    }
    Ok(())
}

/// Puts what the command line says over a plan.
fn lay_over(plan: &mut Plan, args: &Args) {
    plan.machine = args.machine.clone().or(plan.machine.take());
    if let Some(name) = &args.policy {
        // Settings are those of the scheduler that was named with them.
        (plan.scheduler, plan.settings) = (Some(name.clone()), None);
    }
    plan.settings = args.settings.clone().or(plan.settings.take());
    plan.slice = args.slice.or(plan.slice);
    let copies = args
        .copies
        .iter()
        .map(|(name, copies)| (name, GroupPlan { copies: Some(*copies), ..GroupPlan::default() }));
    let changes = args.changes.iter().map(|(name, change)| (name, change.clone()));
    for (name, change) in changes.chain(copies) {
        let group = plan.group.entry(name.clone()).or_default();
        group.weight = change.weight.or(group.weight);
        group.nice = change.nice.or(group.nice);
        group.cpus = change.cpus.or(group.cpus.take());
        group.copies = change.copies.or(group.copies);
    }
}

/// The plan for a file in that folder: what it names is found from there, or from anywhere.
fn to_be_written(mut plan: Plan) -> Plan {
    for path in [Some(&mut plan.recording), plan.settings.as_mut()].into_iter().flatten() {
        *path = path.canonicalize().unwrap_or_else(|_| path.clone());
    }
    plan
}
