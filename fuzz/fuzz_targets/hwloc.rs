//! The reader of hwloc's XML gives a machine or an error for any text; it never panics.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tandem_host::topology::parse_hwloc;

fuzz_target!(|text: &str| {
    let _ = parse_hwloc(text);
});
