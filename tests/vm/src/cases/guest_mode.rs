//! Guest mode: one flat domain over all vCPUs. For a leg whose CPUs have caches of their own, as guests often
//! see it.

use crate::guest::tandem::{self, Tandem};
use crate::guest::tasks::{self, Usage, threads};
use crate::guest::{Guest, cpus, wait, work};
use anyhow::{Result, ensure};
use std::time::Duration;

/// A round of ping-pong takes longer on an emulated CPU than the 50 us within which a waker usually counts as
/// about to sleep.
const SETTINGS: &str = "mode = \"guest\"\n[fairness]\nsync_run_max = \"2 ms\"\n";
const SAMPLES: u32 = 150;
/// How much each task runs before its wait is evaluated.
const RUN: Duration = Duration::from_secs(2);

/// Two tasks that take turns, as in UnixBench's context1, do so on one vCPU, and the other vCPUs sleep.
pub fn ping_pong_stays_on_one_vcpu(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run_with(SETTINGS)?;
    let players = work::ping_pong().start()?;
    let threads = threads(players.pid())?;
    let before = tandem::counters()?;
    let switched = |thread: &u32| Ok::<_, anyhow::Error>(tasks::usage(*thread)?.voluntary_switches);
    let rounds_before = switched(&threads[0])?;
    let (mut samples, mut together) = (0, 0);
    let mut last = rounds_before;
    wait::until("that the players play on", || {
        let now = switched(&threads[0])?;
        // Where QEMU does not run their vCPU they stay as they are.
        if now > last {
            last = now;
            let [first, second, again] = [0, 1, 0].map(|player| tasks::cpu_of(threads[player]));
            let (first, second) = (first?, second?);
            // One that moved between two looks says nothing of where both were.
            if first == again? {
                samples += 1;
                together += u32::from(first == second);
            }
        }
        Ok((samples == SAMPLES).then_some(()))
    })?;
    let rounds = switched(&threads[0])? - rounds_before;
    let counters = tandem::counters()?.since(&before);
    let stayed = counters["wake_stay"] as f64;
    let wake_ups = stayed + (counters["wake_idle"] + counters["wake_queued"]) as f64;
    let together = f64::from(together) / f64::from(SAMPLES);
    guest.note(format!("{rounds} rounds, {:.0}% of the time on one vCPU", 100.0 * together))?;
    guest.note(format!("{:.0}% of {wake_ups} wake-ups stayed with the waker", 100.0 * stayed / wake_ups))?;
    // The second may have moved between two looks at the first; at random it would be a quarter.
    ensure!(together > 0.5, "the players were on different vCPUs");
    ensure!(stayed > 0.7 * wake_ups, "wake-ups did not stay with the waker");
    drop(players);
    tandem.stop()?;
    Ok(())
}

/// As many tasks as vCPUs have one each, with any reported topology.
pub fn all_vcpus_are_used(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run_with(SETTINGS)?;
    let count = cpus::online()?.len();
    let work = work::burn(count as u32).start()?;
    let threads = threads(work.pid())?;
    let look = || threads.iter().map(|&thread| tasks::usage(thread)).collect::<Result<Vec<_>>>();
    let before = look()?;
    let used = wait::until("that each task runs for some seconds", || {
        let used: Vec<Usage> = look()?.iter().zip(&before).map(|(now, before)| now.since(before)).collect();
        Ok(used.iter().all(|used| used.run() >= RUN).then_some(used))
    })?;
    // They never sleep.
    let share = |used: &Usage| used.run_ns as f64 / (used.run_ns + used.wait_ns) as f64;
    let used: f64 = used.iter().map(share).sum();
    guest.note(format!("{count} tasks used {used:.2} of {count} vCPUs"))?;
    ensure!(used > 0.9 * count as f64, "vCPUs idled while tasks waited");
    drop(work);
    tandem.stop()?;
    Ok(())
}
