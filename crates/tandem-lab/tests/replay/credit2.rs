//! The credit2 scheduler.
//!
//! Goals are missed in three cases. Where vCPUs of *two* pCPUs share a run queue, whether a turn is long, or
//! two vCPUs change places, depends on what the other pCPU does at that moment, and so on the phase between
//! the two, which no recording of demand holds: shares with a rate limit of 1 ms, and switches with unequal
//! weights in a pool. Without a rate limit, shares depend on the latency of each wake-up, of which the replay
//! has only the mean.

use super::*;
use tandem_sim::policy::credit2::{Credit2Settings, Release};

/// Allowed difference of a share of a pCPU from Xen's: a point.
const SHARE: f64 = 0.01;
/// The differences that there are where that goal is missed: without a rate limit, and with one of 1 ms.
const SHARE_MISSED: f64 = 0.015;
const SHARE_MISSED_FAR: f64 = 0.06;
/// The relative difference of switches where their goal is missed.
const SWITCHES_MISSED: f64 = 0.11;

fn credit2(ratelimit_ns: u64) -> PolicySettings {
    PolicySettings::Credit2(Credit2Settings {
        release: Release::Xen4_17,
        ratelimit_ns,
        ..Credit2Settings::default()
    })
}

/// The first vCPUs of A and B on pCPU 4, the second ones on 1: in run queues of their own.
fn apart(key: VcpuKey) -> Affinity {
    match (key.domain, key.vcpu) {
        (DOM0, _) => on(0..=0),
        (_, 0) => on(4..=4),
        _ => on(1..=1),
    }
}

impl Replay {
    fn assert_switches(&self) {
        assert_loosely("switches", self.switches(), self.xen.switches);
    }

    fn assert_shares(&self, tolerance: f64) {
        for vcpu in self.xen.vcpus.iter().filter(|vcpu| vcpu.domain != DOM0) {
            let key = VcpuKey { domain: vcpu.domain, vcpu: vcpu.vcpu };
            let share = |run_ns: u64| run_ns as f64 / self.xen.length_ns as f64;
            let (model, xen) = (share(self.run_ns(key)), share(vcpu.run_ns));
            println!("share of {key:?}: model {model:.4}, Xen {xen:.4}");
            assert!((model - xen).abs() <= tolerance, "share of {key:?}: {model:.4}, and {xen:.4} in Xen");
        }
    }

    /// The shortest run of A that another vCPU ended is exactly as long as the rate limit; that in Xen is no
    /// shorter.
    fn assert_shortest_run(&self, limit_ns: u64) {
        let runs = self.tasks(A).into_iter().flat_map(|task| self.runs(task));
        let preempted = runs.filter(|run| run.3 == EventKind::Preempt && run.1 > 0);
        assert_eq!(preempted.map(|(_, start_ns, end_ns, _)| end_ns - start_ns).min(), Some(limit_ns));
        assert!(self.xen_vcpus(A).all(|vcpu| vcpu.preempted_run_min_ns.unwrap() >= limit_ns));
    }
}

#[test]
fn without_a_rate_limit() {
    let replay = replay(&Plan::new("credit2.r0", credit2(0), &pinned_pairs));
    replay.assert_switches();
    replay.assert_shares(SHARE_MISSED);
}

#[test]
fn with_a_rate_limit_of_1_ms() {
    let replay = replay(&Plan::new("credit2.r1000", credit2(1_000_000), &pinned_pairs));
    replay.assert_switches();
    replay.assert_shares(SHARE_MISSED_FAR);
    replay.assert_shortest_run(1_000_000);
}

#[test]
fn with_a_rate_limit_of_5_ms() {
    let replay = replay(&Plan::new("credit2.r5000", credit2(5_000_000), &pinned_pairs));
    replay.assert_switches();
    replay.assert_shares(SHARE);
    replay.assert_shortest_run(5_000_000);
}

#[test]
fn without_a_rate_limit_in_queues_of_their_own() {
    let replay = replay(&Plan::new("credit2.apart.r0", credit2(0), &apart));
    replay.assert_switches();
    replay.assert_shares(SHARE_MISSED);
}

/// A sleeper of such a queue waits for a whole turn of 10 ms: the rate limit holds when it wakes up, and
/// nothing asks again.
#[test]
fn with_a_rate_limit_in_queues_of_their_own() {
    for (trace, ratelimit_ns) in [("credit2.apart.r1000", 1_000_000), ("credit2.apart.r5000", 5_000_000)] {
        let replay = replay(&Plan::new(trace, credit2(ratelimit_ns), &apart));
        replay.assert_switches();
        replay.assert_shares(SHARE);
    }
}

