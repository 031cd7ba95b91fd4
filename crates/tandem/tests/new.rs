//! `tandem new`: names, what is there already, and the scheduler that it makes.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use tandem_lab::scenario::ScenarioSource;
use tandem_sim::metrics::{RunMetrics, TaskMetrics};
use tempfile::{TempDir, tempdir};

fn tandem(folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(cargo_bin!("tandem"))
        .args(args)
        .current_dir(folder)
        .output()
        .expect("the command starts");
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder can be listed");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn succeed(folder: &Path, args: &[&str]) -> String {
    let (status, output, errors) = tandem(folder, args);
    assert_eq!((status, errors.as_str()), (Some(0), ""), "{args:?}");
    output
}

/// What it refuses, in one line, and leaves the folder as it is.
fn refused(folder: &Path, name: &str) -> String {
    let before = names(folder);
    let (status, output, errors) = tandem(folder, &["new", "--", name]);
    assert_eq!((status, output.as_str(), errors.lines().count()), (Some(2), "", 1), "{name}: {errors}");
    assert_eq!(names(folder), before);
    errors
}

#[test]
fn what_it_makes_has_the_name_everywhere_and_runs_as_its_readme_says() {
    for name in ["my-sched", "x", "A_b-9", "my_sched-my-sched"] {
        let folder = tempdir().expect("a temporary directory");
        let made = succeed(folder.path(), &["new", name]);
        let files = ["Makefile", "README.md", &format!("{name}.bpf.c"), &format!("{name}.toml")];
        assert_eq!(names(folder.path()), [name]);
        let inside = folder.path().join(name);
        let mut sorted = files.map(str::to_owned);
        sorted.sort();
        assert_eq!(names(&inside), sorted);
        assert!(files.iter().all(|file| made.contains(&format!("{name}/{file}\n"))), "{made}");
        let text = files.map(|file| fs::read_to_string(inside.join(file)).expect("it is text")).concat();
        let in_c = name.replace('-', "_");
        assert!(text.contains(&format!(".name = \"{in_c}\"")), "{text}");
        let rest = text.replace(name, "").replace(&in_c, "");
        assert!(!rest.contains("my-sched") && !rest.contains("my_sched"), "{rest}");

        succeed(&inside, &["build", &format!("{name}.bpf.c")]);
        succeed(&inside, &["sim", &format!("{name}.toml"), "--set", "hogs=2"]);
    }
}

#[test]
fn names_that_files_c_or_the_kernel_cannot_have_are_refused() {
    let folder = tempdir().expect("a temporary directory");
    let long = "x".repeat(128);
    for name in
        ["", ".", "..", "a/b", "/tmp/a", "1a", "_a", "-a", "a.b", "a b", "ä", "a\u{1b}[31m", "a\n", &long]
    {
        refused(folder.path(), name);
    }
    succeed(folder.path(), &["new", &long[..127]]);
    // `prep_dispatch` and `ioc_running` are enumerators of the kernel, `scx_bpf_dispatch` is a function.
    for name in ["scx_bpf", "scx-bpf", "prep", "ioc"] {
        assert!(refused(folder.path(), name).contains("beside the kernel's"));
    }
}

#[test]
fn what_is_there_stays() {
    let folder = tempdir().expect("a temporary directory");
    let at = |name: &str| folder.path().join(name);
    fs::create_dir(at("empty")).expect("a folder can be made");
    fs::create_dir(at("full")).expect("a folder can be made");
    fs::write(at("full/file"), "precious").expect("a file can be written");
    fs::write(at("plain"), "precious").expect("a file can be written");
    symlink("nowhere", at("link")).expect("a link can be made");
    for name in ["empty", "full", "plain", "link"] {
        assert!(refused(folder.path(), name).contains("is there already"));
    }
    assert!(names(&at("empty")).is_empty() && names(&at("full")) == ["file"] && at("link").is_symlink());
    assert_eq!(fs::read(at("plain")).expect("it is there"), b"precious");
}

#[test]
fn where_nothing_can_be_made_it_says_so() {
    let (status, output, errors) = tandem(Path::new("/proc"), &["new", "mine"]);
    assert_eq!((status, output.as_str(), errors.lines().count()), (Some(1), "", 1), "{errors}");
    assert!(errors.starts_with("tandem: cannot make mine: "), "{errors}");
}

/// The scheduler as `tandem new` and `tandem build` make it, once for all tests.
static SCHEDULER: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
    let folder = tempdir().expect("a temporary directory");
    succeed(folder.path(), &["new", "mine"]);
    succeed(folder.path(), &["build", "mine/mine.bpf.c"]);
    let object = folder.path().join("mine/mine.bpf.o");
    (folder, object)
});

/// The weight of a set that gives its tasks the usual one.
const USUAL: u32 = 256;
/// How long a task runs at most while others wait: the slice, and a tick more, ns.
const TURN_NS: u64 = 9_000_000;

/// A set of hogs: its weight, how many, and the CPU to which they are bound, if any.
type Hogs = (u32, usize, Option<usize>);

