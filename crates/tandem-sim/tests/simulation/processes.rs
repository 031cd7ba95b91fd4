//! Processes of the host: costs that they avoid, costs that only they have, and groups of tasks that pass
//! tokens in bulk.

use crate::common::guest::{ERAS, linux};
use crate::common::*;
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};
use tandem_sim::cost::{ContextSwitch, CostModels, VmExit};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::{Domains, LinuxEra};
use tandem_sim::program::{Amount, Op, Program};
use tandem_sim::run_observed;
use tandem_sim::scenario::{Arrivals, PROCESSES_MAX, PolicySettings, Scenario, Source, Workload};
use tandem_sim::trace::{Event, EventKind};

const SECOND: u64 = 1_000 * MS;

/// Runs the scenario, checks that no time is lost, and keeps the events.
fn run(scenario: &Scenario) -> (RunMetrics, Vec<Event>) {
    let mut events = Vec::new();
    let metrics = run_observed(scenario, 1, &mut events).unwrap();
    let host = &metrics.host;
    assert_eq!(
        host.busy_ns + host.idle_ns + host.overhead_ns,
        host.pcpus as u64 * metrics.length_ns,
        "time is conserved"
    );
    (metrics, events)
}

/// Times of the task's events of a kind, ns.
fn times_ns(events: &[Event], kind: EventKind, task: u32) -> Vec<u64> {
    let of_task = events.iter().filter(|event| event.kind == kind && event.task == TaskId(task));
    of_task.map(|event| event.at_ns).collect()
}

/// Tasks of a kind on this many cores, each with a program of its own; costs off.
fn tasks(kind: Kind, pcpus: u32, programs: Vec<Vec<Op>>) -> Scenario {
    let machine = cores(pcpus);
    let mut set = set("set", &machine, kind, programs.len(), vec![]);
    set.channels = 2;
    for (task, ops) in set.programs_mut().iter_mut().zip(programs) {
        task.program = Program { ops, profiles: vec![] }.into();
    }
    textbook(machine, CreditSettings::default(), SECOND, vec![set])
}

/// A workload of a kind whose tasks run the same program.
fn set(name: &str, machine: &Machine, kind: Kind, size: usize, ops: Vec<Op>) -> Workload {
    let vm = vm(name, machine, size, ops);
    Workload { kind: kind.of(vm.programs().to_vec()), ..vm }
}

fn times(times: u64, body: Vec<Op>) -> Op {
    Op::Repeat { times: Some(times), body }
}

fn count() -> Op {
    Op::Count { counter: 0, amount: 1 }
}

#[test]
fn vcpus_pay_for_exits_and_processes_do_not() {
    let (exit, rounds) = (VmExit::default(), 3);
    let with_exits = |kind, ops| Scenario {
        costs: CostModels { vm_exit: Some(exit), ..CostModels::off() },
        ..tasks(kind, 1, vec![ops])
    };
    for kind in Kind::ALL {
        let exits_cost = |exits: u64| match kind {
            Kind::Vm => exits * exit.round_trip_ns,
            Kind::Processes | Kind::Threads => 0,
        };
        let by_itself = times(rounds, vec![compute(MS), Op::Signal { channel: 0 }, sleep(MS)]);
        let (metrics, _) = run(&with_exits(kind, vec![by_itself]));
        let exits = 2 * rounds + 1;
        assert_eq!(metrics.host.overhead_ns, exits_cost(exits), "{kind:?} signal, sleep, and end at last");

        let answers = vec![times(3, vec![Op::Signal { channel: 0 }]), Op::WaitAll { channel: 0 }];
        let answers = [answers, vec![Op::SignalAll { channel: 1 }]].concat();
        let (metrics, _) = run(&with_exits(kind, answers));
        assert_eq!(metrics.host.overhead_ns, exits_cost(3 + 3 + 1), "{kind:?} answer each token");

        let hog = with_exits(kind, vec![compute(SECOND)]);
        let mut interrupted = hog.clone();
        let interval = Amount::Fixed(105 * MS);
        interrupted.workloads[0].sources = vec![Source { channel: 0, arrivals: Arrivals::Open { interval } }];
        let [ticks_ns, all_ns] = [hog, interrupted].map(|scenario| run(&scenario).0.host.overhead_ns);
        assert_eq!(all_ns - ticks_ns, exits_cost(9), "{kind:?} are interrupted nine times");
    }
}

const SWITCHES: ContextSwitch =
    ContextSwitch { decision_ns: US, switch_ns: 2 * US, peer_scan_ns: 0, address_space_ns: 5 * US };

