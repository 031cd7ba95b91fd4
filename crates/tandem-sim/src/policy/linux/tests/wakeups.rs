//! Where tasks are placed in a queue, and whom they preempt.

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
            let level = hand.entity(1).vruntime;
            hand.block(CPU);
            hand.linux.entities[0].vruntime = level;
            hand.linux.cpus[0].min_vruntime = level;
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
        assert_eq!(hand.entity(0).vruntime - hand.entity(1).vruntime, 3 * MS as i64, "{era:?}");
        assert_eq!(hand.running[0], Some(TaskId(1)), "{era:?}");
    }
}

/// Whom EEVDF chooses of a running task and two that wait, of equal weight, each with its virtual run time
/// and deadline.
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
        for task in [1, 2] {
            hand.linux.remove(TaskId(task), CPU);
        }
        for (entity, (vruntime, deadline)) in hand.linux.entities.iter_mut().zip(tasks) {
            (entity.vruntime, entity.deadline) = (vruntime, deadline);
        }
        hand.linux.entities[0].chosen_deadline = chosen_deadline;
        for task in [1, 2] {
            hand.linux.insert(TaskId(task), CPU);
        }
        assert_eq!(hand.linux.eevdf_choose(CPU), Some(TaskId(expected)), "{what}");
    }
}

/// The running task is alone, and so at the average. A sleeper that was owed nothing comes to stand beside
/// it, with a later deadline; one that was owed something comes to stand before it, which ends its
/// eligibility.
#[test]
fn a_sleeper_preempts_under_eevdf_if_it_was_owed_time() {
    for (lag, expected) in [(0, false), (-700_000, false), (700_000, true)] {
        let mut hand = Hand::new(LinuxEra::V6_12, 1, &[1024; 2]);
        hand.start(0);
        hand.start(1);
        hand.pass_until_runs(1);
        hand.block(CPU);
        hand.pass(50 * MS);
        hand.linux.entities[1].lag = lag;
        assert_eq!(hand.wake(1), expected, "lag {lag}");
        hand.ask(|linux, _| linux.eevdf_note_lag(TaskId(1), CPU));
        assert_eq!(hand.entity(1).lag, lag, "its coming has not changed what it is owed");
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
        // Two CPUs: latency 12 ms, of which it has a half.
        let debt = hand.entity(1).vruntime - hand.entity(0).vruntime;
        assert_eq!(debt, 6 * MS as i64, "{era:?}");
        // On another CPU it stands as far from that one's queue.
        hand.enqueue(2, CpuId(1), fork);
        let ahead = hand.entity(2).vruntime - hand.linux.cpus[1].min_vruntime;
        assert!((1..=6 * MS as i64).contains(&ahead), "{era:?}: {ahead}");
    }
    let mut hand = Hand::new(LinuxEra::V6_12, 1, &[1024; 2]);
    hand.start(0);
    hand.pass(50 * MS);
    hand.enqueue(1, CPU, Reason::Fork { parent: TaskId(0), cpu: CPU });
    let child = hand.entity(1);
    assert_eq!(child.vruntime, hand.entity(0).vruntime, "at the average");
    assert_eq!(child.deadline - child.vruntime, 350_000, "half a slice");
}

/// A task keeps its distance from the others when it is moved, though the queues stand at different virtual
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
        let distance = |hand: &Hand, cpu: usize| {
            hand.linux.entities[moved.index()].vruntime - hand.linux.cpus[cpu].min_vruntime
        };
        let before = distance(&hand, 0);
        hand.pin(moved.0, CpuId(1));
        hand.tell(|linux, ctx| linux.move_queued(ctx, moved, CPU, CpuId(1)));
        if era == LinuxEra::V6_12 {
            let lag = hand.linux.entities[moved.index()].lag;
            hand.ask(|linux, _| linux.eevdf_note_lag(moved, CpuId(1)));
            assert!(hand.linux.entities[moved.index()].lag.abs_diff(lag) <= 1, "rounded once");
        } else {
            assert_eq!(distance(&hand, 1), before, "{era:?}");
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
    while hand.linux.eevdf_is_eligible(hand.running[0].unwrap(), CPU) {
        hand.pass(MS / 10);
    }
    let task = hand.running[0].unwrap();
    hand.block(CPU);
    (hand, task.0)
}

#[test]
fn a_task_that_blocks_ahead_of_its_share_leaves_later() {
    let (mut hand, task) = blocked_ahead();
    assert!(hand.entity(task).delayed && hand.entity(task).queued);
    assert_eq!(hand.linux.cpus[0].nr_running(), 1, "it does not count");
    hand.pass(2 * MS);
    assert!(!hand.entity(task).delayed && !hand.entity(task).queued, "the other one has caught up");
    assert!(hand.entity(task).lag <= 0, "nothing was gained");
    assert_eq!(hand.running[0], Some(TaskId(1 - task)));
}

#[test]
fn a_task_that_is_leaving_wakes_up_where_it_is() {
    let (mut hand, task) = blocked_ahead();
    let vruntime = hand.entity(task).vruntime;
    let wake = Reason::Wake { waker: None, cpu: CPU, sync: false };
    let (cpu, _) = hand.ask(|linux, ctx| linux.select_cpu(ctx, TaskId(task), wake));
    assert_eq!(cpu, CPU);
    hand.wake(task);
    let entity = hand.entity(task);
    assert_eq!(
        (entity.delayed, entity.queued, entity.vruntime),
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
        let entity = hand.entity(1);
        assert_eq!((entity.weight, entity.sum_exec_ns), (335, 0), "{era:?}");
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
        assert!(hand.running[1].is_some() && hand.linux.cpus[1].nr_running() == 2, "{era:?}");
        assert!(hand.linux.idle.contains(CPU), "{era:?}");
    }
}

/// Two packages of two cores: CPUs 0 and 1 share a cache, CPUs 2 and 3 another.
#[test]
fn a_wake_up_is_left_to_its_cpu_if_no_cache_is_shared_and_in_6_12_if_it_has_nothing_to_run() {
    for era in ERAS {
        for (domains, shares_cache) in [(Domains::Topology, true), (Domains::Flat, false)] {
            let mut it = Situation::new(era, domains, one_node(2, 2, 1));
            let by_interrupt = |it: &Situation, cpu: u32| it.linux.wakes_by_interrupt(CpuId(0), CpuId(cpu));
            let idle = [0, 1, 2].map(|cpu| by_interrupt(&it, cpu));
            (1..3).for_each(|cpu| _ = it.run_on(cpu));
            let busy = [0, 1, 2].map(|cpu| by_interrupt(&it, cpu));
            let left_to_idle = era == LinuxEra::V6_12 || !shares_cache;
            assert_eq!(idle, [false, left_to_idle, true], "{era:?}, {domains:?}");
            assert_eq!(busy, [false, !shares_cache, true], "{era:?}, {domains:?}");
        }
    }
}
