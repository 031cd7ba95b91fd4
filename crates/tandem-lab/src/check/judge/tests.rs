//! Hand-made runs: events, and the judges' findings for them.

use super::*;
use crate::scenario::ScenarioSource;
use std::path::Path;
use tandem_machine::ids::{CpuId, KernelId, TaskId};
use tandem_sim::trace::{Event, EventKind, Observer};

const MS: u64 = 1_000_000;

/// Two CPUs, two tasks that compute everywhere, one that is bound to CPU 0 and sleeps.
fn facts() -> Facts {
    facts_of(
        r#"
        [[processes]]
        group = "busy"
        count = 2
        memory = "1MiB"
        process = [{ program = "computes" }]
        [[processes]]
        group = "light"
        memory = "1MiB"
        affinity = { hard = "0" }
        process = [{ program = "sleeps" }]
        "#,
    )
}

/// Two CPUs, and these processes.
fn facts_of(processes: &str) -> Facts {
    let text = r#"
        length = "10s"
        [policy]
        host = "linux"
        [machine]
        name = "two"
        [[machine.node]]
        number = 0
        memory = "1GiB"
        bandwidth = "20GB/s"
        [[machine.cores]]
        package = 0
        node = 0
        cpus = ["0", "1"]
        [programs.computes]
        ops = [{ forever = [{ compute = "10ms" }] }]
        [programs.sleeps]
        ops = [{ forever = [{ compute = "1ms" }, { sleep = "10ms" }] }]
    "#;
    let text = format!("{text}{processes}");
    let source = ScenarioSource::parse(Path::new("two.toml"), &text).unwrap();
    let mut scenario = source.build(&Default::default(), &Default::default()).unwrap();
    scenario.remove_kernel_threads();
    Facts::new(&scenario)
}

/// A run of these events, each a time (ms), a kind, a CPU and a task.
fn seen<'a>(facts: &'a Facts, events: &[(u64, EventKind, usize, usize)]) -> Seen<'a> {
    let mut run = Follower::new(facts);
    for &(at_ms, kind, cpu, task) in events {
        let (cpu, task) = (CpuId::from(cpu), TaskId::from(task));
        run.observe(Event { at_ns: at_ms * MS, kernel: KernelId::HOST, kind, cpu, task, by: None });
    }
    Seen { facts, run: run.finish() }
}

use EventKind::{Block, Preempt, Start, Wake};

#[test]
fn who_waits_too_long_is_named() {
    let facts = facts();
    let seen = seen(
        &facts,
        &[(0, Wake, 0, 0), (0, Start, 0, 0), (3, Wake, 0, 2), (5_003, Preempt, 0, 0), (5_003, Start, 0, 2)],
    );
    let found = seen.waits(|_| true).unwrap();
    assert_eq!((found.promise, found.who.as_str(), found.at_ns), (Promise::Waits, "light-0", 3 * MS));
    assert!(found.excess > 5.0 && found.seen.starts_with("waits for 5 s"), "{found:?}");
}

#[test]
fn who_has_no_limit_is_judged_for_its_waits_beside_those_who_have() {
    let text = r#"
        length = "1s"
        machine = "xeon-e5620-2s"
        [policy]
        host = { tandem = { kernel = "7.3" } }
        [programs.computes]
        ops = [{ forever = [{ compute = "10ms" }] }]
        [[cgroup]]
        path = "a"
        limit = "50%"
        [[processes]]
        group = "below"
        cgroup = "a/b"
        memory = "1MiB"
        process = [{ program = "computes" }]
        [[processes]]
        group = "later"
        cgroup = "c"
        memory = "1MiB"
        process = [{ program = "computes" }]
        [[vm]]
        group = "own"
        vcpus = 1
        memory = "1MiB"
        programs = ["computes"]
        [[processes]]
        group = "free"
        cgroup = "d"
        memory = "1MiB"
        process = [{ program = "computes" }]
        [[event]]
        at = "100ms"
        set_limit = { cgroup = "c", limit = "50%" }
        [[event]]
        at = "100ms"
        set_limit = { cgroup = "own-0", limit = "50%" }
    "#;
    let source = ScenarioSource::parse(Path::new("limits.toml"), text).unwrap();
    let mut scenario = source.build(&Default::default(), &Default::default()).unwrap();
    scenario.remove_kernel_threads();
    let free = (0..scenario.workloads.len()).filter(|&vm| !is_limited(&scenario, vm));
    let free: Vec<_> = free.map(|vm| scenario.workloads[vm].group.as_str()).collect();
    assert_eq!(free, ["free"]);

    let facts = facts();
    let waits =
        [(0, Wake, 0, 0), (0, Wake, 0, 2), (0, Start, 0, 2), (9_000, Block, 0, 2), (9_000, Start, 0, 0)];
    let seen = seen(&facts, &waits);
    assert!(seen.waits(|vm| vm == 0).unwrap().excess > 1.0);
    assert!(seen.waits(|vm| vm != 0).unwrap().excess <= 1.0);
}

