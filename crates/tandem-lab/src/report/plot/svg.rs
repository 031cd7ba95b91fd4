//! Just enough SVG: lines, rectangles, polygons, text and markers, all styled by class.

use askama::filters::{Html, escape};
use std::fmt::{Display, Write};

/// Shape of a marker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Shape {
    Circle,
    Square,
    Triangle,
    TriangleDown,
    Diamond,
}

/// Position of a text relative to its point.
#[derive(Clone, Copy)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A drawing. It has no size of its own: the page scales it to the available width.
pub struct Svg {
    text: String,
}

impl Svg {
    /// An empty drawing; `label` says what it shows to those who cannot see it.
    pub fn new(width: f64, height: f64, label: &str) -> Self {
        let label = escaped(label);
        let text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
             aria-label=\"{label}\">"
        );
        Self { text }
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), class: &str) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }

    /// A rectangle between two opposite corners.
    pub fn rect(&mut self, corner: (f64, f64), opposite: (f64, f64), class: &str) {
        let (x, y) = (corner.0.min(opposite.0), corner.1.min(opposite.1));
        let (width, height) = ((corner.0 - opposite.0).abs(), (corner.1 - opposite.1).abs());
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\"/>"
        ));
    }

    /// A rectangle with an opacity from 0 to 1; `tooltip` shows when the pointer is over it.
    pub fn shaded_rect(
        &mut self,
        (x, y): (f64, f64),
        (right, bottom): (f64, f64),
        class: &str,
        opacity: f64,
        tooltip: Option<&str>,
    ) {
        let (width, height) = (right - x, bottom - y);
        let title = tooltip.map(|tooltip| format!("<title>{}</title>", escaped(tooltip))).unwrap_or_default();
        self.add(format_args!(
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" class=\"{class}\" \
             fill-opacity=\"{opacity:.2}\">{title}</rect>"
        ));
    }

    /// A closed shape.
    pub fn polygon(&mut self, points: &[(f64, f64)], class: &str) {
        self.add(format_args!("<polygon points=\"{}\" class=\"{class}\"/>", coordinates(points)));
    }

    /// A line through points.
    pub fn polyline(&mut self, points: &[(f64, f64)], class: &str) {
        self.add(format_args!("<polyline points=\"{}\" class=\"{class}\"/>", coordinates(points)));
    }

    /// A line of text with its baseline at the point.
    pub fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.add(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    /// A line of text that reads upwards, centred at the point.
    pub fn text_upwards(&mut self, (x, y): (f64, f64), class: &str, text: &str) {
        let text = escaped(text);
        self.add(format_args!(
            "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"middle\" class=\"{class}\">{text}</text>"
        ));
    }

    /// A marker; `tooltip` shows when the pointer is over it.
    pub fn marker(
        &mut self,
        shape: Shape,
        (x, y): (f64, f64),
        size: f64,
        class: &str,
        tooltip: Option<&str>,
    ) {
        let title = tooltip.map(|tooltip| format!("<title>{}</title>", escaped(tooltip))).unwrap_or_default();
        // Corners are further out than a circle's edge, so that all shapes appear equally large.
        let corner = size * 1.25;
        let corners = match shape {
            Shape::Circle => {
                return self.add(format_args!(
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{size:.1}\" class=\"{class}\">{title}</circle>"
                ));
            }
            Shape::Square => {
                let half = size * 0.9;
                vec![(x - half, y - half), (x + half, y - half), (x + half, y + half), (x - half, y + half)]
            }
            Shape::Triangle => {
                vec![(x, y - corner), (x + corner, y + size * 0.9), (x - corner, y + size * 0.9)]
            }
            Shape::TriangleDown => {
                vec![(x, y + corner), (x + corner, y - size * 0.9), (x - corner, y - size * 0.9)]
            }
            Shape::Diamond => vec![(x, y - corner), (x + corner, y), (x, y + corner), (x - corner, y)],
        };
        let points = coordinates(&corners);
        self.add(format_args!("<polygon points=\"{points}\" class=\"{class}\">{title}</polygon>"));
    }

    /// The drawing as text.
    pub fn finish(self) -> String {
        self.text + "</svg>"
    }

    fn add(&mut self, element: std::fmt::Arguments) {
        self.text.write_fmt(element).expect("a string takes everything");
    }
}

fn coordinates(points: &[(f64, f64)]) -> String {
    points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
}

fn escaped(text: &str) -> impl Display {
    // The filter's error type has no values: it cannot fail.
    escape(text, Html).unwrap_or_else(|never| match never {})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_tooltips_are_escaped() {
        let mut svg = Svg::new(10.0, 10.0, "a \"<b>\"");
        svg.text((1.0, 2.0), Anchor::Start, "note", "<script>");
        svg.marker(Shape::Circle, (1.0, 2.0), 3.0, "mark", Some("x < y & z"));
        let text = svg.finish();
        let document =
            text.replace("<svg", "").replace("<text", "").replace("<circle", "").replace("<title>", "");
        assert!(!document.replace("</", "").contains('<'), "{text}");
        assert!(!text.contains("& "), "{text}");
    }

    #[test]
    fn a_rectangle_may_be_given_by_any_corners() {
        let mut svg = Svg::new(10.0, 10.0, "");
        svg.rect((5.0, 6.0), (1.0, 2.0), "plot");
        assert!(svg.finish().contains("<rect x=\"1.0\" y=\"2.0\" width=\"4.0\" height=\"4.0\""));
    }
}
