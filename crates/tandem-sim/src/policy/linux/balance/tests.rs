//! Balancing, one attempt at a time and over many ticks.

use super::*;
use crate::policy::Policy;
use crate::policy::linux::Domains::{Flat, Topology};
use crate::policy::linux::LinuxEra;
use crate::policy::linux::LinuxEra::{V3_6, V4_2, V5_2, V6_12, V6_18, V7_3};
use crate::policy::linux::situation::{Situation, one_node};
use tandem_machine::MachineBuilder;
use tandem_machine::ids::TaskId;

mod eras;
mod locks;
mod soft_affinity;
mod stolen;

const ERAS: [LinuxEra; 6] = [V3_6, V4_2, V5_2, V6_12, V6_18, V7_3];

/// Balances the level of the CPU.
fn balance(it: &mut Situation, cpu: u32, level: usize, idleness: Idleness) -> Outcome {
    let at = it.linux.domains.of(CpuId(cpu)).nth(level).unwrap();
    let cpu = CpuId(cpu);
    it.ask(|linux, ctx| linux.balancer().balance(ctx, Attempt { cpu, by: cpu, at, idleness }))
}

/// A machine with two CPUs.
fn pair(era: LinuxEra) -> Situation {
    Situation::new(era, Flat, one_node(1, 2, 1))
}

fn fill(it: &mut Situation, cpu: u32, tasks: usize) -> Vec<TaskId> {
    let queued = (0..tasks).map(|_| it.queue_on(cpu)).collect();
    it.settle();
    // Long enough for the averages to include them, and for all caches to be cold.
    for _ in 0..100 {
        it.now_ns += it.linux.tick_period_ns();
        it.ask(|linux, ctx| linux.queues.refresh_load(ctx, CpuId(cpu)));
    }
    queued
}

#[test]
fn an_idle_cpu_takes_half_of_what_another_has() {
    for era in [V3_6, V4_2, V5_2] {
        let mut it = pair(era);
        fill(&mut it, 0, 4);
        assert_eq!(balance(&mut it, 1, 0, Idleness::Idle), Outcome::Moved(2), "{era:?}");
        it.settle();
        assert_eq!(it.tasks_by_cpu(), [2, 2], "{era:?}");
        assert_eq!(balance(&mut it, 1, 0, Idleness::Busy), Outcome::Nothing, "{era:?}: in balance");
    }
}

/// A busy CPU of two balances by averages over several ticks, in kernels that have `LB_BIAS`.
#[test]
fn source_load_of_5_2_is_the_present_load() {
    for (era, moved) in [(V3_6, false), (V4_2, false), (V5_2, true)] {
        let mut it = pair(era);
        it.run_on(1);
        fill(&mut it, 0, 1);
        let late: Vec<_> = (0..4).map(|_| it.queue_on(0)).collect();
        for task in late {
            let clock = it.linux.queues.of(CpuId(0)).clock_ns();
            it.linux.queues.entity_mut(task).exec_start_ns = clock - 2 * it.linux.tunables.migration_cost_ns;
        }
        let outcome = balance(&mut it, 1, 0, Idleness::Busy);
        assert_eq!(matches!(outcome, Outcome::Moved(_)), moved, "{era:?}: {outcome:?}");
    }
}

#[test]
fn an_idle_cpu_of_6_12_fills_up_its_time_and_leaves_the_other_one_task() {
    let mut it = pair(V6_12);
    fill(&mut it, 0, 4);
    assert_eq!(balance(&mut it, 1, 0, Idleness::Idle), Outcome::Moved(3));
    it.settle();
    assert_eq!(it.tasks_by_cpu(), [1, 3]);
}

