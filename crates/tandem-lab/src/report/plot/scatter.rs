//! Published against simulated effects: a perfect prediction lies on the diagonal.

use super::{Legend, cell_name, scale::Scale, scale::Ticks, scale::ticks, svg::Anchor, svg::Svg, with_sign};
use crate::{
    report::{CLOSE_POINTS, Outcome, number, outcome},
    results::ExperimentResults,
};

const SIZE: f64 = 440.0;
const LEFT: f64 = 60.0;
const BOTTOM: f64 = 52.0;
const MARGIN: f64 = 12.0;
const MARKER: f64 = 4.5;

/// The plot, or `None` if there is no effect to compare.
pub fn scatter(experiment: &ExperimentResults, legend: &Legend) -> Option<String> {
    let effects = || experiment.cells.iter().filter_map(|cell| Some((cell, outcome::effects(cell)?)));
    effects().next()?;

    // Both axes share one range, so that equal effects lie on the diagonal.
    let ends = effects().flat_map(|(cell, (published, simulated))| {
        let (low, high) = outcome::interval(cell).unwrap_or((simulated, simulated));
        let (least, most) = cell.open_range_pct().unwrap_or((simulated, simulated));
        [published, simulated, low, high, least, most]
    });
    let ticks = ticks(ends.chain([-CLOSE_POINTS, CLOSE_POINTS]), 6);
    let range = ticks.range();
    let x = Scale::linear(range, (LEFT, SIZE - MARGIN));
    let y = Scale::linear(range, (SIZE - BOTTOM, MARGIN));
    let at = |published: f64, simulated: f64| (x.place(published), y.place(simulated));

    let mut svg = Svg::new(SIZE, SIZE, &format!("Published and simulated effects of {}", experiment.name));
    draw_frame(&mut svg, &ticks, x, y);

    let mut labels = Labels { taken: Vec::new(), within: (LEFT, MARGIN, SIZE - MARGIN, SIZE - BOTTOM) };
    for (cell, (published, simulated)) in effects() {
        let (low, high) = outcome::interval(cell).unwrap_or((simulated, simulated));
        let (least, most) = cell.open_range_pct().unwrap_or((simulated, simulated));
        let (top, bottom) = (high.max(most).max(simulated), low.min(least).min(simulated));
        labels.keep_free(x.place(published), y.place(top), y.place(bottom));
        let colour = &legend.mark(&cell.variant).colour;
        if least < most {
            svg.line(at(published, least), at(published, most), &format!("range {colour}"));
        }
        let class = format!("error {colour}");
        svg.line(at(published, low), at(published, high), &class);
    }
    for (cell, (published, simulated)) in effects() {
        let mark = legend.mark(&cell.variant);
        let interval = outcome::interval(cell).map(number::interval).unwrap_or_default();
        let range = cell.open_range_pct().map(number::interval);
        let range = range.map(|range| format!(", range {range}")).unwrap_or_default();
        let tooltip = format!(
            "{}, {}, {}: published {}, simulated {} {interval}{range}",
            cell_name(cell),
            cell.metric,
            cell.variant,
            number::effect(published),
            number::effect(simulated),
        );
        let class = format!("mark {}", mark.colour);
        svg.marker(mark.shape, at(published, simulated), MARKER, &class, Some(&tooltip));
        if Outcome::of(cell).is_some_and(|outcome| outcome != Outcome::Close) {
            labels.write(&mut svg, at(published, simulated), &cell_name(cell));
        }
    }
    Some(svg.finish())
}

