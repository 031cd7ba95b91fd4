//! What runs next and for how long, credits, and budgets.

use super::*;

const SOME: i64 = 5 * MS as i64;

#[test]
fn runq_candidate() {
    type Case = (&'static str, Affinities, u32, Option<i64>, u64, i64, u32);
    // The affinity of vCPU 0, its last CPU, credit of vCPU 1, which has run on CPU 0 for so long, credit of
    // vCPU 0; then who runs.
    const HALF: i64 = 500 * US as i64;
    let cases: [Case; 8] = [
        ("more credit", ANYWHERE, 0, Some(SOME), MS, SOME + 1, 0),
        ("as much", ANYWHERE, 0, Some(SOME), MS, SOME, 1),
        ("held by the rate limit", ANYWHERE, 0, Some(SOME), MS - 1, SOME + 1, 1),
        ("may not run here", (&[1], &[]), 1, Some(SOME), MS, SOME + MS as i64, 1),
        ("from elsewhere, as much as the resistance ahead", ANYWHERE, 1, Some(SOME), MS, SOME + HALF, 0),
        ("from elsewhere, less", ANYWHERE, 1, Some(SOME), MS, SOME + HALF - 1, 1),
        ("nothing else runs", ANYWHERE, 1, None, MS, -SOME, 0),
        ("no credit is more than less", ANYWHERE, 0, Some(-1), MS, 0, 0),
    ];
    for (what, affinities, cpu, running, ran_ns, credit, expected) in cases {
        let mut situation = Situation::new(settings(), (1, 2, 1), &[affinities, ANYWHERE]);
        if let Some(credit) = running {
            situation.runs(1, 0, ran_ns, credit);
        }
        situation.waits(0, cpu, credit);
        let previous = running.map(|_| 1);
        assert_eq!(situation.dispatch(0, previous).0, Some(expected), "{what}");
    }
}

#[test]
fn runq_candidate_leaves_a_vcpu_to_the_cpu_tickled_for_it() {
    let mut situation = Situation::new(settings(), (1, 2, 1), &[ANYWHERE; 2]);
    situation.vcpu(0).cpu = CpuId(1);
    assert_eq!(situation.wake(0), [1]);
    assert_eq!(situation.dispatch(0, None).0, None, "CPU 1 will come");
    assert_eq!(situation.dispatch(1, None).0, Some(0));
}

#[test]
fn runq_candidate_leaves_a_cpu_that_it_does_not_prefer() {
    for (idle, expected) in [(true, None), (false, Some(0))] {
        let mut situation = Situation::new(settings(), (1, 2, 1), &[(&[], &[1]), ANYWHERE]);
        situation.runs(0, 0, MS, SOME);
        if !idle {
            situation.runs(1, 1, MS, SOME);
        }
        assert_eq!(situation.dispatch(0, Some(0)).0, expected, "the other one idles: {idle}");
        assert_eq!(situation.vcpu(0).tickled_cpu, idle.then_some(CpuId(1)));
    }
}

#[test]
fn csched2_unit_yield() {
    let mut situation = Situation::new(settings(), (1, 1, 1), &[ANYWHERE; 2]);
    situation.runs(0, 0, 0, SOME);
    situation.waits(1, 0, -SOME);
    situation.ask(|credit2, ctx| credit2.yielded(ctx, CpuId(0), TaskId(0)));
    assert_eq!(situation.dispatch(0, Some(0)).0, Some(1), "less credit, and within the rate limit");
}

#[test]
fn burn_credits_by_weight() {
    let mut situation = Situation::of_vms(settings(), (1, 2, 1), &[ANYWHERE; 2], &[(256, 0), (768, 0)]);
    for (task, expected) in [(0, SOME - 300 - 900), (1, SOME - 100 - 300)] {
        situation.runs(task, task, 0, SOME);
        for ran_ns in [100, 300] {
            let now_ns = situation.vcpu(task).burnt_until_ns + ran_ns;
            situation.credit2.burn(TaskId(task), now_ns);
        }
        assert_eq!(situation.vcpu(task).credit, expected);
    }
    let now_ns = situation.vcpu(0).burnt_until_ns + 100 * MS;
    situation.credit2.burn(TaskId(0), now_ns);
    assert_eq!(situation.vcpu(0).credit, -10 * MS as i64, "the least");
}

/// Whatever is lost in a division is made up for later.
#[test]
fn t2c_update_keeps_the_residual() {
    let mut situation = Situation::of_vms(settings(), (1, 2, 1), &[ANYWHERE; 2], &[(300, 0), (1000, 0)]);
    situation.runs(0, 0, 0, SOME);
    for ran_ns in 1..=300 {
        let now_ns = situation.now_ns + ran_ns;
        situation.credit2.burn(TaskId(0), now_ns);
    }
    assert_eq!(situation.vcpu(0).credit, SOME - 1000);
}

#[test]
fn reset_credit() {
    const INIT: i64 = 10 * MS as i64;
    // The vCPU that runs next has no credit, nor does the first that waits; one sleeps with much.
    let mut situation = Situation::new(settings(), (1, 1, 1), &[ANYWHERE; 3]);
    situation.vcpu(2).credit = INIT;
    situation.runs(0, 0, MS, 0);
    situation.waits(1, 0, -1);
    situation.dispatch(0, Some(0));
    let credits = [0, 1, 2].map(|task| situation.vcpu(task).credit);
    assert_eq!(credits, [INIT, INIT - 1, INIT + INIT / 20], "no more than 0.5 ms are carried over");
    assert_eq!(situation.credit2.counters.resets, 1);
}

#[test]
fn reset_credit_is_twice_as_much_after_the_deepest_debt() {
    const INIT: i64 = 10 * MS as i64;
    let mut situation = Situation::new(settings(), (1, 1, 1), &[ANYWHERE; 1]);
    situation.runs(0, 0, MS, -INIT);
    situation.dispatch(0, Some(0));
    assert_eq!(situation.vcpu(0).credit, INIT);
}

#[test]
fn csched2_schedule_resets_only_if_the_first_that_waits_has_no_credit_either() {
    let mut situation = Situation::new(settings(), (1, 2, 1), &[ANYWHERE, (&[1], &[])]);
    situation.runs(0, 0, MS, -1);
    situation.waits(1, 1, SOME);
    situation.dispatch(0, Some(0));
    assert_eq!(situation.credit2.counters.resets, 0);
}

#[test]
fn csched2_schedule_compensates_for_another_cpu() {
    let mut situation = Situation::new(settings(), (1, 2, 1), &[ANYWHERE]);
    situation.waits(0, 1, SOME);
    situation.dispatch(0, None);
    assert_eq!((situation.vcpu(0).credit, situation.vcpu(0).cpu), (SOME + 50 * US as i64, CpuId(0)));
}

#[test]
fn csched2_runtime() {
    // Weight, credit, and rate limit of the vCPU, credit of one that waits; the turn.
    let ms = |time: u64| time as i64 * MS as i64;
    let cases = [
        (256, ms(5), MS, None, 5 * MS),
        (256, ms(5), MS, Some(ms(2)), 3 * MS),
        (256, ms(5), MS, Some(-1), 5 * MS),
        (256, ms(5), MS, Some(ms(5)), MS),
        (256, ms(5), 0, Some(ms(5)), 500 * US),
        (256, ms(10) + 500_000, MS, None, 10 * MS),
        (256, ms(5), 20 * MS, None, 20 * MS),
        (128, ms(5), MS, Some(ms(2)), 1500 * US),
    ];
    for (weight, credit, ratelimit_ns, other, expected) in cases {
        let settings = Credit2Settings { ratelimit_ns, ..settings() };
        let mut situation = Situation::of_vms(settings, (1, 1, 1), &[ANYWHERE; 2], &[(weight, 0), (256, 0)]);
        situation.waits(0, 0, credit);
        if let Some(credit) = other {
            situation.waits(1, 0, credit);
        }
        assert_eq!(situation.dispatch(0, None), (Some(0), expected), "{weight}, {credit}, {other:?}");
    }
}

/// Since 4.19, the vCPU that was just preempted counts as one that waits.
#[test]
fn csched2_runtime_knows_the_preempted_one() {
    for release in RELEASES {
        let settings = Credit2Settings { release, ..settings() };
        let mut situation = Situation::new(settings, (1, 1, 1), &[ANYWHERE; 2]);
        situation.runs(1, 0, MS, SOME);
        situation.waits(0, 0, SOME + 2 * MS as i64);
        let expected_ns = if release >= Release::Xen4_20 { 2 * MS } else { 7 * MS };
        assert_eq!(situation.dispatch(0, Some(1)), (Some(0), expected_ns), "{release:?}");
    }
}

mod budgets {
    use super::*;

    /// One CPU, and a VM of one vCPU that may use 40% of it: 4 ms in 10 ms.
    fn capped() -> Situation {
        Situation::of_vms(settings(), (1, 2, 1), &[ANYWHERE; 2], &[(256, 40), (256, 0)])
    }

    #[test]
    fn unit_grab_budget() {
        let mut situation = capped();
        situation.waits(0, 0, SOME);
        assert_eq!(situation.dispatch(0, None), (Some(0), 4 * MS), "no longer than the budget");
        situation.now_ns += 5 * MS;
        let (next, _) = situation.dispatch(0, Some(0));
        assert_eq!(next, None, "it has used 5 ms");
        let vcpu = situation.vcpu(0);
        assert!(vcpu.parked && vcpu.awake);
        assert_eq!(situation.credit2.budgets[0].parked_count(), 1);
    }

    #[test]
    fn replenish_domain_budget() {
        let mut situation = capped();
        situation.waits(0, 0, SOME);
        situation.dispatch(0, None);
        situation.now_ns += 9 * MS;
        situation.dispatch(0, Some(0));
        assert!(situation.ask(|credit2, ctx| credit2.timer(ctx)).1.is_empty(), "still 1 ms in debt");
        situation.now_ns += 10 * MS;
        assert_eq!(situation.ask(|credit2, ctx| credit2.timer(ctx)).1, [0]);
        assert_eq!(situation.dispatch(0, None), (Some(0), 3 * MS));
    }

    #[test]
    fn replenish_domain_budget_saves_nothing() {
        let mut situation = capped();
        for _ in 0..5 {
            situation.ask(|credit2, ctx| credit2.timer(ctx));
        }
        situation.waits(0, 0, 10 * MS as i64);
        assert_eq!(situation.dispatch(0, None), (Some(0), 4 * MS));
    }

    #[test]
    fn unit_return_budget() {
        let mut situation = capped();
        situation.waits(0, 0, SOME);
        situation.dispatch(0, None);
        situation.now_ns += MS;
        situation.ask(|credit2, ctx| credit2.blocked(ctx, CpuId(0), TaskId(0)));
        assert_eq!(situation.vcpu(0).budget_ns, 0);
        situation.waits(0, 0, SOME);
        assert_eq!(situation.dispatch(0, None), (Some(0), 3 * MS), "the rest of this period");
    }

    #[test]
    fn a_parked_vcpu_does_not_wake() {
        let mut situation = capped();
        situation.waits(0, 0, SOME);
        situation.dispatch(0, None);
        situation.now_ns += 4 * MS;
        situation.ask(|credit2, ctx| credit2.blocked(ctx, CpuId(0), TaskId(0)));
        assert!(situation.vcpu(0).parked, "it blocked with no budget left");
        assert_eq!(situation.dispatch(0, None).0, None);
        let reason = Reason::Wake { waker: None, cpu: CpuId(0), sync: false };
        let wake = |credit2: &mut Credit2, ctx: &mut Context<'_>| {
            credit2.enqueue(ctx, TaskId(0), CpuId(0), reason);
        };
        assert!(situation.ask(wake).1.is_empty());
        assert_eq!(situation.ask(|credit2, ctx| credit2.timer(ctx)).1, [0], "but at the next period");
    }
}
