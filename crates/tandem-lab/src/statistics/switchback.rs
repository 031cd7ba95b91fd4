//! Effects between arms that take turns on one machine.
//!
//! **Problem.** A machine that is in use runs one scheduler at a time, so the arms of a trial are compared over
//! time. The load drifts, one block resembles the next, and an arm may still have an effect after its end.
//!
//! **Approach.** A *round* runs every arm twice: a random order, then the same order backwards. The two blocks
//! of each arm then have the same middle, so that a linear drift adds the same to all arms and cancels out in
//! every round. What is left of other drift and of noise changes its sign when two arms change their places,
//! which chance decides for each round anew. So, given the machine's course, the differences of the rounds are
//! independent and symmetric around the effect, however strongly the blocks depend on each other: Student's t
//! of the rounds' differences needs no model of the serial correlation. Randomisation as the ground for it is
//! R. A. Fisher's (*The Design of Experiments*, 1935); that t stays conservative where rounds vary differently
//! is a result of N. K. Bakirov and G. J. Szekely (*Zapiski Nauchnykh Seminarov POMI* 328, 2005).
//!
//! Loads multiply more often than they add, so the effect is a ratio as well. Its interval holds the ratios
//! `R` for which the differences `arm - R x baseline` have a mean that t does not tell from 0 (E. C. Fieller,
//! *Journal of the Royal Statistical Society B* 16, 1954). It excludes 1 exactly when the interval of the
//! differences excludes 0, and it is unbounded where the baseline cannot be told from 0.
//!
//! A trial that may stop after each round has as many chances to stop wrongly. [`harm_confidence`] divides the
//! error among all looks and measures (Bonferroni), which holds for whatever dependence there is between them.
//!
//! **Limits.** Effects are taken to be the same in all rounds. Student's t is conservative where rounds vary
//! differently, and needs at least two rounds to say anything. With fewer than six it also needs what is left
//! of drift and noise to be about normal: of four equal disturbances, all help the same arm in one trial of
//! eight. A wave as long as a round, larger than the noise, is such a disturbance; a linear drift and one that
//! is slower than a round are not.

use super::{mean, t_quantile};

/// The confidence of the intervals that are reported.
pub const CONFIDENCE: f64 = 0.95;
/// A trial that an arm does not harm beyond the bound stops with at most this probability.
const FALSE_STOPS_MAX: f64 = 0.05;
/// Rounds that must agree in the last digit to count as an exact result: by chance alone, an effect has the
/// same sign in all of six rounds in 2 of 64 cases.
const EXACT_ROUNDS_MIN: usize = 6;

/// The mean of a measure in the blocks of a round: of the baseline and of another arm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    /// Mean over the baseline's blocks.
    pub baseline: f64,
    /// Mean over the arm's blocks.
    pub arm: f64,
}

/// Both ends of an interval.
pub type Interval = (f64, f64);

/// The effect of an arm against the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ArmEffect {
    /// Mean of the baseline, in the measure's unit.
    pub baseline: f64,
    /// Mean of the arm, in the measure's unit.
    pub arm: f64,
    /// Interval of the difference of the two, in the measure's unit; `None` if there are too few rounds.
    pub interval: Option<Interval>,
    /// (arm - baseline) / baseline x 100; `None` if the baseline is not positive.
    pub percent: Option<f64>,
    /// Its interval; `None` without `percent`, or if the baseline cannot be told from 0.
    pub interval_pct: Option<Interval>,
}

/// The effect in these rounds, with intervals of that confidence; `None` without rounds.
pub fn effect(rounds: &[Round], confidence: f64) -> Option<ArmEffect> {
    let baseline = mean(rounds.iter().map(|round| round.baseline))?;
    let arm = mean(rounds.iter().map(|round| round.arm))?;
    let is_ratio = baseline > 0.0 && rounds.iter().all(|round| round.baseline >= 0.0 && round.arm >= 0.0);
    let percent = is_ratio.then(|| 100.0 * (arm / baseline - 1.0));
    let varies = rounds.iter().any(|round| *round != rounds[0]);
    let (interval, interval_pct) = match (varies, rounds.len()) {
        (true, 2..) => {
            let spread = Spread::of(rounds, baseline, arm, confidence);
            (Some(spread.difference()), percent.and_then(|_| spread.ratio()))
        }
        (false, EXACT_ROUNDS_MIN..) => {
            (Some((arm - baseline, arm - baseline)), percent.map(|percent| (percent, percent)))
        }
        _ => (None, None),
    };
    Some(ArmEffect { baseline, arm, interval, percent, interval_pct })
}

/// Means of rounds, and how far chance may have moved them: squared standard errors times squared t.
struct Spread {
    baseline: f64,
    arm: f64,
    of_baseline: f64,
    of_arm: f64,
    of_both: f64,
}

impl Spread {
    fn of(rounds: &[Round], baseline: f64, arm: f64, confidence: f64) -> Self {
        let count = rounds.len() as f64;
        let scale = t_quantile(confidence, count - 1.0).powi(2) / (count * (count - 1.0));
        let sum = |product: fn(f64, f64) -> f64| {
            scale
                * rounds.iter().map(|round| product(round.baseline - baseline, round.arm - arm)).sum::<f64>()
        };
        Self {
            baseline,
            arm,
            of_baseline: sum(|b, _| b * b),
            of_arm: sum(|_, a| a * a),
            of_both: sum(|b, a| b * a),
        }
    }

    /// The interval of the difference.
    fn difference(&self) -> Interval {
        // Rounding may make it negative where it is 0.
        let half = (self.of_baseline - 2.0 * self.of_both + self.of_arm).max(0.0).sqrt();
        let middle = self.arm - self.baseline;
        (middle - half, middle + half)
    }

    /// The interval of the ratio, in percent above 1: the solutions of a quadratic inequality.
    fn ratio(&self) -> Option<Interval> {
        let square = self.baseline.powi(2) - self.of_baseline;
        if square <= 0.0 {
            return None;
        }
        let half_linear = self.baseline * self.arm - self.of_both;
        let constant = self.arm.powi(2) - self.of_arm;
        let root = (half_linear.powi(2) - square * constant).max(0.0).sqrt();
        let end = |root: f64| 100.0 * ((half_linear + root) / square - 1.0);
        Some((end(-root), end(root)))
    }
}

/// The confidence of the interval whose lower end may stop a trial, if it is looked at so many times, for each
/// of so many measures and arms.
pub fn harm_confidence(looks: usize, measures: usize) -> f64 {
    // One of the interval's two ends counts.
    1.0 - 2.0 * FALSE_STOPS_MAX / (looks.max(1) * measures.max(1)) as f64
}

/// How many looks a trial of so many rounds has: after each but the first and the last.
pub fn looks(rounds: usize) -> usize {
    rounds.saturating_sub(2)
}

/// Whether a value says that less is better, or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better, as for times.
    Lower,
    /// More is better, as for rates.
    Higher,
}

/// Whether an arm is worse than the baseline by more than `bound_pct`, at that confidence.
pub fn is_harmed(rounds: &[Round], better: Better, bound_pct: f64, confidence: f64) -> bool {
    let interval = effect(rounds, confidence).and_then(|effect| effect.interval_pct);
    interval.is_some_and(|(low, high)| match better {
        Better::Lower => low > bound_pct,
        Better::Higher => high < -bound_pct,
    })
}

#[cfg(test)]
mod tests;
