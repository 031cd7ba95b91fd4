//! A metric against a load: a small plot with a line a variant, for what a source tells in words only.

use super::{Legend, Scale, svg::Anchor, svg::Svg, ticks};
use crate::report::{
    groups::{Group, distinct, numbers},
    number, outcome,
};
use crate::results::Cell;

const WIDTH: f64 = 340.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 44.0;

/// The key that a sweep of `group` runs along: the number with the most values, if they are at least three.
/// `None` too for a group whose every number is published: the other plots show it better.
pub fn sweep_key<'a>(group: &Group<'a>) -> Option<&'a str> {
    let is_published = |cell: &&Cell| cell.published.is_some() || cell.published_effect_pct.is_some();
    if group.cells.iter().all(is_published) {
        return None;
    }
    let values = |key: &str| distinct(group.cells.iter().filter_map(|cell| number_of(cell, key))).len();
    // The first of several equals, so that the choice does not hang on chance.
    let key = group
        .number_keys
        .iter()
        .copied()
        .rev()
        .max_by_key(|key| values(key))?;
    (values(key) >= 3).then_some(key)
}

/// The plot of `cells`, which share all keys but `key`.
pub fn lines(cells: &[&Cell], key: &str, title: &str, legend: &Legend) -> String {
    let points: Vec<(&Cell, f64)> = cells
        .iter()
        .filter_map(|cell| Some((*cell, number_of(cell, key)? as f64)))
        .filter(|(cell, _)| cell.simulated.is_finite())
        .collect();
    let x_ticks = ticks(points.iter().map(|(_, load)| *load), 5);
    let y_ticks = ticks(
        points
            .iter()
            .flat_map(|(cell, _)| [Some(cell.simulated), cell.published])
            .flatten()
            .chain([0.0]),
        4,
    );
    let x = Scale {
        values: x_ticks.range(),
        places: (LEFT, WIDTH - RIGHT),
    };
    let y = Scale {
        values: y_ticks.range(),
        places: (HEIGHT - BOTTOM, TOP),
    };

    let mut svg = Svg::new(WIDTH, HEIGHT, title);
    for (value, label) in y_ticks.labelled() {
        let class = if value == 0.0 { "zero" } else { "grid" };
        svg.line((LEFT, y.place(value)), (WIDTH - RIGHT, y.place(value)), class);
        svg.text((LEFT - 7.0, y.place(value) + 4.0), Anchor::End, "tick", &label);
    }
    for (value, label) in x_ticks.labelled() {
        let place = x.place(value);
        svg.line((place, HEIGHT - BOTTOM), (place, HEIGHT - BOTTOM + 4.0), "zero");
        svg.text((place, HEIGHT - BOTTOM + 18.0), Anchor::Middle, "tick", &label);
    }
    svg.text(
        ((LEFT + WIDTH - RIGHT) / 2.0, HEIGHT - 6.0),
        Anchor::Middle,
        "axis",
        key,
    );

    // The baseline is drawn last: where a variant does nothing, its line lies below.
    let mut variants = distinct(points.iter().map(|(cell, _)| cell.variant.as_str()));
    variants.sort_by_key(|variant| points.iter().any(|(cell, _)| cell.baseline == *variant));
    for variant in variants {
        let mark = legend.mark(variant);
        let mut of_variant: Vec<_> = points
            .iter()
            .filter(|(cell, _)| cell.variant == variant)
            .collect();
        of_variant.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let places: Vec<_> = of_variant
            .iter()
            .map(|(cell, load)| (x.place(*load), y.place(cell.simulated)))
            .collect();
        svg.polyline(&places, &format!("curve {}", mark.colour));
        for ((cell, load), place) in of_variant.into_iter().zip(places) {
            svg.marker(
                mark.shape,
                place,
                3.0,
                &format!("mark {}", mark.colour),
                Some(&tooltip(cell, key, *load)),
            );
        }
    }
    for (cell, load) in &points {
        if let Some(published) = cell.published.filter(|published| published.is_finite()) {
            let mark = legend.mark(&cell.variant);
            let text = format!(
                "{}, {key} {load}: published {}",
                cell.variant,
                number::value(published)
            );
            let place = (x.place(*load), y.place(published));
            svg.marker(
                mark.shape,
                place,
                5.5,
                &format!("hollow {}", mark.colour),
                Some(&text),
            );
        }
    }
    svg.finish()
}

fn tooltip(cell: &Cell, key: &str, load: f64) -> String {
    let effect = match (cell.simulated_effect_pct, outcome::interval(cell)) {
        (Some(pct), Some(interval)) => format!(", {} {}", number::effect(pct), number::interval(interval)),
        (Some(pct), None) => format!(", {}", number::effect(pct)),
        (None, _) => String::new(),
    };
    format!(
        "{}, {key} {load}: {} {}{effect}",
        cell.variant,
        number::value(cell.simulated),
        cell.unit
    )
}

fn number_of(cell: &Cell, key: &str) -> Option<i64> {
    numbers(cell)
        .find(|(name, _)| *name == key)
        .map(|(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{fixture, groups::groups};

    #[test]
    fn a_sweep_needs_three_loads_and_something_unpublished() {
        let (numa, rate) = (fixture::numa_affinity(), fixture::rate_control());
        assert!(groups(&numa.cells).iter().all(|group| sweep_key(group).is_none()));
        assert!(
            groups(&rate.cells)
                .iter()
                .all(|group| sweep_key(group) == Some("load_pct"))
        );
        let two_loads = &rate.cells[..10];
        assert_eq!(sweep_key(&groups(two_loads)[0]), None);
    }

    #[test]
    fn a_line_a_variant_and_a_point_a_cell() {
        let rate = fixture::rate_control();
        let group = &groups(&rate.cells)[1];
        let plot = lines(&group.cells, "load_pct", "schedules", &Legend::of(&rate));
        assert_eq!(plot.matches("<polyline").count(), 5);
        assert_eq!(
            plot.matches("<title>").count(),
            50 + 1,
            "50 simulated, 1 published"
        );
    }
}