/// Sets of this many tasks, each of a kind, that yield to each other on one pCPU: the cost, ns, and the tasks
/// that it switched to.
fn giving_way(kinds: &[Kind], size: usize) -> (u64, Vec<TaskId>) {
    let machine = cores(2);
    let vms = kinds.iter().enumerate().map(|(at, &kind)| {
        let rounds = times(20, vec![compute(MS), Op::Yield]);
        let set = set(&format!("set{at}"), &machine, kind, size, vec![rounds]);
        with_affinity(set, CpuMask::from_cpus(2, [CpuId(0)]), None)
    });
    let scenario = textbook(Arc::clone(&machine), CreditSettings::default(), SECOND, vms.collect());
    let costs = CostModels { context_switch: Some(SWITCHES), ..CostModels::off() };
    let (metrics, events) = run(&Scenario { costs, ..scenario });
    let starts = events.iter().filter(|event| event.kind == EventKind::Start);
    let mut switches: Vec<_> = starts.map(|event| event.task).collect();
    switches.dedup();
    assert!(switches.len() >= 20, "they take turns: {switches:?}");
    (metrics.host.overhead_ns, switches)
}

#[test]
fn only_processes_switch_address_spaces() {
    let [machine, processes, threads] = Kind::ALL.map(|kind| giving_way(&[kind], 2));
    assert_eq!(machine.1, processes.1);
    assert_eq!(machine.1, threads.1);
    let loads = processes.1.len() as u64;
    assert_eq!(processes.0 - machine.0, loads * SWITCHES.address_space_ns);
    assert_eq!(threads.0 - machine.0, SWITCHES.address_space_ns, "they load theirs once");
}

#[test]
fn threads_of_different_sets_switch_address_spaces() {
    let (free_ns, switches) = giving_way(&[Kind::Vm; 2], 1);
    for kinds in [
        [Kind::Threads, Kind::Threads],
        [Kind::Processes, Kind::Processes],
        [Kind::Vm, Kind::Threads],
        [Kind::Processes, Kind::Vm],
    ] {
        let (costs_ns, _) = giving_way(&kinds, 1);
        let loads = switches.iter().filter(|task| kinds[task.index()] != Kind::Vm).count() as u64;
        assert_eq!(costs_ns - free_ns, loads * SWITCHES.address_space_ns, "{kinds:?}");
    }
}

