//! The compiled scheduler's decisions, callback by callback: without a kernel, and without a clock of its
//! own.

mod desk;
mod guest;

use desk::{Desk, pinned, preferring, restricted, task, two_nodes, two_nodes_with_smt};
use tandem_machine::ids::{CpuId, NodeId, TaskId};
use tandem_settings::{Mode, Settings};
use tandem_sim::policy::TaskFacts;

fn tasks(count: usize) -> Vec<TaskFacts> {
    (0..count).map(|_| task()).collect()
}

/// A machine whose CPUs each run a task: task `n` on CPU `n`.
fn busy(settings: &Settings, more: Vec<TaskFacts>) -> Desk {
    let all = (0..8).map(pinned).chain(more).collect();
    let mut desk = Desk::new(settings, all);
    for cpu in 0..8 {
        assert_eq!(desk.run_on(cpu, cpu), CpuId(cpu));
    }
    desk
}

/// A machine whose CPUs from 2 on each run a task, and this many tasks that sleep: the first ones.
fn two_cpus_left(count: u32) -> Desk {
    let all = tasks(count as usize).into_iter().chain((2..8).map(pinned)).collect();
    let mut desk = Desk::new(&Settings::default(), all);
    for (task, cpu) in (count..).zip(2..8) {
        desk.run_on(task, cpu);
    }
    desk
}

#[test]
fn a_task_goes_back_to_its_cpu_if_that_idles() {
    let mut desk = Desk::new(&Settings::default(), tasks(2));
    let first = desk.run_on(0, 0);
    desk.pass_us(100);
    assert_eq!(desk.sleep(first.0), None);
    desk.pass_us(100);
    // The waker's CPU does not count: the waker continues.
    assert_eq!(desk.wake(0, 5), first);
    assert!(desk.kicked.contains(&first), "an idle CPU needs a kick");
    assert_eq!(desk.counter("wake_idle"), 2);
}

#[test]
fn a_task_whose_preferred_set_is_full_takes_an_idle_cpu_outside() {
    let mut all: Vec<_> = (0..4).map(pinned).collect();
    all.push(preferring(&[0, 1, 2, 3]));
    let mut desk = Desk::new(&Settings::default(), all);
    for cpu in 0..4 {
        desk.run_on(cpu, cpu);
    }
    let place = desk.run_on(4, 0);
    assert!(place.0 >= 4, "CPUs 0 to 3 are taken");
    assert_eq!((desk.counter("soft_rest"), desk.counter("soft_preferred")), (1, 0));

    // As a CPU of its set idles when its slice ends, it returns.
    desk.pass_us(20_000);
    desk.sleep(2);
    desk.tick(place.0);
    desk.decide(place.0);
    assert_eq!(desk.decide(2), Some(TaskId(4)));
    assert_eq!(desk.counter("soft_returned"), 1);
}

#[test]
fn a_task_with_no_idle_cpu_at_all_waits_for_its_set() {
    let mut desk = busy(&Settings::default(), vec![preferring(&[4, 5, 6, 7]), preferring(&[4, 5])]);
    let place = desk.wake(8, 0);
    assert!(place.0 >= 4);
    let place = desk.wake(9, 0);
    assert!([4, 5].contains(&place.0));
    assert_eq!(desk.counter("soft_waited"), 2);
    // A CPU of another node without other work takes one nevertheless.
    desk.pass_us(100);
    let taken = desk.sleep(0).expect("it steals rather than idles");
    assert!(taken.0 >= 8);
    assert_eq!(desk.counter("stolen_far"), 1);
}

