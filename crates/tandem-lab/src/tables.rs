//! Results as long tables: a row for each measure of each run.
//!
//! Runs and comparisons have the same columns, so that tables of them can be put together: `scenario`, `machine`,
//! `policy`, `seed`, `group`, which the measures of the host have none of, `measure`, `unit` and `value`. What a run
//! has no value of, such as the response times of a group that answered nothing, has no row.

mod distributions;
mod experiments;
mod replays;

pub use distributions::distributions;
pub use experiments::{of_experiments, of_published};
pub use replays::of_replay;

use crate::compare::{Comparison, Figure, Measurement, Row};
use tandem_recording::parquet::{Column, Table, Values, Words};

/// A run in a table.
#[derive(Clone, Debug, PartialEq)]
pub struct RunTable {
    /// What results call the scenario.
    pub scenario: String,
    /// The name of its machine.
    pub machine: String,
    /// Its schedulers.
    pub policy: String,
    /// The seed.
    pub seed: u64,
    /// What it measured.
    pub measurements: Vec<Measurement>,
}

/// The columns of values, under construction.
#[derive(Default)]
struct Rows {
    scenario: Words,
    machine: Words,
    policy: Words,
    seed: Vec<u64>,
    group: Words,
    measure: Words,
    unit: Words,
    value: Vec<Option<f64>>,
}

/// What the rows of a run have in common.
#[derive(Clone, Copy)]
struct Of<'a> {
    scenario: &'a str,
    machine: &'a str,
    policy: &'a str,
    seed: u64,
}

impl Rows {
    fn push(&mut self, of: Of, (group, measure, unit): (Option<&str>, &str, &str), value: f64) {
        self.scenario.push(Some(of.scenario));
        self.machine.push(Some(of.machine));
        self.policy.push(Some(of.policy));
        self.seed.push(of.seed);
        self.group.push(group);
        self.measure.push(Some(measure));
        self.unit.push(Some(unit));
        self.value.push(Some(value));
    }

    fn table(self) -> Table {
        Table::new(vec![
            texts("scenario", self.scenario),
            texts("machine", self.machine),
            texts("policy", self.policy),
            Column { name: "seed".into(), values: Values::Counts(self.seed) },
            texts("group", self.group),
            texts("measure", self.measure),
            texts("unit", self.unit),
            numbers("value", self.value),
        ])
    }
}

fn texts(name: &str, words: Words) -> Column {
    Column { name: name.into(), values: Values::Texts(words) }
}

fn numbers(name: &str, numbers: Vec<Option<f64>>) -> Column {
    Column { name: name.into(), values: Values::Numbers(numbers) }
}

/// The values of runs.
pub fn of_runs<'a>(runs: impl IntoIterator<Item = &'a RunTable>) -> Table {
    let mut rows = Rows::default();
    for RunTable { scenario, machine, policy, seed, measurements } in runs {
        for Measurement { group, measure, unit, value } in measurements {
            let of = Of { scenario, machine, policy, seed: *seed };
            rows.push(of, (group.as_deref(), measure, unit), *value);
        }
    }
    rows.table()
}

/// The values of the runs of comparisons.
pub fn of_comparisons<'a>(comparisons: impl IntoIterator<Item = &'a Comparison>) -> Table {
    let mut rows = Rows::default();
    for comparison in comparisons {
        let Comparison { scenario, machine, .. } = comparison;
        for (contender, policy) in comparison.policies.iter().enumerate() {
            for (run, &seed) in comparison.seeds.iter().enumerate() {
                for row in &comparison.rows {
                    if let Some(value) = row.figures[contender].values[run] {
                        rows.push(Of { scenario, machine, policy, seed }, what(row), value);
                    }
                }
            }
        }
    }
    rows.table()
}

/// The columns of effects, under construction.
#[derive(Default)]
struct Effects {
    scenario: Words,
    machine: Words,
    policy: Words,
    group: Words,
    measure: Words,
    unit: Words,
    mean: Vec<Option<f64>>,
    effect_pct: Vec<Option<f64>>,
    low_pct: Vec<Option<f64>>,
    high_pct: Vec<Option<f64>>,
    verdict: Words,
}

impl Effects {
    fn push(&mut self, of: &Comparison, policy: &str, row: &Row, figure: &Figure) {
        let (group, measure, unit) = what(row);
        self.scenario.push(Some(&of.scenario));
        self.machine.push(Some(&of.machine));
        self.policy.push(Some(policy));
        self.group.push(group);
        self.measure.push(Some(measure));
        self.unit.push(Some(unit));
        self.mean.push(figure.mean);
        self.effect_pct.push(figure.effect_pct);
        self.low_pct.push(figure.interval_pct.map(|(low_pct, _)| low_pct));
        self.high_pct.push(figure.interval_pct.map(|(_, high_pct)| high_pct));
        self.verdict.push(Some(figure.verdict(row.better)).filter(|word| !word.is_empty()));
    }

    fn table(self) -> Table {
        Table::new(vec![
            texts("scenario", self.scenario),
            texts("machine", self.machine),
            texts("policy", self.policy),
            texts("group", self.group),
            texts("measure", self.measure),
            texts("unit", self.unit),
            numbers("mean", self.mean),
            numbers("effect_pct", self.effect_pct),
            numbers("low_pct", self.low_pct),
            numbers("high_pct", self.high_pct),
            texts("verdict", self.verdict),
        ])
    }
}

