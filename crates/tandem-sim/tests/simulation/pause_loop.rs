//! The host's treatment of vCPUs that spin: pause-loop exits, directed yields, and the cost of the search for
//! a target.

use crate::common::guest::{guest, guest_vm, linux};
use crate::common::{MS, US, compute, cores, forever, hog, textbook, vm};
use std::sync::Arc;
use tandem_machine::ids::CpuId;
use tandem_machine::{Machine, MachineBuilder, preset};
use tandem_sim::cost::{ContextSwitch, CostModels, Interrupt, SpinLock};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::{Domains, LinuxEra, LinuxSettings, SoftAffinity};
use tandem_sim::policy::pause_loop::{DirectedYield, PauseLoop, RunningCheck};
use tandem_sim::program::Op;
use tandem_sim::run;
use tandem_sim::scenario::{PolicySettings, Process, Scenario, TaskPolicy, Workload};

const LINUX: LinuxSettings = LinuxSettings {
    era: LinuxEra::V3_6,
    domains: Domains::Topology,
    tick_hz: 1_000,
    steal_clock: false,
    preemption: None,
    spin_locks: None,
    paravirt_locks: true,
    soft_affinity: SoftAffinity::Ignored,
    numa_balancing: false,
    groups: None,
    base_slice_ns: None,
    queue_scan_ns: 0,
};

/// Computes without a lock, then with it; counts.
fn locked(outside_ns: u64, inside_ns: u64) -> Vec<Op> {
    forever(vec![
        compute(outside_ns),
        Op::Lock { lock: 0 },
        compute(inside_ns),
        Op::Unlock { lock: 0 },
        Op::Count { counter: 0, amount: 1 },
    ])
}

/// A VM with this many vCPUs, each of which has a task with this program.
fn locking_vm(name: &str, host: &Machine, vcpus: u32, ops: Vec<Op>) -> Workload {
    let topology = MachineBuilder::symmetric(1, vcpus, 1).build().unwrap();
    let mut guest = guest(topology, LINUX, vec![("user", ops)], vcpus);
    guest.context_switch = Some(ContextSwitch::linux());
    guest.interrupt = Some(Interrupt::default());
    Workload { has_past: true, ..guest_vm(name, host, guest) }
}

/// The VMs on a Linux host, with all costs on.
fn on_linux(
    machine: Arc<Machine>,
    vms: Vec<Workload>,
    pause_loop: Option<PauseLoop>,
    length_ns: u64,
) -> Scenario {
    let mut costs = CostModels::all();
    costs.context_switch = Some(ContextSwitch::linux());
    Scenario {
        costs,
        policy: PolicySettings::Linux(LINUX),
        pause_loop,
        warmup_ns: 10 * MS,
        ..textbook(machine, CreditSettings::default(), length_ns, vms)
    }
}

fn with(directed_yield: DirectedYield) -> Option<PauseLoop> {
    Some(PauseLoop { directed_yield: Some(directed_yield), ..PauseLoop::V3_6 })
}

const UNDER_LOCKS: DirectedYield =
    DirectedYield { running_check: RunningCheck::UnderLocks, ..DirectedYield::V3_6 };
const PRECHECK: DirectedYield =
    DirectedYield { running_check: RunningCheck::BeforeLocks, ..DirectedYield::V3_6 };

fn work(metrics: &RunMetrics, vm: usize) -> f64 {
    metrics.vms[vm].counts["work"] as f64
}

/// A VM of four vCPUs with short critical sections, on four pCPUs, three of which others use as well.
fn shared_host(pause_loop: Option<PauseLoop>, seed: u64) -> RunMetrics {
    let host = cores(4);
    let vms = vec![locking_vm("locking", &host, 4, locked(20 * US, 2 * US)), vm("hogs", &host, 3, hog())];
    run(&on_linux(host, vms, pause_loop, 500 * MS), seed).unwrap()
}

/// A VM with a vCPU for each of the 80 pCPUs; one of them works, and the others wait for it.
fn storm(pause_loop: Option<PauseLoop>) -> RunMetrics {
    let host = Arc::new(preset("westmere-ex-4s").unwrap());
    let vms = vec![locking_vm("storm", &host, 80, locked(US, 50 * US))];
    run(&on_linux(host, vms, pause_loop, 20 * MS), 1).unwrap()
}

