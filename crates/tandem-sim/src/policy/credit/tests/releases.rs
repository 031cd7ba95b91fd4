//! Rules that changed between releases. Each test is named after the function of Xen's `sched_credit.c` that
//! has the rule; the releases that were read are 4.1 to 4.12 and the stable branches to 4.20.

use super::*;
use Priority::{Boost, Over, Under};

const ALL: [Era; 5] = [Era::Xen4_2, Era::Xen4_3, Era::Xen4_5, Era::Xen4_9, Era::Xen4_13];
/// The affinity of a vCPU that has none.
const ANYWHERE: (&[u32], &[u32]) = (&[], &[]);

/// vCPU 0 wakes with a boost on CPU 0, where it must run and vCPU 1 runs; CPU 1 idles, and vCPU 1 may use it
/// only in the first case.
#[test]
fn runq_tickle_migrates_what_gives_way() {
    for (may_use, expected) in
        [(&[0, 1][..], [false, true, true, true, false]), (&[0], [false, true, true, false, false])]
    {
        for (era, moves) in ALL.into_iter().zip(expected) {
            let mut situation = Situation::of_era(era, (1, 2, 1), &[(&[0], &[]), (may_use, &[])]);
            situation.runs(1, 0, Under);
            assert_eq!(situation.wake(0, 0), [0], "{era:?}");
            assert_eq!(situation.credit.vcpus[1].migrating, moves, "{era:?}, allowed {may_use:?}");
        }
    }
}

#[test]
fn csched_vcpu_wake_boosts_after_a_migration_until_4_6() {
    for (era, expected) in ALL.into_iter().zip([Boost, Boost, Boost, Under, Under]) {
        let mut situation = Situation::of_era(era, (1, 2, 1), &[(&[], &[])]);
        situation.set(0, Under);
        situation.ask(|credit, ctx| credit.migrate(ctx, TaskId(0)));
        assert_eq!(situation.credit.vcpus[0].priority, expected, "{era:?}");
    }
}

/// The flag stays until the vCPU is next queued, even if that is at a wake-up.
#[test]
fn csched_vcpu_wake_does_not_boost_a_vcpu_moved_in_its_sleep() {
    for (era, expected) in ALL.into_iter().zip([Boost, Boost, Boost, Under, Under]) {
        let mut situation = Situation::of_era(era, (1, 2, 1), &[(&[], &[])]);
        situation.ask(|credit, ctx| credit.migrate(ctx, TaskId(0)));
        situation.wake(0, 0);
        assert_eq!(situation.credit.vcpus[0].priority, expected, "{era:?}");
        situation.credit.queues.remove(TaskId(0));
        situation.credit.set_priority(TaskId(0), Under);
        situation.wake(0, 0);
        assert_eq!(situation.credit.vcpus[0].priority, Boost, "{era:?}, the next time");
    }
}

/// CPU 2 of six, three a node, searches while something waits on all others.
#[test]
fn csched_load_balance_is_a_ring_before_it_is_by_node() {
    for (era, expected) in ALL.into_iter().zip([3, 0, 0, 0, 0]) {
        let mut situation = Situation::of_era(era, (2, 3, 1), &[ANYWHERE; 6]);
        for other in [0, 1, 3, 4, 5] {
            situation.waits(other, other, Under);
        }
        situation.only_idle(&[2]);
        assert_eq!(situation.steal(2, None), Some(expected), "{era:?}");
    }
}

/// vCPU 0 is on CPU 0, where another one waits. The threads of its core and of the next are idle but CPU 0:
/// Xen 4.2 takes CPU 0 for idle, so that no core is better.
#[test]
fn csched_cpu_pick_takes_the_own_cpu_for_idle_until_4_2() {
    for (era, expected) in ALL.into_iter().zip([0, 1, 1, 1, 1]) {
        let mut situation = Situation::of_era(era, (1, 2, 2), &[(&[], &[]), (&[], &[])]);
        situation.runs(0, 0, Under);
        situation.waits(1, 0, Under);
        situation.only_idle(&[1]);
        assert_eq!(situation.pick(0), expected, "{era:?}");
    }
}

#[test]
fn csched_schedule_sets_the_timer_of_the_rate_limit() {
    // Time that the vCPU has run, timer before 4.8, and since; us. The limit is 1000 us.
    let cases = [
        (0, 1000, 100),
        (99, 1000, 100),
        (100, 1000, 900),
        (283, 1000, 717),
        (950, 1000, 50),
        (999, 1000, 1),
    ];
    for era in ALL {
        for (ran_us, early_us, late_us) in cases {
            let settings = CreditSettings { era, ..CreditSettings::default() };
            let mut situation = Situation::new(settings, (1, 1, 1), &[(&[], &[])]);
            situation.runs(0, 0, Under);
            situation.credit.vcpus[0].started_ns = situation.now_ns - ran_us * 1_000;
            let dispatch = situation.ask(|credit, ctx| credit.dispatch(ctx, CpuId(0), Some(TaskId(0)))).0;
            let expected_us = if era < Era::Xen4_9 { early_us } else { late_us };
            assert_eq!(dispatch.slice_ns, expected_us * 1_000, "{ran_us} us, {era:?}");
        }
    }
}

/// A queued vCPU that gets credit moves forward at the first tick after that accounting, not at every tick.
#[test]
fn csched_runq_sort_follows_an_accounting() {
    let mut situation = Situation::of_era(Era::Xen4_9, (1, 1, 1), &[ANYWHERE; 3]);
    situation.runs(0, 0, Under);
    situation.credit.activate(TaskId(0));
    situation.waits(1, 0, Over);
    situation.waits(2, 0, Over);
    let order = |situation: &Situation| -> Vec<u32> {
        situation.credit.queues.iter(CpuId(0)).map(|task| task.0).collect()
    };
    let tick = |credit: &mut Credit, ctx: &mut Context<'_>| credit.tick(ctx, CpuId(0), TaskId(0));
    situation.account();
    situation.ask(tick);
    situation.credit.set_priority(TaskId(2), Under);
    situation.ask(tick);
    assert_eq!(order(&situation), [1, 2], "no accounting since the last sort");
    situation.account();
    situation.ask(tick);
    assert_eq!(order(&situation), [2, 1]);
}

/// Xen 4.3 to 4.12 clear the flag of parking before they wake the vCPU, so that it is boosted.
#[test]
fn csched_acct_unparks() {
    for (era, expected) in ALL.into_iter().zip([Under, Boost, Boost, Boost, Under]) {
        let mut situation = Situation::of_era(era, (1, 1, 1), &[(&[], &[])]);
        situation.set(0, Over);
        situation.credit.vcpus[0].parked = true;
        situation.credit.activate(TaskId(0));
        situation.account();
        let vcpu = &situation.credit.vcpus[0];
        assert_eq!((vcpu.parked, vcpu.priority), (false, expected), "{era:?}");
    }
}
