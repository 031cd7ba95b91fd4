//! What QEMU and the guest's kernel add to a program, as far as the simulator has to know it.
//!
//! **Problem.** The simulated machine is free of what surrounds a program in the guest. Two CPUs that do the same then stay in
//! step for ever, which decides ties that are open in the guest.
//!
//! **Approach.** Few facts of the machine, the same for all programs. How long the kernel's path for a message is, is measured in
//! ping-pong, which does nothing else; how many other tasks wake up, is counted before each program. QEMU runs one CPU after
//! the other, and the guest's clock goes on for all: with `n` busy CPUs a path takes `n` times as long, and CPUs notice a tick one
//! after the other. How many are busy is taken from the record.
//!
//! **Limits.** How a path is divided between system call and switch, and which part of it a decision is, are assumptions.

use crate::leg::{Emulation, Leg};
use crate::record::Record;
use std::sync::Arc;
use tandem_sim::machine::cost::ContextSwitch;
use tandem_sim::program::{Amount, Op, Program};
use tandem_sim::scenario::{PolicySettings, Scenario, Vcpu, Vm, VmKind};

/// By how much a sleep is longer than asked for: `timer_slack_ns` of a task, unless it is changed.
const TIMER_SLACK_NS: u64 = 50_000;
/// Of a path, the call that sends a message and wakes the task that waits for it, what a receiver does with it, and the switch
/// between. Assumed; but that a sender has more to do than a receiver was seen in the record of hackbench, which is therefore
/// less of a test.
const CALL_SHARE: f64 = 0.5;
const RECEIVE_SHARE: f64 = 0.25;
const SWITCH_SHARE: f64 = 0.25;
/// Of a path, what passes from a CPU's look into the queues to when the task that ran is in one. Assumed.
const DECISION_SHARE: f64 = 0.25;
/// Counters of tasks that wake up.
const WAKE_UPS: [&str; 4] = ["wake_idle", "wake_queued", "wake_stay", "pinned"];

/// Facts of the machine, with one CPU busy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Emulator {
    /// From the end of a task's computing to the beginning of that of the task that it wakes, ns.
    pub path_ns: f64,
    /// Wake-ups of tasks that are not the program's, a second.
    pub background_per_s: f64,
    /// How late a CPU notices a tick at most, with all CPUs busy, ns.
    pub tick_delay_max_ns: u64,
}

impl Emulator {
    /// From the records of a ping-pong, in which each switch is a path, and those of all programs.
    pub fn measured(leg: &Leg, ping_pong: &Scenario, ping_pongs: &[&Record], all: &[&Record]) -> Self {
        let tasks = || ping_pong.vms.iter().flat_map(|set| &set.vcpus);
        let computing_ns = tasks().map(|task| computing_ns(&task.program.ops)).sum::<u64>() as f64;
        let paths = ping_pongs.iter().map(|record| {
            let ran_ns: u64 = record.tasks.iter().map(|task| task.total_ns()).sum();
            let switches: u64 = record.tasks.iter().map(|task| task.switches()).sum();
            (ran_ns as f64 - computing_ns) / switches as f64
        });
        let woken: u64 = all
            .iter()
            .flat_map(|record| WAKE_UPS.iter().map(|&name| record.background.get(name).unwrap_or(&0)))
            .sum();
        let time_s = all.iter().map(|record| record.length_ns).sum::<u64>() as f64 / 1e9;
        Self {
            path_ns: paths.sum::<f64>() / ping_pongs.len() as f64,
            background_per_s: woken as f64 / time_s,
            tick_delay_max_ns: match leg.emulation {
                Emulation::Counted { timer_ns } => timer_ns.unwrap_or(0),
                Emulation::Threads => 0,
            },
        }
    }

    /// Makes the scenario what the emulator makes of it while so many CPUs are busy.
    pub fn surround(&self, scenario: &mut Scenario, busy_cpus: f64) {
        let path_ns = self.path_ns * busy_cpus;
        for task in scenario.vms.iter_mut().flat_map(|set| &mut set.vcpus) {
            let program = Arc::make_mut(&mut task.program);
            program.ops = with_calls(&program.ops, path_ns);
        }
        let cpus = scenario.machine.cpu_count() as f64;
        if let PolicySettings::SchedExt(settings) = &mut scenario.policy {
            let settings = Arc::make_mut(settings);
            settings.tick_delay_max_ns = (self.tick_delay_max_ns as f64 * busy_cpus / cpus) as u64;
            settings.put_back_ns = (path_ns * DECISION_SHARE) as u64;
        }
        let switch_ns = (path_ns * SWITCH_SHARE) as u64;
        scenario.costs.context_switch =
            Some(ContextSwitch { decision_ns: 0, switch_ns, peer_scan_ns: 0, address_space_ns: 0 });
        scenario.vms.push(self.background(scenario, path_ns as u64));
    }

    /// Tasks that wake up now and then and run for about a path, one for each CPU.
    fn background(&self, scenario: &Scenario, path_ns: u64) -> Vm {
        let cpus = scenario.machine.all_cpus();
        let count = scenario.machine.cpu_count();
        let sleep_ns = (count as f64 / self.background_per_s.max(0.001) * 1e9) as u64;
        let body = vec![
            Op::Sleep(Amount::Exponential(sleep_ns)),
            Op::Compute { work: Amount::Uniform(0, 2 * path_ns), profile: None },
        ];
        let program = Arc::new(Program { ops: vec![Op::Repeat { times: None, body }], ..Program::default() });
        let task = Vcpu { program, hard_affinity: Arc::new(cpus.clone()), soft_affinity: None };
        let shares = scenario.vms[0].memory_shares.clone();
        Vm { kind: VmKind::Processes, ..Vm::new("background", vec![task; count], shares) }
    }
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

/// The program with what the kernel adds to it: system calls, each anything between nothing and twice the mean, and late timers.
fn with_calls(ops: &[Op], path_ns: f64) -> Vec<Op> {
    let call = |share: f64| {
        let mean_ns = (path_ns * share) as u64;
        Op::Compute { work: Amount::Uniform(0, 2 * mean_ns), profile: None }
    };
    let mut all = Vec::new();
    for op in ops {
        match op {
            Op::Sleep(Amount::Fixed(ns)) => {
                all.extend([call(CALL_SHARE), Op::Sleep(Amount::Fixed(ns + TIMER_SLACK_NS))]);
            }
            Op::Send { .. } | Op::Yield => all.extend([call(CALL_SHARE), op.clone()]),
            Op::Wait { .. } => all.extend([op.clone(), call(RECEIVE_SHARE)]),
            Op::Repeat { times, body } => {
                all.push(Op::Repeat { times: *times, body: with_calls(body, path_ns) });
            }
            other => all.push(other.clone()),
        }
    }
    all
}
