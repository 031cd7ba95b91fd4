//! `tandem sim` with compiled schedulers from files.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use scheduler_tests::object;
use std::fs;
use std::path::Path;

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
    outcome(dir.path(), &["sim", "s.toml", "--policy", "host=object:scheduler.bpf.o"])
}

/// Exit status, output and errors of `tandem` with these arguments in a folder.
fn outcome(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = Command::new(cargo_bin!("tandem"))
        .args(arguments)
        .current_dir(folder)
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
        ("{ mistakes = 7 }", "there is no setting `mistakes`; read-only variables are: `mistake`, "),
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

/// Two VMs whose tasks take one lock most of the time; GUEST is the scheduler of both.
const LOCKS: &str = r#"length = "100ms"
machine = "xeon-e5620-2s"
[policy]
host = "linux"
guest = GUEST
[programs.taker]
ops = [{ forever = [{ lock = "inode" }, { compute = "200us" }, { unlock = "inode" }, { compute = "20us" }] }]
[[vm]]
group = "vms"
count = 2
memory = "1GiB"
vcpus = 4
affinity = { hard = "0-3" }
guest = { process = [{ program = "taker", copies = 4 }] }
"#;

/// What `tandem sim` prints of LOCKS with this guest: its status, its table, and its errors.
fn locks(guest: &str) -> (Option<i32>, String, String) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("s.toml"), LOCKS.replace("GUEST", guest)).expect("write a scenario");
    outcome(dir.path(), &["sim", "s.toml", "--stat"])
}

#[test]
fn guests_of_compiled_schedulers_halt_for_spin_locks_unless_they_are_not_paravirtual() {
    for (guest, halts) in [
        ("\"tandem\"", true),
        ("{ tandem = { paravirt_locks = true } }", true),
        ("{ tandem = { paravirt_locks = false } }", false),
    ] {
        let (status, table, errors) = locks(guest);
        assert_eq!((status, errors.as_str()), (Some(0), ""));
        assert_eq!(table.contains("lock_halts"), halts, "{guest}: {table}");
    }
}

#[test]
fn a_host_has_no_paravirtual_locks() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let policy = "host = { tandem = { paravirt_locks = false } }";
    fs::write(dir.path().join("s.toml"), SCENARIO.replace("SETTINGS", policy)).expect("write a scenario");
    let mut command = Command::new(cargo_bin!("tandem"));
    let run = command.args(["sim", "s.toml"]).current_dir(dir.path()).assert().code(2);
    let errors = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(errors.contains("a host has no `paravirt_locks`; set them in `guest`"), "{errors}");
}

#[test]
fn cpus_that_idle_while_tasks_wait_are_a_warning() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let host = "host = { object = \"scheduler.bpf.o\" }";
    let scenario = SCENARIO.replace("SETTINGS", host).replace("affinity = { hard = \"2-3\" }\n", "");
    let scenario = scenario.replace("copies = 8", "copies = 40");
    fs::write(dir.path().join("s.toml"), scenario).expect("write a scenario");
    for (scheduler, is_lazy) in [("one_cpu", true), ("fifo", false)] {
        fs::copy(object(scheduler), dir.path().join("scheduler.bpf.o")).expect("copy an object");
        let mut command = Command::new(cargo_bin!("tandem"));
        let run = command.args(["sim", "s.toml"]).current_dir(dir.path()).assert().success();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (output, errors) = (text(&run.get_output().stdout), text(&run.get_output().stderr));
        assert!(!is_lazy || output.contains("\nwasted "), "{scheduler}: {output}");
        assert_eq!(
            errors.contains("warning: s.toml: the pCPUs idled for "),
            is_lazy,
            "{scheduler}: {errors}"
        );
    }
}
