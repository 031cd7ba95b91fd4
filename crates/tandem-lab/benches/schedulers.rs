//! What a scheduling decision costs the simulator: the compiled scheduler against the models of Linux's in
//! Rust, in the same scenario, and how long the object takes to get ready.
//!
//! Each pCPU has four tasks: two that compute all the time, and two that compute for 1 ms and sleep for 3 ms.
//! A figure is the time of a whole run by the decisions in it, the best of several runs in turn; ratios
//! between lines of one run mean more than the figures. Schedulers with long slices make fewer decisions, so
//! the times of the runs are compared, too.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tandem_ebpf::{Code, Engine, Image, Instance};
use tandem_lab::scenario::policy::compiled;
use tandem_machine::{Machine, MachineBuilder};
use tandem_sim::cost::{ContextSwitch, CostModels};
use tandem_sim::policy::linux::{LinuxEra, LinuxSettings};
use tandem_sim::policy::sched_ext::{KernelVersion, SchedExtSettings, environment};
use tandem_sim::program::{Amount, Op, Program};
use tandem_sim::scenario::{Affinity, HostTask, PolicySettings, Scenario, Workload, WorkloadKind};

const PCPUS: [u32; 3] = [8, 64, 256];
const TASKS_PER_PCPU: usize = 4;
const ROUNDS: usize = 7;
/// Simulated time times pCPUs, so that every run makes about as many decisions, ns.
const PCPU_TIME_NS: u64 = 200_000_000_000;

fn main() {
    let mut runs: Vec<(&str, Scenario)> = Vec::new();
    for pcpus in PCPUS {
        let machine = machine(pcpus);
        let linux = |era| PolicySettings::Linux(LinuxSettings { era, ..LinuxSettings::default() });
        let compiled = tandem(&machine);
        let code = Code::new(compiled.code.image().clone(), Engine::Interpreted).expect("it was linked");
        let interpreted = SchedExtSettings { code: Arc::new(code), ..compiled.clone() };
        for (name, policy) in [
            ("CFS (4.2)", linux(LinuxEra::V4_2)),
            ("EEVDF (6.12)", linux(LinuxEra::V6_12)),
            ("tandem", PolicySettings::SchedExt(Arc::new(compiled))),
            ("interpreted", PolicySettings::SchedExt(Arc::new(interpreted))),
        ] {
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
    start_up();
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

/// Packages of 8 cores, two threads each, as far as they go.
fn machine(pcpus: u32) -> Arc<Machine> {
    let packages = (pcpus / 16).max(1);
    let machine = MachineBuilder::symmetric(packages, pcpus / packages / 2, 2).build();
    Arc::new(machine.expect("a regular machine"))
}

fn scenario(machine: &Arc<Machine>, policy: PolicySettings) -> Scenario {
    let compute = Op::Compute { work: Amount::Fixed(1_000_000), profile: None };
    let program = |body| Arc::new(Program { ops: vec![Op::Repeat { times: None, body }], profiles: vec![] });
    let hog = program(vec![compute.clone()]);
    let sleeper = program(vec![compute, Op::Sleep(Amount::Fixed(3_000_000))]);
    let everywhere = Affinity::hard(machine.all_cpus().clone());
    let vms = (0..machine.cpu_count()).map(|at| {
        let vcpus = (0..TASKS_PER_PCPU).map(|task| {
            let program = if task % 2 == 0 { &hog } else { &sleeper };
            HostTask::new(program.clone(), everywhere.clone())
        });
        let shares = vec![1.0 / machine.node_count() as f64; machine.node_count()];
        Workload::new(format!("vm-{at}"), WorkloadKind::vm(vcpus.collect()), shares)
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
