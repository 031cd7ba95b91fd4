//! The figures of the kernel's own scheduler that miss their targets.
//!
//! Each has a bound of its own, in the figure's unit, which notices a change for the worse: its difference and
//! the interval of that, the larger if there were several boots, rounded up. One that has come to meet its target has to leave
//! the list. The book's chapter on agreement says what is known of the causes.

use super::figures::{Figure, Source};

/// Release of the kernel, program, figure, and the largest difference that is accepted.
pub const ALL: &[(&str, &str, &str, f64)] = &[
    ("7.3", "sleepers", "99th pct of waits, us", 224.0),
    ("7.3", "pool", "switches", 34.0),
    ("7.3", "pool", "migrations", 381.0),
    ("7.3", "pool", "share of hogs-0, %", 10.0),
    ("7.3", "pool", "median wait, us", 75.0),
    ("7.3", "fork-join", "switches", 14.0),
    ("7.3", "fork-join", "99th pct of waits, us", 43.0),
    ("7.3", "server", "99th pct of waits, us", 132.0),
];

/// The bound of a figure that misses its target; none if it is not listed.
pub fn bound(of: &Source, figure: &Figure) -> Option<f64> {
    let name = figure.to_string();
    let is_it = |(kernel, program, figure, _): &&(&str, &str, &str, f64)| {
        of.kernel.starts_with(kernel) && of.program == *program && name == *figure
    };
    ALL.iter().find(is_it).map(|(.., bound)| *bound)
}
