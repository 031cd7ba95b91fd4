//! Shares of a CPU.

use super::*;

#[test]
fn weights_of_nice_values() {
    assert_eq!([-20, -1, 0, 5, 19].map(weight_of_nice), [88761, 1277, 1024, 335, 15]);
    assert_eq!([i8::MIN, i8::MAX].map(weight_of_nice), [88761, 15], "beyond the ends");
    for nice in -20..19 {
        let ratio = f64::from(weight_of_nice(nice)) / f64::from(weight_of_nice(nice + 1));
        assert!((1.15..1.35).contains(&ratio), "a step from nice {nice} is {ratio}");
    }
}

/// Equal tasks on one CPU never differ by more than a slice, or a tick if that is longer, for any number of
/// tasks.
#[test]
fn equal_tasks_share_equally() {
    for era in ERAS {
        for tasks in [2, 3, 7, 40] {
            let mut hand = Hand::new(era, 1, &vec![1024; tasks]);
            (0..tasks as u32).for_each(|task| hand.start(task));
            hand.pass(tasks as u64 * 100 * MS);
            let most = hand.ran_ns.iter().max().unwrap();
            let least = hand.ran_ns.iter().min().unwrap();
            let slice_ns = if EEVDF.contains(&era) { 700_000 } else { 6 * MS / (tasks as u64).min(8) };
            // New tasks start with a debt of up to a slice.
            let bound_ns = 2 * slice_ns + 2 * hand.linux.tick_period_ns();
            assert!(most - least <= bound_ns, "{era:?}, {tasks} tasks: {least} to {most} ns");
        }
    }
}

#[test]
fn time_follows_weight() {
    for era in ERAS {
        for (nice, share_permille) in [(5, 753), (1, 555), (-3, 339), (19, 985)] {
            let mut hand = Hand::new(era, 1, &[1024, weight_of_nice(nice)]);
            hand.start(0);
            hand.start(1);
            hand.pass(20_000 * MS);
            let found = hand.ran_ns[0] / (20 * MS);
            assert!(found.abs_diff(share_permille) <= 2, "{era:?}: nice 0 has {found} beside nice {nice}");
        }
    }
}

/// A task that sleeps for half of the time in which it could run neither loses its share of the rest nor
/// gains more than its share.
#[test]
fn a_task_that_sleeps_keeps_to_its_share() {
    for era in ERAS {
        let mut hand = Hand::new(era, 1, &[1024; 3]);
        (0..3).for_each(|task| hand.start(task));
        for _ in 0..200 {
            hand.pass_until_runs(0);
            hand.block(CPU);
            hand.pass(10 * MS);
            hand.wake(0);
            hand.pass(10 * MS);
        }
        assert!(hand.ran_ns[0] < hand.ran_ns[1].min(hand.ran_ns[2]), "{era:?}: {:?}", hand.ran_ns);
        let difference = hand.ran_ns[1].abs_diff(hand.ran_ns[2]);
        assert!(difference <= 4 * MS, "{era:?}: the others are equal: {:?}", hand.ran_ns);
    }
}

#[test]
fn slices_are_those_of_the_tunables() {
    // Eight CPUs: tunables x 4. Period 24 ms for up to 8 tasks, then 3 ms each; slices of EEVDF are 2.8 ms.
    for (era, tasks, slice_ns) in [
        (LinuxEra::V4_2, 2, 12 * MS),
        (LinuxEra::V4_2, 6, 4 * MS),
        (LinuxEra::V4_2, 12, 3 * MS),
        (LinuxEra::V6_12, 2, 2_800_000),
        (LinuxEra::V7_3, 12, 2_800_000),
    ] {
        let mut hand = Hand::new(era, 8, &vec![1024; tasks]);
        for task in 0..tasks as u32 {
            hand.pin(task, CPU);
            hand.start(task);
        }
        hand.pass(100 * MS);
        let before = hand.counter("slices_ended");
        hand.pass(1000 * MS);
        let slices = hand.counter("slices_ended") - before;
        let expected = 1000 * MS / slice_ns;
        // A slice ends at the first tick (0.1 ms) after it is used up.
        let range = expected * 94 / 100..=expected * 102 / 100;
        assert!(range.contains(&slices), "{era:?}, {tasks} tasks: {slices} slices, not {expected}");
    }
}

#[test]
fn stolen_time_is_charged_without_a_steal_clock_only() {
    for era in ERAS {
        for steal_clock in [false, true] {
            let settings = LinuxSettings { era, steal_clock, ..LinuxSettings::default() };
            let mut hand = Hand::with(settings, 1, &[1024; 2]);
            hand.start(0);
            let start = hand.vruntime(0);
            hand.pass(50 * MS);
            hand.stolen_ns[0] += 30 * MS;
            hand.tell(|linux, ctx| linux.tick(ctx, CPU, TaskId(0)));
            hand.pass(10 * MS);
            let charged_ns = (hand.vruntime(0) - start) as u64;
            // Stolen time that is reported late is skipped later.
            let expected_ns = if steal_clock { 50 * MS } else { 60 * MS };
            assert_eq!(charged_ns, expected_ns, "{era:?}, steal clock {steal_clock}");
        }
    }
}

#[test]
fn a_yield_lets_the_others_go_first() {
    for era in ERAS {
        let mut hand = Hand::new(era, 1, &[1024; 2]);
        hand.start(0);
        hand.start(1);
        hand.pass_until_runs(0);
        hand.tell(|linux, ctx| linux.yielded(ctx, CPU, TaskId(0)));
        hand.decide(CPU);
        hand.pass(MS / 10);
        assert!(hand.ran_ns[1] > 0, "{era:?}");
        let mut alone = Hand::new(era, 1, &[1024]);
        alone.start(0);
        alone.tell(|linux, ctx| linux.yielded(ctx, CPU, TaskId(0)));
        alone.decide(CPU);
        assert_eq!(alone.running[0], Some(TaskId(0)), "{era:?}: nobody else is there");
    }
}
