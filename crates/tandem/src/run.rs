//! `tandem run`: load the scheduler, report, and unload it at the end.

mod signals;

use crate::error::BadInput;
use anyhow::Context;
use signals::Signals;
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tandem_host::scheduler::{Exit, Instance, Kernel, Mode, Places, Scheduler, Settings};
use tandem_host::topology::read_sysfs;

/// How often the command looks whether the kernel ejected the scheduler; nothing wakes it up then.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Arguments of `tandem run`.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    tandem run\n  \
    tandem run --config /etc/tandem.toml\n  \
    tandem run --mode guest --interval 60")]
pub struct Args {
    /// Where it runs, whatever the file says
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// The file of settings; `tandem schema settings` describes it [default: all defaults]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
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
    let mut settings = match &args.config {
        Some(file) => Settings::read(file).map_err(BadInput::new)?,
        None => Settings::default(),
    };
    match args.mode {
        Some(ModeArg::Host) => settings.mode = Mode::Host,
        Some(ModeArg::Guest) => settings.mode = Mode::Guest,
        None => {}
    }
    let mut signals = Signals::catch().context("cannot listen for signals")?;
    let instance = Instance::acquire(Kernel::new(Path::new("/")))?;
    loop {
        match run_once(&instance, &settings, &mut signals)? {
            End::Asked => return Ok(()),
            End::Restart(exit) => {
                writeln!(io::stdout(), "tandem: loading again: {exit}")?;
                instance.wait_until_disabled()?;
            }
        }
    }
}

fn run_once(instance: &Instance, settings: &Settings, signals: &mut Signals) -> anyhow::Result<End> {
    // Before the topology: if that changes from here on, the kernel says so.
    let hotplug_seq = instance.kernel().hotplug_seq()?;
    let machine = read_sysfs(instance.kernel().root())?;
    let places = match settings.mode {
        Mode::Host => Places::of_host(&machine)?,
        Mode::Guest => Places::of_guest(&machine)?,
    };
    let mut storage = MaybeUninit::uninit();
    let scheduler = Scheduler::load(&mut storage, instance, settings, &places, hotplug_seq)?;
    if scheduler.exit()?.is_none() {
        writeln!(io::stdout(), "tandem: scheduling")?;
    }
    let is_asked = loop {
        if scheduler.exit()?.is_some() {
            break false;
        }
        if signals.wait(LOOK_INTERVAL)? {
            break true;
        }
    };
    match scheduler.unload()? {
        Some(exit) if exit.is_restart() && !is_asked => Ok(End::Restart(exit)),
        Some(exit) if !exit.is_unloaded() => anyhow::bail!("the kernel ejected the scheduler: {exit}"),
        _ => Ok(End::Asked),
    }
}
