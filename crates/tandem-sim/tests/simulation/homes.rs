//! VMs that come and go, and homes that are chosen during the run.

use crate::common::{MS, compute, forever, hog, sleep, textbook, vm, vm_of};
use std::sync::Arc;
use tandem_machine::homes::HomeSettings;
use tandem_machine::ids::{CpuId, TaskId};
use tandem_machine::{Machine, MachineBuilder};
use tandem_sim::cost::CostModels;
use tandem_sim::metrics::RunMetrics;
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::{LinuxSettings, SoftAffinity};
use tandem_sim::program::{Amount, Op, Program};
use tandem_sim::scenario::{
    Affinity, AffinityChange, Arrivals, HomeChoice, Homes, PolicySettings, Scenario, Source, Vcpus, Which,
    Workload,
};
use tandem_sim::trace::{Event, EventKind};
use tandem_sim::{run, run_observed};

const GIB: u64 = 1 << 30;

/// Two nodes of two CPUs and 4 GiB.
fn two_nodes() -> Arc<Machine> {
    Arc::new(MachineBuilder::symmetric(2, 2, 1).every_node(4 * GIB, 10_000_000_000).build().unwrap())
}

/// A scan every 10 ms, and short times before a move.
const AGENT: Homes = Homes::Agent(HomeSettings {
    look_interval_ns: 10 * MS,
    looks_in_a_row: 3,
    horizon_ns: 1_000 * MS,
    rest_ns: 50 * MS,
    gain_min_pct: 5,
});

fn policies() -> [PolicySettings; 2] {
    let soft_affinity = SoftAffinity::WorkConserving;
    [
        PolicySettings::Credit(CreditSettings::default()),
        PolicySettings::Linux(LinuxSettings { soft_affinity, ..LinuxSettings::default() }),
    ]
}

fn scenario(vms: Vec<Workload>, homes: Homes) -> Scenario {
    Scenario { homes, ..textbook(two_nodes(), CreditSettings::default(), 1_000 * MS, vms) }
}

fn placed(name: &str, vcpus: usize, memory_gib: u64, ops: Vec<Op>) -> Workload {
    let mut vm = vm(name, &two_nodes(), vcpus, ops);
    vm.memory_bytes = memory_gib * GIB;
    vm_of(&mut vm).home = HomeChoice::ChosenWithMemory;
    vm
}

fn starting(start: Amount, mut vm: Workload) -> Workload {
    vm_of(&mut vm).start = Some(start);
    vm
}

fn living(life: Amount, mut vm: Workload) -> Workload {
    match &mut vm_of(&mut vm).vcpus {
        Vcpus::Programs { life: of_vm, .. } => *of_vm = Some(life),
        Vcpus::Guest { .. } | Vcpus::Threads { .. } => panic!("a VM with a guest kernel stays"),
    }
    vm
}

fn observed(scenario: &Scenario) -> (RunMetrics, Vec<Event>) {
    let mut events = Vec::new();
    let metrics = run_observed(scenario, 1, &mut events).unwrap();
    (metrics, events)
}

/// CPUs that the task ran on at these times.
fn cpus_of(events: &[Event], task: u32, from_ns: u64, to_ns: u64) -> Vec<CpuId> {
    let ran = |event: &&Event| {
        event.task == TaskId(task)
            && event.kind == EventKind::Start
            && (from_ns..to_ns).contains(&event.at_ns)
    };
    let mut cpus: Vec<CpuId> = events.iter().filter(ran).map(|event| event.cpu).collect();
    cpus.sort_unstable();
    cpus.dedup();
    cpus
}

#[test]
fn a_vm_is_there_from_its_start_to_its_end() {
    let machine = two_nodes();
    let busy = forever(vec![compute(MS), Op::Count { counter: 0, amount: 1 }]);
    let there =
        starting(Amount::Fixed(300 * MS), living(Amount::Fixed(200 * MS), vm("a", &machine, 1, busy)));
    for policy in policies() {
        let (metrics, events) = observed(&Scenario { policy, ..scenario(vec![there.clone()], Homes::Given) });
        let vm = &metrics.vms[0];
        assert_eq!((vm.lived_ns, vm.vcpus[0].run_ns, vm.vcpus[0].wait_ns), (200 * MS, 200 * MS, 0));
        assert!((199..=200).contains(&vm.counts["work"]), "{}", vm.counts["work"]);
        let ended = events.iter().find(|event| event.kind == EventKind::Exit).unwrap();
        assert_eq!(ended.at_ns, 500 * MS);
    }
}

