//! Composites: scores that sum up several cells, as a benchmark suite's index does its tests.
//!
//! A composite is the geometric mean of a metric over cells that differ in one key alone, run by run: its
//! effect and interval come from the same pairs of runs as theirs.

use super::Case;
use super::file::CompositeTable;
use crate::published::CellKeys;
use crate::results::{Better, Key};
use tandem_file::file_error::FileError;
use tandem_file::located::SourceFile;

/// A score over the cells of several cases.
#[derive(Clone, Debug)]
pub struct Composite {
    /// Keys of its cells.
    pub keys: CellKeys,
    /// Name of its metric.
    pub name: String,
    /// Unit of its values, as reports print it.
    pub unit: String,
    /// Which way is better.
    pub better: Better,
    /// What it sums up: positions of the case and of its metric.
    pub parts: Vec<(usize, usize)>,
}

impl Composite {
    /// Whether all of its parts were calibrated on that variant.
    pub fn is_calibrated(&self, cases: &[Case], variant: &str) -> bool {
        self.parts.iter().all(|&(case, metric)| {
            let Case { keys, baseline, metrics, .. } = &cases[case];
            metrics[metric].is_calibrated_at(keys, variant, baseline)
        })
    }

    /// The value from those of its parts, which `of_part` gives by case and metric; `None` if one is missing.
    pub fn value(&self, of_part: impl Fn(usize, usize) -> Option<f64>) -> Option<f64> {
        let logarithms = self.parts.iter().map(|&(case, metric)| of_part(case, metric).map(libm::log));
        let sum = logarithms.sum::<Option<f64>>()?;
        Some(libm::exp(sum / self.parts.len() as f64))
    }
}

/// The composites of a table: one for each set of cases that agree in all keys but one and have all its
/// parts.
pub(super) fn composites_of(
    table: &CompositeTable,
    cases: &[Case],
    source: &SourceFile,
) -> Result<Vec<Composite>, FileError> {
    let part_of = |case: &Case| case.keys.get(&table.over).filter(|key| table.parts.contains(key)).cloned();
    let rest = |case: &Case| {
        let mut keys = case.keys.clone();
        keys.remove(&table.over);
        keys
    };
    let mut sets: Vec<CellKeys> = Vec::new();
    for case in cases.iter().filter(|case| part_of(case).is_some()) {
        if !sets.contains(&rest(case)) {
            sets.push(rest(case));
        }
    }
    let find = |keys: &CellKeys, part: &Key| {
        let is_part = |case: &Case| case.keys.get(&table.over) == Some(part) && rest(case) == *keys;
        let case = cases.iter().position(is_part)?;
        let metric = cases[case].metrics.iter().position(|metric| metric.name == table.of)?;
        Some((case, metric))
    };
    let composite = |mut keys: CellKeys| {
        let parts: Vec<_> = table.parts.iter().map(|part| find(&keys, part)).collect::<Option<_>>()?;
        let metrics = || parts.iter().map(|&(case, metric): &(usize, usize)| &cases[case].metrics[metric]);
        let first = metrics().next()?;
        keys.extend(table.keys.clone());
        Some(Composite {
            keys,
            name: (*table.name).clone(),
            unit: first.unit.clone(),
            better: first.better,
            parts,
        })
    };
    let composites: Vec<_> = sets.into_iter().filter_map(composite).collect();
    let run_alike = |composite: &Composite| {
        let mut runs = composite.parts.iter().map(|&(case, _)| &cases[case]);
        let first = runs.next();
        runs.all(|case| {
            first.is_some_and(|first| {
                first.baseline == case.baseline && first.variant_names().eq(case.variant_names())
            })
        })
    };
    if !composites.iter().all(run_alike) {
        let message = "the parts of this composite are runs with different baselines or variants";
        return Err(source.error(table.name.span(), message));
    }
    if composites.is_empty() {
        let message =
            format!("no runs have all parts of this composite, which are values of `{}`", table.over);
        return Err(source.error(table.name.span(), message));
    }
    Ok(composites)
}
