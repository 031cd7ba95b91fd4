//! The kernel's counts for tasks, which schedulers read, against the simulator's own; and when a task that
//! has run is back in a queue.

use crate::support::{build, file};
use std::sync::Arc;
use tandem_sim::metrics::{RunMetrics, TaskMetrics};
use tandem_sim::policy::sched_ext::{OwnCounters, SchedExtSettings};
use tandem_sim::scenario::PolicySettings;

/// Hogs and tasks that sleep, on two CPUs whose ticks come late by chance.
fn run(hogs: u32, sleepers: u32, change: impl FnOnce(&mut SchedExtSettings)) -> RunMetrics {
    let mut scenario = build(&format!(
        r#"length = "2s"
machine = "xeon-e5620-2s"
[policy]
host = {}
[programs.hog]
ops = [{{ forever = [{{ compute = "100us" }}] }}]
[programs.sleeper]
ops = [{{ forever = [{{ compute = "3300us" }}, {{ sleep = "1700us" }}] }}]
[[processes]]
group = "all"
memory = "1GiB"
affinity = {{ hard = "2,3" }}
process = [{{ program = "hog", copies = {hogs} }}, {{ program = "sleeper", copies = {sleepers} }}]
"#,
        file("accounts")
    ));
    let PolicySettings::SchedExt(settings) = &mut scenario.policy else { panic!("it is compiled") };
    let settings = Arc::make_mut(settings);
    settings.tick_delay_max_ns = 2_000;
    change(settings);
    tandem_sim::run(&scenario, 1).unwrap()
}

fn tasks(metrics: &RunMetrics) -> TaskMetrics {
    TaskMetrics::sum(metrics.vms.iter().flat_map(|vm| &vm.vcpus))
}

#[test]
fn tasks_have_the_accounts_that_the_kernel_keeps() {
    let metrics = run(3, 2, |settings| {
        let names = Arc::from(["voluntary", "involuntary", "migrations", "user_ns"]);
        settings.counters = Some(OwnCounters { map: "accounts", names });
    });
    let (told, tasks) = (|name| metrics.host.policy[name], tasks(&metrics));
    // The sample of a task is from when it begins to run: later events are not reported yet, and its first
    // placement counts as a migration for the kernel alone. There are five tasks.
    for (name, counted) in [
        ("voluntary", tasks.voluntary_switches),
        ("involuntary", tasks.preemptions),
        ("migrations", tasks.migrations()),
    ] {
        assert!(counted > 20 && told(name).abs_diff(counted) <= 5, "{name}: {} for {counted}", told(name));
    }
    // It is counted in ticks.
    let user_share = told("user_ns") as f64 / tasks.run_ns as f64;
    assert!((0.95..1.05).contains(&user_share), "{user_share}");
}

/// Three tasks, two CPUs: one task waits. Where a slice ends, that CPU takes it; the other CPU, whose ticks
/// come at other times, finds the first one's task only if that is back in the queue already. If that takes a
/// tick, it mostly is not.
#[test]
fn a_task_that_has_run_is_found_once_it_is_back() {
    let migrations = [0, 4_000_000]
        .map(|put_back_ns| tasks(&run(3, 0, |settings| settings.put_back_ns = put_back_ns)).migrations());
    assert!(migrations[1] < migrations[0], "{migrations:?}");
}
