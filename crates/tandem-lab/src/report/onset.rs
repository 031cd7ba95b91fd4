//! At which load a variant starts to matter.
//!
//! This is the lowest load of a sweep at which its effect is beyond chance, by its interval, and at least
//! [`NOISE_PCT`] in magnitude: with enough replications, even a negligible effect is beyond chance. Only
//! metrics with a published effect are examined, and only sweeps along one number.

use super::groups::{Group, distinct, number_of};
use super::outcome::beyond_chance;
use crate::experiment::NOISE_PCT;
use crate::results::Cell;

/// The loads at which the variants of a sweep start to matter, in words; `None` if the group is no such
/// sweep.
pub fn onset(group: &Group) -> Option<String> {
    let key = group.sweep_key().filter(|_| group.is_compared && group.number_keys.len() == 1)?;
    let treatments = || group.cells.iter().filter(|cell| cell.variant != cell.baseline);
    // Without intervals, as when each load was run once, nothing is known to be beyond chance.
    treatments().find(|cell| cell.ci_low_pct.is_some())?;
    let first = |variant: &str| {
        let of_variant = treatments().filter(|cell| cell.variant == variant && matters(cell));
        of_variant.filter_map(|cell| number_of(cell, key)).min()
    };
    let variants = distinct(treatments().map(|cell| cell.variant.as_str()));
    let mut onsets: Vec<(Option<i64>, Vec<&str>)> = Vec::new();
    for variant in variants {
        let load = first(variant);
        match onsets.iter_mut().find(|(other, _)| *other == load) {
            Some((_, variants)) => variants.push(variant),
            None => onsets.push((load, vec![variant])),
        }
    }
    // By load; variants without an onset come last.
    onsets.sort_by_key(|(load, _)| (load.is_none(), *load));
    let words = onsets.into_iter().map(|(load, variants)| match load {
        Some(load) => format!("at {key} = {load}: {}", variants.join(", ")),
        None => format!("nowhere: {}", variants.join(", ")),
    });
    let words: Vec<_> = words.collect();
    (!words.is_empty()).then(|| format!("starts to matter {}", words.join("; ")))
}

fn matters(cell: &Cell) -> bool {
    beyond_chance(cell) && cell.simulated_effect_pct.is_some_and(|effect| effect.abs() >= NOISE_PCT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{fixture, groups::groups};
    use crate::results::Key;

    /// Effects and half widths of their intervals at loads 1, 2, 3.
    fn sweep(variant: &str, effects: [(f64, f64); 3]) -> Vec<Cell> {
        let cell = |(load, (effect, half_width))| Cell {
            cell: [("load".to_owned(), Key::Number(load))].into(),
            variant: variant.to_owned(),
            published: None,
            published_effect_pct: None,
            ..fixture::effect(0.0, effect, half_width)
        };
        (1..).zip(effects).map(cell).collect()
    }

    #[test]
    fn an_effect_that_is_small_or_within_chance_does_not_matter() {
        let mut cells = sweep("small at first", [(0.9, 0.1), (-1.5, 0.1), (9.0, 0.1)]);
        cells.extend(sweep("noisy at first", [(5.0, 6.0), (5.0, 1.0), (5.0, 1.0)]));
        cells.extend(sweep("large", [(5.0, 1.0), (0.0, 1.0), (0.0, 1.0)]));
        cells.extend(sweep("never", [(0.0, 1.0); 3]));
        assert_eq!(onset(&groups(&cells)[0]), None, "nothing is published");
        // At another load, beside the sweep.
        cells.push(fixture::effect(14.0, 14.0, 1.0));
        assert_eq!(
            onset(&groups(&cells)[0]).unwrap(),
            "starts to matter at load = 1: large; at load = 2: small at first, noisy at first; nowhere: never"
        );
        let run_once = cells.into_iter().map(|cell| Cell { ci_low_pct: None, ci_high_pct: None, ..cell });
        assert_eq!(onset(&groups(&run_once.collect::<Vec<_>>())[0]), None);
    }
}
