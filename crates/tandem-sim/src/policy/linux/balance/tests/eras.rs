//! What balancing of 6.12, 6.18 and 7.3 does differently.

use super::*;
use crate::scenario::TaskPolicy;

fn attempt(it: &Situation, cpu: u32, idleness: Idleness) -> Attempt {
    let cpu = CpuId(cpu);
    Attempt { cpu, by: cpu, at: it.linux.domains.of(cpu).start, idleness }
}

/// One level over four CPUs, which CPU 1 searches 2000 times in vain.
#[test]
fn sched_balance_newidle_searches_as_often_as_that_has_succeeded() {
    for (era, ratio, expected) in [
        (V5_2, 0, 2000..=2000),
        (V6_12, 0, 1..=15),
        (V6_12, 511, 900..=1100),
        (V6_18, 255, 430..=570),
        (V7_3, 511, 900..=1100),
        (V7_3, 1024, 2000..=2000),
    ] {
        let mut it = Situation::new(era, Flat, one_node(1, 4, 1));
        let at = it.linux.domains.of(CpuId(1)).start;
        let mut searches = 0;
        for _ in 0..2000 {
            it.linux.domains.domain_mut(at).newidle.ratio = ratio;
            it.linux.queues.set_overload(true);
            it.linux.queues.of_mut(CpuId(1)).set_avg_idle_ns(1_000_000);
            it.scanned = 0;
            it.ask(|linux, ctx| linux.balancer().balance_new_idle(ctx, CpuId(1)));
            searches += u32::from(it.scanned > 0);
        }
        assert!(expected.contains(&searches), "{era:?}, {ratio}: {searches}");
    }
}

/// A success that comes of a search in four counts four times.
#[test]
fn sched_balance_newidle_weighs_a_success_by_how_seldom_it_searches() {
    for (ratio, expected) in [(255, 4), (511, 2), (1023, 1), (1024, 1)] {
        let mut it = pair(V6_12);
        let at = it.linux.domains.of(CpuId(1)).start;
        it.linux.domains.domain_mut(at).newidle.ratio = ratio;
        let worth = (0..100).find_map(|_| {
            it.linux.domains.domain_mut(at).newidle.ratio = ratio;
            it.linux.balancer().draw_new_idle(0, at)
        });
        assert_eq!(worth, Some(expected), "{ratio}");
    }
}

/// CPU 0 has three tasks, of which two are leaving; CPU 1 has two.
#[test]
fn sched_balance_find_src_rq_counts_tasks_that_are_leaving_before_6_14() {
    for (era, busiest) in [(V6_12, 0), (V6_18, 1), (V7_3, 1)] {
        let mut it = Situation::new(era, Topology, one_node(2, 2, 1));
        let tasks = fill(&mut it, 0, 3);
        fill(&mut it, 1, 2);
        let curr = it.linux.queues.of(CpuId(0)).curr();
        for &task in tasks.iter().filter(|&&task| Some(task) != curr) {
            it.linux.queues.delay(task);
        }
        let cpu = CpuId(2);
        let at = it.linux.domains.of(cpu).nth(1).unwrap();
        let attempt = Attempt { cpu, by: cpu, at, idleness: Idleness::Idle };
        let group = it.linux.domains.group(at, 1);
        let stats = crate::policy::linux::group::GroupStats::measure(&it.linux.queues, group, 117, None);
        assert_eq!((stats.nr_running, stats.nr_runnable), (5, 3), "{era:?}");
        let imbalance = Imbalance { group: 1, amount: 1, unit: Unit::Tasks };
        let found = it.ask(|linux, ctx| linux.balancer().search(attempt).busiest_queue(ctx, imbalance));
        assert_eq!(found, Some(CpuId(busiest)), "{era:?}");
    }
}

#[test]
fn can_migrate_task_takes_a_leaving_task_for_load_alone_since_6_14() {
    for (era, for_tasks) in [(V6_12, true), (V6_18, false), (V7_3, false)] {
        let mut it = pair(era);
        let tasks = fill(&mut it, 0, 3);
        let waiting = *tasks.iter().find(|&&task| it.linux.queues.entity(task).queued).unwrap();
        it.linux.queues.delay(waiting);
        let attempt = attempt(&it, 1, Idleness::Idle);
        for (unit, goes) in [(Unit::Load, true), (Unit::Tasks, for_tasks)] {
            let verdict = it.ask(|linux, ctx| linux.balancer().verdict(ctx, attempt, waiting, unit));
            assert_eq!(verdict == detach::Verdict::Goes, goes, "{era:?}, {unit:?}");
        }
    }
}

