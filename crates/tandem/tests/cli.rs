//! The command as a user meets it: help, errors and exit statuses.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::{fs, io, process};

const VERBS: [&str; 22] = [
    "topology",
    "place",
    "sim",
    "compare",
    "study",
    "replay",
    "what-if",
    "tune",
    "new",
    "build",
    "evaluate",
    "reproduce",
    "calibrate",
    "run",
    "verify",
    "prefer",
    "stat",
    "vms",
    "top",
    "doctor",
    "record",
    "schema",
];

fn tandem() -> Command {
    Command::new(cargo_bin!("tandem"))
}

fn stdout(args: &[&str]) -> String {
    let output = tandem().args(args).assert().success().get_output().stdout.clone();
    String::from_utf8(output).expect("output is UTF-8")
}

/// Runs a command that must reject its input: exit status 2, nothing on standard output, and one line on
/// standard error, which is returned.
fn rejection(args: &[&str], dir: &Path) -> String {
    let assert = tandem().args(args).current_dir(dir).assert().code(2).stdout("");
    let message = String::from_utf8(assert.get_output().stderr.clone()).expect("messages are UTF-8");
    assert!(message.starts_with("tandem: "), "{args:?}: {message}");
    assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
    message
}

#[test]
fn the_schema_of_scenarios_has_the_versions_and_preemption_models_of_linux() {
    let schema = stdout(&["schema", "scenario"]);
    for word in ["3.6", "4.2", "5.2", "6.12", "6.18", "7.3", "voluntary", "full", "lazy"] {
        assert!(schema.contains(&format!("\"const\": \"{word}\"")), "{word}");
    }
}

#[test]
fn version_names_the_command_and_its_release() {
    let expected = concat!("tandem ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(stdout(&["--version"]), expected);
}

#[test]
fn help_lists_every_verb() {
    let help = stdout(&["--help"]);
    for verb in VERBS {
        assert!(help.contains(&format!("\n  {verb} ")), "{verb} is missing in\n{help}");
    }
}

#[test]
fn help_of_every_verb_shows_examples() {
    for verb in VERBS {
        let help = stdout(&[verb, "--help"]);
        assert!(help.contains(&format!("Usage: tandem {verb}")), "{help}");
        assert!(help.contains("Examples:"), "no examples in\n{help}");
    }
}

#[test]
fn wrong_usage_exits_with_2() {
    let cases: [&[&str]; 5] = [
        &[],
        &["frobnicate"],
        &["--frobnicate"],
        &["sim"],
        &["topology", "--machine", "xeon-e5620-2s", "--frobnicate"],
    ];
    for args in cases {
        tandem().args(args).assert().code(2).stdout("");
    }
}

#[test]
fn a_missing_file_is_named_and_exits_with_2() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let cases: [&[&str]; 4] = [
        &["sim", "nowhere.toml"],
        &["topology", "--machine", "nowhere.toml"],
        &["topology", "--hwloc", "nowhere.xml"],
        &["topology", "--sysfs", "nowhere"],
    ];
    for args in cases {
        let message = rejection(args, dir.path());
        assert!(message.contains("nowhere"), "{args:?}: {message}");
    }
}

#[test]
fn an_unknown_experiment_exits_with_2() {
    // The folder of experiments is found from any folder of the project.
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let message = rejection(&["reproduce", "--quick", "frobnicate"], dir);
    assert!(message.contains("frobnicate"), "{message}");
    assert!(message.contains("rate-control"), "names what is allowed: {message}");
}

#[test]
fn an_unknown_key_is_told_with_file_and_line() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("typo.toml"), "# a comment\nfrobnicate = 1\n").expect("write an example");
    let message = rejection(&["sim", "typo.toml"], dir.path());
    assert!(message.contains("typo.toml:2"), "{message}");
    assert!(message.contains("frobnicate"), "{message}");
}

#[test]
fn a_file_that_is_not_utf8_exits_with_2() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("binary.toml"), b"\xff\xfe\x00").expect("write an example");
    rejection(&["sim", "binary.toml"], dir.path());
    rejection(&["topology", "--machine", "binary.toml"], dir.path());
    rejection(&["topology", "--hwloc", "binary.toml"], dir.path());
}

/// The shortest scenario.
const TINY: &str = "length = \"1ms\"\nmachine = \"xeon-e5620-2s\"\n[programs.hog]\nops = [{ compute = \"1ms\" }]\n\
    [[vm]]\ngroup = \"a\"\nvcpus = 1\nmemory = \"1GiB\"\nprograms = [\"hog\"]\n";