/// Runs hogs on so many CPUs under the scheduler, beside some tasks that sleep, for as long as a hog of the
/// usual weight takes to run for a second.
fn run(kernel: &str, cpus: usize, hogs: &[Hogs], sleepers: usize, seed: u64) -> RunMetrics {
    let total: u64 = hogs.iter().map(|&(weight, count, _)| u64::from(weight) * count as u64).sum();
    let length_ms = (1000 * total / (u64::from(USUAL) * cpus as u64)).max(1000);
    let mut text = format!(
        r#"length = "{length_ms}ms"
warmup = "200ms"
machine = "1x{cpus}x1"
[policy]
host = {{ object = "{}", kernel = "{kernel}" }}
[programs.hog]
ops = [{{ sleep = {{ uniform = ["1ms", "90ms"] }} }}, {{ forever = [{{ compute = "1ms" }}] }}]
[programs.sleeper]
ops = [{{ forever = [{{ sleep = {{ exponential = "20ms" }} }}, {{ compute = "100us" }}] }}]
[[processes]]
group = "sleepers"
memory = "1GiB"
process = [{{ program = "sleeper", copies = {} }}]
"#,
        SCHEDULER.1.display(),
        sleepers + 1
    );
    for (number, (weight, count, bound)) in hogs.iter().enumerate() {
        let affinity = bound.map(|cpu| format!("affinity = {{ hard = \"{cpu}\" }}\n")).unwrap_or_default();
        text += &format!(
            "[[processes]]\ngroup = \"hogs{number}\"\nmemory = \"1GiB\"\nweight = {weight}\n{affinity}\
             process = [{{ program = \"hog\", copies = {count} }}]\n"
        );
    }
    let source = ScenarioSource::parse(Path::new("s.toml"), &text).expect("it is a scenario");
    let mut scenario = source.build(&Default::default(), &Default::default()).expect("it can be built");
    scenario.remove_kernel_threads();
    tandem_sim::run(&scenario, seed).unwrap_or_else(|error| panic!("{error}"))
}

fn tasks<'a>(metrics: &'a RunMetrics, group: &str) -> Vec<&'a TaskMetrics> {
    metrics.vms.iter().filter(|vm| vm.group == group).flat_map(|vm| &vm.vcpus).collect()
}

fn mean_ns(tasks: &[&TaskMetrics]) -> f64 {
    tasks.iter().map(|task| task.run_ns as f64).sum::<f64>() / tasks.len() as f64
}

fn kernels() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("6.12"), Just("7.3")]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: Some(Box::new(FileFailurePersistence::Off)),
        ..ProptestConfig::default()
    })]

    #[test]
    fn equal_hogs_get_equal_time(
        kernel in kernels(), cpus in 1..9_usize, more in 1..12_usize, sleepers in 0..4_usize, seed: u64,
    ) {
        let metrics = run(kernel, cpus, &[(USUAL, cpus + more, None)], sleepers, seed);
        let hogs = tasks(&metrics, "hogs0");
        let mean_ns = mean_ns(&hogs);
        for hog in hogs {
            let off = hog.run_ns as f64 / mean_ns - 1.0;
            prop_assert!(off.abs() < 0.05, "{off}");
        }
    }

    #[test]
    fn twice_the_weight_is_twice_the_time(
        kernel in kernels(), cpus in 1..5_usize, light in 1..8_usize, heavy in 1..8_usize, sleepers in 0..4_usize, seed: u64,
    ) {
        // A heavy one can use its share: at most nine tenths of a CPU.
        prop_assume!(2.0 * cpus as f64 / (light + 2 * heavy) as f64 <= 0.9);
        let metrics = run(kernel, cpus, &[(USUAL, light, None), (2 * USUAL, heavy, None)], sleepers, seed);
        let ratio = mean_ns(&tasks(&metrics, "hogs1")) / mean_ns(&tasks(&metrics, "hogs0"));
        prop_assert!((1.9..2.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn no_task_starves_wherever_others_are_bound(
        kernel in kernels(), cpus in 1..5_usize, free in 1..8_usize, bound in prop::collection::vec((0..4_usize, 1..5_usize), 0..4),
        sleepers in 0..20_usize, seed: u64,
    ) {
        let mut hogs = vec![(USUAL, free, None)];
        hogs.extend(bound.iter().map(|&(cpu, count)| (USUAL, count, Some(cpu % cpus))));
        let metrics = run(kernel, cpus, &hogs, sleepers, seed);
        let all: usize = metrics.vms.iter().map(|vm| vm.vcpus.len()).sum();
        for task in metrics.vms.iter().flat_map(|vm| &vm.vcpus) {
            // Four turns of all, if all of them want one CPU.
            prop_assert!(task.longest_wait_ns <= 4 * all as u64 * TURN_NS, "{} ns", task.longest_wait_ns);
        }
    }
}

#[test]
fn the_scheduler_does_not_fail() {
    let host = format!("host=object:{}", SCHEDULER.1.display());
    let args = ["check", "--policy", &host, "--cases", "100", "--promise", "runs"];
    let (status, output, errors) = tandem(SCHEDULER.0.path(), &args);
    assert_eq!(status, Some(0), "{output}{errors}");
}
