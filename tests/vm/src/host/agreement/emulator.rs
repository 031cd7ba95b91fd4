//! The effects of QEMU and the guest's kernel on a program that the simulator has to include.
//!
//! **Problem.** The simulated machine is free of the surroundings of a program in the guest. Two CPUs that do
//! the same then stay in step for ever, which decides ties that are open in the guest.
//!
//! **Approach.** A few facts of the machine, the same for all programs. The length of the kernel's path for a
//! message is measured in ping-pong, which does nothing else; how long an idle CPU takes to run a task that
//! was woken, in all programs. QEMU runs one CPU after the other, and the guest's clock continues for all:
//! with `n` busy CPUs a path takes `n` times as long, and CPUs notice an interrupt one after the other. The
//! number of busy CPUs, the start times of the program's threads, and when other tasks wake up and for how
//! long they run, come from the record that the simulation reproduces.
//!
//! **Limits.** The division of a path between system call and switch is in part assumed. Other tasks wake up
//! when they did, even if the program made them wait.

use super::figures;
use crate::leg::{Emulation, Leg};
use crate::record::{Burst, Other, Record, Scheduler, Task};
use std::collections::BTreeMap;
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_sim::cost::{ContextSwitch, Idle, Interrupt, Ipi, Timer};
use tandem_sim::program::{Amount, Op, Program};
use tandem_sim::scenario::{
    Affinity, AffinityChange, HostTask, PolicySettings, Scenario, Which, Workload, WorkloadKind,
};

/// By how much a sleep is longer than asked for: `timer_slack_ns` of a task, unless it is changed.
const TIMER_SLACK_NS: u64 = 50_000;
/// Of a path: a system call up to when it wakes a task or sets a timer, what comes then until the task sleeps
/// or goes on, the switch, and what the next task does before it computes. That half of a path comes after
/// the wake-up is measured, by a trace of ping-pong's; the division of the halves is assumed.
const CALL_SHARE: f64 = 0.25;
const AFTER_WAKING_SHARE: f64 = 0.25;
const SWITCH_SHARE: f64 = 0.25;
const RETURN_SHARE: f64 = 0.25;
/// A tick's handling, as a share of a path. By a trace of the kernel's functions it took 26 us of burners,
/// and 5 us of ping-pong, which is 0.23 and 0.35.
const TICK_SHARE: f64 = 0.25;
/// Of a path, what passes from a CPU's look into the queues to when the task that ran is in one. By the same
/// trace about 50 us in burners and 7 us in the yield storm, which is 0.43 and 0.24.
const DECISION_SHARE: f64 = 0.375;

/// How much less a task weighs with each nice value.
const NICE_STEP: f64 = 1.25;

/// Facts of the machine, with one CPU busy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Emulator {
    /// From the end of a task's computing to the beginning of that of the task that it wakes, ns.
    pub path_ns: f64,
    /// From the wake-up of a task to when it is on the idle CPU that it goes to, ns.
    pub idle_wake_ns: f64,
    /// How late a CPU notices an interrupt at most, with all CPUs busy, ns.
    pub interrupt_delay_max_ns: u64,
}

impl Emulator {
    /// From the records of a ping-pong, in which each switch is a path, and those of all programs.
    pub fn measured(leg: &Leg, ping_pong: &Scenario, ping_pongs: &[&Record], all: &[&Record]) -> Self {
        let tasks = || ping_pong.workloads.iter().flat_map(|set| set.programs());
        let computing_ns = tasks().map(|task| computing_ns(&task.program.ops)).sum::<u64>() as f64;
        let paths = ping_pongs.iter().map(|record| {
            let ran_ns: u64 = record.tasks.iter().map(|task| task.total_ns()).sum();
            let switches: u64 = record.tasks.iter().map(|task| task.switches()).sum();
            (ran_ns as f64 - computing_ns) / switches as f64
        });
        let idle_wakes: u64 = all.iter().map(|record| record.idle_wakes).sum();
        let with_one_ns =
            all.iter().map(|record| record.idle_wake_ns as f64 / figures::busy_cpus(record)).sum::<f64>();
        Self {
            path_ns: paths.sum::<f64>() / ping_pongs.len() as f64,
            idle_wake_ns: with_one_ns / idle_wakes.max(1) as f64,
            interrupt_delay_max_ns: match leg.emulation {
                Emulation::Counted { timer_ns } => timer_ns.unwrap_or(0),
                Emulation::Threads => 0,
            },
        }
    }

