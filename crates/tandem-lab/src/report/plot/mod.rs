//! Plots as inline SVG: scales and ticks in [`scale`], the drawing in [`svg`], one file for each kind of
//! plot.
//!
//! Colours come from the page's style sheet, so that a plot follows the reader's light or dark mode. A
//! variant has a colour and a shape of its own, so that either is enough to identify it.

mod dots;
mod heat_map;
mod lines;
pub(crate) mod scale;
mod scatter;
pub(crate) mod svg;

pub use dots::{dots, dotted};
pub use heat_map::heat_map;
pub use lines::{Quantity, is_logarithmic, lines};
pub use scatter::scatter;

use super::groups::distinct;
use crate::results::{Cell, ExperimentResults, Key};
use svg::{Shape, Svg};

/// Colours that the style sheet defines, as `s0`, `s1` and so on. Coprime with the number of shapes, so that
/// thirty-five variants differ in colour or in shape.
pub const COLOURS: usize = 7;

/// Shapes of the variants, in the order of their colours.
pub const SHAPES: [Shape; 5] =
    [Shape::Square, Shape::Triangle, Shape::Diamond, Shape::Circle, Shape::TriangleDown];

/// Colours and shapes of the variants of one experiment, the same in all its plots.
pub struct Legend<'a> {
    variants: Vec<&'a str>,
    baselines: Vec<&'a str>,
}

/// Colour and shape of one variant.
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
        if let Some(index) = self.baselines.iter().position(|baseline| *baseline == variant) {
            let shapes = [Shape::Circle, Shape::Square, Shape::Triangle, Shape::Diamond, Shape::TriangleDown];
            return Mark { colour: "base".to_owned(), shape: shapes[index % shapes.len()] };
        }
        let treatments = self.variants.iter().filter(|variant| !self.baselines.contains(variant));
        let index = treatments.take_while(|treatment| **treatment != variant).count();
        Mark { colour: format!("s{}", index % COLOURS), shape: SHAPES[index % SHAPES.len()] }
    }
}

/// The keys of a cell in words, such as `specjbb2005, vms 2`: a word explains itself, a number needs its
/// name.
pub fn cell_name(cell: &Cell) -> String {
    let keys = cell.cell.iter().map(|(name, key)| match key {
        Key::Text(word) => word.clone(),
        number => format!("{name} {number}"),
    });
    keys.collect::<Vec<_>>().join(", ")
}

/// `label` of an effect on an axis: with its sign.
fn with_sign(value: f64, label: String) -> String {
    if value > 0.0 { format!("+{label}") } else { label }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn every_variant_looks_different() {
        let rate_control = fixture::rate_control();
        let legend = Legend::of(&rate_control);
        assert_eq!(legend.entries(rate_control.cells.iter()).len(), 5);
        assert_eq!(legend.entries(rate_control.cells[..2].iter()).len(), 2);
        let marks: Vec<Mark> = legend.variants.iter().map(|variant| legend.mark(variant)).collect();
        assert_eq!(distinct(marks.iter()).len(), 5);
    }

    #[test]
    fn two_baselines_look_different() {
        let mut results = fixture::rate_control();
        results.cells.iter_mut().skip(100).for_each(|cell| cell.baseline = "src".into());
        let legend = Legend::of(&results);
        let [first, second] = ["credit", "src"].map(|variant| legend.mark(variant));
        assert_eq!((&*first.colour, &*second.colour), ("base", "base"));
        assert_ne!(first.shape, second.shape);
    }
}
