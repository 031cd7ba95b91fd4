//! `tandem reproduce` and `tandem sim` from files to results, on an experiment whose outcome is known: with
//! all costs off, two VMs do each half of what one does alone.

use assert_cmd::Command;
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// One hog to a pCPU at one VM, two at two.
const SCENARIO: &str = r#"
length = "400ms"
warmup = "100ms"
machine = "xeon-e5620-2s"
[parameters]
vms = 1
vcpus = 16
cap = 0
[costs]
all = false
[programs.hog]
ops = [{ forever = [{ compute = { exponential = "1ms" } }, { count = "done" }] }]
[[vm]]
group = "hog"
count = "$vms"
vcpus = "$vcpus"
memory = "1GiB"
cap = "$cap"
programs = ["hog"]
"#;

const EXPERIMENT: &str = r#"
title = "Hogs"
story = ["Hogs run.", "They share.", "Nothing else matters."]
source = "Arithmetic"
modelled = ["CPU time"]
not_modelled = ["anything else"]
replications = { min = 3 }
baseline = "long"
[variants.long]
[variants.short]
host = { xen-credit = { timeslice = "5ms" } }
[[run]]
scenario = "hog.toml"
sweep = { vms = [1, 2] }
metrics = [
  { name = "throughput", of = { rate_per_vm = "done" }, unit = "1/s", better = "higher", calibrated = true },
  { name = "switches", of = "context_switches_per_pcpu", unit = "1/s", better = "neither" },
]
[[target]]
text = "a short timeslice costs nothing"
cell = { vms = 2 }
metric = "throughput"
variant = "short"
effect_pct = 0
within_pct = 5
"#;

const PUBLISHED: &str =
    "vms,metric,variant,value,effect_pct\n1,throughput,long,16000,\n2,throughput,short,,0\n";

/// A folder with the folder `experiments`.
fn project() -> TempDir {
    let project = tempfile::tempdir().unwrap();
    let folder = project.path().join("experiments/hogs");
    fs::create_dir_all(&folder).unwrap();
    for (name, text) in
        [("hog.toml", SCENARIO), ("experiment.toml", EXPERIMENT), ("published.csv", PUBLISHED)]
    {
        fs::write(folder.join(name), text).unwrap();
    }
    project
}

fn tandem(args: &[&str], folder: &Path) -> Vec<u8> {
    let mut command = Command::cargo_bin("tandem").unwrap();
    command.args(args).current_dir(folder).assert().success().get_output().stdout.clone()
}

fn json(args: &[&str], folder: &Path) -> Value {
    serde_json::from_slice(&tandem(args, folder)).unwrap()
}

#[test]
fn an_experiment_runs_from_files_to_json() {
    let project = project();
    let cells = json(&["reproduce", "hogs", "--format", "json"], project.path());
    let cells = cells.as_array().unwrap();
    assert_eq!(cells.len(), 8);
    for cell in cells {
        let keys: Vec<_> = cell.as_object().unwrap().keys().map(String::as_str).collect();
        let expected = [
            "baseline",
            "calibrated_set",
            "cell",
            "ci_high_pct",
            "ci_low_pct",
            "experiment",
            "metric",
            "points_accepted",
            "points_measured",
            "published",
            "published_effect_pct",
            "range_high_pct",
            "range_low_pct",
            "role",
            "simulated",
            "simulated_effect_pct",
            "variant",
        ];
        assert_eq!(keys, expected);
    }
    let value = |vms: i64, metric: &str, variant: &str, key: &str| {
        let is_meant = |cell: &&Value| {
            cell["cell"]["vms"] == vms && cell["metric"] == metric && cell["variant"] == variant
        };
        cells.iter().find(is_meant).unwrap()[key].clone()
    };
    // 16 vCPUs on 16 pCPUs, 1000 units of 1 ms a second each; at two VMs, each gets half.
    let close = |value: Value, expected: f64| (value.as_f64().unwrap() / expected - 1.0).abs() < 0.05;
    assert!(close(value(1, "throughput", "long", "simulated"), 16_000.0), "{cells:?}");
    assert!(close(value(2, "throughput", "long", "simulated"), 8_000.0), "{cells:?}");
    assert_eq!(value(1, "throughput", "long", "role"), "calibrated");
    assert_eq!(value(2, "throughput", "short", "role"), "predicted");
    // Shorter slices, more switches.
    let switches = |variant| value(2, "switches", variant, "simulated").as_f64().unwrap();
    assert!(switches("short") > 3.0 * switches("long"), "{cells:?}");
    // The programs draw nothing: a seed decides when ticks come, and only some replications differ.
    assert!(value(2, "switches", "short", "ci_low_pct").as_f64().is_none_or(|low_pct| low_pct > 100.0));
}

