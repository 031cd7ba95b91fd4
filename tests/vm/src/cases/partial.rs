//! Some tasks under the scheduler, and the others under the kernel's own.

use super::bad_input::{BAD_INPUT, refused};
use crate::guest::cgroup::Cgroup;
use crate::guest::process::Process;
use crate::guest::tandem::{self, Tandem};
use crate::guest::{Guest, tasks, wait, work};
use anyhow::{Result, ensure};
use rustix::process::Signal;
use std::fs;
use std::process::Command;
use std::time::Duration;

/// The kernel's numbers of policies: `include/uapi/linux/sched.h`.
const OTHER: u32 = 0;
const BATCH: u32 = 3;
const EXT: u32 = 7;
/// The CPUs of the part.
const CPUS: [u32; 2] = [2, 3];
/// The file for which [`child_that_leaves`] waits.
const LEAVE: &str = "/tmp/leave";
/// CPU time that tasks use while they are compared.
const STRETCH: Duration = Duration::from_secs(12);

fn policy(tid: u32) -> Result<u32> {
    tasks::stat_field(tid, 41)
}

fn nice(tid: u32) -> Result<i32> {
    tasks::stat_field(tid, 19)
}

/// Waits until the scheduler decides about tasks that compute.
fn wait_for_decisions(what: &str) -> Result<()> {
    let before = tandem::counters()?;
    wait::until(what, || {
        let counted = tandem::counters()?.since(&before);
        Ok((counted["expired"] + counted["kept"] > 50).then_some(()))
    })
}

fn wait_for(what: &str, process: &Process, expected: u32) -> Result<()> {
    wait::until(what, || {
        let threads = tasks::threads(process.pid())?;
        let policies = threads.into_iter().map(policy).collect::<Result<Vec<_>>>()?;
        Ok(policies.iter().all(|&policy| policy == expected).then_some(()))
    })
}

fn join(process: &Process, cgroup: &Cgroup) -> Result<()> {
    cgroup.set("cgroup.procs", &process.pid().to_string())
}

/// A shell that has a child leave its cgroup as soon as it is born, when this file is there.
fn child_that_leaves(from: &Cgroup, to: &Cgroup) -> Result<Process> {
    let script = format!(
        "while [ ! -e {LEAVE} ]; do busybox sleep 0.1; done; (echo 0 > {}/cgroup.procs; exec busybox sleep 1000) & wait",
        to.directory()
    );
    let shell = Process::start(Command::new("busybox").args(["sh", "-c", &script]))?;
    join(&shell, from)?;
    Ok(shell)
}

/// A cgroup with CPUs of its own.
fn with_own_cpus(name: &str) -> Result<Cgroup> {
    let cgroup = Cgroup::create(name)?;
    cgroup.set("cpuset.cpus", &format!("{}-{}", CPUS[0], CPUS[1]))?;
    cgroup.set("cpuset.cpus.partition", "root")?;
    Ok(cgroup)
}

/// Tasks of a cgroup are taken as they come, with all that they have but the policy, and given back as they
/// go, at other settings, and in the end.
pub fn tasks_come_and_go(guest: &Guest) -> Result<()> {
    let part = with_own_cpus("part")?;
    let inner = part.create_below("inner")?;
    let other = Cgroup::create("other")?;
    let inside = work::burn(3).nice(5).in_cgroup(inner.directory()).start()?;
    let outside = work::burn(1).in_cgroup(other.directory()).start()?;
    let chosen = work::burn(1).in_cgroup(inner.directory()).batch().start()?;

    let settings = "[partial]\ncgroups = [\"/part\"]\n";
    let tandem = Tandem::run_with(settings)?;
    ensure!(
        tandem.process().output().contains("tasks of /part; the others stay"),
        "it does not report its tasks"
    );
    // They were taken before the scheduler was loaded.
    let threads = tasks::threads(inside.pid())?;
    for &tid in &threads {
        ensure!(policy(tid)? == EXT && nice(tid)? == 5, "thread {tid} was not taken, or is not as it was");
    }
    ensure!(policy(chosen.pid())? == EXT, "a task of another policy would run before all of the part");
    ensure!(policy(outside.pid())? == OTHER, "a task outside was taken");
    wait_for_decisions("that the scheduler runs them")?;
    let child = Process::start(Command::new("busybox").args(["sleep", "1000"]))?;
    join(&child, &inner)?;
    wait_for("that one that comes is taken", &child, EXT)?;
    join(&child, &other)?;
    wait_for("that one that leaves is given back", &child, OTHER)?;

    // Where the kernel lets tasks starve beside its own, a part without CPUs of its own has to be asked for.
    tandem.reload("[ignore]\nstarvation = true\n[partial]\nexcept = [\"/part/inner\"]\n")?;
    wait_for("that the exception is given back", &inside, OTHER)?;
    wait_for("that all others are taken", &outside, EXT)?;
    ensure!(policy(2)? == OTHER, "the kernel's threads were taken");
    tandem.reload("")?;
    wait_for("that no task needs a policy under a scheduler of all", &outside, OTHER)?;
    wait_for_decisions("that the scheduler runs all")?;
    tandem.stop()?;
    ensure!(policy(chosen.pid())? == BATCH, "a task has lost the policy that it had chosen");
    for &tid in &threads {
        ensure!(policy(tid)? == OTHER && nice(tid)? == 5, "thread {tid} was not given back as it was");
    }

    let tandem = Tandem::run_with(settings)?;
    let away = Cgroup::create("away")?;
    let shell = child_that_leaves(&inner, &away)?;
    wait_for("that the parent is taken", &shell, EXT)?;
    fs::write(LEAVE, "")?;
    wait::until("that a child is given back that left as soon as it was born", || {
        let born = fs::read_to_string(format!("{}/cgroup.procs", away.directory()))?;
        let born: Option<u32> = born.trim().parse().ok();
        Ok(born.map(policy).transpose()?.is_some_and(|policy| policy == OTHER).then_some(()))
    })?;
    drop((shell, away));
    fs::remove_file(LEAVE)?;
    // A killed process gives nothing back, and without a scheduler the policy changes nothing.
    tandem.process().signal(Signal::KILL)?;
    let (_, _) = tandem.wait()?;
    let ran = tasks::usage_of_process(inside.pid())?.run();
    wait::until("that they go on when it is killed", || {
        Ok((tasks::usage_of_process(inside.pid())?.run() > ran + Duration::from_secs(1)).then_some(()))
    })?;
    guest.note(format!("{} threads of a cgroup came and went with their nice values", threads.len()))
}

