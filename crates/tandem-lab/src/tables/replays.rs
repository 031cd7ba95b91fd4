//! Replays as tables.

use super::{numbers, texts};
use crate::twin::comparison::{Comparison, Pair, Row};
use tandem_recording::parquet::{Table, Words};

/// The measures of a group and their units, in the order of [`Row::values`].
const MEASURES: [(&str, &str); 11] = [
    ("run", "s"),
    ("wait", "s"),
    ("sleep", "s"),
    ("switches", "times"),
    ("preemptions", "times"),
    ("migrations", "times"),
    ("wait p50", "us"),
    ("wait p95", "us"),
    ("wait p99", "us"),
    ("wait max", "us"),
    ("span", "s"),
];

/// A recording beside runs: a row for each measure of each group, and of all tasks of the host, which have no `group`.
/// `recorded` is that of the recording, `mean` that of the runs, `low` and `high` are the ends of its 95% confidence
/// interval.
pub fn of_replay(comparison: &Comparison) -> Table {
    let total = (None, &comparison.total);
    let groups = comparison.groups.iter().map(|pair| (Some(pair.group.as_str()), pair));
    let pairs: Vec<(Option<&str>, &Pair)> = std::iter::once(total).chain(groups).collect();
    let repeated = |of: fn(&(&'static str, &'static str)) -> &'static str| -> Words {
        pairs.iter().flat_map(|_| MEASURES.iter().map(move |measure| Some(of(measure)))).collect()
    };
    let column = |of: &dyn Fn(&Pair) -> Option<Row>| -> Vec<Option<f64>> {
        let values = |(_, pair): &(Option<&str>, &Pair)| match of(pair) {
            Some(row) => row.values().map(Some),
            None => [None; 11],
        };
        pairs.iter().flat_map(values).collect()
    };
    let interval = |pair: &Pair| pair.simulated.interval.clone();
    Table::new(vec![
        texts("group", pairs.iter().flat_map(|(group, _)| [*group; 11]).collect()),
        texts("measure", repeated(|(measure, _)| measure)),
        texts("unit", repeated(|(_, unit)| unit)),
        numbers("recorded", column(&|pair| Some(pair.recorded.clone()))),
        numbers("mean", column(&|pair| Some(pair.simulated.mean.clone()))),
        numbers("low", column(&|pair| interval(pair).map(|(low, _)| low))),
        numbers("high", column(&|pair| interval(pair).map(|(_, high)| high))),
    ])
}
