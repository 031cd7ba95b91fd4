//! Placement with soft affinity: CPUs 0 to 7 are one package, 8 to 15 the other.

use super::*;
use crate::policy::Policy;
use crate::policy::linux::LinuxSettings;
use proptest::prelude::*;

fn kernel(era: LinuxEra, soft_affinity: SoftAffinity) -> Situation {
    settings(LinuxSettings { era, soft_affinity, ..LinuxSettings::default() })
}

fn settings(settings: LinuxSettings) -> Situation {
    Situation::with(settings, one_node(2, 4, 2))
}

fn posted() -> Situation {
    kernel(V5_2, SoftAffinity::POSTED)
}

fn counter(it: &Situation, name: &str) -> u64 {
    it.linux.counters().into_iter().find(|counter| counter.0 == name).map_or(0, |counter| counter.1)
}

/// Lets a task run on each of these CPUs.
fn occupy(it: &mut Situation, cpus: impl IntoIterator<Item = u32>) {
    for cpu in cpus {
        it.run_on(cpu);
    }
}

/// A task whose old CPU 2 is busy and that prefers package 0, and a task on CPU 9 that could wake it.
fn partners(it: &mut Situation) -> (TaskId, TaskId) {
    let task = it.sleep_on(2);
    it.run_on(2);
    it.prefer(task, 0..8);
    (task, it.run_on(9))
}

#[test]
fn a_waker_elsewhere_does_not_pull_a_task_from_the_cpus_that_it_prefers() {
    for (soft_affinity, package) in [(SoftAffinity::Ignored, 1), (SoftAffinity::POSTED, 0)] {
        let mut it = kernel(V5_2, soft_affinity);
        let (task, waker) = partners(&mut it);
        it.linux.queues.of_mut(CpuId(0)).set_util(0);
        let found = it.wake(task, waker, true);
        assert_eq!(found / 8, package, "{soft_affinity:?}: {found}");
        assert_eq!(it.linux.queues.of(CpuId(found)).nr_running(), 0, "{soft_affinity:?}: {found}");
    }
}

/// The load of a group that the task may not use is the largest number; its sum with the tolerance wraps.
#[test]
fn find_idlest_group_of_5_2_finds_no_loaded_group_from_a_group_that_is_not_allowed() {
    for (busy, leaves) in [(1, true), (3, false)] {
        let mut it = posted();
        let parent = it.run_on(9);
        let child = it.sleep_on(1);
        occupy(&mut it, 0..busy);
        it.run_ticks(100);
        it.prefer(child, 0..8);
        it.linux.queues.of_mut(CpuId(0)).set_util(0);
        let fork = Reason::Fork { parent, cpu: CpuId(9) };
        let found = it.ask(|linux, ctx| linux.selector().select(ctx, child, fork)).0;
        assert_eq!(found < 8, leaves, "{busy} busy CPUs: {found}");
        assert!(leaves || found == 9, "it stays with its parent: {found}");
    }
}

/// The use of the first CPU of each set decides, and nothing else.
#[test]
fn all_allowed_cpus_come_into_question_once_the_preferred_ones_are_used_more_by_the_tunables() {
    let tunables = |allowed, preferred| SoftAffinity::Tunables { allowed, preferred };
    for (soft_affinity, inside, outside, tips) in [
        (SoftAffinity::POSTED, 100, 1, false),
        (SoftAffinity::POSTED, 101, 1, true),
        (SoftAffinity::POSTED, 1024, 11, false),
        (SoftAffinity::POSTED, 1, 0, true),
        (SoftAffinity::POSTED, 0, 0, false),
        (tunables(2, 3), 600, 900, false),
        (tunables(2, 3), 601, 900, true),
    ] {
        for others in [0, 1024] {
            let mut it = kernel(V5_2, soft_affinity);
            let (task, waker) = partners(&mut it);
            for cpu in it.machine.all_cpus().clone().iter() {
                it.linux.queues.of_mut(cpu).set_util(others);
            }
            it.linux.queues.of_mut(CpuId(0)).set_util(inside);
            it.linux.queues.of_mut(CpuId(8)).set_util(outside);
            let found = it.wake(task, waker, true);
            assert_eq!(found >= 8, tips, "{soft_affinity:?}, {inside}, {outside}, {others}: {found}");
            let counted = (counter(&it, "soft_preferred"), counter(&it, "soft_allowed"));
            assert_eq!(counted, (u64::from(!tips), u64::from(tips)));
        }
    }
}

#[test]
fn a_task_that_is_not_pulled_keeps_its_old_cpu_for_a_target_wherever_that_is() {
    let mut it = posted();
    let task = it.sleep_on(12);
    it.prefer(task, 0..8);
    it.linux.queues.of_mut(CpuId(0)).set_util(0);
    let elsewhere = it.run_on(9);
    assert_eq!(it.wake(task, elsewhere, true), 12, "its old CPU idles");
    it.run_on(12);
    let found = it.wake(task, elsewhere, true);
    assert!(found > 8, "and if it does not, its cache is searched, not {found}");
    let home = it.run_on(2);
    let found = it.wake(task, home, true);
    assert!(found < 8, "only a waker at home brings it back, not to {found}");
}

