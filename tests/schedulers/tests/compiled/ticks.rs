//! CPUs without a tick, of `nohz_full=`: it stops while a task runs that was switched in with an infinite
//! slice.

use crate::support::{build, file, tasks};
use std::collections::BTreeMap;
use std::sync::Arc;
use tandem_sim::metrics::RunMetrics;
use tandem_sim::policy::sched_ext::OwnCounters;
use tandem_sim::scenario::PolicySettings;

/// Ticks in the measured time.
const TICKS: u64 = 250;

/// Processes on CPU 2 of a machine whose CPUs 2 and 3 are without a tick, or of one with all ticks.
fn run(tickless: bool, processes: &str, rest: &str) -> RunMetrics {
    let tickless = if tickless { "tickless = \"2-3\"" } else { "" };
    let mut scenario = build(&format!(
        r#"length = "1s"
warmup = "20ms"
[machine]
name = "four CPUs"
{tickless}
[[machine.node]]
memory = "64GiB"
bandwidth = "40GB/s"
number = 0
[[machine.cores]]
package = 0
node = 0
cpus = ["0", "1", "2", "3"]
[policy]
host = {}
[programs.hog]
ops = [{{ sleep = "5ms" }}, {{ forever = [{{ compute = "100us" }}] }}]
[programs.later]
ops = [{{ sleep = "520ms" }}, {{ forever = [{{ compute = "100us" }}] }}]
[programs.once]
ops = [{{ sleep = "520ms" }}, {{ compute = "1ms" }}, {{ sleep = "100s" }}]
[[processes]]
group = "all"
memory = "1GiB"
affinity = {{ hard = "2" }}
process = [{processes}]
{rest}
"#,
        file("endless")
    ));
    let PolicySettings::SchedExt(settings) = &mut scenario.policy else { panic!("it is compiled") };
    let settings = Arc::make_mut(settings);
    settings.counters = Some(OwnCounters { map: "ticks", names: Arc::from(["finite", "infinite"]) });
    assert_eq!(settings.tick_period_ns, 1_000_000_000 / TICKS);
    tandem_sim::run(&scenario, 1).unwrap_or_else(|error| panic!("{error}"))
}

/// Ticks with a slice that ends, and with an infinite one.
fn ticks(metrics: &RunMetrics) -> (u64, u64) {
    let counted: &BTreeMap<_, _> = &metrics.host.policy;
    (counted["finite"], counted["infinite"])
}

/// How much each task ran, in percent of the measured time.
fn shares_pct(metrics: &RunMetrics) -> Vec<u64> {
    tasks(metrics, "all").iter().map(|task| task.run_ns / 10_000_000).collect()
}

#[test]
fn a_task_that_is_alone_has_no_tick() {
    let hog = "{ program = \"hog\" }";
    let with_ticks = run(false, hog, "");
    assert_eq!(
        ticks(&with_ticks),
        (0, TICKS),
        "the slice is infinite, but the CPU is not told to stop its tick"
    );
    let without = run(true, hog, "");
    assert_eq!(ticks(&without), (0, 0));
    assert!(shares_pct(&without)[0] >= shares_pct(&with_ticks)[0]);
}

#[test]
fn the_tick_is_back_when_a_task_comes() {
    let metrics = run(true, "{ program = \"hog\" }, { program = \"later\" }", "");
    let (finite, infinite) = ticks(&metrics);
    assert!((TICKS / 2 - 2..=TICKS / 2).contains(&finite), "{finite}");
    assert_eq!(infinite, 0);
    let shares = shares_pct(&metrics);
    assert!((73..=77).contains(&shares[0]) && (23..=27).contains(&shares[1]), "{shares:?}");
}

#[test]
fn the_tick_is_decided_when_a_task_is_switched_in() {
    // The hog continues with a slice that ends; if it is alone at its end it is kept, with an infinite one.
    let metrics = run(true, "{ program = \"hog\" }, { program = \"once\" }", "");
    let (finite, infinite) = ticks(&metrics);
    assert!((1..=6).contains(&finite), "{finite}");
    assert!(infinite > TICKS / 2 - 10, "{infinite}");
}

#[test]
fn the_tick_is_back_with_another_scheduler() {
    // The running task continues with the kernel's usual slice.
    let metrics = run(true, "{ program = \"hog\" }", "[[event]]\nat = \"500ms\"\nreload = true\n");
    let (finite, infinite) = ticks(&metrics);
    assert!((1..=6).contains(&finite), "{finite}");
    assert!(infinite > TICKS / 2 - 10, "{infinite}");
}
