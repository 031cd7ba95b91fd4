//! No task starves: tasks that may use some CPUs, beside tasks that may use one, real-time ones, and where
//! sets change. For a leg of eight CPUs that idle.

use crate::guest::cgroup::Cgroup;
use crate::guest::process::Process;
use crate::guest::tandem::Tandem;
use crate::guest::tasks::{self, threads};
use crate::guest::watch::{Got, watch};
use crate::guest::{Guest, cpus, wait, work};
use anyhow::{Result, ensure};
use std::time::Duration;

/// The kernel ejects a scheduler that lets a task wait so long.
const WATCHDOG: &str = "watchdog = \"10 s\"\n";
/// How long tasks are watched, by each CPU's own clock: a minute of CPU time where eight are busy.
const WATCHED: Duration = Duration::from_millis(7_500);
/// The longest that a task may wait, by the clock of the CPU that runs longest meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(2);
/// The least that a task has to get of its weighted max-min fair share.
const SHARE_MIN: f64 = 0.5;

/// A task that may use two CPUs gets its share of them beside tasks that are pinned to one each, as the
/// thread of an emulator does beside pinned vCPUs.
pub fn between_pinned(guest: &Guest) -> Result<()> {
    const BOTH: [u32; 2] = [0, 1];
    // CPUs of the pinned ones. The fair share of both: with one each, all three have as much; with two each,
    // all five.
    let cases = [(&[0, 1, 2, 3, 4, 5, 6, 7][..], 1.0 / 3.0), (&[0, 0, 1, 1, 2], 1.0 / 5.0)];
    let mut worst = (f64::INFINITY, Duration::ZERO);
    for (pinned, fair) in cases {
        let tandem = Tandem::run_with(WATCHDOG)?;
        let start = |&cpu: &u32| Ok((cpu, work::burn(1).on(&[cpu]).start()?));
        let pinned_ones = pinned.iter().map(start).collect::<Result<Vec<(u32, Process)>>>()?;
        let floating = work::burn(1).on(&BOTH).start()?;
        let beside = pinned_ones.iter().filter(|(cpu, _)| BOTH.contains(cpu)).map(|(_, process)| process);
        let all: Vec<u32> = [&floating].into_iter().chain(beside).map(Process::pid).collect();
        let got = watch(&all, &BOTH, WATCHED)?;
        let run_ns: u64 = got.iter().map(|got| got.usage.run_ns).sum();
        let Got { usage, longest_wait } = got[0];
        let share = usage.run_ns as f64 / run_ns as f64 / fair;
        guest.note(format!(
            "beside tasks pinned to {}: {share:.2} of its fair share, longest wait {:.2} s",
            work::list(pinned),
            longest_wait.as_secs_f64()
        ))?;
        worst = (worst.0.min(share), worst.1.max(longest_wait));
        drop((pinned_ones, floating));
        tandem.stop()?;
    }
    let (share, longest_wait) = worst;
    ensure!(share >= SHARE_MIN, "a task that may use two CPUs got {share:.2} of its fair share of them");
    ensure!(longest_wait <= WAIT_MAX, "a task that may use two CPUs waited for {longest_wait:?}");
    Ok(())
}

/// Tasks whose CPUs real-time tasks take for long run on the others.
pub fn beside_real_time(guest: &Guest) -> Result<()> {
    const TAKEN: [u32; 2] = [0, 1];
    let tandem = Tandem::run_with(WATCHDOG)?;
    let all = cpus::online()?;
    let tasks = work::burn(all.len() as u32).start()?;
    let threads = threads(tasks.pid())?;
    // Each has found a CPU of its own.
    cpus::wait_for_own_time(&all, Duration::from_millis(500))?;
    let intruders = TAKEN.map(|cpu| work::burn(1).on(&[cpu]).real_time().start());
    let rest = &all[TAKEN.len()..];
    let got = watch(&threads, rest, Duration::from_secs(3))?;
    let run_ns = got.iter().map(|got| got.usage.run_ns);
    let mean_ns = run_ns.clone().sum::<u64>() / got.len() as u64;
    let least = run_ns.min().unwrap_or(0) as f64 / mean_ns as f64;
    let longest_wait = got.iter().map(|got| got.longest_wait).max().unwrap_or_default();
    guest.note(format!(
        "{} tasks on {} CPUs, of which {} were taken: the least got {least:.2} of the mean, longest wait {:.2} s",
        threads.len(),
        all.len(),
        TAKEN.len(),
        longest_wait.as_secs_f64()
    ))?;
    ensure!(least >= SHARE_MIN, "a task got {least:.2} of what it should where real-time tasks came");
    ensure!(longest_wait <= WAIT_MAX, "a task waited for {longest_wait:?} where real-time tasks came");
    for intruder in intruders {
        drop(intruder?);
    }
    drop(tasks);
    tandem.stop()?;
    Ok(())
}

/// Tasks whose CPU set changes while they run continue in the new one at once, no matter which other tasks
/// are there.
pub fn sets_change(guest: &Guest) -> Result<()> {
    const SETS: [&[u32]; 6] = [&[0, 1, 2, 3], &[4, 5, 6, 7], &[3, 4], &[7], &[0, 2, 4, 6], &[1]];
    let tandem = Tandem::run_with(WATCHDOG)?;
    let cgroup = Cgroup::create("moved")?;
    let others = work::burn(8).start()?;
    let moved = work::burn(4).in_cgroup(cgroup.directory()).start()?;
    let moved_threads = threads(moved.pid())?;
    let mut longest = Duration::ZERO;
    for set in SETS.iter().cycle().take(3 * SETS.len()) {
        cgroup.set("cpuset.cpus", &work::list(set))?;
        let begin = cpus::OwnTimes::read()?;
        let before = moved_threads.iter().map(|&thread| tasks::usage(thread)).collect::<Result<Vec<_>>>()?;
        wait::until("that all tasks run in the new set", || {
            for (&thread, before) in moved_threads.iter().zip(&before) {
                let is_there = set.contains(&tasks::cpu_of(thread)?);
                if !is_there || tasks::usage(thread)?.run_ns == before.run_ns {
                    return Ok(None);
                }
            }
            Ok(Some(()))
        })?;
        longest = longest.max(cpus::OwnTimes::read()?.since(&begin, set).max().unwrap_or_default());
    }
    guest.note(format!(
        "after the set had changed, all of 4 tasks ran within {:.2} s",
        longest.as_secs_f64()
    ))?;
    ensure!(longest <= WAIT_MAX, "a task did not run for {longest:?} after its set had changed");
    drop((moved, others));
    tandem.stop()?;
    Ok(())
}
