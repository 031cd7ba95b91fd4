//! Small programs under `tandem` and under the kernel's own scheduler, measured so that they can be compared
//! with the simulator.
//!
//! The programs are in `agreement/PROGRAM.toml`, scenarios of the simulator, which threads perform here. A
//! program is measured from its start for the scenario's length.

use crate::guest::process::Process;
use crate::guest::switches::{self, Seen};
use crate::guest::tandem::{self, Tandem};
use crate::guest::{Guest, cpus, perform, work};
use crate::leg::{AGREEMENT_FOLDER, AGREEMENT_PROGRAMS};
use crate::record::{Record, Scheduler, Task};
use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;
use tandem_machine::parse_cpulist;
use tandem_sim::scenario::{Scenario, Workload};

/// How long the system is left alone first, so that work that booting and loading postponed is done.
pub const PAUSE: Duration = Duration::from_secs(3);
/// How often a program runs: single runs differ too much to be compared.
const ROUNDS: usize = 6;
/// From when its processes are started to the start of a program. The scheduler remembers which CPUs had much
/// to do, and moves tasks for it, for some seconds: by half in 1.5 s. The simulator begins with nothing to
/// remember.
const REST: Duration = Duration::from_secs(2);
/// The end of that, in which the trace is started.
const LEAD: Duration = Duration::from_millis(500);
/// Whether the kernel's scheduler draws threads of a process into one cache (`SCHED_CACHE`, from 7.2 on).
const LLC_BALANCING: &str = "/sys/kernel/debug/sched/llc_balancing/enabled";
/// Whether the kernel shows its scheduling domains, and where.
const VERBOSE: &str = "/sys/kernel/debug/sched/verbose";
const DOMAINS: &str = "/sys/kernel/debug/sched/domains";

/// Runs all programs under `tandem`, round after round, and hands over what each did each time.
///
/// Loading the scheduler takes longer than all programs of a round, so it stays loaded.
pub fn programs(guest: &Guest) -> Result<()> {
    let scheduler = Tandem::run(&["--interval", "0"])?;
    thread::sleep(PAUSE);
    for round in 1..=ROUNDS {
        for program in AGREEMENT_PROGRAMS {
            run_program(guest, program, &Scheduler::Tandem, round)?;
        }
    }
    scheduler.stop()?;
    Ok(())
}

/// Runs the program with the case's name under the kernel's own scheduler several times, and hands over what
/// it did each time.
pub fn eevdf(guest: &Guest) -> Result<()> {
    as_modelled()?;
    thread::sleep(PAUSE);
    (1..=ROUNDS).try_for_each(|round| run_program(guest, guest.case.get(), &Scheduler::Eevdf, round))
}

/// Switches off what the model of the kernel's own scheduler leaves out, and has the kernel show its domains.
pub fn as_modelled() -> Result<()> {
    if Path::new(LLC_BALANCING).exists() {
        fs::write(LLC_BALANCING, "0").with_context(|| format!("cannot write to {LLC_BALANCING}"))?;
    }
    fs::write(VERBOSE, "1").with_context(|| format!("cannot write to {VERBOSE}"))
}

/// Runs a program under the scheduler that is in charge, and hands over what it did.
pub fn run_program(guest: &Guest, program: &str, scheduler: &Scheduler, round: usize) -> Result<()> {
    let record = run(program, scheduler).with_context(|| format!("{program}, round {round}"))?;
    guest.note(describe(&record))?;
    guest.record(record)
}

/// Runs a program under the scheduler that is in charge.
fn run(program: &str, scheduler: &Scheduler) -> Result<Record> {
    let file = Path::new(AGREEMENT_FOLDER).join(format!("{program}.toml"));
    let scenario = perform::read_scenario(&file)?;
    let length = Duration::from_nanos(scenario.length_ns);
    let start = now() + REST;
    let start_ns = start.as_nanos() as u64;
    let sets = start_sets(&scenario, &file, start_ns)?;
    thread::sleep((start - LEAD).saturating_sub(now()));
    let trace = switches::Trace::start()?;
    let wait = || {
        ensure!(now() < start, "the processes were not ready when they were to start");
        thread::sleep((start + length).saturating_sub(now()));
        Ok(())
    };
    let (counters, search_ns) = match scheduler {
        Scheduler::Tandem => (counters_of(wait)?, Vec::new()),
        Scheduler::Eevdf => (wait().map(|()| BTreeMap::new())?, search_ns()?),
        Scheduler::Object(_) => (wait().map(|()| BTreeMap::new())?, Vec::new()),
    };
    let trace = trace.stop()?;
    drop(sets);

    let names: Vec<String> = scenario
        .workloads
        .iter()
        .flat_map(|set| (0..set.task_count()).map(|number| perform::task_name(&set.name, number)))
        .collect();
    let cpus = cpus::online()?.len();
    let end_ns = start_ns + scenario.length_ns;
    let Seen { tasks, span_ns, waits, others, idle_wakes, idle_wake_ns } =
        switches::of_tasks(&trace, &names, cpus, start_ns, end_ns)?;
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
    let length_ns = scenario.length_ns;
    Ok(Record {
        program: program.into(),
        scheduler: scheduler.clone(),
        kernel,
        length_ns,
        span_ns,
        tasks,
        waits,
        counters,
        others,
        idle_wakes,
        idle_wake_ns,
        search_ns,
    })
}

