//! Hosts that poll before they let a vCPU sleep.

use crate::common::guest::{guest, guest_vm, program};
use crate::common::{MS, US, compute, cores, forever, hog, send, sleep, textbook, vm};
use std::sync::Arc;
use tandem_machine::MachineBuilder;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_sim::cost::{ContextSwitch, CostModels, Interrupt};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::{LinuxEra, LinuxSettings};
use tandem_sim::program::Op;
use tandem_sim::run;
use tandem_sim::scenario::{PolicySettings, Process, Scenario, TaskPolicy};

fn kvm(era: LinuxEra) -> PolicySettings {
    PolicySettings::Linux(LinuxSettings { era, ..LinuxSettings::default() })
}

/// A guest on two pCPUs, whose two tasks each have a vCPU; it has so many channels. Other tasks share the
/// pCPUs.
fn two_tasks(
    host: PolicySettings,
    halt_poll_ns: Option<u64>,
    tasks: [Vec<Op>; 2],
    hogs: usize,
) -> RunMetrics {
    let machine = cores(2);
    let topology = MachineBuilder::symmetric(1, 2, 1).build().unwrap();
    let programs = ["first", "second"].into_iter().zip(tasks).collect();
    let mut guest = guest(topology, LinuxSettings::default(), programs, 1);
    guest.context_switch = Some(ContextSwitch::linux());
    guest.interrupt = Some(Interrupt::default());
    guest.processes = (0..2)
        .map(|at| Process {
            program: at,
            copies: 1,
            nice: 0,
            policy: TaskPolicy::Normal,
            affinity: Some(Arc::new(CpuMask::from_cpus(2, [CpuId::from(at)]))),
        })
        .collect();
    guest.family_channels = 0;
    let mut of_guest = guest_vm("guest", &machine, guest);
    of_guest.channels = 2;
    let mut vms = vec![of_guest];
    if hogs > 0 {
        vms.push(vm("hogs", &machine, hogs, hog()));
    }
    let mut costs = CostModels::all();
    costs.context_switch = Some(ContextSwitch::linux());
    let base = textbook(machine, CreditSettings::default(), 1_000 * MS, vms);
    run(&Scenario { costs, policy: host, halt_poll_ns, ..base }, 1).unwrap()
}

/// Two tasks that wake each other in turn.
fn ping_pong(host: PolicySettings, halt_poll_ns: Option<u64>, hogs: usize) -> RunMetrics {
    let round = |from, to| vec![Op::Wait { channel: from }, compute(5 * US), send(to, 16)];
    let mut first = vec![send(1, 16)];
    first.extend(forever([round(0, 1), vec![Op::Count { counter: 0, amount: 1 }]].concat()));
    two_tasks(host, halt_poll_ns, [first, forever(round(1, 0))], hogs)
}

fn work(metrics: &RunMetrics) -> f64 {
    metrics.vms[0].counts["work"] as f64
}

fn wakeups(metrics: &RunMetrics) -> u64 {
    metrics.vms[0].vcpus.iter().map(|vcpu| vcpu.wakeups).sum()
}

#[test]
fn halt_poll_ns_is_on_by_default_from_5_2_on() {
    for (host, polls) in [
        (kvm(LinuxEra::V3_6), false),
        (kvm(LinuxEra::V4_2), false),
        (kvm(LinuxEra::V5_2), true),
        (kvm(LinuxEra::V6_12), true),
        (kvm(LinuxEra::V7_3), true),
        (PolicySettings::Credit(CreditSettings::default()), false),
    ] {
        let found = ping_pong(host.clone(), None, 0).host.halt_poll;
        assert_eq!(found.attempted > 0, polls, "{host:?}: {found:?}");
        assert!(polls || found == Default::default(), "{found:?}");
    }
    let set = ping_pong(kvm(LinuxEra::V4_2), Some(100_000), 0).host.halt_poll;
    assert!(set.successful > 1_000, "{set:?}");
}

#[test]
fn kvm_vcpu_halt_finds_a_wake_up_without_the_scheduler() {
    let with = |halt_poll_ns| ping_pong(kvm(LinuxEra::V6_12), halt_poll_ns, 0);
    let (off, on) = (with(Some(0)), with(None));
    assert_eq!(off.host.halt_poll, Default::default());
    assert!(wakeups(&on) * 20 < wakeups(&off), "{} and {}", wakeups(&on), wakeups(&off));
    assert!(work(&on) > 1.2 * work(&off), "{} and {}", work(&on), work(&off));
    assert!(on.host.halt_poll.successful > on.host.halt_poll.attempted * 9 / 10, "{:?}", on.host.halt_poll);
    // What is polled is busy for the host, and idle for the guest.
    assert!(on.host.busy_ns > off.host.busy_ns);
    let stolen = |metrics: &RunMetrics| metrics.vms[0].guest.as_ref().unwrap().cpus[0].stolen_ns;
    assert!(stolen(&on) <= stolen(&off));
}

#[test]
fn single_task_running_keeps_a_crowded_pcpu_from_polling() {
    let crowded = ping_pong(kvm(LinuxEra::V6_12), None, 2).host.halt_poll;
    assert!(crowded.polled_ns < 1_000_000, "a thousandth of the time: {crowded:?}");
}

#[test]
fn a_timer_of_the_guest_ends_a_poll() {
    let sleeper = |sleep_ns| {
        let task = forever(vec![sleep(sleep_ns), compute(5 * US), Op::Count { counter: 0, amount: 1 }]);
        two_tasks(kvm(LinuxEra::V6_12), None, [task.clone(), task], 0)
    };
    let short = sleeper(100 * US);
    assert!(wakeups(&short) < 100, "{}", wakeups(&short));
    assert!(program(&short, "first").total.wakeups > 5_000, "it slept as often as it asked to");
    let long = sleeper(MS);
    assert_eq!(long.host.halt_poll.successful, 0, "{:?}", long.host.halt_poll);
    assert!(long.host.halt_poll.polled_ns < 2_000_000, "windows close: {:?}", long.host.halt_poll);
}
