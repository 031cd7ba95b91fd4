//! Tables for a terminal, at most 100 columns wide.
//!
//! Loads with a published number form a list, a row a cell. A group that also has other loads is shown as a
//! sweep as well: a row a load, a column a variant. Colour carries no meaning. Width is counted in
//! characters, so a name in a script with wide characters may be out of line.

use super::{
    Format,
    groups::{Group, groups, numbers},
    heat_map::{Gain, Grid},
    number,
    onset::onset,
    outcome::{Outcome, beyond_chance},
};
use crate::experiment::NOISE_PCT;
use crate::results::{Cell, ExperimentResults, Role, Target};
use std::io::{self, Write};

const MAX_WIDTH: usize = 100;
const GAP: &str = "  ";

/// Tables for a terminal; a line per experiment at the end says how good the predictions are.
pub struct Table;

impl Format for Table {
    fn name(&self) -> &'static str {
        "table"
    }

    fn extension(&self) -> &'static str {
        "txt"
    }

    fn write(&self, results: &[ExperimentResults], out: &mut dyn Write) -> io::Result<()> {
        for experiment in results {
            write_experiment(experiment, out)?;
        }
        if results.is_empty() { Ok(()) } else { write_verdicts(results, out) }
    }
}

fn write_experiment(experiment: &ExperimentResults, out: &mut dyn Write) -> io::Result<()> {
    let heading = wrapped(&format!("{}: {}", experiment.name, experiment.title), "");
    let longest = heading.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    writeln!(out, "{heading}{}", "=".repeat(longest))?;
    write!(out, "{}", wrapped(&format!("published: {}", experiment.source), "  "))?;
    writeln!(out, "replications: {}, seed: {}", experiment.replications, experiment.seed)?;
    for calibration in &experiment.calibrations {
        write!(out, "{}", wrapped(&format!("calibration {calibration}"), "  "))?;
    }
    for group in groups(&experiment.cells) {
        write!(out, "\n{}", wrapped(&group.title(), "  "))?;
        let published = group.published();
        if published.len() == group.cells.len() {
            write!(out, "{}", list(&group, &published))?;
        } else if let Some(sweep) = sweep(&group) {
            let list = if published.is_empty() { String::new() } else { list(&group, &published) + "\n" };
            write!(out, "{list}{sweep}")?;
            if let Some(onset) = onset(&group) {
                write!(out, "{}", wrapped(&onset, "  "))?;
            }
        } else {
            write!(out, "{}", list(&group, &group.cells))?;
        }
    }
    for grid in experiment.heat_maps.iter().filter_map(|map| Grid::of(map, &experiment.cells)) {
        write!(out, "\n{}{}", wrapped(&heat_map_title(&grid), "  "), heat_map(&grid))?;
        for sentence in grid.sentences() {
            write!(out, "{}", wrapped(&sentence, "  "))?;
        }
    }
    writeln!(out)
}

fn heat_map_title(grid: &Grid) -> String {
    let what = format!("{} (gain of {} over {} in %", grid.map.title, grid.map.metric, grid.baseline);
    format!("{what}, by variant and {}; *: best)", grid.map.columns)
}

/// A row a variant, a column a load; a star is behind the best of each.
fn heat_map(grid: &Grid) -> String {
    let loads: Vec<String> = grid.loads.iter().map(|load| format!("{load} ")).collect();
    let title = grid.map.rows_title.as_deref().unwrap_or("variant");
    let columns: Vec<_> = [(title, Align::Left)]
        .into_iter()
        .chain(loads.iter().map(|load| (load.as_str(), Align::Right)))
        .collect();
    let best: Vec<Option<usize>> =
        (0..loads.len()).map(|column| grid.best(column).map(|best| best.row)).collect();
    let row = |(row, (label, gains)): (usize, &(&str, Vec<Option<Gain>>))| {
        let text = |(column, gain): (usize, &Option<Gain>)| match gain {
            Some(gain) if best[column] == Some(row) => number::points(gain.pct) + "*",
            Some(gain) => number::points(gain.pct) + " ",
            None => format!("{} ", number::MISSING),
        };
        [(*label).to_owned()].into_iter().chain(gains.iter().enumerate().map(text)).collect()
    };
    aligned(&columns, &grid.rows.iter().enumerate().map(row).collect::<Vec<_>>())
}

