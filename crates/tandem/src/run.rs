//! `tandem run`: load the scheduler, report, and unload it at the end.

mod agent_process;
mod plan;
mod service;
mod signals;

use crate::counters::{rates, write_table};
use crate::error::BadInput;
use agent_process::AgentProcess;
use anyhow::Context;
use service::Service;
use signals::Signals;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tandem_host::scheduler::{Exit, Instance, Kernel, Mode, Places, Scheduler, Settings, rehome};
use tandem_host::topology::read_sysfs;

/// How often the command looks whether the kernel ejected the scheduler; nothing wakes it up then.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `tandem run`.
#[derive(clap::Args)]
#[command(
    after_help = "It stays in the foreground until SIGINT, SIGTERM or SIGHUP: then it unloads the scheduler and \
    ends with status 0. If the kernel ejects the scheduler, it says why and ends with status 1. Either way the \
    kernel's own scheduler takes over.\n\n\
    Examples:\n  \
    tandem run\n  \
    tandem run --config /etc/tandem/tandem.toml\n  \
    tandem run --mode guest --interval 60\n  \
    tandem run --print-config > tandem.toml\n  \
    tandem run --plan"
)]
pub struct Args {
    /// Where it runs, whatever the file says
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// The file of settings, as `tandem schema settings` describes it [default: what --print-config prints]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print what was counted every so many seconds; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    interval: u32,
    /// Print all settings as a file, and do not run
    #[arg(long)]
    print_config: bool,
    /// Print which homes the VMs of this host would get, and why, and do not run; needs neither root nor sched_ext
    #[arg(long, conflicts_with = "print_config")]
    plan: bool,
}

/// Where the scheduler runs.
#[derive(Clone, Copy, clap::ValueEnum)]
enum ModeArg {
    /// On a host, by its topology
    Host,
    /// In a virtual machine, all vCPUs alike
    Guest,
}

/// How one loading ended.
enum End {
    /// A signal asked for it.
    Asked,
    /// The kernel asks to load it again.
    Restart(Exit),
}

/// Loads the scheduler and stays until it is unloaded or ejected.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let mut service = Service::from_environment();
    stay(args, &mut service).inspect_err(|error| service.failed(error))
}

/// Loads the scheduler, and again whenever the kernel asks for it.
fn stay(args: &Args, service: &mut Service) -> anyhow::Result<()> {
    let settings = settings(args)?;
    if args.print_config {
        write!(io::stdout(), "{}", settings.to_toml())?;
        return Ok(());
    }
    if args.plan {
        return plan::run(&settings);
    }
    let mut signals = Signals::catch().context("cannot listen for signals")?;
    let instance = Instance::acquire(Kernel::new(Path::new("/")))?;
    let mut session = Session {
        instance: &instance,
        settings: &settings,
        signals: &mut signals,
        service,
        interval: args.interval,
    };
    let mut is_first = true;
    loop {
        match session.run_once(is_first)? {
            End::Asked => return Ok(()),
            End::Restart(exit) => {
                writeln!(io::stdout(), "tandem: loading again: {exit}")?;
                session.service.reloading(&format!("Loading again: {exit}"));
                instance.wait_until_disabled()?;
                is_first = false;
            }
        }
    }
}

fn settings(args: &Args) -> Result<Settings, BadInput> {
    let mut settings = match &args.config {
        Some(file) => Settings::read(file).map_err(BadInput::new)?,
        None => Settings::default(),
    };
    match args.mode {
        Some(ModeArg::Host) => settings.mode = Mode::Host,
        Some(ModeArg::Guest) => settings.mode = Mode::Guest,
        None => {}
    }
    Ok(settings)
}

/// What stays from one loading to the next.
struct Session<'a> {
    instance: &'a Instance,
    settings: &'a Settings,
    signals: &'a mut Signals,
    service: &'a mut Service,
    /// Seconds between lines of statistics; 0 for none.
    interval: u32,
}

