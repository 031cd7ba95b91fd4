//! A trial's report: a table with a plot of the intervals and sentences, or JSON.

use super::analysis::{CarryOver, Comparison, Verdict};
use super::record::{Failure, History, Trial};
use crate::report::number::{self, rounded};
use crate::statistics::switchback::{ArmEffect, Interval};
use serde_json::{Value as Json, json};
use std::fmt;
use tandem_file::shown::readable;

/// Columns on each side of the plot's middle.
const PLOT_HALF: usize = 12;
/// The largest effect that the plot has room for, in percent.
const PLOT_MAX_PCT: f64 = 100.0;
/// The smallest one at its edge, in percent.
const PLOT_MIN_PCT: f64 = 5.0;

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All blocks are complete.
    Complete,
    /// No arm is left to compare.
    Stopped,
    /// A signal ended it, or an error did.
    Interrupted,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Stopped => "stopped",
            Self::Interrupted => "interrupted",
        }
    }
}

/// All that a report says; displayed, it is the table.
#[derive(Debug)]
pub struct Report<'a> {
    /// What the trial was.
    pub trial: &'a Trial,
    /// What happened.
    pub history: &'a History,
    /// What follows.
    pub comparisons: &'a [Comparison],
    /// The winner, as an index into the trial's arms.
    pub winner: Option<usize>,
    /// How it ended.
    pub end: End,
    /// What could not be measured at all: a sentence each.
    pub notes: &'a [String],
}

