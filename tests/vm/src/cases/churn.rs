//! Everything at once, for minutes: work that forks, wakes and yields, hotplug, changes of CPU sets and of
//! preferences.

use super::{hackbench, succeeds};
use crate::guest::cgroup::Cgroup;
use crate::guest::process::Process;
use crate::guest::tandem::Tandem;
use crate::guest::tasks::{self, threads};
use crate::guest::{Guest, sched_ext, work};
use anyhow::{Context, Result, ensure};
use std::process::Command;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// What stress-ng does, each with one worker: fork and exit, create threads, change affinities, yield, wake
/// by timers and futexes.
const STRESSORS: [&str; 8] = ["cpu", "fork", "pthread", "affinity", "yield", "switch", "timer", "futex"];

/// No ejection, no complaint of the kernel, and every task that survives runs in each round.
pub fn everything_at_once(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let cgroup = Cgroup::create("churn")?;
    // The work is to be in the way of loading the scheduler, not to keep it from being loaded.
    cgroup.set("cpu.weight", "20")?;
    let members = work::pulse(4, 3 * MS, 2 * MS).in_cgroup(cgroup.directory()).start()?;
    let mut stress = Process::start(&mut stress_ng(&cgroup))?;
    let start = Instant::now();
    let loadings = sched_ext::loadings()?;
    let mut number = 0;
    while start.elapsed() < guest.churn {
        round(number, &tandem, &cgroup, &members).with_context(|| {
            format!("round {number}; `tandem run` printed: {}", tandem.process().output().trim())
        })?;
        ensure!(stress.ended()?.is_none(), "stress-ng ended: {}", stress.output().trim());
        number += 1;
    }
    let loadings = sched_ext::loadings()? - loadings;
    guest.note(format!("{number} rounds, {loadings} loadings"))?;
    drop((stress, members));
    tandem.stop()?;
    Ok(())
}

/// stress-ng in a cgroup.
fn stress_ng(cgroup: &Cgroup) -> Command {
    let stressors: Vec<String> = STRESSORS.iter().map(|stressor| format!("--{stressor} 1")).collect();
    let join = format!("echo 0 >{}/cgroup.procs", cgroup.directory());
    let mut command = Command::new("sh");
    command
        .args(["-c", &format!("{join} && exec stress-ng --quiet --temp-path /tmp {}", stressors.join(" "))]);
    command
}

/// A CPU goes and comes, and in between sets and preferences change under running work.
fn round(number: usize, tandem: &Tandem, cgroup: &Cgroup, members: &Process) -> Result<()> {
    let threads = threads(members.pid())?;
    let ran = || threads.iter().map(|&thread| Ok(tasks::usage(thread)?.run_ns)).collect::<Result<Vec<_>>>();
    let before = ran()?;
    let cpu = 1 + number as u32 % 3;
    tandem.hotplug(cpu, false)?;
    cgroup.set("cpuset.cpus", ["0", "0-1", "0-3", "0,2-3"][number % 4])?;
    hackbench()?;
    tandem.hotplug(cpu, true)?;
    succeeds(&["prefer", "--cpus", ["0-1", "0,3", "0"][number % 3], "--pid", &members.pid().to_string()])?;
    succeeds(&["prefer", "--nodes", ["0", "0-1"][number % 2], "--cgroup", cgroup.directory()])?;
    hackbench()?;
    if number % 3 == 2 {
        succeeds(&["prefer", "clear", "--pid", &members.pid().to_string()])?;
    }
    let starved = ran()?.iter().zip(before).filter(|(after, before)| *after == before).count();
    ensure!(starved == 0, "{starved} of {} tasks did not run", threads.len());
    Ok(())
}
