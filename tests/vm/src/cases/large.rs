//! Many CPUs, with SMT and four nodes.

use super::MOSTLY;
use crate::guest::cgroup::Cgroup;
use crate::guest::tandem::Tandem;
use crate::guest::tasks::{self, threads};
use crate::guest::{Guest, cpus, wait, work};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::time::Duration;

/// How often the places of tasks are sampled.
const SAMPLES: u32 = 40;
/// The CPUs that groups share: half of them, in all nodes, so that each runs often enough where many are
/// emulated by few.
const SHARED: [u32; 16] = [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27];
/// How long these run until threads have spread over them, and then until shares are told, by their own
/// clocks: what evens out is the number of turns, and turns end with ticks.
const SPREAD: Duration = Duration::from_secs(1);
const WATCHED: Duration = Duration::from_secs(1);
/// How far a share may be from that of the weights.
const SHARE_OFF_MAX: f64 = 0.05;

/// Half as many tasks as cores wake up on cores of their own, mostly: at random a third of them would share
/// one.
pub fn cores_before_threads(guest: &Guest) -> Result<()> {
    const MS: Duration = Duration::from_millis(1);
    let machine = &guest.leg.machine;
    let count = machine.cpus() / machine.threads / 2;
    let tandem = Tandem::run(&[])?;
    let work = work::pulse(count, 20 * MS, 5 * MS).start()?;
    let threads = threads(work.pid())?;
    let look = || threads.iter().map(|&thread| tasks::usage(thread)).collect::<Result<Vec<_>>>();
    let mut last = look()?;
    let (mut samples, mut apart) = (0, 0.0);
    wait::until("that all tasks run", || {
        let now = look()?;
        // All have slept since the sample before, and found a CPU anew.
        if now.iter().zip(&last).all(|(now, last)| now.voluntary_switches > last.voluntary_switches) {
            last = now;
            samples += 1;
            let cores = threads.iter().map(|&thread| Ok(tasks::cpu_of(thread)? / machine.threads));
            apart += cores.collect::<Result<BTreeSet<u32>>>()?.len() as f64 / threads.len() as f64;
        }
        Ok((samples == SAMPLES).then_some(()))
    })?;
    let apart = apart / f64::from(SAMPLES);
    guest.note(format!(
        "{count} tasks on {} CPUs use {:.1} cores",
        machine.cpus(),
        apart * f64::from(count)
    ))?;
    ensure!(apart > MOSTLY, "tasks share cores while others idle");
    drop(work);
    tandem.stop()?;
    Ok(())
}

/// Two groups below a common one, each with as many busy threads as that has CPUs, share these by their
/// weights.
pub fn weights_of_many_threads(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let count = SHARED.len() as u32;
    let slice = Cgroup::create("slice")?;
    slice.set("cpuset.cpus", &work::list(&SHARED))?;
    let mut groups = Vec::new();
    for (name, weight) in [("heavy", "400"), ("light", "100")] {
        let group = slice.create_below(name)?;
        group.set("cpu.weight", weight)?;
        let work = work::burn(count).in_cgroup(group.directory()).start()?;
        groups.push((work, group));
    }
    let look = || groups.iter().map(|(_, group)| group.cpu_time()).collect::<Result<Vec<_>>>();
    cpus::wait_for_own_time(&SHARED, SPREAD)?;
    let before = look()?;
    cpus::wait_for_own_time(&SHARED, WATCHED)?;
    let used: Vec<Duration> = look()?.iter().zip(&before).map(|(now, before)| *now - *before).collect();
    let share = used[0].as_secs_f64() / used.iter().sum::<Duration>().as_secs_f64();
    guest.note(format!(
        "weights 400:100, {count} threads each on {count} CPUs: {:.1}:{:.1}",
        100.0 * share,
        100.0 * (1.0 - share)
    ))?;
    ensure!((share - 0.8).abs() <= SHARE_OFF_MAX, "cpu.weight 400:100 gives {:.1} in 100", 100.0 * share);
    drop(groups);
    tandem.stop()?;
    Ok(())
}
