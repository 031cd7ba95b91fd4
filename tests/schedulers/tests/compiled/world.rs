//! The world around a scheduler: cgroups in a tree, changes by an administrator, CPUs that other classes
//! take, hotplug, a reload. The object `witness` records the events that it gets, and reports impossible
//! ones.

use crate::support::{build, file_with, tasks, try_build};
use std::collections::BTreeMap;
use std::sync::Arc;
use tandem_sim::metrics::{RunMetrics, TaskMetrics};
use tandem_sim::policy::sched_ext::OwnCounters;
use tandem_sim::scenario::PolicySettings;

const SEEN: [&str; 31] = [
    "groups_init",
    "groups_exit",
    "levels",
    "weights",
    "quota_us",
    "period_us",
    "group_weight",
    "group_quota_us",
    "group_period_us",
    "tasks_init",
    "tasks_exit",
    "tasks_enabled",
    "tasks_disabled",
    "without_storage",
    "set_weight",
    "task_weights",
    "task_policies",
    "set_cpumask",
    "stopped_runnable",
    "released",
    "acquired",
    "reenqueued",
    "online",
    "offline",
    "idle",
    "busy",
    "exiting",
    "moved",
    "sent_on",
    "timers",
    "timer_late_ns",
];

/// Three hogs pinned to CPU 3, eight that run everywhere and sleepers, on 16 CPUs, with additions from the
/// text.
fn scenario(scheduler: &str, policy: &str, rest: &str) -> String {
    format!(
        r#"length = "400ms"
machine = "xeon-e5620-2s"
[policy]
host = {}
[programs.hog]
ops = [{{ forever = [{{ compute = "100us" }}, {{ count = "rounds" }}] }}]
[programs.sleeper]
ops = [{{ forever = [{{ compute = "300us" }}, {{ sleep = "700us" }}, {{ count = "rounds" }}] }}]
[[processes]]
group = "pinned"
memory = "1GiB"
affinity = {{ hard = "3" }}
process = [{{ program = "hog", copies = 3 }}]
[[processes]]
group = "free"
memory = "1GiB"
process = [{{ program = "hog", copies = 24 }}, {{ program = "sleeper", copies = 8 }}]
{rest}
"#,
        file_with(scheduler, policy)
    )
}

/// Runs it; returns the observations as well if it is the witness.
fn run(text: &str) -> RunMetrics {
    let mut scenario = build(text);
    let PolicySettings::SchedExt(settings) = &mut scenario.policy else { panic!("it is compiled") };
    if settings.name.starts_with("witness") {
        let names = Arc::from(SEEN);
        Arc::make_mut(settings).counters = Some(OwnCounters { map: "seen_map", names });
    }
    tandem_sim::run(&scenario, 1).unwrap_or_else(|error| panic!("{error}"))
}

fn seen(metrics: &RunMetrics) -> &BTreeMap<&'static str, u64> {
    &metrics.host.policy
}

/// Every task has run.
fn assert_nothing_is_lost(metrics: &RunMetrics) {
    for task in tasks(metrics, "pinned").into_iter().chain(tasks(metrics, "free")) {
        assert!(
            task.run_ns > 100_000,
            "a task had {} ns and waited {} ns",
            task.run_ns,
            task.longest_wait_ns
        );
    }
}

const TREE: &str = r#"
[[cgroup]]
path = "machine.slice/gold/web"
weight = 400
limit = "150%"
period = "50ms"
[[cgroup]]
path = "machine.slice"
weight = 300
[[vm]]
group = "in"
cgroup = "machine.slice/gold"
vcpus = 1
memory = "1GiB"
weight = 512
programs = ["hog"]
[[vm]]
group = "below"
vcpus = 1
memory = "1GiB"
programs = ["hog"]
[[processes]]
group = "joined"
cgroup = "machine.slice/gold/web"
memory = "1GiB"
process = [
  { program = "hog", nice = -20 },
  { program = "hog", nice = 19 },
  { program = "hog", policy = "batch" },
  { program = "hog", policy = "idle", nice = -20 },
]
"#;

/// Counts start with the measuring, which begins after the scheduler: the scheduler is loaded again.
const ANEW: &str = "[[event]]\nat = \"500us\"\nreload = true\n";

#[test]
fn cgroups_form_a_tree() {
    let metrics = run(&scenario("witness", "", &format!("{TREE}{ANEW}")));
    let seen = seen(&metrics);
    // The root, machine.slice, gold, web, and one for each VM, below gold and below the root.
    assert_eq!((seen["groups_init"], seen["levels"]), (6, 1 + 2 + 3 + 3 + 1));
    assert_eq!(seen["weights"], 100 + 300 + 100 + 400 + 200 + 100);
    assert_eq!((seen["quota_us"], seen["period_us"]), (75_000, 50_000));
    // 36 tasks of nice 0, one with twice that, -20 and 19, and an idle one, as the kernel has them.
    assert_eq!(seen["task_weights"], 37 * 100 + 200 + 8668 + 1 + 1);
    assert_eq!(seen["task_policies"], 3 + 5, "SCHED_BATCH and SCHED_IDLE");
    assert_eq!(seen["timers"], 6, "each cgroup has a timer that expires once");
    assert!(seen["moved"] > 100 && seen["sent_on"] > 10, "{seen:?}");
    assert_nothing_is_lost(&metrics);
}

