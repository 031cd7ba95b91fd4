//! `tandem sim` of a scenario with guest kernels: accounting and scheduling domains.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use std::fs;

/// Three VMs whose guests run two processes that talk to each other; the last one sees another topology.
const GUESTS: &str = r#"length = "20ms"
machine = "xeon-e5620-2s"
[policy]
host = "xen-credit"
guest = { linux = { version = "4.2", domains = "topology" } }
[programs.ping]
ops = [{ fork = "pong" }, { forever = [{ compute = "20us" }, { signal = "there" }, { wait = "back" }] }]
[programs.pong]
ops = [{ forever = [{ wait = "there" }, { compute = "20us" }, { signal = "back" }] }]
[[vm]]
group = "small"
count = 2
vcpus = 4
memory = "1GiB"
guest = { topology = { packages = 2, cores = 2, threads = 1 }, process = [{ program = "ping" }] }
[[vm]]
group = "dom0"
vcpus = 16
memory = "1GiB"
guest = { process = [{ program = "ping", copies = 2 }], family_channels = ["there", "back"] }
"#;

/// Runs `tandem sim` on the scenario with these changes to its text and more arguments; returns what it
/// printed.
fn sim(changes: &[(&str, &str)], args: &[&str]) -> String {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut text = GUESTS.to_owned();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    fs::write(dir.path().join("guests.toml"), text).expect("write an example");
    let assert = Command::new(cargo_bin!("tandem"))
        .args(["sim", "guests.toml"])
        .args(args)
        .current_dir(dir.path())
        .assert()
        .success();
    String::from_utf8(assert.get_output().stdout.clone()).expect("output is UTF-8")
}

#[test]
fn accounting_is_printed_for_the_host_each_vm_and_each_guest() {
    let text = sim(&[], &["--stat"]);
    for header in ["of the host", "of VM small-1", "of the guest in small-1", "of the guest in dom0-0"] {
        assert_eq!(text.matches(&format!("Accounting {header}:\n")).count(), 1, "{header}:\n{text}");
    }
    assert!(!sim(&[], &[]).contains("Accounting"));
}

#[test]
fn accounting_in_json_adds_up() {
    let json: serde_json::Value =
        serde_json::from_str(&sim(&[], &["--stat", "--format", "json"])).expect("JSON");
    let vms = json["stat"]["vms"].as_array().expect("a list of VMs");
    assert_eq!(vms.len(), 3);
    for vm in vms {
        let guest = &vm["guest"];
        let programs = guest["programs"].as_array().expect("a list of programs");
        let names: Vec<_> = programs.iter().filter_map(|program| program["program"].as_str()).collect();
        assert_eq!(names, ["ping", "pong", "kernel threads"]);
        let sum = |key: &str| programs.iter().filter_map(|program| program[key].as_f64()).sum::<f64>();
        assert_eq!(Some(sum("switches")), guest["context_switches"].as_f64());
        let clock_ms = guest["task_clock_ms"].as_f64().expect("a number");
        assert!(clock_ms > 1.0 && (sum("runtime_ms") - clock_ms).abs() < 1e-6, "{guest}");
    }
}

#[test]
fn guests_that_are_alike_show_their_domains_once() {
    let text = sim(&[], &["--domains"]);
    let headers: Vec<_> = text.lines().filter(|line| line.starts_with("Scheduling domains")).collect();
    assert_eq!(
        headers,
        [
            "Scheduling domains of the guest in small-0, small-1:",
            "Scheduling domains of the guest in dom0-0:"
        ]
    );
    assert!(text.starts_with("The host runs Xen, which has no scheduling domains."), "{text}");
    assert!(text.contains("level MC") && !text.contains("VCPU"), "{text}");
}

#[test]
fn of_a_flat_guest_only_vcpu_is_left() {
    let text = sim(&[("domains = \"topology\"", "domains = \"flat\"")], &["--domains"]);
    let levels: Vec<_> =
        text.lines().filter_map(|line| line.split_once("level ")).map(|(_, level)| level).collect();
    assert_eq!(levels, vec!["VCPU"; 4 + 16], "{text}");
}

#[test]
fn a_linux_host_shows_its_domains_first() {
    let text = sim(&[("host = \"xen-credit\"", "host = \"linux\"")], &["--domains"]);
    assert!(text.starts_with("Scheduling domains of the host:\n"), "{text}");
    assert_eq!(text.matches("Scheduling domains of").count(), 3);
}
