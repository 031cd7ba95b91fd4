//! What a heat map shows: the gain of each variant at each load, and which one is best.
//!
//! Problem: of many settings at several loads, the largest number of a column is not always better than the
//! next one. Approach: the text names the best setting of a load together with all that are statistically
//! equal to it, which are those whose 95% intervals overlap with its own. It does the same for the mean and
//! the worst over all loads, where two rows differ if they differ at one load.
//!
//! Limits: intervals that overlap a little can still belong to different effects; this errs on the side of
//! noise.

use super::{groups::distinct, number};
use crate::published::has_all;
use crate::results::{Cell, HeatMap, Key};

/// More rivals than this are counted, not named.
const RIVALS_NAMED: usize = 3;

/// The cells of a heat map, by row and column.
pub struct Grid<'a> {
    pub map: &'a HeatMap,
    /// The variant that gains are measured against.
    pub baseline: &'a str,
    /// Values of the key along the horizontal axis, in the order in which they were run.
    pub loads: Vec<&'a Key>,
    /// Names of the rows and their cells; `None` where a variant has no result at a load.
    pub rows: Vec<(&'a str, Vec<Option<Gain>>)>,
}

/// A gain in percent, with its 95% interval.
#[derive(Clone, Copy)]
pub struct Gain {
    pub pct: f64,
    pub interval_pct: Option<(f64, f64)>,
}

/// The best row of a column.
pub struct Best<'a> {
    pub row: usize,
    /// Rows that are statistically equal to it.
    pub rivals: Vec<&'a str>,
    /// Whether every gain that it was compared with has an interval.
    pub has_intervals: bool,
}

impl HeatMap {
    /// Whether the map shows the cell, or it is the baseline that the map compares with.
    pub fn shows(&self, cell: &Cell) -> bool {
        let is_shown = self.rows.iter().any(|(variant, _)| *variant == cell.variant);
        self.has(cell) && (is_shown || cell.variant == cell.baseline)
    }

    fn has(&self, cell: &Cell) -> bool {
        cell.metric == self.metric && cell.cell.contains_key(&self.columns) && has_all(&cell.cell, &self.keys)
    }
}

impl Gain {
    fn of(cell: &Cell) -> Option<Self> {
        Some(Self { pct: cell.gain_pct()?, interval_pct: cell.gain_interval_pct() })
    }

    /// Whether the two intervals have a point in common; `None` if one is not known.
    fn overlaps(&self, other: &Self) -> Option<bool> {
        let ((low, high), (other_low, other_high)) = self.interval_pct.zip(other.interval_pct)?;
        Some(low <= other_high && other_low <= high)
    }
}

impl Best<'_> {
    /// Whether it is best beyond chance.
    pub fn is_clear(&self) -> bool {
        self.has_intervals && self.rivals.is_empty()
    }
}

impl<'a> Grid<'a> {
    /// `None` if none of the cells has a gain, as when nothing was run.
    pub fn of(map: &'a HeatMap, cells: &'a [Cell]) -> Option<Self> {
        let of_map = || cells.iter().filter(|cell| map.has(cell));
        let loads = distinct(of_map().map(|cell| &cell.cell[&map.columns]));
        let rows: Vec<(&str, Vec<_>)> = map
            .rows
            .iter()
            .map(|(variant, label)| {
                let gain = |load: &&Key| {
                    let is_meant =
                        |cell: &&Cell| cell.variant == *variant && cell.cell[&map.columns] == **load;
                    of_map().find(is_meant).and_then(Gain::of)
                };
                (label.as_str(), loads.iter().map(gain).collect())
            })
            .collect();
        rows.iter().flat_map(|(_, gains)| gains).flatten().next()?;
        Some(Self { map, baseline: &of_map().next()?.baseline, loads, rows })
    }

