//! `tandem run`: load the scheduler, report, and unload it at the end.

mod agent_process;
mod observe;
mod partial;
mod plan;
mod risks;
mod service;
mod signals;

pub use plan::gives_no_homes;

use crate::counters::{rates, write_table};
use crate::error::{BadInput, one_line};
use crate::journal;
use crate::out::out;
use crate::text::many;
use agent_process::{AgentProcess, Role};
use anyhow::Context;
use partial::MembersLog;
use service::Service;
use signals::{SignalRequest, Signals};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tandem_host::log_entry::Level;
use tandem_host::scheduler::{
    Exit, History, Instance, LOG_FOLDER, Members, RunningKernel, Scheduler, keep_dump, lock_service, rehome,
};
use tandem_host::topology::{read_isolated, read_sysfs};
use tandem_settings::{Mode, Places, Settings};

/// How often the command checks whether the kernel has ejected the scheduler; nothing wakes it then.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often the command checks which CPUs are isolated; the kernel does not report changes.
const ISOLATED_INTERVAL: Duration = Duration::from_secs(60);

/// Arguments of `tandem run`.
#[derive(clap::Args)]
#[command(
    after_help = "It stays in the foreground until SIGINT or SIGTERM: then it unloads the scheduler and ends with \
    status 0. SIGHUP makes it read the file of settings again; if the file has a mistake, the old settings stay. If the kernel ejects the scheduler, it says why, keeps the kernel's dump in \
    /var/log/tandem/ejection.txt and ends with status 1. In both cases the kernel's own scheduler takes over.\n\n\
    It refuses to load, with status 2, if `tandem doctor` reports a risk that is not ignored.\n\n\
    Examples:\n  \
    tandem run\n  \
    tandem run --config /etc/tandem/tandem.toml\n  \
    tandem run --mode guest --interval 60\n  \
    tandem run --ignore limits\n  \
    tandem run --print-config > tandem.toml\n  \
    tandem run --plan\n  \
    tandem run --observe"
)]
pub struct Args {
    /// The mode, instead of that of the file
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// The file of settings, as `tandem schema settings` describes it [default: what --print-config prints]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Load the scheduler in spite of this risk; may be repeated
    #[arg(long, value_enum, value_name = "RISK")]
    ignore: Vec<risks::RiskArg>,
    /// Give homes to VMs that run without KVM as well
    #[arg(long)]
    emulated: bool,
    /// How often to print the counters: in seconds, or with a unit; 0: never
    #[arg(long, value_name = "TIME", default_value = "10 s", value_parser = parse_interval)]
    interval: Duration,
    /// Print all settings as a file, and exit
    #[arg(long)]
    print_config: bool,
    /// Print which homes the VMs of this host would get, and why, and exit; needs neither root nor sched_ext
    #[arg(long, conflicts_with = "print_config")]
    plan: bool,
    /// Load no scheduler: measure the VMs of this host, and report which homes they would get and what these
    /// would save; needs no sched_ext
    #[arg(long, conflicts_with_all = ["print_config", "plan", "ignore"])]
    observe: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    crate::observe::parse_interval(text, Duration::ZERO)
}

/// The scheduler's mode.
#[derive(Clone, Copy, clap::ValueEnum)]
enum ModeArg {
    /// On a host: follow its topology
    Host,
    /// In a virtual machine: treat all vCPUs alike
    Guest,
}

