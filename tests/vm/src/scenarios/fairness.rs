//! Who gets how much: weights, cgroups, pinned tasks, sleepers.

use crate::guest::cgroup::Cgroup;
use crate::guest::process::Process;
use crate::guest::tandem::{self, Tandem};
use crate::guest::tasks::{self, threads};
use crate::guest::{Guest, cpus, work};
use anyhow::{Result, ensure};
use rustix::process::Signal;
use std::thread;
use std::time::Duration;

/// The CPU for which tasks compete.
const CPU: u32 = 1;
const MS: Duration = Duration::from_millis(1);
/// How long shares are measured: hundreds of slices.
const MEASURED: Duration = Duration::from_secs(3);

/// Two tasks of one CPU share it by their nice values.
pub fn nice_values(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let usual = work::burn(1).on(&[CPU]).start()?;
    let nice = work::burn(1).on(&[CPU]).nice(5).start()?;
    let ratio = ratio(ran(&[&usual, &nice], MEASURED)?);
    // Weights of nice 0 and 5 in the kernel's sched_prio_to_weight: 1024 and 335.
    guest.note(format!("nice 0 : nice 5 = {ratio:.2} : 1; by weight 3.06 : 1"))?;
    ensure!((2.4..3.9).contains(&ratio), "nice values are not followed");
    drop((usual, nice));
    tandem.stop()?;
    Ok(())
}

/// Cgroups share a CPU by `cpu.weight`, however many tasks they have.
pub fn cgroup_weights(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    for (weight, threads, low, high) in [("300", 1, 2.4, 3.9), ("100", 3, 0.75, 1.35)] {
        let first = Cgroup::create("first")?;
        let second = Cgroup::create("second")?;
        first.set("cpu.weight", weight)?;
        let of_first = work::burn(threads).on(&[CPU]).in_cgroup(first.directory()).start()?;
        let of_second = work::burn(1).on(&[CPU]).in_cgroup(second.directory()).start()?;
        let ratio = ratio(ran(&[&of_first, &of_second], MEASURED)?);
        guest.note(format!("{threads} in weight {weight} : 1 in weight 100 = {ratio:.2} : 1"))?;
        ensure!((low..high).contains(&ratio), "cpu.weight is not followed");
        drop((of_first, of_second));
    }
    tandem.stop()?;
    Ok(())
}

/// Six tasks on four CPUs get about the same.
pub fn equal_tasks(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let processes = (0..6).map(|_| work::burn(1).start()).collect::<Result<Vec<_>>>()?;
    let ran = ran(&processes.iter().collect::<Vec<_>>(), MEASURED)?;
    let mean = ran.iter().sum::<f64>() / ran.len() as f64;
    let [least, most] =
        [f64::min, f64::max].map(|choose| ran.iter().copied().reduce(choose).unwrap_or(0.0) / mean);
    guest.note(format!("6 tasks on 4 CPUs: the least got {least:.2} of the mean, the most {most:.2}"))?;
    ensure!(least > 0.7 && most < 1.3, "equal tasks did not get the same");
    drop(processes);
    tandem.stop()?;
    Ok(())
}

/// Tasks that may use one CPU only get what they want of it, though others have filled all CPUs.
pub fn pinned_tasks(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let all = cpus::online()?;
    let others = work::burn(2 * all.len() as u32).start()?;
    // A fifth of a CPU, of which the two others there leave a third; it wakes late, since emulated timers do.
    let pinned = all.iter().map(|&cpu| work::pulse(1, 2 * MS, 8 * MS).on(&[cpu]).start());
    let pinned = pinned.collect::<Result<Vec<_>>>()?;
    let before = tandem::counters()?;
    let ran = ran(&pinned.iter().collect::<Vec<_>>(), MEASURED)?;
    let queued = tandem::counters()?.since(&before)["pinned"];
    let least = ran.iter().copied().reduce(f64::min).unwrap_or(0.0) / MEASURED.as_secs_f64();
    guest.note(format!(
        "of a fifth of a CPU that each wants, the least got {:.0}%; pinned +{queued}",
        500.0 * least
    ))?;
    ensure!(least > 0.05 && queued > 0, "a pinned task starved");
    drop((pinned, others));
    tandem.stop()?;
    Ok(())
}

/// A task that slept for long does not keep the CPU from others afterwards.
pub fn sleepers_credit(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let awake = work::burn(1).on(&[CPU]).start()?;
    let sleeper = work::burn(1).on(&[CPU]).start()?;
    sleeper.signal(Signal::STOP)?;
    thread::sleep(MEASURED);
    sleeper.signal(Signal::CONT)?;
    let ratio = ratio(ran(&[&sleeper, &awake], 500 * MS)?);
    guest.note(format!("after {} s of sleep, sleeper : other = {ratio:.2} : 1", MEASURED.as_secs()))?;
    ensure!((0.6..1.7).contains(&ratio), "the sleeper did not get half");
    drop((awake, sleeper));
    tandem.stop()?;
    Ok(())
}

/// How long each of the processes ran in that time, seconds.
fn ran(processes: &[&Process], time: Duration) -> Result<Vec<f64>> {
    let total = |process: &&Process| -> Result<u64> {
        threads(process.pid())?.into_iter().map(|thread| Ok(tasks::usage(thread)?.run_ns)).sum()
    };
    let before = processes.iter().map(total).collect::<Result<Vec<_>>>()?;
    thread::sleep(time);
    let after = processes.iter().map(total).collect::<Result<Vec<_>>>()?;
    Ok(after.iter().zip(before).map(|(after, before)| (after - before) as f64 / 1e9).collect())
}

/// The first of two times, in units of the second.
fn ratio(ran: Vec<f64>) -> f64 {
    ran[0] / ran[1]
}
