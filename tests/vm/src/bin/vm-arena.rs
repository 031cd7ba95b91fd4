//! `vm-arena`: ranks schedulers in QEMU and in the simulator; see [`vm_tests::host::arena`].

use clap::Parser;
use std::process::ExitCode;
use vm_tests::host::arena;

fn main() -> ExitCode {
    match arena::run(&arena::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("vm-arena: {error:#}");
            ExitCode::FAILURE
        }
    }
}
