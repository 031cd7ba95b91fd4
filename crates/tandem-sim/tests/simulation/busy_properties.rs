//! Properties with costs off, where only the vCPUs' own programs limit them.

use crate::common::follow::{Doing, Life, follow, longest_idle_beside_waiting_ns};
use crate::common::random::{busy_scenario, round_span, settings, some_cases, uneven_span};
use crate::common::*;
use proptest::prelude::*;
use std::sync::Arc;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, NodeId};
use tandem_sim::policy::credit::{CreditSettings, Era};
use tandem_sim::program::{Amount, Op};
use tandem_sim::run;
use tandem_sim::scenario::{Arrivals, PolicySettings, Scenario, Source};

fn credit(scenario: &Scenario) -> CreditSettings {
    let PolicySettings::Credit(settings) = scenario.policy else { panic!("the host schedules with credit") };
    settings
}

fn set_credit(scenario: &mut Scenario, change: impl FnOnce(&mut CreditSettings)) {
    let PolicySettings::Credit(settings) = &mut scenario.policy else {
        panic!("the host schedules with credit")
    };
    change(settings);
}

/// Lets all vCPUs of the scenario run on these CPUs only.
fn confine(scenario: &mut Scenario, cpus_of_vm: impl Fn(usize) -> CpuMask) {
    for (at, vm) in scenario.workloads.iter_mut().enumerate() {
        *vm = with_affinity(vm.clone(), cpus_of_vm(at), None);
    }
}

/// Pins the VMs to the nodes in turn.
fn pin_to_nodes(scenario: &mut Scenario) {
    let machine = Arc::clone(&scenario.machine);
    confine(scenario, |vm| machine.node_cpus(NodeId::from(vm % machine.node_count())).clone());
}

/// Run time and following sleep of a task, round by round.
fn rounds(life: &Life) -> Vec<(u64, u64)> {
    let mut rounds = Vec::new();
    let mut ran_ns = 0;
    // The first stretch is before the start, the last is cut off by the end of the run.
    for stretch in &life.stretches[1..life.stretches.len() - 1] {
        match stretch.doing {
            Doing::RunsOn(_) => ran_ns += stretch.to_ns - stretch.from_ns,
            Doing::Sleeps => rounds.push((std::mem::take(&mut ran_ns), stretch.to_ns - stretch.from_ns)),
            Doing::Waits | Doing::HasEnded => {}
        }
    }
    rounds
}

/// Adds a VM that has pCPU 0 for itself and only takes the requests of an open source.
fn add_listener(scenario: &mut Scenario) {
    let cpus = scenario.machine.cpu_count();
    let (first, others) = (CpuMask::first(1), CpuMask::from_cpus(cpus, (1..cpus).map(CpuId::from)));
    confine(scenario, |_| others.clone());
    let ops = forever(vec![Op::Wait { channel: 0 }, Op::Respond]);
    let mut listener = with_affinity(vm("listener", &scenario.machine, 1, ops), first, None);
    let interval = Amount::Exponential(MS);
    listener.sources = vec![Source { channel: 0, arrivals: Arrivals::Open { interval } }];
    scenario.workloads.push(listener);
}

