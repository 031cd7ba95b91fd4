//! Scales, and round numbers along them.

/// Limit of an axis, beyond which the span of two values might not be finite.
const LARGEST: f64 = 1e150;

/// A map from values to places in the drawing.
#[derive(Clone, Copy)]
pub struct Scale {
    /// The values at both ends.
    pub values: (f64, f64),
    /// Their positions.
    pub places: (f64, f64),
    /// What equal distances mean.
    pub spacing: Spacing,
}

/// What equal distances on a scale mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spacing {
    /// Equal differences.
    Linear,
    /// Equal ratios; all values must be positive.
    Logarithmic,
}

impl Scale {
    /// A scale of equal differences.
    pub fn linear(values: (f64, f64), places: (f64, f64)) -> Self {
        Self { values, places, spacing: Spacing::Linear }
    }

    /// Position of the value.
    pub fn place(&self, value: f64) -> f64 {
        let measure = |value: f64| match self.spacing {
            Spacing::Linear => value,
            Spacing::Logarithmic => value.log10(),
        };
        let (low, high) = (measure(self.values.0), measure(self.values.1));
        let share = (measure(value) - low) / (high - low);
        self.places.0 + share * (self.places.1 - self.places.0)
    }
}

/// The smallest range of whole steps around `values`, with about `count` steps of 1, 2 or 5 times a power of
/// ten. Values that cannot be drawn are left out; if none is left, the range is that of zero.
pub fn ticks(values: impl IntoIterator<Item = f64>, count: usize) -> Ticks {
    let drawable = values.into_iter().filter(|value| value.abs() < LARGEST);
    let range = drawable.fold(None, |range: Option<(f64, f64)>, value| {
        let (low, high) = range.unwrap_or((value, value));
        Some((low.min(value), high.max(value)))
    });
    let (low, high) = range.unwrap_or((0.0, 0.0));
    let span = (high - low).max(low.abs().max(high.abs()) * 1e-6);
    let span = if span > 0.0 { span } else { 1.0 };
    let rough = span / count as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| *step >= rough * 0.999);
    let step = step.unwrap_or(10.0 * power);
    Ticks { first: (low / step).floor(), last: (high / step).ceil().max((low / step).floor() + 1.0), step }
}

/// Round numbers along an axis.
#[derive(Debug, PartialEq)]
pub struct Ticks {
    /// First and last in steps.
    first: f64,
    last: f64,
    step: f64,
}

impl Ticks {
    /// First and last tick.
    pub fn range(&self) -> (f64, f64) {
        (self.first * self.step, self.last * self.step)
    }

    /// Every tick with its label.
    pub fn labelled(&self) -> impl Iterator<Item = (f64, String)> {
        let largest = self.range().0.abs().max(self.range().1.abs());
        let (unit, letter) = match largest {
            _ if largest >= 1e6 => (1e6, "M"),
            _ if largest >= 1e4 => (1e3, "k"),
            _ => (1.0, ""),
        };
        let decimals = (-(self.step / unit).log10().floor()).clamp(0.0, 9.0) as usize;
        let count = (self.last - self.first) as usize;
        (0..=count).map(move |index| {
            let value = (self.first + index as f64) * self.step;
            let text = format!("{:.decimals$}", value.abs() / unit);
            let text = match value {
                0.0 => "0".to_owned(),
                value if value < 0.0 => format!("−{text}{letter}"),
                _ => text + letter,
            };
            (value, text)
        })
    }
}

/// Round numbers around positive values for a logarithmic scale, with labels: 1, 2 and 5 times a power of
/// ten, or powers of ten alone if the values span more than [`DETAILED_DECADES`]. The first and the last
/// enclose the values.
pub fn logarithmic_ticks(values: impl IntoIterator<Item = f64>) -> Vec<(f64, String)> {
    let (low, high) = values
        .into_iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let digits: &[u32] = if (high / low).log10() > DETAILED_DECADES { &[1] } else { &[1, 2, 5] };
    // Written and read back, so that the numbers are the decimal ones to the last bit.
    let round = |digit: &u32, power: i32| format!("{digit}e{power}").parse().unwrap_or(f64::NAN);
    let round: Vec<f64> =
        powers.flat_map(|power| digits.iter().map(move |digit| round(digit, power))).collect();
    let first = round.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    let last = round.iter().position(|tick| *tick >= high).unwrap_or(round.len() - 1);
    round[first..=last].iter().map(|tick| (*tick, short(*tick))).collect()
}