#[test]
fn tasks_that_are_in_each_others_sets_change_places_where_no_cpu_idles() {
    let (first, second) = (0, 1);
    let others = [1, 2, 3, 5, 6, 7].map(pinned);
    let all =
        [preferring(&[4, 5, 6, 7]), preferring(&[0, 1, 2, 3]), pinned(4)].into_iter().chain(others).collect();
    let mut desk = Desk::new(&Settings::default(), all);
    for (task, cpu) in (2..9).zip([4, 1, 2, 3, 5, 6, 7]) {
        desk.run_on(task, cpu);
    }
    assert_eq!(desk.run_on(first, 0), CpuId(0), "its set is full");
    desk.sleep(4);
    assert_eq!(desk.run_on(second, 4), CpuId(4), "and so is that of the other one");

    // A CPU searches a part of the set each time a slice ends.
    for _ in 0..20 {
        desk.pass_us(20_000);
        desk.tick(0);
        if desk.decide(0) != Some(TaskId(first)) {
            break;
        }
    }
    assert_eq!(desk.decide(4), Some(TaskId(first)));
    assert_eq!(desk.decide(0), Some(TaskId(second)));
    assert_eq!(desk.counter("soft_swapped"), 1);

    // They are where they prefer to be.
    for cpu in [0, 4] {
        desk.pass_us(20_000);
        desk.tick(cpu);
        desk.decide(cpu);
    }
    assert_eq!(desk.counter("soft_swapped"), 1);
}

#[test]
fn preferences_that_are_switched_off_do_not_count() {
    let mut settings = Settings::default();
    settings.soft_affinity.enabled = false;
    settings.numa_homes.enabled = false;
    let mut desk = Desk::new(&settings, vec![preferring(&[4, 5, 6, 7])]);
    assert!(desk.wake(0, 0).0 < 4, "it stays where it is");
    assert_eq!(desk.counter("soft_preferred"), 0);
}

#[test]
fn a_yield_to_a_running_task_is_refused_and_one_to_a_waiting_task_runs_it() {
    let mut desk = busy(&Settings::default(), tasks(2));
    assert!(!desk.yield_to(0, 1), "task 1 runs, on CPU 1");
    assert_eq!(desk.counter("yield_to_running"), 1);

    desk.wake(8, 0);
    desk.wake(9, 0);
    assert!(desk.yield_to(0, 9));
    assert_eq!(desk.decide(0), Some(TaskId(9)), "not task 8, which came first");
    assert_eq!(desk.counter("yield_to_honoured"), 1);
}

#[test]
fn the_target_of_a_yield_runs_where_it_ran_and_the_yielder_continues() {
    let mut desk = busy(&Settings::default(), vec![pinned(5)]);
    desk.wake(8, 5);
    desk.kicked.clear();
    assert!(desk.yield_to(0, 8));
    assert!(desk.kicked.iter().all(|&cpu| cpu == CpuId(5)) && !desk.kicked.is_empty());
    assert_eq!(desk.decide(0), Some(TaskId(0)));
    assert_eq!(desk.decide(5), Some(TaskId(8)));

    // Not while that CPU is itself in a directed yield, nor if the target has had its share: task 5 waits
    // now.
    assert!(desk.yield_to(0, 5));
    assert!(!desk.yield_to(1, 5));
    assert_eq!(desk.counter("yield_to_busy"), 1);
    let taken = (0..4).take_while(|_| {
        assert_eq!(desk.decide(5), Some(TaskId(5)));
        desk.pass_us(20_000);
        desk.tick(5);
        assert_eq!(desk.decide(5), Some(TaskId(8)));
        desk.yield_to(0, 5)
    });
    assert!((1..4).contains(&taken.count()), "it would preempt one that has had less by some slices");
    assert_eq!(desk.counter("yield_to_unfair"), 1);
}

