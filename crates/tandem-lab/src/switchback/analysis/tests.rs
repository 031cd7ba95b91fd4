//! Verdicts, harm and winners of trials whose values are known.

use super::super::record::tests::{block, trial};
use super::super::record::{Event, Failure};
use super::*;
use proptest::prelude::*;

/// All blocks of a trial, with these values for arm and place.
fn history(trial: &Trial, value: impl Fn(usize, usize) -> f64) -> History {
    let events = (0..trial.plan.blocks()).map(|at| Event::Block(block(trial, at, |arm| value(arm, at))));
    History { events: events.collect() }
}

/// A little that differs from block to block.
fn noise(at: usize) -> f64 {
    ((at * 7) % 5) as f64 / 10.0
}

fn verdicts(trial: &Trial, history: &History) -> Vec<Verdict> {
    compare(trial, history, 5.0).iter().map(|comparison| comparison.verdict).collect()
}

#[test]
fn verdicts_follow_the_interval() {
    let trial = trial(&["kernel", "tandem"], 8, 3);
    let with = |arm_adds: f64, noisy: f64| {
        verdicts(&trial, &history(&trial, |arm, at| 100.0 + arm as f64 * arm_adds + noisy * noise(at)))
    };
    assert_eq!(with(20.0, 1.0), [Verdict::Worse]);
    assert_eq!(with(-20.0, 1.0), [Verdict::Better]);
    assert!(matches!(with(0.0, 1.0)[0], Verdict::NoDifference { beyond_pct } if beyond_pct < 1.0));
    assert!(matches!(with(0.0, 300.0)[0], Verdict::Undecided { blocks: Some(blocks) } if blocks > 32));
    let few = History { events: history(&trial, |_, _| 1.0).events[..4].to_vec() };
    assert_eq!(verdicts(&trial, &few), [Verdict::Undecided { blocks: None }]);
    assert_eq!(compare(&trial, &History { events: few.events[..3].to_vec() }, 5.0), []);
}

#[test]
fn what_has_no_direction_is_more_or_less_and_nothing_stays_nothing() {
    let trial = trial(&["kernel", "tandem"], 8, 3);
    let mut undirected = history(&trial, |arm, at| 100.0 + 10.0 * arm as f64 + noise(at));
    for event in &mut undirected.events {
        if let Event::Block(block) = event {
            block.values[0].better = None;
        }
    }
    assert_eq!(verdicts(&trial, &undirected), [Verdict::More]);
    let none = history(&trial, |_, _| 0.0);
    assert_eq!(verdicts(&trial, &none), [Verdict::NoDifference { beyond_pct: 0.0 }]);
}

#[test]
fn a_round_counts_if_all_its_blocks_have_the_measure() {
    let trial = trial(&["kernel", "tandem", "lavd"], 4, 1);
    let mut history = history(&trial, |arm, at| 10.0 + arm as f64 + noise(at));
    let order = trial.plan.order();
    let missing = (0..6).find(|&at| order[at] == 2).unwrap();
    if let Event::Block(block) = &mut history.events[missing] {
        block.values.clear();
    }
    let rounds: Vec<_> = compare(&trial, &history, 5.0).iter().map(|c| (c.arm.clone(), c.rounds)).collect();
    assert_eq!(rounds, [("tandem".to_owned(), 4), ("lavd".to_owned(), 3)]);
}

#[test]
fn a_carry_over_is_found_and_makes_the_interval_cover_the_second_halves() {
    let trial = trial(&["kernel", "tandem"], 8, 5);
    let with = |second_adds: f64| {
        let mut history = history(&trial, |_, at| 100.0 + noise(at));
        for event in &mut history.events {
            let Event::Block(block) = event else { continue };
            let value = &mut block.values[0];
            let effect = if block.arm == "kernel" { 0.0 } else { 10.0 };
            let jitter = noise(block.block * 3 + 1);
            let halves = (value.value + effect, value.value + effect * second_adds + jitter);
            value.halves = Some(halves);
            value.value = (halves.0 + halves.1) / 2.0;
        }
        compare(&trial, &history, 5.0).remove(0)
    };
    let settled = with(1.0);
    assert!(!settled.carry_over.unwrap().is_found);
    let changing = with(2.0);
    let carry_over = changing.carry_over.unwrap();
    assert!(carry_over.is_found);
    let second = carry_over.second.interval_pct.unwrap();
    let all = changing.effect.interval_pct.unwrap();
    assert!(all.0 <= second.0 && second.1 <= all.1 && all.0 < changing.effect.percent.unwrap());
}

#[test]
fn harm_is_found_before_the_end_and_not_twice() {
    let trial = trial(&["kernel", "tandem", "lavd"], 8, 2);
    let mut history = history(&trial, |arm, at| [10.0, 11.0, 40.0][arm] + noise(at));
    history.events.truncate(18);
    let harms = |history: &History| super::harms(&trial, history, 50.0);
    let found = harms(&history);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].arm, 2);
    assert_eq!(found[0].reason, "time is worse than under kernel by more than 50%");
    let failure = Failure { block: 17, arm: "lavd".into(), reason: String::new(), is_harm: true };
    history.events.push(Event::Failed(failure));
    assert_eq!(harms(&history), []);
}

#[test]
fn the_winner_is_better_and_in_nothing_worse() {
    let three = trial(&["kernel", "tandem", "lavd"], 8, 2);
    let winner = |history: &History| super::winner(&three, history, &compare(&three, history, 5.0));
    assert_eq!(winner(&history(&three, |arm, at| [10.0, 9.0, 8.0][arm] + noise(at) / 10.0)), Some(2));
    assert_eq!(winner(&history(&three, |arm, at| [10.0, 12.0, 13.0][arm] + noise(at) / 10.0)), Some(0));
    assert_eq!(winner(&history(&three, |arm, at| [10.0, 10.0, 13.0][arm] + noise(at) / 10.0)), None);
    let mut failed = history(&three, |arm, at| [10.0, 9.0, 8.0][arm] + noise(at) / 10.0);
    let failure = |arm: &str| Failure { block: 0, arm: arm.into(), reason: String::new(), is_harm: false };
    failed.events.push(Event::Failed(failure("lavd")));
    assert_eq!(winner(&failed), Some(1));
    failed.events.push(Event::Failed(failure("kernel")));
    assert_eq!(winner(&failed), None);
}

proptest! {
    #[test]
    fn the_order_in_which_arms_ran_does_not_matter_without_noise(seed: u64, ratio in 0.5f64..2.0, drift in 0.0f64..3.0) {
        let trial = trial(&["kernel", "tandem"], 6, seed);
        let history =
            history(&trial, |arm, at| (100.0 + drift * at as f64) * if arm == 1 { ratio } else { 1.0 });
        let comparison = compare(&trial, &history, 5.0).remove(0);
        let percent = comparison.effect.percent.unwrap();
        prop_assert!((percent - 100.0 * (ratio - 1.0)).abs() < 1e-6, "{percent}");
    }
}