/// Labelled values, if there are at least three and each is twice the one before; otherwise `None`.
pub fn doubling_ticks(values: impl IntoIterator<Item = f64>) -> Option<Vec<(f64, String)>> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let is_doubling =
        values.len() >= 3 && values[0] > 0.0 && values.windows(2).all(|pair| pair[1] == 2.0 * pair[0]);
    is_doubling.then(|| values.into_iter().map(|value| (value, short(value))).collect())
}

/// Largest span, in decades, for which a logarithmic scale has room for more than the powers of ten.
const DETAILED_DECADES: f64 = 2.5;

/// A round positive number in few letters: "0.02", "500", "20k", "5M".
fn short(value: f64) -> String {
    match value {
        _ if value >= 1e6 => format!("{}M", value / 1e6),
        _ if value >= 1e4 => format!("{}k", value / 1e3),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(values: &[f64], count: usize) -> Vec<String> {
        ticks(values.iter().copied(), count).labelled().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        assert_eq!(labels(&[-3.1, 18.3], 5), ["−5", "0", "5", "10", "15", "20"]);
        assert_eq!(labels(&[0.0, 0.9], 5), ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
        assert_eq!(labels(&[0.0, 15_000.0], 3), ["0", "5k", "10k", "15k"]);
        assert_eq!(labels(&[0.0, 2.4e6], 3), ["0", "1M", "2M", "3M"]);
        assert_eq!(labels(&[0.0, 1.2e4], 6), ["0", "2k", "4k", "6k", "8k", "10k", "12k"]);
        assert_eq!(labels(&[10.0, 100.0], 5), ["0", "20", "40", "60", "80", "100"]);
    }

    #[test]
    fn odd_values_have_ticks_too() {
        for values in [
            &[][..],
            &[0.0],
            &[5.0],
            &[f64::NAN],
            &[1.0, f64::INFINITY],
            &[-1e300, 1e300],
            &[f64::MIN, f64::MAX],
        ] {
            let ticks = ticks(values.iter().copied(), 5);
            let count = ticks.labelled().count();
            assert!((2..20).contains(&count), "{values:?}: {ticks:?}");
            let (low, high) = ticks.range();
            assert!(low < high, "{values:?}: {ticks:?}");
        }
    }

    #[test]
    fn a_scale_maps_ends_to_ends() {
        let scale = Scale::linear((-5.0, 15.0), (100.0, 0.0));
        assert_eq!([-5.0, 5.0, 15.0].map(|value| scale.place(value)), [100.0, 50.0, 0.0]);
        let scale = Scale { values: (0.1, 10.0), places: (0.0, 8.0), spacing: Spacing::Logarithmic };
        assert_eq!([0.1, 1.0, 10.0].map(|value| scale.place(value)), [0.0, 4.0, 8.0]);
    }

    #[test]
    fn logarithmic_ticks_are_round_and_enclose_the_values() {
        let labels = |values: &[f64]| {
            let ticks = logarithmic_ticks(values.iter().copied());
            ticks.into_iter().map(|(_, label)| label).collect::<Vec<_>>()
        };
        assert_eq!(labels(&[56.0, 2968.0]), ["50", "100", "200", "500", "1000", "2000", "5000"]);
        assert_eq!(labels(&[0.04, 4685.0]), ["0.01", "0.1", "1", "10", "100", "1000", "10k"]);
        assert_eq!(labels(&[1e4, 1e6]), ["10k", "20k", "50k", "100k", "200k", "500k", "1M"]);
    }

    #[test]
    fn sizes_that_double_are_their_own_ticks() {
        let labels = |values: &[f64]| {
            doubling_ticks(values.iter().copied())
                .map(|ticks| ticks.into_iter().map(|(_, label)| label).collect::<Vec<_>>())
        };
        assert_eq!(labels(&[16.0, 8.0, 32.0, 8.0]).unwrap(), ["8", "16", "32"]);
        for others in [&[8.0, 16.0][..], &[8.0, 16.0, 24.0], &[0.0, 0.0, 0.0], &[], &[f64::NAN; 3]] {
            assert_eq!(labels(others), None, "{others:?}");
        }
    }
}
