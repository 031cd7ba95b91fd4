//! Properties of every scenario.
//!
//! `PROPTEST_CASES` sets the length of the search: by default it tries each property with 64 scenarios.

use crate::common::MS;
use crate::common::follow::{Doing, Life, follow};
use crate::common::random::{scenario, some_cases};
use proptest::collection::vec;
use proptest::prelude::*;
use tandem_machine::cpumask::CpuMask;
use tandem_sim::cost::CostModels;
use tandem_sim::metrics::RunMetrics;
use tandem_sim::run;
use tandem_sim::scenario::Scenario;

/// The hard affinities of a vCPU, each with the time that it counts for.
fn affinities<'a>(scenario: &'a Scenario, life: &Life) -> Vec<(u64, u64, &'a CpuMask)> {
    let changes = scenario.workloads[life.vm.index()].affinity_changes.iter();
    let changes = changes.filter(|change| change.tasks.contains(life.vcpu));
    let masks = changes.clone().map(|change| (change.at_ns, &*change.affinity.hard));
    let masks = std::iter::once((0, &*life.affinity(scenario).hard)).chain(masks);
    let ends = changes.map(|change| change.at_ns).chain([u64::MAX]);
    masks.zip(ends).map(|((from_ns, mask), to_ns)| (from_ns, to_ns, mask)).collect()
}

proptest! {
    #![proptest_config(some_cases())]

    /// Each pCPU is busy, idle, or in the host's code at every instant, and nothing is counted twice.
    #[test]
    fn time_is_conserved(scenario in scenario(), seed: u64) {
        let metrics = run(&scenario, seed).unwrap();
        let host = &metrics.host;
        prop_assert_eq!(
            host.busy_ns + host.idle_ns + host.overhead_ns,
            host.pcpus as u64 * metrics.length_ns
        );
        let vcpus = metrics.vms.iter().flat_map(|vm| &vm.vcpus);
        prop_assert_eq!(vcpus.clone().map(|vcpu| vcpu.run_ns).sum::<u64>(), host.busy_ns);
        for vcpu in vcpus {
            prop_assert!(vcpu.run_ns + vcpu.wait_ns + vcpu.sleep_ns <= metrics.length_ns);
            prop_assert!(vcpu.local_run_ns <= vcpu.run_ns);
        }
        if scenario.costs == CostModels::off() {
            prop_assert_eq!(host.overhead_ns, 0);
        }
    }

    /// Time never goes back, events can follow each other, and no CPU has two tasks.
    #[test]
    fn tasks_live_by_the_rules(scenario in scenario(), seed: u64) {
        follow(&scenario, seed)?;
    }

    /// A task starts only where it may run. After a change of its affinity it leaves at once with costs off,
    /// else after an IPI and the host's present work there.
    #[test]
    fn hard_affinity_is_kept(scenario in scenario(), seed: u64) {
        let run = follow(&scenario, seed)?;
        let grace_ns = if scenario.costs == CostModels::off() { 0 } else { MS };
        for life in &run.lives {
            let affinities = affinities(&scenario, life);
            for stretch in &life.stretches {
                let Doing::RunsOn(cpu) = stretch.doing else { continue };
                for &(from_ns, to_ns, mask) in &affinities {
                    let starts = from_ns < stretch.from_ns && stretch.from_ns < to_ns;
                    let stays = stretch.from_ns.max(from_ns) + grace_ns < stretch.to_ns.min(to_ns);
                    prop_assert!(
                        mask.contains(cpu) || !(starts || stays),
                        "vCPU {} of {:?} outside its affinity of {from_ns} ns: {stretch:?}", life.vcpu, life.vm
                    );
                }
            }
        }
    }

    /// The same seed gives the same run: again, and beside others on another thread.
    #[test]
    fn runs_repeat_on_any_number_of_threads(scenarios in vec(scenario(), 2..5), seed: u64) {
        let run_each = |scenarios: &[Scenario]| -> Vec<RunMetrics> {
            scenarios.iter().map(|scenario| run(scenario, seed).unwrap()).collect()
        };
        let alone = run_each(&scenarios);
        prop_assert_eq!(&run_each(&scenarios), &alone);
        let (left, right) = scenarios.split_at(scenarios.len() / 2);
        let on_two_threads = std::thread::scope(|scope| {
            let other = scope.spawn(|| run_each(right));
            [run_each(left), other.join().unwrap()].concat()
        });
        prop_assert_eq!(on_two_threads, alone);
    }

    /// An observer makes no difference to a run.
    #[test]
    fn observing_changes_nothing(scenario in scenario(), seed: u64) {
        prop_assert_eq!(follow(&scenario, seed)?.metrics, run(&scenario, seed).unwrap());
    }
}