/// Axes, diagonal, band and the quarters of the wrong sign.
fn draw_frame(svg: &mut Svg, ticks: &Ticks, x: Scale, y: Scale) {
    let (low, high) = ticks.range();
    let at = |published: f64, simulated: f64| (x.place(published), y.place(simulated));
    svg.rect(at(low, low), at(high, high), "plot");
    svg.rect(at(low, 0.0), at(0.0, high), "wrong");
    svg.rect(at(0.0, low), at(high, 0.0), "wrong");
    let close = CLOSE_POINTS;
    let band = [
        (low, low),
        (low, low + close),
        (high - close, high),
        (high, high),
        (high, high - close),
        (low + close, low),
    ];
    svg.polygon(&band.map(|(published, simulated)| at(published, simulated)), "band");
    for (value, label) in ticks.labelled() {
        let class = if value == 0.0 { "zero" } else { "grid" };
        svg.line(at(value, low), at(value, high), class);
        svg.line(at(low, value), at(high, value), class);
        let label = with_sign(value, label);
        svg.text((x.place(value), SIZE - BOTTOM + 18.0), Anchor::Middle, "tick", &label);
        svg.text((LEFT - 8.0, y.place(value) + 4.0), Anchor::End, "tick", &label);
    }
    svg.line(at(low, low), at(high, high), "diagonal");
    svg.text((x.place((low + high) / 2.0), SIZE - 10.0), Anchor::Middle, "axis", "published effect, %");
    svg.text_upwards((14.0, y.place((low + high) / 2.0)), "axis", "simulated effect, %");
}

/// Puts labels where they cover neither a point nor each other.
struct Labels {
    taken: Vec<Area>,
    within: Area,
}

/// Left, top, right, bottom.
type Area = (f64, f64, f64, f64);

impl Labels {
    /// Keeps the marker at `x` free, and its bar from `top` to `bottom`.
    fn keep_free(&mut self, x: f64, top: f64, bottom: f64) {
        let reach = MARKER + 1.5;
        self.taken.push((x - reach, top - reach, x + reach, bottom + reach));
    }

    /// Writes `text` beside a point if there is room; the point's tooltip has it anyway.
    fn write(&mut self, svg: &mut Svg, (x, y): (f64, f64), text: &str) {
        const LETTER: f64 = 6.9;
        const GAP: f64 = 9.0;
        let width = text.chars().count() as f64 * LETTER;
        let places = [
            (Anchor::Start, x + GAP, y + 4.0),
            (Anchor::End, x - GAP, y + 4.0),
            (Anchor::Start, x + GAP, y - GAP),
            (Anchor::Start, x + GAP, y + GAP + 9.0),
            (Anchor::End, x - GAP, y - GAP),
            (Anchor::End, x - GAP, y + GAP + 9.0),
        ];
        for (anchor, x, y) in places {
            let left = match anchor {
                Anchor::Start => x,
                Anchor::Middle => x - width / 2.0,
                Anchor::End => x - width,
            };
            let area = (left, y - 10.0, left + width, y + 3.0);
            let is_inside = area.0 >= self.within.0
                && area.1 >= self.within.1
                && area.2 <= self.within.2
                && area.3 <= self.within.3;
            if is_inside && !self.taken.iter().any(|other| overlap(*other, area)) {
                svg.text((x, y), anchor, "note", text);
                self.taken.push(area);
                return;
            }
        }
    }
}

fn overlap(a: Area, b: Area) -> bool {
    a.0 < b.2 && b.0 < a.2 && a.1 < b.3 && b.1 < a.3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn every_effect_is_a_point() {
        let numa = fixture::numa_affinity();
        let plot = scatter(&numa, &Legend::of(&numa)).expect("effects");
        assert_eq!(plot.matches("<title>").count(), 18);
        assert_eq!(plot.matches("class=\"error").count(), 18);
    }

    #[test]
    fn labels_do_not_overlap() {
        let mut labels = Labels { taken: Vec::new(), within: (0.0, 0.0, 400.0, 400.0) };
        let mut svg = Svg::new(400.0, 400.0, "");
        for _ in 0..9 {
            labels.write(&mut svg, (200.0, 200.0), "the same place");
        }
        for (index, area) in labels.taken.iter().enumerate() {
            assert!(!labels.taken[..index].iter().any(|other| overlap(*other, *area)));
        }
        assert_eq!(labels.taken.len(), 6);
    }

    #[test]
    fn nothing_to_compare_is_no_plot() {
        let empty = fixture::empty();
        assert!(scatter(&empty, &Legend::of(&empty)).is_none());
    }
}
