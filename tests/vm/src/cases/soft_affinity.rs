//! Soft affinity: tasks that prefer some CPUs and may use the others. For a leg with four CPUs.

use super::{MOSTLY, succeeds};
use crate::guest::process::Process;
use crate::guest::tandem::{self, Tandem};
use crate::guest::tasks::{share_on, threads};
use crate::guest::{Guest, cgroup::Cgroup, wait, work};
use anyhow::{Result, ensure};
use std::process::Command;
use std::time::Duration;

const SET: [u32; 2] = [0, 1];
const REST: [u32; 2] = [2, 3];
const ALL: [u32; 4] = [0, 1, 2, 3];
const MS: Duration = Duration::from_millis(1);

/// Tasks stay on their set while it has room, use the rest when others need the set, and return.
pub fn stays_leaves_returns(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let work = work::pulse(2, 5 * MS, 5 * MS).preferring(&["--cpus", "0-1"]).start()?;
    let threads = threads(work.pid())?;

    let start = tandem::counters()?;
    let stayed = share_on(&threads, &SET)?;
    let staying = tandem::counters()?;
    let others = work::burn(2).on(&SET).start()?;
    let left = share_on(&threads, &REST)?;
    let leaving = tandem::counters()?;
    drop(others);
    let returned = share_on(&threads, &SET)?;
    let returning = tandem::counters()?;

    let in_set = staying.since(&start)["soft_preferred"];
    let out_of_set = leaving.since(&staying)["soft_rest"];
    let back = returning.since(&leaving)["soft_returned"];
    guest.note(format!(
        "on the set {:.0}%, outside while it is taken {:.0}%, on it again {:.0}%",
        100.0 * stayed,
        100.0 * left,
        100.0 * returned
    ))?;
    guest.note(format!("soft_preferred +{in_set}, soft_rest +{out_of_set}, soft_returned +{back}"))?;
    ensure!(stayed > MOSTLY && in_set > 0, "tasks did not stay on their set");
    ensure!(left > 0.5 && out_of_set > 0, "tasks did not use the rest");
    ensure!(returned > MOSTLY && back > 0, "tasks did not come back");
    tandem.stop()?;
    Ok(())
}

/// With all CPUs busy, the ratio `allowed:preferred` decides whether tasks wait for their set or anywhere.
pub fn ratio_says_where_to_wait(guest: &Guest) -> Result<()> {
    let run = |settings: &str| -> Result<_> {
        let tandem = Tandem::run_with(settings)?;
        let others: Vec<Process> =
            ALL.iter().map(|&cpu| work::burn(1).on(&[cpu]).start()).collect::<Result<_>>()?;
        // Work that is outside when the set becomes the busier side.
        let work = work::pulse(4, 5 * MS, 2 * MS).preferring(&["--cpus", "0-1"]).start()?;
        let outside = share_on(&threads(work.pid())?, &REST)?;
        let counters = tandem::counters()?;
        drop((work, others));
        tandem.stop()?;
        Ok((outside, counters["soft_waited"], counters["soft_whole"]))
    };
    let (outside, waited, whole) = run("[soft_affinity]\nallowed = 100\npreferred = 1\n")?;
    guest
        .note(format!("100:1: {:.0}% outside, soft_waited {waited}, soft_whole {whole}", 100.0 * outside))?;
    ensure!(waited > 10 * whole, "with 100:1 tasks did not wait for their set");
    let (outside, waited, whole) = run("[soft_affinity]\nallowed = 1\npreferred = 10000\n")?;
    guest.note(format!(
        "1:10000: {:.0}% outside, soft_waited {waited}, soft_whole {whole}",
        100.0 * outside
    ))?;
    ensure!(whole > 10 * waited, "with 1:10000 tasks waited for their set");
    Ok(())
}

/// A child has the preference of its parent, from its first moment on.
pub fn is_inherited(_: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let parent =
        ["prefer", "--cpus", "3", "--", "sh", "-c", "vm-guest work pulse 1 2000 2000 & echo child $!; wait"];
    let parent = Process::start(Command::new("tandem").args(parent))?;
    let child: u32 = wait::until("the start of a child", || {
        Ok(parent.output().lines().find_map(|line| line.strip_prefix("child ")?.parse().ok()))
    })?;
    let shown = tandem::call(&["prefer", "show", "--pid", &child.to_string()])?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    ensure!(shown.contains("CPUs 3"), "the child's preference is shown as: {shown}");
    let share = share_on(&[child], &[3])?;
    ensure!(share > MOSTLY, "the child was on its parent's CPU {:.0}% of the time", 100.0 * share);
    tandem.stop()?;
    Ok(())
}

/// What a cgroup prefers holds for its tasks, also for those that join later, until it is cleared.
pub fn of_a_cgroup(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let cgroup = Cgroup::create("vm")?;
    let directory = cgroup.directory();
    let member = || work::pulse(1, 5 * MS, 5 * MS).in_cgroup(directory).start();
    let sits = |who: &str, process: &Process| -> Result<()> {
        let before = tandem::counters()?;
        let share = share_on(&[process.pid()], &REST)?;
        let preferred = tandem::counters()?.since(&before)["soft_preferred"];
        guest
            .note(format!("{who}: {:.0}% on the cgroup's set, soft_preferred +{preferred}", 100.0 * share))?;
        ensure!(share > MOSTLY && preferred > 0, "{who} was not on the cgroup's set");
        Ok(())
    };
    let early = member()?;
    succeeds(&["prefer", "--cpus", "2-3", "--cgroup", directory])?;
    sits("a task that was there", &early)?;
    drop(early);
    let late = member()?;
    sits("a task that joined later", &late)?;
    let shown = succeeds(&["prefer", "show"])?;
    ensure!(shown.contains("CPUs 2-3"), "`prefer show` prints: {shown}");

    succeeds(&["prefer", "clear", "--cgroup", directory])?;
    let before = tandem::counters()?;
    share_on(&[late.pid()], &REST)?;
    let preferred = tandem::counters()?.since(&before)["soft_preferred"];
    ensure!(preferred == 0, "after `prefer clear`, {preferred} wake-ups had a preference");
    drop(late);
    tandem.stop()?;
    Ok(())
}
