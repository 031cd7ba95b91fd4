//! `tandem replay`: run what was recorded again, as it was or otherwise, and print both side by side.

use crate::machine_source::preset_or_file;
use crate::recording_source::RecordingSource;
use crate::sim::{parse_scheduler, parse_seed};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use tandem_file::shown::readable;
use tandem_file::units::Duration;
use tandem_lab::scenario::policy::scheduler::SchedulerName;
use tandem_lab::twin::comparison::Comparison;
use tandem_lab::twin::replay::{Measured, Twin, run_all};
use tandem_lab::twin::situation::{Change, Situation};
use tandem_lab::twin::trust::doubts;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::{Machine, parse_cpulist};
use tandem_settings::Settings;
use tandem_sim::RunError;
use tandemd::error::BadInput;
use tandemd::text::to_json_text;

/// Most groups that an error lists.
const GROUPS_LISTED: usize = 20;

/// Arguments of `tandem replay`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem replay host.parquet\n  \
    tandem replay host.parquet --policy host=tandem --format json\n  \
    tandem replay host.parquet --set web.weight=200 --set backup.nice=10\n  \
    tandem replay host.parquet --set '*.cpus=0-7'\n  \
    tandem replay host.parquet --machine xeon-e5620-2s --copies web=2\n  \
    tandem replay perf.data")]
pub struct Args {
    #[command(flatten)]
    source: RecordingSource,
    /// Give the machine another scheduler: host=NAME, where NAME is linux, tandem, or object: and the path of
    /// a sched_ext scheduler's object file [default: the recorded one]
    #[arg(long = "policy", value_name = "host=NAME", value_parser = parse_policy)]
    policy: Option<SchedulerName>,
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
    changes: Vec<Setting>,
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
}

/// How to print the result.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Readable text
    Table,
    /// One JSON object
    Json,
}

/// A change of a group.
#[derive(Clone, Debug)]
struct Setting {
    group: String,
    key: Key,
}

#[derive(Clone, Debug)]
enum Key {
    Weight(u32),
    Nice(i8),
    Cpus(String),
}

fn parse_setting(text: &str) -> Result<Setting, String> {
    let form = "write GROUP.KEY=VALUE, such as web.weight=200, web.nice=5 or web.cpus=0-3";
    let (name, value) = text.split_once('=').ok_or(form)?;
    // Names of groups may have dots.
    let (group, key) = name.rsplit_once('.').ok_or(form)?;
    let key = match key {
        "weight" => match value.parse() {
            Ok(weight @ 1..=10_000) => Key::Weight(weight),
            _ => return Err("a weight is a whole number from 1 to 10000".into()),
        },
        "nice" => match value.parse() {
            Ok(nice @ -20..=19) => Key::Nice(nice),
            _ => return Err("a nice value is a whole number from -20 to 19".into()),
        },
        "cpus" => Key::Cpus(value.to_owned()),
        other => return Err(format!("'{other}' cannot be set; allowed are weight, nice and cpus")),
    };
    Ok(Setting { group: group.to_owned(), key })
}

fn parse_copies(text: &str) -> Result<(String, u32), String> {
    let form = "write GROUP=NUMBER, such as web=2; allowed are 1 to 1000";
    let (group, number) = text.rsplit_once('=').ok_or(form)?;
    match number.parse() {
        Ok(number @ 1..=1000) => Ok((group.to_owned(), number)),
        _ => Err(form.into()),
    }
}

fn parse_policy(text: &str) -> Result<SchedulerName, String> {
    let name = text.strip_prefix("host=").ok_or("write host=NAME, such as host=tandem")?;
    parse_scheduler(name)
}

