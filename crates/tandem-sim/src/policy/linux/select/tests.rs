//! Decisions in situations that are set up by hand: two packages of four cores with two threads, so that CPUs
//! 0 to 7 share a cache, and 2n and 2n + 1 a core.

use super::*;
use crate::policy::Policy as _;
use crate::policy::linux::Domains::{self, Flat, Topology};
use crate::policy::linux::LinuxEra;
use crate::policy::linux::LinuxEra::{V3_6, V4_2, V5_2, V6_12};
use crate::policy::linux::situation::{Situation, one_node};

mod soft_affinity;

const ERAS: [LinuxEra; 4] = [V3_6, V4_2, V5_2, V6_12];

fn situation(era: LinuxEra, domains: Domains) -> Situation {
    Situation::new(era, domains, one_node(2, 4, 2))
}

fn fork_from(situation: &mut Situation, parent: TaskId) -> u32 {
    let cpu = situation.linux.queues.entity(parent).cpu;
    // The parent's load is there anyway: 5.2 and 6.12 remember that it ran.
    let child = situation.sleep_on(7);
    situation.ask(|linux, ctx| linux.selector().select(ctx, child, Reason::Fork { parent, cpu })).0
}

#[test]
fn a_fork_on_an_idle_machine_goes_to_the_other_package_or_to_the_next_cpu_of_the_flat_domain() {
    for era in ERAS {
        let mut real = situation(era, Topology);
        let parent = real.run_on(2);
        let child = fork_from(&mut real, parent);
        assert!((8..16).contains(&child), "{era:?}: the other package has less to do, not {child}");

        let mut flat = situation(era, Flat);
        let parent = flat.run_on(2);
        assert_eq!(fork_from(&mut flat, parent), 3, "{era:?}: the first idle CPU round from the own one");
    }
}

#[test]
fn a_task_at_its_exec_leaves_for_an_idle_cpu_in_kernels_that_count_its_own_load() {
    for (era, leaves) in [(V3_6, true), (V4_2, true), (V5_2, false), (V6_12, false)] {
        for domains in [Topology, Flat] {
            let mut it = situation(era, domains);
            let task = it.run_on(2);
            let cpu = it.ask(|linux, ctx| linux.selector().select(ctx, task, Reason::Exec { cpu: CpuId(2) }));
            assert_eq!(cpu != CpuId(2), leaves, "{era:?}, {domains:?}: {cpu:?}");
        }
    }
}

#[test]
fn a_pipe_partner_wakes_up_on_an_idle_core_or_on_its_wakers_cpu_in_the_flat_domain() {
    for era in ERAS {
        for (domains, expected) in [(Topology, 6), (Flat, 5)] {
            let mut it = situation(era, domains);
            let partner = it.sleep_on(5);
            let waker = it.run_on(5);
            assert_eq!(it.wake(partner, waker, true), expected, "{era:?}, {domains:?}");
        }
    }
}

#[test]
fn a_sync_wake_up_pulls_the_task_to_its_wakers_package() {
    for era in ERAS {
        let mut it = situation(era, Topology);
        let partner = it.sleep_on(9);
        it.run_on(9);
        let waker = it.run_on(2);
        let cpu = it.wake(partner, waker, true);
        assert!(cpu < 8 && cpu / 2 != 1, "{era:?}: an idle core beside the waker, not {cpu}");

        let mut it = situation(era, Flat);
        let partner = it.sleep_on(9);
        it.run_on(9);
        let waker = it.run_on(2);
        assert_eq!(it.wake(partner, waker, true), 2, "{era:?}: no search");
    }
}

#[test]
fn available_idle_cpu_is_idle_and_not_preempted() {
    for era in [V5_2, V6_12] {
        let wake = |preempted: &[u32]| {
            let mut it = situation(era, Topology);
            for &cpu in preempted {
                it.linux.set_preempted(CpuId(cpu), true);
            }
            let partner = it.sleep_on(7);
            it.run_on(7);
            let waker = it.run_on(2);
            it.wake(partner, waker, false)
        };
        let found = wake(&[]);
        assert!(found < 8 && found != 7 && found != 2, "{era:?}: one that idles, not {found}");
        let all_but = |cpu: u32| (0..16).filter(|&other| other != cpu).collect::<Vec<_>>();
        assert_eq!(wake(&all_but(5)), 5, "{era:?}: the only one that has its pCPU");
        let found = wake(&all_but(2));
        assert!(found == 7 || found == 2, "{era:?}: none idles, so it is no search, not {found}");
    }
}