/// `can_migrate_task()` of 6.12 does not ask whether a task is leaving.
#[test]
fn can_migrate_task_takes_tasks_that_are_leaving() {
    let mut it = pair(V6_12);
    it.run_on(0);
    let leaving = it.run_on(0);
    it.now_ns += 1_000_000;
    let before = it.linux.queues.of(CpuId(0)).curr();
    it.ask(|linux, ctx| linux.blocked(ctx, CpuId(0), before.unwrap()));
    let delayed = before.filter(|&task| it.linux.queues.entity(task).delayed);
    assert!(delayed.is_some(), "{leaving:?}: it is ahead");
    it.dispatch(CpuId(0));
    it.now_ns += it.linux.tunables.migration_cost_ns;
    assert_eq!(it.tasks_by_cpu(), [2, 0]);
    assert_eq!(balance(&mut it, 1, 0, Idleness::Idle), Outcome::Moved(1));
    assert_eq!(it.tasks_by_cpu(), [1, 1]);
    it.settle();
    assert_eq!(it.tasks_by_cpu(), [1, 0], "it leaves from its new CPU");
}

/// What the CPU finds at the level, by load.
fn find_busiest_group(it: &mut Situation, cpu: u32, level: usize, idleness: Idleness) -> Option<Imbalance> {
    let cpu = CpuId(cpu);
    let at = it.linux.domains.of(cpu).nth(level).unwrap();
    let attempt = Attempt { cpu, by: cpu, at, idleness };
    it.linux.balancer().search(attempt).busiest_group_by_load()
}

/// One CPU of a package has all tasks, so that the package uses half of its time.
#[test]
fn group_is_overloaded_of_4_2_asks_for_the_usage_of_the_group() {
    for (era, half, whole) in [(V3_6, true, true), (V4_2, false, true)] {
        let mut it = Situation::new(era, Topology, one_node(2, 2, 1));
        fill(&mut it, 0, 4);
        let found = find_busiest_group(&mut it, 2, 1, Idleness::Idle);
        assert_eq!(found.is_some(), half, "{era:?}: the package has an idle CPU itself");
        fill(&mut it, 1, 4);
        assert_eq!(find_busiest_group(&mut it, 2, 1, Idleness::Idle).is_some(), whole, "{era:?}");
    }
}

/// Two nodes with as many tasks each, of which each has room for more.
#[test]
fn find_busiest_group_of_3_6_fills_up_from_a_group_without_capacity_of_its_own() {
    let mut it = Situation::new(V3_6, Topology, MachineBuilder::symmetric(2, 4, 1).build().unwrap());
    for cpu in [1, 2, 4, 5] {
        fill(&mut it, cpu, 1);
    }
    let level = it.linux.domains.of(CpuId(0)).len() - 1;
    assert_eq!(find_busiest_group(&mut it, 0, level, Idleness::Newly), None);
    for cpu in [4, 5] {
        fill(&mut it, cpu, 1);
    }
    assert!(find_busiest_group(&mut it, 0, level, Idleness::Newly).is_some(), "four tasks on four CPUs");
}

/// A package whose tasks are all on one CPU is out of balance in 3.6, whether or not it has too many tasks; a
/// CPU with more than the average takes from it, as the negative lack counts as a large number.
#[test]
fn calculate_imbalance_of_3_6_takes_from_an_imbalanced_group_without_asking_for_the_own_load() {
    for (era, expected) in [(V3_6, Some(1708)), (V4_2, None)] {
        let mut it = Situation::new(era, Topology, one_node(3, 2, 1));
        fill(&mut it, 0, 4);
        fill(&mut it, 2, 2);
        fill(&mut it, 3, 1);
        let found = find_busiest_group(&mut it, 2, 1, Idleness::Busy);
        assert_eq!(found.map(|imbalance| imbalance.amount), expected, "{era:?}");
    }
}

#[test]
fn only_the_first_idle_cpu_of_a_group_balances_for_it() {
    for era in ERAS {
        let mut it = Situation::new(era, Topology, one_node(2, 2, 1));
        fill(&mut it, 0, 4);
        fill(&mut it, 1, 2);
        assert_eq!(balance(&mut it, 3, 1, Idleness::Idle), Outcome::NotOurs, "{era:?}");
        assert!(matches!(balance(&mut it, 2, 1, Idleness::Idle), Outcome::Moved(_)), "{era:?}");
    }
}

