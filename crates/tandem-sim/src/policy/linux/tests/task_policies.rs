//! Batch and idle tasks (`SCHED_BATCH`, `SCHED_IDLE`).

use super::TaskPolicy::{Batch, Idle, Normal};
use super::*;
use crate::policy::linux::Domains::Topology;
use crate::policy::linux::situation::{Situation, one_node};

/// One CPU, and tasks of these policies with nice 0. Slices of EEVDF end between two ticks: virtual time is
/// rounded, and how depends on the weight.
fn hand(era: LinuxEra, policies: &[TaskPolicy]) -> Hand {
    let weights: Vec<u32> = policies.iter().map(|policy| policy.weight(0)).collect();
    let settings = LinuxSettings { era, base_slice_ns: Some(650_000), ..LinuxSettings::default() };
    let mut hand = Hand::with(settings, 1, &weights);
    for (facts, policy) in hand.facts.iter_mut().zip(policies) {
        facts.policy = *policy;
    }
    hand
}

/// Task 0 runs; task 1 has slept for long enough, or is owed enough, that it would preempt as a normal task.
fn sleeper(era: LinuxEra, policies: [TaskPolicy; 2]) -> Hand {
    let mut hand = hand(era, &policies);
    hand.start(0);
    hand.start(1);
    hand.pass_until_runs(1);
    hand.block(CPU);
    hand.pass(200 * MS);
    if EEVDF.contains(&era) {
        hand.discipline().eevdf_mut().task_mut(TaskId(1)).lag = 700_000;
    }
    hand
}

#[test]
fn check_preempt_wakeup_lets_normal_tasks_preempt_and_any_that_is_not_idle_an_idle_one() {
    for era in ERAS {
        for (runs, wakes, preempts) in [
            (Normal, Normal, true),
            (Normal, Batch, false),
            (Normal, Idle, false),
            (Batch, Normal, true),
            (Batch, Batch, false),
            (Batch, Idle, false),
            (Idle, Normal, true),
            (Idle, Batch, true),
            (Idle, Idle, false),
        ] {
            let mut hand = sleeper(era, [runs, wakes]);
            assert_eq!(hand.wake(1), preempts, "{era:?}: {wakes:?} wakes up where {runs:?} runs");
            assert_eq!(hand.running[0] == Some(TaskId(1)), preempts, "{era:?}: {wakes:?}, {runs:?}");
            assert_eq!(hand.counter("wakeup_preemptions") > 0, preempts, "{era:?}: {wakes:?}, {runs:?}");
        }
    }
}

/// The idle task is in its slice. A task of equal weight that is owed nothing would have to wait for its end.
#[test]
fn cancel_protect_slice_ends_the_protection_of_an_idle_task() {
    for era in EEVDF {
        let mut hand = sleeper(era, [Idle, Normal]);
        hand.discipline().eevdf_mut().task_mut(TaskId(1)).lag = 0;
        hand.wake(1);
        assert_eq!(hand.running[0], Some(TaskId(1)), "{era:?}");
    }
}

/// Two groups; in one of them an idle task runs. Since groups can be idle themselves, a task is compared with
/// what is in one queue with it.
#[test]
fn find_matching_se_finds_groups_that_are_not_idle() {
    let set = VmFacts { weight: 256, cap_pct: 0, is_cgroup: true, cgroup: None };
    for era in ERAS {
        let mut hand = Hand::grouped(era, 1, &[1024; 2], &[set; 2], &[]);
        hand.facts[0].policy = Idle;
        hand.start(0);
        hand.pass(MS / 10);
        hand.start(1);
        assert_eq!(hand.running[0] == Some(TaskId(1)), CFS.contains(&era), "{era:?}");
    }
}

#[test]
fn an_idle_task_gets_3_of_1027_beside_a_normal_one_and_a_batch_task_half() {
    for era in ERAS {
        for (policies, share_ns) in [
            ([Normal, Idle], 20_000 * MS * 3 / 1027),
            ([Batch, Idle], 20_000 * MS * 3 / 1027),
            ([Normal, Batch], 10_000 * MS),
            ([Idle, Idle], 10_000 * MS),
        ] {
            let mut hand = hand(era, &policies);
            hand.start(0);
            hand.start(1);
            hand.pass(20_000 * MS);
            let off_ns = hand.ran_ns[1].abs_diff(share_ns);
            assert!(off_ns <= 7 * MS, "{era:?}, {policies:?}: {:?}", hand.ran_ns);
        }
    }
}

