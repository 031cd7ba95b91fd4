//! `tandem tune`: search settings of the scheduler for a recorded machine.

use crate::out_file::OutFile;
use crate::recording_source::RecordingSource;
use crate::sim::parse_seed;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tandem_lab::twin::situation::Situation;
use tandem_lab::twin::tune::{Objective, tune};
use tandemd::error::BadInput;

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
    let recording = args.source.read()?;
    let twin = args.source.understand(&recording)?;
    args.objective.group().map_or(Ok(()), |group| twin.check_group(group)).map_err(BadInput::new)?;
    let file = args.out.as_deref().map(OutFile::create).transpose()?;
    let situation = Situation::recorded(&recording).map_err(BadInput::new)?;
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    ctrlc::set_handler(move || stopped.store(true, Ordering::Relaxed))?;
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} trials, best {msg}")?;
    let bar = ProgressBar::new(u64::from(args.trials)).with_style(style);
    let progress = |trials: usize, best: f64| {
        bar.set_position(trials as u64);
        bar.set_message(format!("{best:.3}"));
        !stop.load(Ordering::Relaxed)
    };
    let tuned = tune(&twin, &situation, &args.objective, args.trials.into(), args.seed, progress)
        .map_err(|message| BadInput::new(format!("{}: {message}", args.source.name())))?;
    bar.finish_and_clear();
    write!(io::stdout().lock(), "{tuned}")?;
    match file {
        Some(file) if tuned.is_better() => file.write(&tuned.settings.to_toml())?,
        Some(file) => {
            let name = file.name();
            writeln!(
                io::stderr(),
                "tandem: {name} is not written: there is nothing better than the defaults"
            )?;
        }
        None => {}
    }
    Ok(())
}