#[test]
fn a_trace_changes_nothing_in_the_run() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("tiny.toml"), TINY).expect("write an example");
    let printed = |args: &[&str]| {
        let command =
            tandem().args(["sim", "tiny.toml"]).args(args).current_dir(dir.path()).assert().success();
        command.get_output().stdout.clone()
    };
    let without = printed(&[]);
    for file in ["run.pftrace", "run.jsonl"] {
        assert_eq!(printed(&["--trace", file]), without);
        assert!(fs::metadata(dir.path().join(file)).expect("it is there").len() > 0, "{file}");
    }
}

#[test]
fn a_trace_that_cannot_be_made_exits_with_2_before_the_run() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("tiny.toml"), TINY).expect("write an example");
    fs::create_dir(dir.path().join("folder.pb")).expect("a folder can be made");
    for (file, told) in [("run.json", ".jsonl"), ("nowhere/run.jsonl", "nowhere"), ("folder.pb", "directory")]
    {
        let message = rejection(&["sim", "tiny.toml", "--trace", file], dir.path());
        assert!(message.contains(file) && message.contains(told), "{message}");
    }
}

#[test]
fn a_trace_that_cannot_be_finished_exits_with_1() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // Shells end a process that writes a larger file than `ulimit -f` allows; ignoring the signal makes it an
    // error.
    let script = "trap '' XFSZ; ulimit -f 1; exec \"$0\" sim tiny.toml --trace run.jsonl";
    let long = TINY
        .replace("\"1ms\"\nmachine", "\"1s\"\nmachine")
        .replace("[{ compute", "[{ forever = [{ sleep = \"1us\" }] }, { compute");
    fs::write(dir.path().join("tiny.toml"), long).expect("write an example");
    let mut shell = Command::new("bash");
    let assert =
        shell.args(["-c", script]).arg(cargo_bin!("tandem")).current_dir(dir.path()).assert().code(1);
    let message = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(message.starts_with("tandem: run.jsonl: "), "{message}");
    let files = fs::read_dir(dir.path()).expect("it can be listed");
    assert_eq!(files.count(), 1, "only the scenario is there");
}

#[test]
fn topology_as_json_counts_what_a_preset_has() {
    let json = stdout(&["topology", "--machine", "xeon-e5620-2s", "--format", "json"]);
    let machine: serde_json::Value = serde_json::from_str(&json).expect("valid JSON");
    for (key, count) in [("packages", 2), ("numa_nodes", 2), ("llcs", 2), ("cores", 8), ("pcpus", 16)] {
        assert_eq!(machine[key], count, "{key} in {json}");
    }
    assert_eq!(machine["distances"].as_array().map(Vec::len), Some(2), "{json}");
}

#[test]
fn fuzzing_starts_from_files_that_are_read() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let readers: [(&str, &[&str]); 2] = [("scenario", &["sim"]), ("hwloc", &["topology", "--hwloc"])];
    for (folder, command) in readers {
        let files: Vec<_> = fs::read_dir(seeds.join(folder)).expect("seeds are there").collect();
        assert!(!files.is_empty(), "{folder}");
        for file in files {
            tandem().args(command).arg(file.expect("seeds can be listed").path()).assert().success();
        }
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for args in [["schema", "scenario"], ["topology", "--machine=xeon-e5620-2s"]] {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let output = process::Command::new(cargo_bin!("tandem"))
            .args(args)
            .stdout(writer)
            .output()
            .expect("the command starts");
        assert!(output.status.success(), "{args:?}: {}", output.status);
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{args:?}");
    }
}

#[test]
fn settings_print_as_a_file_that_says_the_same() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("tandem.toml");
    fs::write(&file, "[rate_control]\nratelimit = \"0 s\"\n").expect("a file can be written");
    let config = file.to_str().expect("a temporary path is UTF-8");
    let printed = stdout(&["run", "--config", config, "--mode", "guest", "--print-config"]);
    assert!(printed.contains("mode = \"guest\"") && printed.contains("ratelimit = \"0 ns\""), "{printed}");
    fs::write(&file, &printed).expect("a file can be written");
    assert_eq!(stdout(&["run", "--config", config, "--print-config"]), printed);
}

