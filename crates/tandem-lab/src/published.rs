//! Published tables: `published.csv` beside an experiment.
//!
//! The columns `metric` and `variant` say what a row is about; `value` is the published value and
//! `effect_pct` the published effect against the baseline, for sources that give an effect without values.
//! One of the two may be empty. `stddev`, a column that may be left out, is the published standard deviation
//! of the value over its runs. All other columns are keys of the cell, such as `benchmark` and `vms`; empty
//! ones do not count. Lines that begin with # are comments and name the source.

use crate::results::Key;
use std::collections::BTreeMap;
use std::path::Path;
use tandem_file::file_error::{FileError, read_text};

/// Keys that identify a cell.
pub type CellKeys = BTreeMap<String, Key>;

/// Whether `keys` has all of `some`, with the same values.
pub fn has_all(keys: &CellKeys, some: &CellKeys) -> bool {
    some.iter().all(|(key, value)| keys.get(key) == Some(value))
}

/// A published table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Published {
    rows: Vec<Row>,
}

/// A row of a published table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Its line in the file, from 1.
    pub line: usize,
    /// The cell.
    pub keys: CellKeys,
    /// The metric.
    pub metric: String,
    /// The variant.
    pub variant: String,
    /// The published value.
    pub value: Option<f64>,
    /// The published effect against the baseline.
    pub effect_pct: Option<f64>,
    /// The published standard deviation of the value.
    pub stddev: Option<f64>,
}

impl Published {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read or is malformed; the error names the line.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::parse(&path.display().to_string(), &read_text(path)?)
    }

    /// Parses the text of a file of this name.
    ///
    /// # Errors
    /// If it is malformed; the error names the line.
    pub fn parse(file: &str, text: &str) -> Result<Self, FileError> {
        let at = |line: usize, message: String| FileError { file: file.into(), line: Some(line), message };
        let csv_error = |error: csv::Error| {
            let line = error.position().map(|position| position.line() as usize);
            FileError { file: file.into(), line, message: error.to_string() }
        };
        // Reports print these texts to terminals.
        let is_wrong = |it: char| it.is_control() && !matches!(it, '\n' | '\r' | '\t');
        if let Some((before, after)) = text.find(is_wrong).map(|at| text.split_at(at)) {
            let name = after.chars().next().unwrap_or_default().escape_default();
            let message = format!("the control character `{name}` is not allowed; remove it");
            return Err(at(before.matches('\n').count() + 1, message));
        }
        let mut reader =
            csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
        let headers = reader.headers().map_err(csv_error)?.clone();
        let heading = headers.position().map_or(1, |position| position.line() as usize);
        for column in ["metric", "variant", "value", "effect_pct"] {
            if headers.iter().filter(|&header| header == column).count() != 1 {
                let message = format!(
                    "needs one column `{column}`; allowed are metric, variant, value, effect_pct, and one for each key"
                );
                return Err(at(heading, message));
            }
        }
        let mut rows: Vec<Row> = Vec::new();
        for record in reader.records() {
            let record = record.map_err(csv_error)?;
            let line = record.position().map_or(0, |position| position.line() as usize);
            let row = row(&headers, &record, line).map_err(|message| at(line, message))?;
            if let Some(other) =
                rows.iter().find(|other| other.is_about(&row.keys, &row.metric, &row.variant))
            {
                return Err(at(line, format!("repeats line {}; each value needs one row", other.line)));
            }
            rows.push(row);
        }
        Ok(Self { rows })
    }

    /// The rows, in the order of the file.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The published value.
    pub fn value(&self, keys: &CellKeys, metric: &str, variant: &str) -> Option<f64> {
        self.row(keys, metric, variant)?.value
    }

    /// The published effect of a variant against the baseline: as published, or else from the two values.
    pub fn effect_pct(&self, keys: &CellKeys, metric: &str, variant: &str, baseline: &str) -> Option<f64> {
        let row = self.row(keys, metric, variant)?;
        row.effect_pct.or_else(|| {
            let base = self.value(keys, metric, baseline).filter(|&base| base != 0.0)?;
            (variant != baseline).then_some(100.0 * (row.value? - base) / base)
        })
    }

    /// Twice the larger published standard deviation of the two, in percent of the baseline: an effect within
    /// it may be chance. `None` if none is published.
    pub fn noise_pct(&self, keys: &CellKeys, metric: &str, variant: &str, baseline: &str) -> Option<f64> {
        let base = self.row(keys, metric, baseline)?;
        let stddev =
            base.stddev.into_iter().chain(self.row(keys, metric, variant)?.stddev).reduce(f64::max)?;
        let value = base.value.filter(|&value| value != 0.0)?;
        Some(100.0 * 2.0 * stddev / value.abs())
    }

    fn row(&self, keys: &CellKeys, metric: &str, variant: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.is_about(keys, metric, variant))
    }
}

