//! `tandem agent`: the helper process of `tandem run`, which starts it, and starts it again if it ends.
//!
//! It is a process of its own so that the one that holds the scheduler reads nothing that users write, and so that the
//! scheduler stays if this one dies. It gets the settings on its standard input, as a line of JSON, and ends when that
//! is closed. Before it listens to anybody it gives up its capabilities; a broker keeps the one that it takes to look at VMs of others. Once it does, and from then on whenever it has got on, it writes a
//! byte on standard output: who starts it ends one that is silent for long, and starts another one. Its log is standard error.
//!
//! It serves users ([`tandem_host::control`]), gives VMs their homes ([`tandem_host::agent`]), and serves metrics if the
//! settings say where ([`tandem_host::metrics`]).

use crate::helper::{self, Role};
use crate::journal;
use crate::open_files;
use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tandem_host::agent::{Agent, Hands, KernelPages, NoHands, PagesByHelper, SchedulerHands};
use tandem_host::control::{Backend, Observing, SOCKET, Server, Steering};
use tandem_host::guarded;
use tandem_host::log_entry::Level;
use tandem_host::metrics::{Exporter, Service};
use tandem_host::privileges::{Capabilities, keep_only};
use tandem_host::scheduler::{Kernel, Loaded, SchedulerError};
use tandem_host::topology::read_sysfs;
use tandem_host::vms::homes_file::HomesFile;
use tandem_machine::Machine;
use tandem_settings::{Mode, Settings, VmRule};

/// How often it looks around when nothing wakes it.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `tandem agent`.
#[derive(clap::Args)]
pub struct Args {
    /// Observe alone: there is no scheduler
    #[arg(long)]
    observe: bool,
}

/// Serves, and looks after VMs, until standard input is closed.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // The parent holds them back, and a child inherits that.
    SigSet::all().thread_unblock().context("cannot receive signals")?;
    // A file for each vCPU stays open.
    let _ = open_files::raise();
    let mut input = io::stdin().lock();
    let settings = read_settings(&mut input)?;
    let root = Path::new("/");
    let machine = read_sysfs(root)?;
    // What needs capabilities is opened before they are given up.
    let loaded = (!args.observe).then(|| Loaded::find(Kernel::new(root))).transpose()?;
    let hands: Box<dyn Hands> = match &loaded {
        Some(loaded) => Box::new(SchedulerHands::new(loaded.preferences()?, machine.clone())),
        None => Box::new(NoHands),
    };
    // Memory by node and what maps show of other users' VMs is told to who may trace these: the broker, and who moves memory.
    let mut broker = helper::command(Role::Broker);
    let keeps_apart = !args.observe && settings.vm.iter().any(VmRule::keeps_apart);
    broker.args(keeps_apart.then_some("--cookies"));
    guarded::delegate_to(broker).context("cannot start the broker")?;
    let moves_memory = !args.observe && may_move_memory(&settings, &machine);
    let pages = moves_memory.then(|| PagesByHelper::start(helper::command(Role::Mover))).transpose();
    let pages = pages.context("cannot start who moves memory")?;
    keep_only(Capabilities::empty()).context("cannot give up capabilities")?;

    let mut agent = settings.gives_homes().then(|| {
        let agent = Agent::new(root, machine.clone(), &settings, hands).with_progress(beat);
        match pages {
            Some(pages) => agent.with_moved_memory(settings.agent.memory_mib_per_s, Arc::new(pages)),
            None => agent,
        }
    });
    let reports = agent.as_ref().map(Agent::reports);
    let asked = loaded.clone();
    let mut exporter = Exporter::of_scheduler(root, move || match &asked {
        Some(asked) => asked.status(),
        None => Err(SchedulerError::NotLoaded),
    });
    if settings.mode == Mode::Host {
        exporter = exporter.with_host(&machine, reports.clone());
    }
    let backend: Box<dyn Backend> = match loaded {
        Some(loaded) => Box::new(Steering::open(loaded, machine, reports, settings.steering.managed)?),
        None => Box::new(Observing::new(reports.unwrap_or_default())),
    };

    let socket = Path::new(SOCKET);
    if let Some(folder) = socket.parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let server = Server::start(socket, backend, settings.steering.users, Box::new(journal::write));
    let server = server.with_context(|| format!("cannot listen at {SOCKET}"))?;
    if let Some(address) = settings.metrics.listen.0 {
        Service::start(address, exporter.with_requests(server.counts()), Box::new(journal::write))
            .context("cannot serve metrics")?;
    }
    if agent.as_ref().is_some_and(|agent| !agent.has_events()) {
        let text = "the kernel does not tell of new programs (CONFIG_PROC_EVENTS); VMs are looked for every two seconds";
        journal::tell(Level::Notice, "agent", text);
    }
    let begin = Instant::now();
    loop {
        if let Some(agent) = &mut agent {
            agent.step(begin.elapsed())?.iter().for_each(journal::write);
            if let Some(file) = agent.homes_file()
                && let Err(error) = file.write(root)
            {
                journal::tell(Level::Error, "agent", error.to_string());
            }
        }
        server.log_due();
        anyhow::ensure!(!guarded::is_lost(), "the broker has ended, without which no VM can be looked at");
        beat();
        if is_closed(&mut input, agent.iter().flat_map(Agent::ends))? {
            // Homes end with the scheduler; an agent that takes this one's place writes them anew.
            return Ok(HomesFile::remove(root)?);
        }
    }
}

/// Whether memory is to be moved, and can be; warns if it only is to be.
fn may_move_memory(settings: &Settings, machine: &Machine) -> bool {
    if settings.agent.memory_mib_per_s == 0 || machine.node_count() == 1 {
        return false;
    }
    if let Err(error) = KernelPages::probe() {
        let text = format!(
            "memory_mib_per_s of [agent] has no effect, for move_pages(2) is refused ({error}); put \
             `SystemCallFilter=move_pages` into [Service] with `systemctl edit tandem`, and restart the service"
        );
        journal::tell(Level::Warning, "settings", text);
        return false;
    }
    true
}

fn read_settings(input: &mut impl BufRead) -> anyhow::Result<Settings> {
    let mut line = String::new();
    input.read_line(&mut line).context("cannot read the settings")?;
    serde_json::from_str(&line)
        .context("standard input has no settings; `tandem run` starts the agent with them")
}

/// Waits until the input is closed, which it returns, until one of the others is readable, or for a while.
fn is_closed<'a>(
    input: &mut (impl Read + AsFd),
    others: impl Iterator<Item = BorrowedFd<'a>>,
) -> anyhow::Result<bool> {
    let timeout = PollTimeout::try_from(LOOK_INTERVAL).unwrap_or(PollTimeout::MAX);
    let is_readable = {
        let mut fds = vec![PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        fds.extend(others.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        poll(&mut fds, timeout).context("cannot wait")?;
        fds[0].any().unwrap_or(true)
    };
    Ok(is_readable && input.read(&mut [0; 64])? == 0)
}

/// Tells the parent that something has been done; it may be gone.
fn beat() {
    let mut output = io::stdout().lock();
    let _ = output.write_all(b".").and_then(|()| output.flush());
}
