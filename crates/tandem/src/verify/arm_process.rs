//! `tandem arm`: the processes between a trial and its schedulers; see [`tandem_host::trial`].

use anyhow::Context;
use std::ffi::OsString;
use std::process::{self, Command};
use tandem_host::trial::{InvokingUser, Keeping, begin_as, exit_code, keep};

/// An update may have replaced the file.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Arguments of `tandem arm`.
#[derive(clap::Args)]
pub struct Args {
    /// Become the command, and end with the process of this number; otherwise start it, and end it when standard
    /// input is closed
    #[arg(long, value_name = "PID")]
    of: Option<u32>,
    /// The user that runs the command
    #[arg(long, requires = "group")]
    user: Option<u32>,
    /// The user's group
    #[arg(long, requires = "user")]
    group: Option<u32>,
    /// The command
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// How [`run`] is called.
pub fn keeping() -> Keeping {
    Keeping { program: THIS_PROGRAM.into(), arguments: vec!["arm".into()] }
}

/// Keeps or becomes the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let user = args.user.zip(args.group).map(|(uid, gid)| InvokingUser { uid, gid });
    if let Some(parent) = args.of {
        let mut command = Command::new(&args.command[0]);
        let error = begin_as(command.args(&args.command[1..]), user, parent);
        return Err(error).with_context(|| format!("cannot start {}", args.command[0].display()));
    }
    let mut begin = Command::new(THIS_PROGRAM);
    begin.arg("arm").arg(format!("--of={}", process::id()));
    if let Some(InvokingUser { uid, gid }) = user {
        begin.arg(format!("--user={uid}")).arg(format!("--group={gid}"));
    }
    let status = keep(begin.arg("--").args(&args.command)).context("cannot start a process")?;
    process::exit(i32::from(exit_code(status)));
}
