//! Compares a predicted effect with the published one.

use crate::results::{Cell, Role};

/// A prediction at most this far from the published effect counts as close, in points.
pub const CLOSE_POINTS: f64 = 3.0;

/// The outcome of one prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// At most [`CLOSE_POINTS`] from the published effect.
    Close,
    /// Further away, the sign is right.
    SignRight,
    /// The sign is wrong, or there is an effect where none was published.
    SignWrong,
    /// Further away, and the interval of the simulated effect includes zero.
    WithinChance,
    /// Further away, and the sign is not known to be the same at all points that meet the baseline.
    Open,
}

impl Outcome {
    /// Judges `cell`; `None` if it predicts no effect or none was published.
    pub fn of(cell: &Cell) -> Option<Self> {
        if cell.role != Role::Predicted || cell.variant == cell.baseline {
            return None;
        }
        let (published, simulated) = effects(cell)?;
        let sign = published * simulated;
        // A wrong sign beyond chance is a miss, however small the error.
        let is_known = beyond_chance(cell) && !is_open(cell);
        Some(match is_known {
            true if sign < 0.0 => Self::SignWrong,
            _ if (simulated - published).abs() <= CLOSE_POINTS => Self::Close,
            false if beyond_chance(cell) => Self::Open,
            false => Self::WithinChance,
            true if sign > 0.0 => Self::SignRight,
            true => Self::SignWrong,
        })
    }

    /// The outcome in words; the bad one stands out without colour.
    pub fn words(self) -> &'static str {
        match self {
            Self::Close => "close",
            Self::SignRight => "sign right",
            Self::SignWrong => "SIGN WRONG",
            Self::WithinChance => "within chance",
            Self::Open => "open",
        }
    }
}

/// Published and simulated effect, where there are both.
pub fn effects(cell: &Cell) -> Option<(f64, f64)> {
    let finite = |effect: Option<f64>| effect.filter(|pct| pct.is_finite());
    Some((finite(cell.published_effect_pct)?, finite(cell.simulated_effect_pct)?))
}

/// The interval of the simulated effect, where there is one.
pub fn interval(cell: &Cell) -> Option<(f64, f64)> {
    let (low, high) = (cell.ci_low_pct?, cell.ci_high_pct?);
    (low.is_finite() && high.is_finite()).then_some((low, high))
}

/// Whether the interval of the simulated effect leaves out zero. Without an interval nothing is beyond
/// chance.
pub fn beyond_chance(cell: &Cell) -> bool {
    interval(cell).is_some_and(|(low, high)| low > 0.0 || high < 0.0)
}

/// Whether the sign of the simulated effect is left open by the baseline: where it may be over the points
/// that meet it, widened by chance, holds zero.
fn is_open(cell: &Cell) -> bool {
    cell.effect_range_pct().is_some_and(|(low, high)| low <= 0.0 && high >= 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;
    use crate::results::RangeBasis;

    #[test]
    fn outcomes() {
        use Outcome::*;
        for (published, simulated, half_width, expected) in [
            (14.0, 12.0, 1.0, Close),
            (14.0, 11.0, 1.0, Close),
            (14.0, 10.9, 1.0, SignRight),
            (14.0, -2.0, 1.0, SignWrong),
            (1.0, -1.0, 0.5, SignWrong),
            (1.0, -1.0, 1.5, Close),
            (14.0, 1.0, 1.5, WithinChance),
            (14.0, -1.0, 1.5, WithinChance),
            (0.0, 0.4, 0.1, Close),
            (0.0, 5.0, 0.1, SignWrong),
        ] {
            let cell = fixture::effect(published, simulated, half_width);
            assert_eq!(Outcome::of(&cell), Some(expected), "{published} {simulated} {half_width}");
        }
    }

    #[test]
    fn a_sign_that_the_baseline_leaves_open_is_no_prediction() {
        for (simulated, (low, high), expected) in [
            (9.0, (2.0, 20.0), Outcome::SignRight),
            (9.0, (0.5, 20.0), Outcome::Open),
            (9.0, (-4.0, 9.0), Outcome::Open),
            (-9.0, (-9.0, 4.0), Outcome::Open),
            (-9.0, (-9.0, -4.0), Outcome::SignWrong),
            (13.0, (-4.0, 13.0), Outcome::Close),
        ] {
            let (range_low_pct, range_high_pct) = (Some(low), Some(high));
            let cell = Cell { range_low_pct, range_high_pct, ..fixture::effect(14.0, simulated, 1.0) };
            assert_eq!(Outcome::of(&cell), Some(expected), "{simulated} {low} {high}");
        }
        let basis = RangeBasis { doubt_pct: Some(RangeBasis::ANY), ..RangeBasis::default() };
        let cell = Cell { basis, ..fixture::effect(14.0, 9.0, 1.0) };
        assert_eq!(Outcome::of(&cell), Some(Outcome::Open), "nothing is known of the set");
    }

    #[test]
    fn nothing_to_judge() {
        let good = fixture::effect(14.0, 12.0, 1.0);
        let baseline = Cell { variant: good.baseline.clone(), ..good.clone() };
        let calibrated = Cell { role: Role::Calibrated, ..good.clone() };
        let unpublished = Cell { published_effect_pct: None, ..good.clone() };
        let infinite = Cell { simulated_effect_pct: Some(f64::INFINITY), ..good.clone() };
        for cell in [baseline, calibrated, unpublished, infinite] {
            assert_eq!(Outcome::of(&cell), None, "{cell:?}");
        }
        assert!(!beyond_chance(&Cell { ci_low_pct: None, ..good }));
    }
}
