//! CPUs come and go: the scheduler is loaded again, and its settings and preferences stay.

use super::{MOSTLY, hackbench};
use crate::guest::tandem::Tandem;
use crate::guest::tasks::{share_on, threads};
use crate::guest::{Guest, work};
use anyhow::{Result, ensure};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A task's preference holds when the scheduler has been loaded again, and so does that of a CPU that was
/// away.
pub fn preferences_survive(guest: &Guest) -> Result<()> {
    let tandem = Tandem::run(&[])?;
    let stays = work::pulse(2, 5 * MS, 5 * MS).preferring(&["--cpus", "0-1"]).start()?;
    let loses = work::pulse(1, 5 * MS, 5 * MS).preferring(&["--cpus", "3"]).start()?;
    let preferences = super::preferences()?;
    for online in [false, true] {
        tandem.hotplug(3, online)?;
        let now = super::preferences()?;
        ensure!(now == preferences, "preferences were\n{preferences}and are\n{now}");
        let share = share_on(&threads(stays.pid())?, &[0, 1])?;
        let state = if online { "online" } else { "offline" };
        guest.note(format!("CPU 3 {state}: {:.0}% on the set 0-1", 100.0 * share))?;
        ensure!(share > MOSTLY, "tasks did not stay on their set");
        hackbench()?;
    }
    let share = share_on(&[loses.pid()], &[3])?;
    ensure!(share > MOSTLY, "{:.0}% of the time on CPU 3, which is back", 100.0 * share);
    drop((stays, loses));
    let output = tandem.stop()?;
    ensure!(
        output.matches("loading again").count() == 2,
        "it did not report that it was loaded again: {output}"
    );
    Ok(())
}
