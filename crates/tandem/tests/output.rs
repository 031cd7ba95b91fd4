//! What a verb does when nobody takes its results, or they cannot be stored.

use assert_cmd::cargo::cargo_bin;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Two compressors and timers on one CPU of Debian's 7.3.4.
const MIX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tandem-lab/tests/twin/recordings/mix.parquet");
const MACHINE: &str = "xeon-e5620-2s";

/// A command line for each verb that ends by itself, without rights.
const COMMAND_LINES: [&[&str]; 10] = [
    &["--help"],
    &["--version"],
    &["replay", "--help"],
    &["topology", "--machine", MACHINE],
    &["topology", "--machine", MACHINE, "--format", "json"],
    &["place", "--machine", MACHINE, "--vcpus", "2", "--memory", "1GiB"],
    &["schema", "scenario"],
    &["replay", MIX, "--runs", "1"],
    &["what-if", MIX, "--runs", "2", "--format", "json"],
    &["tune", MIX, "--objective", "span", "--trials", "1"],
];

fn run(args: &[&str], out: impl Into<Stdio>) -> Output {
    let mut command = Command::new(cargo_bin!("tandem"));
    command.args(args).stdout(out).stderr(Stdio::piped()).stdin(Stdio::null());
    command.spawn().and_then(|child| child.wait_with_output()).expect("the command runs")
}

/// The last line on standard error: others are progress.
fn last_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn output_that_cannot_be_written_is_reported_and_fails() {
    for args in COMMAND_LINES {
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let output = run(args, full);
        let line = last_line(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {line}");
        assert!(line.starts_with("tandem: standard output cannot be written: "), "{args:?}: {line}");
    }
}

#[test]
fn a_pipe_that_nobody_reads_is_no_failure() {
    for args in COMMAND_LINES {
        let (reader, writer) = io::pipe().expect("there is a pipe");
        drop(reader);
        let output = run(args, writer);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!text.contains("error") && !text.contains("cannot"), "{args:?}: {text}");
        assert_eq!(output.status.code(), Some(0), "{args:?}: {text}");
    }
}

#[test]
fn files_are_written_also_if_nobody_reads_the_output() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let report = folder.path().join("report");
    let plan = folder.path().join("plan.toml");
    let text = |path: &Path| path.to_str().expect("it is text").to_owned();
    for args in [
        &["what-if", MIX, "--runs", "2", "--out", &text(&report)][..],
        &["replay", MIX, "--runs", "1", "--out", &text(&plan)],
    ] {
        let (reader, writer) = io::pipe().expect("there is a pipe");
        drop(reader);
        assert!(run(args, writer).status.success(), "{args:?}");
    }
    assert!(report.join("what-if.html").exists() && report.join("what-if.json").exists() && plan.exists());
}

#[test]
fn progress_is_on_standard_error_without_a_terminal() {
    for (args, last) in [
        (&["what-if", MIX, "--runs", "2"][..], "tandem: what-if: 10 of 10 runs"),
        (&["tune", MIX, "--objective", "span", "--trials", "1"], "tandem: tune: 1 of 1 trials, best "),
    ] {
        let output = run(args, Stdio::piped());
        assert!(last_line(&output).starts_with(last), "{args:?}: {}", last_line(&output));
    }
}

#[test]
fn a_table_of_results_is_a_parquet_file_and_no_text_for_a_terminal() {
    let policies = ["--policy", "linux", "--policy", "tandem", "--seeds", "2"];
    for args in [
        &["sim", "hackbench"][..],
        &[&["compare", "hackbench"][..], &policies].concat(),
        &[&["compare", "hackbench", "--machine", "1x4x1", "--machine", "1x8x1"][..], &policies].concat(),
    ] {
        let args = [args, &["--format", "parquet"]].concat();
        let output = run(&args, Stdio::piped());
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        let file = output.stdout;
        assert!(file.starts_with(b"PAR1") && file.ends_with(b"PAR1"), "{args:?}");
        for column in ["scenario", "machine", "policy", "seed", "group", "measure", "unit", "value"] {
            let has = file.windows(column.len()).any(|bytes| bytes == column.as_bytes());
            assert!(has, "{args:?}: {column}");
        }
    }
}