#[test]
fn a_directed_yield_lets_the_lock_holder_run() {
    let (mut of_off, mut of_on) = (0.0, 0.0);
    for seed in 1..=8 {
        let (off, on) = (shared_host(None, seed), shared_host(Some(PauseLoop::V3_6), seed));
        assert_eq!(off.host.pause_loop, Default::default(), "nobody looks");
        assert!(on.host.pause_loop.yields > 1_000, "{:?}", on.host.pause_loop);
        of_off += work(&off, 0);
        of_on += work(&on, 0);
    }
    let gain = of_on / of_off;
    assert!(gain > 3.0, "vCPUs that wait for one without a pCPU give it theirs: {gain} times the work");
}

#[test]
fn xen_lets_any_other_run() {
    let host = cores(2);
    let vms = vec![locking_vm("locking", &host, 2, locked(20 * US, 20 * US)), vm("hog", &host, 1, hog())];
    let mut scenario = on_linux(host, vms, None, 500 * MS);
    scenario.policy = PolicySettings::Credit(CreditSettings { ratelimit_ns: 0, ..CreditSettings::default() });
    let off = run(&scenario, 1).unwrap();
    scenario.pause_loop = Some(PauseLoop::XEN);
    let on = run(&scenario, 1).unwrap();
    let exits = on.host.pause_loop;
    assert!(exits.exits > 100 && exits.yields == 0 && exits.candidates == 0, "it does not search: {exits:?}");
    assert!(
        work(&on, 0) > 1.2 * work(&off, 0),
        "but waits no whole slice: {} and {}",
        work(&on, 0),
        work(&off, 0)
    );
}

#[test]
fn loops_that_pause_too_seldom_are_not_noticed() {
    // The loop pauses every 20 cycles.
    for (gap_cycles, noticed) in [(19, false), (20, true)] {
        let metrics = shared_host(Some(PauseLoop { gap_cycles, ..PauseLoop::V3_6 }), 1);
        assert_eq!(metrics.host.pause_loop.exits > 0, noticed, "gap of {gap_cycles}");
    }
}

#[test]
fn a_window_that_grows_makes_fewer_exits() {
    let exits = |window_growth| {
        let settings = PauseLoop { window_growth, ..PauseLoop::V3_6 };
        let metrics = storm(Some(PauseLoop { directed_yield: Some(PRECHECK), ..settings }));
        metrics.host.pause_loop.exits
    };
    let (fixed, grown) = (exits(1), exits(2));
    assert!(
        grown * 20 < fixed,
        "vCPUs that keep their pCPUs are asked ever more seldom: {grown} and {fixed}"
    );
    assert!(grown > 0);
}

#[test]
fn a_window_does_not_grow_beyond_its_limit() {
    let settings = |window_growth| PauseLoop {
        window_growth,
        window_max_cycles: PauseLoop::V3_6.window_cycles,
        directed_yield: Some(PRECHECK),
        ..PauseLoop::V3_6
    };
    assert_eq!(storm(Some(settings(1))).trace_hash, storm(Some(settings(2))).trace_hash);
}

#[test]
fn locks_taken_for_nothing_stop_a_large_guest() {
    let (on, precheck) = (storm(with(DirectedYield::V3_6)), storm(with(PRECHECK)));
    let share = |metrics: &RunMetrics, ns| ns as f64 / (80 * metrics.length_ns) as f64;
    assert!(share(&on, on.host.overhead_ns) > 0.95, "the host does nothing else");
    assert!(share(&on, on.host.spin_ns) > 0.9, "and most of that is waiting for locks");
    let found = on.host.pause_loop;
    assert!(found.failed_running > 100 * found.yields, "nearly all targets run already: {found:?}");
    assert_eq!(found.failed_under_locks, found.failed_running);
    assert_eq!(precheck.host.pause_loop.failed_under_locks, 0, "the check spares the locks");
    assert!(share(&precheck, precheck.host.spin_ns) < 0.01);
    assert!(work(&precheck, 0) > 3.0 * work(&on, 0), "{} and {}", work(&precheck, 0), work(&on, 0));
}