#[test]
fn children_and_tasks_at_their_exec_go_where_they_prefer_until_that_tips() {
    for tips in [false, true] {
        let mut it = posted();
        let parent = it.run_on(2);
        let child = it.sleep_on(1);
        it.prefer(child, 0..4);
        let (inside, outside) = if tips { (1024, 0) } else { (0, 0) };
        it.linux.queues.of_mut(CpuId(0)).set_util(inside);
        it.linux.queues.of_mut(CpuId(4)).set_util(outside);
        let fork = Reason::Fork { parent, cpu: CpuId(2) };
        let found = it.ask(|linux, ctx| linux.selector().select(ctx, child, fork)).0;
        assert_eq!(found >= 4, tips, "{found}");
        it.prefer(parent, 8..16);
        it.linux.queues.of_mut(CpuId(8)).set_util(inside);
        it.linux.queues.of_mut(CpuId(0)).set_util(outside);
        it.linux.queues.of_mut(CpuId(3)).set_util(1024);
        let exec = Reason::Exec { cpu: CpuId(2) };
        let found = it.ask(|linux, ctx| linux.selector().select(ctx, parent, exec)).0;
        assert_eq!(found < 8, tips, "{found}");
    }
}

/// The task and its waker are on CPU 2; the task prefers the last core of the package.
fn near(it: &mut Situation, busy: &[u32]) -> (TaskId, TaskId) {
    let task = it.sleep_on(2);
    let waker = it.run_on(2);
    occupy(it, busy.iter().copied());
    it.prefer(task, [6, 7]);
    it.linux.queues.of_mut(CpuId(6)).set_util(0);
    it.linux.queues.of_mut(CpuId(2)).set_avg_idle_ns(1_000_000);
    (task, waker)
}

#[test]
fn searches_near_the_target_try_the_preferred_cpus_first() {
    for (busy, preferring, anyhow) in [
        // Cores that idle.
        (&[][..], 6, 4),
        (&[6][..], 4, 4),
        // Only threads idle.
        (&[0, 4, 6], 7, 3),
        (&[0, 4, 6, 7], 3, 3),
        (&[0, 3, 4, 6, 7], 2, 5),
        (&[0, 1, 3, 4, 5, 6, 7], 2, 2),
    ] {
        for (soft_affinity, expected) in [(SoftAffinity::POSTED, preferring), (SoftAffinity::Ignored, anyhow)]
        {
            let mut it = kernel(V5_2, soft_affinity);
            let (task, waker) = near(&mut it, busy);
            assert_eq!(it.wake(task, waker, false), expected, "{soft_affinity:?}, {busy:?}");
        }
    }
}

#[test]
fn the_limit_of_a_search_counts_those_that_are_not_preferred_too() {
    // CPU 7 is a preferred one, the sixth from the target. 512 ns allow seven, no idle time three.
    for (avg_idle_ns, expected) in [(1_000_000, 7), (1_024, 7), (512, 7), (0, 2)] {
        let mut it = posted();
        let (task, waker) = near(&mut it, &[0, 1, 3, 4, 6]);
        it.linux.queues.of_mut(CpuId(2)).set_avg_idle_ns(avg_idle_ns);
        assert_eq!(it.wake(task, waker, false), expected, "idle for {avg_idle_ns} ns");
    }
}

#[test]
fn searches_that_take_longer_are_given_up_earlier() {
    let mut it = situation(V5_2, Topology);
    let task = it.sleep_on(2);
    let waker = it.run_on(2);
    for cpu in [0, 1, 3, 4, 5, 6, 7] {
        it.run_on(cpu);
    }
    let looks = |it: &mut Situation| {
        it.scanned = 0;
        it.wake(task, waker, false);
        it.scanned
    };
    it.linux.queues.of_mut(CpuId(2)).set_avg_idle_ns(20_000);
    let at_first = looks(&mut it);
    for _ in 0..100 {
        looks(&mut it);
    }
    assert!(looks(&mut it) < at_first);
}

/// A step of a random test; steps that are impossible in the present state are skipped.
#[derive(Clone, Copy, Debug)]
enum Step {
    Start,
    Block(u32),
    Wake { task: usize, waker: u32, sync: bool },
    Ticks(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => Just(Step::Start),
        3 => (0..16u32).prop_map(Step::Block),
        5 => (0..40usize, 0..16u32, any::<bool>())
            .prop_map(|(task, waker, sync)| Step::Wake { task, waker, sync }),
        2 => (1..9u64).prop_map(Step::Ticks),
    ];
    prop::collection::vec(step, 1..100)
}

