//! Quantities with units, as files write them: `"30 ms"`, `"12 MiB"`, `"25.6 GB/s"`, `"2.4 GHz"`.
//!
//! A value is a decimal number and a unit, and must be a whole number of the base unit: nothing is rounded. A
//! number without a unit is an error. Displaying a value gives its shortest exact form.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Units of one kind of quantity: name and size in the base unit, which comes first.
type Units = [(&'static str, u64)];

const DURATION_UNITS: &Units =
    &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000), ("min", 60_000_000_000)];

const SIZE_UNITS: &Units = &[
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
];

const BANDWIDTH_UNITS: &Units = &[
    ("B/s", 1),
    ("kB/s", 1_000),
    ("MB/s", 1_000_000),
    ("GB/s", 1_000_000_000),
    ("TB/s", 1_000_000_000_000),
    ("KiB/s", 1 << 10),
    ("MiB/s", 1 << 20),
    ("GiB/s", 1 << 30),
    ("TiB/s", 1 << 40),
];

const FREQUENCY_UNITS: &Units = &[("Hz", 1), ("kHz", 1_000), ("MHz", 1_000_000), ("GHz", 1_000_000_000)];

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UnitError {
    /// The text is a bare number.
    #[error("`{text:.60}` has no unit; allowed are {allowed}, as in \"{example}\"")]
    NoUnit {
        /// The text, as written.
        text: String,
        /// The allowed units.
        allowed: String,
        /// A correct value.
        example: &'static str,
    },
    /// The text has a unit of another kind, or none that exists.
    #[error("`{text:.60}` has the unknown unit `{unit:.60}`; allowed are {allowed}, as in \"{example}\"")]
    UnknownUnit {
        /// The text, as written.
        text: String,
        /// The unit in the text.
        unit: String,
        /// The allowed units.
        allowed: String,
        /// A correct value.
        example: &'static str,
    },
    /// The text is not a number at all, or a negative one, or in scientific notation.
    #[error("`{text:.60}` does not begin with a number of digits and at most one point, as in \"{example}\"")]
    NotANumber {
        /// The text, as written.
        text: String,
        /// A correct value.
        example: &'static str,
    },
    /// The value has a fraction of the base unit.
    #[error("`{text:.60}` is not a whole number of {base}")]
    NotWhole {
        /// The text, as written.
        text: String,
        /// The base unit.
        base: &'static str,
    },
    /// The value needs more than 64 bits.
    #[error("`{text:.60}` is too large; at most {} {base} are allowed", u64::MAX)]
    TooLarge {
        /// The text, as written.
        text: String,
        /// The base unit.
        base: &'static str,
    },
}

fn parse(text: &str, units: &'static Units, example: &'static str) -> Result<u64, UnitError> {
    let own = || text.to_owned();
    let base = units[0].0;
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..split], trimmed[split..].trim_start());
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.contains('.') || number.ends_with('.') {
        return Err(UnitError::NotANumber { text: own(), example });
    }
    if unit.is_empty() {
        return Err(UnitError::NoUnit { text: own(), allowed: list(units), example });
    }
    let Some(&(_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        return Err(UnitError::UnknownUnit {
            text: own(),
            unit: unit.to_owned(),
            allowed: list(units),
            example,
        });
    };
    // The value is digits / 10^fraction.len() * factor, computed without rounding.
    let too_large = || UnitError::TooLarge { text: own(), base };
    let fraction = fraction.trim_end_matches('0');
    let digits: u128 = match format!("{whole}{fraction}").trim_start_matches('0') {
        "" => 0,
        digits => digits.parse().map_err(|_| too_large())?,
    };
    let product = digits.checked_mul(u128::from(factor)).ok_or_else(too_large)?;
    let scale = u32::try_from(fraction.len()).ok().and_then(|places| 10u128.checked_pow(places));
    match scale {
        Some(scale) if product % scale == 0 => u64::try_from(product / scale).map_err(|_| too_large()),
        _ => Err(UnitError::NotWhole { text: own(), base }),
    }
}

/// The shortest exact form with at most three decimals; of equally short forms, the one in the largest unit.
fn display(value: u64, units: &'static Units) -> String {
    let mut best = format!("{value} {}", units[0].0);
    for &(name, factor) in &units[1..] {
        let thousandths = u128::from(value) * 1_000;
        if value < factor || !thousandths.is_multiple_of(u128::from(factor)) {
            continue;
        }
        let thousandths = thousandths / u128::from(factor);
        let number = format!("{}.{:03}", thousandths / 1_000, thousandths % 1_000);
        let form = format!("{} {name}", number.trim_end_matches('0').trim_end_matches('.'));
        if form.len() <= best.len() {
            best = form;
        }
    }
    best
}

fn list(units: &Units) -> String {
    units.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $field:ident, $units:ident, $example:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name {
            /// The value in the base unit.
            pub $field: u64,
        }

        impl FromStr for $name {
            type Err = UnitError;

            fn from_str(text: &str) -> Result<Self, UnitError> {
                parse(text, $units, $example).map(|$field| Self { $field })
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&display(self.$field, $units))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = deserializer.deserialize_any(QuantityText { units: $units, example: $example })?;
                text.parse().map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                let names: Vec<_> = $units.iter().map(|(name, _)| *name).collect();
                json_schema!({
                    "type": "string",
                    "description": format!("A number and a unit: {}.", list($units)),
                    "pattern": format!(r"^\s*[0-9]+(\.[0-9]+)?\s*({})\s*$", names.join("|")),
                    "examples": [$example],
                })
            }
        }
    };
}

