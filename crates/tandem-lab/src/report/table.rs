//! Tables for a terminal, at most 100 columns wide.
//!
//! Cells form a list, a row a cell: beside published numbers with those, elsewhere with what the interval says of the
//! effect. From three loads on, those that nothing is published about are a sweep: a row a load, a column a variant, in
//! several tables one below the other where one would be too wide. Colour carries no meaning.

use super::{
    Format,
    groups::{Group, groups, numbers},
    heat_map::{Gain, Grid},
    layout::{Align, GAP, MAX_WIDTH, aligned, widths, wrapped},
    number,
    onset::onset,
    outcome::{self, Outcome, beyond_chance},
};
use crate::results::{Cell, ExperimentResults, Role};
use std::io::{self, Write};

mod verdicts;

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
        if results.is_empty() { Ok(()) } else { verdicts::write(results, out) }
    }
}

/// From so many loads on they are a sweep: fewer are read as well in a list.
const SWEEP_LOADS: usize = 3;

fn write_experiment(experiment: &ExperimentResults, out: &mut dyn Write) -> io::Result<()> {
    let heading = wrapped(&format!("{}: {}", experiment.name, experiment.title), "");
    let longest = heading.lines().map(|line| line.chars().count()).max().unwrap_or(0);
    writeln!(out, "{heading}{}", "=".repeat(longest))?;
    if experiment.is_cut {
        writeln!(out, "INTERRUPTED: these are the replications that were complete")?;
    }
    let source = if experiment.has_published() { "published" } else { "source" };
    write!(out, "{}", wrapped(&format!("{source}: {}", experiment.source), "  "))?;
    let version = env!("CARGO_PKG_VERSION");
    let seeds = experiment.seeds_in_words();
    writeln!(out, "replications: {}, {seeds}, tandem {version}", experiment.replications)?;
    let (scenarios, runs) = experiment.hashes();
    writeln!(out, "hashes: scenarios {scenarios}, traces {runs}")?;
    write!(out, "{}", wrapped(&format!("policies: {}", experiment.policies_in_words()), "  "))?;
    if let Some(precision) = &experiment.precision {
        write!(out, "{}", wrapped(&format!("precision: {precision}"), "  "))?;
    }
    for calibration in &experiment.calibrations {
        write!(out, "{}", wrapped(&format!("calibration {calibration}"), "  "))?;
    }
    for group in groups(&experiment.cells) {
        write!(out, "\n{}", wrapped(&group.title(), "  "))?;
        let published = group.published();
        let is_swept = published.len() < group.cells.len() && group.loads().len() >= SWEEP_LOADS;
        if let Some(sweep) = Some(&group).filter(|_| is_swept).and_then(sweep) {
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
    let is_published = |cell: &&Cell| cell.published.is_some() || cell.published_effect_pct.is_some();
    let has_published = cells.iter().any(is_published);
    let has_ranges = group.shows_effects && cells.iter().any(|cell| cell.open_range_pct().is_some());
    let mut columns = vec![("variant", Align::Left)];
    match has_published {
        true => {
            let names = ["published", "simulated", "publ.", "sim.", "95% interval"];
            columns.extend(names.map(|name| (name, Align::Right)));
        }
        false => columns.extend(["mean", "effect", "95% interval"].map(|name| (name, Align::Right))),
    }
    // A range takes the place of the error: a line has no room for both.
    match (has_ranges, has_published) {
        (true, _) => columns.push(("range", Align::Right)),
        (false, true) => columns.push(("error", Align::Right)),
        (false, false) => {}
    }
    columns.push(("outcome", Align::Left));
    let rows = cells.iter().map(|cell| {
        let row = group.row(cell);
        let mut texts = key_texts(group, &numbers(cell).collect::<Vec<_>>());
        texts.push(cell.variant.clone());
        match has_published {
            true => texts.extend([row.published, row.simulated, row.published_effect]),
            false => texts.push(row.simulated),
        }
        texts.extend([row.simulated_effect, row.interval]);
        match (has_ranges, has_published) {
            (true, _) => texts.push(row.range),
            (false, true) => texts.push(row.error),
            (false, false) => {}
        }
        texts.push(standing(group, cell).to_owned());
        texts
    });
    aligned(&keys.chain(columns).collect::<Vec<_>>(), &rows.collect::<Vec<_>>())
}

/// A row a load, a column a variant; as many columns in a table as there is room for, the others in further tables.
/// `None` if a variant alone is too wide.
fn sweep(group: &Group) -> Option<String> {
    let keys: Vec<_> = group.number_keys.iter().map(|key| (*key, Align::Right)).collect();
    let loads = group.loads();
    let key_rows: Vec<Vec<String>> = loads.iter().map(|load| key_texts(group, load)).collect();
    let column = |variant: &str| -> Vec<String> {
        let cell_at = |load: &Vec<(&str, i64)>| {
            let mut cells = group.cells.iter();
            cells.find(|cell| cell.variant == variant && numbers(cell).eq(load.iter().copied()))
        };
        let text = |load| cell_at(load).map(|cell| value_and_effect(group, cell)).unwrap_or_default();
        loads.iter().map(text).collect()
    };
    let mut tables: Vec<Grown> = Vec::new();
    for variant in group.variants() {
        let texts = column(variant);
        match tables.last().and_then(|table| with_column(table.clone(), variant, &texts)) {
            Some(wider) => *tables.last_mut()? = wider,
            None => tables.push(with_column((keys.clone(), key_rows.clone()), variant, &texts)?),
        }
    }
    let texts = tables.iter().map(|(columns, rows)| aligned(columns, rows));
    Some(texts.collect::<Vec<_>>().join("\n"))
}

/// Columns, and rows of their texts.
type Grown<'a> = (Vec<(&'a str, Align)>, Vec<Vec<String>>);

