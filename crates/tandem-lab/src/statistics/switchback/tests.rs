//! Coverage of intervals, and errors of stopping, on simulated machines.

use super::*;
use crate::switchback::Plan;
use proptest::prelude::*;

/// Time constants: a block lasts 20, of which the first 5 are left out.
const BLOCK: f64 = 20.0;
const SETTLE: f64 = 5.0;

/// A repeatable source of values that are close to normal: the sum of twelve uniform ones.
struct Noise(u64);

impl Noise {
    fn draw(&mut self) -> f64 {
        let uniform = |_| {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..12).map(uniform).sum::<f64>() - 6.0
    }
}

/// What a block at a place has by itself.
type Drift = fn(f64) -> f64;

/// The course of a machine, and what its arms do.
#[derive(Clone, Copy)]
struct Machine {
    drift: Drift,
    /// Standard deviation of what each block adds, and how much of that stays in the next block.
    noise: f64,
    memory: f64,
    /// The arm has that many times what the baseline has.
    ratio: f64,
    /// How fast what the former arm did passes away after a change.
    carry_over: f64,
}

const STEADY: Machine = Machine { drift: |_| 100.0, noise: 5.0, memory: 0.0, ratio: 1.0, carry_over: 0.1 };

/// A block's value in the first half and in the second half of what is measured.
type Block = (f64, f64);

impl Machine {
    fn blocks(&self, order: &[usize], noise: &mut Noise) -> Vec<Block> {
        let mut level = noise.draw() * self.noise;
        // What acted at the end of the block before.
        let mut acting = 1.0;
        let mut blocks = Vec::new();
        for (at, &arm) in order.iter().enumerate() {
            level = self.memory * level + (1.0 - self.memory.powi(2)).sqrt() * self.noise * noise.draw();
            let target = if arm == 0 { 1.0 } else { self.ratio };
            let left = |time: f64| (-time / self.carry_over).exp();
            // The mean of an exponential between two times.
            let mean_left = |from: f64, to: f64| self.carry_over * (left(from) - left(to)) / (to - from);
            let middle = (SETTLE + BLOCK) / 2.0;
            let half = |from, to| {
                let own = (self.drift)(at as f64) + level;
                own * (target + (acting - target) * mean_left(from, to))
            };
            blocks.push((half(SETTLE, middle), half(middle, BLOCK)));
            acting = target + (acting - target) * left(BLOCK);
        }
        blocks
    }