#[test]
fn life_counts_within_the_measured_time() {
    let machine = two_nodes();
    let there =
        starting(Amount::Fixed(300 * MS), living(Amount::Fixed(200 * MS), vm("a", &machine, 1, hog())));
    let stays = vm("b", &machine, 1, hog());
    let late = Scenario { warmup_ns: 400 * MS, ..scenario(vec![there, stays], Homes::Given) };
    let metrics = run(&late, 1).unwrap();
    assert_eq!([metrics.vms[0].lived_ns, metrics.vms[1].lived_ns], [100 * MS, 1_000 * MS]);
    assert_eq!(metrics.vms[0].vcpus[0].run_ns, 100 * MS);
}

/// A VM is killed while its vCPUs run, are queued, sleep, wait for a token, and have ended.
#[test]
fn a_vm_can_end_at_any_moment() {
    let machine = two_nodes();
    let programs = [
        hog(),
        forever(vec![compute(MS), sleep(50 * MS)]),
        forever(vec![Op::Wait { channel: 0 }]),
        vec![compute(MS)],
    ];
    let mut vms: Vec<Workload> = (0..3).map(|at| vm(&format!("other-{at}"), &machine, 4, hog())).collect();
    for at in 0..4u64 {
        let mut ends = vm(&format!("ends-{at}"), &machine, 4, hog());
        for (vcpu, ops) in ends.programs_mut().iter_mut().zip(&programs) {
            vcpu.program = Arc::new(Program { ops: ops.clone(), profiles: vec![] });
        }
        ends.sources =
            vec![Source { channel: 0, arrivals: Arrivals::Open { interval: Amount::Exponential(5 * MS) } }];
        vms.push(starting(Amount::Uniform(0, 300 * MS), living(Amount::Uniform(1, 300 * MS), ends)));
    }
    // Over before its first vCPU has started.
    vms.push(living(Amount::Fixed(1), vm("short", &machine, 4, hog())));
    for policy in policies() {
        for (costs, seed) in [(CostModels::all(), 1), (CostModels::off(), 2), (CostModels::all(), 3)] {
            let scenario = Scenario { policy: policy.clone(), costs, ..scenario(vms.clone(), Homes::Given) };
            let mut events = Vec::new();
            let metrics = run_observed(&scenario, seed, &mut events).unwrap();
            for task in 12..28 {
                let last = events.iter().rfind(|event| event.task == TaskId(task)).unwrap();
                assert_eq!(last.kind, EventKind::Exit, "task {task}, seed {seed}");
            }
            let busy_ns: u64 = metrics.vms.iter().flat_map(|vm| &vm.vcpus).map(|vcpu| vcpu.run_ns).sum();
            assert_eq!(busy_ns, metrics.host.busy_ns, "time is accounted for");
        }
    }
}

#[test]
fn all_variants_see_the_same_vms_come_and_go() {
    let vms = || {
        (0..10).map(|at| {
            let vm = placed(&format!("vm-{at}"), 2, 1, hog());
            starting(Amount::Uniform(0, 500 * MS), living(Amount::Exponential(300 * MS), vm))
        })
    };
    let lives = |homes, seed| -> Vec<u64> {
        let metrics = run(&scenario(vms().collect(), homes), seed).unwrap();
        metrics.vms.iter().map(|vm| vm.lived_ns).collect()
    };
    let of_given = lives(Homes::Given, 1);
    for homes in [Homes::Pin, Homes::Prefer, AGENT] {
        assert_eq!(lives(homes, 1), of_given);
    }
    assert_ne!(lives(Homes::Given, 2), of_given);
}

/// The nodes on which the vCPU of a VM ran that came after another one, which had ended or not.
fn node_of_the_next(homes: Homes, life: Option<Amount>) -> u32 {
    let first = placed("first", 1, 3, vec![compute(MS), sleep(900 * MS)]);
    let first = match life {
        Some(life) => living(life, first),
        None => first,
    };
    let second = starting(Amount::Fixed(200 * MS), placed("second", 1, 2, hog()));
    let (_, events) = observed(&scenario(vec![first, second], homes));
    let cpus = cpus_of(&events, 1, 0, 1_000 * MS);
    assert!(cpus.iter().all(|cpu| cpu.0 / 2 == cpus[0].0 / 2), "{cpus:?}");
    cpus[0].0 / 2
}

#[test]
fn memory_of_a_vm_that_ended_is_free_again() {
    for homes in [Homes::Pin, Homes::Prefer, AGENT] {
        assert_eq!(node_of_the_next(homes, Some(Amount::Fixed(100 * MS))), 0, "{homes:?}");
        assert_eq!(node_of_the_next(homes, None), 1, "{homes:?}");
    }
}

