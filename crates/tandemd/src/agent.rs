//! `tandem agent`: the helper process of `tandem run`, which starts it, and starts it again if it ends.
//!
//! Problem: the process that holds the scheduler must not read what users write, and must survive one that
//! does.
//!
//! Approach: a process of its own. It reads the settings from standard input, as a line of JSON, and ends
//! when that is closed. Before it serves requests it gives up its capabilities; a broker keeps
//! CAP_SYS_PTRACE, which reading other users' VMs takes. From then on it writes a byte to standard output
//! whenever it makes progress; the parent replaces an agent that is silent for long. It logs to standard
//! error.
//!
//! It serves users ([`tandem_host::control`]), gives VMs their homes ([`tandem_host::agent`]), and serves
//! metrics if the settings say where ([`tandem_host::metrics`]).

use crate::helper::{self, Role};
use crate::journal;
use crate::open_files;
use crate::out::out;
use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::SigSet;
use std::fs;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tandem_host::agent::{Actuator, Agent, DryRun, KernelPages, PagesByHelper, SchedulerActuator};
use tandem_host::control::{Backend, Observing, SOCKET, Server, Steering};
use tandem_host::guarded;
use tandem_host::log_entry::Level;
use tandem_host::metrics::{Exporter, Service};
use tandem_host::privileges::{Capabilities, keep_only};
use tandem_host::scheduler::{Loaded, RunningKernel, SchedulerError};
use tandem_host::topology::read_sysfs;
use tandem_host::vms::homes_file::HomesFile;
use tandem_machine::Machine;
use tandem_settings::{Mode, Settings, VmRule};

/// How often it takes a step when nothing wakes it.
const STEP_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `tandem agent`.
#[derive(clap::Args)]
pub struct Args {
    /// Only observe: no scheduler is loaded
    #[arg(long)]
    observe: bool,
}

/// Serves users and places VMs until standard input is closed.
pub fn run(args: &Args) -> anyhow::Result<()> {
    // The parent blocks them, and a child inherits the mask.
    SigSet::all().thread_unblock().context("cannot receive signals")?;
    // A file for each vCPU stays open.
    let _ = open_files::raise();
    let mut input = io::stdin().lock();
    let settings = read_settings(&mut input)?;
    let root = Path::new("/");
    let machine = read_sysfs(root)?;
    // What needs capabilities is opened before they are given up.
    let loaded = (!args.observe).then(|| Loaded::find(RunningKernel::new(root))).transpose()?;
    let actuator: Box<dyn Actuator> = match &loaded {
        Some(loaded) => Box::new(SchedulerActuator::new(loaded.preferences()?, machine.clone())),
        None => Box::new(DryRun),
    };
    // The kernel shows memory by node and maps of other users' VMs to those that may trace them: the broker
    // and the mover.
    let mut broker = helper::command(Role::Broker);
    let keeps_apart = !args.observe && settings.vm.iter().any(VmRule::keeps_apart);
    broker.args(keeps_apart.then_some("--cookies"));
    guarded::delegate_to(broker).context("cannot start the broker")?;
    let moves_memory = !args.observe && may_move_memory(&settings, &machine);
    let pages = moves_memory.then(|| PagesByHelper::start(helper::command(Role::Mover))).transpose();
    let pages = pages.context("cannot start the helper that moves memory")?;
    keep_only(Capabilities::empty()).context("cannot give up capabilities")?;

    let mut agent = settings.gives_homes().then(|| {
        let agent = Agent::new(root, machine.clone(), &settings, actuator).with_progress(beat);
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
        let text = "the kernel does not report new programs (CONFIG_PROC_EVENTS); the agent searches for VMs every two seconds";
        journal::log(Level::Notice, "agent", text);
    }
    let begin = Instant::now();
    loop {
        if let Some(agent) = &mut agent {
            agent.step(begin.elapsed())?.iter().for_each(journal::write);
            if let Some(file) = agent.homes_file()
                && let Err(error) = file.write(root)
            {
                journal::log(Level::Error, "agent", error.to_string());
            }
        }
        server.log_due();
        anyhow::ensure!(!guarded::is_lost(), "the broker has ended, without which the agent can read no VM");
        beat();
        if is_closed(&mut input, agent.iter().flat_map(Agent::ends))? {
            // Homes end with the scheduler; an agent that takes this one's place writes them anew.
            return Ok(HomesFile::remove(root)?);
        }
    }
}

/// Whether the settings ask for moving memory and the kernel allows it; warns if only the former holds.
fn may_move_memory(settings: &Settings, machine: &Machine) -> bool {
    if settings.agent.memory_mib_per_s == 0 || machine.node_count() == 1 {
        return false;
    }
    if let Err(error) = KernelPages::probe() {
        let text = format!(
            "memory_mib_per_s of [agent] has no effect, because the kernel refuses move_pages(2) ({error}); put \
             `SystemCallFilter=move_pages` into [Service] with `systemctl edit tandem`, and restart the service"
        );
        journal::log(Level::Warning, "settings", text);
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

/// Waits until the input is closed, one of the others is readable, or the interval has passed; returns
/// whether the input is closed.
fn is_closed<'a>(
    input: &mut (impl Read + AsFd),
    others: impl Iterator<Item = BorrowedFd<'a>>,
) -> anyhow::Result<bool> {
    let timeout = PollTimeout::try_from(STEP_INTERVAL).unwrap_or(PollTimeout::MAX);
    let is_readable = {
        let mut fds = vec![PollFd::new(input.as_fd(), PollFlags::POLLIN)];
        fds.extend(others.map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        poll(&mut fds, timeout).context("cannot wait")?;
        fds[0].any().unwrap_or(true)
    };
    Ok(is_readable && input.read(&mut [0; 64])? == 0)
}

/// Reports progress to the parent, which may be gone.
fn beat() {
    let mut output = out();
    let _ = output.write_all(b".").and_then(|()| output.flush());
}
