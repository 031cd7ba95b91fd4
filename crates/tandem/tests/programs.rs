//! The scenarios of `programs`: they load guests of any size on any host, and do what was measured.
//!
//! How far they are from what was measured is in the book's chapter "Programs with a source"; a factor here
//! is a little more than that.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};

/// A short run of each program: its counter, and settings in which N is the number of vCPUs.
const SHORT: [(&str, &str, &str); 6] = [
    ("dbench", "operations", "length=20ms warmup=5ms"),
    ("ebizzy", "records", "length=20ms warmup=5ms heap=kept"),
    ("kernel-build", "objects", "objects=8"),
    ("oltp", "transactions", "length=20ms warmup=5ms connections=N"),
    ("web-server", "requests", "length=20ms warmup=5ms workers=N clients=512"),
    ("web-server-ab", "requests", "length=20ms warmup=300ms"),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs")
}

/// Runs a program with settings `NAME=VALUE`, separated by spaces, on this host.
fn sim(program: &str, settings: &str, host: &str) -> Value {
    let output = Command::new(cargo_bin!("tandem"))
        .args(["sim", &format!("{program}.toml"), "--stat", "--format", "json"])
        .args(["--set", &format!("host={host}")])
        .args(settings.split_whitespace().flat_map(|setting| ["--set", setting]))
        .current_dir(folder())
        .output()
        .expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {settings} on {host}: {}\n{stderr}", output.status);
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The rate of a counter, per second.
fn rate(run: &Value, counter: &str) -> f64 {
    number(&run["groups"][0]["counts_per_s"][counter])
}

fn guest(run: &Value) -> &Value {
    &run["stat"]["vms"][0]["guest"]
}

/// CPU time of the guest's tasks for each one added to a counter, us.
fn cpu_us_per(run: &Value, counter: &str) -> f64 {
    number(&guest(run)["cpus_utilized"]) * 1e6 / rate(run, counter)
}

/// CPU time of the tasks of a program for each one added to a counter, us.
fn program_us_per(run: &Value, program: &str, counter: &str) -> f64 {
    let programs = guest(run)["programs"].as_array().expect("a list of programs");
    let of_program = programs.iter().find(|found| found["program"] == program).expect("the program ran");
    number(&of_program["runtime_ms"]) * 1e3 / number(&run["length_s"]) / rate(run, counter)
}

/// Runs a program with this many vCPUs, and fails unless it uses them and gets something done.
fn check_load(program: &str, counter: &str, settings: &str, vcpus: u32, host: &str) {
    let settings = format!("{} vcpus={vcpus}", settings.replace('N', &vcpus.to_string()));
    let run = sim(program, &settings, host);
    let found = run["stat"]["vms"][0]["vcpus"].as_array().map_or(0, Vec::len);
    assert_eq!(found, vcpus as usize, "{program} on {host}");
    assert!(rate(&run, counter) > 0.0, "{program} with {vcpus} vCPUs on {host} gets nothing done");
    let used = number(&guest(&run)["cpus_utilized"]);
    let least = 0.7 * f64::from(vcpus.min(4));
    assert!(used >= least, "{program} with {vcpus} vCPUs on {host} uses {used} of them");
}

#[test]
fn every_program_is_tested() {
    let files = fs::read_dir(folder()).expect("the programs are there");
    let mut names: Vec<_> = files
        .map(|file| file.expect("the folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| path.file_stem().expect("a file has a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, SHORT.map(|(program, ..)| program));
}

#[test]
fn programs_load_guests_of_any_size() {
    for (program, counter, settings) in SHORT {
        for vcpus in [1, 4, 16, 64] {
            check_load(program, counter, settings, vcpus, "linux");
        }
    }
}

#[test]
fn programs_run_on_any_host() {
    for (program, counter, settings) in SHORT {
        for host in ["xen-credit", "xen-credit2", "tandem"] {
            check_load(program, counter, settings, 16, host);
        }
    }
}

/// Fails unless a simulated figure is within this factor of the measured one.
fn check_figure(what: &str, simulated: f64, measured: f64, factor: f64) {
    let ratio = simulated / measured;
    assert!(
        ratio <= factor && ratio >= 1.0 / factor,
        "{what}: measured {measured}, simulated {simulated:.3}; allowed is a factor of {factor}"
    );
}

#[test]
fn a_kernel_build_takes_what_was_measured() {
    let run = sim("kernel-build", "machine=machines/core-i7-8.toml objects=2900 halt_poll=0us", "linux");
    check_figure("CPU time, s", number(&guest(&run)["task_clock_ms"]) / 1e3, 1120.0, 1.05);
    check_figure("length, s", number(&run["length_s"]), 160.0, 1.05);
    check_figure("CPUs in use", number(&guest(&run)["cpus_utilized"]), 7.0, 1.05);
    check_figure("switches, k/s", number(&guest(&run)["context_switches_k_per_s"]), 0.330, 1.4);
}

#[test]
fn oltp_statements_cost_what_was_measured() {
    let host = "machine=machines/epyc-9454p.toml vcpus=48 connections=40 halt_poll=0us";
    let selects = sim("oltp", &format!("{host} transaction=point-select warmup=500ms"), "linux");
    check_figure("select, us", cpu_us_per(&selects, "statements"), 56.0, 1.1);
    check_figure("selects", rate(&selects, "statements"), 712_000.0, 1.15);
    let mixed = sim("oltp", host, "linux");
    check_figure("statement, us", cpu_us_per(&mixed, "statements"), 98.0, 1.15);
    check_figure("statements", rate(&mixed, "statements"), 359_000.0, 1.2);
}

#[test]
fn ebizzy_makes_the_records_that_were_measured() {
    let kept = sim("ebizzy", "machine=machines/core-i7-8.toml heap=kept warmup=100ms halt_poll=0us", "linux");
    check_figure("heap kept", rate(&kept, "records"), 166_628.0, 1.05);
    // A VM, and hosts with several nodes, each with locks of which the guest has one.
    let hosts = [
        ("skylake-2s", 80, "200us", 21_443.0, 1.3),
        ("sandy-bridge-4s", 64, "0us", 26_176.0, 1.4),
        // The locks' holds are calibrated on the first: one lock of each kind is half as fast as two nodes'.
        ("ivy-bridge-2s", 48, "0us", 49_242.0, 2.1),
    ];
    for (machine, vcpus, halt_poll, measured, factor) in hosts {
        let settings = format!("machine=machines/{machine}.toml vcpus={vcpus} halt_poll={halt_poll}");
        let run = sim("ebizzy", &settings, "linux");
        check_figure(machine, rate(&run, "records"), measured, factor);
    }
}

#[test]
fn dbench_does_the_operations_that_were_measured() {
    let host =
        "machine=machines/celeron-j3455.toml vcpus=4 flush=1681us length=500ms warmup=100ms halt_poll=0us";
    check_figure("operations", rate(&sim("dbench", host, "linux"), "operations"), 90_560.0, 1.05);
}

#[test]
fn requests_cost_web_servers_what_was_measured() {
    let apache = sim("web-server-ab", "machine=machines/core-i7-8.toml warmup=200ms halt_poll=0us", "linux");
    check_figure("Apache, us", program_us_per(&apache, "apache", "requests"), 138.0, 1.1);
    check_figure("ab, us", program_us_per(&apache, "ab", "requests"), 38.0, 1.1);
    check_figure("requests of ab", rate(&apache, "requests"), 25_200.0, 1.1);
    let nginx =
        sim("web-server", "vcpus=16 workers=16 clients=32 think=500us warmup=200ms halt_poll=0us", "linux");
    check_figure("nginx, us", cpu_us_per(&nginx, "requests"), 49.0, 1.1);
}