#[test]
fn a_cap_of_40() {
    let plan = Plan::new("credit2.cap", credit2(1_000_000), &pinned_pairs);
    let replay = replay(&Plan { share: |domain| (256, if domain == A { 40 } else { 0 }), ..plan });
    replay.assert_switches();
    replay.assert_shares(SHARE);
}

#[test]
fn weights_of_pinned_vcpus() {
    let plan = Plan::new("credit2.wpin", credit2(1_000_000), &pinned_pairs);
    let replay = replay(&Plan { share: |domain| (if domain == C { 1024 } else { 256 }, 0), ..plan });
    replay.assert_switches();
    replay.assert_shares(SHARE);
    replay.assert_shortest_run(1_000_000);
}

/// A and C in a pool of pCPUs 4 and 5, and so in one run queue.
fn in_pool(trace: &str, share: fn(u32) -> (u32, u32)) -> Replay {
    let pool = |key: VcpuKey| match key.domain {
        DOM0 => on(0..=0),
        _ => on(4..=5),
    };
    let replay = replay(&Plan { share, ..Plan::new(trace, credit2(1_000_000), &pool) });
    replay.assert_shares(SHARE);
    let shortest_ns = replay.xen_vcpus(A).map(|vcpu| vcpu.preempted_run_min_ns.unwrap()).min();
    assert!(shortest_ns >= Some(1_000_000));
    replay
}

#[test]
fn equal_weights_in_a_pool() {
    in_pool("credit2.w1", |_| (256, 0)).assert_switches();
}

#[test]
fn weights_in_a_pool() {
    let twice = in_pool("credit2.w2", |domain| (if domain == C { 512 } else { 256 }, 0));
    let four_times = in_pool("credit2.w4", |domain| (if domain == C { 1024 } else { 256 }, 0));
    for replay in [twice, four_times] {
        let ratio = replay.switches() as f64 / replay.xen.switches as f64;
        println!("switches in a pool: {ratio:.4}");
        assert!((ratio - 1.0).abs() <= SWITCHES_MISSED);
    }
}

/// A is set free and prefers the other node: both vCPUs go there at once, and then balancing, which looks at
/// hard affinity only, pulls one of them back, where it stays. Which one it is, is a matter of chance.
fn set_free(trace: &str, was: RangeInclusive<u32>, prefers: RangeInclusive<u32>, at_ns: [u64; 2]) {
    let pinned = |key: VcpuKey| match key.domain {
        DOM0 => on(0..=0),
        _ => on(was.clone()),
    };
    let change = |vcpu: usize| {
        let affinity = preferring(1..=5, prefers.clone());
        (
            VcpuKey { domain: A, vcpu: vcpu as u32 },
            AffinityChange { at_ns: at_ns[vcpu], tasks: Which::All, affinity },
        )
    };
    let changes = (0..2).map(change).collect();
    let replay = replay(&Plan { changes, ..Plan::new(trace, credit2(1_000_000), &pinned) });
    let mut ends = Vec::new();
    for (task, since_ns) in replay.tasks(A).into_iter().zip(at_ns) {
        let starts = replay.starts_since(task, since_ns);
        let (first_ns, first) = starts[0];
        assert!(prefers.contains(&first) && first_ns - since_ns < 1_000_000, "{starts:?}");
        let &(last_ns, last) = starts.last().unwrap();
        assert!(last_ns - since_ns < 20_000_000, "it settles: {starts:?}");
        ends.push(prefers.contains(&last));
    }
    ends.sort_unstable();
    assert_eq!(ends, [false, true], "one is pulled back");
    let xen = replay.xen_vcpus(A).map(|vcpu| prefers.contains(vcpu.pcpus.last().unwrap()));
    let mut xen: Vec<bool> = xen.collect();
    xen.sort_unstable();
    assert_eq!(xen, ends, "as in Xen");
}

#[test]
fn soft_affinity_of_the_first_node() {
    set_free("credit2.soft.n0", 4..=5, 1..=2, [1_074_262_000, 1_074_396_000]);
}

#[test]
fn soft_affinity_of_the_second_node() {
    set_free("credit2.soft.n1", 1..=2, 4..=5, [1_059_446_000, 1_059_571_000]);
}

#[test]
fn soft_affinity_spills_over() {
    let affinity = |key: VcpuKey| match key.domain {
        DOM0 => on(0..=0),
        _ => preferring(1..=5, 4..=5),
    };
    let replay = replay(&Plan::new("credit2.soft.spill", credit2(1_000_000), &affinity));
    replay.assert_switches();
    replay.assert_shares(SHARE);
}
