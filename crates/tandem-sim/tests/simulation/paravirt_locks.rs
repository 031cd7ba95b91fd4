//! Guests whose waiters for spin locks halt, on hosts that can wake them.

use crate::common::guest::{guest, guest_vm};
use crate::common::{MS, US, compute, cores, forever, hog, textbook, vm};
use tandem_machine::MachineBuilder;
use tandem_sim::cost::{ContextSwitch, CostModels, Interrupt};
use tandem_sim::metrics::RunMetrics;
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::linux::{LinuxEra, LinuxSettings, SpinLockKind};
use tandem_sim::program::Op;
use tandem_sim::run;
use tandem_sim::scenario::{PolicySettings, Scenario};

const HOST: LinuxEra = LinuxEra::V6_12;

fn linux(era: LinuxEra) -> LinuxSettings {
    LinuxSettings { era, steal_clock: false, ..LinuxSettings::default() }
}

/// A VM of four vCPUs with one lock, on four pCPUs that other tasks share, each of which has this many.
fn shared(host: PolicySettings, guest_settings: LinuxSettings, hogs: usize) -> RunMetrics {
    let machine = cores(4);
    let locked = forever(vec![
        compute(20 * US),
        Op::Lock { lock: 0 },
        compute(10 * US),
        Op::Unlock { lock: 0 },
        Op::Count { counter: 0, amount: 1 },
    ]);
    let topology = MachineBuilder::symmetric(1, 4, 1).build().unwrap();
    let mut guest = guest(topology, guest_settings, vec![("user", locked)], 4);
    guest.context_switch = Some(ContextSwitch::linux());
    guest.interrupt = Some(Interrupt::default());
    guest.locks = 1;
    let mut vms = vec![guest_vm("guest", &machine, guest)];
    for (at, first) in (0..hogs).step_by(4).enumerate() {
        vms.push(vm(&format!("hogs-{at}"), &machine, (hogs - first).min(4), hog()));
    }
    let mut costs = CostModels::all();
    costs.context_switch = Some(ContextSwitch::linux());
    let scenario =
        Scenario { costs, policy: host, ..textbook(machine, CreditSettings::default(), 1_000 * MS, vms) };
    run(&scenario, 1).unwrap()
}

fn work(metrics: &RunMetrics) -> f64 {
    metrics.vms[0].counts["work"] as f64
}

#[test]
fn waiters_halt_by_release_of_guest_and_host() {
    for (host, era, is_on, halts) in [
        (HOST, LinuxEra::V3_6, true, false),
        (HOST, LinuxEra::V4_2, true, true),
        (HOST, LinuxEra::V5_2, true, true),
        (HOST, LinuxEra::V6_12, true, true),
        (HOST, LinuxEra::V6_12, false, false),
        (LinuxEra::V3_6, LinuxEra::V6_12, true, false),
    ] {
        let guest = LinuxSettings { paravirt_locks: is_on, ..linux(era) };
        let found = shared(PolicySettings::Linux(linux(host)), guest, 4).host.paravirt;
        assert_eq!(found.lock_halts > 10, halts, "{era:?}, {is_on}, on {host:?}: {found:?}");
        assert!(halts || found == Default::default(), "{found:?}");
        assert!(found.lock_kicks > 0 || !halts, "{found:?}");
    }
}

#[test]
fn nobody_halts_where_every_vcpu_has_a_pcpu() {
    for era in [LinuxEra::V4_2, LinuxEra::V6_12] {
        let metrics = shared(PolicySettings::Linux(linux(HOST)), linux(era), 0);
        assert_eq!(metrics.host.paravirt.lock_halts, 0, "{era:?}: the lock is never taken for long");
    }
}

#[test]
fn waiters_that_halt_leave_their_pcpus_to_the_holder_and_to_others() {
    // The time of the hogs is what the guest does not burn.
    for kind in [None, Some(SpinLockKind::Ticket)] {
        for era in [LinuxEra::V4_2, LinuxEra::V6_12] {
            let with = |paravirt_locks| {
                let guest = LinuxSettings { paravirt_locks, spin_locks: kind, ..linux(era) };
                shared(PolicySettings::Linux(linux(HOST)), guest, 4)
            };
            let (spinning, halting) = (with(false), with(true));
            let hogs = |metrics: &RunMetrics| {
                metrics.vms[1].vcpus.iter().map(|vcpu| vcpu.run_ns).sum::<u64>() as f64
            };
            assert!(
                hogs(&halting) > hogs(&spinning) || work(&halting) > 1.2 * work(&spinning),
                "{era:?}, {kind:?}: {} and {}, work {} and {}",
                hogs(&spinning),
                hogs(&halting),
                work(&spinning),
                work(&halting)
            );
        }
    }
}

#[test]
fn xen_wakes_halted_waiters_as_well() {
    let credit = PolicySettings::Credit(CreditSettings::default());
    // Four would run in turns with the vCPUs, all at once.
    let found = shared(credit, linux(LinuxEra::V6_12), 3).host.paravirt;
    assert!(found.lock_halts > 10 && found.lock_kicks > 0, "{found:?}");
}

#[test]
fn kvm_sched_yield_follows_a_kick_from_6_12_on_if_others_wait() {
    for (host, hogs, yields) in [
        (LinuxEra::V4_2, 8, false),
        (LinuxEra::V5_2, 8, false),
        (LinuxEra::V6_12, 8, true),
        (LinuxEra::V7_3, 8, true),
        (LinuxEra::V6_12, 0, false),
    ] {
        let found = shared(PolicySettings::Linux(linux(host)), linux(LinuxEra::V6_12), hogs).host.paravirt;
        assert_eq!(found.kick_yields > 0, yields, "{host:?}, {hogs} hogs: {found:?}");
        assert!(found.kick_yields <= found.lock_kicks, "{found:?}");
    }
}