#[test]
fn a_wait_counts_as_idling_only_beside_a_cpu_of_its_own() {
    let facts = facts();
    // CPU 1 idles, but the task is bound to CPU 0, which computes.
    let bound =
        [(0, Wake, 0, 0), (0, Start, 0, 0), (1, Wake, 0, 2), (9_000, Block, 0, 0), (9_000, Start, 0, 2)];
    let found = seen(&facts, &bound).idle().unwrap();
    assert!(found.excess <= 1.0, "{found:?}");
    // Here a free task waits beside CPU 1.
    let free = [(0, Wake, 0, 0), (0, Start, 0, 0), (1, Wake, 0, 1), (7, Start, 1, 1)];
    let found = seen(&facts, &free).idle().unwrap();
    assert_eq!((found.promise, found.at_ns), (Promise::Idle, MS));
    assert!((found.excess - 1.5).abs() < 1e-9, "{found:?}");
}

#[test]
fn shares_are_what_is_left_by_those_that_sleep() {
    let facts = facts();
    let both = [(0, Wake, 0, 0), (0, Start, 0, 0), (0, Wake, 1, 1), (0, Start, 1, 1)];
    let worst = |seen: Seen<'_>| {
        let findings = seen.shares().into_iter().flatten();
        findings.map(|finding| finding.excess).fold(0.0, f64::max)
    };
    assert!(worst(seen(&facts, &both)) <= 1.0);
    // The second one is off its CPU for a tenth of the time, and no other task runs there.
    let away = [both.as_slice(), &[(9_000, Preempt, 1, 1)]].concat();
    assert!(worst(seen(&facts, &away)) > 1.0);
    // A task that also sleeps runs there meanwhile: the CPU is shared.
    let slept = [both.as_slice(), &[(1, Wake, 0, 2), (9_000, Preempt, 0, 0), (9_000, Start, 0, 2)]].concat();
    let due = seen(&facts, &slept).shares().into_iter().flatten().next().unwrap();
    assert!(due.seen.contains("fair share is 0.950"), "{due:?}");
}

#[test]
fn a_light_task_is_served_soon() {
    let facts = facts();
    let mut events = vec![(0, Wake, 0, 0), (0, Start, 0, 0)];
    let mut at_ms = 10;
    for _ in 0..300 {
        events.extend([(at_ms, Wake, 0, 2), (at_ms + 9, Preempt, 0, 0), (at_ms + 9, Start, 0, 2)]);
        events.extend([(at_ms + 10, Block, 0, 2), (at_ms + 10, Start, 0, 0)]);
        at_ms += 30;
    }
    let late = seen(&facts, &events);
    assert!(late.is_light(2) && !late.is_light(0));
    let slow = late.slow_groups();
    assert_eq!(slow.iter().map(|slow| slow.p99_ns).collect::<Vec<_>>(), [9 * MS]);
    // In the other run of the same work, it waits for less time.
    let prompt = events.iter().map(|&(at_ms, kind, cpu, task)| match (kind, task) {
        (Wake, 2) => (at_ms + 8, kind, cpu, task),
        _ => (at_ms, kind, cpu, task),
    });
    let prompt: Vec<_> = prompt.collect();
    let found = seen(&facts, &prompt).compared(slow.into_iter().next().unwrap()).unwrap();
    assert!(found.excess > 1.0 && found.seen.contains("9 ms"), "{found:?}");
}

#[test]
fn what_nobody_could_use_is_not_missed_but_what_sleepers_take_is() {
    let facts = facts_of(
        r#"
        [[processes]]
        group = "busy"
        memory = "1MiB"
        process = [{ program = "computes" }]
        [[processes]]
        group = "sleepers"
        memory = "1MiB"
        process = [{ program = "sleeps", copies = 2 }]
        "#,
    );
    let worst = |events: &[_]| {
        let findings = seen(&facts, events).shares();
        findings.into_iter().flatten().map(|finding| finding.excess).fold(0.0, f64::max)
    };
    // While both sleep, which is half of the time, the task that computes cannot use the second CPU.
    let fair = [
        (0, Wake, 0, 0),
        (0, Wake, 0, 1),
        (0, Wake, 1, 2),
        (0, Start, 0, 0),
        (0, Start, 1, 1),
        (3_333, Preempt, 0, 0),
        (3_333, Start, 0, 2),
        (5_000, Block, 0, 2),
        (5_000, Start, 0, 0),
        (5_000, Block, 1, 1),
    ];
    assert!(worst(&fair) < 0.01);
    // Before that, the two have both CPUs to themselves.
    let unfair = [
        (0, Wake, 0, 0),
        (0, Wake, 0, 1),
        (0, Wake, 1, 2),
        (0, Start, 0, 1),
        (0, Start, 1, 2),
        (5_000, Block, 0, 1),
        (5_000, Start, 0, 0),
        (5_000, Block, 1, 2),
    ];
    assert!(worst(&unfair) > 1.0);
}