/// A task that hides in the part, where a path is too long to be read, is outside; the log reports that.
pub fn who_hides_is_outside(guest: &Guest) -> Result<()> {
    let part = with_own_cpus("part")?;
    let tandem = Tandem::run_with("[partial]\ncgroups = [\"/part\"]\n")?;
    let level = "x".repeat(250);
    // Twenty levels; a path has room for sixteen.
    let script = format!(
        "while [ ! -e {LEAVE} ]; do busybox sleep 0.1; done; cd -P {}; for i in $(busybox seq 20); do busybox mkdir {level}; cd -P {level}; done; \
         echo $$ > cgroup.procs; busybox sleep 1000 & wait",
        part.directory()
    );
    let shell = Process::start(Command::new("busybox").args(["sh", "-c", &script]))?;
    join(&shell, &part)?;
    wait_for("that it is of the part", &shell, EXT)?;
    fs::write(LEAVE, "")?;
    wait_for("that it is given back", &shell, OTHER)?;
    let members = fs::read_to_string(format!("{}/cgroup.procs", part.directory()))?;
    ensure!(!members.contains(&shell.pid().to_string()), "it has not moved");
    drop(shell);
    fs::remove_file(LEAVE)?;
    let told = tandem.process().output();
    ensure!(told.contains("counts as outside: "), "it does not report that one is hidden: {told}");
    tandem.stop()?;
    wait::until("the end of the hidden task", || {
        let events = fs::read_to_string(format!("{}/cgroup.events", part.directory()))?;
        Ok(events.contains("populated 0").then_some(()))
    })?;
    let clean = format!(
        "cd -P {}; while cd -P {level} 2>/dev/null; do :; done; while [ -d ../{level} ] && cd -P ..; do busybox rmdir {level}; done",
        part.directory()
    );
    Process::start(Command::new("busybox").args(["sh", "-c", &clean]))?.wait_success()?;
    guest.note("one that hid was given back")
}

/// On CPUs that they share, the kernel's tasks come first. Where the kernel sees to it that the others do not
/// starve, they do not; where it does not, a part without CPUs of its own is refused.
pub fn a_part_beside_others(guest: &Guest) -> Result<()> {
    let settings = "watchdog = \"10 s\"\n[partial]\ncgroups = [\"/part\"]\n";
    let part = Cgroup::create("part")?;
    if tandem::doctor_finds("a part starves beside other tasks")? {
        fs::write("/tmp/part.toml", settings)?;
        refused(
            &tandem::call(&["run", "--config", "/tmp/part.toml"])?,
            BAD_INPUT,
            "/part would share CPUs with such tasks",
        )?;
        return guest.note("this kernel lets the part starve: it is refused");
    }
    let inside = work::burn(1).on(&[CPUS[0]]).in_cgroup(part.directory()).start()?;
    let outside = work::burn(2).on(&[CPUS[0]]).start()?;
    let tandem = Tandem::run_with(settings)?;
    let usages = || {
        Ok::<_, anyhow::Error>([
            tasks::usage_of_process(inside.pid())?,
            tasks::usage_of_process(outside.pid())?,
        ])
    };
    let before = usages()?;
    let [of_part, of_others] = wait::until("that they have run for a while", || {
        let ran: Vec<_> =
            usages()?.iter().zip(&before).map(|(now, before)| now.since(before).run()).collect();
        Ok((ran.iter().sum::<Duration>() > STRETCH).then_some([ran[0], ran[1]]))
    })?;
    let share = of_part.as_secs_f64() / (of_part + of_others).as_secs_f64();
    guest.note(format!(
        "beside two tasks of the kernel's scheduler, one of the part has {:.1}% of their CPU",
        100.0 * share
    ))?;
    // The server gives 50 ms per second (`ext_server_init()`), and the time of an emulated CPU is not all
    // visible.
    ensure!(share > 0.025, "the part starves");
    drop((inside, outside));
    tandem.stop()?;
    Ok(())
}
