//! How much each task gets: weights, cgroups, pinned tasks, sleepers.

use crate::guest::cgroup::Cgroup;
use crate::guest::process::Process;
use crate::guest::tandem::{self, Tandem};
use crate::guest::tasks::{self, Usage};
use crate::guest::{Guest, cpus, wait, work};
use anyhow::{Result, ensure};
use rustix::process::Signal;
use std::thread;
use std::time::{Duration, Instant};

/// The CPU for which tasks compete.
const CPU: u32 = 1;
const MS: Duration = Duration::from_millis(1);
/// How often each task is switched while shares are measured.
const SWITCHES: u64 = 200;

/// Two tasks of one CPU share it by their nice values.
pub fn nice_values(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let usual = work::burn(1).on(&[CPU]).start()?;
    let nice = work::burn(1).on(&[CPU]).nice(5).start()?;
    let ratio = ratio(&used(&[&usual, &nice], SWITCHES)?);
    // Weights of nice 0 and 5 in the kernel's sched_prio_to_weight: 1024 and 335.
    guest.note(format!("nice 0 : nice 5 = {ratio:.2} : 1; by weight 3.06 : 1"))?;
    ensure!(is_about(ratio, 3.06), "nice values are not followed");
    drop((usual, nice));
    tandem.stop()?;
    Ok(())
}

/// Cgroups share a CPU by `cpu.weight`, however many tasks they have.
pub fn cgroup_weights(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    for (weight, threads, expected) in [("300", 1, 3.0), ("100", 3, 1.0)] {
        let first = Cgroup::create("first")?;
        let second = Cgroup::create("second")?;
        first.set("cpu.weight", weight)?;
        let of_first = work::burn(threads).on(&[CPU]).in_cgroup(first.directory()).start()?;
        let of_second = work::burn(1).on(&[CPU]).in_cgroup(second.directory()).start()?;
        let ratio = ratio(&used(&[&of_first, &of_second], SWITCHES)?);
        guest.note(format!("{threads} in weight {weight} : 1 in weight 100 = {ratio:.2} : 1"))?;
        ensure!(is_about(ratio, expected), "cpu.weight is not followed");
        drop((of_first, of_second));
    }
    tandem.stop()?;
    Ok(())
}

/// Cgroups get the time of the CPUs that `cpu.max` allows, a nested one no more than its parent, and all of
/// it again without a limit.
pub fn cgroup_limits(guest: &Guest) -> Result<()> {
    const PERIOD: Duration = Duration::from_millis(100);
    const STRETCH: Duration = Duration::from_secs(10);
    const THREADS: u32 = 6;
    let outer = Cgroup::create("limited")?;
    outer.set("cpu.max", "50000 100000")?;
    if tandem::doctor_finds("would not be enforced: /limited; `tandem run` refuses")? {
        return guest.note("this kernel does not pass limits to schedulers: nothing was tried");
    }
    let tandem = Tandem::run(&[])?;
    outer.set("cgroup.subtree_control", "+cpu")?;
    let inner = Cgroup::create("limited/inner")?;
    let busy = work::burn(THREADS).in_cgroup(inner.directory()).start()?;
    let cases =
        [("50000 100000", "max", 0.5), ("50000 100000", "10000 100000", 0.1), ("200000 100000", "max", 2.0)];
    for (of_outer, of_inner, allowed) in cases {
        let before = tandem::counters()?;
        outer.set("cpu.max", of_outer)?;
        inner.set("cpu.max", of_inner)?;
        // What runs learns of the limit at the CPU's next tick, which is late if the emulated CPU has to wait
        // for a real one.
        wait::until("that each thread has been throttled", || {
            Ok((tandem::counters()?.since(&before)["throttled"] >= THREADS.into()).then_some(()))
        })?;
        thread::sleep(2 * PERIOD);
        let (start, ran_before) = (Instant::now(), inner.cpu_time()?);
        thread::sleep(STRETCH);
        // A task that continues because the timer of its emulated CPU is late is in debt, which the cgroup
        // pays afterwards.
        let used = wait::until("that no more is used than is allowed", || {
            let used = (inner.cpu_time()? - ran_before).as_secs_f64() / start.elapsed().as_secs_f64();
            Ok((used <= allowed * 1.02).then_some(used))
        })?;
        let throttled = tandem::counters()?.since(&before)["throttled"];
        guest.note(format!(
            "cpu.max {of_outer}, below it {of_inner}: {used:.3} CPUs of {allowed} in {:.0} s; throttled +{throttled}",
            start.elapsed().as_secs_f64()
        ))?;
    }
    outer.set("cpu.max", "max")?;
    let ran_before = inner.cpu_time()?;
    wait::until("more than the limits allowed", || {
        Ok((inner.cpu_time()? > ran_before + STRETCH).then_some(()))
    })?;
    drop((busy, inner, outer));
    tandem.stop()?;
    Ok(())
}