impl Row {
    fn is_about(&self, keys: &CellKeys, metric: &str, variant: &str) -> bool {
        self.metric == metric && self.variant == variant && self.keys == *keys
    }
}

fn row(headers: &csv::StringRecord, record: &csv::StringRecord, line: usize) -> Result<Row, String> {
    let mut row = Row {
        line,
        keys: CellKeys::new(),
        metric: String::new(),
        variant: String::new(),
        value: None,
        effect_pct: None,
        stddev: None,
    };
    for (header, field) in headers.iter().zip(record) {
        match header {
            "metric" => row.metric = field.into(),
            "variant" => row.variant = field.into(),
            "value" => row.value = number(field)?,
            "effect_pct" => row.effect_pct = number(field)?,
            "stddev" => row.stddev = number(field)?.map(f64::abs),
            _ if field.is_empty() => {}
            key => {
                row.keys.insert(key.into(), Key::parse(field));
            }
        }
    }
    if row.value.is_none() && row.effect_pct.is_none() {
        return Err("has neither a `value` nor an `effect_pct`; it needs one of them".into());
    }
    Ok(row)
}

fn number(field: &str) -> Result<Option<f64>, String> {
    match field.parse::<f64>() {
        _ if field.is_empty() => Ok(None),
        Ok(number) if number.is_finite() => Ok(Some(number)),
        _ => Err(format!("`{field}` is not a number; allowed are numbers such as 12.5, or nothing")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# Source: somewhere\nbenchmark,vms,metric,variant,value,effect_pct\n\
        jbb,2,throughput,none,200,\njbb,2,throughput,pin,250,\njbb,,latency,pin,,-3.5\n";

    fn keys(vms: Option<i64>) -> CellKeys {
        let benchmark = ("benchmark".to_owned(), Key::Text("jbb".into()));
        vms.map(|vms| ("vms".to_owned(), Key::Number(vms))).into_iter().chain([benchmark]).collect()
    }

    #[test]
    fn effects_are_as_published_or_from_the_values() {
        let table = Published::parse("p.csv", TABLE).unwrap();
        let two = keys(Some(2));
        assert_eq!(table.value(&two, "throughput", "pin"), Some(250.0));
        assert_eq!(table.effect_pct(&two, "throughput", "pin", "none"), Some(25.0));
        assert_eq!(table.effect_pct(&two, "throughput", "none", "none"), None);
        assert_eq!(table.effect_pct(&keys(None), "latency", "pin", "none"), Some(-3.5));
        assert_eq!(table.effect_pct(&keys(Some(6)), "throughput", "pin", "none"), None);
    }

    #[test]
    fn noise_is_twice_the_larger_deviation() {
        let table = "metric,variant,value,effect_pct,stddev\ntime,none,200,,3\ntime,pin,190,,4\ntime,soft,190,,\n\
            rate,none,5,,\nrate,pin,6,,\n";
        let table = Published::parse("p.csv", table).unwrap();
        let noise = |metric, variant| table.noise_pct(&CellKeys::new(), metric, variant, "none");
        assert_eq!(noise("time", "pin"), Some(4.0));
        assert_eq!(noise("time", "soft"), Some(3.0), "only the baseline's is published");
        assert_eq!(noise("rate", "pin"), None);
    }

    #[test]
    fn mistakes_name_the_line_and_what_is_allowed() {
        let header = "# c\nvms,metric,variant,value,effect_pct\n";
        for (text, line, words) in [
            ("vms,metric,variant,value\n".into(), 1, "needs one column `effect_pct`; allowed are metric"),
            (format!("{header}2,t,a,fast,\n"), 3, "`fast` is not a number; allowed are"),
            (format!("{header}2,t,a,NaN,\n"), 3, "`NaN` is not a number"),
            (format!("{header}2,t,a,,\n"), 3, "neither a `value` nor an `effect_pct`"),
            (format!("{header}2,t,a,1,\n2,t,a,2,\n"), 4, "repeats line 3; each value needs one row"),
            (format!("{header}2,t,a,1\n"), 3, "found record with 4 fields"),
        ] {
            let error = Published::parse("p.csv", &text).unwrap_err();
            assert_eq!(error.line, Some(line), "{error}");
            assert!(error.message.contains(words), "{error}");
        }
    }
}