/// A CPU that leaves balancing to another one has found balance, as far as the kernel is concerned.
#[test]
fn load_balance_out_balanced_resets_nr_balance_failed() {
    for era in ERAS {
        let mut it = Situation::new(era, Topology, one_node(2, 4, 2));
        fill(&mut it, 0, 4);
        let at = it.linux.domains.of(CpuId(9)).nth(1).unwrap();
        let domain = it.linux.domains.domain_mut(at);
        domain.failed = 7;
        let interval_ms = domain.interval_ms;
        it.linux.domains.own_group_mut(at + 1).imbalanced = true;
        assert_eq!(balance(&mut it, 9, 1, Idleness::Idle), Outcome::NotOurs, "{era:?}");
        let domain = it.linux.domains.domain(at);
        assert_eq!((domain.failed, domain.interval_ms), (0, 2 * interval_ms), "{era:?}");
        assert!(!it.linux.domains.group(at + 1, 0).imbalanced, "{era:?}");
    }
}

/// One CPU has two tasks, which do not make its package the busier one.
fn imbalanced_by_affinity_alone(era: LinuxEra) -> (Situation, usize) {
    let mut it = Situation::new(era, Topology, one_node(2, 2, 1));
    for cpu in [0, 2, 3] {
        for task in fill(&mut it, cpu, 2) {
            it.allow(task, [cpu]);
        }
    }
    let at = it.linux.domains.of(CpuId(2)).nth(1).unwrap();
    (it, at)
}

/// `detach_tasks()` returns at once without an imbalance, and the tasks that it has not tried count as
/// pinned.
#[test]
fn find_busiest_group_without_an_imbalance_counts_as_pinned_before_5_2() {
    for (era, longest_ms) in [(V3_6, 512), (V4_2, 512), (V5_2, 8)] {
        let (mut it, at) = imbalanced_by_affinity_alone(era);
        for _ in 0..12 {
            let above = it.linux.domains.of(CpuId(0)).nth(1).unwrap();
            it.linux.domains.own_group_mut(above).imbalanced = true;
            assert_eq!(balance(&mut it, 2, 1, Idleness::Busy), Outcome::Nothing, "{era:?}");
        }
        let domain = it.linux.domains.domain(at);
        assert_eq!((domain.failed, domain.interval_ms), (0, longest_ms), "{era:?}");
    }
}

/// The mark that affinity keeps a group imbalanced stays, if nothing is found to move.
#[test]
fn sg_imbalanced_stays_for_pinned_tasks_by_the_rule_of_each_release() {
    for (era, others, stays) in
        [(V4_2, 0, false), (V5_2, 0, false), (V5_2, 2, true), (V6_12, 0, true), (V6_12, 2, true)]
    {
        // CPU 0 balances with three others, of which one or all have pinned tasks.
        let mut it = Situation::new(era, Topology, one_node(2, 4, 1));
        for cpu in 1..=1 + others {
            for task in fill(&mut it, cpu, 4) {
                it.allow(task, [cpu]);
            }
        }
        let above = it.linux.domains.of(CpuId(0)).nth(1).unwrap();
        it.linux.domains.own_group_mut(above).imbalanced = true;
        assert_eq!(balance(&mut it, 0, 0, Idleness::Idle), Outcome::Nothing, "{era:?}");
        assert_eq!(it.linux.domains.group(above, 0).imbalanced, stays, "{era:?}, {others}");
    }
}

