//! Results as text: for a terminal, for a program, for a spreadsheet and for a browser.
//!
//! Problem: a table, a page, JSON and CSV must all give the same numbers. Approach: one trait, [`Format`],
//! and one file per format. The table and the page share small modules: how to print a number, judge an
//! effect against the published one, divide cells into groups, find the load at which a variant starts to
//! matter, and fill the cells of a heat map.
//!
//! Limits: a format writes complete results, not a stream of them. A number that is not finite is written as
//! missing.

mod csv;
mod groups;
mod heat_map;
mod html;
mod json;
mod layout;
pub(crate) mod number;
mod onset;
mod outcome;
pub(crate) mod plot;
pub(crate) use plot::svg;
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
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Extension of a file in this format, without the dot.
    fn extension(&self) -> &'static str;

    /// Writes all of `results`, in the order given. Fails only if `out` does.
    fn write(&self, results: &[ExperimentResults], out: &mut dyn io::Write) -> io::Result<()>;
}

/// All formats.
pub const FORMATS: [&dyn Format; 4] = [&Table, &Json, &Csv, &Html];

/// The format with this name on the command line.
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
