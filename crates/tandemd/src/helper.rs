//! `tandem helper`: processes with privileges that the others lack; see [`tandem_host::guarded`].

use std::process::Command;
use tandem_host::agent::serve_moves;
use tandem_host::guarded;
use tandem_host::privileges::{Capabilities, held, keep_only};

/// Arguments of `tandem helper`.
#[derive(clap::Args)]
pub struct Args {
    /// The helper's role
    role: Role,
    /// For a broker: give core-scheduling cookies to the processes that the agent names
    #[arg(long)]
    cookies: bool,
}

/// The role of a helper.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Role {
    /// Reads files that may block
    Reader,
    /// Lets readers read for the agent, which lacks the privilege
    Broker,
    /// Moves memory for the agent, which lacks the privilege
    Mover,
}

/// From now on, reads files of other users through a reader.
pub fn use_for_strangers() {
    guarded::guard_with(|| command(Role::Reader));
}

/// The command that starts a helper.
pub fn command(role: Role) -> Command {
    // An update may have replaced the file.
    let mut command = Command::new("/proc/self/exe");
    command.arg("helper").arg(match role {
        Role::Reader => "reader",
        Role::Broker => "broker",
        Role::Mover => "mover",
    });
    command
}

/// Serves until standard input is closed.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // To read processes of other users, and their folders if the operator has given the service that
    // capability.
    keep_only(held(Capabilities::SYS_PTRACE | Capabilities::DAC_READ_SEARCH)?)?;
    match args.role {
        Role::Reader => guarded::serve()?,
        Role::Broker => guarded::serve_as_broker(|| command(Role::Reader), args.cookies)?,
        Role::Mover => serve_moves()?,
    }
    Ok(())
}
