//! What a scheduling decision costs the simulator: the compiled scheduler against the models of Linux's in
//! Rust, in the same scenario, and how long the object takes to get ready.
//!
//! Each pCPU has four tasks: two that compute all the time, and two that compute for 1 ms and sleep for 3 ms.
//! A figure is the time of a whole run by the decisions in it, the best of several runs in turn; ratios
//! between lines of one run mean more than the figures. Schedulers with long slices make fewer decisions, so
//! the times of the runs are compared, too.
//!
//! The last line is a large host: 100 VMs of 8 vCPUs with guest kernels on 256 pCPUs, under the compiled
//! scheduler. Its figure is the time that a core simulates in a second.
//!
//! With a number of pCPUs and the name of a scheduler as arguments, such as `8 tandem`, the bench makes that
//! run alone, once and shorter; with `vms`, the large host's. That is for tools that count instructions.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tandem_ebpf::{Code, Engine, Image, Instance};
use tandem_lab::scenario::policy::compiled;
use tandem_machine::{Machine, MachineBuilder};
use tandem_sim::cost::{ContextSwitch, CostModels, Interrupt};
use tandem_sim::policy::linux::{LinuxEra, LinuxSettings};
use tandem_sim::policy::sched_ext::{KernelVersion, SchedExtSettings, environment};
use tandem_sim::program::{Amount, Op, Program};
use tandem_sim::scenario::{
    Affinity, Guest, GuestProgram, HostTask, PolicySettings, Process, Scenario, TaskPolicy, Workload,
    WorkloadKind,
};

const PCPUS: [u32; 3] = [8, 64, 256];
const TASKS_PER_PCPU: usize = 4;
const ROUNDS: usize = 7;
/// Simulated time times pCPUs, so that every run makes about as many decisions, ns.
const PCPU_TIME_NS: u64 = 200_000_000_000;
/// The same for a run whose instructions are counted.
const COUNTED_PCPU_TIME_NS: u64 = 8_000_000_000;
/// Simulated time of the large host, ns.
const LARGE_TIME_NS: u64 = 1_000_000_000;

fn main() {
    // Cargo passes an option of its own harness.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| !it.starts_with("--")).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            decisions();
            start_up();
            large_host();
        }
        ["vms"] => large_host(),
        [pcpus, name] => count(pcpus.parse().expect("the number of pCPUs"), name),
        _ => panic!("the arguments are a number of pCPUs and a scheduler, or `vms`"),
    }
}

