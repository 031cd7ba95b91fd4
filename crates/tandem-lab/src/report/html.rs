//! A page for a browser: one file, no network, no script.
//!
//! The text is in `templates/report.html`, the style in `templates/report.css`. This file turns results into
//! the texts and plots that the template puts in place. Text of an experiment file is escaped by the
//! template.

use super::{
    CLOSE_POINTS, Format, Outcome,
    groups::{Group, Row, distinct, groups, numbers},
    heat_map::Grid,
    number,
    onset::onset,
    outcome::{beyond_chance, effects},
    plot::{self, Legend, Quantity},
};
use crate::experiment::NOISE_PCT;
use crate::results::{Better, Cell, ExperimentResults, Target};
use askama::Template;
use std::io;

/// One page with plots and tables that opens without a network.
pub struct Html;

impl Format for Html {
    fn name(&self) -> &'static str {
        "html"
    }

    fn extension(&self) -> &'static str {
        "html"
    }

    fn write(&self, results: &[ExperimentResults], out: &mut dyn io::Write) -> io::Result<()> {
        let page = Page {
            version: env!("CARGO_PKG_VERSION"),
            close_points: CLOSE_POINTS,
            noise_points: NOISE_PCT,
            experiments: results.iter().map(Section::of).collect(),
        };
        page.write_into(out)?;
        writeln!(out)
    }
}

#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    version: &'static str,
    close_points: f64,
    noise_points: f64,
    experiments: Vec<Section<'a>>,
}

/// One experiment.
struct Section<'a> {
    results: &'a ExperimentResults,
    /// Start of the section's address: the name without characters that an address must not hold. The
    /// template adds a count.
    anchor: String,
    sign_right: String,
    median_error: String,
    largest_error: String,
    targets_met: String,
    /// Whether a verdict says something of it.
    has_verdict: bool,
    /// Of effects that nothing is published about, how many are beyond chance, and how many there are.
    own_effects: (usize, usize),
    policies: String,
    seeds: String,
    hashes: (String, String),
    precision: Option<String>,
    /// Name and swatch of each variant with effects to compare.
    legend: Vec<(&'a str, String)>,
    scatter: Option<String>,
    dots: Option<String>,
    heat_maps: Vec<HeatMapFigure<'a>>,
    /// Name and swatch of each variant of the sweeps.
    sweep_legend: Vec<(&'a str, String)>,
    /// For each compared metric, its name and a sentence on the load at which variants start to matter.
    onsets: Vec<(String, String)>,
    sweeps: Vec<Sweep>,
    /// Predictions that are not close, the worst first.
    misses: Vec<Miss>,
    tables: Vec<CellTable<'a>>,
}

/// Gains by variant and load.
struct HeatMapFigure<'a> {
    grid: Grid<'a>,
    plot: String,
    /// The best rows, in sentences.
    text: String,
}

/// A plot over the load.
struct Sweep {
    name: String,
    /// Unit, which way is better, and remarks on the scale.
    notes: String,
    plot: String,
}

/// A prediction that is not close.
struct Miss {
    error: f64,
    class: &'static str,
    words: &'static str,
    /// The cell and the numbers, in words.
    text: String,
}

/// Cells of one group.
struct CellTable<'a> {
    title: String,
    is_open: bool,
    /// Whether effects are shown.
    has_effects: bool,
    /// Whether it is known of one of them what the baseline leaves open.
    has_ranges: bool,
    /// Whether a published number stands beside one of them.
    has_published: bool,
    rows: Vec<TableRow<'a>>,
}

struct TableRow<'a> {
    load: String,
    variant: &'a str,
    is_first_of_load: bool,
    numbers: Row,
    is_chance: bool,
    role: &'static str,
    /// Class and words of the outcome of a prediction.
    outcome: Option<(&'static str, &'static str)>,
}

