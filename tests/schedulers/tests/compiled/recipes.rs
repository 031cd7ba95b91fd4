//! The published schedulers with what their user space would tell them, as `docs/recipes/` says it.

use crate::support::{tasks, try_build};
use scheduler_tests::{WITH_RECIPES, object, recipe};
use tandem_sim::metrics::{RunMetrics, TaskMetrics};

/// Those that leave CPUs idle while tasks wait, for reasons that the book gives.
const IDLE: [&str; 1] = ["scx_flow"];

/// More hogs than CPUs, and a VM whose vCPUs sleep, on two caches.
fn run(scheduler: &str, level: &str, kernel: &str) -> Result<RunMetrics, String> {
    let recipe = recipe(scheduler).map_err(|error| format!("the recipe of {scheduler}: {error}"))?;
    let text = format!(
        r#"length = "200ms"
machine = "xeon-e5620-2s"
[policy.{level}]
object = "{}"
kernel = "{kernel}"
{recipe}
[programs.hog]
ops = [{{ forever = [{{ compute = "1ms" }}, {{ count = "rounds" }}] }}]
[programs.server]
ops = [{{ forever = [{{ compute = "200us" }}, {{ sleep = "300us" }}, {{ count = "rounds" }}] }}]
[[processes]]
group = "hogs"
memory = "1GiB"
process = [{{ program = "hog", copies = 20 }}]
[[vm]]
group = "servers"
vcpus = 4
memory = "1GiB"
guest = {{ process = [{{ program = "server", copies = 8 }}] }}
"#,
        object(scheduler).display()
    );
    tandem_sim::run(&try_build(&text)?, 1).map_err(|error| error.to_string())
}

#[test]
fn each_runs_on_either_kernel() {
    for scheduler in WITH_RECIPES {
        for kernel in ["6.12", "7.3"] {
            let metrics =
                run(scheduler, "host", kernel).unwrap_or_else(|error| panic!("{scheduler}: {error}"));
            let hogs = TaskMetrics::sum(tasks(&metrics, "hogs"));
            let servers = TaskMetrics::sum(tasks(&metrics, "servers"));
            assert!(hogs.run_ns > 0 && servers.run_ns > 0, "{scheduler} on {kernel}");
            let host = &metrics.host;
            let busy = host.busy_ns as f64 / (host.busy_ns + host.idle_ns) as f64;
            assert!(busy > 0.9 || IDLE.contains(&scheduler), "{scheduler} on {kernel}: {busy}");
        }
    }
}

#[test]
fn each_runs_in_a_guest() {
    for scheduler in WITH_RECIPES {
        let metrics = run(scheduler, "guest", "7.3").unwrap_or_else(|error| panic!("{scheduler}: {error}"));
        let servers = TaskMetrics::sum(tasks(&metrics, "servers"));
        assert!(servers.run_ns > 0, "{scheduler}");
    }
}

#[test]
fn each_runs_where_no_cache_is_reported_and_in_a_guest_with_more_to_do_than_vcpus() {
    for scheduler in WITH_RECIPES {
        let recipe = recipe(scheduler).unwrap();
        for (level, machine) in [("host", "1x4x2:llcs=0"), ("guest", "1x4x1"), ("guest", "1x4x2:llcs=0")] {
            let text = format!(
                r#"length = "20ms"
warmup = "0s"
machine = "{machine}"
[policy.{level}]
object = "{}"
{recipe}
[programs.hog]
ops = [{{ forever = [{{ compute = "1ms" }}] }}]
[programs.client]
ops = [{{ forever = [{{ sleep = {{ exponential = "2ms" }} }}, {{ compute = "100us" }}] }}]
[[vm]]
group = "g"
vcpus = 4
memory = "1GiB"
guest = {{ process = [{{ program = "hog", copies = 6 }}, {{ program = "client" }}] }}
"#,
                object(scheduler).display()
            );
            let run = tandem_sim::run(&try_build(&text).unwrap(), 1);
            let metrics = run.unwrap_or_else(|error| panic!("{scheduler} as {level} on {machine}: {error}"));
            assert!(TaskMetrics::sum(tasks(&metrics, "g")).run_ns > 0, "{scheduler} as {level} on {machine}");
        }
    }
}
