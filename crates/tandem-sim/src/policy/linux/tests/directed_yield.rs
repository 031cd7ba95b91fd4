//! Directed yields. With two CPUs the wake-up granularity of CFS is 2 ms and a slice of EEVDF 1.4 ms.

use super::*;

const OTHER: CpuId = CpuId(1);
const SLICE_NS: i64 = 1_400_000;

/// Two CPUs whose first tasks run and whose others wait, with these virtual run times in ms. Tasks are
/// numbered across both.
fn situation(era: LinuxEra, queues: [&[i64]; 2]) -> Hand {
    let mut hand = Hand::new(era, 2, &vec![1024; queues[0].len() + queues[1].len()]);
    let mut task = 0;
    for (cpu, vruntimes_ms) in [CPU, OTHER].into_iter().zip(queues) {
        for _ in vruntimes_ms {
            hand.pin(task, cpu);
            hand.enqueue(task, cpu, Reason::Start);
            task += 1;
        }
    }
    for (task, vruntime_ms) in queues.concat().into_iter().enumerate() {
        let (task, vruntime) = (TaskId::from(task), vruntime_ms * MS as i64);
        hand.linux.queues.replace(task, |discipline| {
            *discipline.vruntime_mut(task) = vruntime;
            if let Discipline::Eevdf(eevdf) = discipline {
                let it = eevdf.task_mut(task);
                it.deadline = vruntime + SLICE_NS;
                it.chosen_deadline = it.deadline;
            }
        });
    }
    hand
}

/// The task on CPU 0 yields to another; returns the answer and the CPUs that must reschedule.
fn yield_to(hand: &mut Hand, target: u32) -> (bool, Vec<CpuId>) {
    let task = hand.running[0].unwrap();
    hand.ask(|linux, ctx| linux.yield_to(ctx, CPU, task, TaskId(target)))
}

fn running(hand: &Hand) -> [u32; 2] {
    [0, 1].map(|cpu| hand.running[cpu].unwrap().0)
}

#[test]
fn under_cfs_the_target_runs_next_if_that_is_not_too_unfair() {
    for era in CFS {
        // CPU 1 runs task 2; task 3 is the next in its queue, and task 4 the target.
        for (target_ms, next) in [(2, 4), (3, 3)] {
            let mut hand = situation(era, [&[0, 1], &[0, 0, target_ms]]);
            assert_eq!(yield_to(&mut hand, 4), (true, vec![OTHER]), "{era:?}");
            hand.decide(OTHER);
            assert_eq!(running(&hand)[1], next, "{era:?}: {target_ms} ms ahead");
            hand.decide(CPU);
            assert_eq!(
                running(&hand)[0],
                1,
                "{era:?}: the one that yields is passed over, though it is behind"
            );
        }
    }
}

#[test]
fn under_cfs_the_target_has_its_turn_as_soon_as_it_is_fair() {
    for era in CFS {
        let mut hand = situation(era, [&[0, 1], &[0, 0, 3]]);
        yield_to(&mut hand, 4);
        hand.decide(OTHER);
        assert_eq!(running(&hand)[1], 3, "{era:?}");
        for next in [2, 4] {
            hand.pass(MS);
            hand.tell(|linux, ctx| linux.queues.reschedule(ctx, OTHER));
            assert_eq!(running(&hand)[1], next, "{era:?}: both of the others have run 1 ms before it does");
        }
    }
}

#[test]
fn under_cfs_one_queue_will_do_for_both() {
    for era in CFS {
        for (target, next) in [(2, 2), (3, 1)] {
            let mut hand = situation(era, [&[0, 1, 2, 3], &[0]]);
            assert_eq!(yield_to(&mut hand, target), (true, vec![]), "{era:?}: a decision follows anyway");
            hand.decide(CPU);
            assert_eq!(running(&hand), [next, 4], "{era:?}: {target} ms ahead");
        }
    }
}

#[test]
fn a_task_that_is_alone_on_its_cpu_gives_nothing_away() {
    for era in ERAS {
        let mut hand = situation(era, [&[0], &[0, 0]]);
        let before = hand.linux.queues.place_of(TaskId(0));
        assert_eq!(yield_to(&mut hand, 2), (true, vec![OTHER]), "{era:?}");
        hand.decide(CPU);
        assert_eq!(running(&hand)[0], 0, "{era:?}");
        assert_eq!(hand.linux.queues.place_of(TaskId(0)), before);
        if let Discipline::Cfs(cfs) = hand.discipline() {
            assert_eq!(cfs.skips(CPU), None, "{era:?}");
        }
        assert_eq!(hand.counter("yld_count"), 1, "{era:?}");
    }
}

