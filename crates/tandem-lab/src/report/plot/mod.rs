//! Plots as inline SVG: scales and ticks here, the drawing in [`svg`], one file for each kind of plot.
//!
//! Colours come from the page's style sheet, so that a plot follows the reader's light or dark mode. A variant has a
//! colour and a shape of its own, so that neither is needed to tell it from the others.

mod dots;
mod lines;
mod scatter;
mod svg;

pub use dots::dots;
pub use lines::{Quantity, lines, sweep_key};
pub use scatter::scatter;

use super::groups::distinct;
use crate::results::{Cell, ExperimentResults, Key};
use svg::{Shape, Svg};

/// Colours that the style sheet defines, as `s0`, `s1` and so on. Coprime with the number of shapes, so that
/// thirty variants differ in colour or in shape.
const COLOURS: usize = 6;

/// No axis goes further: beyond, the span of two values might not be a number.
const LARGEST: f64 = 1e150;

/// How the variants of one experiment are drawn, in every plot of it.
pub struct Legend<'a> {
    variants: Vec<&'a str>,
    baselines: Vec<&'a str>,
}

/// How one variant is drawn.
#[derive(Clone, Debug, PartialEq)]
struct Mark {
    colour: String,
    shape: Shape,
}

impl<'a> Legend<'a> {
    pub fn of(experiment: &'a ExperimentResults) -> Self {
        let baselines = distinct(experiment.cells.iter().map(|cell| cell.baseline.as_str()));
        let variants = distinct(experiment.cells.iter().map(|cell| cell.variant.as_str()));
        Self { variants, baselines }
    }

    /// Name and swatch of the variants of `cells`.
    pub fn entries<'c>(&self, cells: impl Iterator<Item = &'c Cell>) -> Vec<(&'a str, String)> {
        let shown = distinct(cells.map(|cell| cell.variant.as_str()));
        let variants = self.variants.iter().filter(|variant| shown.contains(variant));
        variants.map(|variant| (*variant, self.swatch(variant))).collect()
    }

    fn swatch(&self, variant: &str) -> String {
        let mark = self.mark(variant);
        let mut svg = Svg::new(16.0, 16.0, variant);
        svg.marker(mark.shape, (8.0, 8.0), 5.0, &format!("mark {}", mark.colour), None);
        svg.finish()
    }

    fn mark(&self, variant: &str) -> Mark {
        if self.baselines.contains(&variant) {
            return Mark { colour: "base".to_owned(), shape: Shape::Circle };
        }
        let treatments = self.variants.iter().filter(|variant| !self.baselines.contains(variant));
        let index = treatments.take_while(|treatment| **treatment != variant).count();
        let shapes = [Shape::Square, Shape::Triangle, Shape::Diamond, Shape::Circle, Shape::TriangleDown];
        Mark { colour: format!("s{}", index % COLOURS), shape: shapes[index % shapes.len()] }
    }
}

/// The keys of a cell in words, such as `specjbb2005, vms 2`: a word explains itself, a number needs its name.
fn cell_name(cell: &Cell) -> String {
    let keys = cell.cell.iter().map(|(name, key)| match key {
        Key::Text(word) => word.clone(),
        Key::Number(number) => format!("{name} {number}"),
    });
    keys.collect::<Vec<_>>().join(", ")
}

/// A linear map from values to places in the drawing.
#[derive(Clone, Copy)]
struct Scale {
    values: (f64, f64),
    places: (f64, f64),
}

impl Scale {
    fn place(&self, value: f64) -> f64 {
        let share = (value - self.values.0) / (self.values.1 - self.values.0);
        self.places.0 + share * (self.places.1 - self.places.0)
    }
}

