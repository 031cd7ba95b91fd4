//! `tandem agent`: the helper process of `tandem run`, which starts it, and starts it again if it ends.
//!
//! It is a process of its own so that the one that holds the scheduler reads nothing that users write, and so that the
//! scheduler stays if this one dies. It gets the settings on its standard input, as a line of JSON, and ends when that
//! is closed. Before it listens to anybody it gives up its capabilities; once it does, it writes a line on standard
//! output. Its log is standard error.

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;
use tandem_host::privileges::{Capabilities, keep_only};
use tandem_host::scheduler::{Kernel, Loaded, Settings};
use tandem_host::service::{SOCKET, Server, Steering};
use tandem_host::topology::read_sysfs;

/// How often it looks around.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `tandem agent`.
#[derive(clap::Args)]
pub struct Args {}

/// Serves until standard input is closed.
pub fn run(_: &Args) -> anyhow::Result<()> {
    // The parent holds them back, and a child inherits that.
    SigSet::all().thread_unblock().context("cannot receive signals")?;
    let mut input = io::stdin().lock();
    let _settings = read_settings(&mut input)?;
    let root = Path::new("/");
    let steering = Steering::open(Loaded::find(Kernel::new(root))?, read_sysfs(root)?)?;
    // Memory by node, open files and threads of other users' VMs are told to who may trace these.
    keep_only(Capabilities::SYS_PTRACE).context("cannot give up capabilities")?;

    let socket = Path::new(SOCKET);
    if let Some(folder) = socket.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let server = Server::start(socket, Box::new(steering), Box::new(log));
    let server = server.with_context(|| format!("cannot listen at {SOCKET}"))?;
    // The parent waits for the first agent only.
    let _ = writeln!(io::stdout(), "ready");
    while !is_closed(&mut input)? {
        server.log_due();
    }
    Ok(())
}

fn read_settings(input: &mut impl BufRead) -> anyhow::Result<Settings> {
    let mut line = String::new();
    input.read_line(&mut line).context("cannot read the settings")?;
    serde_json::from_str(&line)
        .context("standard input has no settings; `tandem run` starts the agent with them")
}

/// Waits for a while; whether the input was closed.
fn is_closed(input: &mut (impl Read + AsFd)) -> anyhow::Result<bool> {
    let timeout = PollTimeout::try_from(LOOK_INTERVAL).unwrap_or(PollTimeout::MAX);
    let ready = poll(&mut [PollFd::new(input.as_fd(), PollFlags::POLLIN)], timeout);
    match ready.context("cannot wait")? {
        0 => Ok(false),
        _ => Ok(input.read(&mut [0; 64])? == 0),
    }
}

/// A line for the log; who reads it may be gone.
fn log(line: &str) {
    let _ = writeln!(io::stderr(), "tandem: {line}");
}