#[test]
fn need_active_balance_of_6_12_counts_on_and_keeps_the_interval() {
    for (era, failed, backs_off) in [(V4_2, 2, true), (V5_2, 2, true), (V6_12, 4, false)] {
        let mut it = Situation::new(era, Topology, one_node(2, 4, 2));
        for cpu in [0, 2, 4, 6] {
            it.run_on(cpu);
        }
        for cpu in 0..8 {
            it.ask(|linux, ctx| linux.queues.refresh_load(ctx, CpuId(cpu)));
        }
        let at = it.linux.domains.of(CpuId(8)).nth(2).unwrap();
        let domain = it.linux.domains.domain_mut(at);
        let (tries, min_ms) = (domain.tunables.cache_nice_tries, domain.tunables.min_interval_ms);
        domain.failed = tries + 2;
        assert_eq!(balance(&mut it, 8, 2, Idleness::Idle), Outcome::Nothing, "{era:?}");
        let domain = it.linux.domains.domain(at);
        assert_eq!(domain.failed, failed, "{era:?}: {tries} tries");
        assert_eq!(domain.interval_ms, if backs_off { 2 * min_ms } else { min_ms }, "{era:?}");
    }
}

#[test]
fn active_load_balance_cpu_stop_ends_the_count_of_failures_in_5_2_and_6_12() {
    for era in ERAS {
        let mut it = pair(era);
        let task = it.run_on(0);
        let at = it.linux.domains.of(CpuId(1)).start;
        it.linux.domains.domain_mut(at).failed = 3;
        let attempt = Attempt { cpu: CpuId(1), by: CpuId(1), at, idleness: Idleness::Idle };
        it.ask(|linux, ctx| linux.balancer().ask_for_running(ctx, attempt, CpuId(0)));
        it.settle();
        assert_eq!(it.linux.queues.entity(task).cpu, CpuId(1), "{era:?}");
        let failed = if era < V5_2 { 3 } else { 0 };
        assert_eq!(it.linux.domains.domain(at).failed, failed, "{era:?}");
    }
}

#[test]
fn pinned_tasks_stay() {
    for era in ERAS {
        let mut it = pair(era);
        for task in fill(&mut it, 0, 4) {
            it.allow(task, [0]);
        }
        assert_eq!(balance(&mut it, 1, 0, Idleness::Idle), Outcome::Nothing, "{era:?}");
        assert_eq!(it.tasks_by_cpu(), [4, 0], "{era:?}");
    }
}

#[test]
fn cache_hot_tasks_stay_until_enough_attempts_have_failed() {
    for era in ERAS {
        let mut it = pair(era);
        let tasks = fill(&mut it, 0, 2);
        let waiting = *tasks.iter().find(|task| it.linux.queues.entity(**task).queued).unwrap();
        let cpu = CpuId(1);
        let attempt = Attempt { cpu, by: cpu, at: it.linux.domains.of(cpu).start, idleness: Idleness::Idle };
        // It has just been preempted.
        let clock = it.linux.queues.of(CpuId(0)).clock_ns();
        it.linux.queues.entity_mut(waiting).exec_start_ns = clock;
        it.now_ns += 100_000;
        let mut failures = 0;
        while it.ask(|linux, ctx| linux.balancer().balance(ctx, attempt)) == Outcome::Nothing {
            failures += 1;
            assert!(failures < 10, "{era:?}");
        }
        // The level's cache_nice_tries is 1.
        assert_eq!(failures, 2, "{era:?}");
    }
}

#[test]
fn a_running_task_is_pushed_after_failures_to_a_package_that_idles() {
    // Package 0 has both of its cores busy, each with one task; 3.6 sees no more tasks than capacity there.
    for era in [V4_2, V5_2, V6_12] {
        let mut it = Situation::new(era, Topology, one_node(2, 4, 2));
        for cpu in [0, 2, 4, 6] {
            it.run_on(cpu);
        }
        it.run_ticks(1_000);
        let by_cpu = it.tasks_by_cpu();
        assert_eq!(by_cpu[..8].iter().sum::<usize>(), 2, "{era:?}: {by_cpu:?}");
    }
}

#[test]
fn a_pile_of_tasks_spreads_evenly() {
    for era in ERAS {
        for domains in [Topology, Flat] {
            let mut it = Situation::new(era, domains, one_node(2, 4, 1));
            for _ in 0..16 {
                it.queue_on(0);
            }
            it.settle();
            // Idle CPUs take what they can at the first ticks. From then on busy CPUs balance, the widest
            // domain every 8 to 16 ms (3.6: 1 to 4) times the busy factor of 32 (64, 16): at most 512 ms.
            let interval = 512 / 4;
            it.run_ticks(interval);
            let least = *it.tasks_by_cpu().iter().min().unwrap();
            assert!(least >= 1, "{era:?}, {domains:?}: no CPU idles");
            it.run_ticks(interval);
            assert_eq!(it.tasks_by_cpu(), [2; 8], "{era:?}, {domains:?}");
        }
    }
}

