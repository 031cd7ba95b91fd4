//! How well the effects that were predicted agree with the published ones.
//!
//! A *predicted effect* is that of a variant other than the baseline. It is *beyond noise* if its published
//! magnitude is at least the noise of its cell: twice the published standard deviation, or else the
//! experiment's `noise_pct`, by default [`NOISE_PCT`](super::NOISE_PCT). Below that, benchmarks like the
//! published ones cannot determine the sign. Its sign is right if the simulated effect has the same. Its
//! error is simulated minus published effect, in points.

use super::file::{AccuracyError, AccuracyTable, ExperimentFile, OrderTable, TargetTable};
use crate::published::has_all;
use crate::results::{Cell, Key, Verdict};
use crate::statistics::median;

/// The median absolute error that an experiment aims to stay within by default, in points.
const MEDIAN_ERROR_TARGET_PCT: f64 = 3.0;

/// The verdict on an experiment's cells, by the targets of its file.
pub fn verdict(cells: &[Cell], file: &ExperimentFile) -> Verdict {
    let predicted: Vec<&Cell> = cells.iter().filter(|cell| errors([*cell]).next().is_some()).collect();
    let errors: Vec<f64> = errors(predicted.iter().copied()).collect();
    let beyond = || {
        predicted.iter().filter(|cell| cell.published_effect_pct.is_some_and(|e| e.abs() >= cell.noise_pct))
    };
    let beyond_noise = beyond().count();
    let sign_right = beyond().filter(|cell| has_right_sign(cell)).count();
    let median_abs_error_pct = median(&errors);

    let mut sentences = Vec::new();
    if beyond_noise > 0 {
        let share = if file.signs_right_pct < 100.0 {
            format!(" right, at least {}% wanted", file.signs_right_pct)
        } else {
            " right".into()
        };
        let text =
            format!("sign of every predicted effect beyond noise: {sign_right} of {beyond_noise}{share}");
        sentences.push((text, 100.0 * sign_right as f64 >= file.signs_right_pct * beyond_noise as f64));
    }
    if file.accuracies.is_empty() {
        sentences.extend(median_abs_error_pct.map(|error| {
            let text = "median absolute error of predicted effects";
            error_sentence(text, error, MEDIAN_ERROR_TARGET_PCT)
        }));
    }
    sentences.extend(file.accuracies.iter().flat_map(|accuracy| accuracy_sentences(accuracy, cells)));
    sentences.extend(file.targets.iter().map(|target| check(target, cells)));
    sentences.extend(file.orders.iter().map(|order| check_order(order, cells)));
    Verdict {
        predicted: predicted.len(),
        beyond_noise,
        sign_right,
        median_abs_error_pct,
        max_abs_error_pct: errors.into_iter().max_by(f64::total_cmp),
        targets: sentences,
    }
}

/// The absolute errors of those cells that are predicted effects with a published number.
fn errors<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> impl Iterator<Item = f64> {
    let effects = cells.into_iter().filter(|cell| cell.variant != cell.baseline);
    effects.filter_map(|cell| Some((cell.simulated_effect_pct? - cell.published_effect_pct?).abs()))
}

fn has_right_sign(cell: &Cell) -> bool {
    let effects = cell.published_effect_pct.zip(cell.simulated_effect_pct);
    effects.is_some_and(|(published, simulated)| published * simulated > 0.0)
}

/// A sentence for each set of cells that must be close enough by itself, and whether it is.
fn accuracy_sentences(accuracy: &AccuracyTable, cells: &[Cell]) -> Vec<(String, bool)> {
    let is_meant = |cell: &&Cell| cell.metric == accuracy.metric && has_all(&cell.cell, &accuracy.keys);
    let part_of = |cell: &Cell| accuracy.each.as_ref().and_then(|key| cell.cell.get(key).cloned());
    let mut parts: Vec<Option<Key>> = Vec::new();
    for cell in cells.iter().filter(is_meant) {
        let part = part_of(cell);
        if !parts.contains(&part) {
            parts.push(part);
        }
    }
    let sentence = |part: Option<Key>| {
        let errors: Vec<f64> =
            errors(cells.iter().filter(is_meant).filter(|cell| part_of(cell) == part)).collect();
        let (which, error) = match accuracy.error {
            AccuracyError::Median => ("median", median(&errors)?),
            AccuracyError::Largest => ("largest", errors.iter().copied().max_by(f64::total_cmp)?),
        };
        let part = part.map(|part| format!(", {part}")).unwrap_or_default();
        Some(error_sentence(
            &format!("{}{part}: {which} absolute error", *accuracy.text),
            error,
            accuracy.within_pct,
        ))
    };
    parts.into_iter().filter_map(sentence).collect()
}

