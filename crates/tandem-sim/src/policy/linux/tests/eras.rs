//! What EEVDF of 6.12, 6.18 and 7.3 does differently on a CPU.

use super::*;
use crate::policy::linux::situation::Situation;

const BY: CpuId = CpuId(1);
const WAKE: Reason = Reason::Wake { waker: None, cpu: CPU, sync: false };

/// Tasks on CPU 0, the first of which runs, with these virtual run times and deadlines; the deadline for
/// which it was chosen.
fn on_cpu(settings: LinuxSettings, tasks: &[(i64, i64)], chosen_deadline: i64) -> Hand {
    let mut hand = Hand::with(settings, 2, &vec![1024; tasks.len()]);
    for task in 0..tasks.len() as u32 {
        hand.pin(task, CPU);
        hand.start(task);
    }
    assert_eq!(hand.running[0], Some(TaskId(0)));
    for (task, &(vruntime, deadline)) in (0..).zip(tasks) {
        hand.linux.queues.replace(TaskId(task), |discipline| {
            let it = discipline.eevdf_mut().task_mut(TaskId(task));
            (it.vruntime, it.deadline) = (vruntime, deadline);
        });
    }
    hand.discipline().eevdf_mut().task_mut(TaskId(0)).chosen_deadline = chosen_deadline;
    hand
}

fn of(era: LinuxEra) -> LinuxSettings {
    LinuxSettings { era, ..LinuxSettings::default() }
}

