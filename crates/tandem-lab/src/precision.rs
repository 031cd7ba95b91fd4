//! What became of a precision that was asked for, of a comparison and of an experiment.
//!
//! How many seeds it takes follows once, from the first ones: see [`statistics`](crate::statistics). Which intervals it
//! is asked of is said where they are made.

use serde::Serialize;
use std::fmt;

/// A precision, and whether it is reached; `W` says which interval is the widest.
#[derive(Clone, Debug, Serialize)]
pub struct Precision<W> {
    /// Half the width of an interval that is narrow enough, in percent of the baseline.
    pub asked_pct: f64,
    /// Seeds from which the number of all followed.
    pub first_stage: usize,
    /// How many make all intervals narrow enough; `None` if more than can be counted.
    pub wanted: Option<usize>,
    /// Measures that a precision is asked of and that have no interval, as a run has none of them.
    pub lacking: usize,
    /// Whether all intervals that a precision is asked of are there, and that narrow.
    pub is_reached: bool,
    /// The widest of these intervals.
    pub widest: Option<W>,
}

/// An interval that a precision is asked of; it prints what it is of.
pub trait Interval: fmt::Display {
    /// Half its width, in percent of the baseline.
    fn half_width_pct(&self) -> f64;
}

/// The widest of these.
pub(crate) fn widest<W: Interval>(intervals: impl Iterator<Item = W>) -> Option<W> {
    intervals.max_by(|one, other| one.half_width_pct().total_cmp(&other.half_width_pct()))
}

impl<W: Interval> Precision<W> {
    /// What became of it, in words, and, if it is not reached, which interval is the widest.
    pub fn in_words(&self) -> (String, Option<String>) {
        let asked_pct = self.asked_pct;
        if self.is_reached {
            return (format!("{asked_pct}% of the baseline, either way: reached"), None);
        }
        let widest = self
            .widest
            .as_ref()
            .map(|widest| format!("the widest is {:.1}%, of {widest}", widest.half_width_pct()));
        if self.lacking > 0 {
            let words = format!(
                "{asked_pct}% of the baseline, either way: NOT reached, as a run has none of {} of the measures",
                self.lacking
            );
            return (words, widest);
        }
        let wanted =
            self.wanted.map_or("more seeds than can be run".into(), |wanted| format!("{wanted} seeds"));
        (format!("{asked_pct}% of the baseline, either way: NOT reached, which takes {wanted}"), widest)
    }
}

/// What became of it, in words on one line.
impl<W: Interval> fmt::Display for Precision<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (words, widest) = self.in_words();
        f.write_str(&words)?;
        widest.map_or(Ok(()), |widest| write!(f, "; {widest}"))
    }
}