/// How one loading ended.
enum End {
    /// A signal asked for it.
    Asked,
    /// The kernel asks to load it again.
    Restart(Exit),
    /// It has to be loaded again, for this reason.
    Reload(&'static str),
}

/// Why a loaded scheduler is watched no longer.
enum Watched {
    /// A signal asked for its end.
    Asked,
    /// It has to be loaded again, for this reason.
    Reload(&'static str),
    /// The kernel has ended it.
    Ended,
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
        write!(out(), "{}", settings.to_toml())?;
        return Ok(());
    }
    if args.plan {
        return plan::run(&settings);
    }
    if args.observe {
        return observe::run(args, settings, service);
    }
    let mut signals = Signals::catch().context("cannot listen for signals")?;
    let instance = Instance::acquire(RunningKernel::new(Path::new("/")))?;
    let _locked = lock_service()?;
    for ignored in risks::accept(instance.kernel(), &settings)? {
        journal::log(Level::Warning, "risk", ignored);
    }
    partial::check(&settings.partial)?;
    let mut session = Session {
        instance: &instance,
        members: Members::new(settings.partial.clone()),
        members_log: MembersLog::default(),
        settings,
        signals: &mut signals,
        service,
        args,
    };
    let mut is_first = true;
    loop {
        let end = session.run_once(is_first)?;
        is_first = false;
        match end {
            End::Asked => return Ok(()),
            End::Restart(exit) => {
                writeln!(out(), "tandem: loading again: {exit}")?;
                session.service.reloading(&format!("Loading again: {exit}"));
            }
            End::Reload(why) => {
                writeln!(out(), "tandem: loading again {why}")?;
                session.service.reloading(&format!("Loading again {why}"));
            }
        }
        instance.wait_until_disabled()?;
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
    settings.agent.emulated |= args.emulated;
    args.ignore.iter().for_each(|risk| risk.set(&mut settings.ignore));
    Ok(settings)
}

/// Counts an event that outlives the scheduler. A failure is logged, and the scheduler stays.
fn note(change: impl FnOnce(&mut History)) {
    if let Err(error) = History::note(Path::new("/"), change) {
        let text = format!("events cannot be counted in {LOG_FOLDER}: {error}");
        journal::log(Level::Warning, "history", text);
    }
}

/// Where the kernel's dump is, as the end of a sentence; empty if there is none.
fn dump_of(exit: &Exit) -> String {
    if exit.dump.is_empty() {
        return String::new();
    }
    match keep_dump(Path::new(LOG_FOLDER), exit) {
        Ok(file) => format!("; its dump is in {}", file.display()),
        Err(error) => format!("; its dump cannot be kept in {LOG_FOLDER}: {error}"),
    }
}

/// The state that stays from one loading to the next.
struct Session<'a> {
    instance: &'a Instance,
    settings: Settings,
    /// The tasks of the part that it schedules; it gives them back in the end.
    members: Members,
    members_log: MembersLog,
    signals: &'a mut Signals,
    service: &'a mut Service,
    args: &'a Args,
}

impl Session<'_> {
    /// Loads the scheduler and stays with it to its end.
    fn run_once(&mut self, is_first: bool) -> anyhow::Result<End> {
        // Before the topology: if that changes from here on, the kernel says so.
        let hotplug_seq = self.instance.kernel().hotplug_seq()?;
        let isolated = read_isolated(self.instance.kernel().root())?;
        let machine = read_sysfs(self.instance.kernel().root())?;
        let possible_cpus = self.instance.kernel().possible_cpus().unwrap_or(0);
        let places = match self.settings.mode {
            Mode::Host => Places::of_host(&machine, possible_cpus)?,
            Mode::Guest => Places::of_guest(&machine, possible_cpus)?,
        };
        describe(self.instance.kernel(), &places, &self.settings)?;
        if self.settings.partial.is_on() {
            // Without a scheduler their policy means the usual one; it has them all as soon as it is loaded.
            partial::begin(&mut self.members, &self.settings.partial, &mut self.members_log)?;
        }
        let mut storage = MaybeUninit::uninit();
        let scheduler = Scheduler::load(&mut storage, self.instance, &self.settings, &places, hotplug_seq)?;
        if !is_first {
            rehome(self.instance, &machine)?;
        }
        let watched = match scheduler.exit()? {
            None => {
                let agent =
                    AgentProcess::start(&self.settings, Role::Steer).context("cannot start the agent")?;
                writeln!(out(), "tandem: scheduling")?;
                self.service.ready(&format!("Scheduling {}", what_on(&places, &self.settings)));
                note(|history| history.loads = history.loads.saturating_add(1));
                self.watch(&scheduler, agent, &isolated)?
            }
            Some(_) => Watched::Ended,
        };
        let counters = scheduler.counters()?;
        match (scheduler.unload()?, watched) {
            (Some(exit), Watched::Ended) if exit.is_restart() => Ok(End::Restart(exit)),
            (Some(exit), _) if !exit.is_unloaded() && !exit.is_restart() => {
                note(|history| history.count_ejection(&exit));
                anyhow::bail!(
                    "the kernel ejected the scheduler: {exit}; its own schedules again{}",
                    dump_of(&exit)
                )
            }
            (_, Watched::Reload(why)) => Ok(End::Reload(why)),
            (_, Watched::Asked | Watched::Ended) => {
                writeln!(out(), "tandem: unloaded; totals:")?;
                write_table(&counters, &mut out())?;
                Ok(End::Asked)
            }
        }
    }

