//! NUMA homes: groups of threads that prefer nodes. For a leg with two nodes of two CPUs.

use super::{MOSTLY, succeeds, wait_little_beside_idle};
use crate::guest::process::Process;
use crate::guest::tandem::{self, Tandem};
use crate::guest::tasks::{share_on, threads};
use crate::guest::{Guest, cpus, work};
use anyhow::{Result, ensure};
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// Two groups go to the homes that they get, stay there, and go to others when these are exchanged.
pub fn groups_stay_home(guest: &Guest) -> Result<()> {
    let nodes = [cpus::of_node(0)?, cpus::of_node(1)?];
    let tandem = Tandem::run(&[])?;
    let groups = [group()?, group()?];
    for homes in [[0, 1], [1, 0]] {
        for (group, home) in groups.iter().zip(homes) {
            succeeds(&["prefer", "--nodes", &home.to_string(), "--pid", &group.pid().to_string()])?;
        }
        let before = tandem::counters()?;
        for (number, (group, home)) in groups.iter().zip(homes).enumerate() {
            let share = share_on(&threads(group.pid())?, &nodes[home])?;
            guest.note(format!("group {number} with home {home}: {:.0}% at home", 100.0 * share))?;
            ensure!(share > MOSTLY, "a group was not at home");
        }
        let counters = tandem::counters()?.since(&before);
        let (home, away) = (counters["soft_preferred"], counters["soft_rest"]);
        guest.note(format!("soft_preferred +{home}, soft_rest +{away}"))?;
        ensure!(home > 3 * away, "wake-ups found no CPU at home");
    }
    drop(groups);
    tandem.stop()?;
    Ok(())
}

/// Two threads that want a quarter of a node's two CPUs: besides the other one, there is what the kernel and
/// this test do, which on a busy machine is more.
fn group() -> Result<Process> {
    work::pulse(2, 3 * MS, 9 * MS).start()
}

/// A group that demands more than its home has uses the other node while that idles, and leaves it to the
/// group at home there.
pub fn no_node_idles(guest: &Guest) -> Result<()> {
    let nodes = [cpus::of_node(0)?, cpus::of_node(1)?];
    let tandem = Tandem::run(&[])?;
    let large = work::burn(4).preferring(&["--nodes", "0"]).start()?;
    let large_threads = threads(large.pid())?;
    let before = tandem::counters()?;
    let away = share_on(&large_threads, &nodes[1])?;
    let stolen = tandem::counters()?.since(&before)["stolen_far"];
    guest.note(format!(
        "4 threads at home on 2 CPUs: {:.0}% on the idle node, stolen_far +{stolen}",
        100.0 * away
    ))?;
    ensure!(stolen > 0, "the idle node stole nothing");
    wait_little_beside_idle(guest, &large_threads)?;

    let local = work::burn(2).preferring(&["--nodes", "1"]).start()?;
    let at_home = share_on(&threads(local.pid())?, &nodes[1])?;
    let away = share_on(&large_threads, &nodes[1])?;
    guest.note(format!(
        "with 2 at home there: these {:.0}% at home, the others {:.0}% away",
        100.0 * at_home,
        100.0 * away
    ))?;
    ensure!(at_home > MOSTLY, "tasks were driven from their home");
    drop((large, local));
    tandem.stop()?;
    Ok(())
}
