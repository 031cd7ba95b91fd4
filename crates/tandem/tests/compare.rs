//! `tandem compare`, and the scenarios that it finds by name.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use tempfile::tempdir;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios")
}

fn compare(args: &[&str]) -> Output {
    Command::new(cargo_bin!("tandem"))
        .arg("compare")
        .args(args)
        .current_dir(folder())
        .output()
        .expect("it starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(args: &[&str]) -> Value {
    let output = compare(&[args, &["--format", "json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// The names of the library.
fn names() -> Vec<String> {
    let files = fs::read_dir(folder()).expect("the scenarios are there").map(|file| file.unwrap().path());
    let toml = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    toml.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect()
}

/// A short noisy neighbour.
const SHORT: [&str; 5] = ["noisy-neighbour", "--set", "length=20ms", "--seeds", "3"];

#[test]
fn what_leaves_nothing_to_compare_is_refused() {
    for (policies, words) in [
        (&["linux"][..], "`--policy linux` is the same as the scenario's own"),
        (&["host=linux"], "`--policy host=linux` is the same as the scenario's own"),
        (&["tandem", "linux", "host=tandem"], "`--policy host=tandem` is the same as `--policy tandem`"),
    ] {
        let policies = policies.iter().flat_map(|policy| ["--policy", *policy]);
        let output = compare(&SHORT.into_iter().chain(policies).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(2));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
}

#[test]
fn seeds_end_at_the_largest_number() {
    let last = u64::MAX.to_string();
    let policies = ["--policy", "linux", "--policy", "tandem"];
    let output = compare(&[&SHORT[..], &policies, &["--seed", &last]].concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("go beyond the largest"), "{}", stderr(&output));
    let one = compare(&[&SHORT[..3], &policies, &["--seed", &last, "--seeds", "1"]].concat());
    let text = String::from_utf8_lossy(&one.stdout);
    assert!(text.contains(&format!("noisy-neighbour, seed {last}, tandem")), "{text}{}", stderr(&one));
}

#[test]
fn wrong_precisions_are_refused() {
    let policies = ["--policy", "linux", "--policy", "tandem"];
    for precision in ["0", "-1", "nan", "inf", "101", ""] {
        let output = compare(&[&SHORT[..], &policies, &[&format!("--precision={precision}")]].concat());
        assert_eq!(output.status.code(), Some(2), "{precision}");
    }
    let output = compare(&[&SHORT[..3], &policies, &["--precision", "5", "--seeds", "1"]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

/// However narrow intervals are to be, the result says whether they are, and does not go beyond what is allowed.
#[test]
fn a_precision_is_reached_or_the_result_says_that_it_is_not() {
    let args = ["noisy-neighbour", "--set", "length=20ms", "--policy", "linux", "--policy", "xen-credit2"];
    for (precision, most) in [("100", 40), ("20", 40), ("5", 14), ("0.1", 11)] {
        let result = json(&[&args[..], &["--precision", precision, "--seeds", &most.to_string()]].concat());
        let (found, seeds) = (&result["precision"], result["seeds"].as_array().unwrap().len());
        let wanted = found["wanted"].as_u64().map_or(usize::MAX, |wanted| wanted as usize);
        assert_eq!(seeds, wanted.min(most), "{precision}");
        let widest = found["widest"]["half_width_pct"].as_f64().unwrap();
        let is_narrow = widest <= precision.parse::<f64>().unwrap();
        assert_eq!(found["is_reached"], wanted <= most || is_narrow, "{precision}");
        if wanted > 2 * most {
            assert!(widest > precision.parse::<f64>().unwrap(), "{precision}: {widest}");
        }
    }
}

#[test]
fn every_scenario_of_the_library_runs_under_every_scheduler() {
    for name in names() {
        let text = fs::read_to_string(folder().join(&name).with_extension("toml")).unwrap();
        assert!(text.contains("Assumed") && text.contains(&format!("tandem compare {name} ")), "{name}");
        let short = ["--set", "length=5ms", "--seeds", "1"];
        let policies =
            ["xen-credit", "xen-credit2", "linux", "tandem"].into_iter().flat_map(|it| ["--policy", it]);
        let result = json(&[&[&*name][..], &short, &policies.collect::<Vec<_>>()].concat());
        let policies = result["policies"].as_array().unwrap();
        assert_eq!(policies.len(), 4);
        for (at, policy) in policies.iter().enumerate() {
            let busy =
                result["rows"].as_array().unwrap().iter().find(|row| row["measure"] == "busy, % of pCPUs");
            let busy = busy.unwrap()["figures"][at]["mean"].as_f64().unwrap();
            assert!(busy > 1.0, "{name} under {policy}: {busy}");
        }
    }
}

/// Below the folder `scenarios`, and where there is none.
#[test]
fn scenarios_are_found_by_name() {
    let sim = |name: &str, folder: &Path| {
        let args = ["sim", name, "--set", "length=1ms"];
        Command::new(cargo_bin!("tandem")).args(args).current_dir(folder).output().unwrap()
    };
    assert!(sim("schbench", &folder()).status.success());
    // As a program, beside.
    assert!(stderr(&sim("no-such", &folder())).contains("web-beside-batch, web-server"));
    let empty = tempdir().unwrap();
    let output = sim("schbench", empty.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no folder `scenarios`"), "{}", stderr(&output));
    // A file is one, whatever its name.
    fs::copy(folder().join("schbench.toml"), empty.path().join("mine")).unwrap();
    assert!(sim("mine", empty.path()).status.success());
}

#[test]
fn a_page_has_all_pictures_and_only_escaped_text() {
    let dir = tempdir().unwrap();
    let text = fs::read_to_string(folder().join("noisy-neighbour.toml")).unwrap();
    let odd = dir.path().join("<b>&\".toml");
    fs::write(&odd, text.replace("\"web\"", "\"<i>web&\"")).unwrap();
    let out = dir.path().join("report");
    let (odd, out) = (odd.to_str().unwrap(), out.to_str().unwrap());
    let policies = ["--policy", "linux", "--policy", "xen-credit", "--policy", "tandem"];
    let output = compare(&[&[odd, "--out", out], &SHORT[1..], &policies].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let page = fs::read_to_string(Path::new(out).join("compare.html")).unwrap();
    assert!(!page.contains("<i>") && !page.contains("<b>"), "a name is not escaped");
    for reference in ["src=", "url(", "@import", "<script", "<link", "NaN", "inf\""] {
        assert!(!page.contains(reference), "{reference}");
    }
    // The batch neither answers nor sleeps.
    assert_eq!(page.matches(">Response times<").count(), 1);
    assert_eq!(page.matches(">Delays of wake-ups<").count(), 1);
    assert_eq!(page.matches("us since the wait began").count(), 3);
    let result: Value =
        serde_json::from_str(&fs::read_to_string(Path::new(out).join("compare.json")).unwrap()).unwrap();
    assert_eq!(result["policies"].as_array().unwrap().len(), 3);
    assert!(result["pooled"][1]["response"][0]["count"].as_u64().unwrap() > 0);
}

/// Whether a process with that status handles Ctrl-C.
const TWO: [&str; 8] =
    ["--set", "length=20ms", "--seeds", "2", "--policy", "linux", "--policy", "xen-credit2"];

/// Every page is where the arena's says that it is, whatever scenarios and machines are called.
#[test]
fn several_scenarios_have_a_page_each_and_one_for_all() {
    let out = tempdir().unwrap();
    let odd = out.path().join("a b%&'<.toml");
    fs::copy(folder().join("schbench.toml"), &odd).unwrap();
    let out = out.path().join("out");
    let (odd, out_dir) = (odd.to_str().unwrap(), out.to_str().unwrap());
    let scenarios = ["schbench", "./schbench.toml", odd, "hackbench"];
    let machines = ["--machine", "1x4x2", "--machine", "2x4x1"];
    let result = json(&[&scenarios[..], &TWO, &machines, &["--out", out_dir]].concat());
    assert_eq!(result["policies"].as_array().unwrap().len(), 2);
    let entries = result["scenarios"].as_array().unwrap();
    assert_eq!(entries.len(), 8);
    let page = fs::read_to_string(out.join("index.html")).unwrap();
    for (at, entry) in entries.iter().enumerate() {
        assert_eq!(entry["machine"], ["1x4x2", "2x4x1"][at % 2]);
        assert_eq!(entry["scenario"], scenarios[at / 2]);
        let folder = entry["folder"].as_str().unwrap();
        assert!(folder.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "{folder}");
        assert!(out.join(folder).join("compare.html").is_file(), "{folder}");
        // Those of the two figures.
        assert_eq!(page.matches(&format!("href=\"{folder}/compare.html\"")).count(), 2, "{folder}");
        let own = fs::read(out.join(folder).join("compare.json")).unwrap();
        let own: Value = serde_json::from_slice(&own).unwrap();
        assert_eq!((&own["seeds"], &own["scenario"]), (&entry["seeds"], &entry["scenario"]));
    }
    let written = fs::read(out.join("arena.json")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&written).unwrap(), result);
    assert!(!page.contains("'<"), "names are escaped");
}

#[test]
fn all_ready_scenarios_and_schedulers_are_compared() {
    let result = json(&["--all", "--set", "length=5ms", "--seeds", "1"]);
    let found: Vec<&str> =
        result["scenarios"].as_array().unwrap().iter().map(|it| it["scenario"].as_str().unwrap()).collect();
    let mut names = names();
    names.sort();
    assert_eq!(found, names);
    assert_eq!(result["policies"].as_array().unwrap().len(), 4);
    assert_eq!(result["figures"][0]["lines"].as_array().unwrap().len(), names.len(), "all have work");
}

/// Whatever is wrong is said before the first scenario runs.
#[test]
fn what_is_wrong_with_one_of_several_scenarios_is_said_first() {
    for (args, words) in [
        (&["schbench", "no-such"][..], "there is no file and no scenario `no-such`"),
        (&["schbench", "noisy-neighbour", "--machine", "1x4x1", "--machine", "nonsense"], "nonsense"),
        (&["schbench", "--machine", "1x4x1", "--set", "machine=2x4x1"], "both given"),
        (&["schbench", "--all"], "cannot be used with"),
        (&[], "required"),
    ] {
        let output = compare(&[args, &TWO].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(words), "{args:?}: {}", stderr(&output));
        assert!(!stderr(&output).contains(" runs"), "{args:?} has run: {}", stderr(&output));
    }
}

fn listens(status: &str) -> bool {
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).expect("Linux says so");
    let caught = u64::from_str_radix(caught.trim(), 16).expect("a mask");
    caught & 1 << (Signal::INT.as_raw() - 1) != 0
}

#[test]
fn an_interrupt_is_answered_at_once_and_keeps_what_is_whole() {
    let mut command = std::process::Command::new(cargo_bin!("tandem"))
        .args([
            "compare",
            "noisy-neighbour",
            "--policy",
            "linux",
            "--policy",
            "xen-credit",
            "--seeds",
            "10000",
        ])
        .args(["--set", "length=5ms", "--jobs", "1"])
        .current_dir(folder())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", command.id());
    // Until it listens, a signal would kill it.
    while !listens(&fs::read_to_string(&status).unwrap()) {
        std::thread::yield_now();
    }
    kill_process(Pid::from_child(&command), Signal::INT).unwrap();
    let mut lines = BufReader::new(command.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("interrupted; what has begun ends first")));
    lines.for_each(drop);
    let mut output = String::new();
    command.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    assert_eq!(command.wait().unwrap().code(), Some(1));
    assert!(output.is_empty() || output.contains("seed"), "{output}");
}

#[test]
fn what_is_given_twice_is_refused() {
    for twice in [
        &["--machine", "1x2x1", "--machine", "1x2x1"][..],
        &["--set", "a=1", "--set", "a=2"],
        &["noisy-neighbour"],
    ] {
        let output = compare(&[&SHORT, &["--policy", "tandem"][..], twice].concat());
        assert_eq!(output.status.code(), Some(2), "{twice:?}");
        assert!(stderr(&output).contains("is given twice; leave one out"), "{}", stderr(&output));
    }
}

#[test]
fn of_all_scenarios_those_that_do_not_fit_are_left_out() {
    // VMs of NUMA scenarios have more vCPUs than this machine.
    let all = ["--all", "--machine", "1x4x2", "--seeds", "1", "--set", "length=1ms"];
    let output = compare(&[&all[..], &["--policy", "linux", "--policy", "tandem"]].concat());
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("tandem: numa is left out: "), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("noisy-neighbour on 1x4x2"), "{said}");
    let one = compare(&["numa", "build", "--machine", "1x4x2", "--seeds", "1", "--policy", "tandem"]);
    assert_eq!(one.status.code(), Some(2));
    assert!(stderr(&one).starts_with("tandem: numa: "), "{}", stderr(&one));
}
