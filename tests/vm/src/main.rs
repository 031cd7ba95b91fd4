//! `vm-tests`: runs on the machine and boots the legs; see [`vm_tests`].

use clap::Parser;
use std::process::ExitCode;
use vm_tests::host;

fn main() -> ExitCode {
    match host::run(&host::Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("vm-tests: {error:#}");
            ExitCode::FAILURE
        }
    }
}