#[test]
fn results_are_the_same_whatever_the_number_of_jobs() {
    let project = project();
    let run =
        |jobs: &str| tandem(&["reproduce", "--format", "csv", "--seed", "5", "--jobs", jobs], project.path());
    assert_eq!(run("1"), run("4"));
}

#[test]
fn a_table_ends_with_a_line_per_experiment_and_files_are_complete() {
    let project = project();
    let table = tandem(&["reproduce", "--quick", "--out", "deep/report"], project.path());
    let table = String::from_utf8(table).unwrap();
    assert!(table.trim_end().lines().last().unwrap().contains("hogs") || table.contains("\nhogs"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    let mut names: Vec<_> = fs::read_dir(project.path().join("deep/report"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["report.html", "results.csv", "results.json"]);
    let text = fs::read_to_string(project.path().join("deep/report/results.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap().as_array().unwrap().len(), 8);
}

#[test]
fn one_scenario_runs_by_itself() {
    let project = project();
    let mut scenario = vec!["sim", "experiments/hogs/hog.toml", "--format", "json"];
    for setting in ["cap=50", "vms=2", "vcpus=1"] {
        scenario.extend(["--set", setting]);
    }
    let run = json(&scenario, project.path());
    assert_eq!(run, json(&scenario, project.path()));
    // Two VMs with half a pCPU each, of 16 pCPUs.
    let busy = run["host"]["busy_pct"].as_f64().unwrap();
    assert!((busy - 100.0 / 16.0).abs() < 0.6, "{run}");
    assert!(
        (run["groups"][0]["counts_per_s"]["done"].as_f64().unwrap() / 1_000.0 - 1.0).abs() < 0.15,
        "{run}"
    );

    let table = String::from_utf8(tandem(&scenario[..2], project.path())).unwrap();
    assert!(table.contains("seed 1") && table.contains("xeon-e5620-2s, 16 pCPUs"), "{table}");
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
}

#[test]
fn mistakes_exit_with_2_and_one_line() {
    let project = project();
    for (args, says) in [
        (&["reproduce", "frogs"][..], "there is no experiment `frogs`; there are hogs"),
        (&["reproduce", "--experiments", "nowhere"], "`nowhere` cannot be read"),
        (&["reproduce", "--out", "experiments/hogs/hog.toml"], "hog.toml: is not a folder"),
        // Nobody, not even root, can write there.
        (&["reproduce", "--out", "/proc"], "--out /proc: nothing can be written there"),
        (
            &["sim", "experiments/hogs/hog.toml", "--set", "vm=1"],
            "there is no parameter `vm`; parameters under [parameters]: `cap`, `vcpus`, `vms`",
        ),
        (
            &["sim", "experiments/hogs/hog.toml", "--set", "vms=1000"],
            "hog.toml:17: 1024 MiB of memory do not fit",
        ),
    ] {
        let mut command = Command::cargo_bin("tandem").unwrap();
        let assert = command.args(args).current_dir(project.path()).assert().code(2).stdout("");
        let error = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        assert!(error.contains(says) && error.lines().count() == 1, "{args:?}: {error}");
    }
}

#[test]
fn progress_is_seen_without_a_terminal() {
    let project = project();
    let mut command = Command::cargo_bin("tandem").unwrap();
    let assert = command.args(["reproduce", "hogs"]).current_dir(project.path()).assert().success();
    let progress = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    let last = progress.lines().last().unwrap();
    assert_eq!(last, "tandem: hogs: 12 of 12 runs", "{progress}");
}
