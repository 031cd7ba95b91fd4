//! What the blocks of a trial say about its arms.
//!
//! **Carry-over.** An arm that still acts after its end, or needs longer than the settling time to have its
//! effect, makes the effect in the first halves of the blocks differ from that in the second halves. The
//! rounds give this difference with an interval as they give the effect. Where it excludes 0 at 99%, the
//! carry-over counts as found, and the interval of the effect covers that of the second halves as well.
//!
//! **Verdicts.** The interval decides: outside of 0 the arm is better or worse; around 0 and within the margin
//! there is no difference beyond its farther end; else the trial leaves it undecided.

use super::record::{BlockRecord, History, Trial, Value};
use crate::statistics::switchback::{
    ArmEffect, Better, CONFIDENCE, Interval, Round, effect, harm_confidence, is_harmed, looks,
};
use crate::statistics::{mean, pairs_for};
use serde::Serialize;
use std::collections::BTreeMap;

/// The confidence with which a carry-over is found, which has to be a surprise: most trials have many
/// measures.
const CARRY_OVER_CONFIDENCE: f64 = 0.99;

/// What a measure says of an arm, compared with the baseline.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// The name of the arm.
    pub arm: String,
    /// The measure: any of its values, for its name, unit and direction.
    pub measure: Value,
    /// How many rounds have it for both.
    pub rounds: usize,
    /// The effect; its intervals cover those of the second halves if a carry-over was found.
    pub effect: ArmEffect,
    /// What the halves of blocks say, if they were measured in at least two rounds.
    pub carry_over: Option<CarryOver>,
    /// What follows.
    pub verdict: Verdict,
}

/// The effect in the halves of blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CarryOver {
    /// Effect in the first halves.
    pub first: ArmEffect,
    /// Effect in the second halves.
    pub second: ArmEffect,
    /// Whether chance does not explain the difference of the two.
    pub is_found: bool,
}

/// What a comparison says.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The arm is better than the baseline.
    Better,
    /// It is worse.
    Worse,
    /// It has more, where it depends whether that is good.
    More,
    /// It has less.
    Less,
    /// There is no difference beyond so many percent.
    NoDifference {
        /// The farther end of the interval.
        beyond_pct: f64,
    },
    /// The interval is too wide.
    Undecided {
        /// About how many blocks of both arms together would make it as narrow as the margin, if that can be
        /// estimated.
        blocks: Option<usize>,
    },
}

/// Compares each arm with the baseline in each measure, in the order of the arms and in which measures were
/// recorded. Rounds that are not complete for both do not count.
pub fn compare(trial: &Trial, history: &History, margin_pct: f64) -> Vec<Comparison> {
    let blocks = Blocks::of(trial, history);
    let mut comparisons = Vec::new();
    for (arm, record) in trial.arms.iter().enumerate().skip(1) {
        for measure in blocks.measures() {
            let rounds = blocks.rounds(trial, arm, &measure.measure, |value| Some(value.value));
            let Some(mut effect_of_all) = effect(&rounds, CONFIDENCE) else { continue };
            let carry_over = carry_over(trial, &blocks, arm, &measure.measure);
            if let Some(CarryOver { second, is_found: true, .. }) = carry_over {
                effect_of_all.interval = hull(effect_of_all.interval, second.interval);
                effect_of_all.interval_pct = hull(effect_of_all.interval_pct, second.interval_pct);
            }
            comparisons.push(Comparison {
                arm: record.name.clone(),
                verdict: verdict(&effect_of_all, measure.better, rounds.len(), margin_pct),
                measure: measure.clone(),
                rounds: rounds.len(),
                effect: effect_of_all,
                carry_over,
            });
        }
    }
    comparisons
}

fn carry_over(trial: &Trial, blocks: &Blocks<'_>, arm: usize, measure: &str) -> Option<CarryOver> {
    let first = blocks.rounds(trial, arm, measure, |value| Some(value.halves?.0));
    let second = blocks.rounds(trial, arm, measure, |value| Some(value.halves?.1));
    let changes = blocks.rounds(trial, arm, measure, |value| Some(value.halves?.0 - value.halves?.1));
    let change = effect(&changes, CARRY_OVER_CONFIDENCE)?.interval?;
    Some(CarryOver {
        first: effect(&first, CONFIDENCE)?,
        second: effect(&second, CONFIDENCE)?,
        is_found: change.0 > 0.0 || change.1 < 0.0,
    })
}

/// The least interval that covers both; none if one of them is unbounded.
fn hull(one: Option<Interval>, other: Option<Interval>) -> Option<Interval> {
    let (one, other) = (one?, other?);
    Some((one.0.min(other.0), one.1.max(other.1)))
}

fn verdict(effect: &ArmEffect, better: Option<Better>, rounds: usize, margin_pct: f64) -> Verdict {
    let Some((low, high)) = effect.interval_pct.or(effect.interval) else {
        return Verdict::Undecided { blocks: None };
    };
    match (low > 0.0, high < 0.0, better) {
        (true, _, None) => Verdict::More,
        (_, true, None) => Verdict::Less,
        (true, _, Some(Better::Higher)) | (_, true, Some(Better::Lower)) => Verdict::Better,
        (true, ..) | (_, true, _) => Verdict::Worse,
        _ if effect.baseline == 0.0 && effect.arm == 0.0 => Verdict::NoDifference { beyond_pct: 0.0 },
        _ => match effect.interval_pct {
            Some((low, high)) if -low <= margin_pct && high <= margin_pct => {
                Verdict::NoDifference { beyond_pct: high.max(-low) }
            }
            // A round has two blocks of each of the two.
            Some(interval) => Verdict::Undecided {
                blocks: (margin_pct > 0.0).then(|| pairs_for(rounds, interval, margin_pct).saturating_mul(4)),
            },
            None => Verdict::Undecided { blocks: None },
        },
    }
}

