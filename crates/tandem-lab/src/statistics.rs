//! Effects between paired runs, and their confidence intervals.
//!
//! **Problem.** A variant is compared with a baseline by a few runs of each. Runs differ by chance, and most
//! of that chance (when requests arrive, how long they take) affects both alike.
//!
//! **Approach.** Replication *r* of every variant has the same seed, so that the runs form pairs (common
//! random numbers). The effect is the ratio of the means, `(mean(variant) - mean(baseline)) /
//! mean(baseline)`, which a reader can compute from the means in the table. Its interval is that of the ratio
//! estimator (W. G. Cochran, *Sampling Techniques*, 3rd ed. 1977, section 6.4): with `R` the ratio of the
//! means, the residuals `variant - R x baseline` of the pairs have mean 0, their standard error over the mean
//! of the baseline is the standard error of `R`, and the interval follows Student's t with one degree of
//! freedom less than pairs.
//!
//! An interval that should be narrow needs more pairs, and how many is known only from pairs. To look at the
//! interval again and again and to stop when it is narrow makes it hold the effect too seldom: it is narrow
//! soonest where chance has made it so. So there are two stages (C. Stein, *Annals of Mathematical
//! Statistics* 16, 1945): the first gives the variance, from which [`pairs_for`] finds the number of pairs,
//! once; the effect is that of all pairs, its interval follows the variance of the first stage.
//!
//! **Limits.** The ratio estimator is biased by a term that falls with the number of pairs, and its interval
//! is too narrow if the baseline varies by a large part of its mean. One pair gives an effect and no
//! interval, and so do pairs that are all the same: where a seed changes nothing, chance has no part. A
//! baseline of zero gives no effect.
//!
//! Runs that form no pairs, such as those of two machines, are compared by the difference of their means,
//! with the interval of B. L. Welch (*Biometrika* 34, 1947), which lets the two vary differently.
//!
//! [`switchback`] compares schedulers that take turns on one machine.

pub mod switchback;

use distrs::StudentsT;

/// The effect of a variant against its baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Effect {
    /// (variant - baseline) / baseline x 100.
    pub percent: f64,
    /// Both ends of the 95% confidence interval; none from a single pair, or from pairs that are all the
    /// same.
    pub interval_pct: Option<(f64, f64)>,
}

impl Effect {
    /// The same, of a measure that is never negative: nothing takes away more than all of it.
    pub fn of_amounts(self) -> Self {
        let interval_pct = self.interval_pct.map(|(low, high)| (low.max(-100.0), high));
        Self { interval_pct, ..self }
    }
}

/// The effect of a variant, from the values of paired runs, of which the first `first_stage` decided how many
/// there are; `None` without pairs or with a baseline of zero.
pub fn paired_effect(pairs: &[(f64, f64)], first_stage: usize) -> Option<Effect> {
    let baseline = mean(pairs.iter().map(|&(baseline, _)| baseline))?;
    let variant = mean(pairs.iter().map(|&(_, variant)| variant))?;
    if baseline == 0.0 {
        return None;
    }
    let ratio = variant / baseline;
    let percent = 100.0 * (ratio - 1.0);
    let first = &pairs[..first_stage.min(pairs.len())];
    let varies = first.iter().any(|pair| *pair != first[0]);
    let interval_pct = varies.then(|| {
        let freedom = (first.len() - 1) as f64;
        let residuals = || first.iter().map(|&(b, v)| v - ratio * b);
        let middle = mean(residuals()).unwrap_or(0.0);
        let squares: f64 = residuals().map(|residual| (residual - middle).powi(2)).sum();
        let standard_error = (squares / freedom / pairs.len() as f64).sqrt() / baseline.abs();
        let half_width = 100.0 * t_quantile(0.95, freedom) * standard_error;
        (percent - half_width, percent + half_width)
    });
    Some(Effect { percent, interval_pct })
}

/// How many pairs make an interval so narrow, if `pairs` of them have given this one: half of it is then at
/// most `precision_pct`.
pub fn pairs_for(pairs: usize, (low_pct, high_pct): (f64, f64), precision_pct: f64) -> usize {
    let wider = (high_pct - low_pct) / 2.0 / precision_pct;
    // Without a precision to reach, the largest number; a hair is what rounding may have added.
    (pairs as f64 * wider * wider * (1.0 - 1e-9)).ceil() as usize
}

