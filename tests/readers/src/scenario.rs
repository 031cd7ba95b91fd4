//! The reader of scenario files builds or rejects any text; it never panics.

use std::path::Path;
use tandem_lab::scenario::ScenarioSource;

/// Reads an input, if it is a text.
pub fn read(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    if let Ok(source) = ScenarioSource::parse(Path::new("fuzz.toml"), text) {
        let _ = source.build(&Default::default(), &Default::default());
    }
}
