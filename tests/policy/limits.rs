//! The promise of limits: a cgroup with enough demand gets what `cpu.max` allows, and others lose nothing.
//!
//! The oracle is the trace, which records which task had which CPU when. The simulator runs whole scenarios.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::path::Path;
use tandem_lab::scenario::ScenarioSource;
use tandem_machine::ids::TaskId;
use tandem_sim::run_observed;
use tandem_sim::trace::{Event, EventKind};

const S: u64 = 1_000_000_000;
/// Sixteen CPUs on two nodes.
const MACHINE: &str = "xeon-e5620-2s";

/// Tasks that always want CPUs: their cgroup, their number, and their CPUs.
struct Busy<'a> {
    cgroup: &'a str,
    tasks: u32,
    cpus: &'a str,
}

fn busy<'a>(cgroup: &'a str, tasks: u32, cpus: &'a str) -> Busy<'a> {
    Busy { cgroup, tasks, cpus }
}

/// Runs the tasks for this long; returns from when to when each of them ran, ns.
fn stretches(
    sets: &[Busy<'_>],
    limits: &[(&str, &str)],
    events: &str,
    length_s: u64,
) -> Vec<Vec<(u64, u64)>> {
    let mut text = format!(
        "length = \"{length_s}s\"\nmachine = \"{MACHINE}\"\n[policy]\nhost = \"tandem\"\n\
         [programs.hog]\nops = [{{ forever = [{{ compute = \"1ms\" }}] }}]\n"
    );
    for (path, limit) in limits {
        write!(text, "[[cgroup]]\npath = \"{path}\"\nlimit = \"{limit}\"\n").unwrap();
    }
    for (at, Busy { cgroup, tasks, cpus }) in sets.iter().enumerate() {
        write!(text, "[[processes]]\ngroup = \"set{at}\"\nmemory = \"1GiB\"\n").unwrap();
        if !cgroup.is_empty() {
            writeln!(text, "cgroup = \"{cgroup}\"").unwrap();
        }
        write!(
            text,
            "process = [{{ program = \"hog\", copies = {tasks} }}]\naffinity = {{ hard = \"{cpus}\" }}\n"
        )
        .unwrap();
    }
    text.push_str(events);
    let source = ScenarioSource::parse(Path::new("limits.toml"), &text).unwrap();
    let mut scenario = source.build(&BTreeMap::new(), &Default::default()).unwrap();
    scenario.remove_kernel_threads();
    let mut trace: Vec<Event> = Vec::new();
    run_observed(&scenario, 1, &mut trace).unwrap();
    let ends: Vec<u32> = sets
        .iter()
        .scan(0, |end, set| {
            Some({
                *end += set.tasks;
                *end
            })
        })
        .collect();
    let mut since: HashMap<TaskId, u64> = HashMap::new();
    let mut ran = vec![Vec::new(); sets.len()];
    let mut leave = |task: TaskId, since_ns: u64, at_ns: u64| {
        let set = ends.iter().position(|&end| task.0 < end).expect("each task is of a set");
        ran[set].push((since_ns, at_ns));
    };
    for event in trace {
        match event.kind {
            EventKind::Start => _ = since.insert(event.task, event.at_ns),
            EventKind::Preempt | EventKind::Yield | EventKind::Block | EventKind::Exit => {
                if let Some(since_ns) = since.remove(&event.task) {
                    leave(event.task, since_ns, event.at_ns);
                }
            }
            EventKind::Wake | EventKind::Continue => {}
        }
    }
    for (task, since_ns) in since {
        leave(task, since_ns, length_s * S);
    }
    ran
}

/// CPUs that a set had on average between two times.
fn cpus(ran: &[(u64, u64)], from_ns: u64, to_ns: u64) -> f64 {
    let inside = |&(from, to): &(u64, u64)| to.min(to_ns).saturating_sub(from.max(from_ns));
    ran.iter().map(inside).sum::<u64>() as f64 / (to_ns - from_ns) as f64
}

fn is_within_2_pct(got: f64, expected: f64) -> bool {
    (expected * 0.98..=expected * 1.02).contains(&got)
}

#[test]
fn a_cgroup_that_wants_more_gets_its_limit() {
    let cases = [(1, "0"), (30, "0"), (50, "0-15"), (100, "0-3"), (250, "0-7"), (1200, "0-15")];
    for (pct, on) in cases {
        for tasks in [16, 100] {
            let ran = stretches(&[busy("a", tasks, on)], &[("a", &format!("{pct}%"))], "", 10);
            let got = cpus(&ran[0], 0, 10 * S);
            assert!(is_within_2_pct(got, f64::from(pct) / 100.0), "{tasks} tasks on {on}, {pct}%: {got:.4}");
        }
    }
}

#[test]
fn a_cgroup_below_its_limit_runs_as_if_there_were_none() {
    let ran = stretches(&[busy("a", 3, "0-15")], &[("a", "400%")], "", 10);
    assert!(cpus(&ran[0], S, 10 * S) > 2.99, "no task waits");
}

#[test]
fn a_nested_cgroup_gets_no_more_than_any_above_it() {
    let sets = [busy("a", 8, "0-15"), busy("a/b", 8, "0-15")];
    let ran = stretches(&sets, &[("a", "300%"), ("a/b", "100%")], "", 10);
    let [outer, inner] = [0, 1].map(|set| cpus(&ran[set], 0, 10 * S));
    assert!(inner <= 1.02 && is_within_2_pct(outer + inner, 3.0), "{outer:.3} and {inner:.3}");
}

#[test]
fn others_lose_nothing_to_a_limited_cgroup_and_no_cpu_idles_beside_them() {
    let ran = stretches(&[busy("a", 10, "0"), busy("", 1, "0")], &[("a", "30%")], "", 10);
    let [limited, other] = [0, 1].map(|set| cpus(&ran[set], 0, 10 * S));
    assert!(is_within_2_pct(limited, 0.3), "it is entitled to half: {limited:.3}");
    assert!(other > 0.68, "{other:.3}");
}

#[test]
fn parked_tasks_come_back_when_the_limit_changes_or_they_may_run_elsewhere() {
    let raised = "[[event]]\nat = \"1050ms\"\nset_limit = { cgroup = \"a\", limit = \"1600%\" }\n";
    let removed = "[[event]]\nat = \"1050ms\"\nset_limit = { cgroup = \"a\", limit = \"max\" }\n";
    for event in [raised, removed] {
        let ran = stretches(&[busy("a", 50, "0-15")], &[("a", "1%")], event, 3);
        assert!(cpus(&ran[0], 0, S) < 0.03, "the limit holds at first");
        assert!(cpus(&ran[0], 1_100_000_000, 3 * S) > 15.8, "then all CPUs are busy");
    }
    let moved = "[[event]]\nat = \"1050ms\"\nset_affinity = { group = \"set0\", cpus = \"4-7\" }\n";
    let ran = stretches(&[busy("a", 50, "0-3")], &[("a", "50%")], moved, 12);
    assert!(is_within_2_pct(cpus(&ran[0], 0, 12 * S), 0.5));
}