/// A row a cell.
fn list(group: &Group, cells: &[&Cell]) -> String {
    let keys = group.number_keys.iter().map(|key| (*key, Align::Right));
    // A range takes the place of the error: a line has no room for both.
    let has_ranges = group.shows_effects && cells.iter().any(|cell| cell.open_range_pct().is_some());
    let columns = [
        ("variant", Align::Left),
        ("published", Align::Right),
        ("simulated", Align::Right),
        ("publ.", Align::Right),
        ("sim.", Align::Right),
        ("95% interval", Align::Right),
        (if has_ranges { "range" } else { "error" }, Align::Right),
        ("outcome", Align::Left),
    ];
    let rows = cells.iter().map(|cell| {
        let row = group.row(cell);
        let mut texts = key_texts(group, &numbers(cell).collect::<Vec<_>>());
        texts.extend([cell.variant.clone(), row.published, row.simulated, row.published_effect]);
        let range_or_error = if has_ranges { row.range } else { row.error };
        texts.extend([row.simulated_effect, row.interval, range_or_error, standing(cell).to_owned()]);
        texts
    });
    aligned(&keys.chain(columns).collect::<Vec<_>>(), &rows.collect::<Vec<_>>())
}

/// A row a load, a column a variant; `None` if that would be too wide.
fn sweep(group: &Group) -> Option<String> {
    let keys = group.number_keys.iter().map(|key| (*key, Align::Right));
    let variants = group.variants();
    let columns: Vec<_> = keys.chain(variants.iter().map(|variant| (*variant, Align::Right))).collect();
    let rows: Vec<_> = group
        .loads()
        .into_iter()
        .map(|load| {
            let mut texts = key_texts(group, &load);
            texts.extend(variants.iter().map(|variant| {
                let of_variant =
                    |cell: &&&Cell| cell.variant == *variant && numbers(cell).eq(load.iter().copied());
                group
                    .cells
                    .iter()
                    .find(of_variant)
                    .map(|cell| value_and_effect(group, cell))
                    .unwrap_or_default()
            }));
            texts
        })
        .collect();
    let gaps = GAP.len() * (columns.len() - 1);
    (widths(&columns, &rows).iter().sum::<usize>() + gaps <= MAX_WIDTH).then(|| aligned(&columns, &rows))
}

fn key_texts(group: &Group, keys: &[(&str, i64)]) -> Vec<String> {
    let value = |name: &&str| keys.iter().find(|(key, _)| key == name).map(|(_, number)| number.to_string());
    group.number_keys.iter().map(|name| value(name).unwrap_or_default()).collect()
}

/// Value and effect in one; an effect that may be chance is in brackets.
fn value_and_effect(group: &Group, cell: &Cell) -> String {
    let row = group.row(cell);
    match (row.simulated, row.simulated_effect) {
        (value, effect) if effect.is_empty() => value,
        (value, effect) if beyond_chance(cell) => format!("{value} {:>9}", effect + " "),
        (value, effect) => format!("{value} {:>9}", format!("({effect})")),
    }
}

/// Whether a cell is calibrated or a prediction, and how close it is.
fn standing(cell: &Cell) -> &'static str {
    match (cell.role, Outcome::of(cell)) {
        (Role::Predicted, Some(outcome)) => outcome.words(),
        (role, _) => role.word(),
    }
}

