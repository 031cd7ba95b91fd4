//! Says by which sources results are made: those of other sources must not pass for theirs, though the version is the same.

use std::path::{Path, PathBuf};
use std::{env, fs};
use twox_hash::XxHash3_128;
use walkdir::WalkDir;

/// The crates whose code decides about results.
const CRATES: [&str; 6] =
    ["tandem-ebpf", "tandem-file", "tandem-lab", "tandem-machine", "tandem-settings", "tandem-sim"];

fn main() {
    let crates = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("Cargo sets it")).join("..");
    let mut hash = XxHash3_128::with_seed(0);
    for name in CRATES {
        let folder = crates.join(name).join("src");
        println!("cargo::rerun-if-changed={}", folder.display());
        for file in WalkDir::new(&folder).sort_by_file_name() {
            let file = file.expect("the sources can be read");
            if file.file_type().is_file() {
                hash.write(
                    Path::new(name)
                        .join(file.path().strip_prefix(&folder).unwrap())
                        .as_os_str()
                        .as_encoded_bytes(),
                );
                hash.write(&fs::read(file.path()).expect("the sources can be read"));
            }
        }
    }
    println!("cargo::rustc-env=TANDEM_SOURCES={:.12}", format!("{:032x}", hash.finish_128()));
}
