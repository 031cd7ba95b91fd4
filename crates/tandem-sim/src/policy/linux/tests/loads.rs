//! The load measures of tasks and CPUs.

use super::*;

/// A CPU with a task of nice 0 and one of nice 5 that have run for a while, and then without tasks for some
/// time.
#[test]
fn load_of_a_busy_cpu_and_what_is_left_of_it() {
    for (era, idle_ms, expected) in [
        (LinuxEra::V3_6, 0, 1359..=1359),
        (LinuxEra::V3_6, 33, 0..=0),
        (LinuxEra::V4_2, 0, 1330..=1359),
        (LinuxEra::V4_2, 33, 0..=0),
        (LinuxEra::V5_2, 0, 1330..=1359),
        (LinuxEra::V5_2, 33, 0..=0),
        (LinuxEra::V6_12, 0, 1330..=1359),
        // The contribution of blocked tasks halves in 32 periods.
        (LinuxEra::V6_12, 33, 640..=720),
    ] {
        let mut hand = Hand::new(era, 1, &[1024, 335]);
        hand.start(0);
        hand.start(1);
        hand.pass(1000 * MS);
        if idle_ms > 0 {
            hand.block(CPU);
            hand.pass(MS);
            while hand.running[0].is_some() {
                hand.block(CPU);
            }
            hand.pass(idle_ms * MS);
            hand.ask(|linux, ctx| linux.queues.refresh_load(ctx, CPU));
        }
        let load = hand.linux.queues.loads().of_cpu(CPU);
        assert!(expected.contains(&load), "{era:?}, {idle_ms} ms idle: {load}");
    }
}

/// A task that runs a tenth of the time, alone.
#[test]
fn load_of_a_task_follows_what_it_uses() {
    for (era, expected) in [
        (LinuxEra::V3_6, 1024..=1024),
        (LinuxEra::V4_2, 60..=150),
        (LinuxEra::V5_2, 60..=150),
        (LinuxEra::V6_12, 60..=150),
    ] {
        let mut hand = Hand::new(era, 1, &[1024]);
        hand.start(0);
        for _ in 0..200 {
            hand.pass(MS);
            hand.block(CPU);
            hand.pass(9 * MS);
            hand.wake(0);
        }
        let load = hand.linux.queues.loads().of_task(TaskId(0));
        assert!(expected.contains(&load), "{era:?}: {load}");
        if era >= LinuxEra::V5_2 {
            let util = hand.linux.queues.loads().task_util(TaskId(0));
            assert!((60..=150).contains(&util), "{util}");
            assert!(
                hand.linux.queues.loads().average_util(CPU).abs_diff(util) <= 20,
                "all of the CPU's use is its"
            );
        }
    }
}

/// The contribution of a task moves with it to another CPU, in both directions and without remainder.
#[test]
fn averages_move_with_the_task() {
    let mut hand = Hand::new(LinuxEra::V6_12, 2, &[1024; 2]);
    for task in 0..2 {
        hand.pin(task, CPU);
        hand.start(task);
    }
    hand.pass(500 * MS);
    let moved = TaskId(u32::from(hand.running[0] == Some(TaskId(0))));
    let before = hand.linux.queues.loads().of_cpu(CPU);
    hand.pin(moved.0, CpuId(1));
    hand.tell(|linux, ctx| linux.queues.move_queued(ctx, moved, CPU, CpuId(1)));
    let (left, came) = (hand.linux.queues.loads().of_cpu(CPU), hand.linux.queues.loads().of_cpu(CpuId(1)));
    assert!((before / 2).abs_diff(left) <= 20 && left.abs_diff(came) <= 20, "{before}: {left} + {came}");
    // It blocks there and wakes up here.
    hand.pass(100 * MS);
    hand.block(CpuId(1));
    hand.pin(moved.0, CPU);
    hand.wake_on(moved.0, CPU);
    hand.ask(|linux, ctx| linux.queues.refresh_load(ctx, CpuId(1)));
    assert!(hand.linux.queues.loads().of_cpu(CpuId(1)) <= 2, "nothing is left");
    assert!(hand.linux.queues.loads().of_cpu(CPU) > 1900);
}

#[test]
fn source_load_is_guessed_low_and_target_load_high_from_history() {
    for era in [LinuxEra::V3_6, LinuxEra::V4_2] {
        let mut hand = Hand::new(era, 1, &[1024]);
        hand.start(0);
        hand.pass(100 * MS);
        let busy = hand.linux.queues.loads().of_cpu(CPU);
        hand.block(CPU);
        // Past loads fade at ticks; none has come since.
        for index in 0..5 {
            let high = if index == 0 { 0 } else { busy };
            assert_eq!(hand.linux.queues.loads().source(CPU, index), 0, "{era:?}");
            assert!(hand.linux.queues.loads().target(CPU, index).abs_diff(high) <= 32, "{era:?} {index}");
        }
        // 20 ticks without a load.
        hand.pass(2 * MS);
        hand.ask(|linux, ctx| linux.queues.refresh_load(ctx, CPU));
        let fading: Vec<u64> = (1..5).map(|index| hand.linux.queues.loads().target(CPU, index)).collect();
        assert!(fading.is_sorted() && fading[0] == 0 && fading[3] > 50, "{era:?}: {fading:?}");
    }
}

/// A task that has run for a long time sleeps for half a second and wakes up.
#[test]
fn util_est_enqueue_counts_what_a_task_used_before_it_slept() {
    for (era, remembers) in [(LinuxEra::V4_2, false), (LinuxEra::V5_2, true), (LinuxEra::V6_12, true)] {
        let mut hand = Hand::new(era, 1, &[1024]);
        hand.start(0);
        hand.pass(1_000 * MS);
        hand.block(CPU);
        hand.pass(500 * MS);
        hand.ask(|linux, ctx| linux.queues.refresh_load(ctx, CPU));
        assert!(hand.linux.queues.loads().cpu_util(CPU) < 10, "{era:?}: it sleeps");
        hand.wake(0);
        let util = hand.linux.queues.loads().cpu_util(CPU);
        assert_eq!(util > 1_000, remembers, "{era:?}: {util}");
        hand.pass(MS);
        hand.block(CPU);
        assert!(hand.linux.queues.loads().cpu_util(CPU) < 100, "{era:?}: it sleeps again");
    }
}