/// The mean of values with half the width of its 95% confidence interval, in the values' unit; the first `first_stage` of them
/// decided how many there are. `None` from a single value, or from values that are all the same.
pub fn mean_interval(values: &[f64], first_stage: usize) -> Option<(f64, f64)> {
    let mean_of_all = mean(values.iter().copied())?;
    let first = &values[..first_stage.min(values.len())];
    let middle = mean(first.iter().copied())?;
    let freedom = first.len() as f64 - 1.0;
    let squares: f64 = first.iter().map(|value| (value - middle).powi(2)).sum();
    let varies = first.iter().any(|value| *value != first[0]);
    varies
        .then(|| (mean_of_all, t_quantile(0.95, freedom) * (squares / freedom / values.len() as f64).sqrt()))
}

/// Half the width of the confidence interval of the difference between the means of two independent samples,
/// in the values' unit. `None` if either has fewer than two values.
pub fn unpaired_half_width(one: &[f64], other: &[f64], confidence: f64) -> Option<f64> {
    // The squared standard error of a mean, and its degrees of freedom.
    let error = |values: &[f64]| {
        let (mean, freedom) = (mean(values.iter().copied())?, values.len() as f64 - 1.0);
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        (freedom > 0.0).then(|| (squares / freedom / values.len() as f64, freedom))
    };
    let ((one, one_freedom), (other, other_freedom)) = (error(one)?, error(other)?);
    if one + other == 0.0 {
        return Some(0.0);
    }
    let freedom = (one + other).powi(2) / (one.powi(2) / one_freedom + other.powi(2) / other_freedom);
    Some(t_quantile(confidence, freedom) * (one + other).sqrt())
}

/// The mean; `None` if there are no values.
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / count as f64)
}

/// The median: the middle value, or the mean of the middle two; `None` if there are no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Spearman's rank correlation of two measures of the same things, from -1 to 1; equal values share the mean
/// of their ranks. `None` if there are fewer than two things, or all have the same rank.
///
/// # Panics
/// If there are not as many values of one measure as of the other.
pub fn rank_correlation(one: &[f64], other: &[f64]) -> Option<f64> {
    assert_eq!(one.len(), other.len(), "both measures are of the same things");
    let (one, other) = (ranks(one), ranks(other));
    let centre = (one.len() as f64 + 1.0) / 2.0;
    let products = |one: &[f64], other: &[f64]| -> f64 {
        one.iter().zip(other).map(|(one, other)| (one - centre) * (other - centre)).sum()
    };
    let spread = (products(&one, &one) * products(&other, &other)).sqrt();
    (spread > 0.0).then(|| products(&one, &other) / spread)
}

/// The rank of each value, the smallest being 1; equal values share the mean of theirs.
fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |value: f64| values.iter().filter(|other| **other < value).count();
    let equal = |value: f64| values.iter().filter(|other| **other == value).count();
    values.iter().map(|&value| below(value) as f64 + (equal(value) as f64 + 1.0) / 2.0).collect()
}

