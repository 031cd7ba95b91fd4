//! The location of memory, and NUMA balancing, which brings it and its tasks together.

use crate::common::random::balanced_scenario;
use crate::common::{MS, compute, forever, textbook};
use proptest::prelude::*;
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, NodeId};
use tandem_machine::{Machine, MachineBuilder};
use tandem_sim::cost::CostModels;
use tandem_sim::metrics::{NumaMetrics, RunMetrics, TaskMetrics};
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::{LinuxEra, LinuxSettings};
use tandem_sim::program::{Amount, MemoryProfile, Op, Program};
use tandem_sim::run;
use tandem_sim::scenario::{
    Affinity, HostTask, MemoryPolicy, Pages, PolicySettings, Scenario, Workload, WorkloadKind,
};

const PAGES: u64 = 64 << 20 >> 12;

/// Two nodes of two CPUs.
fn two_nodes() -> Arc<Machine> {
    Arc::new(MachineBuilder::symmetric(2, 2, 1).build().unwrap())
}

/// A VM of 64 MiB whose tasks compute without end, each on its CPUs, and access memory ten times a
/// microsecond.
fn database(name: &str, machine: &Machine, cpus: &[&[u32]], memory_shares: [f64; 2]) -> Workload {
    let profile = MemoryProfile { memory_lines_per_us: 10.0, parallelism: 4.0, ..MemoryProfile::default() };
    let ops = forever(vec![
        Op::Compute { work: Amount::Fixed(MS), profile: Some(0) },
        Op::Count { counter: 0, amount: 1 },
    ]);
    let program = Arc::new(Program { ops, profiles: vec![Arc::new(profile)] });
    let vcpu = |cpus: &&[u32]| {
        let cpus = CpuMask::from_cpus(machine.cpu_count(), cpus.iter().map(|&cpu| CpuId(cpu)));
        HostTask::new(program.clone(), Affinity::hard(cpus))
    };
    let kind = WorkloadKind::vm(cpus.iter().map(vcpu).collect());
    Workload {
        memory_bytes: PAGES << 12,
        counters: vec!["work".into()],
        ..Workload::new(name, kind, memory_shares.to_vec())
    }
}

fn scenario(vms: Vec<Workload>, numa_balancing: bool) -> Scenario {
    let settings = LinuxSettings { era: LinuxEra::V4_2, numa_balancing, ..LinuxSettings::default() };
    Scenario {
        costs: CostModels::all(),
        policy: PolicySettings::Linux(settings),
        warmup_ns: 5_000 * MS,
        ..textbook(two_nodes(), CreditSettings::default(), 3_000 * MS, vms)
    }
}

/// Share of the run time of all its tasks that was close to memory.
fn local_share(run: &RunMetrics) -> f64 {
    let total = TaskMetrics::sum(run.vms.iter().flat_map(|vm| &vm.vcpus));
    total.local_run_ns as f64 / total.run_ns as f64
}

fn numa(run: &RunMetrics) -> NumaMetrics {
    run.host.numa
}

#[test]
fn memory_comes_to_a_task_that_cannot_go_to_it() {
    let machine = two_nodes();
    let pinned = || vec![database("db", &machine, &[&[0, 1]], [0.0, 1.0])];
    let off = run(&scenario(pinned(), false), 1).unwrap();
    assert_eq!((local_share(&off), numa(&off)), (0.0, NumaMetrics::default()));

    let on = run(&scenario(pinned(), true), 1).unwrap();
    assert!(local_share(&on) > 0.99, "{}", local_share(&on));
    assert!(on.vms[0].counts["work"] > off.vms[0].counts["work"], "that pays");

    let from_the_start = Scenario { warmup_ns: 0, length_ns: 8_000 * MS, ..scenario(pinned(), true) };
    let counted = numa(&run(&from_the_start, 1).unwrap());
    assert!((PAGES - PAGES / 50..=PAGES).contains(&counted.numa_pages_migrated), "each once: {counted:?}");
    assert!(counted.numa_hint_faults > PAGES, "faults go on, but are local then: {counted:?}");
    let stayed = counted.numa_hint_faults - counted.numa_pages_migrated;
    assert!(counted.numa_hint_faults_local.abs_diff(stayed) <= 1, "{counted:?}");
}

#[test]
fn a_task_that_is_free_to_move_ends_up_with_its_memory() {
    let machine = two_nodes();
    let all: &[u32] = &[0, 1, 2, 3];
    for memory_shares in [[0.0, 1.0], [1.0, 0.0]] {
        let run = run(&scenario(vec![database("db", &machine, &[all], memory_shares)], true), 1).unwrap();
        assert!(local_share(&run) > 0.95, "{memory_shares:?}: {}", local_share(&run));
    }
}