#[test]
fn after_a_window_with_too_many_decisions_wake_ups_do_not_preempt() {
    let mut settings = Settings::default();
    settings.rate_control.ratelimit.ns = 0;
    // Two tasks take turns on CPU 0; a third one is far behind both.
    let mut desk = Desk::new(&settings, vec![pinned(0), pinned(0), pinned(0)]);
    desk.run_briefly(2, 0);
    desk.pass_us(20_000);
    desk.run_on(0, 0);
    let storm = |desk: &mut Desk, rounds: u32| {
        for _ in 0..rounds {
            desk.pass_us(10);
            desk.wake(1, 0);
            desk.sleep(0);
            desk.pass_us(10);
            desk.wake(0, 0);
            desk.sleep(0);
        }
    };
    // 24 rounds are 48 decisions, and one more with the first: the threshold is 50 in 10 ms.
    storm(&mut desk, 24);
    desk.pass_us(10_000);
    storm(&mut desk, 1);
    assert_eq!(desk.counter("rate_windows"), 0);

    storm(&mut desk, 24);
    desk.pass_us(9_600);
    desk.wake(1, 0);
    desk.sleep(0);
    assert_eq!(desk.counter("rate_windows"), 1, "the 51st decision of the window before");
    desk.pass_us(5_000);
    let preempted = desk.counter("preempted");
    desk.wake(2, 0);
    assert_eq!((desk.counter("rate_limited"), desk.counter("preempted")), (1, preempted));
    assert!(desk.kicked.is_empty());
}

#[test]
fn a_preemption_waits_until_the_running_task_has_had_its_minimum() {
    let mut settings = Settings::default();
    settings.rate_control.ratelimit.ns = 3_000_000;
    settings.fairness.preempt_margin.ns = 0;
    settings.fairness.sleeper_credit.ns = 1_000_000;
    let mut desk = Desk::new(&settings, vec![pinned(0), pinned(0), pinned(0)]);
    desk.run_briefly(1, 0);
    desk.run_briefly(2, 0);
    desk.run_on(0, 0);
    desk.pass_us(2_000);
    desk.wake(1, 0);
    assert_eq!(desk.counter("ratelimit_delayed"), 1);
    let alarm = desk.alarms[0];
    assert_eq!(alarm.at_ns, desk.now_ns + 1_000_000, "3 ms after it began");
    desk.expire(alarm);
    assert_eq!(desk.kicked, [CpuId(0)]);
    assert_eq!(desk.decide(0), Some(TaskId(1)));

    // The task that runs after the one that it waited for has its minimum, too.
    desk.pass_us(2_000);
    desk.wake(2, 0);
    let alarm = *desk.alarms.last().expect("the preemption waits");
    desk.pass_us(900);
    assert_eq!(desk.sleep(0), Some(TaskId(2)));
    desk.expire(alarm);
    assert!(desk.kicked.is_empty());
}

#[test]
fn a_sleeper_comes_first_but_does_not_stop_a_task_that_has_only_begun() {
    let mut settings = Settings::default();
    settings.rate_control.enabled = false;
    let mut desk = busy(&settings, vec![pinned(0), pinned(0), pinned(0)]);
    let (sleepers, newcomer) = ([8, 9], 10);
    desk.sleep(0);
    for sleeper in sleepers {
        desk.run_on(sleeper, 0);
        desk.pass_us(100);
        desk.sleep(0);
    }
    desk.run_on(0, 0);
    desk.pass_us(20_000);
    assert_eq!(desk.decide(0), Some(TaskId(0)));
    desk.wake(newcomer, 0);
    desk.pass_us(2_900);
    desk.tick(0);
    assert_eq!(desk.decide(0), Some(TaskId(newcomer)), "task 0 has had more than the margin since");
    desk.pass_us(900);
    desk.wake(sleepers[0], 0);
    assert!(!desk.kicked.contains(&CpuId(0)), "0.9 ms are less than the margin");
    // The clock has advanced as well since the task was placed there.
    desk.pass_us(2_500);
    desk.wake(sleepers[1], 0);
    assert!(desk.kicked.contains(&CpuId(0)));
    let order = [0; 3].map(|cpu| desk.sleep(cpu));
    assert_eq!(order[2], Some(TaskId(0)));
}

#[test]
fn a_waking_task_stops_the_one_that_has_had_most() {
    let mut settings = Settings::default();
    settings.rate_control.enabled = false;
    let mut desk = busy(&settings, tasks(2));
    desk.sleep(0);
    desk.run_briefly(8, 0);
    desk.pass_us(20_000);
    desk.run_on(9, 0);
    desk.pass_us(3_000);
    assert_eq!(desk.wake(8, 0), CpuId(0));
    assert!(!desk.kicked.contains(&CpuId(0)), "all others have had 20 ms more");
    assert_eq!(desk.kicked.len(), 1);
}

