//! Groups of tasks: their shares of CPUs, their slices, and who preempts whom.

use super::*;
use crate::policy::VmFacts;
use crate::scenario::{BandwidthLimit, Cgroup, CgroupName};

/// A cgroup of this `cpu.weight` below another one, or the root.
pub(super) fn cgroup(parent: Option<usize>, weight: u32) -> Cgroup {
    Cgroup { path: String::from("of a test"), parent, weight, limit: None }
}

/// Tasks that are in a cgroup, or the root.
pub(super) fn in_cgroup(cgroup: Option<usize>) -> VmFacts {
    VmFacts { weight: VmFacts::USUAL_WEIGHT, cap_pct: 0, is_cgroup: false, cgroup }
}

/// A task of a test: where it is, what it weighs, and the CPU that it is pinned to.
#[derive(Clone, Copy, Debug)]
struct Hog {
    cgroup: Option<usize>,
    weight: u32,
    cpu: u32,
}

/// A machine on which these hogs run in these cgroups.
fn hogs(era: LinuxEra, cpus: u32, cgroups: &[Cgroup], hogs: &[Hog]) -> Hand {
    let weights: Vec<u32> = hogs.iter().map(|hog| hog.weight).collect();
    let sets: Vec<VmFacts> = hogs.iter().map(|hog| in_cgroup(hog.cgroup)).collect();
    let mut hand = Hand::grouped(era, cpus, &weights, &sets, cgroups);
    for (task, hog) in (0..).zip(hogs) {
        hand.pin(task, CpuId(hog.cpu));
        hand.enqueue(task, CpuId(hog.cpu), Reason::Start);
    }
    hand
}

/// What each hog should get of its CPU, in 1000ths: top down by the weights of what stands side by side
/// there, where a group weighs its shares times its weight there by that on all CPUs.
fn expected_permille(cgroups: &[Cgroup], hogs: &[Hog]) -> Vec<f64> {
    let cpus = 1 + hogs.iter().map(|hog| hog.cpu).max().unwrap() as usize;
    // By cgroup and CPU: what stands in its queue weighs, bottom up, as children come after their parents.
    let mut inside = vec![vec![0.0; cpus]; cgroups.len()];
    let mut root = vec![0.0; cpus];
    for hog in hogs {
        let of = hog.cgroup.map_or(&mut root, |at| &mut inside[at]);
        of[hog.cpu as usize] += f64::from(hog.weight);
    }
    let mut weights = vec![vec![0.0; cpus]; cgroups.len()];
    for (at, cgroup) in cgroups.iter().enumerate().rev() {
        let total: f64 = inside[at].iter().sum();
        for cpu in 0..cpus {
            let weight = match total {
                0.0 => 0.0,
                total => (f64::from(cgroup.weight) * 10.24).round() * inside[at][cpu] / total,
            };
            weights[at][cpu] = weight;
            cgroup.parent.map_or(&mut root, |parent| &mut inside[parent])[cpu] += weight;
        }
    }
    let share = |hog: &Hog| {
        let cpu = hog.cpu as usize;
        let (mut part, mut weight, mut at) = (1000.0, f64::from(hog.weight), hog.cgroup);
        while let Some(cgroup) = at {
            part *= weight / inside[cgroup][cpu];
            weight = weights[cgroup][cpu];
            at = cgroups[cgroup].parent;
        }
        part * weight / root[cpu]
    };
    hogs.iter().map(share).collect()
}

fn check_shares(era: LinuxEra, cgroups: &[Cgroup], all: &[Hog]) {
    let cpus = 1 + all.iter().map(|hog| hog.cpu).max().unwrap();
    let mut hand = hogs(era, cpus, cgroups, all);
    // The first placements are past.
    hand.pass(200 * MS);
    hand.ran_ns.fill(0);
    hand.pass(4_000 * MS);
    hand.linux.queues.check();
    for ((hog, ran_ns), expected) in all.iter().zip(&hand.ran_ns).zip(expected_permille(cgroups, all)) {
        let found = *ran_ns as f64 / (4 * MS) as f64;
        let allowed = 12.0 + expected * 0.03;
        assert!((found - expected).abs() <= allowed, "{era:?} {hog:?}: {found} of {expected}; {cgroups:?}");
    }
}

