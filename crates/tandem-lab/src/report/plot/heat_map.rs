//! Gains by variant and load, as numbers on colours.
//!
//! The colours only repeat the numbers. The scale is symmetric, so that equally strong colours are equal
//! gains and losses, and never so strong that the number on it is hard to read.

use super::{svg::Anchor, svg::Svg};
use crate::report::{heat_map::Gain, heat_map::Grid, number};

const WIDTH: f64 = 440.0;
const LETTER: f64 = 7.4;
const ROW: f64 = 30.0;
const CELL_MIN: f64 = 46.0;
const CELL_MAX: f64 = 84.0;
const TOP: f64 = 2.0;
/// Room for the title of the rows, which stands above them: beside a few rows it would not fit.
const TITLE: f64 = 24.0;
/// Below the cells: the loads, the name of their key, the scale and its numbers.
const BOTTOM: f64 = 94.0;
/// Half the gap between two cells.
const MARGIN: f64 = 1.0;

/// Opacity of the largest gain.
const STRONGEST: f64 = 0.75;

/// Colours of the scale on each side of zero.
const STEPS: usize = 12;

/// The plot of a heat map.
pub fn heat_map(grid: &Grid) -> String {
    let letters = grid.rows.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
    let top = if grid.map.rows_title.is_some() { TITLE } else { TOP };
    let left = letters as f64 * LETTER + 12.0;
    let columns = grid.loads.len() as f64;
    let cell_width = ((WIDTH - left) / columns).clamp(CELL_MIN, CELL_MAX);
    let right = left + columns * cell_width;
    let bottom = top + grid.rows.len() as f64 * ROW;
    let largest = largest(grid);

    let label =
        format!("{}: gain over {}, by variant and {}", grid.map.title, grid.baseline, grid.map.columns);
    let mut svg = Svg::new(right.max(WIDTH), bottom + BOTTOM, &label);
    let corner = |row: usize, column: usize| (left + column as f64 * cell_width, top + row as f64 * ROW);
    for (row, (label, gains)) in grid.rows.iter().enumerate() {
        svg.text((left - 8.0, corner(row, 0).1 + ROW / 2.0 + 4.5), Anchor::End, "tick", label);
        for (column, gain) in gains.iter().enumerate() {
            let (x, y) = corner(row, column);
            let ends = ((x + MARGIN, y + MARGIN), (x + cell_width - MARGIN, y + ROW - MARGIN));
            let text = match gain {
                Some(gain) => {
                    let load = format!("{} {}", grid.map.columns, grid.loads[column]);
                    let tooltip = format!("{label}, {load}: {}", with_interval(gain));
                    shade(&mut svg, ends, gain.pct / largest, Some(&tooltip));
                    number::points(gain.pct)
                }
                None => {
                    svg.rect(ends.0, ends.1, "absent");
                    number::MISSING.to_owned()
                }
            };
            svg.text((x + cell_width / 2.0, y + ROW / 2.0 + 4.5), Anchor::Middle, "gain-number", &text);
        }
    }
    for column in 0..grid.loads.len() {
        let middle = corner(0, column).0 + cell_width / 2.0;
        svg.text((middle, bottom + 18.0), Anchor::Middle, "tick", &grid.loads[column].to_string());
        if let Some(best) = grid.best(column) {
            let (x, y) = corner(best.row, column);
            let class = if best.is_clear() { "best" } else { "best unsure" };
            svg.rect((x + MARGIN, y + MARGIN), (x + cell_width - MARGIN, y + ROW - MARGIN), class);
        }
    }
    svg.text(((left + right) / 2.0, bottom + 38.0), Anchor::Middle, "axis", &grid.map.columns);
    if let Some(title) = &grid.map.rows_title {
        svg.text((0.0, top - 9.0), Anchor::Start, "axis", title);
    }
    draw_scale(&mut svg, (left + MARGIN, bottom + 56.0), (right - left).min(240.0), largest);
    svg.finish()
}

/// The largest gain or loss; never 0, so that it can be divided by.
fn largest(grid: &Grid) -> f64 {
    let gains = grid.rows.iter().flat_map(|(_, gains)| gains).flatten();
    gains.map(|gain| gain.pct.abs()).fold(0.1, f64::max)
}

fn with_interval(gain: &Gain) -> String {
    let interval = gain.interval_pct.map(number::interval).unwrap_or_default();
    format!("{} {interval}", number::effect(gain.pct)).trim_end().to_owned()
}

/// A rectangle in the colour of a gain, from -1 to 1.
fn shade(svg: &mut Svg, (corner, opposite): ((f64, f64), (f64, f64)), gain: f64, tooltip: Option<&str>) {
    let class = if gain < 0.0 { "loss" } else { "gain" };
    svg.shaded_rect(corner, opposite, class, STRONGEST * gain.abs(), tooltip);
}

/// A strip with the colours from the largest loss to the largest gain.
fn draw_scale(svg: &mut Svg, (left, top): (f64, f64), width: f64, largest: f64) {
    let step = width / (2 * STEPS + 1) as f64;
    for index in 0..=2 * STEPS {
        let (x, gain) = (left + index as f64 * step, index as f64 / STEPS as f64 - 1.0);
        shade(svg, ((x, top), (x + step, top + 10.0)), gain, None);
    }
    let below = top + 25.0;
    svg.text((left, below), Anchor::Start, "tick", &number::effect(-largest));
    svg.text((left + width / 2.0, below), Anchor::Middle, "tick", "0");
    svg.text((left + width, below), Anchor::End, "tick", &number::effect(largest));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn every_cell_has_its_number_and_each_load_its_best() {
        let mut results = fixture::heat_map();
        let plot = |results: &crate::results::ExperimentResults| {
            heat_map(&Grid::of(&results.heat_maps[0], &results.cells).expect("gains"))
        };
        let full = plot(&results);
        assert_eq!(full.matches("class=\"gain-number\"").count(), 12);
        assert!(full.contains(">+6.2</text>") && full.contains(">−6.0</text>"));
        assert!(full.contains("<title>5:4, load 4: +6.2% [+5.8, +6.6]</title>"), "{full}");
        assert_eq!(
            (full.matches("class=\"best\"").count(), full.matches("class=\"best unsure\"").count()),
            (2, 2)
        );
        // The largest gain sets the scale on both sides.
        assert!(full.contains(">−6.2%</text>") && full.contains(">+6.2%</text>"));
        assert!(full.contains("class=\"gain\" fill-opacity=\"0.75\"><title>5:4, load 4:"), "{full}");
        for text in ["1:1", "5:4", "100:1", "load", "allowed : preferred"] {
            assert!(full.contains(&format!(">{text}</text>")), "{text}");
        }
        results
            .cells
            .retain(|cell| cell.variant != "soft-1-1" || cell.cell["load"] != crate::results::Key::Number(8));
        let missing = plot(&results);
        assert_eq!(missing.matches("class=\"absent\"").count(), 1);
        assert!(missing.contains(">–</text>"));
    }

    #[test]
    fn gains_of_nothing_are_drawn_too() {
        let mut results = fixture::heat_map();
        results.cells.iter_mut().for_each(|cell| cell.simulated_effect_pct = Some(0.0));
        let plot = heat_map(&Grid::of(&results.heat_maps[0], &results.cells).expect("gains"));
        assert!(!plot.contains("NaN") && plot.contains(">0.0</text>"), "{plot}");
    }
}