/// The table with one more column; `None` if it would be too wide.
fn with_column<'a>((mut columns, mut rows): Grown<'a>, name: &'a str, texts: &[String]) -> Option<Grown<'a>> {
    columns.push((name, Align::Right));
    rows.iter_mut().zip(texts).for_each(|(row, text)| row.push(text.clone()));
    let gaps = GAP.len() * (columns.len() - 1);
    let fits = widths(&columns, &rows).iter().sum::<usize>() + gaps <= MAX_WIDTH;
    fits.then_some((columns, rows))
}

fn key_texts(group: &Group, keys: &[(&str, i64)]) -> Vec<String> {
    let value = |name: &&str| keys.iter().find(|(key, _)| key == name).map(|(_, number)| number.to_string());
    group.number_keys.iter().map(|name| value(name).unwrap_or_default()).collect()
}

/// Mean, effect and half of its interval in one; an effect that may be chance is in brackets.
fn value_and_effect(group: &Group, cell: &Cell) -> String {
    let row = group.row(cell);
    if row.simulated_effect.is_empty() {
        return row.simulated;
    }
    let half = outcome::interval(cell).map(|(low, high)| format!(" ±{:.1}", (high - low) / 2.0));
    let effect = row.simulated_effect + &half.unwrap_or_default();
    let effect = if beyond_chance(cell) { effect + " " } else { format!("({effect})") };
    format!("{} {effect:>16}", row.simulated)
}

/// Whether a cell is calibrated or a prediction, and how close it is; without a published effect, what its interval
/// says.
fn standing(group: &Group, cell: &Cell) -> &'static str {
    match (cell.role, Outcome::of(cell)) {
        (Role::Predicted, Some(outcome)) => outcome.words(),
        (Role::Predicted, None) if cell.variant == cell.baseline => "baseline",
        (Role::Predicted, None) if cell.published.is_none() && !group.shows_effects => "",
        (Role::Predicted, None) => match outcome::interval(cell) {
            None => "",
            Some(_) if !beyond_chance(cell) => "within chance",
            Some(interval) => match cell.better.word(interval) {
                "" => "differs",
                word => word,
            },
        },
        (role, _) => role.word(),
    }
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
        let of_metric = after.split("\n\n").take(2);
        let headers: Vec<&str> =
            of_metric.filter_map(|table| table.lines().find(|line| line.contains("load_pct"))).collect();
        let names: Vec<Vec<&str>> =
            headers.iter().map(|header| header.split_whitespace().collect()).collect();
        assert_eq!(names[0][..3], ["load_pct", "credit", "src"], "{after}");
        let all: Vec<&str> = names.iter().flat_map(|names| names[1..].iter().copied()).collect();
        assert_eq!(all, ["credit", "src", "ratelimit-1ms", "ratelimit-5ms", "ratelimit-10ms"], "{after}");
        assert!(after.contains(" ±0.8"), "an effect has an interval: {after}");
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