fn error_sentence(text: &str, error: f64, within_pct: f64) -> (String, bool) {
    (format!("{text}: {error:.1} points, at most {within_pct} wanted"), error <= within_pct)
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
            (format!("{}: {}%, {wanted}", *target.text, rounded(effect)), met)
        }
    }
}

/// A sentence with the number of loads at which the gains are in the order and the gains at the others, and
/// whether there are no others.
fn check_order(order: &OrderTable, cells: &[Cell]) -> (String, bool) {
    let mut loads: Vec<(&Key, Vec<&Cell>)> = Vec::new();
    let is_meant = |cell: &&Cell| cell.metric == *order.metric && has_all(&cell.cell, &order.keys);
    for cell in cells.iter().filter(is_meant) {
        let Some(load) = cell.cell.get(&*order.over) else { continue };
        match loads.iter_mut().find(|(other, _)| *other == load) {
            Some((_, cells)) => cells.push(cell),
            None => loads.push((load, vec![cell])),
        }
    }
    let names: Vec<&str> = order.variants.iter().map(|name| name.as_str()).collect();
    let fails = loads.iter().filter_map(|(load, cells)| {
        let gain = |name: &&str| cells.iter().find(|cell| cell.variant == *name)?.gain_pct();
        let gains: Vec<Option<f64>> = names.iter().map(gain).collect();
        if gains.is_sorted_by(|a, b| a.is_some() && a < b) {
            return None;
        }
        let found = |(name, gain): (&&str, &Option<f64>)| {
            format!("{name} {}", gain.map_or("unknown".into(), |gain| rounded(gain) + "%"))
        };
        let found: Vec<String> = names.iter().zip(&gains).map(found).collect();
        Some(format!("{} {load}: {}", *order.over, found.join(", ")))
    });
    let fails: Vec<String> = fails.collect();
    let holds = loads.len() - fails.len();
    let said = if fails.is_empty() { String::new() } else { format!("; not at {}", fails.join("; ")) };
    let text = format!("{}: {} at {holds} of {} loads{said}", *order.text, names.join(" < "), loads.len());
    (text, fails.is_empty() && holds > 0)
}

/// The number with its sign and one decimal.
fn rounded(number: f64) -> String {
    signed((10.0 * number).round() / 10.0)
}

