//! `tandem calibrate`: find the values of an experiment's free constants that meet its published baseline.

use crate::bar::Bar;
use crate::reproduce::{RunArgs, cancelled_by_interrupt};
use anyhow::Context;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use tandem_lab::calibrate::{Plan, search};
use tandem_lab::experiment::calibration::{SET_FILE, SetState, read_sets, write_sets};
use tandem_lab::results::SetWord;
use tandem_lab::runner::ExperimentError;
use tandemd::error::BadInput;
use tandemd::out::out;

/// Most points of a search.
const MAX_POINTS: usize = 1_000_000;

/// Arguments of `tandem calibrate`.
#[derive(clap::Args)]
#[command(
    after_help = "The accepted points are written into calibrated.json beside the experiment; `tandem reproduce` \
    then prints the range of each effect over them. Only cells of the baseline have a part in it.\n\n\
    Examples:\n  \
    tandem calibrate\n  \
    tandem calibrate numa-affinity --points 640\n\n\
    Ctrl-C keeps what was found so far, and the next call goes on from there; a second one ends the command at once."
)]
pub struct Args {
    /// Experiments, by the names of their folders; all that have calibrations if none is named
    names: Vec<String>,
    /// Points to try for each calibration; a set with fewer is extended, one with more is kept [default: 384]
    #[arg(long, value_name = "NUMBER", allow_negative_numbers = true, value_parser = parse_points)]
    points: Option<usize>,
    /// Search anew where a complete set is known
    #[arg(long)]
    again: bool,
    #[command(flatten)]
    runs: RunArgs,
}

fn parse_points(text: &str) -> Result<usize, String> {
    let points = text.parse().ok().filter(|points| (1..=MAX_POINTS).contains(points));
    points.ok_or_else(|| format!("allowed are whole numbers from 1 to {MAX_POINTS}"))
}

/// Searches, and prints what was found.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut experiments = Vec::new();
    for (path, experiment) in args.runs.read(&args.names)? {
        if !experiment.calibrations.is_empty() {
            experiments.push((path, experiment.quick()));
        } else if !args.names.is_empty() {
            let message = format!("experiment `{}` has no [[calibration]]; it needs one", experiment.name);
            return Err(BadInput::new(message).into());
        }
    }
    let options = args.runs.options();
    let cancel = cancelled_by_interrupt()?;
    let plan = Plan { points: args.points, again: args.again };
    let all = experiments.iter().flat_map(|(path, experiment)| {
        experiment.calibrations.iter().map(move |calibration| (path, experiment, calibration))
    });
    let mut all: Vec<_> = all.collect();
    // What was interrupted goes on first; the sort is stable.
    all.sort_by_key(|(_, _, calibration)| calibration.set_word() != SetWord::Interrupted);
    for (path, experiment, calibration) in all {
        let name = &*calibration.table.name;
        let start = plan.start(calibration);
        let is_complete = start.tried >= start.planned;
        // Sets of calibrations that the experiment no longer has go with the first save.
        let mut sets = read_sets(path).map_err(BadInput::new)?;
        sets.retain(|name, _| experiment.calibrations.iter().any(|it| *it.table.name == *name));
        let bar = Bar::new(&format!("{} {name}", experiment.name), "points");
        let save = |set: &_| {
            sets.insert(name.clone(), Clone::clone(set));
            write_sets(path, &sets).map_err(Stop::Save)
        };
        let set = match search(experiment, calibration, plan, options, &bar, &cancel, save) {
            Ok(set) => set,
            Err(Stop::Run(error)) => return Err(BadInput::new(error).into()),
            Err(Stop::Save(error)) => {
                let file = path.join(SET_FILE);
                return Err(error).with_context(|| format!("cannot write {}", file.display()));
            }
        };
        if !is_complete {
            bar.line();
        }
        drop(bar);
        let mut found = calibration.clone();
        found.set = SetState::Known(set);
        let kept = match is_complete {
            true => "; it was complete: --again searches anew, a larger --points goes on",
            false => "",
        };
        writeln!(out(), "{}: {}{kept}", experiment.name, found.sentence(experiment))?;
        if cancel.load(Ordering::Relaxed) {
            anyhow::bail!("interrupted; the next `tandem calibrate` goes on from here");
        }
    }
    Ok(())
}

/// Why a search ended early.
enum Stop {
    /// Threads could not be started.
    Run(ExperimentError),
    /// The set could not be written.
    Save(io::Error),
}

impl From<ExperimentError> for Stop {
    fn from(error: ExperimentError) -> Self {
        Self::Run(error)
    }
}