/// The smallest range of whole steps around `values`, with about `count` steps of 1, 2 or 5 times a power of ten.
/// Values that cannot be drawn are left out; without any the range is that of zero.
fn ticks(values: impl IntoIterator<Item = f64>, count: usize) -> Ticks {
    let drawable = values.into_iter().filter(|value| value.abs() < LARGEST);
    let range = drawable.fold(None, |range: Option<(f64, f64)>, value| {
        let (low, high) = range.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    });
    let (low, high) = range.unwrap_or((0.0, 0.0));
    let span = (high - low).max(low.abs().max(high.abs()) * 1e-6);
    let span = if span > 0.0 { span } else { 1.0 };
    let rough = span / count as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * power);
    Ticks { first: (low / step).floor(), last: (high / step).ceil().max((low / step).floor() + 1.0), step }
}

/// Round numbers along an axis.
#[derive(Debug, PartialEq)]
struct Ticks {
    /// First and last in steps.
    first: f64,
    last: f64,
    step: f64,
}

impl Ticks {
    /// First and last tick.
    fn range(&self) -> (f64, f64) {
        (self.first * self.step, self.last * self.step)
    }

    /// Every tick with its label.
    fn labelled(&self) -> impl Iterator<Item = (f64, String)> {
        let largest = self.range().0.abs().max(self.range().1.abs());
        let (unit, letter) = match largest {
            _ if largest >= 1e6 => (1e6, "M"),
            _ if largest >= 1e4 => (1e3, "k"),
            _ => (1.0, ""),
        };
        let decimals = (-(self.step / unit).log10().floor()).clamp(0.0, 9.0) as usize;
        let count = (self.last - self.first) as usize;
        (0..=count).map(move |index| {
            let value = (self.first + index as f64) * self.step;
            let text = format!("{:.decimals$}", value.abs() / unit);
            let text = match value {
                0.0 => "0".to_owned(),
                value if value < 0.0 => format!("−{text}{letter}"),
                _ => text + letter,
            };
            (value, text)
        })
    }
}

/// `label` of an effect on an axis: with its sign.
fn with_sign(value: f64, label: String) -> String {
    if value > 0.0 { format!("+{label}") } else { label }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    fn labels(values: &[f64], count: usize) -> Vec<String> {
        ticks(values.iter().copied(), count).labelled().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        assert_eq!(labels(&[-3.1, 18.3], 5), ["−5", "0", "5", "10", "15", "20"]);
        assert_eq!(labels(&[0.0, 0.9], 5), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&[0.0, 15_000.0], 3), ["0", "5k", "10k", "15k"]);
        assert_eq!(labels(&[0.0, 2.4e6], 3), ["0", "1M", "2M", "3M"]);
        assert_eq!(labels(&[0.0, 1.2e4], 6), ["0", "2k", "4k", "6k", "8k", "10k", "12k"]);
        assert_eq!(labels(&[10.0, 100.0], 5), ["0", "20", "40", "60", "80", "100"]);
    }

    #[test]
    fn odd_values_have_ticks_too() {
        for values in [
            &[][..],
            &[0.0],
            &[5.0],
            &[f64::NAN],
            &[1.0, f64::INFINITY],
            &[-1e300, 1e300],
            &[f64::MIN, f64::MAX],
        ] {
            let ticks = ticks(values.iter().copied(), 5);
            let count = ticks.labelled().count();
            assert!((2..20).contains(&count), "{values:?}: {ticks:?}");
            let (low, high) = ticks.range();
            assert!(low < high, "{values:?}: {ticks:?}");
        }
    }

    #[test]
    fn a_scale_maps_ends_to_ends() {
        let scale = Scale { values: (-5.0, 15.0), places: (100.0, 0.0) };
        assert_eq!([-5.0, 5.0, 15.0].map(|value| scale.place(value)), [100.0, 50.0, 0.0]);
    }

    #[test]
    fn every_variant_looks_different() {
        let rate_control = fixture::rate_control();
        let legend = Legend::of(&rate_control);
        assert_eq!(legend.entries(rate_control.cells.iter()).len(), 5);
        assert_eq!(legend.entries(rate_control.cells[..2].iter()).len(), 2);
        let marks: Vec<Mark> = legend.variants.iter().map(|variant| legend.mark(variant)).collect();
        assert_eq!(distinct(marks.iter()).len(), 5);
    }
}
