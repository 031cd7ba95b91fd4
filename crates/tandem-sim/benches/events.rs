//! Speed of the simulator: events handled a second, and ns an event, by machine size, with costs off and on.
//!
//! An event is one wake-up, or one end of a slice or burst, that the model has handled. Each pCPU has 4 tasks: two
//! that compute all the time, and two that compute for 1 ms and sleep for 3 ms. Tracing is off. Each figure is
//! the best of several runs in turn, so that a moment's noise of the machine hits no size more than another; ratios
//! between lines of one run mean more than the figures.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tandem_sim::machine::MachineBuilder;
use tandem_sim::machine::cost::CostModels;
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::program::{Amount, MemoryProfile, Op, Program};
use tandem_sim::run;
use tandem_sim::scenario::{PolicySettings, Scenario, Vcpu, Vm};

const PCPUS: [u32; 3] = [8, 64, 256];
const TASKS_PER_PCPU: usize = 4;
const ROUNDS: usize = 7;
/// Simulated time times pCPUs, so that every run handles about as many events, ns.
const PCPU_TIME_NS: u64 = 400_000_000_000;

fn main() {
    // Cargo passes options meant for its own harness; there is nothing to choose here.
    let scenarios: Vec<(u32, &str, Scenario)> = ["off", "on"]
        .into_iter()
        .flat_map(|costs| PCPUS.map(|pcpus| (pcpus, costs, scenario(pcpus, costs == "on", TASKS_PER_PCPU))))
        .collect();
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
        "{:>6} {:>6} {:>6} {:>10} {:>16} {:>10}",
        "costs", "pCPUs", "tasks", "events", "million events/s", "ns/event"
    );
    for (at, (pcpus, costs, _)) in scenarios.iter().enumerate() {
        let ns_per_event = best[at].as_nanos() as f64 / events[at] as f64;
        let tasks = *pcpus as usize * TASKS_PER_PCPU;
        println!(
            "{costs:>6} {pcpus:>6} {tasks:>6} {:>10} {:>16.2} {ns_per_event:>10.1}",
            events[at],
            1e3 / ns_per_event
        );
    }
    println!("memory: {} bytes a task", bytes_per_task());
}

fn scenario(pcpus: u32, with_costs: bool, tasks_per_pcpu: usize) -> Scenario {
    // Packages of 8 cores, two threads each, as far as they go.
    let packages = (pcpus / 16).max(1);
    let machine =
        MachineBuilder::symmetric(packages, pcpus / packages / 2, 2).build().expect("a regular machine");
    let machine = Arc::new(machine);
    let profile = Arc::new(MemoryProfile {
        footprint_bytes: 64 << 10,
        sweep_ns: 50_000,
        memory_lines_per_us: 1.0,
        cache_sensitivity: 0.5,
        parallelism: 2.0,
        smt_slowdown: None,
    });
    let compute = Op::Compute { work: Amount::Fixed(1_000_000), profile: with_costs.then_some(0) };
    let forever = |body| Op::Repeat { times: None, body };
    let profiles = vec![profile];
    let hog = Arc::new(Program { ops: vec![forever(vec![compute.clone()])], profiles: profiles.clone() });
    let sleeper = forever(vec![compute, Op::Sleep(Amount::Fixed(3_000_000))]);
    let sleeper = Arc::new(Program { ops: vec![sleeper], profiles });
    let all = Arc::new(machine.all_cpus().clone());
    let vcpu = |program: &Arc<Program>| Vcpu {
        program: Arc::clone(program),
        hard_affinity: Arc::clone(&all),
        soft_affinity: None,
    };
    let shares = vec![1.0 / machine.node_count() as f64; machine.node_count()];
    let vms = (0..pcpus as usize * tasks_per_pcpu / 2)
        .map(|at| Vm::new(format!("vm-{at}"), vec![vcpu(&hog), vcpu(&sleeper)], shares.clone()));
    Scenario {
        vms: vms.collect(),
        machine,
        costs: if with_costs { CostModels::all() } else { CostModels::off() },
        policy: PolicySettings::Credit(CreditSettings::default()),
        warmup_ns: 0,
        length_ns: PCPU_TIME_NS / u64::from(pcpus),
        stop_at_count: None,
    }
}

/// What a task adds to the peak of resident memory: a machine of 64 pCPUs with many tasks each, against the peak so
/// far, which is that of fewer tasks.
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