#[test]
fn a_task_woken_by_one_that_has_run_briefly_and_sleeps_stays_there() {
    let mut desk = Desk::new(&Settings::default(), tasks(2));
    let place = desk.run_on(0, 0);
    desk.pass_us(10);
    assert_eq!(desk.wake_sync(1, place.0), place);
    assert_eq!(desk.counter("wake_stay"), 1);
    assert_eq!(desk.sleep(place.0), Some(TaskId(1)));
    // A task that is woken by one that continues gets a CPU of its own.
    desk.pass_us(1_000);
    assert_ne!(desk.wake(0, place.0), place);
    assert_eq!(desk.counter("wake_stay"), 1);
}

#[test]
fn a_task_does_not_stay_with_a_waker_that_usually_continues() {
    let mut desk = Desk::new(&Settings::default(), tasks(2));
    let place = desk.run_on(0, 0);
    desk.pass_us(10);
    assert_eq!(desk.wake_sync(1, place.0), place);
    desk.pass_us(400);
    assert_eq!(desk.sleep(place.0), Some(TaskId(1)));
    desk.pass_us(10);
    assert_eq!(desk.sleep(place.0), None);

    assert_eq!(desk.run_on(0, place.0), place);
    desk.pass_us(10);
    assert_ne!(desk.wake_sync(1, place.0), place, "a CPU idles");
}

/// Stolen time, and whether it counts: waking a vCPU also counts as steal time, and means nothing.
const STOLEN_NS: [(u64, bool); 2] = [(2_000_000, true), (100_000, false)];

#[test]
fn an_exiting_task_leaves_its_cpu_to_the_task_that_waits_for_its_end() {
    let settings = Settings { mode: Mode::Guest, ..Settings::default() };
    let mut desk = Desk::new(&settings, tasks(2));
    let place = desk.run_on(0, 0);
    assert_eq!(desk.fork(1, place.0), place);
    assert_eq!(desk.sleep(place.0), Some(TaskId(1)));
    // Too long for a task that only wakes another and sleeps.
    desk.pass_us(2_000);
    desk.begin_exit(1);
    assert_eq!(desk.wake_sync(0, place.0), place);
    assert_eq!(desk.sleep(place.0), Some(TaskId(0)));
}

#[test]
fn a_task_beside_a_busy_thread_moves_to_a_core_that_idles_when_its_slice_ends() {
    let all = (0..8).map(|cpu| if cpu == 0 { task() } else { pinned(cpu) }).collect();
    let mut desk = Desk::on(two_nodes_with_smt(), 0, &Settings::default(), all);
    for cpu in 1..8 {
        desk.run_on(cpu, cpu);
    }
    let place = desk.run_on(0, 0);
    assert_eq!(place, CpuId(0), "all others are busy");
    let core_of = |desk: &Desk, cpu| desk.machine().cpu(cpu).core;
    let others: Vec<u32> =
        (0..4).filter(|&cpu| core_of(&desk, CpuId(cpu)) != core_of(&desk, place)).collect();

    // One thread of another core is no better than this one.
    desk.pass_us(20_000);
    desk.sleep(others[0]);
    desk.tick(place.0);
    assert_eq!(desk.decide(place.0), Some(TaskId(0)));
    desk.sleep(others[1]);
    desk.pass_us(20_000);
    desk.tick(place.0);
    assert_eq!(desk.decide(place.0), None, "a core idles");
    let called = desk.kicked[0];
    assert!(others.contains(&called.0));
    assert_eq!(desk.decide(called.0), Some(TaskId(0)));
}