proptest! {
    #![proptest_config(some_cases())]

    /// Work conservation: no pCPU idles while a vCPU that may run there waits longer than one tick, as long
    /// as no two events happen at the same instant. Affinities are equal or disjoint.
    #[test]
    fn work_is_conserved(mut scenario in busy_scenario(uneven_span), pinned: bool, seed: u64) {
        set_credit(&mut scenario, |settings| settings.era = Era::Xen4_9);
        if pinned {
            pin_to_nodes(&mut scenario);
        }
        let tick_ns = credit(&scenario).timeslice_ns / 3;
        let longest_ns = longest_idle_beside_waiting_ns(&scenario, &follow(&scenario, seed)?);
        prop_assert!(longest_ns <= tick_ns, "{longest_ns} ns, with a tick of {tick_ns} ns");
    }

    /// Work conservation in all eras, also when events happen at the same instant: within at most a timeslice
    /// for each other vCPU.
    ///
    /// The real algorithm does not do better. It tickles one pCPU for all vCPUs that wake on it at once, so
    /// that all but the first wait there beside idle pCPUs; before 4.9 a tickled pCPU also counted as idle
    /// until it ran something, so that several vCPUs could be moved to it at one tick. It takes a tick to put
    /// the vCPU that runs there on the list of active ones, and another to find it a better pCPU; an
    /// accounting between the two may take it off the list again: three ticks, until the next one has the
    /// pCPU. If the vCPU that runs there may not leave, or a vCPU waits because another one preempted it or
    /// it yielded, Xen tickles no pCPU: this is why affinities are equal or disjoint here as well.
    #[test]
    fn work_is_conserved_after_coincidences(
        mut scenario in prop_oneof![busy_scenario(uneven_span), busy_scenario(round_span)],
        pinned: bool,
        seed: u64,
    ) {
        if pinned {
            pin_to_nodes(&mut scenario);
        }
        let run = follow(&scenario, seed)?;
        let bound_ns = credit(&scenario).timeslice_ns * (run.lives.len() as u64 - 1);
        let longest_ns = longest_idle_beside_waiting_ns(&scenario, &run);
        prop_assert!(longest_ns <= bound_ns, "{longest_ns} ns instead of at most {bound_ns} ns");
    }

    /// No task is lost: with equal weights, each vCPU runs again after every other one has had a timeslice,
    /// plus the few timeslices that it takes to pay back credit.
    #[test]
    fn nobody_starves(
        mut scenario in prop_oneof![busy_scenario(uneven_span), busy_scenario(round_span)],
        seed: u64,
    ) {
        set_credit(&mut scenario, |settings| settings.timeslice_ns = settings.timeslice_ns.min(5 * MS));
        scenario.workloads.iter_mut().for_each(|vm| vm.weight = 256);
        let run = follow(&scenario, seed)?;
        let bound_ns = (run.lives.len() as u64 + 8) * credit(&scenario).timeslice_ns;
        for wait in run.lives.iter().flat_map(|life| life.while_doing(Doing::Waits)) {
            prop_assert!(wait.to_ns - wait.from_ns <= bound_ns, "{wait:?}, but not for {bound_ns} ns");
        }
    }

    /// Common random numbers: under all settings of the policy, each task draws the same amounts of work and
    /// sleep, and requests arrive at the same times.
    #[test]
    fn settings_change_no_draw(mut scenario in busy_scenario(uneven_span), other in settings(), seed: u64) {
        if scenario.machine.cpu_count() == 1 {
            return Ok(()); // no pCPU to spare
        }
        add_listener(&mut scenario);
        let before = follow(&scenario, seed)?.lives;
        scenario.policy = PolicySettings::Credit(other);
        let after = follow(&scenario, seed)?.lives;
        let listener = before.len() - 1;
        for (before, after) in before[..listener].iter().zip(&after) {
            for (before, after) in rounds(before).into_iter().zip(rounds(after)) {
                prop_assert_eq!(before, after);
            }
        }
        let arrivals = |life: &Life| life.while_doing(Doing::Waits).map(|s| s.from_ns).collect::<Vec<_>>();
        prop_assert_eq!(arrivals(&before[listener]), arrivals(&after[listener]));
    }

    /// The seed determines every random choice, and nothing else.
    #[test]
    fn seeds_matter_where_there_is_chance(
        random in busy_scenario(uneven_span),
        fixed in busy_scenario(round_span),
        seed: u64,
    ) {
        let hash = |scenario, seed| run(scenario, seed).unwrap().trace_hash;
        let other = seed.wrapping_add(1);
        prop_assert_ne!(hash(&random, seed), hash(&random, other));
        prop_assert_eq!(hash(&fixed, seed), hash(&fixed, other));
    }
}