#[test]
fn risks_are_ignored_by_the_file_or_by_options() {
    let printed = |arguments: &[&str]| {
        let text = stdout(&[&["run", "--print-config"], arguments].concat());
        let table = text.split("[ignore]\n").nth(1).expect("there is such a table").to_owned();
        table.lines().take(3).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(printed(&[]), ["limits = false", "cookies = false", "starvation = false"]);
    assert_eq!(printed(&["--ignore", "limits"]), ["limits = true", "cookies = false", "starvation = false"]);
    let others = ["--ignore", "cookies", "--ignore", "starvation"];
    assert_eq!(printed(&others), ["limits = false", "cookies = true", "starvation = true"]);
    tandem().args(["run", "--ignore", "everything"]).assert().code(2).stdout("");

    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("tandem.toml"), "[ignore]\nquotas = true\n").expect("a file can be written");
    let message = rejection(&["run", "--config", "tandem.toml"], dir.path());
    assert!(message.starts_with("tandem: tandem.toml:2: unknown field `quotas`"), "{message}");
}

/// What packages install beside the command, in a folder.
fn generated() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    tandem().args(["generate", "--date", "2026-01-31"]).arg(dir.path()).assert().success().stdout("");
    dir
}

#[test]
fn the_installed_settings_are_the_defaults() {
    let dir = generated();
    let file = dir.path().join("tandem.toml");
    let printed = |file: &Path| stdout(&["run", "--print-config", "--config", file.to_str().expect("UTF-8")]);
    let defaults = stdout(&["run", "--print-config"]);
    assert_eq!(printed(&file), defaults);

    // With every default uncommented, it says the same; so none has been left out, and none is a mistake.
    let text = fs::read_to_string(&file).expect("it is there");
    let is_setting = |line: &str| line.starts_with('#') && !line.starts_with("# ");
    let uncommented = |text: &str| -> String {
        text.lines().map(|line| if is_setting(line) { &line[1..] } else { line }.to_owned() + "\n").collect()
    };
    let (of_all, of_vms) = text.split_once("#[[vm]]").expect("exceptions for VMs come last");
    let settings = of_all.lines().filter(|line| is_setting(line)).count();
    assert_eq!(settings, defaults.lines().filter(|line| line.contains(" = ")).count(), "{text}");
    fs::write(&file, uncommented(of_all)).expect("a file can be written");
    assert_eq!(printed(&file), defaults);

    // Of the examples for VMs, each that says something is allowed beside those that say of which VM.
    let example = |key: &str| {
        let line = of_vms.lines().find(|line| line.starts_with(&format!("#{key} = ")));
        line.unwrap_or_else(|| panic!("there is no example of {key}: {text}")).to_owned()
    };
    assert_eq!(of_vms.lines().filter(|line| is_setting(line)).count(), 9, "{text}");
    let who = ["name", "user", "cgroup", "manager", "uuid"].map(example).join("\n");
    for what in ["home", "isolated", "exempt", "cores"].map(example) {
        let example = uncommented(&format!("#[[vm]]\n{who}\n{what}\n"));
        fs::write(&file, &example).expect("a file can be written");
        let printed = printed(&file);
        assert!(printed.ends_with(&example), "{example} is printed as {printed}");
    }
}

#[test]
fn every_verb_has_a_manual_page_with_its_examples_and_options() {
    let dir = generated();
    let by_hand = include_str!("../../../packaging/tandem.1");
    for verb in VERBS {
        let page = fs::read_to_string(dir.path().join(format!("man/tandem-{verb}.1"))).expect("it is there");
        for part in [" 1 2026-01-31 ", ".SH NAME", ".SH EXAMPLES", ".SH OPTIONS", ".SH \"SEE ALSO\""] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        assert!(by_hand.contains(&format!(".It Cm {verb}\n")), "tandem(1) does not tell of {verb}");
        assert!(by_hand.contains(&format!(".Xr tandem-{verb} 1")), "tandem(1) does not refer to {verb}");
    }
    assert!(dir.path().join("man/tandem-prefer-show.1").exists());
    assert!(!dir.path().join("man/tandem-generate.1").exists(), "it is for packages");

    let page = fs::read_to_string(dir.path().join("man/tandem.toml.5")).expect("it is there");
    for line in stdout(&["run", "--print-config"]).lines().filter(|line| !line.is_empty()) {
        let name = line.split(" = ").next().expect("there is a first part");
        assert!(page.contains(name), "{name} is missing in\n{page}");
    }
}

