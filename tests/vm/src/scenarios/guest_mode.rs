//! Guest mode: one flat domain over all vCPUs. For a leg whose CPUs have caches of their own, as guests often see it.

use crate::guest::tandem::{self, Tandem};
use crate::guest::tasks::{self, threads};
use crate::guest::{Guest, cpus, work};
use anyhow::{Result, ensure};
use std::thread;
use std::time::Duration;

/// A round of ping-pong takes longer on an emulated CPU than the 50 us within which a waker usually counts as about to
/// sleep.
const SETTINGS: &str = "mode = \"guest\"\n[fairness]\nsync_run_max = \"2 ms\"\n";
const SAMPLES: u32 = 200;

/// Two tasks that take turns, as in UnixBench's context1, do so on one vCPU, and the other vCPUs sleep.
pub fn ping_pong_stays_on_one_vcpu(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run_with(SETTINGS)?;
    let players = work::ping_pong().start()?;
    let threads = threads(players.pid())?;
    let before = tandem::counters()?;
    let switched = |thread: &u32| Ok::<_, anyhow::Error>(tasks::usage(*thread)?.voluntary_switches);
    let rounds_before = switched(&threads[0])?;
    let mut together = 0;
    for _ in 0..SAMPLES {
        thread::sleep(Duration::from_millis(10));
        together += u32::from(tasks::cpu_of(threads[0])? == tasks::cpu_of(threads[1])?);
    }
    let rounds = switched(&threads[0])? - rounds_before;
    let counters = tandem::counters()?.since(&before);
    let stayed = counters["wake_stay"] as f64;
    let wake_ups = stayed + (counters["wake_idle"] + counters["wake_queued"]) as f64;
    let together = f64::from(together) / f64::from(SAMPLES);
    guest.note(format!("{rounds} rounds, {:.0}% of the time on one vCPU", 100.0 * together))?;
    guest.note(format!("{:.0}% of {wake_ups} wake-ups stayed with the waker", 100.0 * stayed / wake_ups))?;
    // The two are looked at one after the other, and may move between the looks; at random it would be a quarter.
    ensure!(together > 0.5, "the players were on different vCPUs");
    ensure!(stayed > 0.7 * wake_ups, "wake-ups did not stay with the waker");
    drop(players);
    tandem.stop()?;
    Ok(())
}

/// As many tasks as vCPUs have one each, whatever the topology says.
pub fn all_vcpus_are_used(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run_with(SETTINGS)?;
    let count = cpus::online()?.len();
    let work = work::burn(count as u32).start()?;
    let total = || {
        threads(work.pid())?.into_iter().map(|thread| Ok(tasks::usage(thread)?.run_ns)).sum::<Result<u64>>()
    };
    let time = Duration::from_secs(2);
    let before = total()?;
    thread::sleep(time);
    let used = (total()? - before) as f64 / 1e9 / time.as_secs_f64();
    guest.note(format!("{count} tasks used {used:.2} of {count} vCPUs"))?;
    ensure!(used > 0.9 * count as f64, "vCPUs idled while tasks waited");
    drop(work);
    tandem.stop()?;
    Ok(())
}
