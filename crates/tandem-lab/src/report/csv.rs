//! CSV according to RFC 4180: one row a cell.

use super::{Format, number::rounded};
use crate::results::{Cell, ExperimentResults, SetWord};
use csv::{Terminator, WriterBuilder};
use std::{collections::BTreeSet, io};

/// One row a cell, the keys of all experiments as columns; empty for what is missing or not finite.
pub struct Csv;

impl Format for Csv {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn extension(&self) -> &'static str {
        "csv"
    }

    fn write(&self, results: &[ExperimentResults], out: &mut dyn io::Write) -> io::Result<()> {
        let cells = || results.iter().flat_map(|experiment| &experiment.cells);
        let keys: BTreeSet<&str> = cells().flat_map(|cell| cell.cell.keys().map(String::as_str)).collect();

        let mut writer = WriterBuilder::new().terminator(Terminator::CRLF).from_writer(out);
        let after_keys = ["metric", "baseline", "variant"].into_iter().chain(NUMBERS).chain(AFTER_NUMBERS);
        writer.write_record(["experiment"].into_iter().chain(keys.iter().copied()).chain(after_keys))?;
        for cell in cells() {
            writer.write_field(&cell.experiment)?;
            for key in &keys {
                writer.write_field(cell.cell.get(*key).map(ToString::to_string).unwrap_or_default())?;
            }
            for name in [&cell.metric, &cell.baseline, &cell.variant] {
                writer.write_field(name)?;
            }
            for number in numbers(cell) {
                let text = number.and_then(rounded).map(|number| number.to_string());
                writer.write_field(text.unwrap_or_default())?;
            }
            writer.write_field(cell.basis.calibrated_set.map_or("", SetWord::word))?;
            for count in [cell.basis.points_accepted, cell.basis.points_measured] {
                writer.write_field(count.map(|count| count.to_string()).unwrap_or_default())?;
            }
            writer.write_field(cell.role.word())?;
            let runs = &cell.runs;
            let values =
                runs.values.iter().map(|&value| rounded(value).map_or(String::new(), |it| it.to_string()));
            for text in [
                cell.unit.clone(),
                runs.n.to_string(),
                runs.seeds.first().map(ToString::to_string).unwrap_or_default(),
                values.collect::<Vec<_>>().join(" "),
                runs.scheduler.clone(),
                runs.guest_schedulers.join(" and "),
                runs.scenario_hash.clone().unwrap_or_default(),
                runs.version.to_owned(),
            ] {
                writer.write_field(text)?;
            }
            writer.write_record(None::<&[u8]>)?;
        }
        writer.flush()
    }
}

const NUMBERS: [&str; 8] = [
    "published",
    "simulated",
    "published_effect_pct",
    "simulated_effect_pct",
    "ci_low_pct",
    "ci_high_pct",
    "range_low_pct",
    "range_high_pct",
];

const AFTER_NUMBERS: [&str; 12] = [
    "calibrated_set",
    "points_accepted",
    "points_measured",
    "role",
    "unit",
    "n",
    "first_seed",
    "values",
    "scheduler",
    "guest_schedulers",
    "scenario_hash",
    "version",
];

fn numbers(cell: &Cell) -> [Option<f64>; NUMBERS.len()] {
    [
        cell.published,
        Some(cell.simulated),
        cell.published_effect_pct,
        cell.simulated_effect_pct,
        cell.ci_low_pct,
        cell.ci_high_pct,
        cell.range_low_pct,
        cell.range_high_pct,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;
    use crate::results::{CellRuns, Key, RangeBasis};

    fn written(results: &[ExperimentResults]) -> String {
        let mut out = Vec::new();
        Csv.write(results, &mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn keys_become_columns_and_text_is_quoted() {
        let mut results = fixture::empty();
        let mut cell = fixture::effect(14.0, 12.0, 1.0);
        cell.variant = "say \"hi\", twice".to_owned();
        let other =
            Cell { cell: [("load".to_owned(), Key::Number(90))].into(), simulated: f64::NAN, ..cell.clone() };
        cell.basis = RangeBasis {
            calibrated_set: Some(SetWord::Complete),
            points_accepted: Some(72),
            points_measured: Some(4),
            doubt_pct: None,
        };
        cell.runs = CellRuns {
            version: "1.2.3",
            scheduler: "linux 6.12".to_owned(),
            scenario_hash: Some("0123456789abcdef".to_owned()),
            n: 2,
            seeds: vec![7, 8],
            values: vec![112.0, 112.5],
            ..CellRuns::default()
        };
        results.cells = vec![cell, other];
        assert_eq!(
            written(&[results]),
            "experiment,benchmark,load,vms,metric,baseline,variant,published,simulated,published_effect_pct,\
             simulated_effect_pct,ci_low_pct,ci_high_pct,range_low_pct,range_high_pct,calibrated_set,\
             points_accepted,points_measured,role,unit,n,first_seed,values,scheduler,guest_schedulers,scenario_hash,\
             version\r\n\
             made-up,sums,,2,throughput,plain,\"say \"\"hi\"\", twice\",114,112,14,12,11,13,,,complete,72,4,predicted,\
             1/s,2,7,112 112.5,linux 6.12,,0123456789abcdef,1.2.3\r\n\
             made-up,,90,,throughput,plain,\"say \"\"hi\"\", twice\",114,,14,12,11,13,,,,,,predicted,1/s,0,,,,,,\r\n"
        );
    }

    #[test]
    fn without_cells_only_the_header() {
        assert_eq!(written(&[]).lines().count(), 1);
    }
}
