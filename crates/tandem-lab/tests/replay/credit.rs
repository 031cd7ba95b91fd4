//! The credit scheduler.

use super::*;
use tandem_sim::policy::credit::{CreditSettings, Era};

/// Time at which A's hard affinity was removed, in `credit.soft.n0`, ns.
const SET_FREE_NS: u64 = 1_063_600_000;

fn credit(ratelimit_ns: u64) -> PolicySettings {
    PolicySettings::Credit(CreditSettings { era: Era::Xen4_13, ratelimit_ns, ..CreditSettings::default() })
}

#[test]
fn without_a_rate_limit() {
    let replay = replay(&Plan::new("credit.r0", credit(0), &pinned_pairs));
    assert_loosely("switches", replay.switches(), replay.xen.switches);
    replay.assert_run_times();
    assert_eq!(replay.metrics.host.policy["ratelimited"], 0);
    for (task, xen) in replay.tasks(A).into_iter().zip(replay.xen_vcpus(A)) {
        let preempted = replay.runs(task).iter().filter(|run| run.3 == EventKind::Preempt).count();
        assert_loosely("preemptions of A", preempted as u64, xen.preemptions);
    }
}

#[test]
fn with_a_rate_limit_of_a_millisecond() {
    const LIMIT_NS: u64 = 1_000_000;
    let replay = replay(&Plan::new("credit.r1000", credit(LIMIT_NS), &pinned_pairs));
    assert_loosely("switches", replay.switches(), replay.xen.switches);
    assert_loosely("held back", replay.metrics.host.policy["ratelimited"], replay.xen.rate_limited);
    replay.assert_run_times();
    for task in replay.tasks(A) {
        let runs = replay.runs(task);
        let preempted = || runs.iter().filter(|run| run.3 == EventKind::Preempt);
        assert!(preempted().count() > 1_000);
        assert!(preempted().all(|&(_, start_ns, end_ns, _)| end_ns - start_ns >= LIMIT_NS));
        // Held back first, preempted when the limit is over: never the other way round, unless the slice
        // ends.
        let mut held = 0;
        let mut started_ns = 0;
        for event in replay.events.iter().filter(|event| event.task == task) {
            match event.kind {
                EventKind::Start => started_ns = event.at_ns,
                EventKind::Continue => held += 1,
                EventKind::Preempt => {
                    let whole_slice = event.at_ns - started_ns >= CreditSettings::default().timeslice_ns;
                    assert!(
                        held > 0 || whole_slice,
                        "preempted at {} ns without having been held back",
                        event.at_ns
                    );
                    held = 0;
                }
                _ => {}
            }
        }
    }
}

/// A's two vCPUs are no longer bound to node 1, and prefer two pCPUs of node 0: both go there and stay.
#[test]
fn soft_affinity_moves_running_vcpus() {
    let pinned = |key: VcpuKey| match key.domain {
        DOM0 => on(0..=0),
        _ => on(4..=5),
    };
    let replay = replay(&Plan {
        changes: (0..2)
            .map(|vcpu| {
                let change = AffinityChange {
                    at_ns: SET_FREE_NS,
                    tasks: Which::All,
                    affinity: preferring(1..=5, 1..=2),
                };
                (VcpuKey { domain: A, vcpu }, change)
            })
            .collect(),
        ..Plan::new("credit.soft.n0", credit(1_000_000), &pinned)
    });
    let tasks = replay.tasks(A);
    let after: Vec<BTreeSet<u32>> = tasks.iter().map(|&task| replay.pcpus_since(task, SET_FREE_NS)).collect();
    let all: BTreeSet<u32> = after.iter().flatten().copied().collect();
    assert!(after.iter().all(|pcpus| pcpus.len() == 1), "each moves once: {after:?}");
    assert_eq!(all, BTreeSet::from([1, 2]), "to the pCPUs they prefer: {after:?}");
    let moved_ns =
        replay.events.iter().filter(|event| event.kind == EventKind::Start && tasks.contains(&event.task));
    let last_ns = moved_ns.map(|event| event.at_ns).max().unwrap();
    assert!(last_ns - SET_FREE_NS < 1_000_000, "within a millisecond, as Xen did");
}

/// Four vCPUs prefer two pCPUs: two get one each and keep it, the others find one each elsewhere.
#[test]
fn soft_affinity_spills_over() {
    let affinity = |key: VcpuKey| match key.domain {
        DOM0 => on(0..=0),
        _ => preferring(1..=5, 4..=5),
    };
    let replay = replay(&Plan::new("credit.soft.spill", credit(1_000_000), &affinity));
    // Where B began is not recorded: the model may have to move it once, at a tick.
    let settled_ns = 500_000_000;
    for task in replay.tasks(A) {
        let preemptions =
            replay.events.iter().filter(|event| event.task == task && event.kind == EventKind::Preempt);
        assert_eq!(preemptions.count(), 0, "A computes all the time and keeps its pCPU");
        let start = replay.events.iter().find(|event| event.task == task && event.kind == EventKind::Start);
        assert!(cpus(4..=5).contains(start.unwrap().cpu), "the one that it prefers");
    }
    let b: Vec<BTreeSet<u32>> =
        replay.tasks(B).iter().map(|&task| replay.pcpus_since(task, settled_ns)).collect();
    let all: BTreeSet<u32> = b.iter().flatten().copied().collect();
    assert!(b.iter().all(|pcpus| pcpus.len() == 1) && all.len() == 2, "each keeps one of its own: {b:?}");
    assert!(all.iter().all(|pcpu| (1..=3).contains(pcpu)), "outside the full soft set: {b:?}");
    replay.assert_run_times();
}

/// A and C compute on pCPUs 4 and 5, with weights 256 and 1024. All vCPUs are pinned, so that the weights do
/// nothing: each gets half of its pCPU.
#[test]
fn weights_of_pinned_vcpus() {
    let plan = Plan::new("credit.wpin", credit(1_000_000), &pinned_pairs);
    let replay = replay(&Plan { share: |domain| (if domain == C { 1024 } else { 256 }, 0), ..plan });
    assert_loosely("switches", replay.switches(), replay.xen.switches);
    replay.assert_run_times();
    let length_ns = replay.xen.length_ns as f64;
    for vcpu in replay.xen_vcpus(A).chain(replay.xen_vcpus(C)) {
        assert!((vcpu.run_ns as f64 / length_ns - 0.5).abs() < 0.01, "in Xen itself: {vcpu:?}");
    }
}

#[test]
fn a_cap_of_40() {
    let plan = Plan::new("credit.cap", credit(1_000_000), &pinned_pairs);
    let replay = replay(&Plan { share: |domain| (256, if domain == A { 40 } else { 0 }), ..plan });
    assert_loosely("switches", replay.switches(), replay.xen.switches);
    replay.assert_run_times();
}