    /// Gives the scenario the surroundings of this record: the same number of busy CPUs, start times of
    /// threads, and other tasks.
    pub fn surround(&self, scenario: &mut Scenario, record: &Record) {
        let busy_cpus = figures::busy_cpus(record);
        let path_ns = self.path_ns * busy_cpus;
        let busy_share = busy_cpus / scenario.machine.cpu_count() as f64;
        let delay_max_ns = (self.interrupt_delay_max_ns as f64 * busy_share) as u64;
        for (task, Task { start_ns, .. }) in
            scenario.workloads.iter_mut().flat_map(|set| set.programs_mut()).zip(&record.tasks)
        {
            let program = Arc::make_mut(&mut task.program);
            program.ops = with_calls(&program.ops, path_ns, delay_max_ns);
            program.ops.insert(0, Op::SleepUntil(*start_ns));
        }
        match &mut scenario.policy {
            PolicySettings::SchedExt(settings) => {
                let settings = Arc::make_mut(settings);
                settings.tick_delay_max_ns = delay_max_ns;
                settings.put_back_ns = (path_ns * DECISION_SHARE) as u64;
            }
            PolicySettings::Linux(settings) => {
                settings.queue_scan_ns = queue_scan_ns(&scenario.machine, &record.search_ns);
                scenario.costs.timer = Some(Timer::Emulated { late_max_ns: delay_max_ns });
                start_where_they_did(scenario, &record.tasks);
            }
            PolicySettings::Credit(_) | PolicySettings::Credit2(_) => {}
        }
        let switch_ns = (path_ns * SWITCH_SHARE) as u64;
        scenario.costs.context_switch =
            Some(ContextSwitch { decision_ns: 0, switch_ns, peer_scan_ns: 0, address_space_ns: 0 });
        let delivery_ns = delay_max_ns / 2;
        let idle_wake_ns = match (&record.scheduler, record.idle_wakes) {
            // How much longer it takes with many busy CPUs differs from program to program.
            (Scheduler::Eevdf, 1..) => record.idle_wake_ns / record.idle_wakes,
            _ => (self.idle_wake_ns * busy_cpus) as u64,
        };
        scenario.costs.ipi = Some(Ipi { delivery_ns });
        scenario.costs.idle = Some(Idle::Fixed(idle_wake_ns.saturating_sub(delivery_ns)));
        scenario.costs.interrupt = Some(Interrupt { handling_ns: (path_ns * TICK_SHARE) as u64 });
        // A set's tasks have the same weight.
        let mut of_nice: BTreeMap<i32, Vec<&Other>> = BTreeMap::new();
        for other in &record.others {
            of_nice.entry(other.nice.clamp(-20, 19)).or_default().push(other);
        }
        let sets = of_nice.into_iter().map(|(nice, tasks)| others(scenario, nice, &tasks));
        let sets: Vec<Workload> = sets.collect();
        scenario.workloads.extend(sets);
    }
}

/// For how long a CPU looks at a queue when it balances: the longest searches of the machine's domains, the
/// caches and then all CPUs, by the CPUs that they go over.
fn queue_scan_ns(machine: &Machine, search_ns: &[u64]) -> u64 {
    let cpus = [machine.llc_cpus(CpuId(0)).count(), machine.cpu_count()];
    search_ns.iter().sum::<u64>() / cpus.iter().sum::<usize>() as u64
}

/// Puts each thread on the CPU where it first ran: threads of the simulator are there from the start, and are
/// forked by no one.
fn start_where_they_did(scenario: &mut Scenario, started: &[Task]) {
    let first_ns = started.iter().map(|task| task.start_ns).min().unwrap_or(0);
    let cpus = scenario.machine.cpu_count();
    let mut started = started.iter();
    for set in &mut scenario.workloads {
        let affinity = set.affinity(0).clone();
        for (task, Task { start_cpu, .. }) in set.programs_mut().iter_mut().zip(&mut started) {
            task.affinity = Affinity::hard(CpuMask::from_cpus(cpus, [CpuId::from(*start_cpu)]));
        }
        set.affinity_changes.push(AffinityChange { at_ns: first_ns / 2, tasks: Which::All, affinity });
    }
}

