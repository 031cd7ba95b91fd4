//! The reader of scenario files builds or rejects any text; it never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use tandem_lab::scenario::ScenarioSource;

fuzz_target!(|text: &str| {
    if let Ok(source) = ScenarioSource::parse(Path::new("fuzz.toml"), text) {
        let _ = source.build(&Default::default(), &Default::default());
    }
});
