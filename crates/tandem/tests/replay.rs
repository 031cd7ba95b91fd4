//! `tandem replay`, `what-if` and `tune` on a recording of a real kernel.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// Two compressors and timers on one CPU of Debian's 7.3.4.
const MIX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tandem-lab/tests/twin/recordings/mix.parquet");

fn tandem(args: &[&str]) -> Command {
    let mut command = Command::new(cargo_bin!("tandem"));
    command.args(args);
    command
}

fn json(args: &[&str]) -> Value {
    let output = tandem(args).args(["--format", "json"]).assert().success().get_output().stdout.clone();
    serde_json::from_slice(&output).expect("it is JSON")
}

fn rejection(args: &[&str]) -> String {
    let assert = tandem(args).assert().code(2).stdout("");
    String::from_utf8(assert.get_output().stderr.clone()).expect("messages are UTF-8")
}

fn group<'a>(replay: &'a Value, name: &str) -> &'a Value {
    let groups = replay["groups"].as_array().expect("there are groups");
    groups.iter().find(|group| group["group"] == name).expect("the group was recorded")
}

#[test]
fn a_replay_has_all_measures_recorded_and_simulated() {
    let replay = json(&["replay", MIX]);
    assert!(replay["attributed_wakeups_pct"].as_f64().unwrap() > 95.0);
    assert_eq!(replay["lost_events"], 0);
    for key in [
        "run_s",
        "wait_s",
        "sleep_s",
        "switches",
        "preemptions",
        "migrations",
        "wait_p50_us",
        "wait_p95_us",
        "wait_p99_us",
        "span_s",
    ] {
        for of in ["recorded", "simulated"] {
            assert!(replay["total"][of][key].is_number(), "{of} {key}");
            let sum: f64 =
                replay["groups"].as_array().unwrap().iter().map(|it| it[of][key].as_f64().unwrap()).sum();
            let total = replay["total"][of][key].as_f64().unwrap();
            let adds_up =
                key.starts_with("wait_p") || key == "span_s" || (sum - total).abs() <= 1e-6 * total.max(1.0);
            assert!(adds_up, "{of} {key}: {sum} and {total}");
        }
    }
    let compressor = group(&replay, "gzip");
    let (was, is) = (&compressor["recorded"]["run_s"], &compressor["simulated"]["run_s"]);
    assert!((was.as_f64().unwrap() - is.as_f64().unwrap()).abs() < 1e-6, "the work is the same");
}

#[test]
fn a_plan_says_what_the_command_line_said() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let plan = plan.to_str().unwrap();
    let changes = ["--policy", "host=tandem", "--set", "gzip.nice=5", "--copies", "bzip2=2"];
    let said = json(&[&["replay", MIX, "--out", plan], &changes[..]].concat());
    assert_eq!(json(&["replay", plan]), said);
    // What is said of it counts more than what it says, and an edit counts.
    let text = fs::read_to_string(plan).unwrap();
    assert!(text.contains("\nnice = 5\n") && text.contains("#weight = 100"), "{text}");
    fs::write(plan, text.replace("\nnice = 5\n", "\nnice = 0\n")).unwrap();
    let other = json(&["replay", plan]);
    assert_ne!(group(&other, "gzip")["simulated"], group(&said, "gzip")["simulated"]);
    assert_eq!(json(&["replay", plan, "--set", "gzip.nice=5"]), said);
}

#[test]
fn an_idle_compressor_waits_for_the_other_one() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.toml");
    let plan = plan.to_str().unwrap();
    let span = |value: &Value, name: &str| group(value, name)["simulated"]["span_s"].as_f64().unwrap();
    let [normal, idle] = ["normal", "idle"].map(|policy| {
        json(&["replay", MIX, "--runs", "1", "--out", plan, "--set", &format!("bzip2.policy={policy}")])
    });
    assert!(span(&idle, "gzip") < 0.6 * span(&normal, "gzip"), "it has the CPU nearly for itself");
    assert!(span(&idle, "bzip2") > 0.95 * span(&normal, "bzip2"), "it is the last to end anyway");
    let text = fs::read_to_string(plan).unwrap();
    assert!(text.contains("\npolicy = \"idle\"\n") && text.contains("#policy = \"normal\""), "{text}");
    assert_eq!(json(&["replay", plan, "--runs", "1"]), idle);
}

#[test]
fn mistakes_are_one_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let wrong = file("wrong.toml", &format!("recording = \"{MIX}\"\n[group.gzip]\nnice = 50\n"));
    assert!(rejection(&["replay", &wrong]).contains("-20 to 19"));
    assert!(rejection(&["replay", MIX, "--set", "gzip.policy=fifo"]).contains("normal, batch or idle"));
    assert!(rejection(&["replay", MIX, "--set", "nobody.nice=3"]).contains("no group 'nobody'"));
    assert!(rejection(&["replay", MIX, "--set", "gzip.cpus=7"]).contains("CPU 7"));
    for verb in ["replay", "what-if"] {
        assert!(rejection(&[verb, MIX, "--guest", "web"]).contains("write NAME=FILE"));
        assert!(rejection(&[verb, MIX, "--guest", "web=none.parquet"]).contains("none.parquet"));
        let guest = format!("web={MIX}");
        assert!(
            rejection(&[verb, MIX, "--guest", &guest])
                .contains("no VM 'web' in the recording, which has no VMs")
        );
        assert!(rejection(&[verb, MIX, "--guest", &guest, "--guest", &guest]).contains("two recordings"));
    }
    assert!(rejection(&["replay", &file("text.parquet", "no recording")]).starts_with("tandem: "));
    assert!(rejection(&["tune", MIX, "--objective", "wait(nobody)"]).contains("no group 'nobody'"));
    assert!(rejection(&["replay", MIX, "--out", "/dev/null"]).contains("no regular file"));
    assert!(Path::new("/dev/null").metadata().unwrap().len() == 0);
}

#[test]
fn what_if_answers_for_all_variants_and_advises() {
    let answer = json(&["what-if", MIX, "--runs", "2"]);
    let variants: Vec<&str> =
        answer["answers"].as_array().unwrap().iter().map(|it| it["variant"].as_str().unwrap()).collect();
    assert_eq!(variants, ["recorded", "tandem", "pinned", "homes", "weight", "limit", "fewer", "twice"]);
    assert!(answer["advice"].as_str().unwrap().ends_with('.'));
}

#[test]
fn tuning_writes_settings_that_are_better_than_the_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let settings = folder.path().join("tuned.toml");
    let path = settings.to_str().unwrap();
    let objective = ["--objective", "wait_p99(cyclictest)", "--trials", "20", "--out", path];
    tandem(&[&["tune", MIX], &objective[..]].concat()).assert().success();
    let replay = ["replay", MIX, "--policy", "host=tandem", "--runs", "2"];
    let wait_us = |replay: &Value| group(replay, "cyclictest")["simulated"]["wait_p99_us"].as_f64().unwrap();
    let (before, after) = (json(&replay), json(&[&replay[..], &["--settings", path]].concat()));
    assert!(wait_us(&after) < wait_us(&before));
}