/// The schedulers that are compared, by name.
fn policies(machine: &Machine) -> [(&'static str, PolicySettings); 4] {
    let linux = |era| PolicySettings::Linux(LinuxSettings { era, ..LinuxSettings::default() });
    let compiled = tandem(machine);
    let interpreted = compiled.counting().expect("it was linked");
    [
        ("CFS (4.2)", linux(LinuxEra::V4_2)),
        ("EEVDF (6.12)", linux(LinuxEra::V6_12)),
        ("tandem", PolicySettings::SchedExt(Arc::new(compiled))),
        ("interpreted", PolicySettings::SchedExt(Arc::new(interpreted))),
    ]
}

/// One short run, for a tool that counts instructions.
fn count(pcpus: u32, name: &str) {
    let machine = machine(pcpus);
    let found = policies(&machine).into_iter().find(|(known, _)| known.starts_with(name));
    let (name, policy) = found.expect("a scheduler of the table");
    let length_ns = COUNTED_PCPU_TIME_NS / u64::from(pcpus);
    let scenario = Scenario { length_ns, ..scenario(&machine, policy) };
    let metrics = tandem_sim::run(&scenario, 1).expect("the scenario runs");
    let hash = metrics.trace_hash;
    println!("{pcpus} pCPUs, {name}: {} decisions, trace {hash:016x}", metrics.host.schedules);
    for (callback, cost) in metrics.host.scheduler_costs.into_iter().flat_map(|costs| costs.callbacks) {
        println!("{callback:>14}: {} calls, {} BPF instructions", cost.count, cost.instructions);
    }
}

fn decisions() {
    let mut runs: Vec<(&str, Scenario)> = Vec::new();
    for pcpus in PCPUS {
        let machine = machine(pcpus);
        for (name, policy) in policies(&machine) {
            runs.push((name, scenario(&machine, policy)));
        }
    }
    let mut best = vec![Duration::MAX; runs.len()];
    let mut decisions = vec![0; runs.len()];
    for _ in 0..ROUNDS {
        for (at, (_, scenario)) in runs.iter().enumerate() {
            let start = Instant::now();
            let metrics = black_box(tandem_sim::run(scenario, 1).expect("the scenario runs"));
            best[at] = best[at].min(start.elapsed());
            decisions[at] = metrics.host.schedules;
        }
    }
    println!(
        "{:>6} {:>14} {:>10} {:>12} {:>9} {:>9} {:>9}",
        "pCPUs", "scheduler", "decisions", "ns/decision", "of CFS", "run, ms", "of CFS"
    );
    let (mut cfs_ns, mut cfs_ms) = (0.0, 0.0);
    for (at, (name, scenario)) in runs.iter().enumerate() {
        let ns = best[at].as_nanos() as f64 / decisions[at] as f64;
        let ms = best[at].as_secs_f64() * 1e3;
        if name.starts_with("CFS") {
            (cfs_ns, cfs_ms) = (ns, ms);
        }
        println!(
            "{:>6} {name:>14} {:>10} {ns:>12.1} {:>9.2} {ms:>9.1} {:>9.2}",
            scenario.machine.cpu_count(),
            decisions[at],
            ns / cfs_ns,
            ms / cfs_ms
        );
    }
}

/// How long the object takes to get ready, step by step.
fn start_up() {
    let environment = environment(KernelVersion::default());
    let mut best = [Duration::MAX; 3];
    for _ in 0..ROUNDS {
        let mut last = Instant::now();
        let mut step = |best: &mut Duration| {
            *best = (*best).min(last.elapsed());
            last = Instant::now();
        };
        let image = Image::link(tandem_settings::OBJECT, &environment).expect("it links");
        step(&mut best[0]);
        let code = Code::new(image, Engine::Compiled).expect("it compiles");
        step(&mut best[1]);
        black_box(Instance::new(Arc::new(code), 256).expect("it fits"));
        step(&mut best[2]);
    }
    let ms = best.map(|best| best.as_secs_f64() * 1e3);
    println!(
        "start-up: {:.2} ms to link, {:.2} ms to compile, {:.2} ms for an instance",
        ms[0], ms[1], ms[2]
    );
}

fn tandem(machine: &Machine) -> SchedExtSettings {
    let kernel = KernelVersion::default();
    compiled::settings(compiled::Program::Tandem(None), kernel, false, machine)
        .expect("the project's own object")
}

/// 100 VMs on 256 pCPUs under the compiled scheduler: how much time a core simulates in a second.
fn large_host() {
    const VMS: usize = 100;
    const VCPUS: u32 = 8;
    let machine = machine(256);
    let [hog, sleeper] = programs();
    let named = |name: &str, program: &Arc<Program>| GuestProgram::new(name, program.clone());
    let guest = Guest {
        policy: PolicySettings::Linux(LinuxSettings { era: LinuxEra::V6_12, ..LinuxSettings::default() }),
        topology: Arc::new(MachineBuilder::symmetric(1, VCPUS, 1).build().expect("a regular machine")),
        context_switch: Some(ContextSwitch::linux()),
        interrupt: Some(Interrupt::default()),
        programs: vec![named("hog", &hog), named("sleeper", &sleeper)],
        processes: [0, 1]
            .map(|program| Process {
                program,
                copies: VCPUS,
                nice: 0,
                policy: TaskPolicy::Normal,
                affinity: None,
            })
            .to_vec(),
        locks: 0,
        family_channels: 0,
    };
    let vcpus = vec![Affinity::hard(machine.all_cpus().clone()); VCPUS as usize];
    let vms = (0..VMS).map(|at| {
        let kind = WorkloadKind::guest(vcpus.clone(), guest.clone());
        Workload::new(format!("vm-{at}"), kind, shares(&machine))
    });
    let policy = PolicySettings::SchedExt(Arc::new(tandem(&machine)));
    let scenario =
        Scenario { workloads: vms.collect(), length_ns: LARGE_TIME_NS, ..scenario(&machine, policy) };
    let before_ns = used_ns();
    let metrics = black_box(tandem_sim::run(&scenario, 1).expect("the scenario runs"));
    let simulated = LARGE_TIME_NS as f64 / (used_ns() - before_ns) as f64;
    println!(
        "{VMS} VMs of {VCPUS} vCPUs with guest kernels on {} pCPUs: {simulated:.3} s simulated in a second of a core, \
         {} decisions of the host and {} events a simulated second",
        machine.cpu_count(),
        metrics.host.schedules * 1_000_000_000 / LARGE_TIME_NS,
        metrics.events * 1_000_000_000 / LARGE_TIME_NS,
    );
}

/// CPU time of this thread so far, ns: unlike the time that passes, it does not count what other programs use.
fn used_ns() -> u64 {
    let used =
        std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux says how long a thread ran");
    used.split(' ').next().and_then(|ns| ns.parse().ok()).expect("the first number is the time on a CPU")
}

/// Packages of 8 cores, two threads each, as far as they go.
fn machine(pcpus: u32) -> Arc<Machine> {
    let packages = (pcpus / 16).max(1);
    let machine = MachineBuilder::symmetric(packages, pcpus / packages / 2, 2).build();
    Arc::new(machine.expect("a regular machine"))
}

/// One that computes all the time, and one that sleeps for three parts of four.
fn programs() -> [Arc<Program>; 2] {
    let compute = Op::Compute { work: Amount::Fixed(1_000_000), profile: None };
    let program = |body| Arc::new(Program { ops: vec![Op::Repeat { times: None, body }], profiles: vec![] });
    [program(vec![compute.clone()]), program(vec![compute, Op::Sleep(Amount::Fixed(3_000_000))])]
}

fn shares(machine: &Machine) -> Vec<f64> {
    vec![1.0 / machine.node_count() as f64; machine.node_count()]
}

fn scenario(machine: &Arc<Machine>, policy: PolicySettings) -> Scenario {
    let [hog, sleeper] = programs();
    let everywhere = Affinity::hard(machine.all_cpus().clone());
    let vms = (0..machine.cpu_count()).map(|at| {
        let vcpus = (0..TASKS_PER_PCPU).map(|task| {
            let program = if task % 2 == 0 { &hog } else { &sleeper };
            HostTask::new(program.clone(), everywhere.clone())
        });
        Workload::new(format!("vm-{at}"), WorkloadKind::vm(vcpus.collect()), shares(machine))
    });
    Scenario {
        machine: machine.clone(),
        costs: CostModels { context_switch: Some(ContextSwitch::linux()), ..CostModels::all() },
        policy,
        pause_loop: None,
        halt_poll_ns: None,
        workloads: vms.collect(),
        warmup_ns: 0,
        length_ns: PCPU_TIME_NS / machine.cpu_count() as u64,
        stop_at_count: None,
        gates: 0,
        cgroups: Vec::new(),
        events: Vec::new(),
        homes: Default::default(),
    }
}
