//! Published and simulated effect of each cell, one below the other; where nothing is published about a metric and no
//! sweep shows it, the simulated ones.

use super::{Legend, scale::Scale, scale::ticks, svg::Anchor, svg::Svg, with_sign};
use crate::{
    report::{
        groups::{distinct, groups, numbers},
        number, outcome,
    },
    results::{Cell, ExperimentResults},
};

const WIDTH: f64 = 440.0;
const LETTER: f64 = 7.4;
const GUTTER_MAX: f64 = 180.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 2.0;
const BOTTOM: f64 = 48.0;
const HEADING: f64 = 32.0;
const ROW: f64 = 15.0;
const GAP: f64 = 7.0;

/// One line of the plot.
enum Line<'a> {
    Heading(String),
    Effect(&'a Cell, (Option<f64>, f64)),
    /// Space above the effects of a load, whose name stands beside the first of them.
    Load(String),
}

/// The plot, or `None` if there is no effect to compare.
pub fn dots(experiment: &ExperimentResults, legend: &Legend) -> Option<String> {
    let lines = lines_of(experiment);
    let effects = || {
        lines.iter().filter_map(|line| match line {
            Line::Effect(cell, effects) => Some((*cell, *effects)),
            _ => None,
        })
    };
    effects().next()?;

    let ends = effects().flat_map(|(cell, (published, simulated))| {
        let (low, high) = outcome::interval(cell).unwrap_or((simulated, simulated));
        let (least, most) = cell.open_range_pct().unwrap_or((simulated, simulated));
        [published.unwrap_or(simulated), simulated, low, high, least, most]
    });
    let ticks = ticks(ends.chain([0.0]), 6);
    let left = gutter(&lines);
    let x = Scale::linear(ticks.range(), (left, WIDTH - RIGHT));
    let height = TOP + lines.iter().map(Line::height).sum::<f64>() + BOTTOM;

    let mut svg = Svg::new(WIDTH, height, &format!("Effects of {}, cell by cell", experiment.name));
    for (value, label) in ticks.labelled() {
        let class = if value == 0.0 { "zero" } else { "grid" };
        let place = x.place(value);
        svg.line((place, TOP), (place, height - BOTTOM + 4.0), class);
        svg.text((place, height - BOTTOM + 21.0), Anchor::Middle, "tick", &with_sign(value, label));
    }
    svg.text(((left + WIDTH - RIGHT) / 2.0, height - 4.0), Anchor::Middle, "axis", "effect, %");

    let mut top = TOP;
    for line in &lines {
        let middle = top + line.height() / 2.0;
        match line {
            Line::Heading(text) => svg.text((0.0, middle + 8.0), Anchor::Start, "heading", text),
            Line::Load(text) => {
                svg.text((left - 10.0, top + GAP + ROW / 2.0 + 4.0), Anchor::End, "tick", text)
            }
            Line::Effect(cell, (published, simulated)) => {
                draw_effect(&mut svg, legend, &x, middle, cell, (*published, *simulated));
            }
        }
        top += line.height();
    }
    Some(svg.finish())
}

fn draw_effect(
    svg: &mut Svg,
    legend: &Legend,
    x: &Scale,
    y: f64,
    cell: &Cell,
    (published, simulated): (Option<f64>, f64),
) {
    let mark = legend.mark(&cell.variant);
    if let Some(published) = published {
        svg.line((x.place(published), y), (x.place(simulated), y), "link");
    }
    if let Some((least, most)) = cell.open_range_pct() {
        svg.line((x.place(least), y), (x.place(most), y), &format!("range {}", mark.colour));
    }
    let interval = outcome::interval(cell);
    if let Some((low, high)) = interval {
        svg.line((x.place(low), y), (x.place(high), y), &format!("error {}", mark.colour));
    }
    if let Some(published) = published {
        let text = format!("{}: published {}", cell.variant, number::effect(published));
        svg.marker(mark.shape, (x.place(published), y), 4.2, &format!("hollow {}", mark.colour), Some(&text));
    }
    let interval = interval.map(number::interval).unwrap_or_default();
    let range = cell.open_range_pct().map(number::interval);
    let range = range.map(|range| format!(", range {range}")).unwrap_or_default();
    let text = format!("{}: simulated {} {interval}{range}", cell.variant, number::effect(simulated));
    svg.marker(mark.shape, (x.place(simulated), y), 4.2, &format!("mark {}", mark.colour), Some(&text));
}

