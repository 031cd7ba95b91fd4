//! A metric against a load: a small plot with a line a variant, for results that a source gives in words
//! only.

use super::{
    Legend,
    scale::{Scale, Spacing, doubling_ticks, logarithmic_ticks, ticks},
    svg::Anchor,
    svg::Svg,
    with_sign,
};
use crate::report::{
    groups::{Group, distinct, number_of},
    outcome,
};
use crate::results::Cell;

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// Largest over smallest value from which a plot of values is logarithmic.
const WIDE_RANGE: f64 = 30.0;

/// The quantity that a plot shows of each cell.
#[derive(Clone, Copy, PartialEq)]
pub enum Quantity {
    /// The value of the metric.
    Value,
    /// The effect, in percent, with its interval.
    Effect,
}

/// One cell in the plot.
struct Point<'a> {
    cell: &'a Cell,
    load: f64,
    simulated: f64,
    published: Option<f64>,
    interval: Option<(f64, f64)>,
}

/// Whether the values of the cells span orders of magnitude, so that only a logarithmic scale shows all of
/// them.
pub fn is_logarithmic(cells: &[&Cell]) -> bool {
    let values = || cells.iter().flat_map(|cell| [Some(cell.simulated), cell.published]).flatten();
    let (low, high) = values()
        .filter(|value| value.is_finite())
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    low > 0.0 && high >= WIDE_RANGE * low
}

