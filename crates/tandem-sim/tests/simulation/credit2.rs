//! Properties of the credit2 scheduler with costs off.

use crate::common::follow::{Doing, Life, follow, longest_idle_beside_waiting_ns};
use crate::common::random::{some_cases, uneven_span};
use crate::common::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Arc;
use tandem_machine::{Machine, MachineBuilder};
use tandem_sim::policy::credit::CreditSettings;
use tandem_sim::policy::credit2::{Credit2Settings, Release, Sharing};
use tandem_sim::program::{Amount, Op};
use tandem_sim::run;
use tandem_sim::scenario::{PolicySettings, Scenario, Workload};

const SECOND: u64 = 1_000 * MS;

fn releases() -> impl Strategy<Value = Release> {
    select(vec![Release::Xen4_12, Release::Xen4_14, Release::Xen4_17, Release::Xen4_20])
}

/// Settings with one run queue for all CPUs.
fn one_queue(release: Release, ratelimit_ns: u64) -> Credit2Settings {
    Credit2Settings { release, ratelimit_ns, sharing: Sharing::All, ..Credit2Settings::default() }
}

fn of_credit2(settings: Credit2Settings, machine: &Arc<Machine>, vms: Vec<Workload>) -> Scenario {
    let credit = CreditSettings::default();
    Scenario {
        policy: PolicySettings::Credit2(settings),
        ..textbook(Arc::clone(machine), credit, 10 * SECOND, vms)
    }
}

/// VMs whose vCPUs compute all the time, after having slept for a moment of their own.
fn hogs(machine: &Machine, vcpus: usize, weights: &[u32]) -> Vec<Workload> {
    let hogs = (0..).zip(weights).map(|(at, &weight)| {
        let ops = [vec![sleep(at * 777 * US)], hog()].concat();
        Workload { weight, ..vm(&format!("vm{at}"), machine, vcpus, ops) }
    });
    hogs.collect()
}

/// CPU time of each VM as a part of the whole run.
fn shares(scenario: &Scenario) -> Vec<f64> {
    let metrics = run(scenario, 1).unwrap();
    let run_ns = |vm: &tandem_sim::metrics::VmMetrics| vm.vcpus.iter().map(|vcpu| vcpu.run_ns).sum::<u64>();
    metrics.vms.iter().map(|vm| run_ns(vm) as f64 / metrics.length_ns as f64).collect()
}

/// vCPUs that compute and sleep in turn.
fn restless(machine: &Machine, rounds: &[(Amount, Amount)]) -> Vec<Workload> {
    let vms = rounds.iter().enumerate().map(|(at, &(work, pause))| {
        let body = vec![Op::Compute { work, profile: None }, Op::Sleep(pause)];
        vm(&format!("vm{at}"), machine, 1, forever(body))
    });
    vms.collect()
}

fn rounds() -> impl Strategy<Value = Vec<(Amount, Amount)>> {
    vec((uneven_span(), uneven_span()), 1..10)
}

/// Lengths of the runs that another vCPU ended.
fn preempted_ns(life: &Life) -> Vec<u64> {
    let pairs = life.stretches.windows(2);
    let preempted = pairs
        .filter(|pair| matches!(pair[0].doing, Doing::RunsOn(_)) && matches!(pair[1].doing, Doing::Waits));
    preempted.map(|pair| pair[0].to_ns - pair[0].from_ns).collect()
}

