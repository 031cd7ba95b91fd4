//! `tandem sim` of a scenario with guest kernels: accounting and scheduling domains.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::Stdio;

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
fn the_schedulers_that_ran_are_named_with_their_releases() {
    let line = |changes: &[(&str, &str)], args: &[&str]| {
        let text = sim(changes, args);
        text.lines().find_map(|line| line.strip_prefix("scheduler ")).map(str::to_owned)
    };
    let of = |line: &str| Some(line.to_owned());
    assert_eq!(line(&[], &[]), of("xen-credit 4.9 in the host, linux 4.2 in guests"));
    let is_default = ("guest = { linux = { version = \"4.2\", domains = \"topology\" } }", "");
    assert_eq!(
        line(&[is_default], &["--policy", "host=tandem"]),
        of("tandem on linux 7.3 in the host, linux 6.12 in guests")
    );
    let json = sim(&[], &["--policy", "host=linux", "--policy", "guest=tandem", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("output is JSON");
    assert_eq!(json["host"]["scheduler"], "linux 6.12");
    assert_eq!(json["guest_schedulers"], serde_json::json!(["tandem on linux 7.3"]));
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

/// Two VMs with tasks that take two locks in different orders, and one with tasks that take them in the same.
const LOCKS: &str = r#"length = "20ms"
machine = "1x8x1"
[policy]
host = "linux"
[programs.one]
ops = [{ forever = [{ lock = "a" }, { compute = "50us" }, { lock = "b" }, { unlock = "b" }, { unlock = "a" }] }]
[programs.two]
ops = [{ forever = [{ lock = "b" }, { compute = "50us" }, { lock = "a" }, { unlock = "a" }, { unlock = "b" }] }]
[[vm]]
group = "crossed"
count = 2
vcpus = 2
memory = "1GiB"
guest = { process = [{ program = "one" }, { program = "two" }] }
[[vm]]
group = "straight"
vcpus = 2
memory = "1GiB"
guest = { process = [{ program = "one", copies = 2 }] }
"#;

#[test]
fn deadlocks_are_a_warning_that_names_the_programs() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("s.toml"), LOCKS).expect("write an example");
    let mut command = Command::new(cargo_bin!("tandem"));
    let run = command.args(["sim", "s.toml", "--format", "json"]).current_dir(dir.path()).assert().success();
    let errors = String::from_utf8_lossy(&run.get_output().stderr);
    assert_eq!(
        errors.lines().last(),
        Some(
            "tandem: warning: s.toml: tasks of crossed-0 wait for each other to the end: `one` for a lock that `two` has, `two` \
             for a lock that `one` has; so it is in 1 more"
        )
    );
    let json: serde_json::Value = serde_json::from_slice(&run.get_output().stdout).expect("it is JSON");
    let waits = json["deadlocks"].as_array().expect("there are deadlocks");
    assert_eq!(waits.len(), 4);
    assert_eq!(
        waits[0],
        serde_json::json!({"vm": "crossed-0", "task": "one", "awaits": "lock", "of": "two"})
    );
}

/// A scenario that takes minutes.
const LONG: &[(&str, &str)] = &[("length = \"20ms\"", "length = \"100s\"\nwarmup = \"1ms\"")];

/// Starts `tandem sim` on a scenario that takes minutes, and interrupts it.
fn interrupted(changes: &[(&str, &str)], args: &[&str], dir: &std::path::Path) -> std::process::Output {
    let text = changes.iter().fold(GUESTS.to_owned(), |text, (from, to)| text.replace(from, to));
    fs::write(dir.join("guests.toml"), text).unwrap();
    let mut command = std::process::Command::new(cargo_bin!("tandem"));
    command.args(["sim", "guests.toml"]).args(args).current_dir(dir);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(2));
    kill_process(Pid::from_child(&running), Signal::INT).unwrap();
    running.wait_with_output().unwrap()
}

#[test]
fn an_interrupted_run_has_the_results_and_the_trace_of_the_time_until_then() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--format", "json", "--trace", "part.jsonl", "--trace-to", "2ms"];
    let output = interrupted(LONG, &args, dir.path());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("tandem: interrupted; the run ends here\n"), "{error}");
    assert!(error.contains(" s of 100.001 s; the results are of the time until then"), "{error}");
    let run: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(run["is_cut"], true);
    let length_s = run["length_s"].as_f64().unwrap();
    assert!(length_s > 0.0 && length_s < 99.0, "{length_s}");
    assert!(run["host"]["busy_pct"].as_f64().unwrap() > 0.0);
    let trace = fs::read_to_string(dir.path().join("part.jsonl")).unwrap();
    let last: serde_json::Value = serde_json::from_str(trace.lines().last().unwrap()).unwrap();
    assert_eq!(last["kind"], "end");
    let end_ns = last["at_ns"].as_f64().unwrap();
    assert!((end_ns - 1e6 - length_s * 1e9).abs() < 2.0, "{end_ns} {length_s}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing half-written is left");
}

