//! Speed of the simulator: events handled a second, and ns an event, by machine size, with costs off and on.
//!
//! An event is one wake-up, or one end of a slice or burst, that the model has handled. With one level, each
//! pCPU has 4 tasks: two that compute all the time, and two that compute for 1 ms and sleep for 3 ms. With
//! two levels, 8 VMs of 8 vCPUs with guest kernels (CFS) stand on 32 pCPUs, and it is each vCPU that has
//! those 4 tasks. In the storm, one of 80 vCPUs on 80 pCPUs works at a time and all others look for one to
//! yield to; there an event is also an exit of theirs, or a target for which they take the locks of two run
//! queues. Tracing is off. Each figure is the best of several runs in turn, so that a moment's noise of the
//! machine hits no size more than another; ratios between lines of one run mean more than the figures.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tandem_machine::{Machine, MachineBuilder, preset};
use tandem_sim::cost::{ContextSwitch, CostModels, Interrupt};
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::{LinuxEra, LinuxSettings};
use tandem_sim::policy::pause_loop::PauseLoop;
use tandem_sim::program::{Amount, MemoryProfile, Op, Program};
use tandem_sim::run;
use tandem_sim::scenario::{
    Affinity, Guest, GuestProgram, HostTask, PolicySettings, Process, Scenario, TaskPolicy, Workload,
    WorkloadKind,
};

const PCPUS: [u32; 3] = [8, 64, 256];
const TASKS_PER_PCPU: usize = 4;
const ROUNDS: usize = 7;
/// Simulated time times pCPUs, so that every run handles about as many events, ns.
const PCPU_TIME_NS: u64 = 400_000_000_000;

fn main() {
    // Cargo passes options meant for its own harness; there is nothing to choose here.
    let mut scenarios: Vec<(&str, &str, Scenario)> = Vec::new();
    for costs in ["off", "on"] {
        let with_costs = costs == "on";
        let one_level = |pcpus| ("one level", costs, scenario(pcpus, with_costs, TASKS_PER_PCPU));
        scenarios.extend(PCPUS.map(one_level));
        scenarios.push(("two levels", costs, two_levels(with_costs)));
    }
    scenarios.push(("yield storm", "on", yield_storm()));
    let mut best = vec![Duration::MAX; scenarios.len()];
    let mut events = vec![0; scenarios.len()];
    for _ in 0..ROUNDS {
        for (at, (_, _, scenario)) in scenarios.iter().enumerate() {
            let start = Instant::now();
            events[at] = black_box(run(scenario, 1).expect("the scenario runs")).events;
            best[at] = best[at].min(start.elapsed());
        }
    }
    println!(
        "{:>11} {:>6} {:>6} {:>6} {:>10} {:>16} {:>10}",
        "what", "costs", "pCPUs", "tasks", "events", "million events/s", "ns/event"
    );
    for (at, (what, costs, scenario)) in scenarios.iter().enumerate() {
        let ns_per_event = best[at].as_nanos() as f64 / events[at] as f64;
        let pcpus = scenario.machine.cpu_count();
        let copies = |workload: &Workload| match workload.guest() {
            Some(guest) => guest.processes.iter().map(|process| process.copies as usize).sum(),
            None => workload.task_count(),
        };
        let tasks: usize = scenario.workloads.iter().map(copies).sum();
        println!(
            "{what:>11} {costs:>6} {pcpus:>6} {tasks:>6} {:>10} {:>16.2} {ns_per_event:>10.1}",
            events[at],
            1e3 / ns_per_event
        );
    }
    println!("memory: {} bytes a task", bytes_per_task());
}

/// Packages of 8 cores, two threads each, as far as they go.
fn machine(pcpus: u32) -> Arc<Machine> {
    let packages = (pcpus / 16).max(1);
    let machine = MachineBuilder::symmetric(packages, pcpus / packages / 2, 2).build();
    Arc::new(machine.expect("a regular machine"))
}

/// One that computes all the time, and one that sleeps for three parts of four.
fn programs(with_costs: bool) -> [Arc<Program>; 2] {
    let profile = Arc::new(MemoryProfile {
        footprint_bytes: 64 << 10,
        sweep_ns: 50_000,
        memory_lines_per_us: 1.0,
        cache_sensitivity: 0.5,
        parallelism: 2.0,
        smt_slowdown: None,
        shared: None,
    });
    let compute = Op::Compute { work: Amount::Fixed(1_000_000), profile: with_costs.then_some(0) };
    let hog = vec![compute.clone()];
    let sleeper = vec![compute, Op::Sleep(Amount::Fixed(3_000_000))];
    [hog, sleeper].map(|body| {
        let ops = vec![Op::Repeat { times: None, body }];
        Arc::new(Program { ops, profiles: vec![profile.clone()] })
    })
}

fn on(machine: Arc<Machine>, with_costs: bool, workloads: Vec<Workload>) -> Scenario {
    Scenario {
        workloads,
        costs: if with_costs { CostModels::all() } else { CostModels::off() },
        policy: PolicySettings::Credit(CreditSettings::default()),
        warmup_ns: 0,
        length_ns: PCPU_TIME_NS / machine.cpu_count() as u64,
        stop_at_count: None,
        gates: 0,
        cgroups: Vec::new(),
        events: Vec::new(),
        homes: Default::default(),
        pause_loop: None,
        halt_poll_ns: None,
        machine,
    }
}