/// An arm that is worse than the baseline beyond a bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Harm {
    /// The arm, as an index into the trial's.
    pub arm: usize,
    /// Why: a sentence.
    pub reason: String,
}

/// Arms that a decisive measure shows to be worse than the baseline by more than `bound_pct`. The probability
/// that a whole trial, which asks this after each of its rounds, has a wrong answer is 5% at most.
pub fn harms(trial: &Trial, history: &History, bound_pct: f64) -> Vec<Harm> {
    let blocks = Blocks::of(trial, history);
    let decisive: Vec<_> = blocks.measures().filter(|value| value.is_decisive).collect();
    let arms = trial.arms.len() - 1;
    let confidence = harm_confidence(looks(trial.plan.rounds), decisive.len() * arms);
    let mut harms = Vec::new();
    for arm in 1..trial.arms.len() {
        let name = &trial.arms[arm].name;
        if history.failure(name).is_some() {
            continue;
        }
        let harmed = decisive.iter().find(|measure| {
            let rounds = blocks.rounds(trial, arm, &measure.measure, |value| Some(value.value));
            measure.better.is_some_and(|better| is_harmed(&rounds, better, bound_pct, confidence))
        });
        if let Some(measure) = harmed {
            let reason = format!(
                "{} is worse than under {} by more than {bound_pct}%",
                measure.measure, trial.arms[0].name
            );
            harms.push(Harm { arm, reason });
        }
    }
    harms
}

/// The arm that wins by the decisive measures. Another arm wins if it is better than the baseline in one of
/// them, and worse in none; of several the one with the largest effect on the first of them. The baseline wins
/// if all others have failed, or are worse and not better.
pub fn winner(trial: &Trial, history: &History, comparisons: &[Comparison]) -> Option<usize> {
    if history.failure(&trial.arms[0].name).is_some() {
        return None;
    }
    let decisive = |arm: usize| {
        let name = &trial.arms[arm].name;
        comparisons.iter().filter(move |comparison| comparison.arm == *name && comparison.measure.is_decisive)
    };
    let has = |arm, verdict| decisive(arm).any(|comparison| comparison.verdict == verdict);
    let failed = |arm: usize| history.failure(&trial.arms[arm].name).is_some();
    let gain = |arm: usize| {
        let first = decisive(arm).next()?;
        let percent = first.effect.percent?;
        Some(if first.measure.better == Some(Better::Higher) { percent } else { -percent })
    };
    let others = 1..trial.arms.len();
    let better =
        others.clone().filter(|&arm| !failed(arm) && has(arm, Verdict::Better) && !has(arm, Verdict::Worse));
    let best = better.max_by(|&a, &b| gain(a).unwrap_or(0.0).total_cmp(&gain(b).unwrap_or(0.0)));
    let mut others = others;
    let are_beaten = others.all(|arm| failed(arm) || has(arm, Verdict::Worse) && !has(arm, Verdict::Better));
    best.or_else(|| are_beaten.then_some(0))
}

/// The complete blocks of a trial, by their place in the plan.
struct Blocks<'a> {
    by_place: BTreeMap<usize, &'a BlockRecord>,
    order: Vec<usize>,
}

impl<'a> Blocks<'a> {
    fn of(trial: &Trial, history: &'a History) -> Self {
        let by_place = history.blocks().map(|block| (block.block, block)).collect();
        Self { by_place, order: trial.plan.order() }
    }

    /// A value of each measure, in the order in which they were recorded first; decisive ones come first.
    fn measures(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let mut measures: Vec<&Value> = Vec::new();
        for value in self.by_place.values().flat_map(|block| &block.values) {
            if !measures.iter().any(|known| known.measure == value.measure) {
                measures.push(value);
            }
        }
        measures.sort_by_key(|value| !value.is_decisive);
        measures.into_iter()
    }

    /// The rounds in which all blocks of the arm and of the baseline have the measure.
    fn rounds(
        &self,
        trial: &Trial,
        arm: usize,
        measure: &str,
        of: impl Fn(&Value) -> Option<f64>,
    ) -> Vec<Round> {
        let value = |block: usize| {
            let values = &self.by_place.get(&block)?.values;
            of(values.iter().find(|value| value.measure == measure)?)
        };
        let per_round = trial.plan.blocks_per_round();
        let mean_of = |round: usize, arm: usize| {
            let places =
                (round * per_round..(round + 1) * per_round).filter(|&block| self.order[block] == arm);
            mean(places.map(value).collect::<Option<Vec<_>>>()?)
        };
        let round = |round| Some(Round { baseline: mean_of(round, 0)?, arm: mean_of(round, arm)? });
        (0..trial.plan.rounds).filter_map(round).collect()
    }
}

#[cfg(test)]
mod tests;
