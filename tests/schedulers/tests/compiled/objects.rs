//! Maps of maps, and objects that schedulers allocate: `queues` and `tree` of the examples.

use crate::support::{build, file, file_with, run, tasks, try_build, with_engine};
use tandem_ebpf::Engine;
use tandem_sim::metrics::{RunMetrics, TaskMetrics};

/// What the user space of `queues` does.
const QUEUES: &str = r#"nr_queues = "@llcs", cpu_queue = { each = "cpu", value = "@llc" }, queues = [{ each = "llc", key = "@llc", value = [] }]"#;

/// More hogs than CPUs, and a VM whose vCPUs sleep, with a scheduler of the host or of the guest.
fn scenario(level: &str, scheduler: &str) -> String {
    format!(
        r#"length = "300ms"
machine = "xeon-e5620-2s"
policy = {{ {level} = {scheduler} }}
[programs.hog]
ops = [{{ forever = [{{ compute = "1ms" }}, {{ count = "rounds" }}] }}]
[programs.server]
ops = [{{ forever = [{{ compute = "200us" }}, {{ sleep = "300us" }}, {{ count = "rounds" }}] }}]
[[processes]]
group = "hogs"
memory = "1GiB"
process = [{{ program = "hog", copies = 24 }}]
[[vm]]
group = "servers"
vcpus = 4
memory = "1GiB"
guest = {{ process = [{{ program = "server", copies = 12 }}] }}
"#
    )
}

fn queues(settings: &str, rest: &str) -> String {
    file_with("queues", &format!("settings = {{ {settings} }}{rest}"))
}

fn run_ns(metrics: &RunMetrics, group: &str) -> u64 {
    TaskMetrics::sum(tasks(metrics, group)).run_ns
}

#[test]
fn both_run_on_either_kernel_and_level_and_keep_cpus_busy() {
    for kernel in ["6.12", "7.3"] {
        let kernel = format!(", kernel = \"{kernel}\"");
        let tree = file_with("tree", &kernel[2..]);
        for scheduler in [tree, queues(QUEUES, &kernel)] {
            let host = run(&scenario("host", &scheduler));
            assert!(host.host.idle_ns < host.host.busy_ns / 20, "{scheduler}: {} ns", host.host.idle_ns);
            let guest = run(&scenario("guest", &scheduler));
            assert!(run_ns(&guest, "servers") > 0, "{scheduler}");
        }
    }
}

#[test]
fn machine_code_decides_as_the_interpreter_does() {
    for scheduler in [file("tree"), queues(QUEUES, "")] {
        let scenario = build(&scenario("host", &scheduler));
        let of = |engine| tandem_sim::run(&with_engine(&scenario, engine), 1).unwrap();
        let [compiled, interpreted] = [Engine::Compiled, Engine::Interpreted].map(of);
        for group in ["hogs", "servers"] {
            let times = |metrics| tasks(metrics, group).iter().map(|task| task.run_ns).collect::<Vec<_>>();
            assert_eq!(times(&compiled), times(&interpreted), "{scheduler}");
        }
    }
}

#[test]
fn maps_in_a_map_come_from_user_space() {
    // One queue for all caches is as good, and a queue with room for one task as bad as none.
    let one = r#"queues = [{ key = 0, value = [] }]"#;
    let short = r#"queues = [{ each = 1, key = "@number", value = { max_entries = 1 } }]"#;
    for settings in [one, short] {
        let metrics = run(&scenario("host", &queues(settings, "")));
        assert!(metrics.host.idle_ns < metrics.host.busy_ns / 20, "{settings}: {} ns", metrics.host.idle_ns);
    }
    let fails = |settings: &str| {
        try_build(&scenario("host", &queues(settings, "")))
            .and_then(|built| tandem_sim::run(&built, 1).map_err(|error| error.to_string()))
            .expect_err(settings)
    };
    for (settings, expected) in [
        ("nr_queues = 1", "it gave up: "),
        ("queues = [{ key = 64, value = [] }]", "the map `queues` has no room for a map of the settings"),
        (
            "queues = [{ key = 0, value = \"queue\" }]",
            "`queues.value` names a map `queue`; there are `queues`",
        ),
        ("queues = [{ key = 0, value = \"queues\" }]", "the map `queues` cannot be in the map `queues`"),
        ("queues = [{ key = 0, value = 1 }]", "the elements of the map `queues.inner` are a list of tables"),
        (
            "queues = [{ key = 0, value = { max_entries = 0 } }]",
            "`max_entries` of `queues.inner` is a number from 1",
        ),
        (
            "queues = [{ key = 0 }]",
            "the elements of the map `queues` are a list of tables with `key` and `value`",
        ),
        ("queues = [{ each = 4097, key = 0, value = [] }]", "`each` is one of "),
    ] {
        let error = fails(settings);
        assert!(error.contains(expected), "{settings}: {error}");
    }
}