impl<'a> Section<'a> {
    fn of(results: &'a ExperimentResults) -> Self {
        let verdict = &results.verdict;
        let points = |error: Option<f64>| {
            let error = error.filter(|error| error.is_finite());
            error.map_or(number::MISSING.to_owned(), |error| format!("{error:.1}"))
        };
        let legend = Legend::of(results);
        let groups = groups(&results.cells);
        let mut misses: Vec<Miss> = results.cells.iter().filter_map(Miss::of).collect();
        misses.sort_by(|a, b| b.error.total_cmp(&a.error));
        Self {
            results,
            anchor: results.name.replace(|c: char| !c.is_ascii_alphanumeric(), "-"),
            sign_right: match verdict.beyond_noise {
                0 => number::MISSING.to_owned(),
                beyond_noise if verdict.sign_open == 0 => format!("{} of {beyond_noise}", verdict.sign_right),
                beyond_noise => {
                    format!("{} of {beyond_noise}, {} open", verdict.sign_right, verdict.sign_open)
                }
            },
            median_error: points(verdict.median_abs_error_pct),
            largest_error: points(verdict.max_abs_error_pct),
            targets_met: match verdict.targets.len() {
                0 => number::MISSING.to_owned(),
                targets => format!("{} of {targets}", verdict.targets_met()),
            },
            has_verdict: verdict.predicted > 0,
            own_effects: own_effects(&groups),
            policies: results.policies_in_words(),
            seeds: results.seeds_in_words(),
            hashes: results.hashes(),
            precision: results.precision.as_ref().map(ToString::to_string),
            scatter: plot::scatter(results, &legend),
            dots: plot::dots(results, &legend),
            legend: legend.entries(plot::dotted(results).into_iter()),
            sweep_legend: legend.entries(results.cells.iter()),
            onsets: groups.iter().filter_map(|group| Some((group.name(), onset(group)?))).collect(),
            heat_maps: heat_maps(results),
            sweeps: groups
                .iter()
                .filter(|group| !(group.variants().len() > plot::COLOURS && is_in_heat_maps(group, results)))
                .flat_map(|group| sweeps(group, &legend))
                .collect(),
            misses,
            tables: groups.iter().flat_map(|group| tables(group, !is_in_heat_maps(group, results))).collect(),
        }
    }
}

impl Miss {
    fn of(cell: &Cell) -> Option<Self> {
        let outcome = Outcome::of(cell).filter(|outcome| *outcome != Outcome::Close)?;
        let (class, words) = marked(outcome);
        let (published, simulated) = effects(cell)?;
        let text = format!(
            "{}: {} simulated, {} published",
            [plot::cell_name(cell), cell.metric.clone(), cell.variant.clone()].join(", "),
            number::effect(simulated),
            number::effect(published),
        );
        Some(Self { error: (simulated - published).abs(), class, words, text })
    }
}

/// The effects that nothing is published about on metrics of which one way is better: how many are beyond chance, and
/// how many there are.
fn own_effects(groups: &[Group]) -> (usize, usize) {
    let is_own = |cell: &&&Cell| {
        cell.better != Better::Neither
            && cell.published_effect_pct.is_none()
            && cell.simulated_effect_pct.is_some()
    };
    let own = || groups.iter().flat_map(|group| &group.cells).filter(is_own);
    (own().filter(|cell| beyond_chance(cell)).count(), own().count())
}

fn heat_maps(results: &ExperimentResults) -> Vec<HeatMapFigure<'_>> {
    let grids = results.heat_maps.iter().filter_map(|map| Grid::of(map, &results.cells));
    grids
        .map(|grid| HeatMapFigure { plot: plot::heat_map(&grid), text: grid.sentences().join(" "), grid })
        .collect()
}

/// Whether heat maps show every effect of the group: a plot with more variants than colours, or an open
/// table, would only repeat them.
fn is_in_heat_maps(group: &Group, results: &ExperimentResults) -> bool {
    group.cells.iter().all(|cell| results.heat_maps.iter().any(|map| map.shows(cell)))
}