fn write_verdicts(results: &[ExperimentResults], out: &mut dyn Write) -> io::Result<()> {
    let legend = format!(
        "All numbers but the calibrated ones are predictions; a composite sums up some that count by themselves. \
         close: at most {} points from the published effect; within chance: further, but its 95% interval holds zero. \
         In a sweep such an effect is in brackets, and a variant starts to matter where its effect is beyond chance and at \
         least {NOISE_PCT} point. A sign counts where the published effect is beyond noise, and is open where the \
         simulated one is within chance. A target is open if chance decides whether it is met. A range holds the effects \
         at the measured points of those that meet the baseline: where it holds zero, or an end of the target, sign and target are \
         open, too, and so they are where it is not known which points do.",
        super::CLOSE_POINTS
    );
    writeln!(out, "{}", wrapped(&legend, ""))?;
    for experiment in results {
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
    let columns = [
        ("experiment", Align::Left),
        ("predicted", Align::Right),
        ("sign right", Align::Right),
        ("open", Align::Right),
        ("median error", Align::Right),
        ("largest error", Align::Right),
        ("targets", Align::Left),
    ];
    let rows = results.iter().map(|experiment| {
        let verdict = &experiment.verdict;
        let points = |error: Option<f64>| {
            let error = error.filter(|error| error.is_finite());
            error.map_or(number::MISSING.to_owned(), |error| format!("{error:.1} points"))
        };
        vec![
            experiment.name.clone(),
            verdict.predicted.to_string(),
            format!("{} of {}", verdict.sign_right, verdict.beyond_noise),
            verdict.sign_open.to_string(),
            points(verdict.median_abs_error_pct),
            points(verdict.max_abs_error_pct),
            format!("{} of {} met", verdict.targets_met(), verdict.targets.len()),
        ]
    });
    write!(out, "\n{}", aligned(&columns, &rows.collect::<Vec<_>>()))
}

#[derive(Clone, Copy, PartialEq)]
enum Align {
    Left,
    Right,
}

/// A header, a rule and rows with aligned columns. Names are cut where the table would be too wide, numbers
/// never.
fn aligned(columns: &[(&str, Align)], rows: &[Vec<String>]) -> String {
    let mut widths = widths(columns, rows);
    let mut excess =
        (widths.iter().sum::<usize>() + GAP.len() * (widths.len() - 1)).saturating_sub(MAX_WIDTH);
    for (width, (name, align)) in widths.iter_mut().zip(columns) {
        if *align == Align::Left {
            let cut = excess.min(width.saturating_sub(name.chars().count()));
            *width -= cut;
            excess -= cut;
        }
    }
    let line = |texts: &mut dyn Iterator<Item = &str>| {
        let padded = texts.zip(&widths).zip(columns).map(|((text, &width), (_, align))| {
            let text = cut(text, width);
            match align {
                Align::Left => format!("{text:<width$}"),
                Align::Right => format!("{text:>width$}"),
            }
        });
        let line = padded.collect::<Vec<_>>().join(GAP);
        line.trim_end().to_owned() + "\n"
    };
    let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
    let mut text = line(&mut columns.iter().map(|(name, _)| *name));
    text += &line(&mut rules.iter().map(String::as_str));
    for row in rows {
        text += &line(&mut row.iter().map(String::as_str));
    }
    text
}

fn widths(columns: &[(&str, Align)], rows: &[Vec<String>]) -> Vec<usize> {
    let mut widths: Vec<usize> = columns.iter().map(|(name, _)| name.chars().count()).collect();
    for row in rows {
        for (width, text) in widths.iter_mut().zip(row) {
            *width = (*width).max(text.chars().count());
        }
    }
    widths
}

fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// `text` in lines, the second and later ones behind `indent`; a word too long for a line has one to itself.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = String::new();
    let mut line = String::new();
    // A space at the start of a line is the caller's, between words any white space is one space.
    for word in text.split(' ') {
        let is_full = line.chars().count() + 1 + word.chars().count() > MAX_WIDTH;
        if is_full && !line.trim().is_empty() {
            lines += &format!("{}\n", line.trim_end());
            line = format!("{indent}{word}");
        } else if line.is_empty() {
            line = word.to_owned();
        } else {
            line += " ";
            line += word;
        }
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    fn written(results: &[ExperimentResults]) -> String {
        let mut out = Vec::new();
        Table.write(results, &mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".to_owned(), "1".to_owned()], vec!["long name".to_owned(), "−12.5".to_owned()]];
        assert_eq!(
            aligned(&[("name", Align::Left), ("n", Align::Right)], &rows),
            "name           n\n---------  -----\na              1\nlong name  −12.5\n"
        );
    }

    #[test]
    fn a_table_too_wide_cuts_names_but_no_number() {
        let rows = [vec!["x".repeat(120), "1234567890".to_owned()]];
        let text = aligned(&[("name", Align::Left), ("number", Align::Right)], &rows);
        let row = text.lines().last().expect("a row");
        assert_eq!(row.chars().count(), MAX_WIDTH);
        assert!(row.ends_with("x…  1234567890"), "{row}");
    }

    #[test]
    fn lines_are_wrapped_between_words() {
        let text = wrapped(&"word ".repeat(30), "  ");
        assert!(text.lines().all(|line| line.chars().count() <= MAX_WIDTH));
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().nth(1).expect("a second line").starts_with("  word"));
        assert_eq!(wrapped("short", "  "), "short\n");
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let text = written(&fixture::all());
        for line in text.lines() {
            assert!(line.chars().count() <= MAX_WIDTH, "{line}");
        }
    }

    #[test]
    fn every_outcome_is_said_in_words() {
        let text = written(&[fixture::numa_affinity()]);
        let row = |start: &str| text.lines().find(|line| line.trim_start().starts_with(start)).expect(start);
        assert!(row("2  no-affinity").ends_with("calibrated"));
        assert!(row("6  pinning").ends_with("close"));
        assert!(text.contains("SIGN WRONG"));
        assert!(text.contains("open   numa-affinity: The sign of every predicted effect"));
    }

    #[test]
    fn a_sweep_has_a_column_per_variant() {
        let text = written(&[fixture::rate_control()]);
        let after = text.split("\nresponse_p95_us").nth(1).expect("the metric");
        let header = after.lines().nth(1).expect("a header");
        assert_eq!(
            header.split_whitespace().collect::<Vec<_>>(),
            ["load_pct", "credit", "src", "ratelimit-1ms", "ratelimit-5ms", "ratelimit-10ms"]
        );
        assert!(text.contains("\nstarts to matter at load_pct = 50: src, ratelimit-1ms"), "{text}");
        assert_eq!(text.matches("\nstarts to matter").count(), 1, "only where an effect is published");
    }

    #[test]
    fn a_heat_map_is_a_table_with_the_best_starred() {
        let text = written(&[fixture::heat_map()]);
        let after = text
            .split("\nHackbench: gain by tunables and load (gain of time over hard")
            .nth(1)
            .expect("the map");
        let rows: Vec<String> =
            after.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(rows[0], "allowed : preferred 1 2 4 8");
        assert_eq!(
            rows[2..5],
            ["1:1 +0.3* −0.5 +1.0 +2.0", "5:4 +0.2 +1.4* +6.2* −1.0", "100:1 −0.9 −2.0 −6.0 +3.0*"]
        );
        assert!(
            rows[5].starts_with("Best at load 1: 1:1 (+0.3%, within chance of 5:4, hard); load 2: 5:4"),
            "{text}"
        );
    }

    #[test]
    fn the_last_lines_are_the_verdicts() {
        let text = written(&fixture::all());
        let last: Vec<&str> = text.lines().rev().take(2).collect();
        assert!(last[1].starts_with("rate-control"), "{text}");
        assert_eq!(
            last[0].split_whitespace().collect::<Vec<_>>().join(" "),
            "numa-affinity 18 13 of 15 1 1.9 points 10.6 points 1 of 2 met"
        );
        assert_eq!(written(&[]), "");
    }
}
