//! TLB flushes of guests that know which of their vCPUs are preempted.

use crate::common::guest::{guest, guest_vm};
use crate::common::{MS, US, compute, cores, forever, hog, textbook, vm};
use tandem_machine::MachineBuilder;
use tandem_sim::cost::{ContextSwitch, CostModels, Interrupt};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::{LinuxEra, LinuxSettings};
use tandem_sim::program::Op;
use tandem_sim::run;
use tandem_sim::scenario::{PolicySettings, Scenario};

fn linux(era: LinuxEra) -> LinuxSettings {
    LinuxSettings { era, ..LinuxSettings::default() }
}

fn kvm(era: LinuxEra) -> PolicySettings {
    PolicySettings::Linux(linux(era))
}

fn xen() -> PolicySettings {
    PolicySettings::Credit(CreditSettings::default())
}

/// A VM with as many vCPUs as there are pCPUs, whose one process has a thread on each. The first forks the
/// others, and goes on with that program. Other tasks share the pCPUs.
fn process(
    host: PolicySettings,
    era: LinuxEra,
    (vcpus, hogs): (u32, usize),
    first: Vec<Op>,
    thread: Vec<Op>,
) -> RunMetrics {
    let machine = cores(vcpus);
    let topology = MachineBuilder::symmetric(1, vcpus, 1).build().unwrap();
    let mut ops = vec![Op::Fork { program: 1 }; vcpus as usize - 1];
    ops.extend(forever(first));
    let programs = vec![("first", ops), ("thread", forever(thread))];
    let mut guest = guest(topology, linux(era), programs, 1);
    guest.context_switch = Some(ContextSwitch::linux());
    guest.interrupt = Some(Interrupt::default());
    guest.locks = 1;
    let mut vms = vec![guest_vm("guest", &machine, guest)];
    if hogs > 0 {
        vms.push(vm("hogs", &machine, hogs, hog()));
    }
    let mut costs = CostModels::all();
    costs.context_switch = Some(ContextSwitch::linux());
    let scenario =
        Scenario { costs, policy: host, ..textbook(machine, CreditSettings::default(), 1_000 * MS, vms) };
    run(&scenario, 1).unwrap()
}

/// The first thread flushes the TLBs of the others, which compute.
fn flushes(host: PolicySettings, era: LinuxEra, shape: (u32, usize)) -> RunMetrics {
    let flush = vec![compute(20 * US), Op::FlushTlbs, Op::Count { counter: 0, amount: 1 }];
    process(host, era, shape, flush, vec![compute(MS)])
}

fn work(metrics: &RunMetrics) -> f64 {
    metrics.vms[0].counts["work"] as f64
}

#[test]
fn xen_smp_send_call_function_ipi_gives_way_once_if_one_of_several_is_stolen() {
    for era in [LinuxEra::V3_6, LinuxEra::V4_2, LinuxEra::V6_12] {
        let yields = |shape| flushes(xen(), era, shape).host.paravirt.flush_yields;
        assert_eq!(yields((4, 0)), 0, "{era:?}: all of them run");
        assert_eq!(yields((2, 2)), 0, "{era:?}: a single CPU is interrupted without a look");
        assert!(yields((4, 4)) > 10, "{era:?}: {}", yields((4, 4)));
    }
    let on_kvm = flushes(kvm(LinuxEra::V6_12), LinuxEra::V6_12, (4, 4)).host.paravirt;
    assert_eq!(on_kvm.flush_yields, 0);
}

#[test]
fn kvm_flush_tlb_multi_leaves_out_vcpus_that_are_preempted() {
    for host in [LinuxEra::V5_2, LinuxEra::V6_12] {
        let run = |era, hogs| flushes(kvm(host), era, (4, hogs));
        // Four would run in turns with the vCPUs, all at once.
        assert_eq!(run(LinuxEra::V6_12, 0).host.paravirt.flush_skips, 0, "{host:?}: all of them run");
        let (waits, skips) = (run(LinuxEra::V4_2, 3), run(LinuxEra::V5_2, 3));
        assert_eq!(waits.host.paravirt, Default::default(), "{host:?}: the guest cannot");
        assert!(skips.host.paravirt.flush_skips > 100, "{host:?}: {:?}", skips.host.paravirt);
        assert!(work(&skips) > 2.0 * work(&waits), "{host:?}: {} and {}", work(&skips), work(&waits));
    }
    let on_older = flushes(kvm(LinuxEra::V4_2), LinuxEra::V6_12, (4, 3));
    assert_eq!(on_older.host.paravirt.flush_skips, 0, "the host does not say");
}

#[test]
fn kvm_arch_vcpu_put_marks_a_vcpu_that_halts_in_5_2_only() {
    // The others halt as they wait for the lock.
    let flush = vec![
        Op::Lock { lock: 0 },
        compute(2 * MS),
        Op::FlushTlbs,
        Op::Unlock { lock: 0 },
        compute(10 * US),
        Op::Count { counter: 0, amount: 1 },
    ];
    let thread = vec![Op::Lock { lock: 0 }, compute(US), Op::Unlock { lock: 0 }, compute(10 * US)];
    let found = |host| process(kvm(host), LinuxEra::V6_12, (3, 0), flush.clone(), thread.clone());
    let (old, new) = (found(LinuxEra::V5_2), found(LinuxEra::V6_12));
    assert!(old.host.paravirt.lock_halts > 10 && new.host.paravirt.lock_halts > 10);
    assert!(old.host.paravirt.flush_skips > 10, "{:?}", old.host.paravirt);
    assert_eq!(new.host.paravirt.flush_skips, 0, "{:?}", new.host.paravirt);
}