impl Report<'_> {
    /// The report as JSON.
    pub fn to_json(&self) -> Json {
        let arm = |(at, arm): (usize, &super::record::ArmRecord)| {
            let failure = self.history.failure(&arm.name);
            json!({
                "name": arm.name,
                "command": arm.command,
                "is_baseline": at == 0,
                "blocks": self.history.blocks().filter(|block| block.arm == arm.name).count(),
                "failed": failure.map(|failure| &failure.reason),
                "is_harm": failure.is_some_and(|failure| failure.is_harm),
            })
        };
        let errors = self.history.blocks().flat_map(|block| {
            block.errors.iter().map(|error| json!({"block": block.block, "arm": block.arm, "error": error}))
        });
        json!({
            "end": self.end.name(),
            "seed": self.trial.plan.seed,
            "blocks": self.history.blocks().count(),
            "planned_blocks": self.trial.plan.blocks(),
            "block_s": seconds(self.trial.block_ns),
            "settle_s": seconds(self.trial.settle_ns),
            "arms": self.trial.arms.iter().enumerate().map(arm).collect::<Vec<_>>(),
            "comparisons": self.comparisons.iter().map(comparison_json).collect::<Vec<_>>(),
            "winner": self.winner.map(|arm| &self.trial.arms[arm].name),
            "errors": errors.collect::<Vec<_>>(),
            "notes": self.notes,
        })
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn comparison_json(comparison: &Comparison) -> Json {
    let Comparison { arm, measure, rounds, effect, carry_over, verdict } = comparison;
    let (verdict_name, bound) = match *verdict {
        Verdict::Better => ("better", Json::Null),
        Verdict::Worse => ("worse", Json::Null),
        Verdict::More => ("more", Json::Null),
        Verdict::Less => ("less", Json::Null),
        Verdict::NoDifference { beyond_pct } => ("no_difference", json!(rounded(beyond_pct))),
        Verdict::Undecided { .. } => ("undecided", Json::Null),
    };
    let blocks = match verdict {
        Verdict::Undecided { blocks } => *blocks,
        _ => None,
    };
    let halves = carry_over.map(|CarryOver { first, second, is_found }| {
        let side = |effect: ArmEffect| {
            json!({
                "difference": rounded(effect.arm - effect.baseline),
                "percent": effect.percent.and_then(rounded),
            })
        };
        json!({"first_half": side(first), "second_half": side(second), "is_found": is_found})
    });
    json!({
        "arm": arm,
        "measure": measure.measure,
        "unit": measure.unit,
        "better": measure.better,
        "is_decisive": measure.is_decisive,
        "rounds": rounds,
        "baseline_value": rounded(effect.baseline),
        "arm_value": rounded(effect.arm),
        "difference": rounded(effect.arm - effect.baseline),
        "difference_interval": effect.interval.map(interval_json),
        "percent": effect.percent.and_then(rounded),
        "percent_interval": effect.interval_pct.map(interval_json),
        "carry_over": halves,
        "verdict": verdict_name,
        "no_difference_beyond_pct": bound,
        "blocks_to_decide": blocks,
        "sentence": sentence(comparison),
    })
}

fn interval_json((low, high): Interval) -> Json {
    json!([rounded(low), rounded(high)])
}

/// What a comparison says, without a full stop.
pub fn sentence(comparison: &Comparison) -> String {
    let Comparison { arm, measure, effect, carry_over, verdict, rounds } = comparison;
    let name = &measure.measure;
    let amount = match (effect.percent, effect.interval_pct) {
        (Some(percent), Some(interval)) => {
            format!("{} {}", number::effect(percent), number::interval(interval))
        }
        _ => {
            let between = effect
                .interval
                .map(|(low, high)| format!(" [{}, {}]", number::value(low), number::value(high)));
            let unit = if measure.unit.is_empty() { String::new() } else { format!(" {}", measure.unit) };
            format!("{}{unit}{}", number::value(effect.arm - effect.baseline), between.unwrap_or_default())
        }
    };
    let says = match verdict {
        Verdict::Better => format!("{arm} is better: {amount}"),
        Verdict::Worse => format!("{arm} is worse: {amount}"),
        Verdict::More => format!("{arm} has more: {amount}"),
        Verdict::Less => format!("{arm} has less: {amount}"),
        Verdict::NoDifference { beyond_pct } => {
            format!("no difference beyond {}%", number::value(*beyond_pct))
        }
        Verdict::Undecided { .. } if effect.interval.is_none() => {
            format!("undecided: too few rounds ({rounds})")
        }
        Verdict::Undecided { blocks } => {
            let more = blocks.map(|blocks| format!("; about {blocks} blocks of both would decide"));
            format!("undecided: {amount}{}", more.unwrap_or_default())
        }
    };
    let caution = match carry_over {
        Some(CarryOver { first, second, is_found: true }) => {
            let of = |effect: &ArmEffect| match effect.percent {
                Some(percent) => number::effect(percent),
                None => number::value(effect.arm - effect.baseline),
            };
            format!(
                "; the effect changes within blocks, from {} to {}: use a longer --settle",
                of(first),
                of(second)
            )
        }
        _ => String::new(),
    };
    readable(&format!("{name}: {says}{caution}"), &[])
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trial, history, comparisons, .. } = self;
        writeln!(
            f,
            "{}: {} of {} blocks of {} s without their first {} s, seed {}",
            self.end.name(),
            history.blocks().count(),
            trial.plan.blocks(),
            seconds(trial.block_ns),
            seconds(trial.settle_ns),
            trial.plan.seed
        )?;
        for failure in history.failures() {
            let Failure { block, arm, reason, is_harm } = failure;
            let what = if *is_harm { "was stopped" } else { "failed" };
            writeln!(f, "{}", readable(&format!("{arm} {what} in block {}: {reason}", block + 1), &[]))?;
        }
        let baseline = &trial.arms[0].name;
        for arm in &trial.arms[1..] {
            let of_arm: Vec<_> = comparisons.iter().filter(|comparison| comparison.arm == arm.name).collect();
            match &of_arm[..] {
                [] => writeln!(f, "\n{} against {baseline}: no round is complete", arm.name)?,
                of_arm => {
                    writeln!(f)?;
                    write_table(f, baseline, &arm.name, of_arm)?;
                    writeln!(f)?;
                    of_arm.iter().try_for_each(|comparison| writeln!(f, "{}", sentence(comparison)))?;
                }
            }
        }
        let errors = history.blocks().map(|block| block.errors.len()).sum::<usize>();
        if let Some(block) = history.blocks().find(|block| !block.errors.is_empty()) {
            let (number, first) = (block.block + 1, &block.errors[0]);
            let text = format!("{errors} errors, the first in block {number} ({}): {first}", block.arm);
            writeln!(
                f,
                "\n{}",
                readable(&text.replacen("1 errors, the first", "1 error,", usize::from(errors == 1)), &[])
            )?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "{}", readable(note, &[])))?;
        match self.winner {
            Some(arm) => writeln!(f, "\nThe winner is {}.", trial.arms[arm].name),
            None => writeln!(f, "\nThere is no winner."),
        }
    }
}