proptest! {
    #![proptest_config(some_cases())]

    /// Weights that differ by no more than a factor of 8 share CPUs in proportion. With a larger one, a turn
    /// of the rate limit's length costs the lightest vCPU more credit than its debt may hold.
    #[test]
    fn weights_are_respected(
        cpus in 1u32..5, weights in vec(128u32..=1024, 2..4), release in releases(), ratelimit in any::<bool>(),
    ) {
        let machine = cores(cpus);
        let settings = one_queue(release, if ratelimit { MS } else { 0 });
        let mut scenario = of_credit2(settings, &machine, hogs(&machine, cpus as usize, &weights));
        scenario.warmup_ns = SECOND;
        let total: u32 = weights.iter().sum();
        for (share, &weight) in shares(&scenario).into_iter().zip(&weights) {
            let expected = f64::from(cpus * weight) / f64::from(total);
            prop_assert!((share - expected).abs() <= 0.02 * f64::from(cpus), "{share} instead of {expected}");
        }
    }

    /// A capped VM gets its cap, and no more, if nothing else wants to run.
    #[test]
    fn a_cap_holds(cpus in 1u32..4, vcpus in 1usize..4, part in 5u32..=100, period_ms in 2u64..50) {
        let machine = cores(cpus);
        let vcpus = vcpus.min(cpus as usize);
        let cap_pct = part * vcpus as u32;
        let settings = Credit2Settings { cap_period_ns: period_ms * MS, ..Credit2Settings::default() };
        let mut vms = hogs(&machine, vcpus, &[256]);
        vm_of(&mut vms[0]).cap_pct = cap_pct;
        let share = shares(&of_credit2(settings, &machine, vms))[0];
        let cap = f64::from(cap_pct) / 100.0;
        prop_assert!(share <= cap + 0.01, "{share} of at most {cap}");
        prop_assert!(share >= 0.95 * cap - 0.01, "{share} of {cap}");
    }

    /// Work conservation within a run queue: no CPU idles for longer than another one takes to decide.
    #[test]
    fn work_is_conserved_within_a_queue(
        cpus in 1u32..5, rounds in rounds(), release in releases(), seed: u64,
    ) {
        let machine = cores(cpus);
        let scenario = Scenario {
            length_ns: 300 * MS,
            ..of_credit2(one_queue(release, MS), &machine, restless(&machine, &rounds))
        };
        let longest_ns = longest_idle_beside_waiting_ns(&scenario, &follow(&scenario, seed)?);
        prop_assert_eq!(longest_ns, 0);
    }

    /// Nothing is preempted before the rate limit is over.
    #[test]
    fn the_rate_limit_is_the_shortest_run(
        cpus in 1u32..5, rounds in rounds(), release in releases(), ratelimit_us in 100u64..8_000, seed: u64,
    ) {
        let machine = cores(cpus);
        let limit_ns = ratelimit_us * US;
        let scenario = Scenario {
            length_ns: 300 * MS,
            ..of_credit2(one_queue(release, limit_ns), &machine, restless(&machine, &rounds))
        };
        for life in &follow(&scenario, seed)?.lives {
            let shortest_ns = preempted_ns(life).into_iter().min();
            prop_assert!(shortest_ns.is_none_or(|ns| ns >= limit_ns), "{shortest_ns:?} ns");
        }
    }

    /// With equal weights, each vCPU that waits runs after every other one has had a few longest turns.
    #[test]
    fn nobody_starves(
        cpus in 1u32..5, rounds in rounds(), release in releases(), sharing in select(vec![Sharing::Cpu, Sharing::All]),
        seed: u64,
    ) {
        let machine = cores(cpus);
        let settings = Credit2Settings { sharing, ..one_queue(release, MS) };
        let scenario =
            Scenario { length_ns: 500 * MS, ..of_credit2(settings, &machine, restless(&machine, &rounds)) };
        let bound_ns = (rounds.len() as u64 + 2) * 10 * MS;
        for life in &follow(&scenario, seed)?.lives {
            for wait in life.while_doing(Doing::Waits) {
                prop_assert!(wait.to_ns - wait.from_ns <= bound_ns, "{wait:?}, but not for {bound_ns} ns");
            }
        }
    }
}

/// Four vCPUs of equal weight on two sockets of two CPUs: each socket's run queue ends up with two, wherever
/// they began.
#[test]
fn load_is_balanced_between_queues() {
    let machine = Arc::new(MachineBuilder::symmetric(2, 2, 1).build().unwrap());
    let mut scenario = of_credit2(Credit2Settings::default(), &machine, hogs(&machine, 1, &[256; 4]));
    scenario.warmup_ns = 3 * SECOND;
    for share in shares(&scenario) {
        assert!(share > 0.999, "{share}");
    }
}

/// Five such vCPUs share four CPUs: queues are balanced by load, so that two of the sockets' vCPUs change
/// places time and again, and no one gets less than two thirds.
#[test]
fn an_odd_vcpu_is_passed_around() {
    let machine = Arc::new(MachineBuilder::symmetric(2, 2, 1).build().unwrap());
    let mut scenario = of_credit2(Credit2Settings::default(), &machine, hogs(&machine, 1, &[256; 5]));
    scenario.warmup_ns = 3 * SECOND;
    let metrics = run(&scenario, 1).unwrap();
    assert!(metrics.host.idle_ns < SECOND / 20, "only while it is passed on");
    for share in shares(&scenario) {
        assert!((0.64..=1.0).contains(&share), "{share}");
    }
}
