//! A dimension of a space: some values, or a range of numbers or quantities.

use crate::results::{Decimal, Key};
use schemars::JsonSchema;
use serde::Deserialize;
use std::fmt::Display;
use tandem_file::units::{Bandwidth, Duration, Frequency, Size};

/// Most values of a dimension.
const VALUES_MAX: usize = 1_000_000;
/// Numbers beyond this are not all exact.
const WHOLE_MAX: f64 = (1_u64 << 53) as f64;

/// The values of a parameter: a list, or a range.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a list of values, or a range such as { from = 2, to = 40 }")]
pub enum Dimension {
    /// These, each as likely as another.
    Values(Vec<Key>),
    /// All between two.
    Range(RangeTable),
}

/// A range of numbers, or of quantities with units, such as times.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RangeTable {
    /// The least one.
    from: Key,
    /// The largest one. If both ends are whole numbers, so are all in between.
    to: Key,
    /// How many values a grid has, the ends with them. Whole numbers have all between the ends if absent.
    steps: Option<usize>,
    /// "linear", which it is if absent, or "log": a factor apart, not a difference.
    #[serde(default)]
    scale: Scale,
}

/// How values of a range lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Differences count.
    #[default]
    Linear,
    /// Factors count.
    Log,
}

/// What a dimension is made of, for searches that have their own ideas about its values.
#[derive(Clone, Debug, PartialEq)]
pub enum Domain {
    /// One of these.
    Choice(Vec<Key>),
    /// A number, or a quantity in its base unit, such as ns: [`Dimension::value`] makes a value of it.
    Numbers {
        /// The least one.
        from: f64,
        /// The largest one.
        to: f64,
        /// Whether all are whole.
        is_whole: bool,
        /// Whether factors count.
        is_log: bool,
    },
}

/// The ends of a range in its base unit, and what its values are.
struct Ends {
    from: f64,
    to: f64,
    unit: Unit,
}

#[derive(Clone, Copy)]
enum Unit {
    Whole,
    Decimal,
    Quantity(fn(u64) -> String),
}

impl Dimension {
    /// Checks it.
    ///
    /// # Errors
    /// A sentence: what is wrong, and what is allowed.
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Self::Values(values) => {
                if values.is_empty() || values.len() > VALUES_MAX {
                    return Err(format!("there are {} values; allowed are 1 to {VALUES_MAX}", values.len()));
                }
                let mut sorted: Vec<&Key> = values.iter().collect();
                sorted.sort_unstable();
                match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
                    Some(pair) => Err(format!("the value {} is there twice; leave one out", pair[0])),
                    None => Ok(()),
                }
            }
            Self::Range(range) => {
                let Ends { from, to, .. } = range.ends()?;
                if from >= to {
                    return Err(format!("the range from {} to {} is empty", range.from, range.to));
                }
                if range.scale == Scale::Log && from <= 0.0 {
                    return Err(format!(
                        "a range with `scale = \"log\"` begins above 0, not at {}",
                        range.from
                    ));
                }
                match range.steps {
                    Some(steps) if !(2..=VALUES_MAX).contains(&steps) => {
                        Err(format!("`steps` is {steps}; allowed are 2 to {VALUES_MAX}"))
                    }
                    _ => Ok(()),
                }
            }
        }
    }

    /// All values that a grid has.
    ///
    /// # Errors
    /// A sentence, if it has no number of them.
    pub(super) fn grid(&self) -> Result<Vec<Key>, String> {
        let range = match self {
            Self::Values(values) => return Ok(values.clone()),
            Self::Range(range) => range,
        };
        let ends = range.ends()?;
        let span = ends.to - ends.from + 1.0;
        let steps = match range.steps {
            Some(steps) => steps,
            None if matches!(ends.unit, Unit::Whole) && span <= VALUES_MAX as f64 => span as usize,
            None => return Err("a grid needs the `steps` of this range".into()),
        };
        let at = |step: usize| step as f64 / (steps - 1).max(1) as f64;
        let mut values: Vec<Key> =
            (0..steps).map(|step| ends.key(ends.between(range.scale, at(step)))).collect();
        // Whole numbers of a log range, or more steps than numbers.
        values.dedup();
        Ok(values)
    }

    /// The value at a part of the dimension, from 0 to below 1.
    pub(super) fn at(&self, part: f64) -> Key {
        match self {
            Self::Values(values) => {
                values[((part * values.len() as f64) as usize).min(values.len() - 1)].clone()
            }
            Self::Range(range) => {
                let ends = range.ends().expect("the dimension was checked");
                // Every whole number has a part as large as the others have.
                let ends = match ends.unit {
                    Unit::Whole if range.scale == Scale::Linear => {
                        let number = (ends.from + part * (ends.to - ends.from + 1.0)).floor();
                        return ends.key(number);
                    }
                    _ => ends,
                };
                ends.key(ends.between(range.scale, part))
            }
        }
    }

    /// What it is made of.
    pub fn domain(&self) -> Domain {
        match self {
            Self::Values(values) => Domain::Choice(values.clone()),
            Self::Range(range) => {
                let Ends { from, to, unit } = range.ends().expect("the dimension was checked");
                Domain::Numbers {
                    from,
                    to,
                    is_whole: !matches!(unit, Unit::Decimal),
                    is_log: range.scale == Scale::Log,
                }
            }
        }
    }

    /// Whether all its values are numbers without a unit.
    pub(super) fn is_numeric(&self) -> bool {
        match self {
            Self::Values(values) => values.iter().all(|value| !matches!(value, Key::Text(_))),
            Self::Range(range) => !matches!(range.from, Key::Text(_)),
        }
    }

    /// The value that a number of its [`Domain`] stands for; `None` where that has none. Quantities and decimals are rounded to four digits, or more where the range is narrow.
    pub fn value(&self, number: f64) -> Option<Key> {
        match self {
            Self::Values(_) => None,
            Self::Range(range) => range.ends().ok().map(|ends| ends.key(number)),
        }
    }
}

