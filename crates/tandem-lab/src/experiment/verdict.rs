//! How well the effects that were predicted agree with the published ones.
//!
//! A *predicted effect* is that of a variant other than the baseline, on which nothing was calibrated and
//! which does not sum up others that count. A published effect is *beyond noise* if its magnitude is at least
//! the noise of its cell: twice the published standard deviation, or else the experiment's `noise_pct`, by
//! default [`NOISE_PCT`](super::NOISE_PCT). Below that, benchmarks like the published ones cannot determine
//! the sign. A simulated effect is *beyond chance* if its 95% interval leaves out zero; where calibration
//! says what the baseline leaves open, the interval must do so at every point of that set. Its sign is then
//! right if the published effect has the same, and it is open otherwise. The error of an effect is simulated
//! minus published, in points.
//!
//! Targets are met if they are wherever in their intervals and ranges the effects are, missed if they are not
//! wherever they are, and open otherwise. Where a calibration has no complete set of points that meet the
//! baseline, any effect is possible. Limits: intervals and ranges count one by one, as if all effects could
//! be at the same ends at once; for errors they do not count, unless any effect is possible; without either
//! the effects alone decide.

use super::file::{AccuracyError, AccuracyTable, ExperimentFile, OrderTable, TargetTable};
use crate::published::has_all;
use crate::results::{Cell, Key, Role, Target, Verdict};
use crate::statistics::median;

/// The median absolute error that an experiment aims to stay within by default, in points.
const MEDIAN_ERROR_TARGET_PCT: f64 = 3.0;

