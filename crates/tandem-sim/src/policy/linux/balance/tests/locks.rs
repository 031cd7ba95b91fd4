//! The queues of other CPUs that balancing locks.

use super::*;

/// Four CPUs in one domain, each a group of its own.
fn four(era: LinuxEra) -> Situation {
    Situation::new(era, Flat, one_node(1, 4, 1))
}

/// The queues that an attempt of CPU `by` to balance the only domain of an idle CPU locks.
fn locks_of_attempt(it: &mut Situation, cpu: u32, by: u32) -> Vec<u32> {
    let (cpu, by) = (CpuId(cpu), CpuId(by));
    let attempt = Attempt { cpu, by, at: it.linux.domains.of(cpu).start, idleness: Idleness::Idle };
    it.locked.clear();
    it.ask(|linux, ctx| linux.balancer().balance(ctx, attempt));
    locked(it)
}

/// The queues locked since the last time.
fn locked(it: &mut Situation) -> Vec<u32> {
    it.locked.drain(..).map(|cpu| cpu.0).collect()
}

#[test]
fn looking_for_work_locks_nothing() {
    for era in ERAS {
        let mut it = four(era);
        it.run_on(0);
        it.scanned = 0;
        assert_eq!(locks_of_attempt(&mut it, 1, 1), [], "{era:?}: the only task of CPU 0 runs");
        assert!(it.scanned > 0, "{era:?}");
    }
}

#[test]
fn taking_tasks_locks_the_busiest_queue() {
    for era in ERAS {
        let mut it = four(era);
        fill(&mut it, 2, 4);
        assert_eq!(locks_of_attempt(&mut it, 1, 1), [2], "{era:?}");
        assert!(it.tasks_by_cpu()[1] > 0, "{era:?}");
    }
}

#[test]
fn taking_tasks_on_behalf_of_another_cpu_locks_its_queue_too() {
    // 3.6 holds both locks, the lower CPU's first; later kernels take one after the other.
    for (era, busiest, expected) in [
        (V3_6, 0, [0, 2]),
        (V3_6, 3, [2, 3]),
        (V4_2, 3, [3, 2]),
        (V5_2, 3, [3, 2]),
        (V6_12, 0, [0, 2]),
        (V6_12, 3, [3, 2]),
    ] {
        let mut it = four(era);
        fill(&mut it, busiest, 4);
        assert_eq!(locks_of_attempt(&mut it, 2, 1), expected, "{era:?}, busiest {busiest}");
        assert!(it.tasks_by_cpu()[2] > 0, "{era:?}");
    }
}

#[test]
fn tasks_that_turn_out_to_be_pinned_cost_the_lock_of_their_queue() {
    for (era, expected) in [(V3_6, vec![2, 3]), (V4_2, vec![3]), (V5_2, vec![3]), (V6_12, vec![3])] {
        let mut it = four(era);
        for task in fill(&mut it, 3, 4) {
            it.allow(task, [3]);
        }
        assert_eq!(locks_of_attempt(&mut it, 2, 1), expected, "{era:?}");
    }
}

#[test]
fn active_balancing_locks_the_queue_to_ask_and_the_other_one_to_push() {
    for era in ERAS {
        let mut it = four(era);
        it.run_on(0);
        let cpu = CpuId(1);
        let at = it.linux.domains.of(cpu).start;
        let attempt = Attempt { cpu, by: cpu, at, idleness: Idleness::Idle };
        let asked = it.ask(|linux, ctx| linux.balancer().ask_for_running(ctx, attempt, CpuId(0)));
        assert_eq!(asked, Asked::Now, "{era:?}");
        assert_eq!(locked(&mut it), [0], "{era:?}: CPU 1 asks");
        it.dispatch(CpuId(0));
        assert_eq!(locked(&mut it), [1], "{era:?}: CPU 0 pushes");
    }
}

#[test]
fn a_cpu_that_runs_out_of_work_locks_only_the_queue_that_it_takes_from() {
    for era in ERAS {
        let mut it = four(era);
        it.always_search();
        fill(&mut it, 0, 3);
        let task = it.run_on(2);
        it.linux.queues.of_mut(CpuId(2)).set_avg_idle_ns(1_000_000);
        locked(&mut it);
        it.ask(|linux, ctx| linux.blocked(ctx, CpuId(2), task));
        it.dispatch(CpuId(2));
        assert!(it.tasks_by_cpu()[2] > 0, "{era:?}");
        assert_eq!(locked(&mut it), [0], "{era:?}");
    }
}

/// The queues that CPU 1 locks when it balances for all and there is nothing to move.
fn locks_of_nohz_balance(it: &mut Situation) -> Vec<u32> {
    it.linux.queues.of_mut(CpuId(1)).nohz_kick();
    it.locked.clear();
    it.dispatch(CpuId(1));
    locked(it)
}

#[test]
fn an_idle_cpu_locks_the_queues_of_the_others_to_bring_them_up_to_date() {
    for (era, expected) in
        [(V3_6, vec![]), (V4_2, vec![2, 2, 3, 3, 0, 0]), (V5_2, vec![2, 3, 0]), (V6_12, vec![2, 3, 0])]
    {
        let mut it = four(era);
        assert_eq!(locks_of_nohz_balance(&mut it), expected, "{era:?}");
        assert_eq!(locks_of_nohz_balance(&mut it), [], "{era:?}: none is due again at this tick");
    }
}

#[test]
fn idle_cpus_are_brought_up_to_date_since_5_2_until_their_load_has_faded() {
    for era in [V5_2, V6_12] {
        brings_up_to_date_until_faded(four(era));
    }
}

fn brings_up_to_date_until_faded(mut it: Situation) {
    it.sleep_on(2);
    assert_eq!(locks_of_nohz_balance(&mut it), [2, 2, 3, 0]);
    assert_eq!(locks_of_nohz_balance(&mut it), [2], "though it is not due");
    it.now_ns += 5_000_000_000;
    assert_eq!(locks_of_nohz_balance(&mut it), [2, 2, 3, 0], "which is found out now");
    assert_eq!(locks_of_nohz_balance(&mut it), []);
}

#[test]
fn a_task_that_may_no_longer_stay_goes_by_the_lock_of_its_new_queue() {
    for era in ERAS {
        let mut it = four(era);
        let task = it.run_on(0);
        it.allow(task, [3]);
        it.dispatch(CpuId(0));
        assert_eq!(locked(&mut it), [3], "{era:?}");
        assert_eq!(it.tasks_by_cpu(), [0, 0, 0, 1], "{era:?}");
    }
}