    /// Reports until a signal asks for something else, or the kernel has ended the scheduler.
    /// The agent goes with the scheduler whose maps it has open.
    fn watch(
        &mut self,
        scheduler: &Scheduler<'_>,
        mut agent: AgentProcess,
        isolated: &[u32],
    ) -> anyhow::Result<Watched> {
        let mut reported = Instant::now();
        let mut isolated_read = Instant::now();
        let mut earlier = scheduler.counters()?;
        while scheduler.exit()?.is_none() {
            self.service.alive();
            match self.signals.wait(POLL_INTERVAL)? {
                Some(SignalRequest::End) => {
                    self.service.stopping();
                    return Ok(Watched::Asked);
                }
                Some(SignalRequest::Reload) if self.reload(&mut agent)? => {
                    return Ok(Watched::Reload("with the new settings"));
                }
                _ => {}
            }
            supervise_agent(&mut agent)?;
            partial::step(&mut self.members, &mut self.members_log);
            if isolated_read.elapsed() >= ISOLATED_INTERVAL {
                isolated_read = Instant::now();
                if read_isolated(self.instance.kernel().root()).is_ok_and(|now| now != isolated) {
                    return Ok(Watched::Reload("because other CPUs are isolated now"));
                }
            }
            let time = reported.elapsed();
            let interval = self.args.interval;
            if !interval.is_zero() && time >= interval {
                let counters = scheduler.counters()?;
                let rates = rates(&counters.since(&earlier), time);
                writeln!(out(), "tandem: {rates}")?;
                self.service.status(&format!("Scheduling; {rates}"));
                (reported, earlier) = (Instant::now(), counters);
            }
        }
        Ok(Watched::Ended)
    }

    /// Checks settings that are to follow those that it has.
    fn accept(&self, next: Settings) -> anyhow::Result<Settings> {
        if next.partial != self.settings.partial
            || next.partial.is_on() && next.ignore != self.settings.ignore
        {
            partial::check(&next.partial)?;
            for ignored in risks::accept(self.instance.kernel(), &next)? {
                journal::log(Level::Warning, "risk", ignored);
            }
        }
        Ok(next)
    }

    /// Reads the settings again; whether the scheduler has to be loaded again for them. A mistake changes
    /// nothing.
    fn reload(&mut self, agent: &mut AgentProcess) -> anyhow::Result<bool> {
        let settings =
            match settings(self.args).map_err(anyhow::Error::from).and_then(|next| self.accept(next)) {
                Ok(settings) => settings,
                Err(error) => {
                    settings_stay(&error.to_string());
                    return Ok(false);
                }
            };
        if settings == self.settings {
            writeln!(out(), "tandem: the settings are the same")?;
            return Ok(false);
        }
        let are_of_agent = settings.scheduler_only() == self.settings.scheduler_only();
        self.members.set(settings.partial.clone());
        self.settings = settings;
        if are_of_agent {
            agent.replace(&self.settings).context("cannot start the agent")?;
            writeln!(out(), "tandem: the agent has the new settings")?;
        }
        Ok(!are_of_agent)
    }
}

/// Starts the agent again if it has ended.
fn supervise_agent(agent: &mut AgentProcess) -> anyhow::Result<()> {
    if let Some(message) = agent.supervise().context("cannot start the agent again")? {
        journal::log(Level::Error, "agent-restart", message);
        note(|history| history.agent_restarts = history.agent_restarts.saturating_add(1));
    }
    Ok(())
}

/// Logs why the old settings stay.
fn settings_stay(why: &str) {
    note(|history| history.failed_reloads = history.failed_reloads.saturating_add(1));
    let text = format!("the old settings stay: {}", one_line(why));
    journal::log(Level::Error, "reload-failed", text);
}

/// Prints the machine and the mechanisms.
fn describe(kernel: &RunningKernel, places: &Places, settings: &Settings) -> io::Result<()> {
    let mut out = out();
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
