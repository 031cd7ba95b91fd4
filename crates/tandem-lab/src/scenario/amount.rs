//! Numbers and amounts that a scenario file can leave open or to chance.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error;
use serde::{Deserialize, Deserializer};
use std::borrow::Cow;
use std::ops::RangeInclusive;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_file::units::Duration;
use tandem_sim::program::Amount;
use tandem_sim::scenario::TIME_MAX_NS;

/// A whole number.
#[derive(Clone, Copy, Debug)]
pub struct Count(pub u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "expected a whole number such as 2, or a parameter such as \"$vms\"";
        u64::deserialize(deserializer).map(Self).map_err(|_| D::Error::custom(expected))
    }
}

impl JsonSchema for Count {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Count".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A whole number, or \"$name\" for the value of a parameter.",
            "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": r"^\$.+$" }],
        })
    }
}

/// The number, which must be in the range.
///
/// # Errors
/// If it is not.
pub fn count_in(
    count: &Located<Count>,
    what: &str,
    range: RangeInclusive<u32>,
    source: &SourceFile,
) -> Result<u32, FileError> {
    let number = count.0;
    u32::try_from(number).ok().filter(|number| range.contains(number)).ok_or_else(|| {
        let message = format!("{what} is {number}; allowed are {} to {}", range.start(), range.end());
        source.error(count.span(), message)
    })
}

/// A time: always the same ("100us"), or drawn anew each time.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a time with its unit such as \"100us\" (units: ns, us, ms, s), \
                 { uniform = [\"1ms\", \"2ms\"] } or { exponential = \"5ms\" }"
)]
pub enum AmountForm {
    /// Always this.
    Fixed(Duration),
    /// Drawn anew each time.
    Drawn(Distribution),
}

/// How a time is drawn.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Distribution {
    /// Evenly from the first to the second, both included.
    Uniform([Duration; 2]),
    /// Exponential with this mean.
    Exponential(Duration),
}

impl AmountForm {
    /// The engine's form.
    ///
    /// # Errors
    /// A sentence, if the bounds are the wrong way round or a time is longer than a day.
    pub fn amount(&self) -> Result<Amount, String> {
        let (amount, longest) = match *self {
            Self::Fixed(time) => (Amount::Fixed(time.ns), time),
            Self::Drawn(Distribution::Exponential(mean)) => (Amount::Exponential(mean.ns), mean),
            Self::Drawn(Distribution::Uniform([low, high])) if low <= high => {
                (Amount::Uniform(low.ns, high.ns), high)
            }
            Self::Drawn(Distribution::Uniform([low, high])) => {
                return Err(format!(
                    "`uniform` goes from {low} to {high}; the first must not be the larger one"
                ));
            }
        };
        check_time(longest)?;
        Ok(amount)
    }
}

/// Checks that a time is at most a day.
///
/// # Errors
/// A sentence.
pub fn check_time(time: Duration) -> Result<(), String> {
    if time.ns > TIME_MAX_NS {
        return Err(format!("{time} is too long; at most a day (\"1440min\") is allowed"));
    }
    Ok(())
}
