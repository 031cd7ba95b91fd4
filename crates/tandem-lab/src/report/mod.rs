//! Results as text: for a terminal, for a program, for a spreadsheet and for a browser.
//!
//! Problem: people read a table or a page, programs read JSON or CSV, and all of them must say the same. Approach: one
//! trait, [`Format`], and one file per format. What the formats for people share is in small modules: how a number is
//! printed, how an effect is judged against the published one, how cells fall into groups, from which load on a variant
//! matters, and what the cells of a heat map are.
//!
//! Limits: a format writes complete results, not a stream of them. A number that is not finite is written as missing.

mod csv;
mod groups;
mod heat_map;
mod html;
mod json;
mod number;
mod onset;
mod outcome;
mod plot;
mod table;

#[cfg(test)]
mod fixture;

pub use self::csv::Csv;
pub use html::Html;
pub use json::Json;
pub use outcome::{CLOSE_POINTS, Outcome};
pub use table::Table;

use crate::results::ExperimentResults;
use std::io;

/// A way to write results.
pub trait Format: Sync {
    /// What the user calls it.
    fn name(&self) -> &'static str;

    /// Extension of a file in this format, without the dot.
    fn extension(&self) -> &'static str;

    /// Writes all of `results`, in the order given. Fails only if `out` does.
    fn write(&self, results: &[ExperimentResults], out: &mut dyn io::Write) -> io::Result<()>;
}

/// Every format there is.
pub const FORMATS: [&dyn Format; 4] = [&Table, &Json, &Csv, &Html];

/// The format that the user calls `name`.
pub fn format(name: &str) -> Option<&'static dyn Format> {
    FORMATS.into_iter().find(|format| format.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: &dyn Format, results: &[ExperimentResults]) -> String {
        let mut out = Vec::new();
        format.write(results, &mut out).expect("a vector takes everything");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn formats_are_found_by_name() {
        for name in ["table", "json", "csv", "html"] {
            assert_eq!(format(name).expect(name).name(), name);
        }
        assert!(format("xml").is_none());
    }

    #[test]
    fn every_format_writes_odd_results() {
        for results in [
            Vec::new(),
            vec![fixture::empty()],
            vec![fixture::odd()],
            vec![fixture::heat_map()],
            fixture::all(),
        ] {
            for format in FORMATS {
                let text = written(format, &results);
                assert!(!text.contains("NaN") && !text.contains("inf%"), "{}: {text}", format.name());
                assert!(text.ends_with('\n') || text.is_empty(), "{}", format.name());
            }
        }
    }
}