/// The outcome if all tasks may run anywhere and prefer all CPUs.
fn outcome(soft_affinity: SoftAffinity, steps: &[Step]) -> (String, u32) {
    let mut it = kernel(V5_2, soft_affinity);
    let mut asleep: Vec<TaskId> = Vec::new();
    for &step in steps {
        match step {
            Step::Start => {
                it.start();
                let task = TaskId::from(it.facts.len() - 1);
                it.prefer(task, 0..16);
            }
            Step::Block(cpu) => {
                let Some(task) = it.linux.queues.of(CpuId(cpu)).curr() else { continue };
                it.ask(|linux, ctx| linux.blocked(ctx, CpuId(cpu), task));
                it.dispatch(CpuId(cpu));
                asleep.push(task);
            }
            Step::Wake { task, waker, sync } => {
                if asleep.is_empty() {
                    continue;
                }
                let task = asleep.swap_remove(task % asleep.len());
                let reason = Reason::Wake { waker: None, cpu: CpuId(waker), sync };
                it.ask(|linux, ctx| {
                    let cpu = linux.select_cpu(ctx, task, reason);
                    linux.enqueue(ctx, task, cpu, reason);
                });
            }
            Step::Ticks(ticks) => it.run_ticks(ticks),
        }
        it.settle();
    }
    (format!("{:?} {:?}", it.linux.queues.without_strays(), it.linux.placement.wakers), it.scanned)
}

proptest! {
    #[test]
    fn preferring_all_cpus_is_preferring_none(steps in steps()) {
        prop_assert_eq!(outcome(SoftAffinity::POSTED, &steps), outcome(SoftAffinity::Ignored, &steps));
    }

    /// In every state, a task that wakes up or is new gets an idle CPU that it prefers, or else an idle CPU
    /// that it may use; it waits only on CPUs that it prefers.
    #[test]
    fn work_is_conserved(
        era in prop::sample::select(vec![V5_2, V6_12]),
        domains in prop::sample::select(vec![Topology, Flat]),
        busy: u16,
        allowed: u16,
        preferred: u16,
        (old, waker) in (0..16u32, 0..16u32),
        sync: bool,
        is_new: bool,
    ) {
        let cpus = |bits: u16| (0..16).filter(move |cpu| bits >> cpu & 1 == 1);
        prop_assume!(allowed & preferred != 0);
        let soft_affinity = SoftAffinity::WorkConserving;
        let mut it = settings(LinuxSettings { era, domains, soft_affinity, ..LinuxSettings::default() });
        let task = it.sleep_on(old);
        let waking = it.run_on(waker);
        occupy(&mut it, cpus(busy).filter(|&cpu| cpu != waker));
        it.allow(task, cpus(allowed));
        it.prefer(task, cpus(allowed & preferred));
        // A task that may run on one CPU only has no choice.
        prop_assume!(allowed.count_ones() > 1 && allowed & preferred != allowed);
        let found = if is_new {
            let reason = Reason::Fork { parent: waking, cpu: CpuId(waker) };
            it.ask(|linux, ctx| linux.selector().select(ctx, task, reason)).0
        } else {
            it.wake(task, waking, sync)
        };
        let busy = busy | 1 << waker;
        let idles = |bits: u16| bits & !busy != 0;
        let expected = if idles(allowed & preferred) {
            allowed & preferred & !busy
        } else if idles(allowed) {
            allowed & !busy
        } else {
            allowed & preferred
        };
        prop_assert!(expected >> found & 1 == 1, "{found}, not one of {expected:#018b}");
    }
}

#[test]
fn a_work_conserving_search_goes_from_near_to_far() {
    for era in [V5_2, V6_12] {
        let mut it = kernel(era, SoftAffinity::WorkConserving);
        let task = it.sleep_on(12);
        let waker = it.run_on(2);
        it.prefer(task, 8..14);
        assert_eq!(it.wake(task, waker, false), 12, "{era:?}: its old CPU");
        it.run_on(12);
        let found = it.wake(task, waker, false);
        assert!((8..12).contains(&found), "{era:?}: a preferred core that idles, not {found}");
        occupy(&mut it, [8, 10]);
        let found = it.wake(task, waker, false);
        assert!([9, 11, 13].contains(&found), "{era:?}: a preferred thread that idles, not {found}");
        occupy(&mut it, [9, 11, 13]);
        assert_eq!(it.wake(task, waker, false), 14, "{era:?}: another core of the same cache");
        occupy(&mut it, [14, 15]);
        assert_eq!(it.wake(task, waker, false) / 8, 0, "{era:?}: another package");
    }
}

#[test]
fn a_task_at_its_exec_comes_home_if_there_is_room() {
    for era in [V5_2, V6_12] {
        let mut it = kernel(era, SoftAffinity::WorkConserving);
        let task = it.run_on(9);
        it.prefer(task, 0..2);
        let exec = |it: &mut Situation| {
            it.ask(|linux, ctx| linux.selector().select(ctx, task, Reason::Exec { cpu: CpuId(9) })).0
        };
        assert_eq!(exec(&mut it) / 2, 0, "{era:?}");
        it.run_on(0);
        it.run_on(1);
        assert_eq!(exec(&mut it), 9, "{era:?}: another CPU elsewhere is no better");
    }
}
