//! Tasks that are to run at once where they are sent, or to be enqueued again: `SCX_ENQ_IMMED`.

use crate::support::{build, file_with, tasks};
use std::sync::Arc;
use tandem_sim::metrics::{RunMetrics, TaskMetrics};
use tandem_sim::policy::sched_ext::OwnCounters;
use tandem_sim::scenario::PolicySettings;

const SEEN: [&str; 5] = ["has_flag", "reenqueued", "told_immed", "told_preempted", "marked"];

/// An intruder that takes two of three CPUs at the same moment: wherever a task is, it is hit.
const PAIRS: &str = r#"
[[event]]
at = "50ms"
intrude = { cpus = "0-1", length = "20ms" }
[[event]]
at = "100ms"
intrude = { cpus = "1-2", length = "20ms" }
[[event]]
at = "150ms"
intrude = { cpus = "0,2", length = "20ms" }
"#;

/// The program of a task that computes all the time.
const HOG: &str = r#"{ compute = "100us" }"#;
/// And one that sleeps often.
const SLEEPER: &str = r#"{ compute = "100us" }, { sleep = "150us" }"#;

/// Tasks on the first three CPUs.
fn try_run(policy: &str, ops: &str, copies: usize, events: &str) -> Result<RunMetrics, String> {
    let mut scenario = build(&format!(
        r#"length = "200ms"
machine = "xeon-e5620-2s"
[policy]
host = {}
[programs.task]
ops = [{{ forever = [{ops}, {{ count = "rounds" }}] }}]
[[processes]]
group = "tasks"
memory = "1GiB"
affinity = {{ hard = "0-2" }}
process = [{{ program = "task", copies = {copies} }}]
{events}
"#,
        file_with("immediate", policy)
    ));
    let PolicySettings::SchedExt(settings) = &mut scenario.policy else { panic!("it is compiled") };
    Arc::make_mut(settings).counters = Some(OwnCounters { map: "seen_map", names: Arc::from(SEEN) });
    tandem_sim::run(&scenario, 1).map_err(|error| error.to_string())
}

fn run(policy: &str, ops: &str, copies: usize, events: &str) -> RunMetrics {
    try_run(policy, ops, copies, events).unwrap_or_else(|error| panic!("{policy}: {error}"))
}

/// The longest time that a task could run and did not, µs.
fn longest_wait_us(metrics: &RunMetrics) -> u64 {
    TaskMetrics::sum(tasks(metrics, "tasks")).longest_wait_ns / 1000
}

#[test]
fn a_task_that_is_interrupted_runs_elsewhere_at_once() {
    let with = run("", HOG, 1, PAIRS);
    let without = run("settings = { asks = false }", HOG, 1, PAIRS);
    let old = run("kernel = \"6.12\"", HOG, 1, PAIRS);
    assert!(longest_wait_us(&with) < 100, "{} us: {:?}", longest_wait_us(&with), with.host.policy);
    assert!(with.host.policy["told_preempted"] >= 1, "{:?}", with.host.policy);
    for (name, waits) in [("without the flag", &without), ("the old kernel", &old)] {
        assert!(longest_wait_us(waits) >= 19_000, "{name}: {} us", longest_wait_us(waits));
        assert_eq!(waits.host.policy["reenqueued"], 0, "{name}");
    }
}

#[test]
fn a_task_that_is_sent_to_a_taken_cpu_runs_elsewhere_at_once() {
    let previous = "where = 1";
    let with = run(&format!("settings = {{ {previous} }}"), SLEEPER, 1, PAIRS);
    let without = run(&format!("settings = {{ {previous}, asks = false }}"), SLEEPER, 1, PAIRS);
    let seen = &with.host.policy;
    assert!(longest_wait_us(&with) < 100, "{} us: {seen:?}", longest_wait_us(&with));
    assert!(seen["told_immed"] + seen["told_preempted"] >= 1, "{seen:?}");
    assert!(longest_wait_us(&without) >= 19_000, "{} us", longest_wait_us(&without));
}

/// Three tasks whose CPUs are taken, and returned, come back to each other's CPUs.
#[test]
fn a_task_that_is_sent_to_a_busy_cpu_is_enqueued_again() {
    let metrics = run("settings = { where = 1 }", SLEEPER, 3, PAIRS);
    let seen = &metrics.host.policy;
    assert!(seen["told_immed"] >= 1, "{seen:?}");
    // With SCX_ENQ_PREEMPT, and SCX_ENQ_HEAD or not, the CPU is about to run it, unless it is a higher
    // class's.
    let undisturbed = |policy: &str| run(&format!("settings = {{ where = 1{policy} }}"), SLEEPER, 6, "");
    let [plain, preempting, at_head] = ["", ", more_flags = 0x100000000", ", more_flags = 0x100010000"]
        .map(|policy| undisturbed(policy).host.policy["told_immed"]);
    assert!(plain > 100, "{plain}");
    // Some are still sent to one CPU before it has decided, and only one of them can run at once.
    assert_eq!(preempting, at_head, "the one implies the other");
    assert!(preempting < plain / 20, "{preempting} of {plain}");
}

#[test]
fn the_running_kernel_decides_whether_it_has_the_flag() {
    let new = run("", SLEEPER, 1, "");
    let old = run("kernel = \"6.12\"", SLEEPER, 1, "");
    let off = run("settings = { asks = false }", SLEEPER, 1, "");
    assert!(new.host.policy["has_flag"] > 100 && off.host.policy["has_flag"] > 100);
    assert_eq!(old.host.policy["has_flag"], 0);
    // It stands in the flags of the task, as long as that runs.
    assert!(new.host.policy["marked"] > 100, "{:?}", new.host.policy);
    assert_eq!((old.host.policy["marked"], off.host.policy["marked"]), (0, 0));
    assert_eq!(new.trace_hash, off.trace_hash, "without an intruder the flag changes nothing");
}

#[test]
fn the_flag_is_for_queues_of_cpus() {
    let error = try_run("settings = { where = 2 }", HOG, 1, "").expect_err("the shared queue is no CPU's");
    assert!(error.contains("SCX_ENQ_IMMED was given for the dispatch queue 0x0 of no CPU"), "{error}");
    try_run("kernel = \"6.12\", settings = { where = 2 }", HOG, 1, "")
        .expect("the old kernel has no such flag");
}