/// What comparisons say of each measure under each policy: the mean, and, but for the baseline, the effect in percent of
/// that with its 95% confidence interval. `verdict` is better or worse where chance alone does not explain the effect.
pub fn effects<'a>(comparisons: impl IntoIterator<Item = &'a Comparison>) -> Table {
    let mut effects = Effects::default();
    for comparison in comparisons {
        for row in &comparison.rows {
            for (policy, figure) in comparison.policies.iter().zip(&row.figures) {
                effects.push(comparison, policy, row, figure);
            }
        }
    }
    effects.table()
}

fn what(row: &Row) -> (Option<&str>, &str, &str) {
    (row.group.as_deref(), row.what(), row.unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::{contenders, run};
    use crate::simulate::{Simulation, Watched};
    use std::sync::atomic::AtomicBool;

    fn column<'a>(table: &'a Table, name: &str) -> &'a Values {
        &table.columns().iter().find(|column| column.name == name).expect(name).values
    }

    fn texts_of(table: &Table, name: &str) -> Vec<Option<String>> {
        match column(table, name) {
            Values::Texts(words) => words.iter().map(|text| text.map(str::to_owned)).collect(),
            other => panic!("{name}: {other:?}"),
        }
    }

    fn numbers_of<'a>(table: &'a Table, name: &str) -> &'a [Option<f64>] {
        match column(table, name) {
            Values::Numbers(numbers) => numbers,
            other => panic!("{name}: {other:?}"),
        }
    }

    /// Each row as text, without those of what is not compared.
    fn rows(table: &Table, is_compared: impl Fn(&str) -> bool) -> Vec<String> {
        let texts =
            ["scenario", "machine", "policy", "group", "measure", "unit"].map(|name| texts_of(table, name));
        let Values::Counts(seeds) = column(table, "seed") else { panic!("seeds are counts") };
        let values = numbers_of(table, "value");
        let all = (0..table.rows()).filter(|&row| is_compared(texts[4][row].as_deref().unwrap()));
        all.map(|row| {
            format!("{:?} {} {:?}", texts.each_ref().map(|column| &column[row]), seeds[row], values[row])
        })
        .collect()
    }

    #[test]
    fn a_comparison_has_the_very_values_of_its_runs() {
        let policies = ["linux", "xen-credit2"];
        let comparison = run(&policies, 2, 1, false).unwrap();
        let never = AtomicBool::new(false);
        let mut runs = Vec::new();
        for scenario in &contenders(&policies) {
            for seed in [1, 2] {
                let what = Simulation { name: "s.toml", scenario, seed, with_stat: false };
                let (simulated, ()) = what.run(Watched::new((), scenario, &|_| (), &never)).unwrap();
                runs.push(simulated.table());
            }
        }
        let names: Vec<&str> = comparison.rows.iter().map(Row::what).collect();
        let is_compared = |measure: &str| names.contains(&measure);
        let (of_runs, compared) = (of_runs(&runs), of_comparisons([&comparison]));
        assert_eq!(rows(&compared, |_| true), rows(&of_runs, is_compared));
        assert!(of_runs.rows() > compared.rows(), "a run is also described");
        let table = texts_of(&of_runs, "measure");
        assert!(table.contains(&Some("sleep".into())) && !table.contains(&Some("sleep, % of life".into())));
    }

    #[test]
    fn distributions_rise_to_the_percentiles_of_the_comparison() {
        let comparison = run(&["linux", "xen-credit"], 3, 1, false).unwrap();
        let table = distributions(&comparison);
        let [policies, groups, measures] = ["policy", "group", "measure"].map(|name| texts_of(&table, name));
        let [below, times] = ["below_pct", "time_us"].map(|name| numbers_of(&table, name).to_vec());
        let at = |policy: &str, share: f64| {
            let is_it = |row: &usize| {
                policies[*row].as_deref() == Some(policy)
                    && groups[*row].as_deref() == Some("light")
                    && measures[*row].as_deref() == Some("wake-up")
                    && below[*row] == Some(share)
            };
            times[(0..table.rows()).find(is_it).expect("there are as many wake-ups")]
        };
        let light = comparison.pooled.iter().find(|pooled| pooled.group == "light").unwrap();
        for (policy, wakeup) in comparison.policies.iter().zip(&light.wakeup) {
            let wakeup = wakeup.unwrap();
            assert_eq!(at(policy, 50.0), Some(wakeup.p50_us));
            assert_eq!(at(policy, 95.0), Some(wakeup.p95_us));
            assert_eq!(at(policy, 99.0), Some(wakeup.p99_us));
        }
        for row in 1..table.rows() {
            assert!(below[row] == Some(0.0) || (below[row] > below[row - 1] && times[row] >= times[row - 1]));
        }
        assert!(!measures.contains(&Some("response".into())), "nothing responds");
    }

    #[test]
    fn effects_are_those_of_the_comparison() {
        let comparison = run(&["linux", "xen-credit"], 3, 1, false).unwrap();
        let table = effects([&comparison]);
        assert_eq!(table.rows(), 2 * comparison.rows.len());
        let [low, high, effect] =
            ["low_pct", "high_pct", "effect_pct"].map(|name| numbers_of(&table, name).to_vec());
        let verdicts = texts_of(&table, "verdict");
        for (at, row) in comparison.rows.iter().enumerate() {
            assert_eq!(effect[2 * at], None, "the baseline has no effect");
            let figure = &row.figures[1];
            assert_eq!(effect[2 * at + 1], figure.effect_pct);
            assert_eq!(low[2 * at + 1].zip(high[2 * at + 1]), figure.interval_pct);
        }
        assert!(verdicts.iter().flatten().all(|word| ["better", "worse"].contains(&word.as_str())));
        assert!(verdicts.iter().any(Option::is_some));
    }
}
