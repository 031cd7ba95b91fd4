//! Experiments as tables: what was published, and what came out.
//!
//! Each key of the cells, such as `benchmark` or `vms`, is a column: of numbers where all of its values are numbers.

use super::{numbers, texts};
use crate::published::{CellKeys, Published, Row};
use crate::results::{Cell, Decimal, ExperimentResults, Key};
use std::collections::BTreeSet;
use tandem_recording::parquet::{Column, Table};

/// The published table of an experiment.
pub fn of_published(published: &Published) -> Table {
    let rows = published.rows();
    let number = |name: &str, of: fn(&Row) -> Option<f64>| numbers(name, rows.iter().map(of).collect());
    let mut columns = keys(rows.iter().map(|row| &row.keys));
    columns.push(texts("metric", rows.iter().map(|row| Some(row.metric.as_str())).collect()));
    columns.push(texts("variant", rows.iter().map(|row| Some(row.variant.as_str())).collect()));
    columns.push(number("value", |row| row.value));
    columns.push(number("effect_pct", |row| row.effect_pct));
    columns.push(number("stddev", |row| row.stddev));
    Table::new(columns)
}

/// The cells of the results of experiments.
pub fn of_experiments(results: &[ExperimentResults]) -> Table {
    let cells: Vec<&Cell> = results.iter().flat_map(|experiment| &experiment.cells).collect();
    let text =
        |name: &str, of: fn(&Cell) -> &str| texts(name, cells.iter().map(|cell| Some(of(cell))).collect());
    let number =
        |name: &str, of: fn(&Cell) -> Option<f64>| numbers(name, cells.iter().map(|cell| of(cell)).collect());
    let mut columns = vec![text("experiment", |cell| &cell.experiment)];
    columns.extend(keys(cells.iter().map(|cell| &cell.cell)));
    columns.extend([
        text("metric", |cell| &cell.metric),
        text("unit", |cell| &cell.unit),
        text("baseline", |cell| &cell.baseline),
        text("variant", |cell| &cell.variant),
        text("role", |cell| cell.role.word()),
        number("published", |cell| cell.published),
        number("simulated", |cell| Some(cell.simulated)),
        number("published_effect_pct", |cell| cell.published_effect_pct),
        number("simulated_effect_pct", |cell| cell.simulated_effect_pct),
        number("ci_low_pct", |cell| cell.ci_low_pct),
        number("ci_high_pct", |cell| cell.ci_high_pct),
        number("range_low_pct", |cell| cell.range_low_pct),
        number("range_high_pct", |cell| cell.range_high_pct),
    ]);
    Table::new(columns)
}

/// A column for each key.
fn keys<'a>(of_rows: impl Iterator<Item = &'a CellKeys> + Clone) -> Vec<Column> {
    let names: BTreeSet<&str> = of_rows.clone().flat_map(|keys| keys.keys().map(String::as_str)).collect();
    let column = |name: &str| {
        let values: Vec<Option<&Key>> = of_rows.clone().map(|keys| keys.get(name)).collect();
        let number = |key: &Key| match key {
            Key::Number(number) => Some(*number as f64),
            Key::Decimal(Decimal(number)) => Some(*number),
            Key::Text(_) => None,
        };
        if values.iter().flatten().all(|key| number(key).is_some()) {
            return numbers(name, values.iter().map(|key| key.and_then(number)).collect());
        }
        let values: Vec<Option<String>> = values.iter().map(|key| key.map(ToString::to_string)).collect();
        texts(name, values.iter().map(Option::as_deref).collect())
    };
    names.into_iter().map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_recording::parquet::Values;

    #[test]
    fn keys_are_columns_of_texts_or_numbers() {
        let text =
            "load,vms,metric,variant,value,effect_pct,stddev\nlow,2,rate,none,5,,\n7,,rate,pin,,3.5,0.1\n";
        let table = of_published(&Published::parse("p.csv", text).unwrap());
        let names: Vec<&str> = table.columns().iter().map(|column| column.name.as_str()).collect();
        assert_eq!(names, ["load", "vms", "metric", "variant", "value", "effect_pct", "stddev"]);
        let Values::Texts(loads) = &table.columns()[0].values else { panic!("a word is among them") };
        assert_eq!(loads.iter().collect::<Vec<_>>(), [Some("low"), Some("7")]);
        assert_eq!(table.columns()[1].values, Values::Numbers(vec![Some(2.0), None]));
        assert_eq!(table.columns()[5].values, Values::Numbers(vec![None, Some(3.5)]));
    }
}