/// Under CFS, turns are shorter, down to the least granularity: `check_preempt_tick()` compares a distance in
/// virtual time, which is long for little weight, with a slice.
#[test]
fn idle_tasks_among_themselves_take_turns_as_normal_ones_do() {
    for era in ERAS {
        for tasks in [2, 3, 7, 20] {
            let [normal, idle] = [Normal, Idle].map(|policy| {
                let mut hand = hand(era, &vec![policy; tasks]);
                (0..tasks as u32).for_each(|task| hand.start(task));
                hand.pass(tasks as u64 * 100 * MS);
                (hand.counter("slices_ended"), hand.ran_ns)
            });
            let same = normal.0.abs_diff(idle.0) <= 2 + normal.0 / 50;
            let more = CFS.contains(&era) && idle.0 > normal.0;
            assert!(same || more, "{era:?}, {tasks}: {normal:?}, {idle:?}");
            let spread = |ran_ns: &[u64]| ran_ns.iter().max().unwrap() - ran_ns.iter().min().unwrap();
            assert!(spread(&idle.1) <= spread(&normal.1) + 4 * MS, "{era:?}, {tasks}: {normal:?}, {idle:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Tasks that wake up and sleep as the numbers say: a batch task preempts at no wake-up, and so waits for
    /// its turn; over time it gets what it asks for all the same.
    #[test]
    fn a_batch_task_never_preempts_and_gets_its_share(
        era in 0..ERAS.len(),
        times in proptest::collection::vec((1..8u64, 1..8u64), 60),
    ) {
        let era = ERAS[era];
        let mut hand = hand(era, &[Normal, Batch]);
        hand.start(0);
        hand.start(1);
        let (mut asked_ns, mut waited) = (0, 0);
        for (run_ms, sleep_ms) in times {
            // It runs for a while in which the other one runs as well, and then sleeps.
            let before_ns = hand.ran_ns[1];
            while hand.ran_ns[1] < before_ns + run_ms * MS {
                hand.pass(MS / 10);
                waited += 1;
                prop_assert!(waited < 60 * 8 * 10 * 20, "{era:?}: it starves");
            }
            if hand.running[0] != Some(TaskId(1)) {
                hand.pass_until_runs(1);
            }
            hand.block(CPU);
            asked_ns += hand.ran_ns[1] - before_ns;
            hand.pass(sleep_ms * MS);
            prop_assert!(!hand.wake(1), "{era:?}: it preempts");
        }
        prop_assert_eq!(hand.counter("wakeup_preemptions"), 0);
        prop_assert!(asked_ns >= 60 * MS);
    }
}

/// Four CPUs that share a cache; all are busy, CPU 1 with an idle task alone. A task of this policy wakes up
/// that last ran on CPU 2.
fn woken_where_all_are_busy(era: LinuxEra, policy: TaskPolicy) -> u32 {
    let mut it = Situation::new(era, Topology, one_node(1, 4, 1));
    it.policy = policy;
    let task = it.sleep_on(2);
    it.policy = Idle;
    it.run_on(1);
    it.policy = Normal;
    let waker = it.run_on(0);
    it.run_on(2);
    it.run_on(3);
    it.wake(task, waker, false)
}

#[test]
fn sched_idle_cpu_is_as_good_as_an_idle_one_since_5_4_and_since_7_1_for_tasks_that_are_not_idle() {
    for era in ERAS {
        for policy in [Normal, Batch, Idle] {
            let takes = match era {
                LinuxEra::V3_6 | LinuxEra::V4_2 | LinuxEra::V5_2 => false,
                LinuxEra::V6_12 | LinuxEra::V6_18 => true,
                LinuxEra::V7_3 => policy != Idle,
            };
            let chosen = woken_where_all_are_busy(era, policy);
            assert_eq!(chosen == 1, takes, "{era:?}: a {policy:?} task goes to {chosen}");
        }
    }
}

/// CPU 0 has run an idle task alone when CPU 1 gets three normal ones.
#[test]
fn sched_balance_domains_takes_a_cpu_with_idle_tasks_alone_for_one_that_is_not_busy() {
    for era in ERAS {
        let mut it = Situation::new(era, Topology, one_node(1, 2, 1));
        it.policy = Idle;
        it.run_on(0);
        it.policy = Normal;
        it.run_ticks(40);
        (0..3).for_each(|_| _ = it.queue_on(1));
        it.settle();
        it.run_ticks(6);
        assert_eq!(it.tasks_by_cpu()[0] > 1, EEVDF.contains(&era), "{era:?}: {:?}", it.tasks_by_cpu());
    }
}