/// The two-sided quantile of Student's t: its magnitude stays below this value with this probability.
pub(crate) fn t_quantile(confidence: f64, freedom: f64) -> f64 {
    StudentsT::ppf(0.5 + confidence / 2.0, freedom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rank_correlation_has_its_known_values() {
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[0.1, 5.0, 7.0]), Some(1.0));
        assert_eq!(rank_correlation(&[1.0, 2.0, 3.0], &[9.0, 5.0, 1.0]), Some(-1.0));
        assert_eq!(rank_correlation(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(rank_correlation(&[1.0], &[1.0]), None);
        // With a tie: by hand, ranks 1, 2.5, 2.5, 4 and 1, 3, 2, 4.
        let tied = rank_correlation(&[0.0, 5.0, 5.0, 6.0], &[0.0, 2.0, 1.0, 3.0]).unwrap();
        assert!((tied - 4.5 / (4.5_f64 * 5.0).sqrt()).abs() < 1e-12, "{tied}");
    }

    proptest! {
        /// Without ties it is what the differences of ranks say, and no matter in what units values are.
        #[test]
        fn rank_correlation_is_of_the_order_alone(order in Just((0..9_u32).collect::<Vec<_>>()).prop_shuffle()) {
            let one: Vec<f64> = (0..9).map(f64::from).collect();
            let other: Vec<f64> = order.iter().map(|&rank| f64::from(rank).exp()).collect();
            let squares: f64 = order.iter().enumerate().map(|(at, &rank)| (at as f64 - f64::from(rank)).powi(2)).sum();
            let expected = 1.0 - 6.0 * squares / (9.0 * 80.0);
            prop_assert!((rank_correlation(&one, &other).unwrap() - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn no_interval_of_amounts_takes_away_more_than_all() {
        let effect = paired_effect(&[(10.0, 0.0), (10.0, 4.0), (10.0, 0.0)], 3).unwrap();
        let (low, high) = effect.interval_pct.unwrap();
        assert!(low < -100.0, "{low}");
        assert_eq!(effect.of_amounts(), Effect { interval_pct: Some((-100.0, high)), ..effect });
    }

    #[test]
    fn t_quantiles_are_those_of_the_printed_tables() {
        for (freedom, quantile) in [(1.0, 12.706), (4.0, 2.776), (9.0, 2.262), (30.0, 2.042)] {
            assert!((t_quantile(0.95, freedom) - quantile).abs() < 5e-4, "{freedom}");
        }
    }

    #[test]
    fn effects_worked_by_hand() {
        // Means 10 and 12: ratio 1.2, residuals -0.8, 0, 0.8, so a standard error of sqrt(1.28 / 2 / 3) / 10.
        let effect = paired_effect(&[(9.0, 10.0), (10.0, 12.0), (11.0, 14.0)], 3).unwrap();
        let half_width = 100.0 * 4.302_653 * (1.28f64 / 6.0).sqrt() / 10.0;
        let (low, high) = effect.interval_pct.unwrap();
        assert!((effect.percent - 20.0).abs() < 1e-9);
        assert!((low - (20.0 - half_width)).abs() < 1e-4 && (high - (20.0 + half_width)).abs() < 1e-4);
    }

    #[test]
    fn edge_cases() {
        assert_eq!(paired_effect(&[], 2), None);
        assert_eq!(paired_effect(&[(0.0, 1.0), (0.0, 2.0)], 2), None);
        let single = paired_effect(&[(4.0, 3.0)], 2).unwrap();
        assert_eq!((single.percent, single.interval_pct), (-25.0, None));
        let equal = paired_effect(&[(4.0, 4.0), (7.0, 7.0)], 2).unwrap();
        assert_eq!((equal.percent, equal.interval_pct), (0.0, Some((0.0, 0.0))));
        let without_chance = paired_effect(&[(4.0, 3.0); 5], 5).unwrap();
        assert_eq!((without_chance.percent, without_chance.interval_pct), (-25.0, None));
    }

    #[test]
    fn more_pairs_make_an_interval_as_narrow_as_asked_for() {
        assert_eq!(pairs_for(5, (-1.0, 3.0), 2.0), 5);
        assert_eq!(pairs_for(5, (-1.0, 3.0), 1.0), 20);
        assert_eq!(pairs_for(5, (1.0, 1.5), 1.0), 1);
        assert_eq!(pairs_for(5, (0.0, 0.0), 0.0), 0);
        assert_eq!(pairs_for(5, (0.0, 1.0), 0.0), usize::MAX);
    }

    #[test]
    fn a_difference_worked_by_hand() {
        // Variances of the means 1/3 and 4/3, with 2 degrees of freedom each: (5/3)^2 / (1/18 + 16/18) =
        // 50/17 together.
        let half_width = unpaired_half_width(&[1.0, 2.0, 3.0], &[10.0, 12.0, 14.0], 0.95).unwrap();
        assert!((half_width - StudentsT::ppf(0.975, 50.0 / 17.0) * (5.0f64 / 3.0).sqrt()).abs() < 1e-9);
        assert!(half_width < unpaired_half_width(&[1.0, 2.0, 3.0], &[10.0, 12.0, 14.0], 0.99).unwrap());
        assert_eq!(unpaired_half_width(&[5.0, 5.0], &[7.0, 7.0], 0.95), Some(0.0));
        assert_eq!(unpaired_half_width(&[5.0], &[7.0, 8.0], 0.95), None);
    }

    #[test]
    fn medians() {
        for (values, expected) in [
            (&[][..], None),
            (&[3.0], Some(3.0)),
            (&[9.0, 1.0, 2.0], Some(2.0)),
            (&[4.0, 1.0, 3.0, 2.0], Some(2.5)),
        ] {
            assert_eq!(median(values), expected, "{values:?}");
        }
    }

    /// A repeatable source of values that are close to normal: the sum of twelve uniform ones.
    fn noise(state: &mut u64) -> f64 {
        (0..12)
            .map(|_| {
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (*state >> 11) as f64 / (1u64 << 53) as f64
            })
            .sum::<f64>()
            - 6.0
    }

    #[test]
    fn the_interval_covers_the_true_effect_95_times_in_100() {
        let mut state = 1;
        let trials = 2_000;
        let covered = (0..trials)
            .filter(|_| {
                let pairs: Vec<_> = (0..5)
                    .map(|_| {
                        let baseline = 100.0 + 3.0 * noise(&mut state);
                        (baseline, 1.1 * baseline + 2.0 * noise(&mut state))
                    })
                    .collect();
                let (low, high) = paired_effect(&pairs, 5).unwrap().interval_pct.unwrap();
                low <= 10.0 && 10.0 <= high
            })
            .count();
        let share = covered as f64 / trials as f64;
        assert!((0.935..0.965).contains(&share), "{share}");
    }

    /// As many pairs as the first ten ask for, with a limit or without: intervals of two stages hold the effect as often as
    /// they say.
    #[test]
    fn intervals_of_two_stages_cover_the_true_effect_95_times_in_100() {
        let mut state = 7;
        let trials = 2_000;
        for (precision_pct, most) in [(2.0, 1_000), (1.0, 1_000), (1.0, 15)] {
            let mut covered = 0;
            let mut narrow = 0;
            for _ in 0..trials {
                let mut pair = || {
                    let baseline = 100.0 + 3.0 * noise(&mut state);
                    (baseline, 1.1 * baseline + 3.0 * noise(&mut state))
                };
                let mut pairs: Vec<_> = (0..10).map(|_| pair()).collect();
                let first = paired_effect(&pairs, 10).unwrap().interval_pct.unwrap();
                let wanted = pairs_for(10, first, precision_pct).max(10);
                pairs.extend((10..wanted.min(most)).map(|_| pair()));
                let (low, high) = paired_effect(&pairs, 10).unwrap().interval_pct.unwrap();
                covered += usize::from(low <= 10.0 && 10.0 <= high);
                narrow += usize::from((high - low) / 2.0 <= 1.05 * precision_pct);
            }
            let share = covered as f64 / f64::from(trials);
            assert!((0.935..0.965).contains(&share), "{precision_pct} {most}: {share}");
            assert!(most < 1_000 || narrow == trials as usize, "{precision_pct}: {narrow}");
        }
    }

    proptest! {
        #[test]
        fn an_effect_does_not_depend_on_the_unit(
            pairs in prop::collection::vec((1.0f64..1e3, 1.0f64..1e3), 2..10),
            unit in 1e-3f64..1e3,
        ) {
            let scaled: Vec<_> = pairs.iter().map(|&(b, v)| (b * unit, v * unit)).collect();
            let (one, other) = (paired_effect(&pairs, 10).unwrap(), paired_effect(&scaled, 10).unwrap());
            prop_assume!(pairs.iter().any(|pair| *pair != pairs[0]));
            let ((low, high), (low_scaled, high_scaled)) = (one.interval_pct.unwrap(), other.interval_pct.unwrap());
            let close = |a: f64, b: f64| (a - b).abs() <= 1e-6 * (1.0 + a.abs());
            prop_assert!(close(one.percent, other.percent) && close(low, low_scaled) && close(high, high_scaled));
            prop_assert!(low <= one.percent && one.percent <= high);
        }
    }
}
