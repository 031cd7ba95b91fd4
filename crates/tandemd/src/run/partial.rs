//! Partial mode of `tandem run`: whether the process may use it, and what it logs.

use crate::error::BadInput;
use crate::journal;
use crate::out::out;
use crate::text::many;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tandem_host::cgroups::Hierarchy;
use tandem_host::log_entry::Level;
use tandem_host::scheduler::{Members, WalkResult};
use tandem_settings::Partial;

/// Checks that this process has the privileges that these settings need.
///
/// # Errors
/// If it has not: bad input, because other settings, or another unit, cure it.
pub fn check(partial: &Partial) -> Result<(), BadInput> {
    if !partial.is_on() {
        return Ok(());
    }
    Hierarchy::find(Path::new("/")).map_err(|error| BadInput::new(format!("[partial]: {error}")))?;
    fs::read("/proc/1/cgroup").map_err(|error| {
        BadInput::new(format!(
            "[partial] needs to see the processes of all users, which /proc hides ({error}); run it as root, or mount /proc without hidepid"
        ))
    })?;
    Members::probe().map_err(|error| {
        BadInput::new(format!(
            "[partial] needs CAP_SYS_NICE and sched_setscheduler(2), which the kernel refuses ({error}); run it as root, or put \
             `CapabilityBoundingSet=CAP_SYS_NICE`, `AmbientCapabilities=CAP_SYS_NICE`, `SystemCallFilter=sched_setscheduler` and \
             `RestrictRealtime=no` into [Service] with `systemctl edit tandem`"
        ))
    })
}

/// Moves the tasks of the part to the scheduler, and reports how many there are.
///
/// # Errors
/// If no unified hierarchy is mounted any more, or the output is closed.
pub fn begin(members: &mut Members, partial: &Partial, log: &mut MembersLog) -> anyhow::Result<()> {
    let result = members.walk()?;
    let list = |cgroups: &[PathBuf]| {
        let names = cgroups.iter().map(|path| path.display().to_string());
        names.collect::<Vec<_>>().join(", ")
    };
    let of = if partial.cgroups.is_empty() { "all cgroups".into() } else { list(&partial.cgroups) };
    let except = match partial.except.is_empty() {
        true => String::new(),
        false => format!(" except {}", list(&partial.except)),
    };
    let tasks = many(result.tasks, "task");
    writeln!(out(), "tandem: {tasks} of {of}{except}; the others stay with the kernel's scheduler")?;
    log.note(&result);
    Ok(())
}

/// Takes one step of keeping track of the tasks of the part.
pub fn step(members: &mut Members, log: &mut MembersLog) {
    match members.step() {
        Ok(None) => {}
        Ok(Some(result)) => log.note(&result),
        Err(error) => log.tell(Failure::Other, || error.to_string()),
    }
}

/// Each kind of failure is logged at most this often: any user can cause one.
const TELL_INTERVAL: Duration = Duration::from_secs(3600);

/// What can go wrong with the tasks of the part.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Failure {
    Refused,
    Hidden,
    Other,
}

/// When each kind of failure was logged last.
#[derive(Default)]
pub struct MembersLog {
    told: BTreeMap<Failure, Instant>,
}

impl MembersLog {
    fn note(&mut self, result: &WalkResult) {
        if let Some((tid, error)) = result.refused {
            self.tell(Failure::Refused, || format!("task {tid}: {error}"));
        }
        if let Some(hidden) = &result.hidden {
            self.tell(Failure::Hidden, || {
                format!("a cgroup cannot be read, and counts as outside: {hidden}")
            });
        }
    }

    fn tell(&mut self, failure: Failure, text: impl FnOnce() -> String) {
        if self.told.get(&failure).is_some_and(|told| told.elapsed() < TELL_INTERVAL) {
            return;
        }
        self.told.insert(failure, Instant::now());
        journal::log(
            Level::Warning,
            "partial",
            format!("not all tasks can be put where [partial] says: {}", text()),
        );
    }
}
