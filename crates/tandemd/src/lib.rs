//! The service, and what the verbs of `tandem` share with it.
//!
//! Problem: what runs as a service for years, with rights, should contain no more than it needs: neither the
//! simulator nor a code generator. But `tandem run` in a terminal is the same thing, and shows VMs and errors
//! as the other verbs do.
//!
//! Approach: a library, and the program `tandemd` which is these verbs alone ([`Verb`]). The program `tandem`
//! has them too, beside those that need the simulator. Either starts its helpers from its own file
//! ([`helper`]), so that the two never depend on each other, or on their versions.

// `println!` panics when the reader of a pipe is gone; `writeln!` returns an error that [`error::report`]
// knows.
#![warn(clippy::print_stdout)]

pub mod access;
pub mod agent;
pub mod counters;
pub mod error;
pub mod helper;
pub mod host_vms;
pub mod journal;
pub mod observe;
mod open_files;
pub mod run;
pub mod text;

use std::process::ExitCode;

/// The verbs of the service.
#[derive(clap::Subcommand)]
pub enum Verb {
    /// Load the scheduler into this machine's kernel, and keep it loaded until a signal
    Run(run::Args),
    /// Serve users and place VMs; `run` starts this
    #[command(hide = true)]
    Agent(agent::Args),
    /// Use privileges that the other verbs lack or give up; they start this
    #[command(hide = true)]
    Helper(helper::Args),
}

impl Verb {
    /// Does what the verb says, to its end.
    ///
    /// # Errors
    /// What went wrong; [`error::BadInput`] if it is what the user gave.
    pub fn run(&self) -> anyhow::Result<()> {
        match self {
            Self::Run(args) => run::run(args),
            Self::Agent(args) => agent::run(args),
            Self::Helper(args) => helper::run(args),
        }
    }
}

/// Begins a program: bugs end it with one line, and files of strangers are read by a helper.
pub fn begin() {
    error::install_panic_hook();
    helper::use_for_strangers();
}

/// Ends a program with what became of it.
pub fn end(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error::report(&error),
    }
}
