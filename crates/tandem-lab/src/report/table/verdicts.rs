//! The end of the tables: how to read them, and how good the predictions are.

use super::super::{CLOSE_POINTS, layout::Align, layout::aligned, layout::wrapped, number};
use crate::experiment::NOISE_PCT;
use crate::results::{ExperimentResults, Target};
use std::io::{self, Write};

/// Writes it; of experiments that nothing is published about and that have no targets, only how to read them.
pub fn write(results: &[ExperimentResults], out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", wrapped(&legend(results), ""))?;
    let judged = || results.iter().filter(|it| it.has_published() || !it.verdict.targets.is_empty());
    for experiment in judged() {
        for (text, target) in &experiment.verdict.targets {
            let word = match target {
                Target::Met => "met   ",
                Target::Missed => "MISSED",
                Target::Open => "open  ",
            };
            let line = format!("{word} {}: {text}", experiment.name);
            write!(out, "{}", wrapped(&line, "       "))?;
        }
    }
    if judged().next().is_none() {
        return Ok(());
    }
    let columns = [
        ("experiment", Align::Left),
        ("predicted", Align::Right),
        ("sign right", Align::Right),
        ("open", Align::Right),
        ("median error", Align::Right),
        ("largest error", Align::Right),
        ("targets", Align::Left),
    ];
    let rows = judged().map(|experiment| {
        let verdict = &experiment.verdict;
        let points = |error: Option<f64>| {
            let error = error.filter(|error| error.is_finite());
            error.map_or(number::MISSING.to_owned(), |error| format!("{error:.1} points"))
        };
        let of = |part: usize, all: usize, words: &str| match all {
            0 => number::MISSING.to_owned(),
            all => format!("{part} of {all}{words}"),
        };
        let count = |count: usize| match experiment.has_published() {
            true => count.to_string(),
            false => number::MISSING.to_owned(),
        };
        vec![
            experiment.name.clone(),
            count(verdict.predicted),
            of(verdict.sign_right, verdict.beyond_noise, ""),
            count(verdict.sign_open),
            points(verdict.median_abs_error_pct),
            points(verdict.max_abs_error_pct),
            of(verdict.targets_met(), verdict.targets.len(), " met"),
        ]
    });
    write!(out, "\n{}", aligned(&columns, &rows.collect::<Vec<_>>()))
}

/// How to read what these experiments have.
fn legend(results: &[ExperimentResults]) -> String {
    let has_published = results.iter().any(ExperimentResults::has_published);
    let has_ranges = results.iter().flat_map(|it| &it.cells).any(|cell| cell.open_range_pct().is_some());
    let has_targets = results.iter().any(|it| !it.verdict.targets.is_empty());
    let mut sentences = vec![
        "An effect is against the baseline; its 95% interval, or the number behind ±, says how far chance moves it. An effect \
         whose interval holds zero is within chance: in a sweep it is in brackets."
            .to_owned(),
    ];
    if has_published {
        sentences.push(format!(
            "All numbers but the calibrated ones are predictions; a composite sums up some that count by themselves. \
             close: at most {CLOSE_POINTS} points from the published effect; within chance: further, but its 95% interval holds \
             zero. In a sweep a variant starts to matter where its effect is beyond chance and at least {NOISE_PCT} point. A sign \
             counts where the published effect is beyond noise, and is open where the simulated one is within chance."
        ));
    }
    if has_targets {
        sentences.push("A target is open if chance decides whether it is met.".to_owned());
    }
    if has_ranges {
        sentences.push(
            "A range holds the effects at the measured points of those that meet the baseline: where it holds zero, or an end \
             of the target, sign and target are open, too, and so they are where it is not known which points do."
                .to_owned(),
        );
    }
    sentences.join(" ")
}