#[test]
fn a_task_goes_back_to_its_idle_cpu_if_that_shares_the_wakers_cache() {
    // 3.6 searches for an idle core around the CPU of its first step instead.
    for (era, domains, expected) in [
        (V3_6, Topology, [0, 0]),
        (V4_2, Topology, [7, 7]),
        (V5_2, Topology, [7, 7]),
        (V6_12, Topology, [7, 7]),
        // The flat domain has no shared cache: the waker's CPU when the waker is about to leave, else the
        // idle one.
        (V3_6, Flat, [2, 7]),
        (V4_2, Flat, [2, 7]),
        (V5_2, Flat, [2, 7]),
        (V6_12, Flat, [2, 7]),
    ] {
        for (sync, cpu) in [true, false].into_iter().zip(expected) {
            let mut it = situation(era, domains);
            let task = it.sleep_on(7);
            let waker = it.run_on(2);
            let found = it.wake(task, waker, sync);
            if (era, domains) == (V3_6, Topology) {
                assert!(found / 2 != 1 && found < 8, "{found}");
            } else {
                assert_eq!(found, cpu, "{era:?}, {domains:?}, sync {sync}");
            }
        }
    }
}

#[test]
fn with_all_cpus_busy_there_is_no_search_worth_anything() {
    for era in ERAS {
        for domains in [Topology, Flat] {
            let mut it = situation(era, domains);
            let task = it.sleep_on(4);
            let tasks: Vec<_> = (0..16).map(|cpu| it.run_on(cpu)).collect();
            let found = it.wake(task, tasks[4], true);
            assert_eq!(found, 4, "{era:?}, {domains:?}");
        }
    }
}

/// `effective_load()` of the old CPU is nothing without task groups.
#[test]
fn wake_affine_of_3_6_and_4_2_weighs_the_task_on_its_wakers_cpu_alone() {
    for era in [V3_6, V4_2] {
        for domains in [Topology, Flat] {
            let mut it = situation(era, domains);
            let task = it.sleep_on(4);
            let tasks: Vec<_> = (0..16).map(|cpu| it.run_on(cpu)).collect();
            assert_eq!(it.wake(task, tasks[2], false), 4, "{era:?}, {domains:?}: 2048 beside 1024");
            assert_eq!(it.wake(task, tasks[2], true), 2, "{era:?}, {domains:?}: the waker's weight goes");
        }
    }
}

#[test]
fn affinity_is_respected() {
    for era in ERAS {
        for domains in [Topology, Flat] {
            let mut it = situation(era, domains);
            let task = it.sleep_on(4);
            let waker = it.run_on(2);
            it.allow(task, [11, 13]);
            for sync in [true, false] {
                let cpu = it.wake(task, waker, sync);
                assert!([11, 13].contains(&cpu), "{era:?}, {domains:?}: {cpu}");
            }
            let reason = Reason::Fork { parent: waker, cpu: CpuId(2) };
            let cpu = it.ask(|linux, ctx| linux.selector().select(ctx, task, reason)).0;
            assert!([11, 13].contains(&cpu), "{era:?}, {domains:?}: {cpu}");
            it.allow(task, [12]);
            assert_eq!(it.wake(task, waker, true), 12);
        }
    }
}

#[test]
fn a_flat_wake_up_looks_at_fewer_cpus() {
    for era in ERAS {
        let looked_at = |domains| {
            let mut it = situation(era, domains);
            let partner = it.sleep_on(0);
            let waker = it.run_on(0);
            it.run_on(2);
            it.run_on(4);
            it.scanned = 0;
            it.wake(partner, waker, true);
            it.scanned
        };
        assert_eq!(looked_at(Flat), 0, "{era:?}");
        assert!(looked_at(Topology) > 0, "{era:?}");
    }
}