#[test]
fn a_run_that_is_interrupted_in_its_warm_up_says_that_nothing_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let changes = [("length = \"20ms\"", "length = \"1ms\"\nwarmup = \"100s\"")];
    let output = interrupted(&changes, &[], dir.path());
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{error}");
    assert!(error.contains("within the warm-up, before anything was measured"), "{error}");
}

/// Memory is not what ends such a run.
#[test]
fn requests_that_come_faster_than_anybody_takes_them_end_the_run_with_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let text = "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\n[programs.server]\n\
        ops = [{ forever = [{ wait = \"requests\" }, { compute = \"1ms\" }, \"respond\"] }]\n\
        [[vm]]\ngroup = \"web\"\nvcpus = 4\nmemory = \"1GiB\"\nprograms = [\"server\"]\n\
        [[vm.source]]\nchannel = \"requests\"\narrivals = { every = \"1ns\" }\n";
    fs::write(dir.path().join("every.toml"), text).unwrap();
    let mut command = Command::new(cargo_bin!("tandem"));
    let assert = command.args(["sim", "every.toml"]).current_dir(dir.path()).assert().code(2).stdout("");
    let error = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(error.contains("every.toml: VM 'web-0' has 1048576 requests waiting at "), "{error}");
}

#[test]
fn a_trace_of_a_part_is_one_and_mistakes_are_told_before_the_run() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("guests.toml"), GUESTS).unwrap();
    let sim = |args: &[&str]| {
        let mut command = Command::new(cargo_bin!("tandem"));
        command.args(["sim", "guests.toml"]).args(args).current_dir(dir.path()).assert()
    };
    let part = ["--trace-from", "5ms", "--trace-to", "6ms", "--trace-vm", "dom0", "--trace-cpu", "12-15"];
    sim(&[&["--trace", "part.jsonl"], &part[..]].concat()).success();
    let trace = fs::read_to_string(dir.path().join("part.jsonl")).unwrap();
    let lines: Vec<serde_json::Value> =
        trace.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told =
        serde_json::json!({ "from_ns": 5_000_000, "to_ns": 6_000_000, "vms": ["dom0"], "cpus": "12-15" });
    assert_eq!(lines[0]["selection"], told);
    let events = &lines[1..lines.len() - 1];
    assert!(!events.is_empty(), "{trace}");
    for line in events {
        assert!((5_000_000..6_000_000).contains(&line["at_ns"].as_u64().unwrap()), "{line}");
        let of = line["guest"].as_str().unwrap_or_else(|| line["task"].as_str().unwrap());
        assert!(of.starts_with("dom0"), "{line}");
    }
    let trace = ["--trace", "none.jsonl"];
    for (args, says) in [
        (&["--trace-vm", "dom1"][..], "no group `dom1` to trace; there are the groups small, dom0"),
        (
            &["--trace-cpu", "16"],
            "`16` names no CPUs of the machine; allowed are numbers and ranges within \"0-15\"",
        ),
        (&["--trace-from", "1s"], "the run ends at 20000000 ns"),
        (&["--trace-from", "2ms", "--trace-to", "1ms"], "before it begins at 2000000 ns"),
        (
            &["--trace-to", "21ms"],
            "but the run ends at 20000000 ns, its warm-up included; let it end earlier",
        ),
        (&["--trace-to", "10"], "has no unit"),
    ] {
        let assert = sim(&[&trace[..], args].concat()).code(2).stdout("");
        let error = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        assert!(error.contains(says), "{args:?}: {error}");
    }
    sim(&part).code(2).stdout("");
    assert!(!dir.path().join("none.jsonl").exists());
}

#[test]
fn what_another_host_scheduler_leaves_out_is_said() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let text = |pause_loop: &str| {
        format!(
            "length = \"1ms\"\nmachine = \"1x2x1\"\n[policy]\nhost = \"linux\"\npause_loop = {pause_loop}\n\
             halt_poll = \"50us\"\n[programs.hog]\nops = [{{ forever = [{{ compute = \"1ms\" }}] }}]\n[[vm]]\n\
             group = \"hogs\"\nvcpus = 1\nmemory = \"1MiB\"\nprograms = [\"hog\"]\n"
        )
    };
    for (pause_loop, policy, left_out) in [
        ("{}", &["--policy", "host=tandem"][..], "`halt_poll` and `pause_loop`"),
        ("\"off\"", &["--policy", "host=tandem"], "`halt_poll`"),
        ("{}", &["--policy", "host=linux"], ""),
        ("{}", &[], ""),
    ] {
        fs::write(dir.path().join("s.toml"), text(pause_loop)).expect("write an example");
        let mut command = Command::new(cargo_bin!("tandem"));
        let output = command.args(["sim", "s.toml"]).args(policy).current_dir(dir.path()).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        assert_eq!(errors.contains("does not hold"), !left_out.is_empty(), "{policy:?}: {errors}");
        assert!(errors.contains(left_out), "{policy:?}: {errors}");
    }
}