#[test]
fn shells_complete_every_verb() {
    let dir = generated();
    for file in ["tandem.bash", "_tandem", "tandem.fish"] {
        let text = fs::read_to_string(dir.path().join("completions").join(file)).expect("it is there");
        for verb in VERBS {
            assert!(text.contains(verb), "{verb} is missing in {file}");
        }
        for hidden in ["generate", "tandem-arm", "tandem__arm", "tandem__subcmd__arm"] {
            assert!(!text.contains(hidden), "{file} has the hidden verb {hidden}");
        }
    }
}

#[test]
fn mistakes_in_settings_exit_with_2() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let cases = [
        ("\n[fairness]\nslices = \"3 ms\"\n", "tandem: tandem.toml:3: unknown field `slices`"),
        ("watchdog = \"1 min\"\n", "tandem: tandem.toml: watchdog is 60 s; allowed is from 1 s to 30 s"),
    ];
    for (text, expected) in cases {
        fs::write(dir.path().join("tandem.toml"), text).expect("a file can be written");
        let message = rejection(&["run", "--config", "tandem.toml"], dir.path());
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn every_interval_has_a_unit_or_is_of_seconds() {
    for interval in ["0", "5", "5s", "500 ms"] {
        stdout(&["run", "--interval", interval, "--print-config"]);
    }
    tandem().args(["run", "--interval", "five", "--print-config"]).assert().code(2);
    stdout(&["vms", "--interval", "10ms"]);
    tandem().args(["vms", "--interval", "0"]).assert().code(2);
}

#[test]
fn a_service_manager_is_told_why_it_does_not_start() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("tandem.toml"), "watchdog = \"1 min\"\n").expect("a file can be written");
    let manager = UnixDatagram::bind(dir.path().join("notify")).expect("a socket");
    manager.set_nonblocking(true).expect("sockets can be told so");
    let mut command = tandem();
    command.args(["run", "--config", "tandem.toml"]).current_dir(dir.path());
    command.env("NOTIFY_SOCKET", dir.path().join("notify")).assert().code(2);

    let mut message = [0; 4096];
    let length = manager.recv(&mut message).expect("there is a message");
    let expected = "STATUS=tandem.toml: watchdog is 60 s; allowed is from 1 s to 30 s\n";
    assert_eq!(String::from_utf8_lossy(&message[..length]), expected);
    let error = manager.recv(&mut message).expect_err("there is one message");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn the_doctor_says_by_its_status_whether_the_scheduler_could_be_loaded() {
    let output = tandem().args(["doctor", "--json"]).output().expect("the command starts");
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    let findings = found["findings"].as_array().expect("a list");
    let missing: Vec<_> = findings.iter().filter(|finding| finding["level"] == "missing").collect();
    assert_eq!(found["is_loadable"], missing.is_empty(), "{found}");
    assert_eq!(output.status.code(), Some(i32::from(!missing.is_empty())), "{found}");

    let lines = tandem().arg("doctor").output().expect("the command starts");
    assert_eq!(lines.status.code(), output.status.code());
    let lines = String::from_utf8(lines.stdout).expect("output is UTF-8");
    assert_eq!(lines.lines().count(), findings.len(), "{lines}");
    for finding in missing {
        let message = finding["message"].as_str().expect("a sentence");
        assert!(lines.contains(message), "{message} is missing in\n{lines}");
    }
}

#[test]
fn a_recording_needs_a_file_that_can_be_written_and_a_time_with_a_unit() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (args, message) in [
        (&["record"][..], "--out"),
        (&["record", "--out", "a", "--for", "1 h"], "unknown unit `h`"),
        (&["record", "--out", "a", "--for", "0"], "is too short"),
        (&["record", "--out", "a", "--for", "1.5"], "write `1.5s` for seconds"),
        (&["record", "--out", "a", "--buffer", "8"], "has no unit"),
    ] {
        let assert = tandem().args(args).current_dir(dir.path()).assert().code(2).stdout("");
        let error = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(error.contains(message), "{args:?}: {error}");
    }
    fs::create_dir(dir.path().join("folder")).expect("a folder can be made");
    for out in ["folder", "none/a"] {
        let message = rejection(&["record", "--out", out, "--", "true"], dir.path());
        assert!(message.starts_with(&format!("tandem: --out {out}: ")), "{message}");
    }
    let left: Vec<_> = fs::read_dir(dir.path()).expect("it is there").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn a_preference_needs_somebody_and_something() {
    let cases: [&[&str]; 8] = [
        &["prefer"],
        &["prefer", "--cpus", "0"],
        &["prefer", "--pid", "1"],
        &["prefer", "--cpus", "0", "--nodes", "0", "--pid", "1"],
        &["prefer", "--cpus", "0", "--pid", "1", "--tid", "1"],
        &["prefer", "--cpus", "0", "--pid", "1", "--", "true"],
        &["prefer", "--latency-critical", "--cgroup", "/"],
        &["prefer", "--cpus", ",", "--pid", "1"],
    ];
    for args in cases {
        tandem().args(args).assert().code(2).stdout("");
    }
    tandem().args(["prefer", "clear"]).assert().code(2).stdout("");
}