#[test]
fn select_task_rq_fair_takes_no_exiting_waker_for_synchronous_since_5_2() {
    for (era, pulled) in [(V3_6, true), (V4_2, true), (V5_2, false), (V6_12, false)] {
        for (exits, pulled) in [(false, true), (true, pulled)] {
            let mut it = situation(era, Topology);
            let parent = it.sleep_on(9);
            let child = it.run_on(2);
            it.run_on(9);
            if exits {
                it.linux.queues.exits(child);
            }
            let found = it.wake(parent, child, true);
            assert_eq!(found < 8, pulled, "{era:?}, exits: {exits}: {found}");
        }
    }
}

/// The waker's CPU is not allowed, so that no domain is affine.
#[test]
fn select_idle_sibling_is_asked_without_an_affine_domain_since_4_2() {
    for (era, stays) in [(V3_6, true), (V4_2, false), (V5_2, false), (V6_12, false)] {
        let mut it = situation(era, Topology);
        let task = it.sleep_on(4);
        it.run_on(4);
        let waker = it.run_on(9);
        it.allow(task, 0..8);
        let found = it.wake(task, waker, false);
        assert_eq!(found == 4, stays, "{era:?}: {found}");
        assert!(found < 8, "{era:?}: {found}");
    }
}

#[test]
fn a_waker_of_many_does_not_pull_them_all() {
    for (era, wakee_flips, waker_flips, wide) in [
        (V3_6, 1_000, 1_000_000, false),
        (V4_2, 9, 73, true),
        (V4_2, 8, 1_000, false),
        (V4_2, 9, 72, false),
        (V5_2, 8, 64, true),
        (V5_2, 64, 8, true),
        (V5_2, 7, 1_000, false),
        (V6_12, 8, 64, true),
        (V6_12, 64, 8, true),
        (V6_12, 7, 1_000, false),
    ] {
        let mut it = situation(era, Topology);
        let wakee = it.sleep_on(9);
        let waker = it.run_on(2);
        it.linux.placement.wakers.set_flips(wakee, wakee_flips);
        it.linux.placement.wakers.set_flips(waker, waker_flips);
        let all = CpuMask::first(16);
        let wake = WakeUp {
            task: wakee,
            allowed: &all,
            preferred: None,
            within: &all,
            prev: CpuId(9),
            waker: Some(waker),
            cpu: CpuId(2),
            sync: false,
        };
        assert_eq!(
            it.linux.selector().wake_affine(&wake).is_wide(),
            wide,
            "{era:?}, {wakee_flips}, {waker_flips}"
        );
    }
}

/// What `dup_task_struct()` copies, only `record_wakee()` changes.
#[test]
fn record_wakee_counts_a_child_from_where_its_parent_was() {
    for era in ERAS {
        let mut it = situation(era, Topology);
        let parent = it.run_on(2);
        it.linux.placement.wakers.set_flips(parent, 9);
        let child = it.sleep_on(7);
        let fork = Reason::Fork { parent, cpu: CpuId(2) };
        it.ask(|linux, ctx| linux.select_cpu(ctx, child, fork));
        let wakers = &it.linux.placement.wakers;
        assert_eq!(wakers.flips_of(child), 9, "{era:?}");
        assert_eq!(wakers.recent_cpu(child), CpuId(2), "{era:?}: wake_up_new_task() sets that");
    }
}

#[test]
fn new_tasks_spread_evenly() {
    for era in ERAS {
        for domains in [Topology, Flat] {
            let mut it = situation(era, domains);
            for _ in 0..32 {
                it.start();
                // So that the averages show what the tasks use.
                it.run_ticks(25);
            }
            // In a hierarchy, a difference of one task is too small to choose another package or core.
            let expected = if domains == Flat { 2..=2 } else { 1..=3 };
            let tasks = it.tasks_by_cpu();
            assert!(tasks.iter().all(|tasks| expected.contains(tasks)), "{era:?}, {domains:?}: {tasks:?}");
        }
    }
}
