//! The cost for tasks of cache lines that others wrote: messages, the queues of channels, and shared data.

use crate::common::guest::{ERAS, guest, guest_vm, linux, topology};
use crate::common::random::some_cases;
use crate::common::random_guests::scenario_with_guests;
use crate::common::*;
use proptest::prelude::*;
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_machine::{Machine, MachineBuilder};
use tandem_sim::cost::{Coherence, CostModels};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::Domains;
use tandem_sim::program::{MemoryProfile, Op, Program, SharedData};
use tandem_sim::scenario::{
    Affinity, Guest, GuestProgram, HostTask, Process, Scenario, TaskPolicy, Workload,
};
use tandem_sim::trace::{Event, EventKind, Observer};
use tandem_sim::{run, run_observed};

const MESSAGE_LINES: u32 = 4;
const QUEUE_LINES: u32 = 3;

/// Two packages of two cores of two threads each.
fn two_packages() -> Arc<Machine> {
    Arc::new(MachineBuilder::symmetric(2, 2, 2).build().unwrap())
}

/// CPUs near CPU 0 and far from it, each with the time in which a line travels between the two, ns.
fn places(machine: &Machine) -> [(CpuId, u64); 3] {
    let hardware = machine.hardware();
    let first = |is_there: &dyn Fn(CpuId) -> bool| {
        machine.all_cpus().iter().skip(1).find(|&cpu| is_there(cpu)).expect("there is such a CPU")
    };
    let (core, llc) = (machine.siblings(CpuId(0)), machine.llc_cpus(CpuId(0)));
    [
        (first(&|cpu| core.contains(cpu)), 0),
        (first(&|cpu| llc.contains(cpu) && !core.contains(cpu)), u64::from(hardware.llc_latency_ns)),
        (first(&|cpu| !llc.contains(cpu)), u64::from(hardware.remote_memory_latency_ns)),
    ]
}

fn message() -> Op {
    Op::Send {
        channel: 0,
        capacity: 16,
        resume_at: None,
        message_lines: MESSAGE_LINES,
        queue_lines: QUEUE_LINES,
    }
}

/// A VM of vCPUs on these CPUs, each with a program of its own.
fn pinned(name: &str, machine: &Machine, vcpus: Vec<(CpuId, Program)>) -> Workload {
    let mut vm = vm(name, machine, vcpus.len(), vec![]);
    for (vcpu, (cpu, program)) in vm.programs_mut().iter_mut().zip(vcpus) {
        let affinity = Affinity::hard(CpuMask::from_cpus(machine.cpu_count(), [cpu]));
        *vcpu = HostTask::new(Arc::new(program), affinity);
    }
    vm
}

fn plain(ops: Vec<Op>) -> Program {
    Program { ops, profiles: vec![] }
}

/// A scenario in which only coherence has a cost.
fn only_coherence(machine: Arc<Machine>, length_ns: u64, vms: Vec<Workload>) -> Scenario {
    let costs = CostModels { coherence: Some(Coherence), ..CostModels::off() };
    Scenario { costs, ..textbook(machine, CreditSettings::default(), length_ns, vms) }
}

/// When each task ended, ns.
#[derive(Default)]
struct Exits(Vec<(u32, u64)>);

impl Observer for Exits {
    fn observe(&mut self, event: Event) {
        if event.kind == EventKind::Exit {
            self.0.push((event.task.0, event.at_ns));
        }
    }
}

/// Runs a VM with a vCPU on CPU 0 and one on another; returns the measurements, and when each ended.
fn run_pair(cpu: CpuId, first: Vec<Op>, second: Vec<Op>) -> (RunMetrics, [u64; 2]) {
    let machine = two_packages();
    let vm = pinned("pair", &machine, vec![(CpuId(0), plain(first)), (cpu, plain(second))]);
    let mut exits = Exits::default();
    let metrics = run_observed(&only_coherence(machine, 10 * MS, vec![vm]), 1, &mut exits).unwrap();
    let at_ns = |task| exits.0.iter().find(|(exited, _)| *exited == task).expect("it ended").1;
    (metrics, [at_ns(0), at_ns(1)])
}

#[test]
fn who_takes_a_message_fetches_it_and_the_queue() {
    for (cpu, line_ns) in places(&two_packages()) {
        let taker = vec![Op::SleepUntil(2 * MS), Op::Wait { channel: 0 }, compute(MS)];
        let (metrics, ends_ns) = run_pair(cpu, vec![compute(MS), message()], taker);
        let fetch_ns = u64::from(MESSAGE_LINES + QUEUE_LINES) * line_ns;
        assert_eq!(metrics.vms[0].coherence_ns, fetch_ns, "on {cpu:?}");
        assert_eq!(metrics.host.overhead_ns, fetch_ns, "all of it is charged");
        assert_eq!(ends_ns, [MS, 3 * MS + fetch_ns], "to who takes it");
    }
}