/// The plot of `cells`, which are of the group and share all keys but `key`; `None` if none of them has the
/// quantity.
pub fn lines(
    group: &Group,
    cells: &[&Cell],
    key: &str,
    quantity: Quantity,
    title: &str,
    legend: &Legend,
) -> Option<String> {
    let points: Vec<Point> = cells.iter().filter_map(|cell| Point::of(cell, key, quantity)).collect();
    if points.is_empty() {
        return None;
    }
    let loads = || points.iter().map(|point| point.load);
    let (x_ticks, x_spacing) = match doubling_ticks(loads()) {
        Some(ticks) => (ticks, Spacing::Logarithmic),
        None => (ticks(loads(), 5).labelled().collect(), Spacing::Linear),
    };
    let x_ends = (x_ticks.first()?.0, x_ticks.last()?.0);
    let x = Scale { values: x_ends, places: (LEFT, WIDTH - RIGHT), spacing: x_spacing };
    let heights = points.iter().flat_map(Point::heights);
    let (y_ticks, spacing) = if quantity == Quantity::Value && is_logarithmic(cells) {
        (logarithmic_ticks(heights), Spacing::Logarithmic)
    } else {
        (ticks(heights.chain([0.0]), 4).labelled().collect(), Spacing::Linear)
    };
    let ends = (y_ticks.first()?.0, y_ticks.last()?.0);
    let y = Scale { values: ends, places: (HEIGHT - BOTTOM, TOP), spacing };

    let mut svg = Svg::new(WIDTH, HEIGHT, title);
    for (value, label) in y_ticks {
        let is_base = value == 0.0 || (spacing == Spacing::Logarithmic && value == ends.0);
        let class = if is_base { "zero" } else { "grid" };
        let label = if quantity == Quantity::Effect { with_sign(value, label) } else { label };
        svg.line((LEFT, y.place(value)), (WIDTH - RIGHT, y.place(value)), class);
        svg.text((LEFT - 7.0, y.place(value) + 4.0), Anchor::End, "tick", &label);
    }
    for (value, label) in x_ticks {
        let place = x.place(value);
        svg.line((place, HEIGHT - BOTTOM), (place, HEIGHT - BOTTOM + 4.0), "zero");
        svg.text((place, HEIGHT - BOTTOM + 18.0), Anchor::Middle, "tick", &label);
    }
    svg.text(((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 6.0), Anchor::Middle, "axis", key);

    // The baseline is drawn last, over the line of a variant that has no effect.
    let mut variants = distinct(points.iter().map(|point| point.cell.variant.as_str()));
    variants.sort_by_key(|variant| points.iter().any(|point| point.cell.baseline == *variant));
    for variant in variants {
        let mut of_variant: Vec<&Point> =
            points.iter().filter(|point| point.cell.variant == variant).collect();
        of_variant.sort_by(|a, b| a.load.total_cmp(&b.load));
        let mark = legend.mark(variant);
        let places: Vec<_> =
            of_variant.iter().map(|point| (x.place(point.load), y.place(point.simulated))).collect();
        svg.polyline(&places, &format!("curve {}", mark.colour));
        for (point, place) in of_variant.into_iter().zip(places) {
            if let Some((low, high)) = point.interval {
                svg.line(
                    (place.0, y.place(low)),
                    (place.0, y.place(high)),
                    &format!("error {}", mark.colour),
                );
            }
            svg.marker(
                mark.shape,
                place,
                3.0,
                &format!("mark {}", mark.colour),
                Some(&point.tooltip(group, key)),
            );
        }
    }
    for point in &points {
        if let Some(published) = point.published {
            let mark = legend.mark(&point.cell.variant);
            let place = (x.place(point.load), y.place(published));
            svg.marker(
                mark.shape,
                place,
                5.5,
                &format!("hollow {}", mark.colour),
                Some(&point.tooltip(group, key)),
            );
        }
    }
    Some(svg.finish())
}

impl<'a> Point<'a> {
    fn of(cell: &'a Cell, key: &str, quantity: Quantity) -> Option<Self> {
        let load = number_of(cell, key)? as f64;
        let (simulated, published, interval) = match quantity {
            Quantity::Value => (cell.simulated, cell.published, None),
            Quantity::Effect => {
                (cell.simulated_effect_pct?, cell.published_effect_pct, outcome::interval(cell))
            }
        };
        let published = published.filter(|published| published.is_finite());
        simulated.is_finite().then_some(Self { cell, load, simulated, published, interval })
    }

    /// All positions of the point on the vertical axis: the value and both ends of the interval.
    fn heights(&self) -> impl Iterator<Item = f64> + use<> {
        let (low, high) = self.interval.unzip();
        [Some(self.simulated), self.published, low, high].into_iter().flatten()
    }

    fn tooltip(&self, group: &Group, key: &str) -> String {
        let row = group.row(self.cell);
        let mut text =
            format!("{}, {key} {}: {} {}", self.cell.variant, self.load, row.simulated, self.cell.unit);
        for (before, number) in [
            ("", row.simulated_effect),
            ("", row.interval),
            ("published ", row.published),
            ("published ", row.published_effect),
        ] {
            if !number.is_empty() {
                text += &format!(", {before}{number}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{fixture, groups::groups};

    #[test]
    fn a_line_a_variant_and_a_point_a_cell() {
        let rate = fixture::rate_control();
        let groups = groups(&rate.cells);
        let plot = |index: usize, quantity| {
            let group = &groups[index];
            lines(group, &group.cells, "load_pct", quantity, "a title", &Legend::of(&rate)).expect("points")
        };
        let schedules = plot(1, Quantity::Value);
        assert_eq!(schedules.matches("<polyline").count(), 5);
        assert_eq!(schedules.matches("<title>").count(), 50 + 1, "50 simulated, 1 published");
        let throughput = plot(0, Quantity::Effect);
        assert_eq!(throughput.matches("<polyline").count(), 4);
        assert_eq!(throughput.matches("<title>").count(), 40 + 2, "40 simulated, 2 published");
        assert_eq!(throughput.matches("class=\"error").count(), 40);
    }

    #[test]
    fn cells_without_finite_numbers_are_no_plot() {
        let odd = fixture::odd();
        let infinite = [&odd.cells[1], &odd.cells[2]];
        let group = &groups(&odd.cells)[0];
        assert!(lines(group, &infinite, "vms", Quantity::Value, "", &Legend::of(&odd)).is_none());
    }

    #[test]
    fn values_that_span_orders_of_magnitude_need_a_logarithmic_scale() {
        let with = |value: f64| Cell { simulated: value, published: None, ..fixture::effect(0.0, 0.0, 1.0) };
        for (values, expected) in [
            ([1.0, 29.0], false),
            ([1.0, 31.0], true),
            ([0.0, 31.0], false),
            ([-1.0, 31.0], false),
            ([1.0, f64::INFINITY], false),
        ] {
            let cells = values.map(with);
            assert_eq!(is_logarithmic(&cells.iter().collect::<Vec<_>>()), expected, "{values:?}");
        }
    }
}
