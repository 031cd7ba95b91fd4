//! `tandem tune`: search settings of the scheduler for a recorded machine.

use crate::bar::Bar;
use crate::out_file::OutFile;
use crate::recording_source::RecordingSource;
use crate::sim::parse_seed;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_lab::runner::Progress;
use tandem_lab::twin::situation::Situation;
use tandem_lab::twin::tune::{Objective, tune};
use tandemd::error::BadInput;
use tandemd::out::out;

/// Arguments of `tandem tune`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem tune host.parquet --objective 'wait_p99(web)' --out web.toml\n  \
    tandem tune host.parquet --objective span --trials 200\n  \
    tandem run --settings web.toml\n\n\
    Ctrl-C ends the search; what has been found is measured and written.")]
pub struct Args {
    #[command(flatten)]
    source: RecordingSource,
    /// What to make small: run, wait, wait_p50, wait_p95, wait_p99, wait_max, switches, preemptions, migrations
    /// or span, of all, or with a group in parentheses; with a minus in front: what to make large
    #[arg(long, value_name = "MEASURE(GROUP)", allow_hyphen_values = true, value_parser = Objective::parse)]
    objective: Objective,
    /// Settings to try
    #[arg(long, value_name = "NUMBER", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    trials: u16,
    /// Seed of the search and of its first run; others count up from it
    #[arg(long, value_name = "NUMBER", default_value_t = 1, allow_negative_numbers = true, value_parser = parse_seed)]
    seed: u64,
    /// Write the settings into this file, for `tandem run --settings`, if they are better than the defaults
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Searches, prints what was found, and writes it.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let together = args.source.read()?;
    let twin = args.source.understand(&together, args.source.path())?;
    let wrong = |message| BadInput::new(format!("{}: {message}", args.source.name()));
    args.objective.group().map_or(Ok(()), |group| twin.check_group(group)).map_err(wrong)?;
    let create = |path: &Path| OutFile::create(path, &args.source.paths());
    let file = args.out.as_deref().map(create).transpose()?;
    let situation = Situation::recorded(twin.recording).map_err(BadInput::new)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    ctrlc::set_handler(move || stopped.store(true, Ordering::Relaxed))?;
    let bar = Bar::new("tune", "trials");
    bar.planned(args.trials.into());
    let progress = |trials: usize, best: f64| {
        bar.reach(trials as u64, format!(", best {best:.3}"));
        !stop.load(Ordering::Relaxed)
    };
    let tuned =
        tune(&twin, &situation, &args.objective, args.trials.into(), args.seed, progress).map_err(wrong)?;
    bar.line();
    drop(bar);
    match file {
        Some(file) if tuned.is_better() => file.write(tuned.settings.to_toml())?,
        Some(file) => {
            let name = file.name();
            // Standard error may be closed.
            let _ = writeln!(
                io::stderr(),
                "tandem: {name} is not written: there is nothing better than the defaults"
            );
        }
        None => {}
    }
    // Last: who reads it may not read to its end.
    write!(out(), "{tuned}")?;
    Ok(())
}