#[test]
fn the_old_kernel_has_no_limits() {
    let metrics = run(&scenario("witness", "kernel = \"6.12\"", &format!("{TREE}{ANEW}")));
    assert_eq!((seen(&metrics)["groups_init"], seen(&metrics)["quota_us"]), (6, 0));
}

#[test]
fn an_administrator_changes_weights_and_limits() {
    let events = r#"
[[event]]
at = "50ms"
set_weight = { cgroup = "machine.slice/gold/in-0", weight = 50 }
[[event]]
at = "60ms"
set_weight = { cgroup = "machine.slice", weight = 300 }
[[event]]
at = "70ms"
set_limit = { cgroup = "machine.slice", limit = "300%", period = "10ms" }
[[event]]
at = "80ms"
set_nice = { group = "free", nice = 5 }
[[event]]
at = "90ms"
set_affinity = { group = "pinned", cpus = "4-5" }
"#;
    let plain = run(&scenario("witness", "", TREE));
    let changed = run(&scenario("witness", "", &format!("{TREE}{events}")));
    let (before, after) = (seen(&plain), seen(&changed));
    // The root has number 1, then come machine.slice, gold, web; VMs are numbered in the order of the file,
    // behind processes.
    let number = after["group_weight"] / 100_000;
    assert_eq!(after["group_weight"] % 100_000, 50, "unchanged values are not passed on");
    assert!(number > 4, "{number}");
    assert_eq!((after["group_quota_us"], after["group_period_us"]), (30_000, 10_000));
    assert_eq!(after["set_weight"] - before["set_weight"], 32);
    // Nice 5 is 335 of 1024.
    assert_eq!(after["task_weights"] - before["task_weights"], 32 * 33);
    assert_eq!(after["set_cpumask"] - before["set_cpumask"], 3);
    assert_nothing_is_lost(&changed);
}

#[test]
fn a_higher_class_takes_cpus_and_gives_them_back() {
    let event = r#"
[[event]]
at = "50ms"
every = "40ms"
intrude = { cpus = "0-5", length = "20ms" }
"#;
    for kernel in ["6.12", "7.3"] {
        let kernel = format!("kernel = \"{kernel}\"");
        let plain = run(&scenario("witness", &kernel, ""));
        let metrics = run(&scenario("witness", &kernel, event));
        let seen = seen(&metrics);
        // 50, 90, ... 370 ms, the last time up to 390 ms.
        let times = 9;
        assert!(
            metrics.host.away_ns.abs_diff(times * 6 * 20_000_000) < 1_000_000,
            "{kernel}: {}",
            metrics.host.away_ns
        );
        assert_eq!((seen["released"], seen["acquired"]), (times * 6, times * 6), "{kernel}");
        assert!(
            seen["reenqueued"] >= times * 3,
            "{kernel}: the task that ran there no longer waits: {seen:?}"
        );
        assert_nothing_is_lost(&metrics);
        // CPU 3 has tasks of its own, which wait meanwhile.
        let run_ns = |metrics| TaskMetrics::sum(tasks(metrics, "pinned")).run_ns;
        let lost_ms = run_ns(&plain).abs_diff(run_ns(&metrics)) / 1_000_000;
        assert!((170..190).contains(&lost_ms), "{kernel}: {lost_ms} ms");
        let host = &metrics.host;
        let all_ns = host.busy_ns + host.idle_ns + host.overhead_ns + host.away_ns;
        assert_eq!(all_ns, 16 * 400_000_000, "{kernel}");
    }
}

#[test]
fn cpus_go_offline_and_come_back() {
    let events = r#"
[[event]]
at = "100ms"
offline = "3-5"
[[event]]
at = "300ms"
online = "3-4"
"#;
    let metrics = run(&scenario("witness", "", events));
    let seen = seen(&metrics);
    assert_eq!((seen["offline"], seen["online"]), (3, 2));
    // Those that may run on CPU 3 only fall back to all CPUs; before, each task said once where it may run.
    assert_eq!(seen["set_cpumask"] - seen["tasks_init"], 3);
    assert!(
        metrics.host.away_ns.abs_diff((2 * 200 + 300) * 1_000_000) < 1_000_000,
        "{}",
        metrics.host.away_ns
    );
    let pinned = TaskMetrics::sum(tasks(&metrics, "pinned")).run_ns;
    assert!(pinned > 250_000_000, "they were not stuck, and had more CPUs: {pinned}");
    assert_nothing_is_lost(&metrics);
}

