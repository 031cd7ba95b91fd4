//! `tandem sim` with compiled schedulers from files.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use scheduler_tests::object;
use std::fs;

/// A host with more tasks than the CPU that they may use; SETTINGS may stand under `policy`.
const SCENARIO: &str = r#"length = "20ms"
machine = "xeon-e5620-2s"
[policy]
SETTINGS
[programs.sleeper]
ops = [{ forever = [{ compute = "100us" }, { sleep = "100us" }] }]
[[processes]]
group = "sleepers"
memory = "1GiB"
affinity = { hard = "2-3" }
process = [{ program = "sleeper", copies = 8 }]
"#;

/// Exit status, output and errors of `tandem sim` with a scheduler's object, which lies in the current
/// folder, and settings.
fn sim(scheduler: &str, settings: &str) -> (Option<i32>, String, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let host = format!("host = {{ object = \"scheduler.bpf.o\", settings = {settings} }}");
    fs::write(dir.path().join("s.toml"), SCENARIO.replace("SETTINGS", &host)).expect("write a scenario");
    fs::copy(object(scheduler), dir.path().join("scheduler.bpf.o")).expect("copy an object");
    let output = Command::new(cargo_bin!("tandem"))
        .args(["sim", "s.toml", "--policy", "host=object:scheduler.bpf.o"])
        .current_dir(dir.path())
        .output()
        .expect("the command starts");
    let text = |bytes| String::from_utf8(bytes).expect("output is UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn a_scheduler_from_a_file_runs_with_its_settings() {
    let (status, output, errors) = sim("weighted", "{ slice_ns = 1_000_000 }");
    assert_eq!((status, errors.as_str()), (Some(0), ""));
    assert!(output.contains("policy    decisions "), "the counters of a compiled scheduler: {output}");
}

/// Each process has its own addresses, of which none may be in the hash of a scenario or of a trace.
#[test]
fn hashes_are_the_same_in_every_process() {
    let runs = [0; 2].map(|_| sim("weighted", "{ slice_ns = 1_000_000 }"));
    assert!(runs[0].1.contains("scenario ") && runs[0].1.contains("trace "), "{}", runs[0].1);
    assert_eq!(runs[0], runs[1]);

    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("s.toml"), SCENARIO.replace("SETTINGS", "host = \"tandem\""))
        .expect("write a scenario");
    let run = |_| {
        let mut command = Command::new(cargo_bin!("tandem"));
        command.args(["sim", "s.toml"]).current_dir(dir.path()).assert().success().get_output().stdout.clone()
    };
    let runs = [0; 2].map(run);
    assert_eq!(runs[0], runs[1], "Tandem's own scheduler");
}

#[test]
fn mistakes_end_with_one_sentence_and_status_2() {
    let cases = [
        ("{ mistake = 1 }", "the scheduler 'scheduler.bpf.o' of the host failed at "),
        ("{ mistake = 2 }", "the program does not end"),
        ("{ mistake = 3 }", "where it may not run"),
        ("{ mistake = 7 }", "it gave up: examples/broken.bpf.c:84: task 1000 is one too many"),
        ("{ mistakes = 7 }", "has no setting `mistakes`; it has `mistake`, "),
    ];
    for (settings, expected) in cases {
        let (status, output, errors) = sim("broken", settings);
        assert_eq!((status, output.as_str()), (Some(2), ""), "{settings}: {errors}");
        assert!(errors.starts_with("tandem: s.toml: ") && errors.contains(expected), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn another_build_of_tandem_is_told_all_that_it_has_or_refused() {
    let (status, output, errors) = sim("other_build", "{}");
    assert_eq!((status, output.as_str()), (Some(2), ""), "{errors}");
    assert!(errors.contains("settings has 4 bytes in this build of tandem"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}
