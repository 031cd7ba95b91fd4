//! Schedulers that others wrote, from their object files.

use crate::guest::object::Loaded;
use crate::guest::tasks::{threads, usage};
use crate::guest::{Guest, cpus, sched_ext, wait, work};
use crate::leg::OBJECTS_FOLDER;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::time::{Duration, Instant};

/// CPU time that each task gets before a scheduler counts as one that schedules.
const ENOUGH_NS: u64 = 50_000_000;

/// Those that need most of what a loader does, and whose verification is short.
const SOME: [&str; 5] = ["scx_beerland", "scx_chaos", "scx_tickless", "topological", "tree"];

/// Each object file of the guest loads, schedules more tasks than there are CPUs, and is unloaded.
pub fn each_loads_and_schedules(guest: &Guest) -> Result<()> {
    let names = names()?;
    ensure!(names.len() > SOME.len(), "there are {} object files in {OBJECTS_FOLDER}", names.len());
    try_all(guest, &names)
}

/// The same of a few.
pub fn some_load_and_schedule(guest: &Guest) -> Result<()> {
    try_all(guest, &SOME.map(str::to_owned))
}

fn try_all(guest: &Guest, names: &[String]) -> Result<()> {
    let mut failures = Vec::new();
    for name in names {
        let began = Instant::now();
        match loads_and_schedules(name) {
            Ok(()) => guest.note(format!("{name}: {:.1} s", began.elapsed().as_secs_f64()))?,
            Err(error) => {
                guest.note(format!("{name}: {error:#}"))?;
                failures.push(name.as_str());
                sched_ext::disable()?;
            }
        }
    }
    ensure!(failures.is_empty(), "{} of {} fail: {}", failures.len(), names.len(), failures.join(", "));
    Ok(())
}

/// The names of all object files.
fn names() -> Result<Vec<String>> {
    let entries = fs::read_dir(OBJECTS_FOLDER).with_context(|| format!("cannot read {OBJECTS_FOLDER}"))?;
    let of = |entry: fs::DirEntry| Some(entry.file_name().to_str()?.strip_suffix(".bpf.o")?.to_owned());
    let mut names: Vec<String> = entries.filter_map(|entry| of(entry.ok()?)).collect();
    names.sort();
    Ok(names)
}

fn loads_and_schedules(name: &str) -> Result<()> {
    let mut loaded = Loaded::object(name)?;
    let cpus = cpus::online()?.len() as u32;
    let busy = work::burn(cpus + cpus / 2).start()?;
    let sleepy = work::pulse(cpus, Duration::from_millis(2), Duration::from_millis(3)).start()?;
    let tasks = [threads(busy.pid())?, threads(sleepy.pid())?].concat();
    wait::until(&format!("CPU time for each of {} tasks", tasks.len()), || {
        loaded.check()?;
        ensure!(sched_ext::is_loaded()?, "the kernel has ejected the scheduler");
        for &task in &tasks {
            if usage(task)?.run_ns < ENOUGH_NS {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })?;
    loaded.stop()
}