    /// The best row of a column; `None` if it is empty.
    pub fn best(&self, column: usize) -> Option<Best<'a>> {
        let row = self.largest(|gains| Some(gains[column]?.pct))?;
        Some(self.best_row(row, &[column]))
    }

    /// Sentences that name the best row of each load and over all loads.
    pub fn sentences(&self) -> Vec<String> {
        let best_at = |column: usize| {
            let best = self.best(column)?;
            let gain = self.rows[best.row].1[column]?.pct;
            Some(format!(
                "{} {}: {}",
                self.map.columns,
                self.loads[column],
                self.said(&best, number::effect(gain))
            ))
        };
        let best_at: Vec<String> = (0..self.loads.len()).filter_map(best_at).collect();
        let mut sentences = vec![format!("Best at {}.", best_at.join("; "))];
        sentences.extend(self.best_on_the_whole());
        if !self.has_intervals() {
            let reason = "Some gains have no interval, as they come from one replication: which setting is best there may be chance.";
            sentences.push(reason.into());
        }
        sentences
    }

    /// The row with the best mean and the one with the best worst gain, of those that have all loads; `None`
    /// if there is only one load.
    fn best_on_the_whole(&self) -> Option<String> {
        let columns: Vec<usize> = (0..self.loads.len()).collect();
        if columns.len() < 2 {
            return None;
        }
        let all = |gains: &[Option<Gain>]| {
            gains.iter().map(|gain| gain.map(|gain| gain.pct)).collect::<Option<Vec<f64>>>()
        };
        let mean = |gains: &[Option<Gain>]| Some(all(gains)?.iter().sum::<f64>() / columns.len() as f64);
        let worst = |gains: &[Option<Gain>]| all(gains)?.into_iter().min_by(f64::total_cmp);
        let (by_mean, by_worst) = (self.largest(mean)?, self.largest(worst)?);
        let said = |row: usize, numbers: String| self.said(&self.best_row(row, &columns), numbers);
        let number = |of: &dyn Fn(&[Option<Gain>]) -> Option<f64>, row: usize| {
            of(&self.rows[row].1).map(number::effect).unwrap_or_default()
        };
        let (mean_of_best, worst_of_best) = (number(&mean, by_mean), number(&worst, by_worst));
        Some(if by_mean == by_worst {
            let numbers = format!("{mean_of_best} on average, {worst_of_best} in the worst case");
            format!("Best on the whole: {}.", said(by_mean, numbers))
        } else {
            let (mean, worst) = (said(by_mean, mean_of_best), said(by_worst, worst_of_best));
            format!("Best on average: {mean}; best in the worst case: {worst}.")
        })
    }

    /// A sentence with the row, the numbers, and the rows that are statistically equal to it.
    fn said(&self, best: &Best, numbers: String) -> String {
        let rivals = match best.rivals.len() {
            0 => String::new(),
            1..=RIVALS_NAMED => format!(", within chance of {}", best.rivals.join(", ")),
            many => format!(", within chance of {many} others"),
        };
        format!("{} ({numbers}{rivals})", self.rows[best.row].0)
    }

    /// The first of the rows with the largest number.
    fn largest(&self, of: impl Fn(&[Option<Gain>]) -> Option<f64>) -> Option<usize> {
        let numbers = self.rows.iter().enumerate().filter_map(|(row, (_, gains))| Some((row, of(gains)?)));
        let largest = numbers.reduce(|best, next| if next.1 > best.1 { next } else { best });
        largest.map(|(row, _)| row)
    }

    /// The row with those that overlap with it in all of the columns, and the baseline if it does.
    fn best_row(&self, row: usize, columns: &[usize]) -> Best<'a> {
        let mut best = Best { row, rivals: Vec::new(), has_intervals: true };
        let baseline = vec![Some(Gain { pct: 0.0, interval_pct: Some((0.0, 0.0)) }); self.loads.len()];
        let shows_baseline = self.map.rows.iter().any(|(variant, _)| variant == self.baseline);
        let baseline = (!shows_baseline).then_some((self.baseline, &baseline));
        let others = self.rows.iter().enumerate().filter(|(other, _)| *other != row);
        for (label, gains) in others.map(|(_, (label, gains))| (*label, gains)).chain(baseline) {
            let pairs = columns.iter().filter_map(|&column| self.rows[row].1[column].zip(gains[column]));
            let overlaps: Vec<Option<bool>> = pairs.map(|(gain, other)| gain.overlaps(&other)).collect();
            if overlaps.iter().any(Option::is_none) {
                best.has_intervals = false;
            } else if !overlaps.is_empty() && overlaps.iter().all(|overlaps| *overlaps == Some(true)) {
                best.rivals.push(label);
            }
        }
        best
    }

    fn has_intervals(&self) -> bool {
        self.rows.iter().flat_map(|(_, gains)| gains).flatten().all(|gain| gain.interval_pct.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn the_best_of_each_load_is_named_with_what_it_cannot_be_told_from() {
        let results = fixture::heat_map();
        let grid = Grid::of(&results.heat_maps[0], &results.cells).expect("gains");
        assert_eq!(grid.baseline, "hard");
        let best: Vec<_> = (0..4).map(|column| grid.best(column).expect("a best")).collect();
        assert_eq!(best.iter().map(|best| best.row).collect::<Vec<_>>(), [0, 1, 1, 2]);
        assert_eq!(best[0].rivals, ["5:4", "hard"]);
        assert!(best[1].is_clear() && best[2].is_clear());
        assert!(!best[3].has_intervals && best[3].rivals.is_empty() && !best[3].is_clear());
        assert_eq!(
            grid.sentences(),
            [
                "Best at load 1: 1:1 (+0.3%, within chance of 5:4, hard); load 2: 5:4 (+1.4%); load 4: 5:4 (+6.2%); \
                 load 8: 100:1 (+3.0%).",
                "Best on average: 5:4 (+1.7%); best in the worst case: 1:1 (−0.5%).",
                "Some gains have no interval, as they come from one replication: which setting is best there may be \
                 chance.",
            ]
        );
    }

    #[test]
    fn what_is_not_there_is_missing_and_does_not_win_on_the_whole() {
        let mut results = fixture::heat_map();
        results.cells.retain(|cell| cell.variant != "soft-5-4" || cell.cell["load"] != Key::Number(2));
        let grid = Grid::of(&results.heat_maps[0], &results.cells).expect("gains");
        assert!(grid.rows[1].1[1].is_none());
        assert!(grid.sentences()[1].starts_with("Best on the whole: 1:1 ("), "{:?}", grid.sentences());
        results.cells.clear();
        assert!(Grid::of(&results.heat_maps[0], &results.cells).is_none());
    }

    #[test]
    fn two_rows_are_told_apart_on_the_whole_if_they_are_at_one_load() {
        let mut results = fixture::heat_map();
        results.cells.retain(|cell| cell.cell["load"] == Key::Number(1));
        let grid = Grid::of(&results.heat_maps[0], &results.cells).expect("gains");
        assert_eq!(grid.best_row(0, &[0]).rivals, ["5:4", "hard"]);
        assert_eq!(grid.sentences().len(), 1, "one load is the whole");
    }
}
