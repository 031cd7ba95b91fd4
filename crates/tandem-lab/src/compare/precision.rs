//! When intervals are narrow enough.
//!
//! **Problem.** A user asks for effects to within some percent, and nobody knows how many seeds that takes. To look after
//! each seed and to stop when the intervals are narrow makes them hold the true effect too seldom.
//!
//! **Approach.** Two stages, as for experiments: the first seeds give the variance, from which follows how many seeds
//! there are in all, once: see [`statistics`](crate::statistics).
//!
//! **Limits.** Asked of are the rates of counters and the percentiles of responses up to the 99th, or, where a scenario
//! has neither, those of wake-ups; of these, the ones that chance has a part in.

use super::values::Weight;
use super::{Figure, Row};
use crate::precision::{Interval, widest};
use crate::statistics::pairs_for;
use serde::Serialize;
use std::fmt;

/// Seeds from which it follows how many more there are: half of an interval of so many pairs is wider than one whose
/// variance is known by 15%, where five pairs make it 42% wider.
const FIRST_STAGE: usize = 10;

/// What became of the precision of a comparison.
pub type Precision = crate::precision::Precision<Widest>;

/// An interval.
#[derive(Clone, Debug, Serialize)]
pub struct Widest {
    /// The group whose measure it is of.
    pub group: String,
    /// The measure.
    pub measure: String,
    /// The position of the policy, counted from 1.
    pub policy: usize,
    /// Half its width, in percent of the baseline.
    pub half_width_pct: f64,
}

/// How many seeds the first stage has, if at most so many are allowed.
pub(super) fn first_stage(seeds: usize) -> usize {
    FIRST_STAGE.min(seeds)
}

/// How many seeds there should be in all, by the rows of the first `first`; not fewer than these.
pub(super) fn wanted(rows: &[Row], first: usize, precision_pct: f64) -> usize {
    let halves = asked(rows).filter_map(|(_, _, figure)| figure.half_width_pct());
    let wanted = halves.map(|half| pairs_for(first, (-half, half), precision_pct)).max();
    wanted.unwrap_or(first).max(first)
}

impl Interval for Widest {
    fn half_width_pct(&self) -> f64 {
        self.half_width_pct
    }
}

impl fmt::Display for Widest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} [{}]", self.group, self.measure, self.policy)
    }
}

/// What became of it after so many seeds, of which so many were wanted.
pub(super) fn outcome(
    rows: &[Row],
    first_stage: usize,
    wanted: usize,
    asked_pct: f64,
    seeds: usize,
) -> Precision {
    let intervals = asked(rows).filter_map(|(row, at, figure)| {
        let half_width_pct = figure.half_width_pct()?;
        let group = row.group.clone().unwrap_or_default();
        Some(Widest { group, measure: row.measure.clone(), policy: at + 1, half_width_pct })
    });
    let widest = widest(intervals);
    let lacks = |figure: &Figure| figure.values.iter().any(Option::is_none);
    let lacking =
        asked(rows).filter(|(row, at, figure)| *at > 0 && (lacks(figure) || lacks(&row.figures[0])));
    let lacking = lacking.count();
    // A mean over more seeds is another one, of which the same width is another share.
    let is_narrow = widest.as_ref().is_some_and(|widest| widest.half_width_pct <= asked_pct);
    Precision {
        asked_pct,
        first_stage,
        wanted: Some(wanted).filter(|&wanted| wanted < usize::MAX),
        lacking,
        is_reached: lacking == 0 && (seeds >= wanted || (seeds >= first_stage && is_narrow)),
        widest,
    }
}

/// The figures that a precision is asked of, each with its row and its position there.
fn asked(rows: &[Row]) -> impl Iterator<Item = (&Row, usize, &Figure)> {
    let weight = rows.iter().map(|row| row.weight).max().unwrap_or(Weight::None);
    let rows = rows.iter().filter(move |row| weight > Weight::None && row.weight == weight);
    rows.flat_map(|row| row.figures.iter().enumerate().map(move |(at, figure)| (row, at, figure)))
}