#[test]
fn more_processes_than_pcpus_share_them_fairly() {
    let of_linux = |era: LinuxEra| PolicySettings::Linux(linux(era, Domains::Topology));
    let policies = ERAS.map(of_linux).into_iter().chain([PolicySettings::Credit(CreditSettings::default())]);
    for policy in policies {
        for kind in [Kind::Processes, Kind::Threads] {
            let scenario = tasks(kind, 2, vec![hog(); 5]);
            let scenario =
                Scenario { policy: policy.clone(), warmup_ns: SECOND, length_ns: 10 * SECOND, ..scenario };
            let (metrics, _) = run(&scenario);
            assert_eq!(metrics.host.idle_ns, 0, "work is conserved");
            for task in &metrics.vms[0].vcpus {
                let share = task.run_ns as f64 / metrics.length_ns as f64;
                assert!((share - 0.4).abs() < 0.04, "{share} of a pCPU instead of two fifths, {policy:?}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let refused = |workload: Workload| {
        let scenario = textbook(cores(2), CreditSettings::default(), SECOND, vec![workload]);
        tandem_sim::run(&scenario, 1).map(|_| ()).unwrap_err().to_string()
    };
    let machine = cores(2);
    for kind in [Kind::Processes, Kind::Threads] {
        let error = refused(set("set", &machine, kind, 1, vec![Op::Fork { program: 0 }]));
        assert!(error.contains("which needs a guest"), "{error}");
        let many = PROCESSES_MAX as usize + 1;
        let error = refused(set("set", &machine, kind, many, vec![]));
        assert!(error.contains("host and guests have more than 100000 processes"), "{error}");
    }
    let error = refused(vm("vm", &machine, 3, vec![]));
    assert!(error.contains("3 vCPUs"), "only processes may outnumber the pCPUs: {error}");
}

#[test]
fn processes_with_a_past_start_anywhere() {
    let started_on = |seed| {
        let mut scenario = tasks(Kind::Processes, 2, vec![hog(); 6]);
        scenario.workloads[0].has_past = true;
        let mut events: Vec<Event> = Vec::new();
        run_observed(&scenario, seed, &mut events).unwrap();
        let starts = events.iter().filter(|event| event.kind == EventKind::Wake);
        starts.take(6).map(|event| event.cpu.0).collect::<Vec<_>>()
    };
    for seed in 0..4 {
        let cpus = started_on(seed);
        let on_first = cpus.iter().filter(|&&cpu| cpu == 0).count();
        assert_eq!(on_first, 3, "spread evenly even if there are more of them than pCPUs: {cpus:?}");
    }
}

/// Three tasks that wait for answers, each 1 ms after the other, and one that answers all requests that it
/// finds.
#[test]
fn who_takes_all_tokens_answers_as_many() {
    let client = |at_ns| vec![Op::SleepUntil(at_ns), Op::Signal { channel: 0 }, Op::Wait { channel: 1 }];
    let round = vec![Op::WaitAll { channel: 0 }, compute(10 * MS), Op::SignalAll { channel: 1 }, count()];
    let programs = vec![client(MS), client(2 * MS), client(3 * MS), forever(round)];
    for kind in Kind::ALL {
        let (metrics, events) = run(&tasks(kind, 4, programs.clone()));
        let ends_ns = [0, 1, 2].map(|task| times_ns(&events, EventKind::Exit, task));
        assert_eq!(ends_ns, [vec![11 * MS], vec![21 * MS], vec![21 * MS]], "two are answered together");
        assert_eq!(metrics.vms[0].counts["work"], 2, "rounds");
    }
}

#[test]
fn who_blocked_for_the_first_token_takes_those_that_came_before_it_ran() {
    let message = Op::Send { channel: 0, capacity: 16, resume_at: None, message_lines: 2, queue_lines: 1 };
    for token in [Op::Signal { channel: 0 }, send(0, 16), message] {
        // On one pCPU, the task that waits runs after the others have ended.
        let taker =
            vec![Op::WaitAll { channel: 0 }, Op::SignalAll { channel: 1 }, Op::SignalAll { channel: 1 }];
        let giver = vec![sleep(MS), times(3, vec![token.clone()]), sleep(MS)];
        let reader = vec![sleep(10 * MS), forever(vec![Op::Wait { channel: 1 }, count()]).remove(0)];
        let (metrics, _) = run(&tasks(Kind::Processes, 1, vec![taker, giver, reader]));
        assert_eq!(metrics.vms[0].counts["work"], 3, "each token is answered, and once: {token:?}");
    }
}

#[test]
fn senders_of_a_full_channel_wake_up_when_it_has_room_enough() {
    // The first of 40 messages is handed over, four fill the channel, and 35 are left.
    let wakeups = |resume_at| {
        let send = Op::Send { channel: 0, capacity: 4, resume_at, message_lines: 0, queue_lines: 0 };
        let sender = vec![times(40, vec![compute(US), send])];
        let receiver = vec![times(40, vec![Op::Wait { channel: 0 }, compute(100 * US), count()])];
        let (metrics, events) = run(&tasks(Kind::Processes, 2, vec![sender, receiver]));
        assert_eq!(metrics.vms[0].counts["work"], 40, "all messages arrive");
        times_ns(&events, EventKind::Wake, 0).len() - 1
    };
    assert_eq!(wakeups(None), 35, "for each message");
    assert_eq!(wakeups(Some(3)), 35, "for each message");
    assert_eq!(wakeups(Some(1)), 12, "for three messages each");
    assert_eq!(wakeups(Some(0)), 9, "for four messages each");
}

#[test]
fn senders_wake_up_together_or_one_by_one() {
    let woken_together = |resume_at| {
        let send = Op::Send { channel: 0, capacity: 4, resume_at, message_lines: 0, queue_lines: 0 };
        let sender = vec![times(12, vec![compute(US), send])];
        let receiver = vec![times(36, vec![Op::Wait { channel: 0 }, compute(MS), count()])];
        let programs = vec![sender.clone(), sender.clone(), sender, receiver];
        let (metrics, events) = run(&tasks(Kind::Threads, 4, programs));
        assert_eq!(metrics.vms[0].counts["work"], 36, "all messages arrive");
        let wakes = events.iter().filter(|event| event.kind == EventKind::Wake && event.task < TaskId(3));
        let later: Vec<u64> = wakes.map(|event| event.at_ns).filter(|&at_ns| at_ns > 0).collect();
        later.iter().filter(|&&at_ns| at_ns == later[0]).count()
    };
    assert_eq!(woken_together(None), 1);
    assert_eq!(woken_together(Some(1)), 3);
}

/// A token that is answered once does not multiply.
#[test]
fn answering_twice_does_not_multiply_tokens() {
    let all = Op::SignalAll { channel: 0 };
    let ops = vec![
        Op::Signal { channel: 0 },
        times(200, vec![Op::WaitAll { channel: 0 }, all.clone(), all, compute(MS), count()]),
    ];
    let (metrics, _) = run(&tasks(Kind::Processes, 1, vec![ops]));
    assert_eq!(metrics.vms[0].counts["work"], 200);
}