#[test]
fn two_groups_on_a_cpu_have_equal_parts_of_it() {
    let hog = |cgroup| Hog { cgroup: Some(cgroup), weight: 1024, cpu: 0 };
    for era in ERAS {
        let cgroups = [cgroup(None, 100), cgroup(None, 100)];
        check_shares(era, &cgroups, &[hog(0), hog(1), hog(1), hog(1)]);
        check_shares(era, &[cgroup(None, 100), cgroup(None, 300)], &[hog(0), hog(1)]);
    }
}

/// Three hogs of a group, two of them on one CPU: beside a task of the root, each of these gets a fifth, the
/// third a quarter.
#[test]
fn calc_group_shares() {
    let hog = |cgroup, cpu| Hog { cgroup, weight: 1024, cpu };
    let all = [hog(Some(0), 0), hog(Some(0), 0), hog(Some(0), 1), hog(None, 0), hog(None, 1)];
    let expected = expected_permille(&[cgroup(None, 100)], &all);
    let expected: Vec<i64> = expected.iter().map(|&part| part.round() as i64).collect();
    assert_eq!(expected, [200, 200, 250, 600, 750]);
    for era in ERAS {
        check_shares(era, &[cgroup(None, 100)], &all);
        let mut hand = hogs(era, 2, &[cgroup(None, 100)], &all);
        hand.pass(100 * MS);
        assert_eq!(hand.linux.queues.group_weights(1), [682, 341], "{era:?}");
    }
}