#[test]
fn a_cpu_that_runs_out_of_work_takes_a_waiting_task_unless_it_will_not_idle_for_long() {
    for era in ERAS {
        for (avg_idle_ns, takes) in [(1_000_000, true), (100, false)] {
            let mut it = pair(era);
            fill(&mut it, 0, 3);
            let task = it.run_on(1);
            it.linux.queues.of_mut(CpuId(1)).set_avg_idle_ns(avg_idle_ns);
            // An earlier search took some time.
            it.always_search();
            let at = it.linux.domains.of(CpuId(1)).start;
            it.linux.domains.domain_mut(at).newidle_cost_ns = 1_000;
            it.ask(|linux, ctx| linux.blocked(ctx, CpuId(1), task));
            it.dispatch(CpuId(1));
            assert_eq!(it.tasks_by_cpu()[1] > 0, takes, "{era:?}, {avg_idle_ns}");
        }
    }
}

/// Lets the CPU, which has two idle neighbours near and one package far away, search as a newly idle one.
fn search_newly_idle(it: &mut Situation, cpu: u32) {
    it.always_search();
    it.linux.queues.set_overload(true);
    it.linux.queues.of_mut(CpuId(cpu)).set_avg_idle_ns(1_000_000);
    it.ask(|linux, ctx| linux.balancer().balance_new_idle(ctx, CpuId(cpu)));
}

#[test]
fn update_newidle_cost_keeps_the_longest_search_which_fades_by_a_hundredth_a_second() {
    for (era, lines) in [(V4_2, 5), (V5_2, 4), (V6_12, 4)] {
        let mut it = Situation::new(era, Topology, one_node(2, 4, 1));
        let cost = |it: &Situation, level| {
            let at = it.linux.domains.of(CpuId(1)).nth(level).unwrap();
            it.linux.domains.domain(at).newidle_cost_ns
        };
        search_newly_idle(&mut it, 1);
        let hardware = it.machine.hardware();
        let near_ns = 3 * lines * u64::from(hardware.llc_latency_ns);
        assert_eq!(cost(&it, 0), near_ns, "{era:?}: three CPUs share the cache");
        // One node: the other package's caches are as far away as the node's memory.
        let far_ns = 4 * lines * u64::from(hardware.local_memory_latency_ns);
        assert_eq!(cost(&it, 1), near_ns + far_ns, "{era:?}");

        // A wait for a lock counts, and is remembered.
        let at = it.linux.domains.of(CpuId(1)).start + 1;
        it.linux.balancing.new_idle_search =
            Some(NewIdleSearch { now_ns: it.now_ns, cpu: CpuId(1), at, cost_ns: 700, spent_ns: 900 });
        it.ask(|linux, _| linux.spent_on_locks(CpuId(1), 25_600_000 - 700));
        assert_eq!(cost(&it, 1), 25_600_000, "{era:?}");
        search_newly_idle(&mut it, 1);
        assert_eq!(cost(&it, 1), 25_600_000, "{era:?}");

        // A search that would take longer than the CPU idles is left out, and 6.12 remembers a little less of
        // the others each second, as all do when they balance at ticks.
        it.now_ns += 1_000_000_001;
        it.linux.domains.domain_mut(at - 1).newidle_cost_ns = 256_000;
        search_newly_idle(&mut it, 1);
        assert_eq!(cost(&it, 0), if era == V6_12 { 253_000 } else { 256_000 }, "{era:?}");
        it.ask(|linux, ctx| linux.balancer().balance_at_tick(ctx, CpuId(1)));
        assert_eq!((cost(&it, 0), cost(&it, 1)), (253_000, 25_300_000), "{era:?}");
    }
}