/// The cells that have a line in the plot.
pub fn dotted(experiment: &ExperimentResults) -> Vec<&Cell> {
    let lines = lines_of(experiment).into_iter();
    let cells = lines.filter_map(|line| match line {
        Line::Effect(cell, _) => Some(cell),
        Line::Heading(_) | Line::Load(_) => None,
    });
    cells.collect()
}

/// Room for the longest name of a load.
fn gutter(lines: &[Line]) -> f64 {
    let letters = lines.iter().map(|line| match line {
        Line::Load(text) => text.chars().count(),
        _ => 0,
    });
    (letters.max().unwrap_or(0) as f64 * LETTER + 14.0).min(GUTTER_MAX)
}

/// A heading for each group, then its loads with the effects of each variant.
fn lines_of(experiment: &ExperimentResults) -> Vec<Line<'_>> {
    let mut lines = Vec::new();
    for group in groups(&experiment.cells) {
        let alone = group.shows_effects && !group.is_compared && group.sweep_key().is_none();
        let effects = |cell: &Cell| match outcome::effects(cell) {
            Some((published, simulated)) => Some((Some(published), simulated)),
            None if alone => Some((None, cell.simulated_effect_pct.filter(|effect| effect.is_finite())?)),
            None => None,
        };
        let effects: Vec<_> = group.cells.iter().filter_map(|cell| Some((*cell, effects(cell)?))).collect();
        if effects.is_empty() {
            continue;
        }
        lines.push(Line::Heading(group.name()));
        for load in distinct(effects.iter().map(|(cell, _)| numbers(cell).collect::<Vec<_>>())) {
            let name =
                load.iter().map(|(key, number)| format!("{key} {number}")).collect::<Vec<_>>().join(", ");
            lines.push(Line::Load(name));
            let of_load = effects.iter().filter(|(cell, _)| numbers(cell).eq(load.iter().copied()));
            lines.extend(of_load.map(|(cell, effects)| Line::Effect(cell, *effects)));
        }
    }
    lines
}

impl Line<'_> {
    fn height(&self) -> f64 {
        match self {
            Self::Heading(_) => HEADING,
            Self::Effect(..) => ROW,
            Self::Load(_) => GAP,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn every_cell_has_both_effects() {
        let numa = fixture::numa_affinity();
        let plot = dots(&numa, &Legend::of(&numa)).expect("effects");
        assert_eq!(plot.matches(": published ").count(), 18);
        assert_eq!(plot.matches(": simulated ").count(), 18);
        assert_eq!(plot.matches("class=\"heading\"").count(), 3);
    }

    #[test]
    fn without_published_numbers_effects_that_no_sweep_shows_have_their_intervals() {
        let mut results = fixture::numa_affinity();
        for cell in &mut results.cells {
            (cell.published, cell.published_effect_pct) = (None, None);
        }
        assert!(dots(&results, &Legend::of(&results)).is_none(), "three loads are a sweep");
        results.cells.retain(|cell| cell.cell["vms"] != crate::results::Key::Number(6));
        let plot = dots(&results, &Legend::of(&results)).expect("effects");
        assert_eq!((plot.matches(": published ").count(), plot.matches(": simulated ").count()), (0, 12));
        assert_eq!(plot.matches("class=\"error").count(), 12);
        assert_eq!(dotted(&results).len(), 12);
    }

    #[test]
    fn nothing_to_compare_is_no_plot() {
        let empty = fixture::empty();
        assert!(dots(&empty, &Legend::of(&empty)).is_none());
    }
}
