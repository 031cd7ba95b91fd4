//! The place of tasks in a queue, and which tasks they preempt.

use super::*;
use crate::policy::linux::situation::{Situation, one_node};

/// One CPU: wake-up granularity 1 ms, latency 6 ms, so that a sleeper is placed 3 ms behind at most.
#[test]
fn a_sleeper_preempts_under_cfs_if_it_is_far_enough_behind() {
    for era in CFS {
        // (nice of the sleeper, how long the other one ran since the sleeper blocked, preempted)
        for (nice, ran_ns, expected) in [
            (0, MS / 2, false),
            (0, MS, false),
            (0, MS + MS / 10, true),
            (0, 50 * MS, true),
            // A tenth of the weight: the granularity is ten times as long in its virtual time.
            (10, 2 * MS, false),
            (-5, MS / 2, true),
        ] {
            let mut hand = Hand::new(era, 1, &[1024, weight_of_nice(nice)]);
            hand.start(0);
            hand.start(1);
            hand.pass_until_runs(1);
            // The sleeper blocks where both are equal.
            let level = hand.vruntime(1);
            hand.block(CPU);
            *hand.discipline().vruntime_mut(TaskId(0)) = level;
            *hand.discipline().cfs_mut().min_vruntime_mut(CPU) = level;
            hand.pass(ran_ns);
            assert_eq!(hand.wake(1), expected, "{era:?}, nice {nice}, after {ran_ns} ns");
        }
    }
}

#[test]
fn a_sleeper_is_credited_half_a_latency_at_most() {
    for era in CFS {
        let mut hand = Hand::new(era, 1, &[1024; 2]);
        hand.start(0);
        hand.start(1);
        hand.pass_until_runs(1);
        hand.block(CPU);
        hand.pass(1000 * MS);
        hand.wake(1);
        assert_eq!(hand.vruntime(0) - hand.vruntime(1), 3 * MS as i64, "{era:?}");
        assert_eq!(hand.running[0], Some(TaskId(1)), "{era:?}");
    }
}

/// The choice of EEVDF among a running task and two that wait, of equal weight, each with its virtual run
/// time and deadline.
#[test]
fn the_earliest_deadline_of_the_eligible_runs() {
    for (what, tasks, chosen_deadline, expected) in [
        ("eligible and in its slice, it goes on", [(0, 9), (3, 5), (3, 4)], 9, 0),
        ("eligible with a new slice, the earliest deadline", [(2, 9), (2, 5), (2, 4)], 5, 2),
        ("not eligible, the earliest deadline of those that are", [(8, 9), (6, 3), (1, 12)], 9, 2),
        ("equally early, one that waits", [(2, 4), (2, 4), (2, 5)], 3, 1),
        ("the earliest with a new slice goes on", [(2, 3), (2, 5), (2, 4)], 2, 0),
    ] {
        let mut hand = Hand::new(LinuxEra::V6_12, 1, &[1024; 3]);
        (0..3).for_each(|task| hand.start(task));
        for (task, (vruntime, deadline)) in (0..).map(TaskId).zip(tasks) {
            hand.linux.queues.replace(task, |discipline| {
                let it = discipline.eevdf_mut().task_mut(task);
                (it.vruntime, it.deadline) = (vruntime, deadline);
            });
        }
        hand.discipline().eevdf_mut().task_mut(TaskId(0)).chosen_deadline = chosen_deadline;
        assert_eq!(hand.linux.queues.choose(CPU), Some(TaskId(expected)), "{what}");
    }
}

/// The running task is alone, and so at the average. A sleeper without lag is placed beside it, with a later
/// deadline; one with a positive lag is placed before it, which ends its eligibility.
#[test]
fn a_sleeper_preempts_under_eevdf_if_it_was_owed_time() {
    for (lag, expected) in [(0, false), (-700_000, false), (700_000, true)] {
        let mut hand = Hand::new(LinuxEra::V6_12, 1, &[1024; 2]);
        hand.start(0);
        hand.start(1);
        hand.pass_until_runs(1);
        hand.block(CPU);
        hand.pass(50 * MS);
        hand.discipline().eevdf_mut().task_mut(TaskId(1)).lag = lag;
        assert_eq!(hand.wake(1), expected, "lag {lag}");
        assert_eq!(hand.linux.queues.note_lag(TaskId(1)), lag, "its coming has not changed what it is owed");
    }
}

