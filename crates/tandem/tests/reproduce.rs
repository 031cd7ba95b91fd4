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
            "better",
            "calibrated_set",
            "cell",
            "ci_high_pct",
            "ci_low_pct",
            "experiment",
            "guest_schedulers",
            "metric",
            "n",
            "points_accepted",
            "points_measured",
            "precision_pct",
            "published",
            "published_effect_pct",
            "range_high_pct",
            "range_low_pct",
            "role",
            "scenario_hash",
            "scheduler",
            "seeds",
            "simulated",
            "simulated_effect_pct",
            "trace_hashes",
            "unit",
            "values",
            "variant",
            "version",
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

/// A cell says with what its runs can be made again: `tandem sim` makes one.
#[test]
fn one_run_of_a_cell_can_be_made_again() {
    let project = project();
    let cells = json(&["reproduce", "hogs", "--format", "json", "--seed", "5"], project.path());
    let is_meant = |cell: &&Value| {
        cell["cell"]["vms"] == 2 && cell["metric"] == "throughput" && cell["variant"] == "long"
    };
    let cell = cells.as_array().unwrap().iter().find(is_meant).unwrap();
    assert_eq!((&cell["n"], &cell["seeds"]), (&3.into(), &serde_json::json!([5, 6, 7])));
    let sim = ["sim", "experiments/hogs/hog.toml", "--set", "vms=2", "--seed", "6", "--format", "json"];
    let run = json(&sim, project.path());
    assert_eq!(cell["scenario_hash"], run["scenario_hash"]);
    assert_eq!(cell["trace_hashes"][1], run["trace_hash"]);
    assert_eq!(cell["scheduler"], run["host"]["scheduler"]);
    assert_eq!(cell["version"], run["version"]);
    let rate = run["groups"][0]["counts_per_s"]["done"].as_f64().unwrap() / 2.0;
    assert!((cell["values"][1].as_f64().unwrap() / rate - 1.0).abs() < 1e-5, "{cell} {run}");
}

#[test]
fn without_published_numbers_tables_have_means_effects_and_intervals() {
    let project = project();
    let folder = project.path().join("experiments/hogs");
    fs::write(folder.join("published.csv"), "vms,metric,variant,value,effect_pct\n").unwrap();
    // Hogs that rest at random times, so that seeds differ, and metrics of which one way is better.
    let rest = "{ sleep = { exponential = \"300us\" } }, { count = \"done\" }";
    fs::write(folder.join("hog.toml"), SCENARIO.replace("{ count = \"done\" }", rest)).unwrap();
    let experiment = EXPERIMENT
        .replace("better = \"neither\"", "better = \"lower\"")
        .replace("replications = { min = 3 }", "replications = { min = 3, max = 4, precision_pct = 0.001 }");
    let experiment = &experiment[..experiment.find("[[target]]").unwrap()];
    for (sweep, is_swept) in [("[1, 2]", false), ("[1, 2, 3]", true)] {
        fs::write(folder.join("experiment.toml"), experiment.replace("[1, 2]", sweep)).unwrap();
        let table =
            String::from_utf8(tandem(&["reproduce", "hogs", "--out", "report"], project.path())).unwrap();
        assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
        assert!(table.contains("replications: 4, seeds 1 to 4, tandem "), "{table}");
        assert!(table.contains("policies: xen-credit 4.9 (long, short)"), "{table}");
        assert!(table.contains("precision: 0.001% of the baseline, either way: NOT reached"), "{table}");
        assert!(table.contains("hashes: scenarios "), "{table}");
        assert!(!table.contains("publ") && !table.contains(" 0 of 0"), "{table}");
        let switches = table.split("\nswitches").nth(1).unwrap();
        let row = |start: &str| {
            switches.lines().find(|line| line.trim_start().starts_with(start)).expect("a row").to_owned()
        };
        match is_swept {
            true => assert!(row("3  ").contains("% ±"), "{switches}"),
            false => {
                assert!(row("1  long").ends_with("baseline"), "{switches}");
                let short = row("1  short");
                assert!(short.contains("[+") && short.ends_with("worse"), "{switches}");
                assert!(row("2  short").ends_with("within chance"), "{switches}");
            }
        }
        let page = fs::read_to_string(project.path().join("report/report.html")).unwrap();
        assert!(page.contains("effects are beyond chance; nothing is published about them"));
        assert!(!page.contains("0 of 0") && !page.contains("<details>"), "tables are open");
        let picture = if is_swept { "<h3>Over the load</h3>" } else { "Effects of hogs, cell by cell" };
        assert!(page.contains(picture), "effects have a picture");
    }
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
        (
            &["reproduce", "experiments/hogs"],
            "`experiments/hogs` is a path; give the name `hogs` alone, with --experiments experiments",
        ),
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

/// Ctrl-C leaves a report of earlier, whole results as it is, and writes what there is beside it.
#[test]
fn an_interrupted_experiment_replaces_no_whole_report() {
    let project = project();
    tandem(&["reproduce", "--quick", "--out", "report"], project.path());
    let report = project.path().join("report/results.json");
    let whole = fs::read_to_string(&report).unwrap();
    let file = project.path().join("experiments/hogs/experiment.toml");
    // As many runs as take minutes, of which the first ones take no time.
    fs::write(&file, EXPERIMENT.replace("min = 3", "min = 100000")).unwrap();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("tandem"));
    command.args(["reproduce", "--out", "report"]).current_dir(project.path());
    let running =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    rustix::process::kill_process(rustix::process::Pid::from_child(&running), rustix::process::Signal::INT)
        .unwrap();
    let output = running.wait_with_output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("interrupted; the results are of the replications that were complete"), "{error}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("\nINTERRUPTED"), "the table says so");
    assert_eq!(fs::read_to_string(&report).unwrap(), whole);
    let page = fs::read_to_string(project.path().join("report/partial-report.html")).unwrap();
    assert!(page.contains("was interrupted"), "the page says so");
    let part = fs::read_to_string(project.path().join("report/partial-results.json")).unwrap();
    let cells: Vec<Value> = serde_json::from_str(&part).unwrap();
    assert!(cells.iter().all(|cell| (1..100_000).contains(&cell["n"].as_u64().unwrap())), "{part}");
}

/// Nothing that is asked for is left out in silence.
#[test]
fn experiments_that_would_measure_nothing_are_refused() {
    let project = project();
    let file = project.path().join("experiments/hogs/experiment.toml");
    let metrics =
        &EXPERIMENT[EXPERIMENT.find("metrics = [").unwrap()..EXPERIMENT.find("[[target]]").unwrap()];
    for (from, to, says) in [
        ("vms = [1, 2]", "vms = []", ":14: the sweep has no values for `vms`; give at least one"),
        (metrics, "metrics = []\n", ":13: the run measures nothing; name at least one metric"),
        ("min = 3", "min = 3, precision_pct = nan", ":7: `nan` is no finite number; give one that is"),
        ("min = 3", "min = 3, precision_pct = -1", ":7: `precision_pct` is -1; allowed are 0 and more"),
        ("within_pct = 5", "within_pct = inf", "`inf` is no finite number"),
    ] {
        assert!(EXPERIMENT.contains(from), "{from}");
        fs::write(&file, EXPERIMENT.replace(from, to)).unwrap();
        let mut command = Command::cargo_bin("tandem").unwrap();
        let assert = command.args(["reproduce"]).current_dir(project.path()).assert().code(2).stdout("");
        let error = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
        assert!(error.contains(says) && error.lines().count() == 1, "{to}: {error}");
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
