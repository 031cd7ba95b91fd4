//! What the locks of dispatch queues cost.

use crate::support::{build, file, file_with};

/// Share of the CPUs' time in which they wait for locks of the host, of tasks that compute and sleep, four on each CPU.
fn spin_share(host: &str, packages: usize, costs: &str) -> f64 {
    let cpus = packages * 16;
    let scenario = build(&format!(
        r#"length = "20ms"
machine = "{packages}x16x1"
policy = {{ host = {host} }}
costs = {{ {costs} }}
[programs.worker]
ops = [{{ forever = [{{ compute = {{ exponential = "20us" }} }}, {{ sleep = {{ exponential = "40us" }} }}] }}]
[[processes]]
group = "workers"
memory = "1GiB"
process = [{{ program = "worker", copies = {} }}]
"#,
        cpus * 4
    ));
    let metrics = tandem_sim::run(&scenario, 1).unwrap_or_else(|error| panic!("{error}"));
    assert!(metrics.host.spin_ns <= metrics.host.overhead_ns, "waits are a part of the overhead");
    metrics.host.spin_ns as f64 / (metrics.length_ns * cpus as u64) as f64
}

#[test]
fn a_queue_of_all_cpus_is_contended_on_a_large_machine() {
    let fifo = file("fifo");
    let shares = [1, 2, 8].map(|packages| spin_share(&fifo, packages, "all = true"));
    // 16 CPUs, 32, 128.
    assert!(shares[0] < shares[1] && shares[1] < shares[2], "{shares:?}");
    assert!(shares[2] > 10.0 * shares[0] && shares[2] > 0.1, "{shares:?}");
}

#[test]
fn queues_of_caches_are_contended_less_than_one_of_all_cpus() {
    let domains = file_with(
        "domains",
        "settings = { nr_domains = \"@llcs\", cpu_domain = { each = \"cpu\", value = \"@llc\" }, \
         domains = [{ each = \"llc\", key = \"@llc\", value = { cpus = \"@count\", turn = { slice_ns = 8_000_000 } } }] }, \
         calls = [{ program = \"add_cpu\", each = \"cpu\", args = { cpu = \"@cpu\" } }, \
         { program = \"start\", started = true }]",
    );
    let [one, many] = [file("fifo"), domains].map(|host| spin_share(&host, 8, "all = true"));
    assert!(many < one / 4.0, "{many} with a queue for each cache, {one} with one");
}

/// Each task that comes looks at all that wait, thousands of them at the start.
#[test]
fn waits_are_never_longer_than_the_run() {
    let walker = file_with("witness", "settings = { needs_storage = false }");
    let share = spin_share(&walker, 4, "all = true");
    assert!(share > 0.0 && share < 1.0, "{share}");
}

#[test]
fn without_the_model_locks_cost_nothing() {
    assert_eq!(spin_share(&file("fifo"), 2, "all = true, spin_lock = false"), 0.0);
}