#[test]
fn a_child_starts_behind_its_parent() {
    for era in CFS {
        let mut hand = Hand::new(era, 2, &[1024; 3]);
        hand.start(0);
        hand.pass(50 * MS);
        let fork = Reason::Fork { parent: TaskId(0), cpu: CPU };
        assert!(hand.enqueue(1, CPU, fork).is_empty(), "{era:?}: the parent goes on");
        // Two CPUs: the latency is 12 ms, and it gets half of that.
        let debt = hand.vruntime(1) - hand.vruntime(0);
        assert_eq!(debt, 6 * MS as i64, "{era:?}");
        // On another CPU, it has the same distance from that queue.
        hand.enqueue(2, CpuId(1), fork);
        let ahead = hand.vruntime(2) - *hand.discipline().cfs_mut().min_vruntime_mut(CpuId(1));
        assert!((1..=6 * MS as i64).contains(&ahead), "{era:?}: {ahead}");
    }
    let mut hand = Hand::new(LinuxEra::V6_12, 1, &[1024; 2]);
    hand.start(0);
    hand.pass(50 * MS);
    hand.enqueue(1, CPU, Reason::Fork { parent: TaskId(0), cpu: CPU });
    let (deadline, vruntime) = hand.linux.queues.place_of(TaskId(1));
    assert_eq!(vruntime, hand.vruntime(0), "at the average");
    assert_eq!(deadline - vruntime, 350_000, "half a slice");
}

/// A task keeps its distance from the others when it is moved, although the queues are at different virtual
/// times.
#[test]
fn a_move_keeps_lag_and_virtual_distance() {
    for era in ERAS {
        let mut hand = Hand::new(era, 2, &[1024; 3]);
        (0..2).for_each(|task| hand.pin(task, CPU));
        hand.pin(2, CpuId(1));
        hand.start(0);
        hand.pass(5000 * MS);
        hand.start(1);
        hand.enqueue(2, CpuId(1), Reason::Start);
        hand.pass(MS / 10);
        let moved = TaskId(u32::from(hand.running[0] == Some(TaskId(0))));
        let distance = |hand: &mut Hand, cpu: u32| {
            hand.vruntime(moved.0) - *hand.discipline().cfs_mut().min_vruntime_mut(CpuId(cpu))
        };
        let before = CFS.contains(&era).then(|| distance(&mut hand, 0));
        hand.pin(moved.0, CpuId(1));
        hand.tell(|linux, ctx| linux.queues.move_queued(ctx, moved, CPU, CpuId(1)));
        match before {
            Some(before) => assert_eq!(distance(&mut hand, 1), before, "{era:?}"),
            None => {
                let lag = hand.discipline().eevdf_mut().task_mut(moved).lag;
                assert!(hand.linux.queues.note_lag(moved).abs_diff(lag) <= 1, "rounded once");
            }
        }
        hand.pass(100 * MS);
        assert!(hand.ran_ns[2] > 40 * MS && hand.ran_ns[2] < 61 * MS, "{era:?}: {:?}", hand.ran_ns);
    }
}

/// Two tasks; the one on the CPU has run ahead of its share by most of a slice, and blocks.
fn blocked_ahead() -> (Hand, u32) {
    let mut hand = Hand::new(LinuxEra::V6_12, 1, &[1024; 2]);
    hand.start(0);
    hand.start(1);
    hand.pass(10 * MS);
    while hand.linux.queues.is_eligible(hand.running[0].unwrap()) {
        hand.pass(MS / 10);
    }
    let task = hand.running[0].unwrap();
    hand.block(CPU);
    (hand, task.0)
}

