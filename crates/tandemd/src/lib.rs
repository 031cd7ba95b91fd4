//! The service, and what the verbs of `tandem` share with it.
//!
//! Problem: what runs as a service for years, with rights, should contain no more than it needs: neither the
//! simulator nor a code generator. But `tandem run` in a terminal is the same thing, and shows VMs and errors
//! as the other verbs do.
//!
//! Approach: a library, and the program `tandemd` which is these verbs alone ([`Verb`]). The program `tandem`
//! has them too, beside those that need the simulator. Either starts its helpers from its own file
//! ([`helper`]), so that the two never depend on each other, or on their versions.

// `println!` panics when the reader of a pipe is gone; `writeln!` to [`out::out`] returns an error that
// [`error::report`] knows.
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
pub mod out;
pub mod run;
pub mod text;

use std::io::Write;
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

/// The command line of this process, or the exit status if it asks for help alone, or is wrong.
///
/// # Errors
/// The exit status.
pub fn command_line<C: clap::Parser>() -> Result<C, ExitCode> {
    C::try_parse().map_err(|told| {
        let status = u8::try_from(told.exit_code()).unwrap_or(u8::MAX);
        match told.print() {
            Err(error) if !told.use_stderr() => error::report(&out::of_output(error).into()),
            // Standard error may be closed.
            _ if told.use_stderr() => ExitCode::from(status),
            _ => end(Ok(())),
        }
    })
}

/// Ends a program with what became of it.
pub fn end(result: anyhow::Result<()>) -> ExitCode {
    // What is left in the buffer of standard output would be lost in silence.
    match result.and_then(|()| Ok(out::out().flush()?)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error::report(&error),
    }
}
