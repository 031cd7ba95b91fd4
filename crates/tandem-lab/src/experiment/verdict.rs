//! How well the effects that were predicted agree with the published ones.
//!
//! A *predicted effect* is that of a variant other than the baseline. It is *beyond noise* if its published
//! magnitude is at least [`NOISE_PCT`]: below that, benchmarks like the published ones do not tell a sign. Its
//! sign is right if the simulated effect has the same. Its error is simulated minus published effect, in points.

use super::file::TargetTable;
use crate::results::{Cell, Verdict};
use crate::statistics::median;

/// Least magnitude of a published effect whose sign means something, in points.
pub const NOISE_PCT: f64 = 1.0;

/// The median absolute error that every experiment aims to stay within, in points.
const MEDIAN_ERROR_TARGET_PCT: f64 = 3.0;

/// The verdict on an experiment's cells, by its own targets and those that hold for every experiment.
pub fn verdict(cells: &[Cell], targets: &[TargetTable]) -> Verdict {
    let effects: Vec<(f64, f64)> = cells
        .iter()
        .filter(|cell| cell.variant != cell.baseline)
        .filter_map(|cell| cell.published_effect_pct.zip(cell.simulated_effect_pct))
        .collect();
    let errors: Vec<f64> =
        effects.iter().map(|(published, simulated)| (simulated - published).abs()).collect();
    let beyond: Vec<_> = effects.iter().filter(|(published, _)| published.abs() >= NOISE_PCT).collect();
    let sign_right = beyond.iter().filter(|(published, simulated)| published * simulated > 0.0).count();
    let median_abs_error_pct = median(&errors);

    let mut sentences = Vec::new();
    if !beyond.is_empty() {
        let text = format!(
            "sign of every predicted effect of {NOISE_PCT} point or more: {sign_right} of {} right",
            beyond.len()
        );
        sentences.push((text, sign_right == beyond.len()));
    }
    if let Some(error) = median_abs_error_pct {
        let text = format!(
            "median absolute error of predicted effects: {error:.1} points, at most {MEDIAN_ERROR_TARGET_PCT} wanted"
        );
        sentences.push((text, error <= MEDIAN_ERROR_TARGET_PCT));
    }
    sentences.extend(targets.iter().map(|target| check(target, cells)));
    Verdict {
        predicted: effects.len(),
        beyond_noise: beyond.len(),
        sign_right,
        median_abs_error_pct,
        max_abs_error_pct: errors.into_iter().max_by(f64::total_cmp),
        targets: sentences,
    }
}

/// The target as a sentence, and whether it was met.
fn check(target: &TargetTable, cells: &[Cell]) -> (String, bool) {
    let is_meant = |cell: &&Cell| {
        cell.cell == target.cell && cell.metric == target.metric && cell.variant == target.variant
    };
    let effect = cells.iter().find(is_meant).and_then(|cell| cell.simulated_effect_pct);
    let wanted = format!("{}% ± {} wanted", signed(target.effect_pct), target.within_pct);
    match effect {
        None => (format!("{}: not run, {wanted}", *target.text), false),
        Some(effect) => {
            let met = (effect - target.effect_pct).abs() <= target.within_pct;
            let rounded = (10.0 * effect).round() / 10.0;
            (format!("{}: {}%, {wanted}", *target.text, signed(rounded)), met)
        }
    }
}

/// The number with its sign, which zero has none of.
fn signed(number: f64) -> String {
    if number == 0.0 { "0".into() } else { format!("{number:+}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Better, Role};

    fn cell(variant: &str, published: Option<f64>, simulated: f64) -> Cell {
        Cell {
            experiment: "e".into(),
            cell: Default::default(),
            metric: "throughput".into(),
            baseline: "base".into(),
            variant: variant.into(),
            published: None,
            simulated: 1.0,
            published_effect_pct: published,
            simulated_effect_pct: Some(simulated),
            ci_low_pct: None,
            ci_high_pct: None,
            role: Role::Predicted,
            better: Better::Higher,
            unit: String::new(),
        }
    }

    fn target(text: &str) -> Vec<TargetTable> {
        #[derive(serde::Deserialize)]
        struct File {
            target: Vec<TargetTable>,
        }
        toml::from_str::<File>(&format!("[[target]]\n{text}")).unwrap().target
    }

    #[test]
    fn counts_signs_beyond_noise_and_measures_errors() {
        let cells = [
            cell("base", Some(5.0), -5.0),
            cell("a", Some(10.0), 12.0),
            cell("b", Some(-4.0), 0.5),
            cell("c", Some(0.9), -0.1),
            cell("d", None, 30.0),
        ];
        let verdict = verdict(&cells, &[]);
        assert_eq!((verdict.predicted, verdict.beyond_noise, verdict.sign_right), (3, 2, 1));
        assert_eq!(verdict.median_abs_error_pct, Some(2.0));
        assert_eq!(verdict.max_abs_error_pct, Some(4.5));
        let met: Vec<_> = verdict.targets.iter().map(|(_, met)| *met).collect();
        assert_eq!(met, [false, true]);
    }

    #[test]
    fn targets_tell_the_numbers() {
        let cells = [cell("src", None, 11.26)];
        let rest = "cell = {}\nmetric = \"throughput\"\neffect_pct = 14\nwithin_pct = 3";
        let targets = target(&format!("text = \"SRC at the peak\"\nvariant = \"src\"\n{rest}"));
        let expected = ("SRC at the peak: +11.3%, +14% ± 3 wanted".to_owned(), true);
        assert_eq!(verdict(&cells, &targets).targets, [expected]);
        let targets = target(&format!("text = \"Other\"\nvariant = \"other\"\n{rest}"));
        assert_eq!(
            verdict(&cells, &targets).targets,
            [("Other: not run, +14% ± 3 wanted".to_owned(), false)]
        );
    }
}