#[test]
fn what_else_needs_a_queue_waits_for_its_lock() {
    // A task of the host's own, in the storm: each wake-up, and each decision to run it, takes a lock that
    // others want.
    let wakeup_p50_ns = |pause_loop| {
        let host = Arc::new(preset("westmere-ex-4s").unwrap());
        let sleeper = forever(vec![compute(20 * US), crate::common::sleep(200 * US)]);
        let vms =
            vec![locking_vm("storm", &host, 80, locked(US, 50 * US)), vm("host-thread", &host, 1, sleeper)];
        let metrics = run(&on_linux(host, vms, pause_loop, 50 * MS), 1).unwrap();
        metrics.vms[1].vcpu_delay.quantile_ns(0.5)
    };
    let (off, on) = (wakeup_p50_ns(None), wakeup_p50_ns(with(DirectedYield::V3_6)));
    assert!(2 * on > 3 * off, "{on} and {off} ns");
}

#[test]
fn kvm_vcpu_yield_to_refuses_a_vcpu_in_guest_mode_in_3_6() {
    // One of two vCPUs works under the lock, and the other waits for it; both have a pCPU.
    let found = |directed_yield| {
        let host = cores(2);
        let vms = vec![locking_vm("pair", &host, 2, locked(US, 200 * US))];
        let mut scenario = on_linux(host, vms, with(directed_yield), 100 * MS);
        scenario.costs = CostModels { spin_lock: scenario.costs.spin_lock, ..CostModels::off() };
        run(&scenario, 1).unwrap().host.pause_loop
    };
    let (refuses, asks) = (found(DirectedYield::V3_6), found(UNDER_LOCKS));
    assert!(refuses.candidates > 1_000 && asks.candidates > 1_000, "{refuses:?} and {asks:?}");
    assert_eq!(refuses.failed_under_locks, 0, "the holder executes its guest's code");
    assert_eq!(asks.failed_under_locks, asks.candidates, "without the check, the locks are taken for it");
}

#[test]
fn get_pid_task_fetches_the_line_of_the_candidates_task() {
    // One vCPU works under the lock; the others search in turn, and fetch the lines of the others' tasks from
    // each other. All that the host does besides is to decide a few times.
    let overhead_ns_per_exit = |vcpus: u32, packages: u32| {
        let host = Arc::new(MachineBuilder::symmetric(packages, vcpus / packages, 1).build().unwrap());
        let line_ns = host.line_transfer_ns(CpuId(0), CpuId(1));
        let vms = vec![locking_vm("spinners", &host, vcpus, locked(US, 200 * US))];
        let mut scenario = on_linux(host, vms, with(PRECHECK), 100 * MS);
        let CostModels { spin_lock, context_switch, .. } = scenario.costs;
        scenario.costs = CostModels { spin_lock, context_switch, ..CostModels::off() };
        let host = run(&scenario, 1).unwrap().host;
        let decided_ns = host.schedules * ContextSwitch::linux().decision_ns;
        (line_ns, host.overhead_ns.saturating_sub(decided_ns) / host.pause_loop.exits)
    };
    let here_ns = ContextSwitch::linux().peer_scan_ns + SpinLock::default().uncontended_ns;
    for packages in [1, 3] {
        let (line_ns, per_exit_ns) = overhead_ns_per_exit(3, packages);
        let expected_ns = 2 * (here_ns + line_ns);
        assert!(per_exit_ns.abs_diff(expected_ns) <= 5, "{packages}: {per_exit_ns}, not {expected_ns} ns");
    }
    let (_, per_exit_ns) = overhead_ns_per_exit(2, 1);
    assert!(
        per_exit_ns.abs_diff(here_ns) <= 5,
        "the only one that searches keeps the line: {per_exit_ns} ns"
    );
}

#[test]
fn a_search_ends_soon_where_no_queue_has_anybody_waiting() {
    let found = storm(with(DirectedYield { undercommit_check: true, ..UNDER_LOCKS })).host.pause_loop;
    let per_exit = found.candidates as f64 / found.exits as f64;
    assert!((2.9..=3.1).contains(&per_exit), "{} tries: {per_exit}", DirectedYield::TRIES);
    assert_eq!(found.failed_under_locks, 0);
}

#[test]
fn who_searches_itself_is_passed_over() {
    let settings = DirectedYield { skips_yielding_cpus: true, ..DirectedYield::V3_6 };
    let (on, skips) = (storm(with(DirectedYield::V3_6)), storm(with(settings)));
    let locks_per_candidate = |found: &RunMetrics| {
        found.host.pause_loop.failed_under_locks as f64 / found.host.pause_loop.candidates as f64
    };
    assert!(locks_per_candidate(&on) > 0.9);
    assert!(locks_per_candidate(&skips) < 0.5, "{}", locks_per_candidate(&skips));
    assert!(work(&skips, 0) > work(&on, 0));
}