/// A plot of values for each set of the group's other numbers; one of effects, too, if an effect is published
/// and the values are of one order of magnitude: on a logarithmic scale their distances are the effects.
fn sweeps(group: &Group, legend: &Legend) -> Vec<Sweep> {
    let Some(key) = group.sweep_key() else {
        return Vec::new();
    };
    let others =
        |cell: &Cell| numbers(cell).filter(|(name, _)| *name != key).map(name_and_number).collect::<Vec<_>>();
    let mut sweeps = Vec::new();
    for set in distinct(group.cells.iter().map(|cell| others(cell))) {
        let cells: Vec<&Cell> = group.cells.iter().copied().filter(|cell| others(cell) == set).collect();
        let name = [group.name()].into_iter().chain(set).collect::<Vec<_>>().join(", ");
        let mut plot = |notes: Vec<&str>, quantity| {
            let notes = notes.into_iter().filter(|note| !note.is_empty()).collect::<Vec<_>>().join(", ");
            let title = format!("{name} ({notes})");
            let plot = plot::lines(group, &cells, key, quantity, &title, legend);
            sweeps.extend(plot.map(|plot| Sweep { name: name.clone(), notes, plot }));
        };
        let is_logarithmic = plot::is_logarithmic(&cells);
        let scale = if is_logarithmic { "logarithmic" } else { "" };
        plot(vec![&group.notes(), scale], Quantity::Value);
        if group.is_compared && !is_logarithmic {
            plot(vec!["effect in %"], Quantity::Effect);
        }
    }
    sweeps
}

fn name_and_number((name, number): (&str, i64)) -> String {
    format!("{name} {number}")
}

/// A table of the loads with published numbers, open if it should be, and, if there are other loads, a closed
/// one of all. Where nothing is published, the one of all takes the place of the first.
fn tables<'a>(group: &Group<'a>, is_open: bool) -> Vec<CellTable<'a>> {
    let published = group.published();
    let has_other_loads = published.len() < group.cells.len();
    let mut tables = Vec::new();
    if !published.is_empty() {
        let title = if has_other_loads { group.title() + ", where published" } else { group.title() };
        tables.push(CellTable::of(group, title, &published, is_open));
    }
    if published.is_empty() {
        tables.push(CellTable::of(group, group.title(), &group.cells, is_open));
    } else if has_other_loads {
        tables.push(CellTable::of(group, group.title() + ", every load", &group.cells, false));
    }
    tables
}

impl<'a> CellTable<'a> {
    fn of(group: &Group<'a>, title: String, cells: &[&'a Cell], is_open: bool) -> Self {
        let mut rows: Vec<TableRow> = cells.iter().map(|cell| TableRow::of(group, cell)).collect();
        for index in 1..rows.len() {
            rows[index].is_first_of_load = rows[index].load != rows[index - 1].load;
        }
        let is_published = |cell: &&Cell| cell.published.is_some() || cell.published_effect_pct.is_some();
        Self {
            title,
            is_open,
            has_effects: group.shows_effects,
            has_ranges: group.shows_effects && cells.iter().any(|cell| cell.open_range_pct().is_some()),
            has_published: cells.iter().any(is_published),
            rows,
        }
    }
}

impl<'a> TableRow<'a> {
    fn of(group: &Group, cell: &'a Cell) -> Self {
        Self {
            load: numbers(cell).map(name_and_number).collect::<Vec<_>>().join(", "),
            variant: &cell.variant,
            is_first_of_load: true,
            numbers: group.row(cell),
            is_chance: cell.simulated_effect_pct.is_some() && !beyond_chance(cell),
            role: cell.role.word(),
            outcome: Outcome::of(cell).map(marked),
        }
    }
}