#[test]
fn a_task_goes_to_memory_that_cannot_come_to_it() {
    let machine = two_nodes();
    let node_bytes = machine.nodes()[0].memory_bytes;
    // The other node has no room for the memory.
    let vms = |memory: usize| {
        let shares = |node: usize| if node == 0 { [1.0, 0.0] } else { [0.0, 1.0] };
        let mut full = crate::common::vm("full", &machine, 1, forever(vec![crate::common::sleep(MS)]));
        (full.memory_bytes, full.memory_shares) = (node_bytes, shares(1 - memory).to_vec());
        vec![database("db", &machine, &[&[0, 1, 2, 3]], shares(memory)), full]
    };
    let local = |memory, numa_balancing| {
        let run = run(&scenario(vms(memory), numa_balancing), 1).unwrap();
        run.vms[0].vcpus[0].local_run_ns as f64 / run.vms[0].vcpus[0].run_ns as f64
    };
    let away = usize::from(local(0, false) > 0.5);
    assert!(local(away, false) < 0.1, "it starts on the other node");
    assert!(local(away, true) > 0.95, "{}", local(away, true));
}

#[test]
fn memory_that_both_nodes_share_evenly_stays() {
    let machine = two_nodes();
    let cpus: [&[u32]; 4] = [&[0], &[1], &[2], &[3]];
    let run = run(&scenario(vec![database("db", &machine, &cpus, [0.5, 0.5])], true), 1).unwrap();
    let counted = numa(&run);
    assert!(counted.numa_hint_faults > PAGES, "{counted:?}");
    assert!(counted.numa_pages_migrated * 10 < counted.numa_hint_faults, "{counted:?}");
    assert!((local_share(&run) - 0.5).abs() < 0.05);
}

#[test]
fn memory_does_not_move_to_a_full_node() {
    let machine = two_nodes();
    let hoard = machine.nodes()[0].memory_bytes;
    let hoarder = Workload { memory_bytes: hoard, ..database("hoarder", &machine, &[&[1]], [1.0, 0.0]) };
    let db = database("db", &machine, &[&[0]], [0.0, 1.0]);
    let run = run(&scenario(vec![hoarder, db], true), 1).unwrap();
    assert_eq!(run.vms[1].vcpus[0].local_run_ns, 0, "{:?}", numa(&run));
}

/// A task that cannot go to its memory, which has that policy, under that release: what was counted, and the
/// share of its run time that was close to memory.
fn with_policy(memory_policy: MemoryPolicy, era: LinuxEra) -> (NumaMetrics, f64) {
    let machine = two_nodes();
    let vm = Workload { memory_policy, ..database("db", &machine, &[&[0, 1]], [0.0, 1.0]) };
    let settings = LinuxSettings { era, numa_balancing: true, ..LinuxSettings::default() };
    let scenario = Scenario { policy: PolicySettings::Linux(settings), ..scenario(vec![vm], true) };
    let run = run(&scenario, 1).unwrap();
    (numa(&run), local_share(&run))
}

#[test]
fn vma_policy_mof_leaves_bound_memory_alone() {
    for era in [LinuxEra::V4_2, LinuxEra::V5_2, LinuxEra::V6_12, LinuxEra::V6_18, LinuxEra::V7_3] {
        assert_eq!(with_policy(MemoryPolicy::Own, era), (NumaMetrics::default(), 0.0), "{era:?}");
        assert!(with_policy(MemoryPolicy::FirstTouch, era).1 > 0.99, "{era:?}");
    }
}

#[test]
fn task_numa_work_scans_the_memory_of_a_cpuset_but_that_stays() {
    let there = MemoryPolicy::Cpuset(vec![NodeId(1)]);
    let (counted, local) = with_policy(there.clone(), LinuxEra::V6_12);
    assert!(counted.numa_hint_faults > 0, "{counted:?}");
    assert_eq!((counted.numa_hint_faults_local, counted.numa_pages_migrated, local), (0, 0, 0.0));
    assert_eq!(with_policy(there, LinuxEra::V6_18), (NumaMetrics::default(), 0.0), "a single node");
    let both = MemoryPolicy::Cpuset(vec![NodeId(0), NodeId(1)]);
    assert!(with_policy(both, LinuxEra::V6_18).1 > 0.99);
}

/// What balancing counts and costs while memory of those pages comes to a task that cannot go to it, ns.
fn with_pages(pages: Pages) -> (NumaMetrics, u64, f64) {
    let machine = two_nodes();
    let vm = || vec![Workload { pages, ..database("db", &machine, &[&[0, 1]], [0.0, 1.0]) }];
    let run = |vms, numa_balancing| {
        let it = scenario(vms, numa_balancing);
        run(&Scenario { warmup_ns: 0, length_ns: 8_000 * MS, ..it }, 1).unwrap()
    };
    let (off, on) = (run(vm(), false), run(vm(), true));
    (numa(&on), on.host.overhead_ns - off.host.overhead_ns, local_share(&on))
}