fn vm(name: String, machine: &Machine, programs: Vec<Arc<Program>>) -> Workload {
    let all = Affinity::hard(machine.all_cpus().clone());
    let vcpus = programs.into_iter().map(|program| HostTask::new(program, all.clone())).collect();
    Workload::new(name, WorkloadKind::vm(vcpus), shares(machine))
}

fn guest_vm(name: String, machine: &Machine, guest: Guest) -> Workload {
    let vcpus = vec![Affinity::hard(machine.all_cpus().clone()); guest.topology.cpu_count()];
    Workload::new(name, WorkloadKind::guest(vcpus, guest), shares(machine))
}

fn shares(machine: &Machine) -> Vec<f64> {
    vec![1.0 / machine.node_count() as f64; machine.node_count()]
}

fn scenario(pcpus: u32, with_costs: bool, tasks_per_pcpu: usize) -> Scenario {
    let machine = machine(pcpus);
    let programs = programs(with_costs);
    let vms = (0..pcpus as usize * tasks_per_pcpu / 2)
        .map(|at| vm(format!("vm-{at}"), &machine, programs.to_vec()))
        .collect();
    on(machine, with_costs, vms)
}

fn two_levels(with_costs: bool) -> Scenario {
    const VMS: usize = 8;
    const VCPUS: u32 = 8;
    let machine = machine(32);
    let topology = MachineBuilder::symmetric(1, VCPUS, 1).build().expect("a regular machine");
    let named = |(name, program): (&str, Arc<Program>)| GuestProgram::new(name, program);
    let programs = ["hog", "sleeper"].into_iter().zip(programs(with_costs)).map(named).collect();
    let copies = VCPUS * TASKS_PER_PCPU as u32 / 2;
    let guest = Guest {
        policy: PolicySettings::Linux(LinuxSettings { era: LinuxEra::V4_2, ..LinuxSettings::default() }),
        topology: Arc::new(topology),
        context_switch: with_costs.then(ContextSwitch::linux),
        interrupt: with_costs.then(Interrupt::default),
        programs,
        processes: [0, 1]
            .map(|program| Process { program, copies, nice: 0, policy: TaskPolicy::Normal, affinity: None })
            .to_vec(),
        locks: 0,
        family_channels: 0,
    };
    let vms = (0..VMS).map(|at| guest_vm(format!("vm-{at}"), &machine, guest.clone())).collect();
    on(machine, with_costs, vms)
}

/// All vCPUs of a large guest want one lock, on a host that takes two locks for each vCPU that it might yield
/// to.
fn yield_storm() -> Scenario {
    const VCPUS: u32 = 80;
    let machine = Arc::new(preset("westmere-ex-4s").expect("a machine with 80 pCPUs"));
    let linux = LinuxSettings { era: LinuxEra::V3_6, tick_hz: 1_000, ..LinuxSettings::default() };
    let compute = |work_ns| Op::Compute { work: Amount::Fixed(work_ns), profile: None };
    let body = vec![compute(1_000), Op::Lock { lock: 0 }, compute(50_000), Op::Unlock { lock: 0 }];
    let ops = vec![Op::Repeat { times: None, body }];
    let program = Arc::new(Program { ops, profiles: vec![] });
    let guest = Guest {
        policy: PolicySettings::Linux(linux),
        topology: Arc::new(MachineBuilder::symmetric(1, VCPUS, 1).build().expect("a regular machine")),
        context_switch: Some(ContextSwitch::linux()),
        interrupt: Some(Interrupt::default()),
        programs: vec![GuestProgram::new("user", program)],
        processes: vec![Process {
            program: 0,
            copies: VCPUS,
            nice: 0,
            policy: TaskPolicy::Normal,
            affinity: None,
        }],
        locks: 1,
        family_channels: 0,
    };
    let guest = Workload { has_past: true, ..guest_vm("storm".into(), &machine, guest) };
    let costs = CostModels { context_switch: Some(ContextSwitch::linux()), ..CostModels::all() };
    Scenario {
        costs,
        policy: PolicySettings::Linux(linux),
        pause_loop: Some(PauseLoop::V3_6),
        length_ns: PCPU_TIME_NS / 2_000,
        ..on(machine, true, vec![guest])
    }
}

/// What a task adds to the peak of resident memory: a machine of 64 pCPUs with many tasks each, against the
/// peak so far, which is that of fewer tasks.
fn bytes_per_task() -> u64 {
    const MANY_TASKS_PER_PCPU: usize = 2_000;
    let mut many = scenario(64, true, MANY_TASKS_PER_PCPU);
    many.length_ns = 100_000_000;
    let described = peak_resident_bytes();
    black_box(run(&many, 1).expect("the scenario runs"));
    (peak_resident_bytes() - described) / (64 * MANY_TASKS_PER_PCPU as u64)
}

fn peak_resident_bytes() -> u64 {
    let status =
        std::fs::read_to_string("/proc/self/status").expect("Linux says how much memory a process uses");
    let kib = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"))
        .expect("VmHWM");
    kib.trim().parse::<u64>().expect("a number") * 1024
}