impl Session<'_> {
    /// Loads the scheduler and stays with it to its end.
    fn run_once(&mut self, is_first: bool) -> anyhow::Result<End> {
        // Before the topology: if that changes from here on, the kernel says so.
        let hotplug_seq = self.instance.kernel().hotplug_seq()?;
        let machine = read_sysfs(self.instance.kernel().root())?;
        let possible_cpus = self.instance.kernel().possible_cpus().unwrap_or(0);
        let places = match self.settings.mode {
            Mode::Host => Places::of_host(&machine, possible_cpus)?,
            Mode::Guest => Places::of_guest(&machine, possible_cpus)?,
        };
        describe(self.instance.kernel(), &places, self.settings)?;
        let mut storage = MaybeUninit::uninit();
        let scheduler = Scheduler::load(&mut storage, self.instance, self.settings, &places, hotplug_seq)?;
        if !is_first {
            rehome(self.instance, &machine)?;
        }
        let is_asked = match scheduler.exit()? {
            None => {
                let agent = AgentProcess::start(self.settings).context("cannot start the agent")?;
                writeln!(io::stdout(), "tandem: scheduling")?;
                self.service.ready(&format!("Scheduling {}", what_on(&places, self.settings)));
                self.watch(&scheduler, agent)?
            }
            Some(_) => false,
        };
        let counters = scheduler.counters()?;
        match scheduler.unload()? {
            Some(exit) if exit.is_restart() && !is_asked => Ok(End::Restart(exit)),
            Some(exit) if !exit.is_unloaded() => {
                anyhow::bail!("the kernel ejected the scheduler: {exit}; its own schedules again")
            }
            _ => {
                writeln!(io::stdout(), "tandem: unloaded; in all:")?;
                write_table(&counters, &mut io::stdout().lock())?;
                Ok(End::Asked)
            }
        }
    }

    /// Reports until a signal comes, or the kernel has ended the scheduler; returns whether it was a signal.
    /// The agent goes with the scheduler whose maps it has open.
    fn watch(&mut self, scheduler: &Scheduler<'_>, mut agent: AgentProcess) -> anyhow::Result<bool> {
        let mut reported = Instant::now();
        let mut earlier = scheduler.counters()?;
        while scheduler.exit()?.is_none() {
            self.service.alive();
            if self.signals.wait(LOOK_INTERVAL)? {
                self.service.stopping();
                return Ok(true);
            }
            if let Some(message) = agent.look().context("cannot start the agent again")? {
                writeln!(io::stderr(), "tandem: {message}")?;
            }
            let time = reported.elapsed();
            if self.interval > 0 && time.as_secs() >= self.interval.into() {
                let counters = scheduler.counters()?;
                let rates = rates(&counters.since(&earlier), time);
                writeln!(io::stdout(), "tandem: {rates}")?;
                self.service.status(&format!("Scheduling; {rates}"));
                (reported, earlier) = (Instant::now(), counters);
            }
        }
        Ok(false)
    }
}

/// Says what was found and what is on.
fn describe(kernel: &Kernel, places: &Places, settings: &Settings) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "tandem: Linux {}, {}", kernel.release(), what_on(places, settings))?;
    let (on, off): (Vec<_>, Vec<_>) = settings.mechanisms().into_iter().partition(|(_, is_on)| *is_on);
    for (what, mechanisms) in [("on", on), ("off", off)] {
        if !mechanisms.is_empty() {
            let names: Vec<_> = mechanisms.iter().map(|(name, _)| *name).collect();
            writeln!(out, "tandem: {what}: {}", names.join(", "))?;
        }
    }
    Ok(())
}

/// The machine and the mode.
fn what_on(places: &Places, settings: &Settings) -> String {
    let cpus = many(places.cpu_count(), "CPU");
    let (llcs, nodes) =
        (many(places.llc_count(), "last-level cache"), many(places.node_count(), "NUMA node"));
    match settings.mode {
        Mode::Host => format!("{cpus}, host mode, {llcs} and {nodes}"),
        Mode::Guest => format!("{cpus}, guest mode, all CPUs alike"),
    }
}

fn many(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}