quantity! {
    /// A span of time, in nanoseconds.
    Duration, ns, DURATION_UNITS, "1.5 ms"
}
quantity! {
    /// An amount of memory, in bytes.
    Size, bytes, SIZE_UNITS, "12 MiB"
}
quantity! {
    /// A rate of memory transfers, in bytes per second.
    Bandwidth, bytes_per_s, BANDWIDTH_UNITS, "25.6 GB/s"
}
quantity! {
    /// A clock, in hertz.
    Frequency, hz, FREQUENCY_UNITS, "2.4 GHz"
}

/// Reads the text of a quantity; for a bare number, the error names the missing unit.
struct QuantityText {
    units: &'static Units,
    example: &'static str,
}

impl QuantityText {
    fn no_unit<E: de::Error>(&self, number: impl fmt::Display) -> E {
        let text = number.to_string();
        E::custom(UnitError::NoUnit { text, allowed: list(self.units), example: self.example })
    }
}

impl Visitor<'_> for QuantityText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a string with a number and one of the units {}, as in \"{}\"",
            list(self.units),
            self.example
        )
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<String, E> {
        Err(self.no_unit(number))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
        Err(self.no_unit(number))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<String, E> {
        Err(self.no_unit(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_exact_values() {
        assert_eq!("30 ms".parse(), Ok(Duration { ns: 30_000_000 }));
        assert_eq!(" 0.5us ".parse(), Ok(Duration { ns: 500 }));
        assert_eq!("0 s".parse(), Ok(Duration { ns: 0 }));
        assert_eq!("12 MiB".parse(), Ok(Size { bytes: 12 << 20 }));
        assert_eq!("25.60 GB/s".parse(), Ok(Bandwidth { bytes_per_s: 25_600_000_000 }));
        assert_eq!("2.4 GHz".parse(), Ok(Frequency { hz: 2_400_000_000 }));
        assert_eq!("18446744073709551615 ns".parse(), Ok(Duration { ns: u64::MAX }));
    }

    #[test]
    fn refuses_inexact_quantities_and_names_allowed_ones() {
        let cases = [
            ("30", "`30` has no unit; allowed are ns, us, ms, s, min, as in \"1.5 ms\""),
            ("30 h", "`30 h` has the unknown unit `h`; allowed are ns, us, ms, s, min, as in \"1.5 ms\""),
            ("1.5 ns", "`1.5 ns` is not a whole number of ns"),
            (
                "18446744073709551616 ns",
                "`18446744073709551616 ns` is too large; at most 18446744073709551615 ns are allowed",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(text.parse::<Duration>().unwrap_err().to_string(), message);
        }
        for text in ["", "ms", "-1 ms", ".5 ms", "5. ms", "1.2.3 ms", "+1 ms"] {
            let error = text.parse::<Duration>().unwrap_err();
            assert!(matches!(error, UnitError::NotANumber { .. }), "{text}: {error}");
        }
        let tiny = format!("0.{}1 s", "0".repeat(60));
        assert!(matches!(tiny.parse::<Duration>(), Err(UnitError::NotWhole { .. })));
    }

    #[test]
    fn displays_the_shortest_exact_form() {
        let cases = [
            (Size { bytes: 12 << 20 }.to_string(), "12 MiB"),
            (Size { bytes: 3 << 29 }.to_string(), "1.5 GiB"),
            (Size { bytes: 1_000_000 }.to_string(), "1 MB"),
            (Size { bytes: 1_234_567 }.to_string(), "1234567 B"),
            (Bandwidth { bytes_per_s: 25_600_000_000 }.to_string(), "25.6 GB/s"),
            (Duration { ns: 89 }.to_string(), "89 ns"),
            (Duration { ns: 0 }.to_string(), "0 ns"),
            (Frequency { hz: 2_667_000_000 }.to_string(), "2667 MHz"),
        ];
        for (shown, expected) in cases {
            assert_eq!(shown, expected);
        }
    }

    #[test]
    fn the_error_of_a_bare_number_names_the_missing_unit() {
        #[derive(Debug, Deserialize)]
        struct File {
            #[expect(dead_code)]
            memory: Size,
        }
        for text in ["memory = 12", "memory = 1.5"] {
            let error = toml::from_str::<File>(text).unwrap_err();
            assert!(error.message().contains("has no unit; allowed are B, kB"), "{error}");
        }
        let error = toml::from_str::<File>("memory = true").unwrap_err();
        assert!(error.message().contains("expected a string with a number"), "{error}");
    }

    proptest! {
        #[test]
        fn display_parses_back(value: u64) {
            prop_assert_eq!(Size { bytes: value }.to_string().parse(), Ok(Size { bytes: value }));
            let ns = value / 1_000_000 * 1_000_000;
            prop_assert_eq!(Duration { ns }.to_string().parse(), Ok(Duration { ns }));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,40}") {
            let _ = text.parse::<Size>();
        }
    }
}