/// Tasks that wake up and run when the others of a nice value did.
fn others(scenario: &Scenario, nice: i32, others: &[&Other]) -> Workload {
    let all = Affinity::hard(scenario.machine.all_cpus().clone());
    let task = |other: &&Other| {
        let run = |burst: &Burst| {
            let work = Amount::Fixed(burst.run_ns);
            [Op::SleepUntil(burst.at_ns), Op::Compute { work, profile: None }]
        };
        let program = Program { ops: other.bursts.iter().flat_map(run).collect(), ..Program::default() };
        let affinity = match bound_to(&other.name) {
            Some(cpu) => Affinity::hard(CpuMask::from_cpus(all.hard.count(), [cpu])),
            None => all.clone(),
        };
        HostTask::new(Arc::new(program), affinity)
    };
    let shares = scenario.workloads[0].memory_shares.clone();
    let weight = (f64::from(Workload::DEFAULT_WEIGHT) / NICE_STEP.powi(nice)).round().max(1.0) as u32;
    let name = format!("others-{nice}");
    let tasks = WorkloadKind::Processes(others.iter().map(task).collect());
    Workload { weight, ..Workload::new(&name, tasks, shares) }
}

/// The CPU of a kernel thread that has one, from its name: `kworker/3:1`, `ksoftirqd/3`, but not
/// `kworker/u8:1`.
fn bound_to(name: &str) -> Option<CpuId> {
    let (_, place) = name.split_once('/')?;
    let number = place.split_once(':').map_or(place, |(number, _)| number);
    number.parse().ok().map(CpuId)
}

/// Work of a program that ends, ns.
fn computing_ns(ops: &[Op]) -> u64 {
    ops.iter()
        .map(|op| match op {
            Op::Compute { work: Amount::Fixed(ns), .. } => *ns,
            Op::Repeat { times: Some(times), body } => *times * computing_ns(body),
            _ => 0,
        })
        .sum()
}

/// The program with the kernel's additions: system calls, each between nothing and twice the mean, and late
/// timers.
fn with_calls(ops: &[Op], path_ns: f64, delay_max_ns: u64) -> Vec<Op> {
    let call = |share: f64| {
        let mean_ns = (path_ns * share) as u64;
        Op::Compute { work: Amount::Uniform(0, 2 * mean_ns), profile: None }
    };
    let mut all = Vec::new();
    for op in ops {
        match op {
            Op::Sleep(Amount::Fixed(ns)) => {
                // The timer runs before the task sleeps.
                let after = call(AFTER_WAKING_SHARE);
                let ns = (ns + TIMER_SLACK_NS).saturating_sub((path_ns * AFTER_WAKING_SHARE) as u64);
                let sleep = Op::Sleep(Amount::Uniform(ns, ns + delay_max_ns));
                all.extend([call(CALL_SHARE), after, sleep, call(RETURN_SHARE)]);
            }
            Op::Send { .. } => all.extend([call(CALL_SHARE), op.clone(), call(AFTER_WAKING_SHARE)]),
            Op::Yield => all.extend([call(CALL_SHARE), op.clone(), call(RETURN_SHARE)]),
            Op::Wait { .. } => all.extend([op.clone(), call(RETURN_SHARE)]),
            Op::Repeat { times, body } => {
                all.push(Op::Repeat { times: *times, body: with_calls(body, path_ns, delay_max_ns) });
            }
            other => all.push(other.clone()),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_threads_of_a_cpu_are_known_by_their_names() {
        for (name, cpu) in [("kworker/3:1", Some(3)), ("kworker/5:0H", Some(5)), ("ksoftirqd/12", Some(12))] {
            assert_eq!(bound_to(name), cpu.map(CpuId), "{name}");
        }
        for name in ["kworker/u8:1", "kworker/R-netns", "rcu_preempt", "tandem"] {
            assert_eq!(bound_to(name), None, "{name}");
        }
    }
}