/// A scheduler that has no callback for that is unloaded and loaded again.
#[test]
fn a_scheduler_that_knows_no_hotplug_is_loaded_again() {
    let events = "[[event]]\nat = \"100ms\"\noffline = \"3-5\"\n[[event]]\nat = \"300ms\"\nonline = \"3\"\n";
    for scheduler in ["fifo", "weighted"] {
        let metrics = run(&scenario(scheduler, "", events));
        let pinned = TaskMetrics::sum(tasks(&metrics, "pinned")).run_ns;
        assert!(pinned > 250_000_000, "{scheduler}: {pinned}");
        assert_nothing_is_lost(&metrics);
    }
}

#[test]
fn a_reload_ends_and_begins_everything() {
    let tree_and_reload = format!("{TREE}[[event]]\nat = \"100ms\"\nevery = \"150ms\"\nreload = true\n");
    let metrics = run(&scenario("witness", "", &tree_and_reload));
    let seen = seen(&metrics);
    // At 100 and 250 ms.
    assert_eq!((seen["groups_init"], seen["groups_exit"]), (12, 12));
    assert_eq!((seen["tasks_init"], seen["tasks_exit"]), (2 * 41, 2 * 41));
    assert_eq!((seen["tasks_enabled"], seen["tasks_disabled"]), (2 * 41, 2 * 41));
    assert_eq!(seen["timers"], 18, "timers of the old ones do not expire");
    assert_nothing_is_lost(&metrics);
}

#[test]
fn all_of_it_together_is_the_same_every_time() {
    let events = r#"
[[event]]
at = "20ms"
every = "7ms"
intrude = { cpus = "2-9", length = "3ms" }
[[event]]
at = "50ms"
every = "131ms"
reload = true
[[event]]
at = "100ms"
offline = "0-3"
[[event]]
at = "103ms"
every = "11ms"
set_nice = { group = "free", nice = -3 }
[[event]]
at = "200ms"
online = "1,3"
[[event]]
at = "210ms"
offline = "8-15"
"#;
    let policy = "tick_delay_max = \"2ms\", timer_delay_max = \"3ms\"";
    for scheduler in ["witness", "fifo", "weighted", "central"] {
        let text = scenario(scheduler, policy, &format!("{TREE}{events}"));
        let hashes = [run(&text).trace_hash, run(&text).trace_hash];
        assert_eq!(hashes[0], hashes[1], "{scheduler}");
        // The one CPU that decides for all goes offline, and `central` is loaded again for the same one.
        if scheduler != "central" {
            assert_nothing_is_lost(&run(&text));
        }
    }
}

#[test]
fn timers_come_late_and_storage_fails() {
    let late = run(&scenario("witness", "timer_delay_max = \"5ms\"", TREE));
    let late_ns = seen(&late)["timer_late_ns"];
    assert!((2_000_000..30_000_000).contains(&late_ns), "six timers, each up to 5 ms: {late_ns}");
    let policy = "storage_failure_pct = 50, settings = { needs_storage = false }";
    let full = run(&scenario("witness", policy, ANEW));
    let without = seen(&full)["without_storage"];
    assert!((5..30).contains(&without), "35 tasks: {without}");
    assert_nothing_is_lost(&full);
}

/// Pinned tasks stand in the one queue of all CPUs, and the others pass them by.
#[test]
fn decisions_are_counted() {
    let text = scenario("fifo", "", "");
    let mut scenario = build(&text);
    let plain = tandem_sim::run(&scenario, 1).unwrap();
    let PolicySettings::SchedExt(settings) = &mut scenario.policy else { panic!("it is compiled") };
    *settings = Arc::new(settings.counting().unwrap());
    let counted = tandem_sim::run(&scenario, 1).unwrap();
    assert_eq!(plain.trace_hash, counted.trace_hash, "counting changes nothing");
    let [plain, counted] = [plain, counted]
        .map(|metrics| (metrics.host.policy["decisions"], metrics.host.scheduler_costs.unwrap()));
    assert_eq!((plain.1.wake.instructions, plain.1.wake.visited), (0, counted.1.wake.visited));
    let (decisions, costs) = counted;
    assert_eq!(costs.dispatch.count, decisions);
    assert!(costs.dispatch.visited_max >= 3, "three pinned tasks: {costs:?}");
    assert!(costs.dispatch.visited >= costs.callbacks["dispatch"].visited);
    for callback in ["enqueue", "dispatch"] {
        let cost = costs.callbacks[callback];
        // They are a few calls each.
        assert!(cost.count > 100 && (3..100).contains(&cost.instructions_max), "{callback}: {cost:?}");
        assert!(cost.instructions <= cost.count * cost.instructions_max, "{callback}: {cost:?}");
    }
}

