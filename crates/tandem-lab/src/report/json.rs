//! JSON: an array of cells, one a line.

use super::{Format, number::rounded};
use crate::results::{Cell, CellRuns, ExperimentResults};
use std::io;

/// An array of the cells of all experiments; numbers with six digits, `null` for what is missing or not
/// finite.
pub struct Json;

impl Format for Json {
    fn name(&self) -> &'static str {
        "json"
    }

    fn extension(&self) -> &'static str {
        "json"
    }

    fn write(&self, results: &[ExperimentResults], out: &mut dyn io::Write) -> io::Result<()> {
        let mut before = "[\n";
        for cell in results.iter().flat_map(|experiment| &experiment.cells) {
            out.write_all(before.as_bytes())?;
            serde_json::to_writer(&mut *out, &with_rounded_numbers(cell))?;
            before = ",\n";
        }
        out.write_all(if before == "[\n" { b"[]\n" } else { b"\n]\n" })
    }
}

/// The cell as it is serialised, its numbers rounded.
fn with_rounded_numbers(cell: &Cell) -> Cell {
    let rounded_or_none = |number: Option<f64>| number.and_then(rounded);
    Cell {
        published: rounded_or_none(cell.published),
        // JSON has no number that is not finite; serde writes null instead.
        simulated: rounded(cell.simulated).unwrap_or(f64::NAN),
        published_effect_pct: rounded_or_none(cell.published_effect_pct),
        simulated_effect_pct: rounded_or_none(cell.simulated_effect_pct),
        ci_low_pct: rounded_or_none(cell.ci_low_pct),
        ci_high_pct: rounded_or_none(cell.ci_high_pct),
        range_low_pct: rounded_or_none(cell.range_low_pct),
        range_high_pct: rounded_or_none(cell.range_high_pct),
        runs: CellRuns {
            values: cell.runs.values.iter().map(|&value| rounded(value).unwrap_or(f64::NAN)).collect(),
            ..cell.runs.clone()
        },
        ..cell.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;
    use crate::results::{RangeBasis, SetWord};
    use serde_json::{Value, json};

    fn parsed(results: &[ExperimentResults]) -> Vec<Value> {
        let mut out = Vec::new();
        Json.write(results, &mut out).expect("a vector takes everything");
        serde_json::from_slice(&out).expect("JSON")
    }

    #[test]
    fn a_cell_has_the_documented_fields() {
        let mut results = fixture::empty();
        let runs = CellRuns {
            version: "1.2.3",
            scheduler: "linux 6.12".to_owned(),
            guest_schedulers: vec!["linux 4.2".to_owned()],
            scenario_hash: Some("0123456789abcdef".to_owned()),
            n: 2,
            seeds: vec![1, u64::MAX],
            values: vec![112.0, 112.691_357_8],
            trace_hashes: vec!["00000000000000aa".to_owned(), "00000000000000bb".to_owned()],
        };
        results.cells =
            vec![Cell { precision_pct: Some(1.0), runs, ..fixture::effect(14.0, 12.345_678_9, 1.0) }];
        let expected = json!([{
            "experiment": "made-up", "cell": {"benchmark": "sums", "vms": 2}, "metric": "throughput",
            "baseline": "plain", "variant": "better", "published": 114.0, "simulated": 112.346,
            "published_effect_pct": 14.0, "simulated_effect_pct": 12.3457,
            "ci_low_pct": 11.3457, "ci_high_pct": 13.3457,
            "range_low_pct": null, "range_high_pct": null,
            "calibrated_set": null, "points_accepted": null, "points_measured": null, "role": "predicted",
            "better": "higher", "unit": "1/s", "precision_pct": 1.0, "version": "1.2.3",
            "scheduler": "linux 6.12", "guest_schedulers": ["linux 4.2"], "scenario_hash": "0123456789abcdef",
            "n": 2, "seeds": [1, u64::MAX], "values": [112.0, 112.691],
            "trace_hashes": ["00000000000000aa", "00000000000000bb"],
        }]);
        assert_eq!(Value::from(parsed(std::slice::from_ref(&results))), expected);

        let (points_accepted, points_measured) = (Some(72), Some(4));
        let calibrated_set = Some(SetWord::Interrupted);
        results.cells[0].basis =
            RangeBasis { calibrated_set, points_accepted, points_measured, doubt_pct: Some(RangeBasis::ANY) };
        let cell = &parsed(&[results])[0];
        let fields = ["calibrated_set", "points_accepted", "points_measured"].map(|name| cell[name].clone());
        assert_eq!(fields, [json!("interrupted"), json!(72), json!(4)]);
    }

    #[test]
    fn what_is_not_finite_is_null() {
        let cells = parsed(&[fixture::odd()]);
        assert!(cells.iter().any(|cell| cell["simulated"].is_null()));
        assert!(cells.iter().any(|cell| cell["simulated_effect_pct"].is_null()));
    }

    #[test]
    fn every_cell_is_there() {
        let all = fixture::all();
        assert_eq!(parsed(&all).len(), all.iter().map(|experiment| experiment.cells.len()).sum::<usize>());
        assert!(parsed(&[]).is_empty());
    }
}
