//! Formats numbers: in tables and pages with the digits that matter, in JSON and CSV rounded.

/// Significant digits in JSON and CSV: more than a simulation can justify, few enough to read and to compare.
const SIGNIFICANT_DIGITS: usize = 6;

/// Printed where there is no number.
pub const MISSING: &str = "–";

/// A value in tables and pages: four digits, a comma between thousands.
pub fn value(value: f64) -> String {
    let magnitude = value.abs();
    let text = if !value.is_finite() {
        return MISSING.to_owned();
    } else if magnitude == 0.0 {
        "0".to_owned()
    } else if !(1e-3..1e8).contains(&magnitude) {
        format!("{magnitude:.3e}")
    } else if magnitude >= 999.95 {
        group_thousands(&format!("{magnitude:.0}"))
    } else {
        let digits_before_point = magnitude.log10().floor() as i32 + 1;
        format!("{magnitude:.*}", (4 - digits_before_point).clamp(1, 6) as usize)
    };
    let sign = if value < 0.0 { "−" } else { "" };
    format!("{sign}{text}")
}

/// An effect in percent: always with its sign, one decimal.
pub fn effect(pct: f64) -> String {
    if pct.is_finite() { points(pct) + "%" } else { MISSING.to_owned() }
}

/// A difference of two effects, in points: always with its sign, one decimal.
pub fn points(points: f64) -> String {
    if !points.is_finite() {
        return MISSING.to_owned();
    }
    let text = format!("{:.1}", points.abs());
    // A number that rounds to zero is printed without a sign.
    let sign = match (text.as_str(), points < 0.0) {
        ("0.0", _) => "",
        (_, true) => "−",
        (_, false) => "+",
    };
    format!("{sign}{text}")
}

/// An interval of effects, in percent.
pub fn interval((low, high): (f64, f64)) -> String {
    format!("[{}, {}]", points(low), points(high))
}

/// `number` with six significant digits; `None` where it is not finite.
pub fn rounded(number: f64) -> Option<f64> {
    // Printing rounds the decimal digits exactly, which arithmetic on binary fractions cannot.
    let text = format!("{number:.*e}", SIGNIFICANT_DIGITS - 1);
    text.parse().ok().filter(|rounded: &f64| rounded.is_finite())
}

fn group_thousands(digits: &str) -> String {
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_show_four_digits() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (15000.0, "15,000"),
            (43318.613, "43,319"),
            (1234567.0, "1,234,567"),
            (999.97, "1,000"),
            (469.37667, "469.4"),
            (60.0, "60.00"),
            (1.5, "1.500"),
            (0.01234, "0.01234"),
            (-12.5, "−12.50"),
            (8_368_810_426.0, "8.369e9"),
            (1.5e-7, "1.500e-7"),
            (f64::NAN, MISSING),
            (f64::INFINITY, MISSING),
        ] {
            assert_eq!(value(number), text);
        }
    }

    #[test]
    fn effects_carry_their_sign() {
        for (pct, text) in [
            (13.84, "+13.8%"),
            (-2.25, "−2.2%"),
            (0.04, "0.0%"),
            (-0.04, "0.0%"),
            (767.9, "+767.9%"),
            (f64::NAN, MISSING),
            (f64::NEG_INFINITY, MISSING),
        ] {
            assert_eq!(effect(pct), text);
        }
        assert_eq!(interval((-1.0, 2.34)), "[−1.0, +2.3]");
    }

    #[test]
    fn rounding_keeps_six_digits() {
        for (number, expected) in [
            (1.23456789, Some(1.23457)),
            (43318.6134, Some(43318.6)),
            (-0.000_012_345_678, Some(-0.000_012_345_7)),
            (0.0, Some(0.0)),
            (1.5e300, Some(1.5e300)),
            (f64::NAN, None),
            (f64::INFINITY, None),
        ] {
            assert_eq!(rounded(number), expected, "{number}");
        }
    }
}
