//! What a trial has recorded.

use crate::statistics::switchback::Better;
use crate::switchback::Plan;
use serde::{Deserialize, Serialize};

/// What a trial does, all of which must be the same when it goes on after an interruption.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// How many rounds, and in which order.
    pub plan: Plan,
    /// The arms; the first is the baseline.
    pub arms: Vec<ArmRecord>,
    /// Length of a block, ns.
    pub block_ns: u64,
    /// How much of its beginning is left out, ns.
    pub settle_ns: u64,
    /// The command whose values are compared.
    pub metric: Option<String>,
    /// What its values say, unless a line of it says something else.
    pub better: Better,
}

/// An arm of a trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmRecord {
    /// Its name.
    pub name: String,
    /// The command that loads its scheduler, to be shown; none for the kernel's own.
    pub command: Option<String>,
}

/// What happened in a trial, in the order in which it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Event {
    /// A block was complete.
    Block(BlockRecord),
    /// An arm has failed, and has no more blocks.
    Failed(Failure),
}

/// A complete block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockRecord {
    /// Its place in the plan, from 0.
    pub block: usize,
    /// The name of its arm.
    pub arm: String,
    /// When its scheduler was loaded, seconds of Unix time.
    pub began_unix_s: u64,
    /// What was measured.
    pub values: Vec<Value>,
    /// What could not be measured: a sentence each.
    pub errors: Vec<String>,
}

/// A measure in a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Value {
    /// What it measures.
    pub measure: String,
    /// Its unit; may be empty.
    pub unit: String,
    /// Whether less or more of it is better; `None` if that depends.
    pub better: Option<Better>,
    /// Whether the trial is decided by it.
    pub is_decisive: bool,
    /// Its value over the block, without the beginning that is left out.
    pub value: f64,
    /// Its value in the first half of that time and in the second one, if it was measured so.
    pub halves: Option<(f64, f64)>,
}

/// Why an arm has no more blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    /// The block in which that became known.
    pub block: usize,
    /// The name of the arm.
    pub arm: String,
    /// Why: a sentence.
    pub reason: String,
    /// Whether it ran, but is worse than the baseline beyond the bound.
    pub is_harm: bool,
}

/// What has happened so far, and so which block comes next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// All events.
    pub events: Vec<Event>,
}

impl History {
    /// Complete blocks.
    pub fn blocks(&self) -> impl Iterator<Item = &BlockRecord> {
        self.events.iter().filter_map(|event| match event {
            Event::Block(block) => Some(block),
            Event::Failed(_) => None,
        })
    }

    /// Arms that have failed.
    pub fn failures(&self) -> impl Iterator<Item = &Failure> {
        self.events.iter().filter_map(|event| match event {
            Event::Failed(failure) => Some(failure),
            Event::Block(_) => None,
        })
    }

    /// How an arm has failed, if it has.
    pub fn failure(&self, arm: &str) -> Option<&Failure> {
        self.failures().find(|failure| failure.arm == arm)
    }

    /// The next block and its arm, of those that have not failed. `None` if all are complete, the baseline has
    /// failed, or no other arm is left.
    pub fn next(&self, trial: &Trial) -> Option<(usize, usize)> {
        if !self.has_arms(trial) {
            return None;
        }
        let first = self.blocks().map(|block| block.block + 1).max().unwrap_or(0);
        let mut order = trial.plan.order().into_iter().enumerate().skip(first);
        order.find(|&(_, arm)| self.is_left(trial, arm))
    }

    /// Whether the baseline and another arm have not failed.
    pub fn has_arms(&self, trial: &Trial) -> bool {
        self.is_left(trial, 0) && (1..trial.arms.len()).any(|arm| self.is_left(trial, arm))
    }

    fn is_left(&self, trial: &Trial, arm: usize) -> bool {
        self.failure(&trial.arms[arm].name).is_none()
    }
}

#[cfg(test)]
pub(in crate::switchback) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A trial of arms with these names.
    pub fn trial(names: &[&str], rounds: usize, seed: u64) -> Trial {
        let arm = |name: &&str| ArmRecord { name: (*name).to_owned(), command: None };
        Trial {
            plan: Plan { arms: names.len(), rounds, seed },
            arms: names.iter().map(arm).collect(),
            block_ns: 20_000_000_000,
            settle_ns: 5_000_000_000,
            metric: None,
            better: Better::Lower,
        }
    }

    /// A block of a trial with one measure, whose value depends on the arm.
    pub fn block(trial: &Trial, block: usize, value: impl Fn(usize) -> f64) -> BlockRecord {
        let arm = trial.plan.order()[block];
        let value = Value {
            measure: "time".into(),
            unit: "s".into(),
            better: Some(Better::Lower),
            is_decisive: true,
            value: value(arm),
            halves: None,
        };
        let arm = trial.arms[arm].name.clone();
        BlockRecord { block, arm, began_unix_s: 0, values: vec![value], errors: Vec::new() }
    }

    fn failure(block: usize, arm: &str) -> Event {
        Event::Failed(Failure { block, arm: arm.into(), reason: "it ended".into(), is_harm: false })
    }

    #[test]
    fn a_trial_without_a_baseline_or_without_another_arm_is_over() {
        let trial = trial(&["kernel", "tandem", "lavd"], 2, 1);
        let mut history = History::default();
        assert_eq!(history.next(&trial), Some((0, trial.plan.order()[0])));
        history.events.push(failure(0, "tandem"));
        let (_, arm) = history.next(&trial).unwrap();
        assert_ne!(trial.arms[arm].name, "tandem");
        let mut without_others = history.clone();
        without_others.events.push(failure(0, "lavd"));
        assert_eq!(without_others.next(&trial), None);
        history.events.push(failure(0, "kernel"));
        assert_eq!(history.next(&trial), None);
    }

    proptest! {
        #[test]
        fn every_block_of_arms_that_have_not_failed_runs_once_and_in_order(
            rounds in 1usize..6, seed: u64, fails_at in 0usize..30,
        ) {
            let trial = trial(&["kernel", "tandem", "lavd"], rounds, seed);
            let order = trial.plan.order();
            let mut history = History::default();
            let mut ran = Vec::new();
            while let Some((at, arm)) = history.next(&trial) {
                prop_assert_eq!(order[at], arm);
                if at >= fails_at && arm == 2 {
                    history.events.push(failure(at, "lavd"));
                } else {
                    history.events.push(Event::Block(block(&trial, at, |_| 1.0)));
                    ran.push(at);
                }
            }
            let expected: Vec<_> =
                (0..order.len()).filter(|&at| order[at] != 2 || at < fails_at).collect();
            prop_assert_eq!(ran, expected);
        }
    }
}