#[test]
fn do_huge_pmd_numa_page_takes_one_fault_for_512_pages() {
    let (small, small_ns, small_local) = with_pages(Pages::Small);
    let (huge, huge_ns, huge_local) = with_pages(Pages::Transparent(100));
    assert!(huge.numa_pages_migrated.abs_diff(PAGES) <= PAGES / 50, "all of it moves: {huge:?}");
    assert!(small.numa_hint_faults > 300 * huge.numa_hint_faults, "{small:?} {huge:?}");
    assert!(huge_local >= small_local && huge_local > 0.8, "{small_local} {huge_local}");
    // The copy is the same; all else is done once instead of 512 times.
    let cost = CostModels::all().numa_fault.unwrap();
    let copy_ns = (PAGES << 12).div_ceil(2 << 20) * cost.move_ns(two_nodes().hardware(), 2 << 20);
    assert!((copy_ns..2 * copy_ns).contains(&huge_ns), "{huge_ns} ns, of which copies take {copy_ns}");
    assert!(small_ns > 4 * huge_ns, "{small_ns} {huge_ns}");
}

#[test]
fn a_part_in_huge_pages_is_in_between() {
    let faults = |pct| with_pages(Pages::Transparent(pct)).0.numa_hint_faults as f64;
    let (none, half, all) = (faults(0), faults(50), faults(100));
    assert!(((half - all) / (none - all) - 0.5).abs() < 0.1, "{none} {half} {all}");
}

#[test]
fn is_vm_hugetlb_page_is_not_scanned() {
    assert_eq!(with_pages(Pages::Hugetlb), (NumaMetrics::default(), 0, 0.0));
}

#[test]
fn first_touch_follows_where_tasks_start() {
    let machine = two_nodes();
    let touched = |cpus: &[&[u32]]| {
        let vm = Workload { first_touch: true, ..database("db", &machine, cpus, [0.5, 0.5]) };
        local_share(&run(&scenario(vec![vm], false), 1).unwrap())
    };
    assert_eq!(touched(&[&[2], &[3]]), 1.0, "all memory is on their node");
    let mixed = touched(&[&[0], &[1], &[2]]);
    assert!((mixed - (2.0 / 3.0 * 2.0 + 1.0 / 3.0) / 3.0).abs() < 1e-6, "in proportion: {mixed}");
}

#[test]
fn one_node_needs_no_balancing() {
    let machine = crate::common::cores(2);
    let hash = |numa_balancing| {
        let program = Arc::new(Program { ops: forever(vec![compute(MS)]), profiles: vec![] });
        let vcpu = HostTask::new(program, Affinity::hard(machine.all_cpus().clone()));
        let vm = Workload::new("vm", WorkloadKind::vm(vec![vcpu]), vec![1.0]);
        run(&Scenario { machine: machine.clone(), ..scenario(vec![vm], numa_balancing) }, 1)
            .unwrap()
            .trace_hash
    };
    assert_eq!(hash(true), hash(false));
}

#[test]
fn faults_take_time_of_the_host() {
    let machine = two_nodes();
    let vms = || vec![database("db", &machine, &[&[0]], [1.0, 0.0])];
    let overhead_ns = |costs: CostModels| run(&Scenario { costs, ..scenario(vms(), true) }, 1).unwrap().host;
    let with = overhead_ns(CostModels::all());
    let without = overhead_ns(CostModels { numa_fault: None, ..CostModels::all() });
    let faults = with.numa.numa_hint_faults;
    let costs = CostModels::all();
    let of_one_ns = costs.numa_fault.unwrap().fault_ns + costs.vm_exit.unwrap().round_trip_ns;
    let expected_ns = faults * of_one_ns;
    let difference_ns = with.overhead_ns - without.overhead_ns;
    assert!(difference_ns.abs_diff(expected_ns) < expected_ns / 10, "{difference_ns} {expected_ns}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// Balancing neither creates nor loses time, and is repeatable.
    #[test]
    fn time_is_conserved(scenario in balanced_scenario(), seed: u64) {
        let metrics = run(&scenario, seed).unwrap();
        let host = &metrics.host;
        prop_assert_eq!(host.busy_ns + host.idle_ns + host.overhead_ns, host.pcpus as u64 * metrics.length_ns);
        for vcpu in metrics.vms.iter().flat_map(|vm| &vm.vcpus) {
            prop_assert!(vcpu.run_ns + vcpu.wait_ns + vcpu.sleep_ns <= metrics.length_ns);
            prop_assert!(vcpu.local_run_ns <= vcpu.run_ns);
        }
        let NumaMetrics { numa_hint_faults, numa_hint_faults_local, numa_pages_migrated } = host.numa;
        // A fault on a huge page moves 512 small ones.
        let others = numa_hint_faults - numa_hint_faults_local.min(numa_hint_faults);
        prop_assert!(numa_pages_migrated <= 512 * (others + 1));
        prop_assert_eq!(run(&scenario, seed).unwrap(), metrics);
    }

    /// Memory with a policy of its own costs nothing, whatever else is there: to the bit.
    #[test]
    fn vma_policy_mof_makes_balancing_do_nothing(mut scenario in balanced_scenario(), seed: u64) {
        for workload in &mut scenario.workloads {
            workload.memory_policy = MemoryPolicy::Own;
        }
        let on = run(&scenario, seed).unwrap();
        if let PolicySettings::Linux(settings) = &mut scenario.policy {
            settings.numa_balancing = false;
        }
        prop_assert_eq!(on.trace_hash, run(&scenario, seed).unwrap().trace_hash);
    }
}
