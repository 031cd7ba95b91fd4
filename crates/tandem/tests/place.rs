//! `tandem place` on the machine that the test runs on, and on one that is described.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use serde_json::{Value, json};
use std::process::Output;

fn place(args: &[&str]) -> Output {
    let mut command = Command::new(cargo_bin!("tandem"));
    command.arg("place").args(args).output().expect("the command starts")
}

fn stdout(args: &[&str]) -> String {
    let output = place(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

/// What is said, with status 2 and nothing on standard output; the last line, since what could not be seen is
/// told before.
fn refusal(args: &[&str]) -> String {
    let output = place(args);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(2), &b""[..]), "{args:?}");
    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_new_vm_has_a_place_on_this_host() {
    let text = stdout(&["--vcpus", "1", "--memory", "1MiB", "--emulated"]);
    assert!(text.starts_with("VM 1: "), "{text}");
    let told: Value =
        serde_json::from_str(&stdout(&["--vcpus", "1", "--memory", "1MiB", "--format", "json"])).unwrap();
    let vm = &told[0];
    assert_eq!(vm["vm"], json!(1));
    assert!(vm["reason"].is_string() && vm["nodes"].is_array(), "{vm}");
    assert_eq!(vm["candidate_count"] == json!(0), vm["nodes"] == json!([]), "{vm}");
}

#[test]
fn what_has_no_room_on_this_host_exits_with_2() {
    let message = refusal(&["--vcpus", "1", "--memory", "1000TiB"]);
    assert!(
        message.starts_with("tandem: the VM needs 1048576000 MiB of memory, but the nodes "),
        "{message}"
    );
    let message = refusal(&["--vcpus", "4096", "--memory", "1MiB"]);
    assert!(message.starts_with("tandem: the VM has 4096 vCPUs, but the machine only "), "{message}");
    let more = ["--vm", "vcpus=4097,memory=1MiB", "--vcpus", "1", "--memory", "1MiB"];
    let message = String::from_utf8_lossy(&place(&more).stderr).into_owned();
    assert!(message.contains("`4097` is no number from 1 to 4096"), "more than a VM can have: {message}");
}

#[test]
fn json_tells_what_each_choice_costs() {
    let vm = "vcpus=4,memory=3GiB,nodes=0";
    let args =
        ["--vcpus", "4", "--memory", "2GiB", "--machine", "xeon-e5620-2s", "--vm", vm, "--format", "json"];
    let told: Value = serde_json::from_str(&stdout(&args)).unwrap();
    assert_eq!((&told[0]["nodes"], &told[0]["candidate_count"]), (&json!([1]), &json!(2)));
    let other = &told[0]["candidates"][1];
    assert_eq!(
        (&other["nodes"], &other["asked_cpus"], &other["pcpus"]),
        (&json!([0]), &json!(8.0), &json!(8))
    );
    assert_eq!((&other["free_memory_bytes"], &other["not_apart"]), (&json!(3u64 << 30), &json!(0)));
    let lost = ["least", "expected", "most"].map(|key| other["lost_cpus"][key].as_f64().unwrap());
    assert!(0.0 < lost[0] && lost[0] < lost[1] && lost[1] < lost[2], "{other}");
    let help = stdout(&["--help"]);
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let keys = told[0].as_object().unwrap().keys().chain(other.as_object().unwrap().keys());
    for key in keys {
        assert!(help.contains(key), "the help does not name {key}");
    }
}

#[test]
fn xens_rule_knows_nothing_of_this_host() {
    let xen = ["--vcpus", "2", "--memory", "1GiB", "--rule", "xen", "--machine", "xeon-e5620-2s"];
    let line =
        "VM 1: node 0. It is the first of 2 equally good nodes, with 0 runnable vCPUs and 6 GiB free each.\n";
    assert_eq!(stdout(&xen), line);
    let told: Value = serde_json::from_str(&stdout(&[&xen[..], &["--format", "json"]].concat())).unwrap();
    let candidate = json!({"nodes": [0], "pcpus": 8, "runnable_vcpus": 0, "free_memory_bytes": 6u64 << 30});
    assert_eq!(told[0]["candidates"][0], candidate);
    let expected = "tandem: Xen's rule ignores the VMs of this host; leave out --config and --emulated";
    assert_eq!(refusal(&[&xen[..6], &["--emulated"]].concat()), expected);
    assert_eq!(refusal(&[&xen[..6], &["--config", "tandem.toml"]].concat()), expected);
    refusal(&["--vcpus", "2", "--memory", "1GiB", "--machine", "xeon-e5620-2s", "--emulated"]);
}