/// Six tasks on four CPUs get about the same.
pub fn equal_tasks(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let processes = (0..6).map(|_| work::burn(1).start()).collect::<Result<Vec<_>>>()?;
    let used = used(&processes.iter().collect::<Vec<_>>(), SWITCHES)?;
    let ran: Vec<f64> = used.iter().map(|used| used.run_ns as f64).collect();
    let mean = ran.iter().sum::<f64>() / ran.len() as f64;
    let [least, most] =
        [f64::min, f64::max].map(|choose| ran.iter().copied().reduce(choose).unwrap_or(0.0) / mean);
    guest.note(format!("6 tasks on 4 CPUs: the least got {least:.2} of the mean, the most {most:.2}"))?;
    ensure!(least > 0.7 && most < 1.3, "equal tasks did not get the same");
    drop(processes);
    tandem.stop()?;
    Ok(())
}

/// Tasks that may use only one CPU get their demand on it, though others have filled all CPUs.
pub fn pinned_tasks(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let all = cpus::online()?;
    let others = work::burn(2 * all.len() as u32).start()?;
    // A fifth of a CPU, of which the two others there leave a third.
    let pinned = all.iter().map(|&cpu| work::pulse(1, 20 * MS, 80 * MS).on(&[cpu]).start());
    let pinned = pinned.collect::<Result<Vec<_>>>()?;
    let before = tandem::counters()?;
    let used = used(&pinned.iter().collect::<Vec<_>>(), SWITCHES / 10)?;
    // All the rest of the time it sleeps, four times as long as it runs.
    let share = |used: &Usage| used.run_ns as f64 / (5 * used.run_ns + used.wait_ns) as f64;
    let least = used.iter().map(share).reduce(f64::min).unwrap_or(0.0);
    let queued = tandem::counters()?.since(&before)["pinned"];
    guest.note(format!(
        "of a fifth of a CPU that each wants, the least got {:.0}%; pinned +{queued}",
        500.0 * least
    ))?;
    ensure!(least > 0.05 && queued > 0, "a pinned task starved");
    drop((pinned, others));
    tandem.stop()?;
    Ok(())
}

/// Tasks that change their affinity all the time, and have to leave their CPU for that now and then, get as
/// much as others.
pub fn changes_of_affinity(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let stay = work::burn(4).start()?;
    let change = work::roam(4, 3 * MS).start()?;
    let ratio = ratio(&used(&[&change, &stay], 4 * SWITCHES)?);
    guest.note(format!("4 that change their affinity every 3 ms : 4 that do not = {ratio:.2} : 1"))?;
    ensure!(is_about(ratio, 1.0), "those that change their affinity did not get half");
    drop((stay, change));
    tandem.stop()?;
    Ok(())
}

/// A task that slept for long does not keep the CPU from others afterwards.
pub fn sleepers_credit(guest: &Guest) -> Result<()> {
    /// The run time of the other one meanwhile.
    const SLEEP: Duration = Duration::from_secs(3);
    let tandem = Tandem::run(&[])?;
    let awake = work::burn(1).on(&[CPU]).start()?;
    let sleeper = work::burn(1).on(&[CPU]).start()?;
    sleeper.signal(Signal::STOP)?;
    let before = tasks::usage(awake.pid())?;
    wait::until("that a task runs for some seconds", || {
        Ok((tasks::usage(awake.pid())?.since(&before).run() >= SLEEP).then_some(()))
    })?;
    sleeper.signal(Signal::CONT)?;
    let ratio = ratio(&used(&[&sleeper, &awake], SWITCHES)?);
    guest.note(format!("after {} s of sleep, sleeper : other = {ratio:.2} : 1", SLEEP.as_secs()))?;
    ensure!(is_about(ratio, 1.0), "the sleeper did not get half");
    drop((awake, sleeper));
    tandem.stop()?;
    Ok(())
}

/// What each of the processes uses while each of them is switched that often.
///
/// An emulated CPU may not run for a hundred milliseconds, which then count as a task's: what evens out is
/// the number of turns, not the time.
pub(super) fn used(processes: &[&Process], switches: u64) -> Result<Vec<Usage>> {
    let usage = |process: &&Process| tasks::usage_of_process(process.pid());
    let before = processes.iter().map(usage).collect::<Result<Vec<_>>>()?;
    wait::until("as many context switches as a share needs", || {
        let now = processes.iter().map(usage).collect::<Result<Vec<_>>>()?;
        let used: Vec<Usage> = now.iter().zip(&before).map(|(now, before)| now.since(before)).collect();
        Ok(used.iter().all(|used| used.switches() >= switches).then_some(used))
    })
}

/// Whether a ratio is as expected, up to a factor of 1.5. Where weights do not count, it is off by three.
fn is_about(ratio: f64, expected: f64) -> bool {
    (expected / 1.5..expected * 1.5).contains(&ratio)
}

/// The first of two times, in units of the second.
fn ratio(used: &[Usage]) -> f64 {
    used[0].run_ns as f64 / used[1].run_ns as f64
}
