//! `tandem vms` finds a QEMU that really runs. Without KVM: the guest's CPUs are threads as well then.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use serde_json::{Value, json};
use std::process::{self, Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// How often a VM that starts is looked for: the last resort, ten times what was ever seen. It takes a
/// second, on a busy machine several.
const ATTEMPTS: u32 = 6_000;

/// A virtual machine that stands still before its first instruction; it ends with the test.
struct Qemu(Child);

impl Qemu {
    fn start(name: &str, more: &[&str]) -> Self {
        let mut command = process::Command::new("qemu-system-x86_64");
        command.args(["-S", "-nodefaults", "-display", "none", "-accel", "tcg,thread=multi", "-m", "64"]);
        command.args(["-name", name]).args(more).stdin(Stdio::null());
        let child = command.spawn();
        Self(child.expect("QEMU starts; `scripts/setup test` installs it"))
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// `tandem vms` that shows VMs without KVM, too: QEMU runs without here.
fn vms(args: &[&str]) -> process::Output {
    let mut command = Command::new(cargo_bin!("tandem"));
    command.args(["vms", "--emulated"]).args(args).output().expect("the command starts")
}

/// What is told of a process, as soon as it is a VM.
fn found(pid: &str) -> Value {
    for _ in 0..ATTEMPTS {
        let output = vms(&[pid, "--json", "--interval", "10 ms"]);
        if output.status.success() {
            let told: Value = serde_json::from_slice(&output.stdout).expect("JSON is printed");
            // All its vCPUs are there a moment after the first.
            if told["vms"][0]["vcpus"] == json!(2) {
                return told;
            }
        }
        sleep(Duration::from_millis(100));
    }
    let output = vms(&[pid, "--json", "--interval", "10 ms"]);
    panic!("process {pid} is not found: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_vm_is_found_with_its_threads() {
    let name = format!("tandem-test-{}", process::id());
    let qemu = Qemu::start(&format!("{name},debug-threads=on"), &["-smp", "2"]);
    let pid = qemu.0.id().to_string();
    let told = found(&pid);
    let vm = &told["vms"][0];
    assert_eq!((&vm["name"], &vm["manager"], &vm["monitor"]), (&json!(name), &json!("none"), &json!("qemu")));
    assert_eq!((&vm["pid"], &vm["memory"]["given_bytes"]), (&json!(qemu.0.id()), &json!(64 << 20)));
    assert!(vm["memory"]["resident_bytes"].as_u64() > Some(1 << 20), "{vm}");
    let threads = vm["threads"].as_array().expect("threads are a list");
    let vcpus: Vec<&Value> =
        threads.iter().filter(|thread| thread["kind"] == "vcpu").map(|thread| &thread["vcpu"]).collect();
    assert_eq!(vcpus, [&json!(0), &json!(1)]);
    assert!(threads.iter().all(|thread| thread["last_cpu"].is_u64() && thread["cpus"].is_string()), "{vm}");

    let one = vms(&[&name, "--interval", "10ms"]);
    let one = String::from_utf8(one.stdout).expect("output is UTF-8");
    assert!(one.starts_with(&format!("name     {name}\nstarted  by hand; qemu, process {pid}\n")), "{one}");
    let all = vms(&["--interval", "10ms"]);
    let all = String::from_utf8(all.stdout).expect("output is UTF-8");
    assert!(all.lines().any(|line| line.starts_with(&name)), "{all}");

    drop(qemu);
    let gone = vms(&[&pid]);
    assert_eq!(gone.status.code(), Some(2));
    let message = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(message.starts_with(&format!("tandem: there is no VM `{pid}`; ")), "{message}");
}

#[test]
fn a_monitor_without_a_machine_is_no_vm() {
    let name = format!("tandem-none-{}", process::id());
    let mut none = Qemu::start(&format!("{name},debug-threads=on"), &["-machine", "none"]);
    // Another one that was started later is found: this one would have been.
    let other = Qemu::start(&format!("{name}-other,debug-threads=on"), &["-smp", "2"]);
    found(&other.0.id().to_string());
    let all = vms(&["--interval", "10ms", "--json"]);
    let all: Value = serde_json::from_slice(&all.stdout).expect("JSON is printed");
    let names: Vec<&Value> =
        all["vms"].as_array().expect("VMs are a list").iter().map(|vm| &vm["name"]).collect();
    assert!(names.contains(&&json!(format!("{name}-other"))) && !names.contains(&&json!(name)), "{names:?}");
    assert!(none.0.try_wait().expect("it can be asked").is_none(), "it runs all the while");
}

#[test]
fn what_only_looks_like_a_vm_is_shown_to_who_asks_for_it() {
    let name = format!("tandem-fake-{}", process::id());
    let qemu = Qemu::start(&format!("{name},debug-threads=on"), &["-smp", "2"]);
    let pid = qemu.0.id().to_string();
    found(&pid);
    let output = Command::new(cargo_bin!("tandem")).args(["vms", "--interval", "10ms"]).output().unwrap();
    let shown = String::from_utf8(output.stdout).expect("output is UTF-8");
    // Without root it is not known, and then what it says of itself counts.
    let is_root = nix::unistd::geteuid().is_root();
    assert_eq!(shown.lines().any(|line| line.starts_with(&name)), !is_root, "{shown}");
    assert_eq!(shown.contains("runs without KVM (see --emulated)"), is_root, "{shown}");
}