#[test]
fn who_was_blocked_pays_once_when_it_runs_again() {
    for (cpu, line_ns) in places(&two_packages()) {
        let taker = vec![Op::Wait { channel: 0 }, compute(MS), Op::Count { counter: 0, amount: 1 }];
        let (metrics, ends_ns) = run_pair(cpu, vec![compute(MS), message(), compute(MS)], taker);
        let (message_ns, queue_ns) = (u64::from(MESSAGE_LINES) * line_ns, u64::from(QUEUE_LINES) * line_ns);
        assert_eq!(metrics.vms[0].coherence_ns, message_ns + queue_ns, "on {cpu:?}");
        assert_eq!(metrics.vms[0].counts["work"], 1, "it goes through its program once");
        // The sender finds the queue where the other one has blocked, and then wakes it.
        assert_eq!(ends_ns, [2 * MS + queue_ns, 2 * MS + queue_ns + message_ns]);
    }
}

#[test]
fn the_lines_of_a_queue_are_where_it_was_used_last() {
    let machine = two_packages();
    let [_, (near, near_ns), (far, far_ns)] = places(&machine);
    let send = || Op::Send { channel: 0, capacity: 16, resume_at: None, message_lines: 0, queue_lines: 1 };
    let at = |time_ns| vec![Op::SleepUntil(time_ns), send()];
    let mut first = at(MS);
    first.extend(at(4 * MS));
    first.extend(at(5 * MS));
    let vcpus = vec![(CpuId(0), plain(first)), (near, plain(at(2 * MS))), (far, plain(at(3 * MS)))];
    let vm = pinned("senders", &machine, vcpus);
    let so_far_ns = [0, near_ns, near_ns + far_ns, near_ns + 2 * far_ns, near_ns + 2 * far_ns];
    for (sends, expected_ns) in (1..).zip(so_far_ns) {
        let scenario = only_coherence(Arc::clone(&machine), sends * MS + MS / 2, vec![vm.clone()]);
        assert_eq!(run(&scenario, 1).unwrap().vms[0].coherence_ns, expected_ns, "after {sends} sends");
    }
}

#[test]
fn guests_pay_for_where_their_vcpus_are() {
    for era in ERAS {
        for (cpu, line_ns) in places(&two_packages()) {
            let machine = two_packages();
            let programs = vec![
                ("sender", vec![compute(MS), message()]),
                ("taker", vec![compute(2 * MS), Op::Wait { channel: 0 }, compute(MS)]),
            ];
            let process = |program, cpu| Process {
                program,
                copies: 1,
                nice: 0,
                policy: TaskPolicy::Normal,
                affinity: Some(Arc::new(CpuMask::from_cpus(2, [CpuId(cpu)]))),
            };
            let guest = Guest {
                processes: vec![process(0, 0), process(1, 1)],
                ..guest(topology(1, 2, 1), linux(era, Domains::Topology), programs, 0)
            };
            let mut vm = guest_vm("guest", &machine, guest);
            vm.channels = 1;
            for (vcpu, cpu) in [CpuId(0), cpu].into_iter().enumerate() {
                *vm.affinity_mut(vcpu) = Affinity::hard(CpuMask::from_cpus(machine.cpu_count(), [cpu]));
            }
            let metrics = run(&only_coherence(machine, 10 * MS, vec![vm]), 1).unwrap();
            let fetch_ns = u64::from(MESSAGE_LINES + QUEUE_LINES) * line_ns;
            assert_eq!(metrics.vms[0].coherence_ns, fetch_ns);
            let cpus = &metrics.vms[0].guest.as_ref().expect("it has a kernel").cpus;
            assert_eq!((cpus[0].kernel_ns, cpus[1].kernel_ns), (0, fetch_ns), "the taker's kernel");
            assert_eq!((cpus[0].busy_ns, cpus[1].busy_ns), (MS, 3 * MS));
        }
    }
}

/// A program that computes without end on the data set of this number, and counts each 10 us of work.
fn sharing(data: usize) -> Program {
    let shared = SharedData { data, lines_per_us: LINES_PER_US, write_share: WRITE_SHARE };
    let profile =
        MemoryProfile { parallelism: PARALLELISM, shared: Some(shared), ..MemoryProfile::default() };
    let work = Op::Compute { work: tandem_sim::program::Amount::Fixed(10 * US), profile: Some(0) };
    let ops = forever(vec![work, Op::Count { counter: 0, amount: 1 }]);
    Program { ops, profiles: vec![profile.into()] }
}

