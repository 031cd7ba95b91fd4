//! The values that a command prints.

use tandem_lab::statistics::switchback::Better;
use tandem_lab::switchback::record::Value;

/// Most values of a command: each is a row of the table.
const VALUES_MAX: usize = 32;
/// The name of a value without one.
const UNNAMED: &str = "metric";

/// Takes the values from what a command has printed: a line each, `[NAME] VALUE [lower|higher]`.
///
/// # Errors
/// A sentence that says which line is something else.
pub fn parse(output: &str, better: Better) -> Result<Vec<Value>, String> {
    let mut values: Vec<Value> = Vec::new();
    for line in output.lines().filter(|line| !line.trim().is_empty()) {
        let value = parse_line(line, better).ok_or_else(|| {
            let line: String = line.chars().take(60).collect();
            format!("the metric's command printed `{line}`; allowed are lines [NAME] VALUE [lower|higher]")
        })?;
        if values.iter().any(|other| other.measure == value.measure) {
            return Err(format!("the metric's command printed two values of `{}`", value.measure));
        }
        values.push(value);
    }
    match values.len() {
        0 => Err("the metric's command printed nothing".into()),
        1..=VALUES_MAX => Ok(values),
        _ => Err(format!("the metric's command printed more than {VALUES_MAX} values")),
    }
}

fn parse_line(line: &str, better: Better) -> Option<Value> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (words, better) = match &words[..] {
        [rest @ .., "lower"] => (rest, Better::Lower),
        [rest @ .., "higher"] => (rest, Better::Higher),
        all => (all, better),
    };
    let (name, value) = match words {
        [value] => (UNNAMED, value),
        [name, value] => (*name, value),
        _ => return None,
    };
    let value: f64 = value.parse().ok().filter(|value: &f64| value.is_finite())?;
    Some(Value {
        measure: name.to_owned(),
        unit: String::new(),
        better: Some(better),
        is_decisive: true,
        value,
        halves: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(output: &str) -> Result<Vec<(String, f64, Better)>, String> {
        let values = parse(output, Better::Lower)?;
        Ok(values.into_iter().map(|value| (value.measure, value.value, value.better.unwrap())).collect())
    }

    #[test]
    fn a_line_is_a_value_with_or_without_name_and_direction() {
        assert_eq!(parsed("12.5\n"), Ok(vec![("metric".into(), 12.5, Better::Lower)]));
        let several = "\np99 3e-3\nrequests 1200 higher\n7 lower\n";
        let expected = [
            ("p99", 0.003, Better::Lower),
            ("requests", 1200.0, Better::Higher),
            ("metric", 7.0, Better::Lower),
        ];
        assert_eq!(
            parsed(several),
            Ok(expected.map(|(name, value, better)| (name.into(), value, better)).to_vec())
        );
    }

    #[test]
    fn anything_else_is_named() {
        for (output, says) in [
            ("", "printed nothing"),
            ("p99 = 3", "printed `p99 = 3`; allowed are lines"),
            ("p99 nan", "printed `p99 nan`"),
            ("lower", "printed `lower`"),
            ("a 1\na 2", "two values of `a`"),
        ] {
            let error = parsed(output).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let many: String = (0..=VALUES_MAX).map(|at| format!("v{at} 1\n")).collect();
        assert!(parsed(&many).unwrap_err().contains("more than 32"));
    }
}
