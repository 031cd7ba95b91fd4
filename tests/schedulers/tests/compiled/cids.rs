//! Schedulers by topological numbers of CPUs: `sched_ext_ops_cid`.

use crate::support::{build, count, file_with, run, tasks, try_build};
use tandem_sim::metrics::RunMetrics;

/// Threads that sleep and compute, some of them bound, under `topological` on a machine.
fn text(machine: &str, cpus: u32, more: &str) -> String {
    format!(
        r#"length = "200ms"
machine = "{machine}"
policy = {{ host = {host} }}
[programs.sleeper]
ops = [{{ forever = [{{ compute = {{ exponential = "300us" }} }}, {{ sleep = {{ exponential = "400us" }} }}, {{ count = "rounds" }}] }}]
[programs.hog]
ops = [{{ forever = [{{ compute = "1ms" }}, {{ count = "rounds" }}] }}]
[[processes]]
group = "free"
memory = "1GiB"
process = [{{ program = "sleeper", copies = {cpus} }}]
[[processes]]
group = "bound"
memory = "1GiB"
affinity = {{ hard = "{last}" }}
process = [{{ program = "hog" }}, {{ program = "sleeper" }}]
[[processes]]
group = "half"
memory = "1GiB"
affinity = {{ hard = "0-{half}" }}
process = [{{ program = "sleeper", copies = {cpus} }}]
{more}"#,
        host = file_with("topological", ""),
        last = cpus - 1,
        half = (cpus / 2).max(1) - 1,
    )
}

/// On machines whose siblings have CPU numbers far apart, whose caches are small, and with one CPU.
const MACHINES: [(&str, u32); 4] = [("1x1x1", 1), ("1x4x2", 8), ("xeon-e5620-2s", 16), ("epyc-9654-2s", 384)];

fn assert_all_run(metrics: &RunMetrics, what: &str) {
    for task in ["free", "bound", "half"].into_iter().flat_map(|group| tasks(metrics, group)) {
        assert!(task.run_ns > 0, "{what}");
        assert!(task.longest_wait_ns < 100_000_000, "{what}: a task waited for {} ns", task.longest_wait_ns);
    }
}

#[test]
fn a_scheduler_by_cids_runs_all_tasks_where_they_may_run() {
    for (machine, cpus) in MACHINES {
        let metrics = run(&text(machine, cpus, ""));
        assert_all_run(&metrics, machine);
        // The kernel ends a run in which a task is sent where it may not run. What remains to be seen is that CPUs which
        // idle are found: the two threads bound to one CPU keep it busy, and no other CPU has that much to do.
        let bound_ns: u64 = tasks(&metrics, "bound").iter().map(|task| task.run_ns).sum();
        assert!(bound_ns > 150_000_000 || cpus == 1, "{machine}: {bound_ns}");
    }
}

#[test]
fn it_follows_affinities_hotplug_and_a_reload() {
    let events = "[[event]]\nat = \"50ms\"\nset_affinity = { group = \"half\", cpus = \"8-15\" }\n\
                  [[event]]\nat = \"80ms\"\noffline = \"3\"\n\
                  [[event]]\nat = \"120ms\"\nonline = \"3\"\n\
                  [[event]]\nat = \"150ms\"\nreload = true\n";
    assert_all_run(&run(&text("xeon-e5620-2s", 16, events)), "events");
}

#[test]
fn it_runs_in_a_guest_and_does_as_much_as_linux_there() {
    let rounds = |guest: &str| {
        count(
            &run(&format!(
                r#"length = "200ms"
machine = "2x4x2"
policy = {{ host = "linux", guest = {guest} }}
[programs.sleeper]
ops = [{{ forever = [{{ compute = "300us" }}, {{ sleep = "400us" }}, {{ count = "rounds" }}] }}]
[[vm]]
group = "vm"
vcpus = 8
memory = "1GiB"
[vm.guest]
process = [{{ program = "sleeper", copies = 12 }}]
"#
            )),
            "vm",
        )
    };
    let (own, linux) = (rounds(&file_with("topological", "")), rounds("\"linux\""));
    assert!(own * 100 > linux * 95, "{own} of {linux}");
}

#[test]
fn what_a_kernel_refuses_is_refused() {
    let hosted = |name: &str, more: &str| {
        text("1x4x2", 8, "").replace(&file_with("topological", ""), &file_with(name, more))
    };
    let error = |text: &str| match try_build(text).map(|scenario| tandem_sim::run(&scenario, 1)) {
        Ok(Ok(_)) => panic!("it runs"),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error,
    };
    let by_cpu = error(&hosted("cpus_by_cid", ""));
    assert!(by_cpu.contains("may not call `scx_bpf_kick_cpu()`, which is about CPUs"), "{by_cpu}");
    let old = error(&hosted("topological", "kernel = \"6.12\""));
    assert!(old.contains("6.12"), "{old}");
    assert_all_run(&tandem_sim::run(&build(&hosted("broken_cids", "")), 1).unwrap(), "no mistake");
    for (mistake, expected) in [
        (1, "`select_cid` chose cid 12345, which does not exist"),
        (2, "cid 12345 does not exist: cids are below 8"),
        (3, "cid 12345 does not exist: cids are below 8"),
        (4, "`scx_bpf_cid_override()` was called outside of `init_cids`"),
        (5, "cid 0 is given to CPUs 0 and 1"),
        (6, "there are 8 CPUs, and 7 cids were given"),
        (7, "nobody is there: -19"),
        (8, "`init_cids` of the scheduler failed with error 22"),
        (9, "cid -1 does not exist: cids are below 8"),
    ] {
        let error = error(&hosted("broken_cids", &format!("settings = {{ mistake = {mistake} }}")));
        assert!(error.contains(expected), "{mistake}: {error}");
    }
}