#[test]
fn a_trial_that_cannot_be_made_is_refused_before_it_begins() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("typo.toml"), "# settings\nslice = 1\n").expect("a file can be written");
    let cases: [(&[&str], &str); 9] = [
        (&["--metric", " "], "--metric is empty"),
        (&["--arms", "kernel"], "a trial compares at least two arms, as in --arms kernel,tandem"),
        (&["--arms", "kernel,tandem,kernel"], "two arms have the name `kernel`; each needs its own"),
        (&["--arms", "kernel,lavd"], "`lavd` is no arm; allowed are kernel, tandem and tandem:FILE"),
        (&["--arm", "lavd"], "`lavd` is no arm; write --arm NAME=COMMAND"),
        (&["--arm", "a b=true"], "`a b` cannot name an arm"),
        (&["--arms", "kernel,tandem:typo.toml"], "typo.toml:2: unknown field `slice`"),
        (&["--arms", "kernel,tandem:nowhere.toml"], "nowhere.toml"),
        (
            &["--block", "2s", "--settle", "1800ms"],
            "of a block of 2s, 1.8s are left out; at least 500ms must be left",
        ),
    ];
    for (args, says) in cases {
        let message = rejection(&[&["verify"], args].concat(), dir.path());
        assert!(message.contains(says), "{args:?}: {message}");
    }
    let wrong: [&[&str]; 7] = [
        &["--block", "10ms"],
        &["--block", "twenty"],
        &["--blocks", "0"],
        &["--stop-when-worse", "-5%"],
        &["--margin", "wide"],
        &["--resume"],
        &["--end", "tandem"],
    ];
    for args in wrong {
        tandem().arg("verify").args(args).assert().code(2).stdout("");
    }
}

#[test]
fn what_a_trial_starts_ends_with_it() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    // It ignores SIGTERM, and leaves another process behind.
    let script = "trap '' TERM; sleep 1000 & echo $! $$ > numbers.new; mv numbers.new numbers; wait";
    let mut keeper = process::Command::new(cargo_bin!("tandem"))
        .args(["arm", "--", "sh", "-c", script])
        .current_dir(dir.path())
        .stdin(process::Stdio::piped())
        .spawn()
        .expect("the command starts");
    let numbers = loop {
        if let Ok(numbers) = fs::read_to_string(dir.path().join("numbers")) {
            break numbers;
        }
        std::thread::yield_now();
    };
    drop(keeper.stdin.take());
    let status = keeper.wait().expect("it ends");
    assert_eq!(status.code(), Some(128 + 9), "it was killed");
    for number in numbers.split_whitespace() {
        assert!(!Path::new("/proc").join(number).exists(), "process {number} is left");
    }

    let kept = process::Command::new(cargo_bin!("tandem"))
        .args(["arm", "--", "sh", "-c", "exit 7"])
        .stdin(process::Stdio::piped())
        .spawn()
        .and_then(|mut keeper| {
            let open = keeper.stdin.take();
            let status = keeper.wait();
            drop(open);
            status
        });
    assert_eq!(kept.expect("it ends").code(), Some(7));
    // The standard input of this one is closed from the beginning.
    tandem().args(["arm", "--", "sleep", "1000"]).assert().failure();
}

#[test]
fn a_policy_in_the_former_spelling_is_shown_in_the_present_one() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let text = "length = \"1ms\"\nmachine = \"xeon-e5620-2s\"\n[policy]\nhost = \"linux\"\nera = \"5.2\"\n";
    fs::write(dir.path().join("old.toml"), text).expect("write a scenario");
    assert_eq!(
        rejection(&["sim", "old.toml"], dir.path()),
        "tandem: old.toml:5: `era` belongs in the scheduler's table: write host = { linux = { version = \"5.2\" } }\n"
    );
    let xen_in_guests = ["sim", "old.toml", "--policy", "guest=xen-credit"];
    let assert = tandem().args(xen_in_guests).current_dir(dir.path()).assert().code(2).stdout("");
    let message = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(message.contains("a guest's scheduler is \"linux\", \"tandem\" or an object file"), "{message}");
}