/// Starts the processes of all sets, which begin at that time.
fn start_sets(scenario: &Scenario, file: &Path, start_ns: u64) -> Result<Vec<Process>> {
    let all = scenario.machine.all_cpus();
    let mut processes = Vec::new();
    for (number, set) in scenario.workloads.iter().enumerate() {
        let affinity = set.affinity(0);
        let mut work = work::perform(file, number, start_ns).nice(nice(set)?);
        if *affinity.hard != *all {
            work = work.on(&parse_cpulist(&scenario.machine.os_list(&affinity.hard))?);
        }
        if let Some(soft) = &affinity.soft {
            work = work.preferring(&["--cpus", &scenario.machine.os_list(soft)]);
        }
        processes.push(work.start()?);
    }
    Ok(processes)
}

/// The nice value whose weight is nearest to that of the set: each step is a quarter more.
fn nice(set: &Workload) -> Result<i32> {
    let ratio = f64::from(Workload::DEFAULT_WEIGHT) / f64::from(set.weight);
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

/// The longest time of a search by a newly idle CPU, by domain, the smallest first: means over all CPUs, ns.
fn search_ns() -> Result<Vec<u64>> {
    let cpus = cpus::online()?;
    let mut means = Vec::new();
    for level in 0.. {
        let file = |cpu| format!("{DOMAINS}/cpu{cpu}/domain{level}/max_newidle_lb_cost");
        if !Path::new(&file(cpus[0])).exists() {
            break;
        }
        let of = |&cpu: &u32| -> Result<u64> {
            let file = file(cpu);
            let text = fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
            text.trim().parse().with_context(|| format!("no number in {file}"))
        };
        let costs = cpus.iter().map(of).collect::<Result<Vec<_>>>()?;
        means.push(costs.iter().sum::<u64>() / costs.len() as u64);
    }
    ensure!(!means.is_empty(), "the kernel shows no domains in {DOMAINS}");
    Ok(means)
}

/// The record of a program as a line of the results.
fn describe(record: &Record) -> String {
    let sum = |of: fn(&Task) -> u64| record.tasks.iter().map(of).sum::<u64>();
    format!(
        "{}: ran {:.1} ms, {} switches, {} of them though a task could have gone on, {} migrations, {} waits, \
         median {:.0} us, 99th percentile {:.0} us",
        record.program,
        sum(Task::total_ns) as f64 / 1e6,
        sum(Task::switches),
        sum(|task| task.runnable),
        sum(|task| task.migrations),
        record.waits.count,
        record.waits.median_ns as f64 / 1e3,
        record.waits.p99_ns as f64 / 1e3
    )
}

/// The time of the monotonic clock.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).expect("it does not go below zero")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leg;

    fn all_programs() -> impl Iterator<Item = (&'static leg::Leg, &'static str)> {
        let of = |scheduler: Scheduler| {
            leg::programs(&scheduler).into_iter().map(move |program| (leg::of(&scheduler), program))
        };
        let arena = leg::ARENA_PROGRAMS.map(|program| (&leg::ARENA, program));
        [Scheduler::Tandem, Scheduler::Eevdf].into_iter().flat_map(of).chain(arena)
    }

    #[test]
    fn all_programs_can_be_done_on_the_machine_of_the_leg() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("agreement");
        for (leg, program) in all_programs() {
            let file = folder.join(format!("{program}.toml"));
            let scenario = perform::read_scenario(&file).unwrap();
            let machine = &scenario.machine;
            assert_eq!(machine.cpu_count() as u32, leg.machine.cpus());
            assert_eq!(machine.node_count() as u32, leg.machine.nodes);
            for node in 0..leg.machine.nodes {
                let cpus = machine.os_list(machine.node_cpus((node as usize).into()));
                let expected: Vec<u32> = leg.machine.cpus_of(node).collect();
                assert_eq!(parse_cpulist(&cpus).unwrap(), expected, "{program}: node {node}");
            }
            for (number, set) in scenario.workloads.iter().enumerate() {
                perform::Set::read(&file, number).unwrap();
                nice(set).unwrap();
            }
        }
    }

    #[test]
    fn weights_are_those_of_nice_values() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("agreement/burners.toml");
        let scenario = perform::read_scenario(&file).unwrap();
        assert_eq!(scenario.workloads.iter().map(|set| nice(set).unwrap()).collect::<Vec<_>>(), [0, 5]);
    }
}