/// What the scheduler asks for, at once and for later.
fn asked(hand: &mut Hand, question: impl FnOnce(&mut Linux, &mut Context<'_>)) -> (Vec<CpuId>, Vec<Later>) {
    let (mut kicked, mut later) = (Vec::new(), Vec::new());
    let mut context = Context {
        now_ns: hand.now_ns,
        machine: &hand.machine,
        tasks: &hand.facts,
        stolen_ns: &hand.stolen_ns,
        kicked: &mut kicked,
        peers_scanned: &mut 0,
        locked: &mut Vec::new(),
        shared_locked: &mut Vec::new(),
        alarms: &mut Vec::new(),
        later: &mut later,
        failure: &mut None,
    };
    question(&mut hand.linux, &mut context);
    (kicked, later)
}

/// Task 0 has gone on without a switch after the slice that ended at 1000.
#[test]
fn update_curr_has_an_unprotected_task_picked_anew_always_since_6_17_and_before_once_it_is_ahead() {
    for (era, others_vruntime, resched) in [
        (LinuxEra::V6_12, 9_000_000, false),
        (LinuxEra::V6_12, 0, true),
        (LinuxEra::V6_18, 9_000_000, true),
        (LinuxEra::V7_3, 9_000_000, true),
    ] {
        for (chosen_deadline, resched) in [(1_000, resched), (5_000_000, false)] {
            let tasks = [(1_000, 5_000_000), (others_vruntime, 9_500_000)];
            let mut hand = on_cpu(of(era), &tasks, chosen_deadline);
            hand.now_ns += 100_000;
            let (kicked, later) = asked(&mut hand, |linux, ctx| linux.tick(ctx, CPU, TaskId(0)));
            let asks = kicked.contains(&CPU) || later.contains(&Later::AtReturn(CPU));
            assert_eq!(asks, resched, "{era:?}: chosen for {chosen_deadline}, others at {others_vruntime}");
        }
    }
}

/// Two CPUs: a slice is 1.4 ms, a tick 4 ms.
#[test]
fn entity_lag_is_limited_to_two_slices_or_a_tick_and_since_6_19_to_a_slice_and_a_tick() {
    for (era, hz, limit) in [
        (LinuxEra::V6_12, 250, 4_000_000),
        (LinuxEra::V6_18, 1000, 2_800_000),
        (LinuxEra::V7_3, 250, 5_400_000),
        (LinuxEra::V7_3, 1000, 2_400_000),
    ] {
        let machine = MachineBuilder::symmetric(1, 2, 1).build().unwrap();
        let mut it = Situation::with(LinuxSettings { tick_hz: hz, ..of(era) }, machine);
        let [task, _] = [0, 1].map(|_| it.queue_on(0));
        it.linux.queues.replace(task, |discipline| *discipline.vruntime_mut(task) = -90_000_000);
        assert_eq!(it.linux.queues.note_lag(task), limit, "{era:?}, {hz} Hz");
    }
}

/// Task 0 blocks 1 ms ahead of the average, which then falls.
#[test]
fn update_entity_lag_keeps_the_debt_of_a_leaving_task_from_growing_since_7_1() {
    for (era, wakes, debt) in [
        (LinuxEra::V6_18, false, 2_500_000),
        (LinuxEra::V6_18, true, 2_500_000),
        (LinuxEra::V7_3, false, 1_000_000),
        (LinuxEra::V7_3, true, 1_000_000),
    ] {
        let tasks = [(2_000_000, 3_000_000), (1, 8_000_000)];
        let mut hand = on_cpu(of(era), &tasks, 3_000_000);
        hand.block(CPU);
        assert!(hand.entity(0).delayed);
        hand.linux.queues.replace(TaskId(1), |discipline| {
            *discipline.vruntime_mut(TaskId(1)) = -3_000_000;
        });
        if wakes {
            hand.ask(|linux, ctx| linux.enqueue(ctx, TaskId(0), CPU, WAKE));
            let debt_now = -hand.linux.queues.note_lag(TaskId(0));
            assert!(debt_now.abs_diff(debt) <= 1, "{era:?}: it owes {debt_now}");
        } else {
            hand.ask(|linux, ctx| linux.queues.leave_at_last(ctx, TaskId(0)));
            let lag = hand.discipline().eevdf_mut().task_mut(TaskId(0)).lag;
            assert!(lag.abs_diff(-debt) <= 1, "{era:?}: {lag}");
        }
    }
}

/// The parent is ahead of its share and no longer protected.
#[test]
fn wakeup_preempt_fair_does_not_compare_a_new_task_since_6_19() {
    for (era, preempts) in [(LinuxEra::V6_12, 1), (LinuxEra::V6_18, 1), (LinuxEra::V7_3, 0)] {
        let mut hand = on_cpu(of(era), &[(4_000_000, 9_000_000), (3_000_000, 9_000_000)], 0);
        hand.facts.push(hand.facts[0].clone());
        let before = hand.counter("wakeup_preemptions");
        let fork = Reason::Fork { parent: TaskId(0), cpu: CPU };
        hand.ask(|linux, ctx| linux.enqueue(ctx, TaskId(2), CPU, fork));
        assert_eq!(hand.counter("wakeup_preemptions") - before, preempts, "{era:?}");
    }
}

/// Task 1 has the earliest deadline but is leaving; task 2 wakes up with the next.
#[test]
fn wakeup_preempt_fair_dequeues_a_leaving_task_that_comes_out_first_since_7_1() {
    for (era, removed) in [(LinuxEra::V6_12, false), (LinuxEra::V6_18, false), (LinuxEra::V7_3, true)] {
        let tasks = [(5_000_000, 9_000_000), (0, 1_000), (0, 8_000_000)];
        let mut hand = on_cpu(of(era), &tasks, 0);
        hand.linux.queues.delay(TaskId(1));
        hand.ask(|linux, ctx| linux.queues.leave_at_last(ctx, TaskId(2)));
        hand.discipline().eevdf_mut().task_mut(TaskId(2)).lag = 500_000;
        let before = hand.counter("wakeup_preemptions");
        hand.ask(|linux, ctx| linux.enqueue(ctx, TaskId(2), CPU, WAKE));
        assert_eq!(!hand.entity(1).queued, removed, "{era:?}");
        assert_eq!(hand.counter("wakeup_preemptions") - before, u64::from(removed), "{era:?}");
    }
}

/// The end of the turn that is asked for, ns from now.
fn turn_end(hand: &Hand, later: &[Later]) -> Option<u64> {
    later.iter().find_map(|what| match what {
        Later::At { cpu: CPU, at_ns } => Some(at_ns - hand.now_ns),
        _ => None,
    })
}

/// Virtual time is real time divided by the weight, and so a slice lasts 1.4 ms for any.
#[test]
fn hrtick_start_fair_sets_the_timer_to_the_virtual_deadline_of_one_of_several() {
    let mut hand = Hand::new(LinuxEra::V7_3, 2, &[335, 1024]);
    hand.start(0);
    let (_, later) = asked(&mut hand, |linux, ctx| _ = linux.dispatch(ctx, CPU, Some(TaskId(0))));
    assert_eq!(turn_end(&hand, &later), None, "it is alone");
    hand.now_ns += 100_000;
    let start = |linux: &mut Linux, ctx: &mut Context<'_>| linux.enqueue(ctx, TaskId(1), CPU, Reason::Start);
    let (_, later) = asked(&mut hand, start);
    let (deadline, vruntime) = hand.linux.queues.place_of(TaskId(0));
    let left_ns = ((deadline - vruntime) as u64 * 335).div_ceil(1024);
    assert!(left_ns.abs_diff(700_000 - 100_000) <= 1, "half a slice, less what it has run");
    assert_eq!(turn_end(&hand, &later), Some(left_ns));

    hand.now_ns += left_ns;
    let (kicked, _) = asked(&mut hand, |linux, ctx| linux.turn_ends(ctx, CPU, TaskId(0)));
    assert_eq!(kicked, [CPU], "at once, although preemption is lazy");
    let (_, later) = asked(&mut hand, |linux, ctx| _ = linux.dispatch(ctx, CPU, Some(TaskId(0))));
    let (deadline, vruntime) = hand.linux.queues.place_of(TaskId(1));
    assert_eq!(turn_end(&hand, &later), Some((deadline - vruntime) as u64), "the turn of the other one");
    let (_, later) = asked(&mut hand, |linux, ctx| _ = linux.dispatch(ctx, CPU, Some(TaskId(1))));
    assert_eq!(turn_end(&hand, &later), None, "it goes on, and the timer runs");

    let mut hand = Hand::new(LinuxEra::V6_18, 2, &[1024; 2]);
    hand.start(0);
    let (_, later) = asked(&mut hand, start);
    assert_eq!(turn_end(&hand, &later), None, "6.18 has none");
}

/// Task 0, which was picked twice and is ahead, runs on CPU 0; task 1 wakes up there, by a task elsewhere.
#[test]
fn resched_curr_lazy_sends_no_interrupt_but_to_a_cpu_that_idles_or_has_a_wake_list() {
    use Preemption::{Full, Lazy, Voluntary};
    for (era, preemption, domains, is_kicked) in [
        (LinuxEra::V6_12, Some(Voluntary), Domains::Topology, true),
        (LinuxEra::V6_18, Some(Full), Domains::Topology, true),
        (LinuxEra::V6_18, Some(Lazy), Domains::Topology, false),
        (LinuxEra::V7_3, None, Domains::Topology, false),
        (LinuxEra::V7_3, Some(Full), Domains::Topology, true),
        // With domains that share no cache, it comes by the wake list.
        (LinuxEra::V7_3, None, Domains::Flat, true),
    ] {
        let settings = LinuxSettings { preemption, domains, ..of(era) };
        let mut hand = on_cpu(settings, &[(0, 9_000_000), (0, 9_000_000)], 0);
        hand.ask(|linux, ctx| linux.queues.leave_at_last(ctx, TaskId(1)));
        hand.discipline().eevdf_mut().task_mut(TaskId(1)).lag = 1_000_000;
        let wake = Reason::Wake { waker: None, cpu: BY, sync: false };
        let (kicked, later) = asked(&mut hand, |linux, ctx| linux.enqueue(ctx, TaskId(1), CPU, wake));
        let what = format!("{era:?}, {preemption:?}, {domains:?}");
        assert_eq!(kicked.contains(&CPU), is_kicked, "{what}");
        let is_lazy = settings.preemption() == Lazy;
        assert_eq!(later.contains(&Later::AtReturn(CPU)), is_lazy, "{what}");
    }
    let mut hand = Hand::new(LinuxEra::V7_3, 2, &[1024]);
    let (kicked, _) = asked(&mut hand, |linux, ctx| linux.enqueue(ctx, TaskId(0), CPU, Reason::Start));
    assert_eq!(kicked, [CPU], "it idles");
}

/// Task 0, a thread of the kernel, runs; task 1 wakes up there and should run instead.
#[test]
fn sched_tick_makes_a_thread_of_the_kernel_reschedule_that_a_wake_up_has_asked_lazily() {
    let mut hand = on_cpu(of(LinuxEra::V7_3), &[(0, 9_000_000), (0, 9_000_000)], 0);
    hand.facts[0].is_kernel_thread = true;
    hand.ask(|linux, ctx| linux.queues.leave_at_last(ctx, TaskId(1)));
    hand.discipline().eevdf_mut().task_mut(TaskId(1)).lag = 1_000_000;
    let wake = Reason::Wake { waker: None, cpu: BY, sync: false };
    let (kicked, later) = asked(&mut hand, |linux, ctx| linux.enqueue(ctx, TaskId(1), CPU, wake));
    assert_eq!((kicked, later), (vec![], vec![]), "it does not return to user space");
    assert!(hand.linux.queues.of(CPU).is_told_lazily());
    let (kicked, _) = asked(&mut hand, |linux, ctx| linux.tick(ctx, CPU, TaskId(0)));
    assert!(kicked.contains(&CPU));
}

/// Task 0 blocks while it is ahead by 0.5 ms, and wakes up after task 1 has run for 3 ms.
#[test]
fn requeue_delayed_entity_goes_by_the_last_charge_until_7_3_charges_first() {
    for (era, vruntime) in
        [(LinuxEra::V6_12, 1_000_000), (LinuxEra::V6_18, 1_000_000), (LinuxEra::V7_3, 3_000_000)]
    {
        let mut hand = on_cpu(of(era), &[(1_000_000, 2_000_000), (0, 9_000_000)], 2_000_000);
        asked(&mut hand, |linux, ctx| {
            linux.blocked(ctx, CPU, TaskId(0));
            linux.dispatch(ctx, CPU, None);
        });
        assert!(hand.linux.queues.entity(TaskId(0)).delayed);
        hand.now_ns += 3_000_000;
        asked(&mut hand, |linux, ctx| linux.enqueue(ctx, TaskId(0), CPU, WAKE));
        assert_eq!(hand.linux.queues.place_of(TaskId(0)).1, vruntime, "{era:?}");
    }
}

#[test]
fn dequeue_entity_delays_no_task_that_exits() {
    for era in EEVDF {
        for exits in [false, true] {
            let mut hand = on_cpu(of(era), &[(1_000_000, 2_000_000), (0, 9_000_000)], 2_000_000);
            if exits {
                hand.linux.exits(TaskId(0));
            }
            asked(&mut hand, |linux, ctx| linux.blocked(ctx, CPU, TaskId(0)));
            assert_eq!(hand.linux.queues.entity(TaskId(0)).delayed, !exits, "{era:?}");
        }
    }
}

/// Task 0 has blocked, and is eligible once task 1 has left: then it leaves as well, although task 2 has the
/// earlier deadline.
#[test]
fn pick_eevdf_takes_the_task_that_has_just_blocked_for_the_running_one() {
    for era in EEVDF {
        for chosen_deadline in [10_000, 0] {
            let tasks = [(100, 10_000), (-3_000, 1_000), (100, 5_000)];
            let mut hand = on_cpu(of(era), &tasks, chosen_deadline);
            hand.linux.queues.entity_mut(TaskId(1)).delayed = true;
            hand.linux.queues.of_mut(CPU).begins_to_leave();
            asked(&mut hand, |linux, ctx| {
                linux.blocked(ctx, CPU, TaskId(0));
                linux.dispatch(ctx, CPU, None);
            });
            assert_eq!(hand.linux.queues.of(CPU).curr(), Some(TaskId(2)));
            let is_protected = chosen_deadline == 10_000;
            assert_eq!(hand.linux.queues.entity(TaskId(0)).delayed, !is_protected, "{era:?}");
        }
    }
}
