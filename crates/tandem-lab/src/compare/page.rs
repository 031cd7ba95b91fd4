//! A comparison as a page with pictures, for a browser. It needs nothing from elsewhere.

use super::moment::Moment;
use super::pictures::{distributions, effects, patch, shares, swatch, timeline};
use super::{Comparison, Row};
use crate::report::number;
use askama::Template;
use tandem_sim::times::Times;

#[derive(Template)]
#[template(path = "compare.html")]
struct Page<'a> {
    comparison: &'a Comparison,
    /// The seeds, in words.
    seeds: String,
    /// What became of the precision, if one was asked for.
    precision: Option<String>,
    /// The mark of each scheduler, its number and its name.
    policies: Vec<(String, &'a str)>,
    /// The colour of each group and its name.
    groups: Vec<(String, &'a str)>,
    sections: Vec<Section<'a>>,
    shares: String,
    moments: Vec<(String, String)>,
}

/// A group, or the host.
struct Section<'a> {
    name: &'a str,
    /// Title and picture.
    distributions: Vec<(&'static str, String)>,
    effects: Option<String>,
    rows: Vec<TableRow<'a>>,
}

/// A measure under a scheduler.
struct TableRow<'a> {
    /// The measure, in the first of its rows.
    measure: &'a str,
    policy: usize,
    mean: String,
    effect: String,
    interval: String,
    /// Class and word.
    word: (&'static str, &'static str),
}

/// The page, with the worst moment under each scheduler.
///
/// # Errors
/// None that a user could cause.
pub fn html(comparison: &Comparison, moments: &[Option<Moment>]) -> Result<String, askama::Error> {
    let groups: Vec<&str> = comparison.pooled.iter().map(|pooled| &*pooled.group).collect();
    let section = |at: usize| {
        let group = groups.get(at).copied();
        let name = group.unwrap_or("the host");
        let rows: Vec<&Row> = comparison.rows.iter().filter(|row| row.group.as_deref() == group).collect();
        let pictures = comparison.pooled.get(at).into_iter().flat_map(|pooled| {
            [("Response times", 0), ("Delays of wake-ups", 1)].into_iter().filter_map(|(title, which)| {
                let times: Vec<&Times> = pooled.times.iter().map(|times| &times[which]).collect();
                let label = format!("{title} of {name}");
                Some((title, distributions(&label, &comparison.policies, &times)?))
            })
        });
        Section {
            name,
            distributions: pictures.collect(),
            effects: effects(
                name,
                &rows.iter().map(|row| (*row).into()).collect::<Vec<_>>(),
                &comparison.policies,
            ),
            rows: rows.iter().copied().flat_map(table_rows).collect(),
        }
    };
    let sections = (0..=groups.len()).map(section).collect();
    let moments = moments.iter().enumerate().filter_map(|(at, moment)| {
        let moment = moment.as_ref()?;
        let waited_us = number::value((moment.wait_ns.1 - moment.wait_ns.0) as f64 / 1e3);
        let title = format!(
            "[{}] {}: {} waits for {waited_us} us, seed {}",
            at + 1,
            comparison.policies[at],
            moment.task,
            moment.seed
        );
        let picture = timeline(&title, moment);
        Some((title, picture))
    });
    Page {
        seeds: comparison.seeds_in_words(),
        precision: comparison.precision.as_ref().map(|precision| precision.to_string()),
        policies: comparison
            .policies
            .iter()
            .enumerate()
            .map(|(at, name)| (swatch(at, name), &**name))
            .collect(),
        groups: groups.iter().enumerate().map(|(at, name)| (patch(at, name), *name)).collect(),
        shares: shares(comparison),
        moments: moments.collect(),
        comparison,
        sections,
    }
    .render()
}

fn table_rows(row: &Row) -> impl Iterator<Item = TableRow<'_>> {
    row.figures.iter().enumerate().map(|(at, figure)| {
        let word = figure.interval_pct.map_or("", |interval| row.better.word(interval));
        TableRow {
            measure: if at == 0 { &row.measure } else { "" },
            policy: at + 1,
            mean: figure.mean.map_or(number::MISSING.into(), number::value),
            effect: figure.effect_pct.map_or(String::new(), number::effect),
            interval: figure.interval_pct.map_or(String::new(), number::interval),
            word: (class(word), word),
        }
    })
}

/// How a word looks.
pub(super) fn class(word: &str) -> &'static str {
    match word {
        "better" => "good",
        "worse" => "bad",
        _ => "",
    }
}
