//! Balancing of tasks that prefer some CPUs. There are two CPUs, and tasks prefer CPU 0.

use super::*;
use crate::policy::linux::LinuxSettings;
use crate::policy::linux::SoftAffinity::{self, Ignored, WorkConserving};

const POSTED: SoftAffinity = SoftAffinity::POSTED;

fn kernel(era: LinuxEra, soft_affinity: SoftAffinity) -> Situation {
    let settings = LinuxSettings { era, domains: Flat, soft_affinity, ..LinuxSettings::default() };
    Situation::with(settings, one_node(1, 2, 1))
}

/// Tasks in the queue of CPU 0, which they prefer; one of them runs.
fn at_home(it: &mut Situation, tasks: usize) -> Vec<TaskId> {
    let tasks = fill(it, 0, tasks);
    tasks.iter().for_each(|&task| it.prefer(task, [0]));
    tasks
}

fn counter(it: &Situation, name: &str) -> u64 {
    it.linux.counters().into_iter().find(|counter| counter.0 == name).map_or(0, |counter| counter.1)
}

/// The task that runs on the CPU blocks.
fn block(it: &mut Situation, cpu: u32) {
    let task = it.linux.queues.of(CpuId(cpu)).curr().unwrap();
    it.ask(|linux, ctx| linux.blocked(ctx, CpuId(cpu), task));
    it.dispatch(CpuId(cpu));
    it.settle();
}

#[test]
fn balancing_ignores_soft_affinity_with_tunables() {
    for idleness in [Idleness::Busy, Idleness::Idle, Idleness::Newly] {
        let outcome = |soft_affinity| {
            let mut it = kernel(V5_2, soft_affinity);
            at_home(&mut it, 6);
            if idleness == Idleness::Busy {
                it.run_on(1);
            }
            let outcome = balance(&mut it, 1, 0, idleness);
            (outcome, it.tasks_by_cpu())
        };
        let (moved, by_cpu) = outcome(POSTED);
        assert!(matches!(moved, Outcome::Moved(_)), "{idleness:?}");
        assert_eq!((moved, by_cpu), outcome(Ignored), "{idleness:?}");
    }
}

#[test]
fn a_busy_cpu_takes_no_task_from_where_it_prefers_to_be_until_attempts_have_failed() {
    for era in [V5_2, V6_12] {
        let mut it = kernel(era, WorkConserving);
        at_home(&mut it, 6);
        it.run_on(1);
        let mut failures = 0;
        while balance(&mut it, 1, 0, Idleness::Busy) == Outcome::Nothing {
            failures += 1;
            assert!(failures < 10, "{era:?}");
        }
        // The level's cache_nice_tries is 1.
        assert_eq!(failures, 2, "{era:?}");
        assert!(matches!(
            balance(&mut kernel_with_tasks(era, Ignored), 1, 0, Idleness::Busy),
            Outcome::Moved(_)
        ));
    }
}

fn kernel_with_tasks(era: LinuxEra, soft_affinity: SoftAffinity) -> Situation {
    let mut it = kernel(era, soft_affinity);
    at_home(&mut it, 6);
    it.run_on(1);
    it
}

#[test]
fn a_cpu_without_work_takes_waiting_tasks_that_prefer_another_one() {
    for era in [V5_2, V6_12] {
        let mut it = kernel(era, WorkConserving);
        it.always_search();
        at_home(&mut it, 3);
        it.run_on(1);
        block(&mut it, 1);
        let by_cpu = it.tasks_by_cpu();
        assert!(by_cpu[1] > 0 && by_cpu[0] > 0, "{era:?}: {by_cpu:?}");
    }
}

#[test]
fn a_task_that_runs_where_it_prefers_to_is_not_asked_for() {
    for (soft_affinity, asked) in [(WorkConserving, false), (POSTED, true)] {
        let mut it = kernel(V5_2, soft_affinity);
        at_home(&mut it, 1);
        let cpu = CpuId(1);
        let attempt = Attempt { cpu, by: cpu, at: it.linux.domains.of(cpu).start, idleness: Idleness::Idle };
        let answer = it.ask(|linux, ctx| linux.balancer().ask_for_running(ctx, attempt, CpuId(0)));
        assert_eq!(answer != Asked::Refused, asked);
    }
}

#[test]
fn a_cpu_without_work_first_takes_a_waiting_task_that_prefers_it() {
    for era in [V5_2, V6_12] {
        let mut it = kernel(era, WorkConserving);
        it.run_on(0);
        it.run_on(1);
        let others = fill(&mut it, 1, 3);
        let stray = others[1];
        it.prefer(stray, [0]);
        // Even a cache-hot one, although the CPU will not idle for long.
        let clock = it.linux.queues.of(CpuId(1)).clock_ns();
        it.linux.queues.entity_mut(stray).exec_start_ns = clock;
        it.linux.queues.of_mut(CpuId(0)).set_avg_idle_ns(100);
        it.locked.clear();
        block(&mut it, 0);
        assert_eq!(it.linux.queues.of(CpuId(0)).curr(), Some(stray), "{era:?}");
        assert_eq!(it.locked, [CpuId(1)], "{era:?}");
        assert_eq!(counter(&it, "soft_returned"), 1, "{era:?}");
    }
}

#[test]
fn a_cpu_that_will_idle_for_a_while_asks_for_a_running_task_that_prefers_it() {
    for era in [V5_2, V6_12] {
        for (avg_idle_ns, soft_affinity, comes) in
            [(500_000, WorkConserving, true), (499_999, WorkConserving, false), (500_000, Ignored, false)]
        {
            let mut it = kernel(era, soft_affinity);
            it.run_on(0);
            let stray = it.run_on(1);
            it.prefer(stray, [0]);
            it.linux.queues.of_mut(CpuId(0)).set_avg_idle_ns(avg_idle_ns);
            block(&mut it, 0);
            let cpu = it.linux.queues.entity(stray).cpu;
            assert_eq!(cpu == CpuId(0), comes, "{era:?}, {soft_affinity:?}, {avg_idle_ns}");
        }
    }
}

#[test]
fn a_hint_that_is_out_of_date_is_dropped() {
    let mut it = kernel(V5_2, WorkConserving);
    it.run_on(0);
    let stray = it.run_on(1);
    it.prefer(stray, [0]);
    it.prefer(stray, [1]);
    it.scanned = 0;
    assert!(!it.ask(|linux, ctx| linux.balancer().bring_home(ctx, CpuId(0))));
    assert_eq!(it.scanned, 1);
    it.ask(|linux, ctx| linux.balancer().bring_home(ctx, CpuId(0)));
    assert_eq!(it.scanned, 1, "nothing is left to look at");
}
