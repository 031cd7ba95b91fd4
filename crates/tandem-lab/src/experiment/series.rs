//! Checks of orders of variants and heat maps, which use the cells of one metric along one key.

use super::file::{HeatMapTable, OrderTable};
use super::read::{CellSet, ExperimentCells};
use crate::published::{CellKeys, has_all};
use crate::results::Better;
use std::collections::BTreeSet;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile, quoted_list};

/// Checks that all variants of an order are run at each of its loads.
pub(super) fn check_order(
    order: &OrderTable,
    all: &ExperimentCells,
    source: &SourceFile,
) -> Result<(), FileError> {
    let sets = series(all, &order.metric, &order.keys, &order.over, source)?;
    if order.variants.len() < 2 {
        return Err(source.error(order.text.span(), "an order needs at least two variants"));
    }
    for set in sets {
        check_variants(&order.variants, &[set], source)?;
    }
    Ok(())
}

/// Checks that a heat map has cells, and that each of its variants is run at one of its loads.
pub(super) fn check_heat_map(
    map: &HeatMapTable,
    all: &ExperimentCells,
    source: &SourceFile,
) -> Result<(), FileError> {
    let sets = series(all, &map.metric, &map.keys, &map.columns, source)?;
    if map.rows.is_empty() {
        return Err(source.error(map.title.span(), "the heat map has no rows; name at least one variant"));
    }
    check_variants(&map.rows, &sets, source)?;
    let is_row = |label: &Located<String>| map.rows.iter().any(|row| **row == **label);
    match map.labels.iter().find(|(name, _)| !is_row(name)) {
        None => Ok(()),
        Some((name, _)) => {
            let rows = quoted_list(map.rows.iter().map(|row| row.as_str()));
            let message = format!("the heat map has no row `{}`; its rows: {rows}", **name);
            Err(source.error(name.span(), message))
        }
    }
}

/// The cells of a metric that have all of `keys` and differ in `over` alone, so that there is one set at each
/// load.
fn series<'a>(
    all: &'a ExperimentCells,
    metric: &Located<String>,
    keys: &Located<CellKeys>,
    over: &Located<String>,
    source: &SourceFile,
) -> Result<Vec<CellSet<'a>>, FileError> {
    let of_metric: Vec<CellSet> = all.sets().filter(|set| set.metric == metric.as_str()).collect();
    let Some(first) = of_metric.first() else {
        let metrics: BTreeSet<&str> = all.sets().map(|set| set.metric).collect();
        let message = format!("no run has the metric `{}`; there are {}", **metric, quoted_list(metrics));
        return Err(source.error(metric.span(), message));
    };
    if first.better == Better::Neither {
        let message =
            format!("neither way is better for the metric `{}`, so that nothing is a gain", **metric);
        return Err(source.error(metric.span(), message));
    }
    let with_keys: Vec<CellSet> = of_metric.into_iter().filter(|set| has_all(set.keys, keys)).collect();
    if with_keys.is_empty() {
        let message =
            format!("no run with the metric `{}` has these keys; cells are {}", **metric, all.list());
        return Err(source.error(keys_span(keys, metric), message));
    }
    let names: BTreeSet<&str> =
        with_keys.iter().flat_map(|set| set.keys.keys().map(String::as_str)).collect();
    let series: Vec<CellSet> = with_keys.into_iter().filter(|set| set.keys.contains_key(&**over)).collect();
    let Some(first) = series.first() else {
        let message = format!("these cells have no key `{}`; their keys: {}", **over, quoted_list(names));
        return Err(source.error(over.span(), message));
    };
    for (position, set) in series.iter().enumerate() {
        let load = &set.keys[&**over];
        let message = if series[..position].iter().any(|other| other.keys[&**over] == *load) {
            format!("several runs have these keys and {}={load}; `keys` must tell them apart", **over)
        } else if set.case.baseline != first.case.baseline {
            "runs with these keys have different baselines; `keys` must tell them apart".into()
        } else {
            continue;
        };
        return Err(source.error(keys_span(keys, metric), message));
    }
    Ok(series)
}

/// Where the keys are in the file; the metric's place if they are absent.
fn keys_span(keys: &Located<CellKeys>, metric: &Located<String>) -> std::ops::Range<usize> {
    if keys.is_empty() { metric.span() } else { keys.span() }
}

/// Checks that each of the variants is run in one of the sets.
fn check_variants(
    variants: &[Located<String>],
    sets: &[CellSet],
    source: &SourceFile,
) -> Result<(), FileError> {
    let run: BTreeSet<&str> = sets.iter().flat_map(|set| set.case.variant_names()).collect();
    match variants.iter().find(|name| !run.contains(name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let message = format!(
                "the runs of these cells have no variant `{}`; there are {}",
                **name,
                quoted_list(run)
            );
            Err(source.error(name.span(), message))
        }
    }
}