#[test]
fn schedulers_that_the_command_line_names_have_an_effect() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let text = "length = \"1ms\"\nmachine = \"xeon-e5620-2s\"\n[programs.p]\nops = [{ compute = \"1ms\" }]\n[[vm]]\n\
        group = \"g\"\nvcpus = 1\nmemory = \"1GiB\"\nprograms = [\"p\"]\n";
    fs::write(dir.path().join("s.toml"), text).expect("write a scenario");
    for (policies, says) in [
        (["host=linux", "host=linux"], "`--policy host=` is given twice; keep one"),
        (["guest=linux", "guest=tandem"], "`--policy guest=` is given twice; keep one"),
        (["host=linux", "guest=linux"], "no VM of the scenario has a guest kernel; remove it"),
    ] {
        let [first, second] = policies;
        let message = rejection(&["sim", "s.toml", "--policy", first, "--policy", second], dir.path());
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn only_regular_files_and_pipes_of_the_shell_are_read() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let pipe = dir.path().join("pipe");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, mode).expect("make a pipe");
    let object = dir.path().join("object.toml");
    let scenario = |policy: &str| {
        format!(
            "length = \"1ms\"\nmachine = \"xeon-e5620-2s\"\n[policy]\nhost = {policy}\n[programs.p]\nops = [{{ compute \
             = \"1ms\" }}]\n[[vm]]\ngroup = \"g\"\nvcpus = 1\nmemory = \"1GiB\"\nprograms = [\"p\"]\n"
        )
    };
    fs::write(&object, scenario("{ object = \"/dev/zero\" }")).expect("write a scenario");
    let (pipe, object) = (pipe.to_str().expect("UTF-8"), object.to_str().expect("UTF-8"));
    let cases: [&[&str]; 9] = [
        &["sim", "/dev/zero"],
        &["sim", pipe],
        &["sim", object],
        &["check", "--cases", "1", "--policy", "host=object:/dev/zero"],
        &["check", pipe],
        &["topology", "--machine", pipe],
        &["topology", "--hwloc", "/dev/zero"],
        &["topology", "--hwloc", pipe],
        &["run", "--print-config", "--config", pipe],
    ];
    for args in cases {
        let message = rejection(args, dir.path());
        assert!(message.ends_with("cannot be read: it is not a regular file\n"), "{args:?}: {message}");
    }
    tandem().args(["sim", "/dev/stdin"]).write_stdin(scenario("\"xen-credit\"")).assert().success();
}

#[test]
fn a_dash_is_standard_input_as_often_as_it_is_read() {
    let text = "length = \"2ms\"\nmachine = \"$machine\"\n[parameters]\nmachine = \"1x2x1\"\n[programs.p]\n\
                ops = [{ forever = [{ compute = \"100us\" }, { sleep = \"100us\" }] }]\n[[processes]]\ngroup = \"g\"\n\
                memory = \"1GiB\"\nprocess = [{ program = \"p\", copies = 3 }]\n";
    tandem().args(["sim", "-"]).write_stdin(text).assert().success();
    let compare = ["compare", "-", "--policy", "linux", "--policy", "tandem", "--seeds", "2"];
    let machines = ["--machine", "1x2x1", "--machine", "2x2x1"];
    tandem().args(compare).args(machines).write_stdin(text).assert().success();
    for verb in [&["sim", "-"][..], &compare] {
        let output =
            tandem().args(verb).write_stdin("length = \"2ms\"\nlenght = 1\n").output().expect("it starts");
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.starts_with("tandem: standard input:2: "), "{message}");
    }
}

#[test]
fn names_in_files_cannot_steer_the_terminal() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let scenario = "length = \"1ms\"\nmachine = \"xeon-e5620-2s\"\n[programs.p]\nops = [{ compute = \"1ms\" }]\n\
                    [[vm]]\ngroup = \"a\\u001b[31m\"\nvcpus = 1\nmemory = \"1GiB\"\nprograms = [\"p\"]\n";
    fs::write(dir.path().join("s.toml"), scenario).expect("write a scenario");
    for verb in ["sim", "check"] {
        let message = rejection(&[verb, "s.toml"], dir.path());
        let expected = "tandem: s.toml:6: the control character `\\u{1b}` is not allowed; remove it\n";
        assert_eq!(message, expected);
    }
}