impl RangeTable {
    fn ends(&self) -> Result<Ends, String> {
        let wrong = || {
            format!(
                "a range is from {} to {}; allowed are two numbers, or two quantities of one kind such as \"1ms\"",
                self.from, self.to
            )
        };
        let ends = match (&self.from, &self.to) {
            (Key::Number(from), Key::Number(to)) => {
                Ends { from: *from as f64, to: *to as f64, unit: Unit::Whole }
            }
            (Key::Text(from), Key::Text(to)) => quantities(from, to).ok_or_else(wrong)?,
            (from, to) => {
                let number = |key: &Key| match key {
                    Key::Number(number) => Some(*number as f64),
                    Key::Decimal(Decimal(number)) => Some(*number),
                    Key::Text(_) => None,
                };
                let (from, to) = number(from).zip(number(to)).ok_or_else(wrong)?;
                Ends { from, to, unit: Unit::Decimal }
            }
        };
        match [ends.from, ends.to].iter().all(|end| end.abs() <= WHOLE_MAX) {
            true => Ok(ends),
            false => Err(format!("a range is from {} to {}; allowed is up to 2^53", self.from, self.to)),
        }
    }
}

/// Both ends as quantities of the same kind.
fn quantities(from: &str, to: &str) -> Option<Ends> {
    fn show<T: Display>(of: fn(u64) -> T, value: u64) -> String {
        of(value).to_string()
    }
    let time = |text: &str| text.parse::<Duration>().ok().map(|it| it.ns);
    let size = |text: &str| text.parse::<Size>().ok().map(|it| it.bytes);
    let bandwidth = |text: &str| text.parse::<Bandwidth>().ok().map(|it| it.bytes_per_s);
    let frequency = |text: &str| text.parse::<Frequency>().ok().map(|it| it.hz);
    type Kind<'a> = (&'a dyn Fn(&str) -> Option<u64>, fn(u64) -> String);
    let kinds: [Kind; 4] = [
        (&time, |ns| show(|ns| Duration { ns }, ns)),
        (&size, |bytes| show(|bytes| Size { bytes }, bytes)),
        (&bandwidth, |bytes_per_s| show(|bytes_per_s| Bandwidth { bytes_per_s }, bytes_per_s)),
        (&frequency, |hz| show(|hz| Frequency { hz }, hz)),
    ];
    kinds.into_iter().find_map(|(read, unit)| {
        let (from, to) = (read(from)?, read(to)?);
        Some(Ends { from: from as f64, to: to as f64, unit: Unit::Quantity(unit) })
    })
}

impl Ends {
    fn between(&self, scale: Scale, part: f64) -> f64 {
        match scale {
            Scale::Linear => self.from + part * (self.to - self.from),
            // The same on every machine, unlike the functions of its C library.
            Scale::Log => {
                let (low, high) = (libm::log(self.from), libm::log(self.to));
                libm::exp(low + part * (high - low))
            }
        }
    }

    fn key(&self, number: f64) -> Key {
        let rounded = |number| self.rounded(number);
        // The ends are exact, however many digits they have.
        let end = [self.from, self.to].into_iter().find(|&end| rounded(end) == rounded(number));
        let within = |rounded: f64| end.unwrap_or(rounded).clamp(self.from, self.to);
        match self.unit {
            Unit::Whole => Key::Number(number.round().clamp(self.from, self.to) as i64),
            Unit::Decimal => Key::Decimal(Decimal(within(rounded(number)))),
            Unit::Quantity(show) => Key::Text(show(within(rounded(number).round()) as u64)),
        }
    }

