//! Groups as members of queues: when their weights follow, and how they come to be picked.

use super::groups::{cgroup, in_cgroup};
use super::queues::{GroupId, LevelId, Member};
use super::*;
use crate::scenario::{BandwidthLimit, Cgroup};

/// Tasks in these groups side by side, each pinned to its CPU; they have not begun yet.
fn tasks(era: LinuxEra, places: &[(usize, u32)], cgroups: &[Cgroup]) -> Hand {
    let sets: Vec<_> = places.iter().map(|&(group, _)| in_cgroup(Some(group))).collect();
    let cpus = 1 + places.iter().map(|&(_, cpu)| cpu).max().unwrap();
    let mut hand = Hand::grouped(era, cpus, &vec![1024; places.len()], &sets, cgroups);
    for (task, &(_, cpu)) in (0..).zip(places) {
        hand.pin(task, CpuId(cpu));
    }
    hand
}

fn start(hand: &mut Hand, task: u32, cpu: u32) {
    hand.enqueue(task, CpuId(cpu), Reason::Start);
}

/// Tasks 0 and 1 in a group and task 2 in another one, all on CPU 0, at a moment when task 0 runs and is
/// ahead in its group.
fn first_is_ahead(era: LinuxEra) -> Hand {
    let mut hand = tasks(era, &[(0, 0), (0, 0), (1, 0)], &[cgroup(None, 100), cgroup(None, 100)]);
    (0..3).for_each(|task| start(&mut hand, task, 0));
    while hand.running[0] != Some(TaskId(0)) || !hand.linux.queues.is_ahead(TaskId(0)) {
        hand.pass(MS / 10);
    }
    hand
}

/// Under EEVDF, a group that becomes empty on a CPU keeps its weight there.
#[test]
fn update_cfs_group() {
    for era in EEVDF {
        let mut hand = tasks(era, &[(0, 0), (0, 1), (1, 0)], &[cgroup(None, 100), cgroup(None, 100)]);
        [0, 1, 0].into_iter().zip(0..).for_each(|(cpu, task)| start(&mut hand, task, cpu));
        hand.pass(500 * MS);
        hand.pass_until_runs(0);
        assert_eq!(hand.linux.queues.group_weights(1), [512, 512], "{era:?}");
        hand.block(CPU);
        hand.pass(200 * MS);
        assert_eq!(hand.linux.queues.group_weights(1)[0], 512, "{era:?}");
        hand.wake(0);
        assert_eq!(hand.linux.queues.group_weights(1)[0], 512, "{era:?}");
    }
}

/// What comes to a group that is throttled changes its weight when the group comes back.
#[test]
fn throttled_hierarchy() {
    for era in ERAS {
        let limit = BandwidthLimit { quota_us: 1000, period_us: 100_000 };
        let limited = Cgroup { limit: Some(limit), ..cgroup(None, 100) };
        let mut hand = tasks(era, &[(0, 0), (0, 1), (0, 0)], &[limited]);
        start(&mut hand, 0, 0);
        start(&mut hand, 1, 1);
        hand.pass(20 * MS);
        assert!((0..2).all(|at| hand.linux.queues.is_throttled(TaskId(at), CpuId(at))), "{era:?}");
        start(&mut hand, 2, 0);
        assert_eq!(hand.linux.queues.group_weights(1)[0], 512, "{era:?}");
        hand.pass(80 * MS);
        assert_eq!(hand.linux.queues.group_weights(1)[0], 682, "{era:?}");
    }
}

/// When a task that was leaving has left, its group should run on.
#[test]
fn dequeue_entities() {
    for era in EEVDF {
        let mut hand = first_is_ahead(era);
        hand.block(CPU);
        assert!(hand.entity(0).delayed, "{era:?}");
        let _ = hand.ask(|linux, ctx| linux.queues.leave_at_last(ctx, TaskId(0)));
        let group = Member::Group(LevelId::of(GroupId(1), CPU, 1));
        let marks = hand.discipline().clear_buddies(LevelId::root(CPU), group, [true; 3]);
        assert!(marks[0], "{era:?}");
    }
}

/// What has blocked counts as running in the pick that follows, and no longer, even if that goes elsewhere.
#[test]
fn put_prev_entity_forgets_what_blocked() {
    for era in EEVDF {
        let mut hand = first_is_ahead(era);
        for _ in 0..200 {
            if hand.running[0] == Some(TaskId(0)) {
                hand.block(CPU);
                hand.linux.queues.check();
                hand.pass(MS / 2);
                hand.wake(0);
            }
            hand.pass(MS / 10);
            hand.linux.queues.check();
        }
    }
}

/// A task whose weight changes in its slice stays protected in it from 7.1 on.
#[test]
fn rescale_entity() {
    for era in EEVDF {
        let mut hand = Hand::new(era, 1, &[1024, 1024]);
        (0..2).for_each(|task| hand.start(task));
        hand.pass_until_runs(1);
        hand.pass_until_runs(0);
        hand.pass(MS / 2);
        hand.facts[0].weight = 512;
        let _ = hand.ask(|linux, ctx| linux.weight_changed(ctx, TaskId(0)));
        let it = hand.discipline().eevdf_mut().task_mut(TaskId(0));
        assert_eq!(it.chosen_deadline == it.deadline, era == LinuxEra::V7_3, "{era:?}");
    }
}

/// In 7.3, a task that is leaving and comes from another CPU preempts nobody, and so has not left at once.
#[test]
fn wakeup_preempt_fair() {
    let mut hand = Hand::new(LinuxEra::V7_3, 2, &[1024, 1024, 1024]);
    hand.enqueue(0, CpuId(1), Reason::Start);
    [1, 2].into_iter().for_each(|task| hand.start(task));
    hand.pass(50 * MS);
    let waits = if hand.running[0] == Some(TaskId(1)) { 2 } else { 1 };
    hand.linux
        .queues
        .replace(TaskId(waits), |it| it.eevdf_mut().task_mut(TaskId(waits)).deadline -= 20 * MS as i64);
    hand.linux.queues.delay(TaskId(waits));
    let _ = hand.ask(|linux, ctx| linux.queues.move_queued(ctx, TaskId(waits), CPU, CpuId(1)));
    assert!(hand.entity(waits).delayed);
}
