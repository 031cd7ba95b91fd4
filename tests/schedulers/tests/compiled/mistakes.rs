//! A mistake of a scheduler ends the run with a sentence.

use crate::support::{build, file_with, try_build, with_engine};
use scheduler_tests::{PUBLISHED, object};
use tandem_ebpf::Engine;
use tandem_lab::summary::RunSummary;
use tandem_sim::scenario::Scenario;

fn broken(mistake: u32) -> String {
    format!(
        r#"length = "50ms"
machine = "xeon-e5620-2s"
[policy]
host = {}
[programs.sleeper]
ops = [{{ forever = [{{ compute = "100us" }}, {{ sleep = "100us" }}] }}]
[[processes]]
group = "sleepers"
memory = "1GiB"
affinity = {{ hard = "2-5" }}
process = [{{ program = "sleeper", copies = 20 }}]
"#,
        file_with("broken", &format!("settings = {{ mistake = {mistake} }}"))
    )
}

/// Each mistake of `broken.bpf.c`, and its message.
const MISTAKES: [(u32, &str); 8] = [
    (1, "a null pointer was followed"),
    (2, "the program does not end"),
    (3, "was sent to CPU 0, where it may not run"),
    (4, "there is no dispatch queue 0x4d for a task to be inserted into"),
    (5, "`select_cpu` chose CPU 12345, which does not exist"),
    (6, "cannot be inserted: it was inserted twice, by `select_cpu` and `enqueue` or by one of them"),
    (7, "it gave up: examples/broken.bpf.c:84: task 1000 is one too many"),
    (8, "`init` of the scheduler failed with error 12"),
];

#[test]
fn each_mistake_ends_the_run_with_its_sentence() {
    for (mistake, expected) in MISTAKES {
        let scenario = build(&broken(mistake));
        for engine in [Engine::Compiled, Engine::Interpreted] {
            let scenario = with_engine(&scenario, engine);
            let error = tandem_sim::run(&scenario, 1).expect_err(expected).to_string();
            assert!(error.contains(expected), "{mistake}: {error}");
            assert!(error.contains("the scheduler 'broken.bpf.o' of the host failed at "), "{error}");
        }
    }
    assert!(tandem_sim::run(&build(&broken(0)), 1).is_ok());
}

#[test]
fn tasks_that_are_lost_wait_and_the_run_ends_in_time() {
    let metrics = tandem_sim::run(&build(&broken(9)), 1).unwrap();
    let ran: u64 = metrics.vms[0].vcpus.iter().map(|task| task.run_ns).sum();
    let waited: u64 = metrics.vms[0].vcpus.iter().map(|task| task.wait_ns).sum();
    assert_eq!(ran, 0);
    // All the time but for their first microseconds.
    assert!(waited > 20 * 49_900_000, "{waited}");
}

/// Two VMs of two vCPUs on four CPUs, with so many hogs each.
fn small_vms(guest: &str, compute: &str, hogs: u32) -> Scenario {
    build(&format!(
        r#"length = "200ms"
machine = "1x4x1"
policy = {{ host = "linux", guest = {guest} }}
[programs.hog]
ops = [{{ forever = [{{ compute = "{compute}" }}] }}]
[[vm]]
group = "small"
count = 2
vcpus = 2
memory = "1GiB"
[vm.guest]
process = [{{ program = "hog", copies = {hogs} }}]
"#
    ))
}

#[test]
fn who_never_gets_a_cpu_is_named_on_either_level() {
    let warnings = |scenario: &Scenario| {
        let metrics = tandem_sim::run(scenario, 1).unwrap();
        let warnings = RunSummary::new("s.toml", scenario, 1, &metrics).warnings();
        warnings.into_iter().filter(|warning| warning.contains("from the beginning")).collect::<Vec<_>>()
    };
    let host = build(&broken(9));
    let expected = "20 of the 20 tasks of sleepers waited for a pCPU from the beginning to the end";
    assert_eq!(warnings(&host), [expected]);
    assert!(warnings(&build(&broken(0))).is_empty());
    let guest = |mistake: u32| {
        small_vms(&file_with("broken", &format!("settings = {{ mistake = {mistake} }}")), "100us", 3)
    };
    let expected = "in 2 of the 2 VMs of small, a task waited for a vCPU from the beginning to the end";
    assert_eq!(warnings(&guest(9)), [expected]);
    assert!(warnings(&guest(0)).is_empty());
}

#[test]
fn a_file_that_is_no_scheduler_is_refused() {
    let folder = std::env::temp_dir();
    let path = folder.join(format!("not-a-scheduler-{}.o", std::process::id()));
    let good = std::fs::read(object("fifo")).unwrap();
    let text = broken(0).replace(&object("broken").display().to_string(), &path.display().to_string());
    for bytes in [&b""[..], b"#!/bin/sh\n", &good[..good.len() / 2]] {
        std::fs::write(&path, bytes).unwrap();
        let error = try_build(&text).expect_err("it is no object");
        assert!(error.contains(&path.display().to_string()), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
    let error = try_build(&text).expect_err("there is no file");
    assert!(error.contains("cannot be read"), "{error}");
}

#[test]
fn any_bytes_of_an_object_may_be_wrong() {
    for name in PUBLISHED.into_iter().chain(["central"]) {
        let good = std::fs::read(object(name)).unwrap();
        let environment = tandem_sim::policy::sched_ext::environment(Default::default());
        // Every byte would take minutes; a prime distance covers all kinds of places.
        for at in (0..good.len()).step_by(4099) {
            let mut bytes = good.clone();
            bytes[at] ^= 0xff;
            // Refused or not: it does not panic.
            let _ = tandem_ebpf::Image::link(&bytes, &environment);
        }
    }
}

/// One CPU alone schedules: the others idle beside tasks that wait.
#[test]
fn vcpus_that_idle_beside_work_are_measured_and_named() {
    let summary = |guest: &str| {
        let scenario = small_vms(guest, "1ms", 4);
        RunSummary::new("s.toml", &scenario, 1, &tandem_sim::run(&scenario, 1).unwrap())
    };
    let (one, linux) = (summary(&file_with("one_cpu", "")), summary("\"linux\""));
    let pct = |summary: &RunSummary| summary.groups[0].guest_idle_beside_pct.unwrap();
    // One of two vCPUs has nothing to do.
    assert!((pct(&one) - 50.0).abs() < 2.0, "{}", pct(&one));
    assert!(one.warnings().iter().any(|warning| warning.starts_with("the vCPUs of small idled for")));
    assert!(pct(&linux) < 2.0, "{}", pct(&linux));
}