#[test]
fn pinned_vms_stay_while_others_use_idle_cpus() {
    let vms = |homes| {
        let vms = (0..3).map(|at| starting(Amount::Fixed(at * MS), placed(&format!("vm-{at}"), 2, 1, hog())));
        run(&scenario(vms.collect(), homes), 1).unwrap()
    };
    let run_ns = |metrics: &RunMetrics| {
        metrics.vms.iter().map(|vm| vm.vcpus.iter().map(|it| it.run_ns).sum::<u64>() / MS).collect::<Vec<_>>()
    };
    let pinned = run_ns(&vms(Homes::Pin));
    assert!(
        pinned[1] > 1_990 && pinned[0] < 1_100 && pinned[2] < 1_100,
        "the first and the last share a node: {pinned:?}"
    );
    let preferring = run_ns(&vms(AGENT));
    assert!(preferring.iter().all(|ms| (1_000..1_800).contains(ms)), "{preferring:?}");
}

#[test]
fn a_home_goes_to_memory_that_is_elsewhere() {
    let far = |name: &str| {
        let mut vm = placed(name, 1, 1, hog());
        vm.memory_shares = vec![0.0, 1.0];
        vm_of(&mut vm).home = HomeChoice::Chosen;
        vm
    };
    let costs = CostModels::all();
    let metrics = run(&Scenario { costs, ..scenario(vec![far("a")], AGENT) }, 1).unwrap();
    assert_eq!(metrics.host.home_moves.len(), 1);
    let reason = metrics.host.home_moves[0].reason.to_string();
    assert!(reason.starts_with("node 1: 1.0 of 1.0 GiB of its memory is there; it saves 0."), "{reason}");
    let vcpu = &metrics.vms[0].vcpus[0];
    let local = vcpu.local_run_ns as f64 / vcpu.run_ns as f64;
    assert!((0.9..0.96).contains(&local), "after a rest of 50 ms: {local}");
}

#[test]
fn an_agent_leaves_isolated_cpus_out_of_homes() {
    let ran_on = |isolated: &[u32]| {
        let builder = MachineBuilder::symmetric(2, 2, 1).every_node(4 * GIB, 10_000_000_000);
        let machine = Arc::new(builder.isolated(isolated.to_vec()).build().unwrap());
        let busy = forever(vec![compute(MS), sleep(MS)]);
        // Its memory attracts it to node 1.
        let mut far = vm("a", &machine, 2, busy);
        (far.memory_bytes, far.memory_shares) = (GIB, vec![0.0, 1.0]);
        vm_of(&mut far).home = HomeChoice::Chosen;
        let (_, events) = observed(&Scenario {
            homes: AGENT,
            costs: CostModels::all(),
            ..textbook(machine, CreditSettings::default(), 1_000 * MS, vec![far])
        });
        let mut cpus: Vec<u32> =
            (0..2).flat_map(|task| cpus_of(&events, task, 200 * MS, 1_000 * MS)).map(|cpu| cpu.0).collect();
        cpus.sort_unstable();
        cpus.dedup();
        cpus
    };
    assert_eq!(ran_on(&[]), [2, 3]);
    assert_eq!(ran_on(&[2]), [0, 1], "one CPU is left on node 1");
}

#[test]
fn an_agent_obeys_an_affinity_that_changes() {
    let machine = two_nodes();
    let change = AffinityChange {
        at_ns: 500 * MS,
        tasks: Which::All,
        affinity: Affinity::hard(machine.node_cpus(1usize.into()).clone()),
    };
    let mut moved = placed("a", 1, 1, forever(vec![compute(MS), sleep(MS)]));
    moved.affinity_changes = vec![change];
    let (metrics, events) = observed(&scenario(vec![moved], AGENT));
    assert_eq!(metrics.host.home_moves.len(), 1);
    let on_node = |node: u32, cpus: Vec<CpuId>| !cpus.is_empty() && cpus.iter().all(|cpu| cpu.0 / 2 == node);
    assert!(on_node(0, cpus_of(&events, 0, 0, 500 * MS)));
    assert!(on_node(1, cpus_of(&events, 0, 502 * MS, 1_000 * MS)));
}

#[test]
fn an_agent_with_nothing_to_choose_changes_nothing() {
    let machine = crate::common::cores(2);
    let vms = |home| {
        let mut vm = vm("a", &machine, 2, hog());
        vm_of(&mut vm).home = home;
        vec![vm]
    };
    let of = |homes, home| {
        run(
            &Scenario { homes, ..textbook(machine.clone(), CreditSettings::default(), 500 * MS, vms(home)) },
            1,
        )
        .unwrap()
    };
    assert_eq!(of(AGENT, HomeChoice::Chosen).trace_hash, of(Homes::Given, HomeChoice::Own).trace_hash);
}

#[test]
fn lives_that_cannot_be_run_are_refused() {
    let machine = two_nodes();
    let says = |vm| run(&scenario(vec![vm], Homes::Given), 1).unwrap_err().to_string();
    let endless = living(Amount::Fixed(0), vm("a", &machine, 1, hog()));
    assert_eq!(says(endless), "VM 'a': its life takes no time");
}
