//! What is written for Perfetto, decoded with Perfetto's own definitions, which `scripts/setup perfetto` installs.

use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use tandem_recording::{Kind, Recording, import};

/// The packets of a trace. Python's JSON has 64-bit numbers as strings.
fn decoded(recording: &Recording) -> Vec<Value> {
    let mut trace = Vec::new();
    recording.write_perfetto(&mut trace).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let definitions = root.join(".tools/perfetto");
    assert!(definitions.is_dir(), "Perfetto's definitions are needed: run `scripts/setup perfetto`");
    let mut decoder = Command::new("python3")
        .arg(root.join("crates/tandem-lab/src/trace/tests/decode.py"))
        .env("PYTHONPATH", definitions)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    // The decoder reads all its input before it prints.
    decoder.stdin.take().unwrap().write_all(&trace).unwrap();
    let output = decoder.wait_with_output().unwrap();
    assert!(output.status.success(), "the trace cannot be decoded");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn each_event_is_the_tracepoint_that_it_was() {
    let recording = import::from_bytes(include_bytes!("data/trace-cmd-v7.dat")).unwrap();
    let packets = decoded(&recording);
    assert_eq!(packets[0]["system_info"]["utsname"]["release"], recording.about.kernel.as_str());
    let bundles = packets.iter().filter_map(|packet| packet.get("ftrace_events"));
    let events: Vec<(u64, &Value)> = bundles
        .flat_map(|bundle| {
            let cpu = bundle["cpu"].as_u64().unwrap();
            bundle["event"].as_array().unwrap().iter().map(move |event| (cpu, event))
        })
        .collect();
    let mut counts = BTreeMap::new();
    for (_, event) in &events {
        let is_name = |key: &&String| !["timestamp", "pid", "common_flags"].contains(&key.as_str());
        let name = event.as_object().unwrap().keys().find(is_name).unwrap();
        *counts.entry(name.as_str()).or_insert(0) += 1;
    }
    // As many as `trace-cmd report` prints of the trace that was read, but for sched_wakeup.
    let expected = [
        ("hrtimer_expire_entry", 13),
        ("sched_process_exec", 7),
        ("sched_process_exit", 13),
        ("sched_process_fork", 13),
        ("sched_switch", 166),
        ("sched_wakeup_new", 13),
        ("sched_waking", 85),
        ("softirq_entry", 11),
        ("timer_expire_entry", 7),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
    // One of them, field by field.
    let first = recording.events.iter().find(|event| event.kind == Kind::Switch).unwrap();
    let clock_ns = (recording.about.clock_start_ns + first.at_ns).to_string();
    let (cpu, switch) = events.iter().find(|(_, event)| event["timestamp"] == clock_ns.as_str()).unwrap();
    assert_eq!(*cpu, u64::from(first.cpu));
    let task = |at: u32| &recording.about.tasks[at as usize];
    let (previous, next) = (task(first.task), task(first.other));
    assert_eq!(switch["pid"], previous.tid);
    let switch = &switch["sched_switch"];
    assert_eq!(switch["prev_comm"], previous.name.as_str());
    assert_eq!((&switch["prev_pid"], &switch["next_pid"]), (&previous.tid.into(), &next.tid.into()));
    assert_eq!(switch["next_prio"], next.priority.unwrap());
    assert_eq!(switch["prev_state"], "0");
}

#[test]
fn processes_and_threads_are_named() {
    let recording = import::from_bytes(include_bytes!("data/perfetto-compact.pftrace")).unwrap();
    let packets = decoded(&recording);
    let tree = packets.iter().find_map(|packet| packet.get("process_tree")).unwrap();
    assert_eq!(tree["processes"][0]["pid"], 100);
    assert_eq!(tree["processes"][0]["cmdline"][0], "web");
    assert_eq!(tree["threads"][0]["tid"], 101);
    assert_eq!(tree["threads"][0]["tgid"], 100);
    assert_eq!(tree["threads"][0]["name"], "worker");
}