#[test]
fn dequeue_entities_counts_a_task_that_blocks_ahead_of_its_share_until_it_leaves() {
    let (mut hand, task) = blocked_ahead();
    assert!(hand.entity(task).delayed && hand.entity(task).queued);
    assert_eq!(hand.linux.queues.of(CPU).nr_running(), 2);
    hand.pass(2 * MS);
    assert_eq!(hand.linux.queues.of(CPU).nr_running(), 1);
    assert!(!hand.entity(task).delayed && !hand.entity(task).queued, "the other one has caught up");
    assert!(hand.discipline().eevdf_mut().task_mut(TaskId(task)).lag <= 0, "nothing was gained");
    assert_eq!(hand.running[0], Some(TaskId(1 - task)));
}

#[test]
fn a_task_that_is_leaving_wakes_up_where_it_is() {
    let (mut hand, task) = blocked_ahead();
    let vruntime = hand.vruntime(task);
    let wake = Reason::Wake { waker: None, cpu: CPU, sync: false };
    let (cpu, _) = hand.ask(|linux, ctx| linux.select_cpu(ctx, TaskId(task), wake));
    assert_eq!(cpu, CPU);
    hand.wake(task);
    let entity = hand.entity(task);
    assert_eq!(
        (entity.delayed, entity.queued, hand.vruntime(task)),
        (false, true, vruntime),
        "still as far ahead"
    );
    assert_eq!((hand.counter("delayed"), hand.counter("delayed_stayed")), (1, 1));
}

#[test]
fn a_number_is_used_again_without_memory_of_the_task_before() {
    for era in ERAS {
        let mut hand = Hand::new(era, 1, &[1024; 2]);
        hand.start(0);
        hand.start(1);
        hand.pass(500 * MS);
        hand.pass_until_runs(1);
        hand.block(CPU);
        hand.tell(|linux, ctx| linux.exited(ctx, TaskId(1)));
        hand.facts[1].weight = 335;
        hand.enqueue(1, CPU, Reason::Fork { parent: TaskId(0), cpu: CPU });
        assert_eq!(hand.entity(1).weight, 335, "{era:?}");
        if let Discipline::Cfs(cfs) = hand.discipline() {
            assert_eq!(cfs.slice_used_ns(TaskId(1)), 0, "{era:?}");
        }
    }
}

#[test]
fn a_task_leaves_a_cpu_that_it_may_no_longer_use() {
    for era in ERAS {
        let mut hand = Hand::new(era, 2, &[1024; 2]);
        hand.start(0);
        hand.start(1);
        for task in 0..2 {
            hand.facts[task as usize].hard_affinity = Arc::new(CpuMask::from_cpus(2, [CpuId(1)]));
            hand.tell(|linux, ctx| linux.affinity_changed(ctx, TaskId(task)));
        }
        assert_eq!(hand.running[0], None, "{era:?}");
        assert!(hand.running[1].is_some() && hand.linux.queues.of(CpuId(1)).nr_running() == 2, "{era:?}");
        assert!(hand.linux.queues.idle().contains(CPU), "{era:?}");
    }
}

/// Two packages of two cores: CPUs 0 and 1 share a cache, CPUs 2 and 3 another.
#[test]
fn a_wake_up_is_left_to_its_cpu_if_no_cache_is_shared_and_under_eevdf_if_it_has_nothing_to_run() {
    for era in ERAS {
        for (domains, shares_cache) in [(Domains::Topology, true), (Domains::Flat, false)] {
            let mut it = Situation::new(era, domains, one_node(2, 2, 1));
            let by_interrupt = |it: &Situation, cpu: u32| it.linux.wakes_by_interrupt(CpuId(0), CpuId(cpu));
            let idle = [0, 1, 2].map(|cpu| by_interrupt(&it, cpu));
            (1..3).for_each(|cpu| _ = it.run_on(cpu));
            let busy = [0, 1, 2].map(|cpu| by_interrupt(&it, cpu));
            let left_to_idle = EEVDF.contains(&era) || !shares_cache;
            assert_eq!(idle, [false, left_to_idle, true], "{era:?}, {domains:?}");
            assert_eq!(busy, [false, !shares_cache, true], "{era:?}, {domains:?}");
        }
    }
}