/// Class and words of an outcome.
fn marked(outcome: Outcome) -> (&'static str, &'static str) {
    match outcome {
        Outcome::Close => ("good", "✓ close"),
        Outcome::SignRight => ("fair", "≈ sign right"),
        Outcome::SignWrong => ("bad", "✗ sign wrong"),
        Outcome::WithinChance => ("fair", "~ within chance"),
        Outcome::Open => ("fair", "~ open"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    fn written(results: &[ExperimentResults]) -> String {
        let mut out = Vec::new();
        Html.write(results, &mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_page_needs_no_network() {
        let page = written(&fixture::all()).replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        for reference in ["http:", "https:", "src=", "url(", "@import", "<script", "<link"] {
            assert!(!page.contains(reference), "{reference}");
        }
    }

    #[test]
    fn text_of_files_is_escaped() {
        let page = written(&[fixture::odd()]);
        assert!(!page.contains("<script"));
        assert!(page.contains("&#60;script&#62;"));
    }

    #[test]
    fn every_link_has_a_place_to_go() {
        let page = written(&[fixture::odd(), fixture::numa_affinity()]);
        let links: Vec<&str> =
            page.split("href=\"#").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(links.len(), 2);
        for link in links {
            assert!(page.contains(&format!("id=\"{link}\"")), "{link}");
        }
    }

    #[test]
    fn targets_are_met_or_missed_or_open() {
        let page = written(&[fixture::numa_affinity(), fixture::rate_control()]);
        assert!(page.contains("13 of 15, 1 open"));
        assert!(["✗ missed", "✓ met", "~ open"].iter().all(|word| page.contains(word)));
    }

    #[test]
    fn misses_are_told_the_worst_first() {
        let mut results = fixture::empty();
        let close = fixture::effect(14.0, 12.0, 1.0);
        results.cells = vec![close, fixture::effect(14.0, 9.0, 1.0), fixture::effect(5.0, -5.0, 1.0)];
        let misses = Section::of(&results).misses;
        let words: Vec<_> = misses.iter().map(|miss| miss.words).collect();
        assert_eq!(words, ["✗ sign wrong", "≈ sign right"]);
        assert_eq!(misses[0].text, "sums, vms 2, throughput, better: −5.0% simulated, +5.0% published");
    }

    #[test]
    fn every_cell_is_a_row_and_elements_are_closed() {
        let page = written(&fixture::all());
        assert_eq!(page.matches("<th scope=\"row\"><span").count(), 350 + 20 + 27);
        for element in ["section", "table", "svg", "figure", "details", "div", "ul"] {
            let opened =
                page.matches(&format!("<{element}>")).count() + page.matches(&format!("<{element} ")).count();
            assert_eq!(opened, page.matches(&format!("</{element}>")).count(), "{element}");
        }
    }

    #[test]
    fn a_heat_map_stands_for_lines_that_nobody_could_tell_apart_and_for_open_tables() {
        let mut results = fixture::heat_map();
        let figures = heat_maps(&results);
        assert_eq!(figures.len(), 1);
        assert!(written(std::slice::from_ref(&results)).contains("Best at load 1: 1:1 (+0.3%"));
        let section = Section::of(&results);
        assert_eq!((section.sweeps.len(), section.tables.len()), (1, 1), "four variants can be told apart");

        let more: Vec<String> = (0..4).map(|number| format!("more-{number}")).collect();
        let cells = results.cells.clone();
        for name in &more {
            let copies = cells.iter().filter(|cell| cell.variant == "soft-1-1");
            results.cells.extend(copies.map(|cell| Cell { variant: name.clone(), ..cell.clone() }));
        }
        assert_eq!(Section::of(&results).sweeps.len(), 1, "the map does not show all of them");
        results.heat_maps[0].rows.extend(more.iter().map(|name| (name.clone(), name.clone())));
        assert!(Section::of(&results).sweeps.is_empty());

        results.cells.iter_mut().for_each(|cell| cell.published = Some(1.0));
        assert!(Section::of(&results).tables.iter().all(|table| !table.is_open));
        results.heat_maps.clear();
        assert!(Section::of(&results).tables[0].is_open);
    }

    #[test]
    fn without_results_the_page_says_so() {
        assert!(written(&[]).contains("No experiment was run"));
    }
}
