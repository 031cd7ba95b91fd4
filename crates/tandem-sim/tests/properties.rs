//! What holds for every scenario, whatever it is.

mod common;

use common::follow::{Doing, Life, lives};
use common::random::{scenario, some_cases};
use common::*;
use proptest::collection::vec;
use proptest::prelude::*;
use tandem_sim::cpumask::CpuMask;
use tandem_sim::ids::VmId;
use tandem_sim::machine::cost::CostModels;
use tandem_sim::metrics::RunMetrics;
use tandem_sim::scenario::Scenario;
use tandem_sim::trace::Event;
use tandem_sim::{run, run_observed};

/// An observer that keeps all events outside the run.
struct Keep<'a>(&'a mut Vec<Event>);

impl tandem_sim::trace::Observer for Keep<'_> {
    fn observe(&mut self, event: Event) {
        self.0.push(event);
    }
}

/// A run, what it measured, and the lives of its tasks.
struct Followed {
    metrics: RunMetrics,
    lives: Vec<Life>,
    end_ns: u64,
}

impl Followed {
    /// The life of each vCPU, with its VM and its number there.
    fn vcpus(&self) -> impl Iterator<Item = (VmId, usize, &Life)> {
        self.lives.iter().enumerate().map(|(at, life)| {
            let first = self.lives.partition_point(|other| other.vm < life.vm);
            (life.vm, at - first, life)
        })
    }
}

fn follow(scenario: &Scenario, seed: u64) -> Result<Followed, TestCaseError> {
    let mut events = Vec::new();
    let metrics = run_observed(scenario, seed, Keep(&mut events)).unwrap();
    let end_ns = scenario.warmup_ns + metrics.length_ns;
    let lives = lives(scenario, &events, end_ns).map_err(TestCaseError::fail)?;
    Ok(Followed { metrics, lives, end_ns })
}

/// The hard affinities of a vCPU and since when each counts.
fn affinities(scenario: &Scenario, vm: VmId, vcpu: usize) -> Vec<(u64, &CpuMask)> {
    let vm = &scenario.vms[vm.index()];
    let first = (0, &*vm.vcpus[vcpu].hard_affinity);
    let changes = vm.affinity_changes.iter().map(|change| (change.at_ns, &*change.hard_affinity));
    std::iter::once(first).chain(changes).collect()
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
            prop_assert_eq!(vcpu.run_ns + vcpu.wait_ns + vcpu.sleep_ns, metrics.length_ns);
            prop_assert!(vcpu.local_run_ns <= vcpu.run_ns);
        }
        if scenario.costs == CostModels::off() {
            prop_assert_eq!(host.overhead_ns, 0);
        }
    }

    /// Events follow on each other, no CPU has two tasks, and a task starts only where it may run; after a change
    /// of its affinity it is gone at once with costs off, else after an IPI and what the host is doing there.
    #[test]
    fn tasks_live_by_the_rules(scenario in scenario(), seed: u64) {
        let run = follow(&scenario, seed)?;
        let grace_ns = if scenario.costs == CostModels::off() { 0 } else { MS };
        for (vm, vcpu, life) in run.vcpus() {
            let affinities = affinities(&scenario, vm, vcpu);
            for stretch in &life.stretches {
                let Doing::RunsOn(cpu) = stretch.doing else { continue };
                for (at, &(from_ns, mask)) in affinities.iter().enumerate() {
                    let until_ns = affinities.get(at + 1).map_or(run.end_ns, |(next_ns, _)| *next_ns);
                    let runs_until_ns = stretch.to_ns.min(until_ns);
                    let too_long = runs_until_ns > stretch.from_ns.max(from_ns) + grace_ns;
                    let started = from_ns < stretch.from_ns && stretch.from_ns < until_ns;
                    prop_assert!(
                        mask.contains(cpu) || !(started || too_long),
                        "vCPU {} of {:?}: {:?} outside {:?} of {} ns", vcpu, vm, stretch, mask, from_ns
                    );
                }
            }
        }
    }

    /// What was measured of each vCPU is what its events tell; the host's own code takes from the time to run.
    #[test]
    fn measurements_agree_with_events(scenario in scenario(), seed: u64) {
        let run = follow(&scenario, seed)?;
        let measured = |life: &Life, is_meant: fn(Doing) -> bool| {
            life.time_ns(scenario.warmup_ns, run.end_ns, is_meant)
        };
        for (vm, vcpu, life) in run.vcpus() {
            let metrics = &run.metrics.vms[vm.index()].vcpus[vcpu];
            let on_cpu_ns = measured(life, |doing| matches!(doing, Doing::RunsOn(_)));
            let asleep_ns = measured(life, |doing| matches!(doing, Doing::Sleeps | Doing::HasEnded));
            prop_assert_eq!(metrics.sleep_ns, asleep_ns);
            prop_assert!(metrics.run_ns <= on_cpu_ns);
            if scenario.costs == CostModels::off() {
                prop_assert_eq!(metrics.run_ns, on_cpu_ns);
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

    /// Whether someone follows a run or not makes no difference to it.
    #[test]
    fn observing_changes_nothing(scenario in scenario(), seed: u64) {
        prop_assert_eq!(follow(&scenario, seed)?.metrics, run(&scenario, seed).unwrap());
    }
}
