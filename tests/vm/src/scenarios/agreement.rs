//! Small programs under `tandem`, measured so that they can be compared with the simulator.
//!
//! What runs is in `agreement/PROGRAM.toml`, a scenario of the simulator, which threads perform here. A program is measured
//! from its start for the scenario's length.

use crate::guest::process::Process;
use crate::guest::tandem::{self, Tandem};
use crate::guest::{Guest, cpus, perform, switches, work};
use crate::leg::AGREEMENT_FOLDER;
use crate::record::Record;
use anyhow::{Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;
use tandem_sim::machine::parse_cpulist;
use tandem_sim::scenario::{Scenario, Vm};

/// How long the system is left alone first, so that what was put off by booting and loading is done.
const PAUSE: Duration = Duration::from_secs(3);
/// From now to the start of a program: time for its processes to get ready.
const LEAD: Duration = Duration::from_millis(500);

/// Runs a program under `tandem`, and hands over what it did.
pub fn run(guest: &Guest, program: &str) -> Result<()> {
    let file = Path::new(AGREEMENT_FOLDER).join(format!("{program}.toml"));
    let scenario = perform::read_scenario(&file)?;
    let length = Duration::from_nanos(scenario.length_ns);
    let scheduler = Tandem::run(&["--interval", "0"])?;
    thread::sleep(PAUSE);
    let background = counters_of(|| {
        thread::sleep(length);
        Ok(())
    })?;

    let start = now() + LEAD;
    let start_ns = start.as_nanos() as u64;
    let sets = start_sets(&scenario, &file, start_ns)?;
    let trace = switches::Trace::start()?;
    let counters = counters_of(|| {
        ensure!(now() < start, "the processes were not ready when they were to start");
        thread::sleep((start + length).saturating_sub(now()));
        Ok(())
    })?;
    let trace = trace.stop()?;
    drop(sets);
    scheduler.stop()?;

    let names: Vec<String> = scenario
        .vms
        .iter()
        .flat_map(|set| (0..set.vcpus.len()).map(|number| perform::task_name(&set.name, number)))
        .collect();
    let cpus = cpus::online()?.len();
    let end_ns = start_ns + scenario.length_ns;
    let (tasks, span_ns) = switches::of_tasks(&trace, &names, cpus, start_ns, end_ns)?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
    let length_ns = scenario.length_ns;
    let record = Record { program: program.into(), kernel, length_ns, span_ns, tasks, counters, background };
    note(guest, &scenario, &record)?;
    guest.record(record)
}

/// Starts the processes of all sets, which begin at that time.
fn start_sets(scenario: &Scenario, file: &Path, start_ns: u64) -> Result<Vec<Process>> {
    let all = scenario.machine.all_cpus();
    let mut processes = Vec::new();
    for (number, set) in scenario.vms.iter().enumerate() {
        let task = &set.vcpus[0];
        let mut work = work::perform(file, number, start_ns).nice(nice(set)?);
        if *task.hard_affinity != *all {
            work = work.on(&parse_cpulist(&scenario.machine.os_list(&task.hard_affinity))?);
        }
        if let Some(soft) = &task.soft_affinity {
            work = work.preferring(&["--cpus", &scenario.machine.os_list(soft)]);
        }
        processes.push(work.start()?);
    }
    Ok(processes)
}

/// The nice value whose weight is nearest to that of the set: each step is a quarter more.
fn nice(set: &Vm) -> Result<i32> {
    let ratio = f64::from(Vm::DEFAULT_WEIGHT) / f64::from(set.weight);
    let nice = (ratio.ln() / 1.25_f64.ln()).round() as i32;
    ensure!((-20..20).contains(&nice), "{} has no nice value for the weight {}", set.name, set.weight);
    Ok(nice)
}

/// By how much the scheduler's counters rise while this is done.
fn counters_of(done: impl FnOnce() -> Result<()>) -> Result<BTreeMap<String, u64>> {
    let before = tandem::counters()?;
    done()?;
    Ok(tandem::counters()?.since(&before).into_map())
}

/// Puts what the sets did into the results.
fn note(guest: &Guest, scenario: &Scenario, record: &Record) -> Result<()> {
    for set in &scenario.vms {
        let sum = record.of_set(&set.name);
        guest.note(format!(
            "{}: ran {:.1} ms, {} switches, {} of them though it could have gone on, {} migrations",
            set.name,
            sum.total_ns() as f64 / 1e6,
            sum.switches(),
            sum.runnable,
            sum.migrations
        ))?;
    }
    Ok(())
}

/// The time of the monotonic clock.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("it does not go below zero")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leg;

    #[test]
    fn all_programs_can_be_done_on_the_machine_of_the_leg() {
        let leg = leg::find("agreement").unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("agreement");
        for program in leg.scenarios {
            let file = folder.join(format!("{}.toml", program.name));
            let scenario = perform::read_scenario(&file).unwrap();
            let machine = &scenario.machine;
            assert_eq!(machine.cpu_count() as u32, leg.machine.cpus());
            assert_eq!(machine.node_count() as u32, leg.machine.nodes);
            for node in 0..leg.machine.nodes {
                let cpus = machine.os_list(machine.node_cpus((node as usize).into()));
                let expected: Vec<u32> = leg.machine.cpus_of(node).collect();
                assert_eq!(parse_cpulist(&cpus).unwrap(), expected, "{}: node {node}", program.name);
            }
            for (number, set) in scenario.vms.iter().enumerate() {
                perform::Set::read(&file, number).unwrap();
                nice(set).unwrap();
            }
        }
    }

    #[test]
    fn weights_are_those_of_nice_values() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("agreement/burners.toml");
        let scenario = perform::read_scenario(&file).unwrap();
        assert_eq!(scenario.vms.iter().map(|set| nice(set).unwrap()).collect::<Vec<_>>(), [0, 5]);
    }
}