/// Each at most once a tick.
#[test]
fn update_nohz_stats_of_5_2_locks_idle_cpus_with_load() {
    for (era, locked) in [(V4_2, 0), (V5_2, 2), (V6_12, 0)] {
        let mut it = Situation::new(era, Flat, one_node(1, 8, 1));
        for cpu in [2, 5] {
            it.sleep_on(cpu);
        }
        it.now_ns += it.linux.tick_period_ns();
        for again in [false, true] {
            it.locked.clear();
            search_newly_idle(&mut it, 1);
            assert_eq!(it.locked.len(), if again { 0 } else { locked }, "{era:?}");
        }
    }
}

/// `rd->overload` is set when a second task comes, and cleared only by a look at all CPUs.
#[test]
fn add_nr_running_sets_overload_and_update_sd_lb_stats_clears_it() {
    for era in ERAS {
        let mut it = Situation::new(era, Topology, one_node(2, 4, 1));
        it.run_on(0);
        assert!(!it.linux.queues.overload(), "{era:?}");
        let second = it.run_on(1);
        let moved = it.queue_on(0);
        it.ask(|linux, ctx| linux.queues.move_queued(ctx, moved, CpuId(0), CpuId(2)));
        it.settle();
        assert_eq!(it.tasks_by_cpu().iter().max(), Some(&1), "{era:?}");
        assert!(it.linux.queues.overload(), "{era:?}: no look at all CPUs has come since");
        it.always_search();
        let looks_in_vain = |it: &mut Situation| {
            it.scanned = 0;
            it.linux.queues.of_mut(CpuId(1)).set_avg_idle_ns(1_000_000);
            it.ask(|linux, ctx| linux.balancer().balance_new_idle(ctx, CpuId(1)));
            it.scanned > 0
        };
        it.ask(|linux, ctx| linux.blocked(ctx, CpuId(1), second));
        assert!(looks_in_vain(&mut it), "{era:?}");
        assert!(!it.linux.queues.overload(), "{era:?}");
        assert_eq!(looks_in_vain(&mut it), era == V3_6, "{era:?}: only 3.6 does not know");
    }
}

#[test]
fn a_busy_cpu_kicks_one_idle_cpu_at_most_once_a_tick() {
    for era in ERAS {
        let mut it = Situation::new(era, Flat, one_node(1, 4, 1));
        fill(&mut it, 0, 2);
        it.now_ns += it.linux.tick_period_ns();
        let before = it.linux.queues.clone();
        it.ask(|linux, ctx| linux.balancer().kick_idle_balancer(ctx, CpuId(0)));
        it.ask(|linux, ctx| linux.balancer().kick_idle_balancer(ctx, CpuId(0)));
        let is_kicked = |queues: &Queues, cpu| queues.of(CpuId(cpu)).is_nohz_kicked();
        let kicked: Vec<_> =
            (0..4).filter(|&cpu| is_kicked(&it.linux.queues, cpu) && !is_kicked(&before, cpu)).collect();
        assert_eq!(kicked, [1], "{era:?}");
        it.settle();
        assert_eq!(it.tasks_by_cpu().iter().max(), Some(&1), "{era:?}");
    }
}

#[test]
fn intervals_count_in_ticks_and_grow_while_nothing_is_to_do() {
    let mut it = Situation::new(V4_2, Flat, one_node(2, 4, 2));
    let at = it.linux.domains.of(CpuId(0)).start;
    let next = |it: &mut Situation, busy| it.linux.balancer().next_balance_tick(at, busy);
    // 16 ms at 250 Hz; times 32 when busy.
    assert_eq!((next(&mut it, false), next(&mut it, true)), (4, 128));
    balance(&mut it, 0, 0, Idleness::Idle);
    assert_eq!(next(&mut it, false), 8);
    balance(&mut it, 0, 0, Idleness::Idle);
    assert_eq!(next(&mut it, false), 8, "32 ms is the longest");
}