fn write_table(f: &mut fmt::Formatter<'_>, baseline: &str, arm: &str, rows: &[&Comparison]) -> fmt::Result {
    let scale = rows
        .iter()
        .filter_map(|row| row.effect.interval_pct)
        .fold(PLOT_MIN_PCT, |scale, (low, high)| scale.max(-low).max(high))
        .min(PLOT_MAX_PCT);
    let mut table = vec![[
        "MEASURE".to_owned(),
        baseline.to_uppercase(),
        arm.to_uppercase(),
        "EFFECT".to_owned(),
        "95% INTERVAL".to_owned(),
        format!("{:<PLOT_HALF$}0{:>PLOT_HALF$}", format!("-{scale:.0}%"), format!("+{scale:.0}%")),
    ]];
    for row in rows {
        let Comparison { measure, effect, .. } = row;
        let unit = if measure.unit.is_empty() { String::new() } else { format!(" ({})", measure.unit) };
        table.push([
            readable(&format!("{}{unit}", measure.measure), &[]),
            number::value(effect.baseline),
            number::value(effect.arm),
            effect.percent.map_or(number::MISSING.to_owned(), number::effect),
            effect.interval_pct.map_or(number::MISSING.to_owned(), number::interval),
            plot(effect, scale),
        ]);
    }
    let mut widths = [0; 6];
    for row in &table {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    for [measure, rest @ .., plot] in &table {
        write!(f, "{measure:<width$}", width = widths[0])?;
        for (cell, width) in rest.iter().zip(&widths[1..]) {
            write!(f, "  {cell:>width$}")?;
        }
        writeln!(f, "  {}", plot.trim_end())?;
    }
    Ok(())
}

/// The interval as a line of characters, with the effect in it; arrows where it leaves the plot.
fn plot(effect: &ArmEffect, scale: f64) -> String {
    let (Some(percent), Some((low, high))) = (effect.percent, effect.interval_pct) else {
        return String::new();
    };
    let last = 2 * PLOT_HALF;
    let place = |pct: f64| ((pct / scale + 1.0) * PLOT_HALF as f64).round().clamp(0.0, last as f64) as usize;
    let mut line = vec![' '; last + 1];
    line[PLOT_HALF] = '|';
    line[place(low)..=place(high)].fill('-');
    if low < -scale * 1.001 {
        line[0] = '<';
    }
    if high > scale * 1.001 {
        line[last] = '>';
    }
    line[place(percent)] = 'o';
    line.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::super::analysis::{compare, winner};
    use super::super::record::Event;
    use super::super::record::tests::{block, trial};
    use super::*;

    fn history(trial: &Trial) -> History {
        let value = |at: usize| move |arm: usize| [10.0, 8.0][arm] + (at % 3) as f64 / 10.0;
        let events = (0..trial.plan.blocks()).map(|at| Event::Block(block(trial, at, value(at))));
        History { events: events.collect() }
    }

    fn with_report<R>(history: &History, trial: &Trial, use_it: impl FnOnce(Report<'_>) -> R) -> R {
        let comparisons = compare(trial, history, 5.0);
        let winner = winner(trial, history, &comparisons);
        let notes = ["PSI is off".to_owned()];
        use_it(Report {
            trial,
            history,
            comparisons: &comparisons,
            winner,
            end: End::Complete,
            notes: &notes,
        })
    }

    #[test]
    fn the_table_shows_values_interval_plot_and_sentences() {
        let trial = trial(&["kernel", "tandem"], 8, 3);
        let mut history = history(&trial);
        if let Event::Block(block) = &mut history.events[4] {
            block.errors.push("it said \u{1b}[2J".into());
        }
        let text = with_report(&history, &trial, |report| report.to_string());
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "complete: 32 of 32 blocks of 20 s without their first 5 s, seed 3");
        assert!(lines[2].starts_with("MEASURE   KERNEL  TANDEM  EFFECT"), "{text}");
        assert!(lines[3].starts_with("time (s)   10.09") && lines[3].contains("−"), "{text}");
        assert!(lines[3].ends_with('|') && lines[3].contains('o'), "left of the middle: {text}");
        assert!(lines[5].starts_with("time: tandem is better: −"), "{text}");
        assert!(text.contains("1 error, in block 5 (") && text.contains("\\u{1b}[2J"), "{text}");
        assert!(text.ends_with("PSI is off\n\nThe winner is tandem.\n"), "{text}");
    }

    #[test]
    fn json_has_what_the_table_has() {
        let trial = trial(&["kernel", "tandem"], 8, 3);
        let json = with_report(&history(&trial), &trial, |report| report.to_json());
        let comparison = &json["comparisons"][0];
        assert_eq!(json["winner"], "tandem");
        assert_eq!(json["arms"][1]["blocks"], 16);
        assert_eq!(comparison["verdict"], "better");
        assert_eq!(comparison["rounds"], 8);
        let (low, high) = (&comparison["percent_interval"][0], &comparison["percent_interval"][1]);
        let percent = comparison["percent"].as_f64().unwrap();
        assert!(low.as_f64().unwrap() <= percent && percent <= high.as_f64().unwrap() && percent < -15.0);
    }

    #[test]
    fn an_interval_that_leaves_the_plot_ends_in_an_arrow() {
        let effect = ArmEffect {
            baseline: 1.0,
            arm: 1.0,
            interval: None,
            percent: Some(0.0),
            interval_pct: Some((-5.0, 300.0)),
        };
        assert_eq!(plot(&effect, 100.0), "           -o----------->");
        let exact = ArmEffect { interval_pct: Some((0.0, 0.0)), ..effect };
        assert_eq!(plot(&exact, 10.0).trim(), "o");
    }
}