    fn rounds(&self, rounds: usize, seed: u64, of: fn(Block) -> f64) -> Vec<Round> {
        let order = Plan { arms: 2, rounds, seed }.order();
        let blocks = self.blocks(&order, &mut Noise(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        let mean_of = |at: usize, arm| {
            let places = (at * 4..at * 4 + 4).filter(|&block| order[block] == arm);
            mean(places.map(|block| of(blocks[block]))).unwrap()
        };
        (0..rounds).map(|at| Round { baseline: mean_of(at, 0), arm: mean_of(at, 1) }).collect()
    }

    /// In how many of 100 trials the interval holds the true ratio.
    fn coverage(&self, rounds: usize) -> f64 {
        const TRIALS: u64 = 3_000;
        let truth = 100.0 * (self.ratio - 1.0);
        let covered = (0..TRIALS).filter(|&seed| {
            let rounds = self.rounds(rounds, seed + 1, whole);
            let (low, high) = effect(&rounds, CONFIDENCE).unwrap().interval_pct.unwrap();
            low <= truth && truth <= high
        });
        100.0 * covered.count() as f64 / TRIALS as f64
    }
}

fn whole((first, second): Block) -> f64 {
    (first + second) / 2.0
}

#[test]
fn intervals_hold_the_effect_95_times_in_100_whatever_the_machine_does_meanwhile() {
    let drifts: [(&str, Drift); 4] = [
        ("none", |_| 100.0),
        ("linear", |at| 60.0 + 2.5 * at),
        ("slow wave", |at| 100.0 + 25.0 * (at / 32.0 * std::f64::consts::TAU).sin()),
        ("wave of 7 blocks", wave_as_long_as_a_round),
    ];
    let mut coverages = Vec::new();
    for (name, drift) in drifts {
        for memory in [0.0, 0.6, 0.95] {
            for (ratio, carry_over) in [(1.0, 0.1), (0.7, 0.1), (1.5, SETTLE / 5.0)] {
                // A wave as long as a round needs more of them.
                for rounds in if name == "wave of 7 blocks" { [6, 12] } else { [4, 8] } {
                    let machine = Machine { drift, memory, ratio, carry_over, ..STEADY };
                    let setting = format!("{name}, {memory}, {ratio}, {carry_over}, {rounds}");
                    coverages.push((setting, machine.coverage(rounds)));
                }
            }
        }
    }
    let wrong: Vec<_> = coverages.iter().filter(|(_, coverage)| !(93.0..=97.0).contains(coverage)).collect();
    assert!(wrong.is_empty(), "drift, memory, ratio, carry-over, rounds: {wrong:?}");
}

fn wave_as_long_as_a_round(at: f64) -> f64 {
    100.0 + 8.0 * (at / 7.0 * std::f64::consts::TAU).sin()
}

#[test]
fn a_wave_as_long_as_a_round_is_too_much_for_four_rounds() {
    let coverage =
        |rounds| Machine { drift: wave_as_long_as_a_round, memory: 0.95, ..STEADY }.coverage(rounds);
    assert!((87.0..93.0).contains(&coverage(4)), "{}", coverage(4));
    assert!(coverage(8) > 93.0);
}

#[test]
fn a_linear_drift_alone_does_not_widen_the_interval() {
    let width = |drift| {
        let rounds = Machine { drift, ..STEADY }.rounds(8, 3, whole);
        let (low, high) = effect(&rounds, CONFIDENCE).unwrap().interval.unwrap();
        high - low
    };
    let (steady, drifting) = (width(|_| 100.0), width(|at| 100.0 + 20.0 * at));
    assert!((drifting / steady - 1.0).abs() < 1e-9, "{steady} {drifting}");
}

#[test]
fn a_trial_without_harm_beyond_the_bound_stops_in_at_most_5_of_100_cases() {
    const TRIALS: u64 = 2_000;
    let rounds = 8;
    let stops = |machine: Machine, better, bound| {
        let stopped = (0..TRIALS).filter(|&seed| {
            let all = machine.rounds(rounds, seed + 1, whole);
            let confidence = harm_confidence(looks(rounds), 1);
            (2..rounds).any(|seen| is_harmed(&all[..seen], better, bound, confidence))
        });
        100.0 * stopped.count() as f64 / TRIALS as f64
    };
    // The effect is as large as the bound allows: the worst case.
    let at_bound = Machine { ratio: 1.5, memory: 0.6, ..STEADY };
    assert!((0.5..5.0).contains(&stops(at_bound, Better::Lower, 50.0)));
    let at_bound = Machine { ratio: 0.5, memory: 0.6, ..STEADY };
    assert!((0.5..5.0).contains(&stops(at_bound, Better::Higher, 50.0)));
    assert_eq!(stops(STEADY, Better::Lower, 50.0), 0.0);
    // Without the correction it would stop more often than that.
    let naive = (0..TRIALS).filter(|&seed| {
        let all = Machine { ratio: 1.5, ..STEADY }.rounds(rounds, seed + 1, whole);
        (2..rounds).any(|seen| is_harmed(&all[..seen], Better::Lower, 50.0, 0.9))
    });
    assert!(naive.count() as u64 > TRIALS / 10);
    // Harm is found.
    assert!(stops(Machine { ratio: 3.0, ..STEADY }, Better::Lower, 50.0) > 99.0);
    assert!(stops(Machine { ratio: 0.2, ..STEADY }, Better::Higher, 50.0) > 99.0);
    assert_eq!(stops(Machine { ratio: 3.0, ..STEADY }, Better::Higher, 50.0), 0.0);
}

#[test]
fn the_effect_of_halves_shows_a_carry_over_and_nothing_else() {
    const TRIALS: u64 = 2_000;
    let found = |machine: Machine| {
        let found = (0..TRIALS).filter(|&seed| {
            let changes = machine.rounds(8, seed + 1, |(first, second)| first - second);
            let (low, high) = effect(&changes, 0.99).unwrap().interval.unwrap_or((0.0, 0.0));
            low > 0.0 || high < 0.0
        });
        100.0 * found.count() as f64 / TRIALS as f64
    };
    let drifting = Machine { drift: |at| 60.0 + 2.5 * at, memory: 0.6, ..STEADY };
    assert_eq!(found(drifting), 0.0, "halves of blocks do not differ here");
    assert!(found(Machine { ratio: 1.5, carry_over: BLOCK / 2.0, ..drifting }) > 90.0);
}

#[test]
fn effects_worked_by_hand() {
    let rounds = [(9.0, 10.0), (10.0, 12.0), (11.0, 14.0)].map(|(baseline, arm)| Round { baseline, arm });
    let found = effect(&rounds, CONFIDENCE).unwrap();
    // Differences 1, 2, 3: standard deviation 1, two degrees of freedom.
    let half = 4.302_653 / 3f64.sqrt();
    let (low, high) = found.interval.unwrap();
    assert!((low - (2.0 - half)).abs() < 1e-5 && (high - (2.0 + half)).abs() < 1e-5);
    assert!((found.percent.unwrap() - 20.0).abs() < 1e-9);
    assert_eq!(effect(&[], CONFIDENCE), None);
    let single = effect(&rounds[..1], CONFIDENCE).unwrap();
    assert_eq!((single.interval, single.interval_pct), (None, None));
    let none = [Round { baseline: 0.0, arm: 1.0 }, Round { baseline: 0.0, arm: 3.0 }];
    assert_eq!(effect(&none, CONFIDENCE).unwrap().percent, None);
    let alike = vec![Round { baseline: 4.0, arm: 3.0 }; EXACT_ROUNDS_MIN];
    assert_eq!(effect(&alike, CONFIDENCE).unwrap().interval_pct, Some((-25.0, -25.0)));
    assert_eq!(effect(&alike[1..], CONFIDENCE).unwrap().interval, None);
}

proptest! {
    #[test]
    fn the_ratio_is_told_from_1_exactly_when_the_difference_is_told_from_0(
        values in prop::collection::vec((50.0f64..150.0, 50.0f64..150.0), 3..12),
    ) {
        let rounds: Vec<_> = values.iter().map(|&(baseline, arm)| Round { baseline, arm }).collect();
        let found = effect(&rounds, CONFIDENCE).unwrap();
        let (low, high) = found.interval.unwrap();
        prop_assume!(low.abs() > 1e-6 && high.abs() > 1e-6);
        if let Some((low_pct, high_pct)) = found.interval_pct {
            prop_assert!(low_pct <= found.percent.unwrap() && found.percent.unwrap() <= high_pct);
            prop_assert_eq!((low > 0.0, high < 0.0), (low_pct > 0.0, high_pct < 0.0));
        }
    }

    #[test]
    fn the_ratio_does_not_depend_on_the_unit(
        values in prop::collection::vec((90.0f64..110.0, 90.0f64..110.0), 3..12), unit in 1e-3f64..1e3,
    ) {
        let rounds = |unit: f64| -> Vec<_> {
            values.iter().map(|&(baseline, arm)| Round { baseline: baseline * unit, arm: arm * unit }).collect()
        };
        let (one, other) = (effect(&rounds(1.0), CONFIDENCE), effect(&rounds(unit), CONFIDENCE));
        let (one, other) = (one.unwrap().interval_pct.unwrap(), other.unwrap().interval_pct.unwrap());
        prop_assert!((one.0 - other.0).abs() < 1e-6 && (one.1 - other.1).abs() < 1e-6);
    }

    #[test]
    fn more_looks_and_more_measures_ask_for_more_confidence(looks in 1usize..50, measures in 1usize..50) {
        let confidence = harm_confidence(looks, measures);
        prop_assert!((0.9..1.0).contains(&confidence));
        prop_assert!(confidence < harm_confidence(looks + 1, measures));
        prop_assert!(confidence < harm_confidence(looks, measures + 1));
    }
}
