//! `tandem prefer`: which CPUs or nodes a process, a thread or a cgroup would rather use.

mod list;
mod place;
mod show;
mod target;

use anyhow::Context;
use clap::{ArgGroup, Subcommand};
use place::PlaceArgs;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use tandem_host::tasks;
use tandem_host::topology::read_sysfs;
use tandem_settings::{Place, Preference};
use tandemd::access::{Access, AccessError, Who};
use tandemd::error::BadInput;
use target::{Target, TargetArgs};

const HELP: &str =
    "A preference does not pin: while the preferred CPUs are busy, others are used. Children inherit \
it. It ends with its task or cgroup, or with the scheduler.

Root may steer all tasks. Other users may steer their own tasks and cgroups, through the service of `tandem run`.

Lists are those of taskset: 0-3,8 or, every second, 0-7:2.

Examples:
  tandem prefer --cpus 0-3 -- make -j8
  tandem prefer --cpus 0-7:2 --pid 4711
  tandem prefer --nodes 1 --cgroup machine.slice/vm1.scope
  tandem prefer --latency-critical --tid 4712
  tandem prefer show
  tandem prefer clear --pid 4711";

/// Arguments of `tandem prefer`.
#[derive(clap::Args)]
#[command(
    after_help = HELP,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    group(ArgGroup::new("what").args(["cpus", "nodes", "latency_critical"]).multiple(true).required(true)),
    group(ArgGroup::new("who").args(["pid", "tid", "cgroup", "command"]).required(true)),
)]
pub struct Args {
    #[command(subcommand)]
    verb: Option<Verb>,
    #[command(flatten)]
    place: PlaceArgs,
    /// Rate control does not hold up its preemptions; not for a cgroup
    #[arg(long, conflicts_with = "cgroup")]
    latency_critical: bool,
    #[command(flatten)]
    target: TargetArgs,
    /// Run this command with the preference
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Subcommand)]
enum Verb {
    /// Print preferences: of one task or cgroup, or of all that have any
    Show(ShowArgs),
    /// Clear a preference
    Clear(ClearArgs),
}

/// Arguments of `tandem prefer show`.
#[derive(clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    target: TargetArgs,
}

/// Arguments of `tandem prefer clear`.
#[derive(clap::Args)]
#[command(group(ArgGroup::new("whose").args(["pid", "tid", "cgroup"]).required(true)))]
struct ClearArgs {
    #[command(flatten)]
    target: TargetArgs,
}

/// Sets, shows or clears.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let access = Access::find()?;
    match &args.verb {
        Some(Verb::Show(show)) => show::print(&access, show.target.find()?),
        Some(Verb::Clear(clear)) => {
            let nothing = Preference { place: None, latency_critical: false };
            set(&access, &found(clear.target.find()?)?, &nothing)
        }
        None => {
            let place = args.place.find(&read_sysfs(Path::new("/"))?, access.mode()?)?;
            let target = match args.command.is_empty() {
                true => found(args.target.find()?)?,
                // The command takes the place of this process, which has one thread.
                false => Target::Thread(target::thread(std::process::id())?),
            };
            if let Some(Place::Cpus(cpus) | Place::Nodes { cpus, .. }) = &place {
                target.check_allowed(cpus)?;
            }
            set(&access, &target, &Preference { place, latency_critical: args.latency_critical })?;
            match &args.command[..] {
                [] => Ok(()),
                [program, arguments @ ..] => {
                    let error = Command::new(program).args(arguments).exec();
                    Err(BadInput::new(format!("{} cannot be run: {error}", program.display())).into())
                }
            }
        }
    }
}

fn found(target: Option<Target>) -> anyhow::Result<Target> {
    target.context("clap lets only those pass who name somebody")
}

fn set(access: &Access, target: &Target, preference: &Preference) -> anyhow::Result<()> {
    let who = match target {
        Target::Process(task) => return set_process(access, task.pid, preference),
        Target::Thread(task) => Who::Task(task.tid),
        Target::Cgroup(cgroup) => Who::Cgroup(cgroup),
    };
    match access.prefer(who, preference) {
        Ok(()) => Ok(()),
        Err(AccessError::Gone) => Err(who.gone()),
        Err(AccessError::Other(error)) => Err(error),
    }
}

/// Sets it for every thread, and again for threads created meanwhile; a thread created by one that has the
/// preference inherits it.
fn set_process(access: &Access, pid: u32, preference: &Preference) -> anyhow::Result<()> {
    let mut seen = BTreeSet::new();
    let mut any_is_set = false;
    loop {
        let threads = tasks::threads(Path::new("/"), pid);
        let new: Vec<u32> = threads.into_iter().filter(|&tid| seen.insert(tid)).collect();
        if new.is_empty() {
            break;
        }
        for tid in new {
            match access.prefer(Who::Task(tid), preference) {
                Ok(()) => any_is_set = true,
                // A thread that ended meanwhile.
                Err(AccessError::Gone) => {}
                Err(AccessError::Other(error)) => return Err(error),
            }
        }
    }
    match any_is_set {
        true => Ok(()),
        false => Err(Who::Task(pid).gone()),
    }
}
