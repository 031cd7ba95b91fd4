//! `tandem replay`: run what was recorded again, as it was or otherwise, and print both side by side.

use crate::bar::Bar;
use crate::machine_source::named_or_file;
use crate::out_file::OutFile;
use crate::recording_source::{PLAN, RecordingSource};
use crate::sim::parse_seed;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tandem_file::units::Duration;
use tandem_lab::scenario::policy::words::Word;
use tandem_lab::twin::plan::{GroupPlan, Plan};
use tandem_lab::twin::situation::parse_scheduler;
use tandemd::error::{BadInput, one_line};
use tandemd::out::out;
use tandemd::text::to_json_text;

/// Arguments of `tandem replay`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem replay host.parquet\n  \
    tandem replay host.parquet --policy host=tandem --format json\n  \
    tandem replay host.parquet --set web.weight=200 --set backup.nice=10\n  \
    tandem replay host.parquet --set '*.cpus=0-7'\n  \
    tandem replay host.parquet --machine xeon-e5620-2s --copies web=2\n  \
    tandem replay host.parquet --guest web=guest.parquet --set web.weight=200\n  \
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
    /// Another machine: a preset, such as xeon-e5620-2s, PACKAGESxCORESxTHREADS, such as 2x64x2, or a machine
    /// file [default: the recorded one]
    #[arg(long, value_name = "NAME|FILE")]
    machine: Option<String>,
    /// Change a group (* is all): its weight (cpu.weight, 100 if nothing else was recorded), the nice value of
    /// its tasks, their policy (normal, batch or idle), or the cpus that they may use; may be given several
    /// times
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
    /// Write what was replayed into this file, FILE.toml, which can be edited, and is a recording to `tandem replay`
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
    let form = "write GROUP.KEY=VALUE, such as web.weight=200, web.nice=5, web.policy=batch or web.cpus=0-3";
    // Names of groups may have dots and equals signs; values have none.
    let (name, value) = text.rsplit_once('=').ok_or(form)?;
    let (group, key) = name.rsplit_once('.').ok_or(form)?;
    let mut plan = GroupPlan::default();
    match key {
        "weight" => plan.weight = Some(value.parse().unwrap_or(0)),
        "nice" => plan.nice = Some(value.parse().unwrap_or(i8::MAX)),
        "policy" => match Word::of(value) {
            Some(policy) => plan.policy = Some(policy),
            None => return Err("a policy is normal, batch or idle".into()),
        },
        "cpus" => plan.cpus = Some(value.to_owned()),
        other => return Err(format!("'{other}' cannot be set; allowed are weight, nice, policy and cpus")),
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
    let guests = plan.guest.iter().map(|(name, path)| (name.clone(), path.clone())).collect();
    let together = args.source.read_files(&plan.recording, guests)?;
    let twin = args.source.understand(&together, &plan.recording)?;
    let name = args.source.name();
    if !plan.is_of(&twin) {
        // Standard error may be closed.
        let _ = writeln!(
            io::stderr(),
            "tandem: {name}: the plan was made of another recording than {} is now; remove the line `made_of` if that \
             is meant to be",
            one_line(&plan.recording.display().to_string())
        );
    }
    let machine = plan.machine.as_deref().map(named_or_file).transpose()?;
    let situation =
        plan.situation(&twin, machine).map_err(|message| BadInput::new(format!("{name}: {message}")))?;
    let out_file = |path: &Path| {
        let mut sources = args.source.paths();
        sources.push(&plan.recording);
        sources.extend(plan.guest.values().map(PathBuf::as_path));
        let file = OutFile::create(path, &sources)?;
        match path.extension().is_some_and(|extension| extension == PLAN) {
            true => Ok(file),
            false => Err(BadInput::new(format!("--out {}: the name of a plan ends in .{PLAN}", file.name()))),
        }
    };
    let file = args.out.as_deref().map(out_file).transpose()?;
    let seeds: Vec<u64> = (0..u64::from(args.runs)).map(|at| args.seed.wrapping_add(at)).collect();
    let bar = Bar::new("replay", "runs");
    let comparison = twin.compare(&situation, &seeds, &bar);
    let comparison = comparison.map_err(|error| BadInput::new(format!("{name}: {error}")))?;
    drop(bar);
    if let Some(file) = file {
        plan.make_absolute();
        file.write(&plan.to_toml(&twin).map_err(BadInput::new)?)?;
    }
    let mut out = out();
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
    plan.guest.extend(args.source.guests().iter().cloned());
    let copies = args
        .copies
        .iter()
        .map(|(name, copies)| (name, GroupPlan { copies: Some(*copies), ..GroupPlan::default() }));
    let changes = args.changes.iter().map(|(name, change)| (name, change.clone()));
    for (name, change) in changes.chain(copies) {
        let group = plan.group.entry(name.clone()).or_default();
        group.weight = change.weight.or(group.weight);
        group.nice = change.nice.or(group.nice);
        group.policy = change.policy.or(group.policy);
        group.cpus = change.cpus.or(group.cpus.take());
        group.copies = change.copies.or(group.copies);
    }
}