const LINES_PER_US: f64 = 5.0;
const WRITE_SHARE: f64 = 0.2;
const PARALLELISM: f64 = 2.0;

/// The vCPUs of a VM, each on a CPU and with the number of its data.
type Sharers<'a> = &'a [(CpuId, usize)];

/// Progress of one of the vCPUs of each VM, as a fraction of its progress without waiting.
fn progress(vms: &[Sharers]) -> Vec<f64> {
    let machine = two_packages();
    let vms = vms.iter().enumerate().map(|(at, vcpus)| {
        let vcpus = vcpus.iter().map(|&(cpu, data)| (cpu, sharing(data)));
        pinned(&format!("vm{at}"), &machine, vcpus.collect())
    });
    let length_ns = 200 * MS;
    let scenario = only_coherence(Arc::clone(&machine), length_ns, vms.collect());
    let metrics = run(&Scenario { warmup_ns: 100 * MS, ..scenario }, 1).unwrap();
    let done = |vm: &tandem_sim::metrics::VmMetrics| {
        vm.counts["work"] as f64 * 10.0 * US as f64 / vm.vcpus.len() as f64 / length_ns as f64
    };
    metrics.vms.iter().map(done).collect()
}

/// The same for a task that waits for this long for each line, ns.
fn progress_at(line_ns: f64) -> f64 {
    1.0 / (1.0 + LINES_PER_US / 1e3 * line_ns / PARALLELISM)
}

#[test]
fn shared_data_moves_between_caches_that_write_it() {
    let machine = two_packages();
    let [_, (near, near_ns), (far, far_ns)] = places(&machine);
    let (hit, miss) = (near_ns as f64, far_ns as f64);
    let here = CpuId(0);
    let valid = 1.0 / (1.0 + WRITE_SHARE);
    let both = progress_at(valid * hit + (1.0 - valid) * miss);
    let cases: [(&[Sharers], Vec<f64>, &str); 4] = [
        (&[&[(here, 0), (near, 0)]], vec![progress_at(hit)], "one cache: always valid"),
        (&[&[(here, 0), (far, 0)]], vec![both], "half on each"),
        (&[&[(here, 0), (far, 1)]], vec![progress_at(hit)], "other data"),
        (&[&[(here, 0)], &[(far, 0)]], vec![progress_at(hit); 2], "other VMs"),
    ];
    for (vms, expected, case) in cases {
        for (done, expected) in progress(vms).into_iter().zip(expected) {
            assert!((done / expected - 1.0).abs() < 0.002, "{case}: {done}, not {expected}");
        }
    }
}

/// Removes all cache lines from the operations.
fn without_lines(ops: &mut [Op]) {
    for op in ops {
        match op {
            Op::Send { message_lines, queue_lines, .. } => (*message_lines, *queue_lines) = (0, 0),
            Op::Repeat { body, .. } => without_lines(body),
            _ => {}
        }
    }
}

fn without_sharing(mut scenario: Scenario) -> Scenario {
    let strip = |program: &mut Arc<Program>| {
        let program = Arc::make_mut(program);
        without_lines(&mut program.ops);
        program.profiles.iter_mut().for_each(|profile| Arc::make_mut(profile).shared = None);
    };
    for vm in &mut scenario.workloads {
        vm.programs_mut().iter_mut().for_each(|task| strip(&mut task.program));
        if let Some(guest) = vm.guest_mut() {
            guest.programs.iter_mut().for_each(|GuestProgram { program, .. }| strip(program));
        }
    }
    scenario
}

proptest! {
    #![proptest_config(some_cases())]

    /// With the model off, sharing changes nothing.
    #[test]
    fn lines_cost_nothing_with_the_model_off(mut scenario in scenario_with_guests(), seed: u64) {
        scenario.costs.coherence = None;
        let with = run(&scenario, seed).unwrap();
        prop_assert!(with.vms.iter().all(|vm| vm.coherence_ns == 0));
        prop_assert_eq!(with, run(&without_sharing(scenario), seed).unwrap());
    }

    /// A task that shares nothing pays nothing.
    #[test]
    fn the_model_costs_nothing_where_nothing_is_shared(scenario in scenario_with_guests(), seed: u64) {
        let mut scenario = without_sharing(scenario);
        // With all models off, tasks start differently: all at once.
        scenario.costs.smt = CostModels::all().smt;
        scenario.costs.coherence = Some(Coherence);
        let with = run(&scenario, seed).unwrap();
        scenario.costs.coherence = None;
        prop_assert_eq!(with, run(&scenario, seed).unwrap());
    }
}