/// Hogs of two groups on each of 16 CPUs: the shares of the lighter group there end up as whole weights, of 1
/// or 2 at least.
#[test]
fn scale_load_down() {
    for (light, weights) in [(1, [2.0, 2.0, 1.0, 2.0, 2.0, 2.0]), (10, [6.0; 6])] {
        let cgroups = [cgroup(None, light), cgroup(None, 100)];
        let hog = |cgroup, cpu| Hog { cgroup: Some(cgroup), weight: 1024, cpu };
        let all: Vec<Hog> = (0..16).flat_map(|cpu| [hog(0, cpu), hog(1, cpu)]).collect();
        for (era, weight) in ERAS.into_iter().zip(weights) {
            let mut hand = hogs(era, 16, &cgroups, &all);
            hand.pass(500 * MS);
            hand.ran_ns.fill(0);
            hand.pass(4_000 * MS);
            let ran_ns: u64 = hand.ran_ns.iter().step_by(2).sum();
            let found = ran_ns as f64 / (16 * 40 * MS) as f64;
            let expected = 100.0 * weight / (weight + 64.0);
            assert!((found - expected).abs() < 0.3, "{era:?}: {found} of {expected} %");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// On each CPU, what stands in a queue shares what the queue has, by weight.
    #[test]
    fn time_follows_the_weights_of_nested_groups(
        era in prop::sample::select(ERAS.to_vec()),
        tree in prop::collection::vec((any::<prop::sample::Index>(), 50..400u32), 1..5),
        places in prop::collection::vec((any::<prop::sample::Index>(), 0..2u32, 0..2usize), 2..7),
    ) {
        let cgroups: Vec<Cgroup> = tree
            .iter()
            .enumerate()
            .map(|(at, (parent, weight))| cgroup(parent.index(at + 1).checked_sub(1), *weight))
            .collect();
        let all: Vec<Hog> = places
            .iter()
            .map(|(at, cpu, heavy)| Hog {
                cgroup: at.index(cgroups.len() + 1).checked_sub(1),
                weight: [1024, 2048][*heavy],
                cpu: *cpu,
            })
            .collect();
        check_shares(era, &cgroups, &all);
    }
}

/// A group with a hog on each of several CPUs: what it weighs and adds to the load there, and what the hog
/// counts for others.
#[test]
fn task_h_load() {
    for (cpus, weight, loads, of_tasks) in [
        (1, 1024, [1024, 1022, 1024, 1024], [1022, 1020, 1022, 1022]),
        (2, 512, [512, 511, 512, 512], [510, 509, 510, 510]),
        (4, 256, [256, 255, 256, 256], [254, 253, 254, 254]),
        (16, 64, [64, 63, 64, 64], [62, 61, 62, 62]),
    ] {
        let all: Vec<Hog> = (0..cpus).map(|cpu| Hog { cgroup: Some(0), weight: 1024, cpu }).collect();
        for ((era, load), of_task) in ERAS.into_iter().zip(loads).zip(of_tasks) {
            let mut hand = hogs(era, cpus, &[cgroup(None, 100)], &all);
            hand.pass(2_000 * MS);
            assert_eq!(hand.linux.queues.group_weights(1), vec![weight; cpus as usize], "{era:?}");
            let found = hand.linux.queues.loads();
            for (task, cpu) in (0..cpus).map(|at| (TaskId(at), CpuId(at))) {
                let (cpu, task) = (found.of_cpu(cpu), found.of_task(task));
                let is_near = cpu.abs_diff(load) <= 1 && task.abs_diff(of_task) <= 2;
                assert!(is_near, "{era:?}, {cpus} CPUs: {cpu} of {load}, {task} of {of_task}");
            }
        }
    }
}

/// A task that leaves a CPU takes its load along, and so its group has its whole weight where it goes to.
#[test]
fn propagate_entity_load_avg() {
    for era in ERAS {
        let mut hand = hogs(era, 2, &[cgroup(None, 100)], &[Hog { cgroup: Some(0), weight: 1024, cpu: 0 }]);
        hand.pass(500 * MS);
        hand.pin(0, CpuId(1));
        hand.tell(|linux, ctx| linux.affinity_changed(ctx, TaskId(0)));
        hand.pass(MS);
        let queues = &hand.linux.queues;
        assert_eq!(queues.entity(TaskId(0)).cpu, CpuId(1));
        let load = |cpu| queues.loads().of_cpu(CpuId(cpu));
        assert_eq!(queues.group_weights(1)[1], 1024, "{era:?}");
        assert!(load(0) <= 1 && (1000..=1024).contains(&load(1)), "{era:?}: {} and {}", load(0), load(1));
    }
}

/// With all tasks in one group, nothing changes on a CPU but loads and what levels cost in rounding.
#[test]
fn a_single_group_of_all_tasks_is_like_none() {
    for era in ERAS {
        let weights = [1024, 335, 2048];
        let sets = [in_cgroup(Some(0)); 3];
        let cgroups = [cgroup(None, 100)];
        let runs = [Hand::grouped(era, 1, &weights, &sets, &cgroups), Hand::new(era, 1, &weights)].map(
            |mut hand| {
                (0..3).for_each(|task| hand.start(task));
                let mut order = Vec::new();
                for _ in 0..2000 {
                    hand.pass(MS / 10);
                    order.push(hand.running[0]);
                }
                order
            },
        );
        assert_eq!(runs[0], runs[1], "{era:?}");
    }
}

fn limited(quota_ms: u64) -> Cgroup {
    Cgroup { limit: Some(limit(quota_ms, 100)), ..cgroup(None, 100) }
}

/// A hog takes slices of 5 ms at ticks, and is stopped at the first tick at which it owes something, which
/// comes off the next period.
#[test]
fn throttle_cfs_rq() {
    for era in ERAS {
        for (quota_ms, ran_ms) in [(50, [52, 100, 152, 200]), (20, [20, 40, 60, 80])] {
            let mut hand = Hand::grouped(era, 1, &[1024], &[in_cgroup(None)], &[]);
            let settings = LinuxSettings { tick_hz: 250, ..hand.linux.settings };
            let sets = [in_cgroup(Some(0))];
            hand.linux = Linux::new(settings, &hand.machine, &[], &sets, &[limited(quota_ms)], 1);
            hand.start(0);
            let found = ran_ms.map(|_| {
                hand.pass(100 * MS);
                hand.ran_ns[0] / MS
            });
            assert_eq!(found, ran_ms, "{era:?}, {quota_ms} ms");
            assert_eq!(hand.counter("nr_throttled"), 4, "{era:?}");
        }
    }
}

/// A limit of some quota and period, or none.
pub(super) fn any_limit() -> impl Strategy<Value = Option<BandwidthLimit>> {
    let limit = (1..30u64, prop::sample::select(vec![5, 7, 10, 33, 100u64]))
        .prop_map(|(quota_ms, period_ms)| limit(quota_ms, period_ms));
    prop::option::weighted(0.8, limit)
}

fn limit(quota_ms: u64, period_ms: u64) -> BandwidthLimit {
    BandwidthLimit { quota_us: quota_ms * 1000, period_us: period_ms * 1000 }
}

/// What happens to groups with limits.
#[derive(Clone, Copy, Debug)]
enum Change {
    Sleep { hog: usize, time_ms: u64 },
    Limit { cgroup: usize, limit: Option<BandwidthLimit> },
}

/// The limit of a group since it was last set: when that was, and what the group had used then.
#[derive(Clone, Copy, Debug)]
struct Since {
    limit: Option<BandwidthLimit>,
    set_ns: u64,
    used_ns: u64,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// A group never uses more than its quotas since its limit was set, but for a tick on each CPU; whatever
    /// limits other groups have. Without limits, all run.
    #[test]
    fn limits_hold(
        era in prop::sample::select(ERAS.to_vec()),
        limits in prop::collection::vec(any_limit(), 3),
        inner_is_nested: bool,
        changes in prop::collection::vec(
            prop_oneof![
                3 => (0..5usize, 1..40u64).prop_map(|(hog, time_ms)| Change::Sleep { hog, time_ms }),
                1 => (0..3usize, any_limit()).prop_map(|(cgroup, limit)| Change::Limit { cgroup, limit }),
            ],
            0..30,
        ),
    ) {
        let parents = [None, Some(0), Some(usize::from(inner_is_nested))];
        let cgroups: Vec<Cgroup> = parents
            .iter()
            .zip(&limits)
            .map(|(&parent, &limit)| Cgroup { limit, ..cgroup(parent, 100) })
            .collect();
        let places = [(Some(0), 0), (Some(1), 0), (Some(1), 1), (Some(2), 1), (Some(2), 2), (None, 0)];
        let all = places.map(|(cgroup, cpu)| Hog { cgroup, weight: 1024, cpu });
        let is_in = |hog: &Hog, group: usize| {
            std::iter::successors(hog.cgroup, |&at| parents[at]).any(|at| at == group)
        };
        let used_ns = |hand: &Hand, group: usize| -> u64 {
            all.iter().zip(&hand.ran_ns).filter(|(hog, _)| is_in(hog, group)).map(|(_, ran_ns)| ran_ns).sum()
        };
        let mut hand = hogs(era, 3, &cgroups, &all);
        let mut since: Vec<Since> =
            limits.iter().map(|&limit| Since { limit, set_ns: 0, used_ns: 0 }).collect();
        let at_last = [Change::Sleep { hog: 0, time_ms: 100 }].repeat(4);
        for change in changes.into_iter().chain(at_last) {
            match change {
                Change::Sleep { hog, time_ms } => {
                    let cpu = all[hog].cpu;
                    let blocks = hand.running[cpu as usize] == Some(TaskId(hog as u32));
                    if blocks {
                        hand.block(CpuId(cpu));
                    }
                    hand.pass(time_ms * MS);
                    if blocks {
                        hand.wake_on(hog as u32, CpuId(cpu));
                    }
                }
                Change::Limit { cgroup, limit } => {
                    hand.tell(|linux, ctx| {
                        linux.group_limit_changed(ctx, CgroupName::Declared(cgroup), limit);
                    });
                    since[cgroup] = Since { limit, set_ns: hand.now_ns, used_ns: used_ns(&hand, cgroup) };
                    hand.pass(MS);
                }
            }
            hand.linux.queues.check();
            for (group, since) in since.iter().enumerate() {
                let Some(limit) = since.limit else { continue };
                // The timer may run when a limit is set, and so a period may end soon.
                let quotas = (hand.now_ns - since.set_ns) / (limit.period_us * 1000) + 2;
                let used_ns = used_ns(&hand, group) - since.used_ns;
                let most_ns = quotas * limit.quota_us * 1000 + 3 * hand.linux.tick_period_ns();
                prop_assert!(used_ns <= most_ns, "group {group} of {limits:?}: {used_ns} of {most_ns}");
            }
        }
        for group in 0..cgroups.len() {
            hand.tell(|linux, ctx| linux.group_limit_changed(ctx, CgroupName::Declared(group), None));
        }
        hand.ran_ns.fill(0);
        hand.pass(200 * MS);
        prop_assert!(hand.ran_ns.iter().all(|&ran_ns| ran_ns > 0), "{:?}", hand.ran_ns);
    }

    /// A group whose tasks could always use its quotas uses almost all.
    #[test]
    fn limits_are_used_up(era in prop::sample::select(ERAS.to_vec()), quota_ms in 5..250u64) {
        let hog = |cgroup, cpu| Hog { cgroup, weight: 1024, cpu };
        let all = [hog(Some(0), 0), hog(Some(0), 1), hog(Some(1), 2), hog(None, 0)];
        let mut hand = hogs(era, 3, &[limited(quota_ms), cgroup(Some(0), 100)], &all);
        hand.pass(1_000 * MS);
        // CPU 0 is shared with another task.
        let possible_ms = 10 * quota_ms.min(200);
        let ran_ns: u64 = hand.ran_ns[..3].iter().sum();
        prop_assert!(ran_ns + 15 * MS >= possible_ms * MS, "{ran_ns} of {possible_ms} ms");
    }
}

/// When a CPU takes its task off, each group of it that has no more time is throttled, not just the outer
/// one.
#[test]
fn put_prev_entity() {
    for era in ERAS {
        let outer = Cgroup { limit: Some(limit(5, 10)), ..cgroup(None, 100) };
        let inner = Cgroup { limit: Some(limit(5, 300)), ..cgroup(Some(0), 100) };
        let mut hand = Hand::grouped(era, 1, &[1024], &[in_cgroup(None)], &[]);
        let settings = LinuxSettings { tick_hz: 250, ..hand.linux.settings };
        hand.linux = Linux::new(settings, &hand.machine, &[], &[in_cgroup(Some(1))], &[outer, inner], 1);
        hand.start(0);
        hand.pass(3_000 * MS);
        let ran_ms = hand.ran_ns[0] / MS;
        assert!((44..=54).contains(&ran_ms), "{era:?}: {ran_ms} ms of 50");
    }
}

/// A group that has nothing when its CPU decides goes on if its pool has some.
#[test]
fn assign_cfs_rq_runtime() {
    for era in ERAS {
        let all = [Hog { cgroup: Some(0), weight: 1024, cpu: 0 }];
        let mut hand = hogs(era, 1, &[limited(50)], &all);
        hand.pass(10 * MS);
        let limit = Some(limit(20, 100));
        hand.tell(|linux, ctx| linux.group_limit_changed(ctx, CgroupName::Declared(0), limit));
        hand.decide(CPU);
        assert_eq!(hand.running[0], Some(TaskId(0)), "{era:?}");
    }
}

/// A group has one timer, however often its limit is set.
#[test]
fn start_cfs_bandwidth() {
    for era in ERAS {
        let all = [Hog { cgroup: Some(0), weight: 1024, cpu: 0 }];
        let mut hand = hogs(era, 1, &[limited(20)], &all);
        hand.pass(110 * MS);
        for limit in [None, Some(limit(14, 70)), None, Some(limit(14, 70))] {
            hand.tell(|linux, ctx| linux.group_limit_changed(ctx, CgroupName::Declared(0), limit));
            hand.pass(MS);
        }
        hand.pass(86 * MS);
        hand.ran_ns.fill(0);
        hand.pass(7_000 * MS);
        assert_eq!(hand.alarms.len(), 1, "{era:?}");
        let ran_ms = hand.ran_ns[0] / MS;
        assert!((1385..=1415).contains(&ran_ms), "{era:?}: {ran_ms} ms of 1400");
    }
}

#[test]
fn limits_and_weights_change_during_a_run() {
    for era in ERAS {
        let hog = |cgroup| Hog { cgroup: Some(cgroup), weight: 1024, cpu: 0 };
        let mut hand = hogs(era, 1, &[limited(10), cgroup(None, 100)], &[hog(0), hog(1)]);
        hand.pass(1_000 * MS);
        assert!((95..=120).contains(&(hand.ran_ns[0] / MS)), "{era:?}: {}", hand.ran_ns[0]);
        hand.tell(|linux, ctx| linux.group_limit_changed(ctx, CgroupName::Declared(0), None));
        hand.tell(|linux, ctx| linux.group_weight_changed(ctx, CgroupName::Declared(0), 300));
        hand.ran_ns.fill(0);
        hand.pass(4_000 * MS);
        let found = hand.ran_ns[0] / (4 * MS);
        assert!((735..=765).contains(&found), "{era:?}: {found}");
    }
}

/// A waker on CPU 0 and a task that would wake up on CPU 1, in a group with hogs on these CPUs: what the
/// waker's sleep makes of the loads of CPUs 0 and 1, and what the task's coming to CPU 0 does.
#[test]
fn effective_load() {
    for (places, of_waker, of_task) in [
        // The waker is all that the group has; the task would then have all of its shares.
        (vec![0], [0, 1022], [0, 0]),
        // The group has a hog elsewhere.
        (vec![0, 2], [-510, 0], [170, 0]),
        // Or on the CPU where the task was.
        (vec![0, 1], [-510, 512], [170, -171]),
    ] {
        for era in [LinuxEra::V3_6, LinuxEra::V4_2] {
            let all: Vec<Hog> =
                places.iter().chain(&[1]).map(|&cpu| Hog { cgroup: Some(0), weight: 1024, cpu }).collect();
            let mut hand = hogs(era, 3, &[cgroup(None, 100)], &all);
            while hand.running[1] != Some(TaskId(places.len() as u32)) {
                hand.pass(MS);
            }
            hand.block(CpuId(1));
            hand.pass(2_000 * MS);
            let change = |cpu, here, all| hand.linux.queues.effective_load(TaskId(0), CpuId(cpu), here, all);
            let waker = [change(0, -1024, -1024), change(1, 0, -1024)];
            let task = [change(0, 1024, 1024), change(1, 0, 1024)];
            let is_near = |found: [i64; 2], expected: [i64; 2]| {
                found.iter().zip(expected).all(|(found, expected)| found.abs_diff(expected) <= 1)
            };
            assert!(is_near(waker, of_waker), "{era:?} {places:?}: {waker:?}");
            assert!(is_near(task, of_task), "{era:?} {places:?}: {task:?}");
        }
    }
}