/// A task of CPU 0 that is ahead of its share.
#[test]
fn task_is_ineligible_on_dst_cpu_keeps_a_task_from_a_cpu_with_tasks_until_a_failure() {
    for (era, busy, failed, stays) in [
        (V6_12, true, 0, false),
        (V6_18, true, 0, true),
        (V6_18, true, 1, false),
        (V6_18, false, 0, false),
        (V7_3, true, 0, true),
    ] {
        let mut it = pair(era);
        if busy {
            it.run_on(1);
        }
        let tasks = fill(&mut it, 0, 3);
        let waiting = *tasks.iter().find(|&&task| it.linux.queues.entity(task).queued).unwrap();
        it.linux.queues.replace(waiting, |discipline| *discipline.vruntime_mut(waiting) += 1_000_000_000);
        let attempt = attempt(&it, 1, Idleness::Busy);
        it.linux.domains.domain_mut(attempt.at).failed = failed;
        let verdict = it.ask(|linux, ctx| linux.balancer().verdict(ctx, attempt, waiting, Unit::Tasks));
        assert_eq!(verdict == detach::Verdict::Stays, stays, "{era:?}, busy {busy}, failed {failed}");
    }
}

/// Cores of two threads; CPU 0 has two tasks.
#[test]
fn find_new_ilb_prefers_a_cpu_whose_core_idles_since_7_3() {
    for (era, expected) in [(V6_12, 1), (V6_18, 1), (V7_3, 2)] {
        let mut it = Situation::new(era, Topology, one_node(1, 4, 2));
        fill(&mut it, 0, 2);
        let found = it.ask(|linux, ctx| linux.balancer().idle_balancer(ctx));
        assert_eq!(found, Some(CpuId(expected)), "{era:?}");
        (2..8).for_each(|cpu| _ = it.run_on(cpu));
        assert_eq!(it.ask(|linux, ctx| linux.balancer().idle_balancer(ctx)), Some(CpuId(1)), "{era:?}");
    }
}

#[test]
fn update_rq_avg_idle_includes_idle_times_that_do_not_end_by_a_wake_up_since_7_0() {
    for (era, counts) in [(V6_12, false), (V6_18, false), (V7_3, true)] {
        let mut it = pair(era);
        it.linux.queues.of_mut(CpuId(1)).set_avg_idle_ns(0);
        it.run_on(1);
        assert_eq!(it.linux.queues.of(CpuId(1)).avg_idle_ns() > 0, counts, "{era:?}");
    }
}

/// CPU 0 of one node has all tasks; CPUs 4 and 5 of another one want some at the same time.
#[test]
fn sched_balance_running_lets_one_cpu_at_a_time_balance_between_nodes() {
    let nodes = || MachineBuilder::symmetric(2, 4, 1).build().unwrap();
    for (era, is_serialised) in [(V5_2, false), (V6_12, true), (V6_18, true), (V7_3, true)] {
        let mut it = Situation::new(era, Topology, nodes());
        let numa = it.linux.domains.of(CpuId(4)).end - 1;
        let alone = [0, 0, 1_000_000].map(|after_ns| {
            let now_ns = it.now_ns + after_ns;
            it.linux.balancer().begins_alone(now_ns, numa)
        });
        assert_eq!(alone, [true, !is_serialised, true], "{era:?}");
        let within = it.linux.domains.of(CpuId(4)).start;
        assert!((0..2).all(|_| it.linux.balancer().begins_alone(0, within)), "{era:?}: within a node");
    }
    for (era, second_takes) in [(V6_12, true), (V6_18, true), (V7_3, false)] {
        let mut it = Situation::new(era, Topology, nodes());
        fill(&mut it, 0, 8);
        let level = it.linux.domains.of(CpuId(4)).len() - 1;
        let takes = [4, 5].map(|cpu| balance(&mut it, cpu, level, Idleness::Newly) == Outcome::Moved(1));
        assert_eq!(takes, [true, second_takes], "{era:?}");
    }
}

/// Three tasks of this policy on CPU 0, one of which has just run.
#[test]
fn task_hot_never_finds_an_idle_task() {
    for era in [V3_6, V4_2, V5_2, V6_12, V6_18, V7_3] {
        for (policy, hot) in
            [(TaskPolicy::Normal, true), (TaskPolicy::Batch, true), (TaskPolicy::Idle, false)]
        {
            let mut it = Situation::new(era, Topology, one_node(1, 2, 1));
            it.policy = policy;
            let tasks = fill(&mut it, 0, 3);
            let waiting = *tasks.iter().find(|&&task| it.linux.queues.entity(task).queued).unwrap();
            it.linux.queues.entity_mut(waiting).exec_start_ns = it.linux.queues.of(CpuId(0)).clock_ns();
            let attempt = attempt(&it, 1, Idleness::Idle);
            let verdict = it.ask(|linux, ctx| linux.balancer().verdict(ctx, attempt, waiting, Unit::Tasks));
            assert_eq!(verdict == detach::Verdict::Hot, hot, "{era:?}, {policy:?}");
        }
    }
}
