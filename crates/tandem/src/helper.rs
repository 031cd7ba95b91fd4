//! `tandem helper`: the processes that have rights which the others lack, see [`tandem_host::guarded`].

use std::process::Command;
use tandem_host::agent::serve_moves;
use tandem_host::guarded;
use tandem_host::privileges::{Capabilities, held, keep_only};

/// Arguments of `tandem helper`.
#[derive(clap::Args)]
pub struct Args {
    /// What it does
    role: Role,
    /// Of a broker: keep processes apart on their cores that the agent names
    #[arg(long)]
    cookies: bool,
}

/// What a helper does.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Role {
    /// Reads files that may not answer
    Reader,
    /// Lets readers read for the agent, which may not
    Broker,
    /// Moves memory for the agent, which may not
    Mover,
}

/// Lets files of strangers be read by a reader, from now on.
pub fn use_for_strangers() {
    guarded::guard_with(|| command(Role::Reader));
}

/// How a helper is started.
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
    // To look at processes of others, and into folders of theirs where the operator has given the service the right to.
    keep_only(held(Capabilities::SYS_PTRACE | Capabilities::DAC_READ_SEARCH)?)?;
    match args.role {
        Role::Reader => guarded::serve()?,
        Role::Broker => guarded::serve_as_broker(|| command(Role::Reader), args.cookies)?,
        Role::Mover => serve_moves()?,
    }
    Ok(())
}