    /// With four digits, or as many as tell a thousandth of the range.
    fn rounded(&self, number: f64) -> f64 {
        let magnitude = |number: f64| libm::log10(number.abs()).floor();
        let finer = magnitude(number) - magnitude(self.to - self.from);
        let digits = if finer.is_finite() { 3 + finer.clamp(0.0, 12.0) as usize } else { 3 };
        // The text has the nearest number with so many digits.
        format!("{number:.digits$e}").parse().unwrap_or(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dimension(text: &str) -> Dimension {
        #[derive(Deserialize)]
        struct File {
            it: Dimension,
        }
        toml::from_str::<File>(&format!("it = {text}")).unwrap().it
    }

    fn grid(text: &str) -> Vec<String> {
        dimension(text).grid().unwrap().iter().map(Key::to_string).collect()
    }

    #[test]
    fn grids_have_their_ends_and_equal_steps_or_factors() {
        assert_eq!(grid("{ from = 2, to = 5 }"), ["2", "3", "4", "5"]);
        assert_eq!(grid("{ from = 1, to = 100, steps = 3, scale = \"log\" }"), ["1", "10", "100"]);
        assert_eq!(grid("{ from = 1, to = 4, steps = 9, scale = \"log\" }"), ["1", "2", "3", "4"]);
        assert_eq!(
            grid("{ from = \"1ms\", to = \"100ms\", steps = 3, scale = \"log\" }"),
            ["1 ms", "10 ms", "100 ms"]
        );
        assert_eq!(grid("{ from = 0.5, to = 1, steps = 3 }"), ["0.5", "0.75", "1"]);
        assert_eq!(grid("{ from = \"1234567ns\", to = \"2ms\", steps = 2 }"), ["1234567 ns", "2 ms"]);
        assert_eq!(grid("{ from = \"1GiB\", to = \"2GiB\", steps = 2 }"), ["1 GiB", "2 GiB"]);
        assert_eq!(grid("{ from = 1000.01, to = 1000.02, steps = 3 }"), ["1000.01", "1000.015", "1000.02"]);
        assert!(dimension("{ from = 0.5, to = 1 }").grid().unwrap_err().contains("`steps`"));
    }

    #[test]
    fn mistakes_are_said() {
        for (text, says) in [
            ("[]", "0 values"),
            ("[1, 2, 1]", "the value 1 is there twice"),
            ("{ from = 3, to = 3 }", "from 3 to 3 is empty"),
            ("{ from = 0, to = 3, scale = \"log\" }", "begins above 0"),
            ("{ from = \"1ms\", to = \"1GiB\" }", "two quantities of one kind"),
            ("{ from = \"1ms\", to = 3 }", "two quantities of one kind"),
            ("{ from = 1, to = 9, steps = 1 }", "`steps` is 1"),
            ("{ from = 1, to = 9223372036854775807 }", "up to 2^53"),
        ] {
            let said = dimension(text).check().unwrap_err();
            assert!(said.contains(says), "{text}: {said}");
        }
    }

    proptest! {
        #[test]
        fn values_are_within_the_range_and_grow_with_the_part(
            from in 1_i64..1000, span in 1_i64..1000, log: bool, parts in (0.0..1.0_f64, 0.0..1.0_f64),
        ) {
            let scale = if log { "log" } else { "linear" };
            for (one, other) in [(format!("{from}"), format!("{}", from + span)),
                (format!("\"{from}us\""), format!("\"{}us\"", from + span)),
                (format!("{from}.5"), format!("{}.5", from + span))] {
                let dimension = dimension(&format!("{{ from = {one}, to = {other}, scale = \"{scale}\" }}"));
                prop_assert_eq!(dimension.check(), Ok(()));
                let Domain::Numbers { from, to, .. } = dimension.domain() else { panic!() };
                let number = |part| match dimension.at(part) {
                    Key::Number(number) => number as f64,
                    Key::Decimal(Decimal(number)) => number,
                    Key::Text(text) => text.parse::<Duration>().unwrap().ns as f64,
                };
                let (low, high) = (parts.0.min(parts.1), parts.0.max(parts.1));
                prop_assert!(from <= number(low) && number(low) <= number(high) && number(high) <= to);
                // A value stands for itself.
                prop_assert_eq!(dimension.value(number(low)), Some(dimension.at(low)));
            }
        }

        #[test]
        fn each_value_of_a_list_has_an_equal_part(count in 1_usize..20, part in 0.0..1.0_f64) {
            let values: Vec<Key> = (0..count as i64).map(Key::Number).collect();
            let at = Dimension::Values(values).at(part);
            prop_assert_eq!(at, Key::Number((part * count as f64).floor() as i64));
        }
    }
}