/// An insertion by virtual time counts as one visit, for any depth of the queue.
#[test]
fn an_insertion_is_one_visit() {
    let metrics = run(&scenario("weighted", "", ""));
    let costs = metrics.host.scheduler_costs.unwrap();
    assert_eq!(costs.wake.visited_max, 1, "{costs:?}");
}

/// Tasks that wait for CPU 3, which another class has.
const TAKEN: &str = "[[event]]\nat = \"10ms\"\nintrude = { cpus = \"3\", length = \"350ms\" }";

#[test]
fn the_longest_wait_is_known() {
    let metrics = run(&scenario("fifo", "", TAKEN));
    let longest_ns = TaskMetrics::sum(tasks(&metrics, "pinned")).longest_wait_ns;
    // And for others before or behind.
    assert!((350_000_000..400_000_000).contains(&longest_ns), "{longest_ns}");
}

#[test]
fn the_watchdog_ends_a_run_in_which_a_task_is_stuck() {
    let stuck = |timeout: &str| {
        let policy = format!("watchdog_timeout = \"{timeout}\"");
        tandem_sim::run(&build(&scenario("fifo", &policy, TAKEN)), 1).map_err(|error| error.to_string())
    };
    let error = stuck("200ms").expect_err("350 ms is too long");
    // It checks every 100 ms: at 200 ms that is not too long yet.
    assert!(error.contains("the scheduler 'fifo.bpf.o' of the host failed at 300000000 ns"), "{error}");
    assert!(
        error.contains("runnable task stall (pinned-0[") && error.contains("failed to run for 0.2"),
        "{error}"
    );
    stuck("1s").expect("it is not that long");
}

#[test]
fn nonsense_is_refused() {
    for (rest, problem) in [
        ("[[cgroup]]\npath = \"a//b\"", "no path of a cgroup"),
        ("[[cgroup]]\npath = \"a\"\nweight = 0", "allowed are 1 to 10000"),
        ("[[cgroup]]\npath = \"a\"\n[[cgroup]]\npath = \"a\"", "there twice"),
        ("[[cgroup]]\npath = \"a\"\nlimit = \"150\"", "no limit"),
        ("[[cgroup]]\npath = \"a\"\nlimit = \"1%\"\nperiod = \"5ms\"", "least that Linux allows"),
        ("[[cgroup]]\npath = \"a\"\nperiod = \"5ms\"", "needs a `limit`"),
        ("[[event]]\nat = \"1s\"\nreload = true", "end of the run"),
        ("[[event]]\nat = \"1ms\"", "nothing happens"),
        ("[[event]]\nat = \"1ms\"\nreload = true\noffline = \"1\"", "one [[event]] for each"),
        ("[[event]]\nat = \"1ms\"\noffline = \"0-15\"", "no CPU would be left"),
        ("[[event]]\nat = \"1ms\"\nonline = \"1\"", "online already"),
        ("[[event]]\nat = \"1ms\"\nevery = \"5ms\"\noffline = \"1\"", "not allowed with `offline`"),
        ("[[event]]\nat = \"1ms\"\nset_nice = { group = \"nobody\", nice = 1 }", "no group `nobody`"),
        ("[[event]]\nat = \"1ms\"\nset_nice = { group = \"free\", nice = 20 }", "-20 to 19"),
        ("[[event]]\nat = \"1ms\"\nset_weight = { cgroup = \"a\", weight = 5 }", "no cgroup `a`"),
        ("[[event]]\nat = \"1ms\"\nintrude = { cpus = \"1\", length = \"0ms\" }", "longer than"),
    ] {
        let error = try_build(&scenario("fifo", "", rest)).expect_err(rest);
        assert!(error.contains(problem) && error.starts_with("s.toml"), "{rest}: {error}");
    }
    for (host, rest, problem) in [
        ("{ linux = { groups = false } }", TREE, "leave one of them out"),
        ("\"xen-credit\"", TREE, "no cgroups"),
        ("\"linux\"", "[[event]]\nat = \"1ms\"\nreload = true", "compiled scheduler only"),
    ] {
        let text = scenario("fifo", "", rest).replace(&file_with("fifo", ""), host);
        let error = try_build(&text).expect_err(rest);
        assert!(error.contains(problem), "{host}: {error}");
    }
    let event =
        "[[cgroup]]\npath = \"a\"\n[[event]]\nat = \"1ms\"\nset_limit = { cgroup = \"a\", limit = \"max\" }";
    let error = try_build(&scenario("fifo", "kernel = \"6.12\"", event)).expect_err("6.12 has none");
    assert!(error.contains("use kernel \"7.3\""), "{error}");
}