#[test]
fn a_vcpu_out_of_its_guest_is_no_target_for_the_strictest() {
    let settings = DirectedYield { skips_host_mode_cpus: true, ..PRECHECK };
    let (precheck, strict) = (shared_host(with(PRECHECK), 1), shared_host(with(settings), 1));
    let (precheck, strict) = (precheck.host.pause_loop, strict.host.pause_loop);
    let success = |found: tandem_sim::metrics::PauseLoopMetrics| found.yields as f64 / found.exits as f64;
    assert!(strict.yields > 0 && success(strict) < success(precheck), "{strict:?} and {precheck:?}");
}

#[test]
fn spinners_are_passed_over_every_other_time() {
    let settings = DirectedYield { alternates_spinners: true, ..PRECHECK };
    let (all, alternating) = (shared_host(with(PRECHECK), 1), shared_host(with(settings), 1));
    let yields_per_exit =
        |metrics: &RunMetrics| metrics.host.pause_loop.yields as f64 / metrics.host.pause_loop.exits as f64;
    assert!(yields_per_exit(&alternating) < yields_per_exit(&all));
    assert!(work(&alternating, 0) > 0.9 * work(&all, 0));
}

#[test]
fn a_flush_waits_for_vcpus_without_a_pcpu() {
    // Two threads of a process: one changes the memory map, the other computes.
    let thread = forever(vec![compute(MS)]);
    let flusher = vec![
        compute(US),
        Op::Fork { program: 1 },
        Op::Repeat {
            times: None,
            body: vec![compute(20 * US), Op::FlushTlbs, Op::Count { counter: 0, amount: 1 }],
        },
    ];
    let flushes = |hogs: usize, pause_loop| {
        let host = cores(2);
        let topology = MachineBuilder::symmetric(1, 2, 1).build().unwrap();
        let programs = vec![("flusher", flusher.clone()), ("thread", thread.clone())];
        let guest = guest(topology, linux(LinuxEra::V3_6, Domains::Topology), programs, 1);
        let vms = vec![
            guest_vm("guest", &host, guest),
            vm("hogs", &host, hogs.max(1), if hogs > 0 { hog() } else { vec![] }),
        ];
        // Whether the two vCPUs run together by themselves depends on when their kernels tick.
        let scenario = on_linux(host, vms, pause_loop, 500 * MS);
        (1..=8).map(|seed| work(&run(&scenario, seed).unwrap(), 0)).sum::<f64>() / 8.0
    };
    let alone = flushes(0, None);
    assert!(alone > 10_000.0, "an answer takes some microseconds: {alone}");
    let shared = flushes(2, None);
    assert!(shared < 0.4 * alone, "half of the pCPUs, and waiting for the other vCPU: {shared} of {alone}");
    let yielding = flushes(2, Some(PauseLoop::V3_6));
    assert!(yielding > 1.1 * shared, "a directed yield brings it back: {yielding} against {shared}");
}

#[test]
fn other_processes_need_not_flush() {
    let host = cores(2);
    let topology = MachineBuilder::symmetric(1, 2, 1).build().unwrap();
    let flusher = forever(vec![compute(10 * US), Op::FlushTlbs, Op::Count { counter: 0, amount: 1 }]);
    let mut guest = guest(topology, linux(LinuxEra::V3_6, Domains::Topology), vec![("flusher", flusher)], 2);
    guest.processes =
        vec![Process { program: 0, copies: 2, nice: 0, policy: TaskPolicy::Normal, affinity: None }];
    let vms = vec![guest_vm("guest", &host, guest)];
    let metrics = run(&textbook(host, CreditSettings::default(), 100 * MS, vms), 1).unwrap();
    assert_eq!(work(&metrics, 0), 20_000.0, "each process is alone with its memory map");
}

#[test]
fn an_uncontended_lock_costs_what_it_costs() {
    // A single vCPU, which waits for no other: the host's treatment makes no difference.
    let alone = |pause_loop| {
        let host = cores(1);
        let vms = vec![locking_vm("alone", &host, 1, locked(20 * US, 2 * US))];
        run(&on_linux(host, vms, pause_loop, 100 * MS), 1).unwrap()
    };
    let (off, on) = (alone(None), alone(Some(PauseLoop::V3_6)));
    assert_eq!((off.trace_hash, work(&off, 0)), (on.trace_hash, work(&on, 0)));
    assert_eq!((off.host.spin_ns, on.host.spin_ns), (0, 0));
}