/// Asserts that yielding to the target is refused and leaves everything as it was.
fn assert_refused(hand: &mut Hand, target: u32, why: &str) {
    let era = hand.linux.settings.era;
    let before = format!("{:?}", hand.linux);
    assert_eq!(yield_to(hand, target), (false, vec![]), "{era:?}: {why}");
    assert!(format!("{:?}", hand.linux) == before, "{era:?}: {why}: something has changed");
}

#[test]
fn a_target_that_does_not_wait_is_refused() {
    for era in ERAS {
        let mut hand = situation(era, [&[0, 0], &[0, 0]]);
        assert_refused(&mut hand, 0, "it is the one that asks");
        assert_refused(&mut hand, 2, "it runs on another CPU");
        assert_refused(&mut hand, 9, "it has never been seen");
        hand.block(OTHER);
        assert_refused(&mut hand, 2, "it sleeps");
    }
    for era in EEVDF {
        let mut hand = situation(era, [&[0, 0], &[1, 0]]);
        hand.block(OTHER);
        assert!(hand.entity(2).delayed && hand.entity(2).queued);
        assert_refused(&mut hand, 2, "it sleeps, though it has not left the queue");
    }
}

/// CPU 1 runs task 2; tasks 3 and 4 wait in this order, and 4 is the target.
#[test]
fn pick_next_entity_takes_the_target_first_if_it_is_eligible() {
    for era in EEVDF {
        for (vruntimes_ms, next, why) in [
            ([0, 0, 0], 4, "although task 2 is within its slice"),
            ([2, 0, 0], 4, "although task 3 came first"),
            ([0, 0, 3], 2, "the target is ahead of the average"),
        ] {
            let mut hand = situation(era, [&[1, 0], &vruntimes_ms]);
            assert_eq!(yield_to(&mut hand, 4), (true, vec![OTHER]));
            hand.decide(OTHER);
            assert_eq!(running(&hand)[1], next, "{era:?}: {why}");
        }
        // It stays the next one until it is eligible.
        let mut hand = situation(era, [&[1, 0], &[2, 0, 3]]);
        yield_to(&mut hand, 4);
        hand.decide(OTHER);
        hand.pass(4_250_000);
        assert_eq!(running(&hand)[1], 4, "{era:?}: tasks 3 and 2 have run to 2.8 and 3.4 ms");
    }
}

/// Task 4 is the target of a directed yield on CPU 1, where task 2 is ahead; task 3 wakes up behind its
/// share.
#[test]
fn wakeup_preempt_fair_prefers_the_next_buddy_since_6_19() {
    for (era, preempts) in [(LinuxEra::V6_12, true), (LinuxEra::V6_18, true), (LinuxEra::V7_3, false)] {
        let mut hand = situation(era, [&[1, 0], &[0, 0, 0]]);
        hand.tell(|linux, ctx| linux.queues.reschedule(ctx, OTHER));
        hand.linux.queues.replace(TaskId(2), |discipline| {
            *discipline.vruntime_mut(TaskId(2)) = 3 * MS as i64;
        });
        hand.ask(|linux, ctx| linux.queues.leave_at_last(ctx, TaskId(3)));
        hand.discipline().eevdf_mut().task_mut(TaskId(3)).lag = 1_200_000;
        hand.linux.queues.mark_yielded_to(TaskId(4));
        let before = hand.counter("wakeup_preemptions");
        hand.ask(|linux, ctx| {
            let wake = Reason::Wake { waker: None, cpu: OTHER, sync: false };
            linux.enqueue(ctx, TaskId(3), OTHER, wake);
        });
        assert_eq!(hand.counter("wakeup_preemptions") > before, preempts, "{era:?}");
    }
}

#[test]
fn yield_task_fair_forfeits_the_rest_of_the_slice_of_an_eligible_task() {
    for era in EEVDF {
        let mut hand = situation(era, [&[0, 1], &[0, 0]]);
        let (deadline, _) = hand.linux.queues.place_of(TaskId(0));
        yield_to(&mut hand, 3);
        let after = (deadline + SLICE_NS, deadline);
        assert_eq!(hand.linux.queues.place_of(TaskId(0)), after, "{era:?}: as if the slice were over");
        hand.decide(CPU);
        assert_eq!(running(&hand)[0], 1, "{era:?}");

        let mut hand = situation(era, [&[1, 0], &[0, 0]]);
        let before = hand.linux.queues.place_of(TaskId(0));
        yield_to(&mut hand, 3);
        assert_eq!(hand.linux.queues.place_of(TaskId(0)), before, "{era:?}: it is ahead already");
    }
}