/// The verdict on an experiment's cells, by the targets of its file.
pub fn verdict(cells: &[Cell], file: &ExperimentFile) -> Verdict {
    let is_predicted = |cell: &&Cell| cell.role == Role::Predicted && errors([*cell]).next().is_some();
    let predicted: Vec<&Cell> = cells.iter().filter(is_predicted).collect();
    let errors: Vec<f64> = errors(predicted.iter().copied()).collect();
    let is_beyond = |cell: &&&Cell| cell.published_effect_pct.is_some_and(|e| e.abs() >= cell.noise_pct);
    let signs: Vec<Target> = predicted.iter().filter(is_beyond).map(|cell| sign(cell)).collect();
    let (beyond_noise, count) = (signs.len(), |of| signs.iter().filter(|&&sign| sign == of).count());
    let (sign_right, sign_open) = (count(Target::Met), count(Target::Open));
    let median_abs_error_pct = median(&errors);

    let mut sentences = Vec::new();
    if beyond_noise > 0 {
        let share = if file.signs_right_pct < 100.0 {
            format!(" right, at least {}% wanted", file.signs_right_pct)
        } else {
            " right".into()
        };
        let open = match sign_open {
            0 => String::new(),
            open => format!(", {open} open"),
        };
        let text = format!(
            "sign of every predicted effect beyond noise: {sign_right} of {beyond_noise}{share}{open}"
        );
        let is_enough = |right: usize| 100.0 * right as f64 >= file.signs_right_pct * beyond_noise as f64;
        sentences.push((text, Target::between(is_enough(sign_right), is_enough(sign_right + sign_open))));
    }
    if file.accuracies.is_empty() {
        let text = "median absolute error of predicted effects";
        sentences.extend(error_sentence(text, &predicted, MEDIAN_ERROR_TARGET_PCT, median));
    }
    sentences.extend(file.accuracies.iter().flat_map(|accuracy| accuracy_sentences(accuracy, cells)));
    sentences.extend(file.targets.iter().map(|target| check(target, cells)));
    sentences.extend(file.orders.iter().map(|order| check_order(order, cells)));
    Verdict {
        predicted: predicted.len(),
        beyond_noise,
        sign_right,
        sign_open,
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

/// Whether the simulated effect has the sign of the published one.
fn sign(cell: &Cell) -> Target {
    let published = cell.published_effect_pct.unwrap_or(0.0);
    let ends = cell.effect_range_pct().map(|(low, high)| [low, high]).unwrap_or_default();
    let is_right = |end: f64| published * end > 0.0;
    Target::between(ends.into_iter().all(is_right), ends.into_iter().any(is_right))
}

/// A sentence for each set of cells that must be close enough by itself, and whether it is.
fn accuracy_sentences(accuracy: &AccuracyTable, cells: &[Cell]) -> Vec<(String, Target)> {
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
        let of_part: Vec<&Cell> =
            cells.iter().filter(is_meant).filter(|cell| part_of(cell) == part).collect();
        let which = match accuracy.error {
            AccuracyError::Median => "median",
            AccuracyError::Largest => "largest",
        };
        let of = |errors: &[f64]| match accuracy.error {
            AccuracyError::Median => median(errors),
            AccuracyError::Largest => errors.iter().copied().max_by(f64::total_cmp),
        };
        let part = part.map(|part| format!(", {part}")).unwrap_or_default();
        let text = format!("{}{part}: {which} absolute error", *accuracy.text);
        error_sentence(&text, &of_part, accuracy.within_pct, of)
    };
    parts.into_iter().filter_map(sentence).collect()
}

/// The error `of` the effects of cells as a sentence, and whether it is small enough.
fn error_sentence(
    text: &str,
    cells: &[&Cell],
    within_pct: f64,
    of: impl Fn(&[f64]) -> Option<f64>,
) -> Option<(String, Target)> {
    // With this error for the effects that nothing is known about.
    let with = |unknown: Option<f64>| {
        let error = |cell: &&Cell| {
            let error = errors([*cell]).next()?;
            Some(unknown.filter(|_| cell.basis.is_unknown()).unwrap_or(error))
        };
        of(&cells.iter().filter_map(error).collect::<Vec<_>>())
    };
    let error = with(None)?;
    let target = Target::between(with(Some(f64::INFINITY))? <= within_pct, with(Some(0.0))? <= within_pct);
    Some((format!("{text}: {error:.1} points, at most {within_pct} wanted"), target))
}

/// The target as a sentence, and whether it was met.
fn check(target: &TargetTable, cells: &[Cell]) -> (String, Target) {
    let is_meant = |cell: &&Cell| {
        cell.cell == target.cell && cell.metric == target.metric && cell.variant == target.variant
    };
    let cell = cells.iter().find(is_meant);
    let found = cell.and_then(|cell| Some((cell, cell.simulated_effect_pct?, cell.effect_range_pct()?)));
    let wanted = format!("{}% ± {} wanted", signed(target.effect_pct), target.within_pct);
    let Some((cell, effect, (lowest, highest))) = found else {
        return (format!("{}: not run, {wanted}", *target.text), Target::Missed);
    };
    let (least, most) = (target.effect_pct - target.within_pct, target.effect_pct + target.within_pct);
    let interval = match cell.ci_low_pct.zip(cell.ci_high_pct) {
        Some((low, high)) => format!(" [{}, {}]", rounded(low), rounded(high)),
        None => String::new(),
    };
    let range = match cell.open_range_pct() {
        _ if cell.basis.is_unknown() => ", no complete set".into(),
        Some((low, high)) => format!(", {}% to {}% over the set", rounded(low), rounded(high)),
        None => String::new(),
    };
    let text = format!("{}: {}%{interval}{range}, {wanted}", *target.text, rounded(effect));
    (text, Target::between(least <= lowest && highest <= most, lowest <= most && least <= highest))
}

/// A sentence with the number of loads at which the gains are in the order and the gains at the others, and
/// whether there are no others, by the intervals of the gains.
fn check_order(order: &OrderTable, cells: &[Cell]) -> (String, Target) {
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
    // The gain of a variant where it may be worst, or best, for the order.
    let holds_with = |is_worst: bool| {
        loads.iter().all(|(_, cells)| {
            let range = |name: &&str| {
                let cell = cells.iter().find(|cell| cell.variant == *name)?;
                cell.gain_range_pct()
            };
            let ranges: Option<Vec<(f64, f64)>> = names.iter().map(range).collect();
            ranges.is_some_and(|ranges| {
                ranges.is_sorted_by(|less, more| match is_worst {
                    true => less.1 < more.0,
                    false => less.0 < more.1,
                })
            })
        })
    };
    (text, Target::between(!loads.is_empty() && holds_with(true), !loads.is_empty() && holds_with(false)))
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
    use crate::results::{Better, RangeBasis, Role};

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
            range_low_pct: None,
            range_high_pct: None,
            basis: RangeBasis::default(),
            noise_pct: crate::experiment::NOISE_PCT,
            role: Role::Predicted,
            better: Better::Higher,
            unit: String::new(),
            precision_pct: None,
            runs: Default::default(),
        }
    }

    /// An experiment file with this text and nothing else.
    fn file(text: &str) -> ExperimentFile {
        file_with("", text)
    }

    /// An experiment file with this text before its tables and at its end.
    fn file_with(header: &str, text: &str) -> ExperimentFile {
        let rest = "title = ''\nstory = []\nsource = ''\nmodelled = []\nnot_modelled = []\nbaseline = 'base'\n\
            run = []\n";
        toml::from_str(&format!("{rest}{header}\n[variants]\n{text}")).unwrap()
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
        let targets: Vec<_> = verdict.targets.iter().map(|(_, target)| *target).collect();
        assert_eq!(targets, [Target::Missed, Target::Met]);
    }

    #[test]
    fn calibrated_and_composite_cells_do_not_count() {
        let cells = [Role::Predicted, Role::Calibrated, Role::Composite]
            .map(|role| Cell { role, ..cell("a", Some(10.0), 12.0) });
        let verdict = verdict(&cells, &file(""));
        assert_eq!((verdict.predicted, verdict.beyond_noise, verdict.sign_right), (1, 1, 1));
    }

    /// A cell with an interval.
    fn known(variant: &str, published: f64, (low, high): (f64, f64)) -> Cell {
        let (ci_low_pct, ci_high_pct) = (Some(low), Some(high));
        Cell { ci_low_pct, ci_high_pct, ..cell(variant, Some(published), (low + high) / 2.0) }
    }

    #[test]
    fn what_chance_decides_is_open() {
        let signs = |cells: &[Cell], wanted_pct: f64| {
            let file = file_with(&format!("signs_right_pct = {wanted_pct}"), "");
            let verdict = verdict(cells, &file);
            (verdict.sign_right, verdict.sign_open, verdict.targets[0].1)
        };
        let cells =
            [known("a", 5.0, (1.0, 9.0)), known("b", 5.0, (-1.0, 9.0)), known("c", 5.0, (-9.0, -1.0))];
        assert_eq!(signs(&cells, 30.0), (1, 1, Target::Met));
        assert_eq!(signs(&cells, 60.0), (1, 1, Target::Open));
        assert_eq!(signs(&cells, 90.0), (1, 1, Target::Missed));

        let text = "[[target]]\ntext = \"none\"\nvariant = \"a\"\ncell = {}\nmetric = \"throughput\"\n\
            effect_pct = 0\nwithin_pct = 2";
        for (interval, said, expected) in [
            ((-10.0, 9.0), "none: -0.5% [-10, +9], 0% ± 2 wanted", Target::Open),
            ((-1.0, 2.0), "none: +0.5% [-1, +2], 0% ± 2 wanted", Target::Met),
            ((2.5, 4.5), "none: +3.5% [+2.5, +4.5], 0% ± 2 wanted", Target::Missed),
        ] {
            let targets = verdict(&[known("a", 0.0, interval)], &file(text)).targets;
            assert_eq!(targets.last().unwrap(), &(said.to_owned(), expected));
        }

        let order = "[[order]]\ntext = \"more\"\nmetric = \"throughput\"\nover = \"load\"\n\
            variants = [\"a\", \"b\"]";
        for (a, b, expected) in [
            ((1.0, 3.0), (4.0, 6.0), Target::Met),
            ((1.0, 5.0), (4.0, 6.0), Target::Open),
            ((4.0, 6.0), (1.0, 3.0), Target::Missed),
        ] {
            let load: std::collections::BTreeMap<_, _> = [("load".to_owned(), Key::Number(1))].into();
            let cells = [known("a", 0.0, a), known("b", 0.0, b)].map(|it| Cell { cell: load.clone(), ..it });
            assert_eq!(verdict(&cells, &file(order)).targets.last().unwrap().1, expected, "{a:?} {b:?}");
        }
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
        let said = |text: &str, target| ((format!("score{text} points, at most 5 wanted")), target);
        assert_eq!(
            accuracy("error = \"median\"\neach = \"benchmark\""),
            [
                (half.clone(), Target::Missed),
                said(", a: median absolute error: 4.0", Target::Met),
                said(", b: median absolute error: 5.5", Target::Missed)
            ]
        );
        assert_eq!(
            accuracy("error = \"largest\"\nkeys = { benchmark = \"b\" }"),
            [(half, Target::Missed), said(": largest absolute error: 7.0", Target::Missed)]
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
            let file = file_with(&format!("{text}\nsigns_right_pct = 60"), "");
            let (sentence, target) = &verdict(&cells(&file), &file).targets[0];
            assert!(sentence.ends_with(said), "{sentence}");
            assert_eq!(*target == Target::Met, said.starts_with("2 of 3"));
        }
    }

    /// Without a set no verdict is more certain than with any.
    #[test]
    fn where_any_effect_is_possible_signs_and_targets_are_open() {
        let basis = RangeBasis { doubt_pct: Some(RangeBasis::ANY), ..RangeBasis::default() };
        let unknown = |variant, effect| Cell { basis, ..known(variant, 10.0, (effect - 1.0, effect + 1.0)) };
        let text = "[[accuracy]]\ntext = \"all\"\nmetric = \"throughput\"\nerror = \"largest\"\nwithin_pct = 5\n\
            [[target]]\ntext = \"none\"\nvariant = \"a\"\ncell = {}\nmetric = \"throughput\"\n\
            effect_pct = 10\nwithin_pct = 5";
        for effect in [10.0, -10.0, 30.0] {
            let verdict = verdict(&[unknown("a", effect)], &file(text));
            assert_eq!((verdict.sign_right, verdict.sign_open), (0, 1));
            assert!(verdict.targets.iter().all(|(_, target)| *target == Target::Open), "{verdict:?}");
        }
        // The median of three is known if two are.
        for (effect, expected) in [(11.0, Target::Met), (30.0, Target::Missed)] {
            let cells =
                [known("a", 10.0, (effect, effect)), known("b", 10.0, (effect, effect)), unknown("c", 10.0)];
            let (text, target) = &verdict(&cells, &file("")).targets[1];
            assert_eq!(*target, expected, "{text}");
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
        assert_eq!(said(1, all), [("more: base < a < b at 1 of 1 loads".to_owned(), Target::Met)]);
        let fails = "more: base < a < b at 1 of 3 loads; not at load 2: base 0%, a 0%, b +3%; \
            load 3: base 0%, a +1%, b unknown";
        assert_eq!(said(3, all), [(fails.to_owned(), Target::Missed)]);
        assert_eq!(said(1, "[\"base\", \"b\", \"a\"]")[0].1, Target::Missed);
        assert_eq!(
            said(0, all),
            [("more: base < a < b at 0 of 0 loads".to_owned(), Target::Missed)],
            "nothing was run"
        );
    }

    #[test]
    fn targets_tell_the_numbers() {
        let cells = [cell("src", None, 11.26)];
        let rest = "cell = {}\nmetric = \"throughput\"\neffect_pct = 14\nwithin_pct = 3";
        let file = |text: &str| file(&format!("[[target]]\n{text}"));
        let targets = file(&format!("text = \"SRC at the peak\"\nvariant = \"src\"\n{rest}"));
        let expected = ("SRC at the peak: +11.3%, +14% ± 3 wanted".to_owned(), Target::Met);
        assert_eq!(verdict(&cells, &targets).targets[..], [expected]);
        let targets = file(&format!("text = \"Other\"\nvariant = \"other\"\n{rest}"));
        assert_eq!(
            verdict(&cells, &targets).targets,
            [("Other: not run, +14% ± 3 wanted".to_owned(), Target::Missed)]
        );
    }
}
