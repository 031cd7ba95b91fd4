//! The program of the service: `tandem run` without the simulator and the other verbs.

use clap::Parser;
use std::process::ExitCode;
use tandemd::{Verb, begin, command_line, end, error};

/// The service of Tandem: `tandem run` as a program that contains neither the simulator nor the other verbs.
#[derive(Parser)]
#[command(name = "tandemd", version, propagate_version = true, after_help = error::EXIT_STATUS_HELP)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

fn main() -> ExitCode {
    begin();
    match command_line::<Cli>() {
        Ok(cli) => end(cli.verb.run()),
        Err(status) => status,
    }
}
