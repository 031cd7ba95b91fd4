//! `vm-bench`: compares schedulers in QEMU; see [`vm_tests::host::bench`].

use clap::Parser;
use std::process::ExitCode;
use vm_tests::host::bench;

fn main() -> ExitCode {
    match bench::run(&bench::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vm-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