#[test]
fn a_home_that_is_busier_than_the_rest_leaves_cores_elsewhere_to_its_tasks_and_a_set_of_cpus_does_not() {
    let smt = two_nodes_with_smt();
    let first_threads: Vec<u32> = smt.cores().iter().map(|core| core.cpus.iter().next().unwrap().0).collect();
    let home: Vec<u32> = smt.node_cpus(NodeId(0)).iter().map(|cpu| cpu.0).collect();
    let mut part = home.clone();
    part.retain(|&cpu| cpu != first_threads[0]);
    for (set, leaves) in [(home, true), (part, false)] {
        let all = vec![pinned(first_threads[0]), pinned(first_threads[1]), preferring(&set)];
        let mut desk = Desk::on(two_nodes_with_smt(), 0, &Settings::default(), all);
        for task in 0..2 {
            desk.run_on(task, first_threads[task as usize]);
        }
        // Utilisation is smoothed over a few updates, a millisecond apart.
        let mut place = CpuId(0);
        for _ in 0..8 {
            desk.pass_us(20_000);
            place = desk.run_on(2, 0);
            desk.sleep(place.0);
        }
        assert_eq!(!set.contains(&place.0), leaves, "{set:?}: it went to {place:?}");
    }
}

#[test]
fn a_task_whose_slice_ended_waits_for_its_cpu_as_long_as_that_is_fair() {
    let mut desk = two_cpus_left(3);
    let (first, second) = (desk.run_on(0, 0), desk.run_on(1, 1));
    assert_eq!(first.0 + second.0, 1, "CPUs 0 and 1 are theirs");
    desk.wake(2, first.0);
    desk.pass_us(20_000);
    desk.tick(first.0);
    assert_eq!(desk.decide(first.0), Some(TaskId(2)));
    desk.tick(second.0);
    assert_eq!(desk.decide(second.0), Some(TaskId(1)), "task 0 ran elsewhere as long as this one");
    // Task 1 gets slices more than task 0, which is more than the margin: its CPU searches all others, one
    // per decision.
    let taken = (0..4).any(|_| {
        desk.pass_us(20_000);
        desk.tick(second.0);
        desk.decide(second.0) == Some(TaskId(0))
    });
    assert!(taken);

    // Any CPU takes a task that slept.
    let mut settings = Settings::default();
    settings.fairness.preempt_margin.ns = 1_000_000_000;
    let mut desk = busy(&settings, tasks(1));
    desk.pass_us(20_000);
    let waits_at = desk.wake(8, 0);
    let other = waits_at.0 ^ 1;
    desk.pass_us(4_000);
    desk.tick(other);
    assert_eq!(desk.decide(other), Some(TaskId(8)));
}

#[test]
fn a_waking_task_waits_for_waiting_tasks_and_not_until_they_have_had_as_much_as_any() {
    let mut desk = busy(&Settings::default(), tasks(3));
    desk.wake(8, 0);
    desk.wake(9, 0);
    // The task on CPU 0 has had four slices, and advances the clock by that.
    desk.pass_us(80_000);
    assert_eq!(desk.decide(0), Some(TaskId(8)));
    desk.wake(10, 0);
    for next in [9, 10] {
        desk.pass_us(20_000);
        assert_eq!(desk.decide(0), Some(TaskId(next)));
    }
}

#[test]
fn a_task_of_the_least_weight_does_not_let_others_keep_their_cpus() {
    const LEAST: u32 = 3;
    let mut all = tasks(4);
    all[LEAST as usize].weight = 15; // nice 19
    all.extend((2..8).map(pinned));
    let mut desk = Desk::new(&Settings::default(), all);
    for (task, cpu) in (4..).zip(2..8) {
        desk.run_on(task, cpu);
    }
    let cpus = [desk.run_on(0, 0).0, desk.run_on(LEAST, 1).0];
    // In 40 ms its virtual time advances by more than a second.
    desk.pass_us(40_000);
    desk.wake(1, cpus[1]);
    desk.wake(2, cpus[1]);
    let mut ran_ms = [0; 4];
    for _ in 0..200 {
        for cpu in cpus {
            desk.tick(cpu);
            desk.decide(cpu);
            ran_ms[desk.current[cpu as usize].expect("four want two CPUs").index()] += 4;
        }
        desk.pass_us(4_000);
    }
    let (least, most) = (ran_ms[..3].iter().min().unwrap(), ran_ms[..3].iter().max().unwrap());
    assert!(most - least <= 60, "{ran_ms:?} ms");
}