/// Replays the recording and prints both.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let recording = args.source.read()?;
    let twin = args.source.understand(&recording)?;
    let name = args.source.name();
    let situation = situation(args, &twin)?;
    let recorded = twin.recorded().map_err(BadInput::new)?;
    let seeds: Vec<u64> = (0..u64::from(args.runs)).map(|at| args.seed.wrapping_add(at)).collect();
    let runs = run_all(&twin, &situation, &seeds);
    let runs: Result<Vec<Measured>, _> = runs.into_iter().collect();
    let runs = runs.map_err(|error| BadInput::new(format!("{name}: {error}")))?;
    // How far to trust it, the recorded situation says.
    let original = Situation::recorded(&recording).map_err(BadInput::new)?;
    let changed = (situation != original).then(|| run_all(&twin, &original, &seeds).into_iter().collect());
    let baseline: Option<Vec<Measured>> =
        changed.transpose().map_err(|error: RunError| BadInput::new(format!("{name}: {error}")))?;
    let baseline = baseline.as_deref().unwrap_or(&runs);
    let doubts = doubts(&recording, &twin.model);
    let comparison = Comparison::new(&recording, &twin.model, &recorded, &runs, baseline, &doubts);
    let mut out = std::io::stdout().lock();
    match args.format {
        Format::Table => write!(out, "{comparison}")?,
        Format::Json => out.write_all(to_json_text(&comparison.to_json())?.as_bytes())?,
    }
    Ok(())
}

/// The recorded situation with what the command line changes.
fn situation(args: &Args, twin: &Twin<'_>) -> anyhow::Result<Situation> {
    let mut situation = Situation::recorded(twin.recording).map_err(BadInput::new)?;
    if let Some(name) = &args.machine {
        situation.machine = Arc::new(preset_or_file(name)?);
    }
    if let Some(name) = &args.policy {
        situation.set_scheduler(name.clone()).map_err(BadInput::new)?;
    }
    if let Some(path) = &args.settings {
        if args.policy != Some(SchedulerName::Tandem) {
            return Err(BadInput::new("`--settings` is for `--policy host=tandem`; add that").into());
        }
        let settings = Settings::read(path).map_err(BadInput::new)?;
        situation.set_tandem(&settings).map_err(BadInput::new)?;
    }
    if let Some(slice) = args.slice {
        situation.set_slice(slice.ns).map_err(BadInput::new)?;
    }
    for Setting { group, key } in &args.changes {
        for (name, change) in changed(&mut situation.changes, group, twin)? {
            match key {
                Key::Weight(weight) => {
                    change.weight_factor = Some(f64::from(*weight) / twin.recorded_weight(&name))
                }
                Key::Nice(nice) => change.nice = Some(*nice),
                Key::Cpus(list) => change.cpus = Some(cpus(list, &situation.machine)?),
            }
        }
    }
    for (group, copies) in &args.copies {
        for (_, change) in changed(&mut situation.changes, group, twin)? {
            change.copies = Some(*copies);
        }
    }
    Ok(situation)
}

/// The changes of a group, or of all.
fn changed<'a>(
    changes: &'a mut BTreeMap<String, Change>,
    group: &str,
    twin: &Twin<'_>,
) -> Result<Vec<(String, &'a mut Change)>, BadInput> {
    let groups = &twin.model.groups;
    if group != "*" && !groups.iter().any(|known| known == group) {
        let mut known: Vec<String> = groups.iter().map(|name| format!("'{}'", readable(name, &[]))).collect();
        let more = known.len().saturating_sub(GROUPS_LISTED);
        known.truncate(GROUPS_LISTED);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        let message =
            format!("there is no group '{group}' in the recording; groups: {}{more}", known.join(", "));
        return Err(BadInput::new(message));
    }
    for name in groups.iter().filter(|name| group == "*" || *name == group) {
        changes.entry(name.clone()).or_default();
    }
    let of_group = changes.iter_mut().filter(|(name, _)| group == "*" || *name == group);
    Ok(of_group.map(|(name, change)| (name.clone(), change)).collect())
}

/// CPUs of the machine.
fn cpus(list: &str, machine: &Machine) -> Result<CpuMask, BadInput> {
    let numbers = parse_cpulist(list)
        .map_err(|error| BadInput::new(format!("'{list}' is no list of CPUs: {error}")))?;
    let mut mask = CpuMask::empty(machine.cpu_count());
    for number in numbers {
        let cpu = machine.find_cpu(number).ok_or_else(|| {
            BadInput::new(format!(
                "'{list}' names CPU {number}, which machine '{}' does not have",
                machine.name()
            ))
        })?;
        mask.insert(cpu);
    }
    match mask.is_empty() {
        true => Err(BadInput::new(format!("'{list}' names no CPU"))),
        false => Ok(mask),
    }
}