/// The number with its sign; zero has none.
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
            noise_pct: crate::experiment::NOISE_PCT,
            role: Role::Predicted,
            better: Better::Higher,
            unit: String::new(),
        }
    }

    /// An experiment file with this text and nothing else.
    fn file(text: &str) -> ExperimentFile {
        let rest = "title = ''\nstory = []\nsource = ''\nmodelled = []\nnot_modelled = []\nbaseline = 'base'\n\
            run = []\n[variants]\n";
        toml::from_str(&format!("{rest}{text}")).unwrap()
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
        let verdict = verdict(&cells, &file(""));
        assert_eq!((verdict.predicted, verdict.beyond_noise, verdict.sign_right), (3, 2, 1));
        assert_eq!(verdict.median_abs_error_pct, Some(2.0));
        assert_eq!(verdict.max_abs_error_pct, Some(4.5));
        let met: Vec<_> = verdict.targets.iter().map(|(_, met)| *met).collect();
        assert_eq!(met, [false, true]);
    }

    #[test]
    fn an_experiment_says_what_noise_is_and_how_close_is_close_enough() {
        let of = |benchmark: &str, cell: Cell| Cell {
            cell: [("benchmark".to_owned(), Key::Text(benchmark.into()))].into(),
            ..cell
        };
        let cells = [
            of("a", Cell { noise_pct: 5.0, ..cell("x", Some(4.0), -2.0) }),
            of("a", cell("x", Some(10.0), 12.0)),
            of("b", cell("x", Some(10.0), 17.0)),
            of("b", cell("x", Some(3.0), -1.0)),
        ];
        let accuracy = |rest: &str| {
            let text =
                format!("[[accuracy]]\ntext = \"score\"\nmetric = \"throughput\"\nwithin_pct = 5\n{rest}");
            verdict(&cells, &file(&text)).targets
        };
        let half = "sign of every predicted effect beyond noise: 2 of 3 right".to_owned();
        let said = |text: &str, met| ((format!("score{text} points, at most 5 wanted")), met);
        assert_eq!(
            accuracy("error = \"median\"\neach = \"benchmark\""),
            [
                (half.clone(), false),
                said(", a: median absolute error: 4.0", true),
                said(", b: median absolute error: 5.5", false)
            ]
        );
        assert_eq!(
            accuracy("error = \"largest\"\nkeys = { benchmark = \"b\" }"),
            [(half, false), said(": largest absolute error: 7.0", false)]
        );
    }

    #[test]
    fn what_is_noise_may_be_set_to_another_number() {
        let cells = |file: &ExperimentFile| {
            [cell("a", Some(1.5), 1.0), cell("b", Some(3.0), 1.0), cell("c", Some(-4.0), 1.0)]
                .map(|cell| Cell { noise_pct: file.noise_pct, ..cell })
        };
        for (text, said) in [
            ("", "2 of 3 right, at least 60% wanted"),
            ("noise_pct = 1", "2 of 3 right, at least 60% wanted"),
            ("noise_pct = 2", "1 of 2 right, at least 60% wanted"),
        ] {
            let header = format!("{text}\nsigns_right_pct = 60");
            let text = format!(
                "title = ''\nstory = []\nsource = ''\nmodelled = []\nnot_modelled = []\n\
                baseline = 'base'\nrun = []\n{header}\n[variants]\n"
            );
            let file: ExperimentFile = toml::from_str(&text).unwrap();
            let (sentence, met) = &verdict(&cells(&file), &file).targets[0];
            assert!(sentence.ends_with(said), "{sentence}");
            assert_eq!(*met, said.starts_with("2 of 3"));
        }
    }

    #[test]
    fn an_order_tells_where_it_fails() {
        let at = |load: i64, cell: Cell| Cell { cell: [("load".into(), Key::Number(load))].into(), ..cell };
        // Less is better: the effect of a gain is negative.
        let lower = |variant, effect| Cell { better: Better::Lower, ..cell(variant, None, effect) };
        let base = |load| at(load, Cell { simulated_effect_pct: None, ..lower("base", 0.0) });
        let cells = [
            base(1),
            at(1, lower("a", -1.0)),
            at(1, lower("b", -2.5)),
            base(2),
            at(2, lower("a", 0.04)),
            at(2, lower("b", -3.0)),
            base(3),
            at(3, lower("a", -1.0)),
            at(3, Cell { simulated_effect_pct: None, ..lower("b", 0.0) }),
        ];
        let order = |variants: &str| {
            file(&format!(
                "[[order]]\ntext = \"more\"\nmetric = \"throughput\"\nover = \"load\"\nvariants = {variants}"
            ))
        };
        let said = |loads: usize, variants: &str| verdict(&cells[..3 * loads], &order(variants)).targets;
        let all = "[\"base\", \"a\", \"b\"]";
        assert_eq!(said(1, all), [("more: base < a < b at 1 of 1 loads".to_owned(), true)]);
        let fails = "more: base < a < b at 1 of 3 loads; not at load 2: base 0%, a 0%, b +3%; \
            load 3: base 0%, a +1%, b unknown";
        assert_eq!(said(3, all), [(fails.to_owned(), false)]);
        assert!(!said(1, "[\"base\", \"b\", \"a\"]")[0].1);
        assert_eq!(
            said(0, all),
            [("more: base < a < b at 0 of 0 loads".to_owned(), false)],
            "nothing was run"
        );
    }

    #[test]
    fn targets_tell_the_numbers() {
        let cells = [cell("src", None, 11.26)];
        let rest = "cell = {}\nmetric = \"throughput\"\neffect_pct = 14\nwithin_pct = 3";
        let file = |text: &str| file(&format!("[[target]]\n{text}"));
        let targets = file(&format!("text = \"SRC at the peak\"\nvariant = \"src\"\n{rest}"));
        let expected = ("SRC at the peak: +11.3%, +14% ± 3 wanted".to_owned(), true);
        assert_eq!(verdict(&cells, &targets).targets[..], [expected]);
        let targets = file(&format!("text = \"Other\"\nvariant = \"other\"\n{rest}"));
        assert_eq!(
            verdict(&cells, &targets).targets,
            [("Other: not run, +14% ± 3 wanted".to_owned(), false)]
        );
    }
}