#[test]
fn a_task_that_a_cpu_may_not_run_does_not_bring_others_before_those_of_that_cpu_alone() {
    // CPU 1, which alone of its node may run task 8, does not take it.
    let mut desk = busy(&Settings::default(), vec![restricted(&[1, 4]), pinned(0), task()]);
    assert_eq!(desk.wake(8, 1), CpuId(1));
    // A task that keeps its CPU advances the node's virtual time, so that tasks which wake later wait behind.
    for (woken, cpu) in [(9, 0), (10, 2)] {
        desk.pass_us(20_000);
        desk.decide(cpu);
        desk.wake(woken, cpu);
    }
    assert_eq!(desk.sleep(0), Some(TaskId(9)), "task 10 has waited less long");
    assert_eq!(desk.sleep(0), Some(TaskId(10)));
}

#[test]
fn tasks_that_yield_to_each_other_get_their_share_of_a_cpu_that_another_one_keeps() {
    let mut desk = two_cpus_left(4);
    let (computes, yields) = (desk.run_on(0, 0).0, desk.run_on(1, 1).0);
    desk.wake(2, yields);
    desk.wake(3, yields);
    let mut ran_us = [0; 4];
    for _ in 0..800 {
        desk.pass_us(250);
        for cpu in [computes, yields] {
            ran_us[desk.current[cpu as usize].expect("four want two CPUs").index()] += 250;
            if desk.current[cpu as usize] == Some(TaskId(0)) {
                desk.tick(cpu);
                desk.decide(cpu);
            } else {
                desk.yields(cpu);
            }
        }
    }
    let (least, most) = (ran_us.iter().min().unwrap(), ran_us.iter().max().unwrap());
    // Twice the margin for moves between CPUs, either way; 200 ms and 67 each if every yield reset lag.
    assert!(most - least < 48_000, "of 400 ms: {ran_us:?} us");
}

#[test]
fn a_task_of_three_times_the_weight_gets_three_times_the_time() {
    let heavy = TaskFacts { weight: 3072, ..pinned(0) };
    let mut desk = Desk::new(&Settings::default(), vec![heavy, pinned(0)]);
    desk.run_on(0, 0);
    desk.wake(1, 0);
    let mut ran_us = [0; 2];
    for _ in 0..2_000 {
        let task = desk.current[0].expect("both want to run");
        desk.pass_us(1_000);
        ran_us[task.index()] += 1_000;
        desk.tick(0);
        if desk.kicked.contains(&CpuId(0)) {
            desk.decide(0);
        }
    }
    let ratio = f64::from(ran_us[0]) / f64::from(ran_us[1]);
    assert!((2.7..3.3).contains(&ratio), "{ran_us:?}");
}

#[test]
fn cpus_that_decide_at_the_same_time_do_not_find_what_the_other_is_about_to_put_back() {
    // As in `schedule()`: the next task is chosen first, then the previous one enters a queue.
    let mut desk = Desk::on(two_nodes(), 500, &Settings::default(), tasks(9));
    let cpus: Vec<u32> = (0..8).map(|task| desk.run_on(task, 0).0).collect();
    let waits_at = desk.wake(8, 0).0;
    let on_that_node: Vec<u32> = cpus.into_iter().filter(|cpu| cpu / 4 == waits_at / 4).collect();
    desk.pass_us(20_000);
    let (first, second) = (on_that_node[0], on_that_node[1]);
    let before = desk.current[first as usize].unwrap();
    assert_eq!(desk.decide(first), Some(TaskId(8)), "it has waited");
    // The queue is empty now.
    let goes_on = desk.current[second as usize];
    assert_eq!(desk.sleep(second), None, "{goes_on:?} slept, and no task waits yet");
    let alarm = *desk.alarms.last().unwrap();
    assert_eq!(alarm.at_ns, desk.now_ns + 500);
    desk.expire(alarm);
    assert!(desk.kicked.contains(&CpuId(second)), "the CPU that idles now is kicked");
    assert_eq!(desk.decide(second), Some(before));
}
