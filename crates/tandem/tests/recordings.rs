//! `tandem replay`, `what-if` and `tune` on recordings and plans that are odd, broken or private.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tandem_recording::{Recording, Vm};
use tempfile::TempDir;

/// Two compressors and timers on one CPU of Debian's 7.3.4.
const MIX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tandem-lab/tests/twin/recordings/mix.parquet");

/// A hundred tasks of cgroups, on the same.
const MANY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tandem-lab/tests/twin/recordings/cg.parquet");

/// A folder with files of a test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A file of that text.
    fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The recording of the compressors, changed.
    fn recording(&self, name: &str, change: impl FnOnce(&mut Recording)) -> String {
        let mut recording = Recording::read(Path::new(MIX)).unwrap();
        change(&mut recording);
        let mut bytes = Vec::new();
        recording.write(&mut bytes).unwrap();
        fs::write(self.path(name), bytes).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    fn mode(&self, name: &str) -> u32 {
        self.path(name).metadata().unwrap().permissions().mode() & 0o777
    }
}

fn tandem(args: &[&str]) -> Command {
    let mut command = Command::new(cargo_bin!("tandem"));
    command.args(args);
    command
}

fn output(args: &[&str]) -> String {
    let output = tandem(args).assert().success().get_output().stdout.clone();
    String::from_utf8(output).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&output(&[args, &["--format", "json"]].concat())).unwrap()
}

/// The one sentence by which input is refused.
fn rejection(args: &[&str]) -> String {
    let assert = tandem(args).assert().code(2).stdout("");
    let message = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert_eq!(message.lines().count(), 1, "{args:?}: {message}");
    message
}

fn groups(replay: &Value) -> Vec<&str> {
    replay["groups"].as_array().unwrap().iter().map(|group| group["group"].as_str().unwrap()).collect()
}

/// Gives processes of that name another one.
fn rename(recording: &mut Recording, from: &str, to: &str) {
    for task in recording.about.tasks.iter_mut().filter(|task| task.process == from) {
        task.process = to.into();
    }
}

#[test]
fn groups_of_one_name_are_told_apart_and_none_is_all() {
    let folder = Folder::new();
    let odd = folder.recording("odd.parquet", |recording| {
        let vm = |name: &str, pid| Vm { name: name.into(), pid, ..Vm::default() };
        recording.about.vms = vec![vm("web", 70), vm("web", 71)];
        for task in &mut recording.about.tasks {
            task.vm = ["gzip", "bzip2"].iter().position(|name| task.process == *name);
        }
        rename(recording, "sh", "total");
        rename(recording, "md5sum", "*");
        rename(recording, "sleep", "two\nlines");
    });
    let replay = json(&["replay", &odd, "--runs", "1"]);
    let found = groups(&replay);
    for name in ["web (VM of process 70)", "web (VM of process 71)", "total (process)", "* (process)"] {
        assert!(found.contains(&name), "{name} is not in {found:?}");
    }
    assert!(rejection(&["replay", &odd, "--set", "total.nice=5"]).contains("no group 'total'"));
    // A change of one is no change of the other, nor of all; and a plan says the same.
    let plan = folder.path("plan.toml");
    let plan = plan.to_str().unwrap();
    let changes = [
        "--set",
        "web (VM of process 71).nice=19",
        "--set",
        "* (process).nice=5",
        "--set",
        "two\nlines.nice=1",
    ];
    let said = json(&[&["replay", &odd, "--runs", "1", "--out", plan], &changes[..]].concat());
    assert_eq!(json(&["replay", plan, "--runs", "1"]), said);
    assert_eq!(fs::read_to_string(plan).unwrap().matches("\nnice = ").count(), 3);
    output(&["tune", &odd, "--objective", "wait(total (process))", "--trials", "1"]);
}

#[test]
fn a_recording_that_is_too_long_is_refused_in_its_own_words() {
    let folder = Folder::new();
    let long =
        folder.recording("long.parquet", |recording| recording.about.length_ns = 25 * 3_600_000_000_000);
    for args in [&["replay"][..], &["what-if"], &["tune", "--objective", "span"]] {
        let message = rejection(&[args, &[&long]].concat());
        assert!(message.contains("long.parquet: the recording is 25.0 h long"), "{message}");
        assert!(message.contains("--for"), "{message}");
    }
    // One of less than a day runs for a day, and says if that is not enough.
    let day = folder.recording("day.parquet", |recording| recording.about.length_ns = 23 * 3_600_000_000_000);
    assert_eq!(json(&["replay", &day, "--runs", "1"])["longest_run_s"], 86_400.0);
}

#[test]
fn what_is_wrong_with_a_recording_names_its_file_and_what_to_do() {
    let folder = Folder::new();
    let machine =
        folder.recording("machine.parquet", |recording| recording.about.machine = Some("name = 3".into()));
    let cpus = folder.recording("cpus.parquet", |recording| {
        (recording.about.machine, recording.about.cpus) = (None, 60_000);
    });
    let bytes = fs::read(MIX).unwrap();
    let cut = folder.path("cut.parquet");
    fs::write(&cut, &bytes[..bytes.len() - 9]).unwrap();
    let mut other = bytes.clone();
    (60..90).for_each(|at| other[at] ^= 0x55);
    let other_path = folder.path("other.parquet");
    fs::write(&other_path, other).unwrap();
    let empty = folder.recording("empty.parquet", |recording| recording.events.clear());
    for path in [&machine, &cpus, cut.to_str().unwrap(), other_path.to_str().unwrap(), &empty] {
        let plan = folder.file("plan.toml", &format!("recording = \"{path}\"\n"));
        let name = Path::new(path).file_name().unwrap().to_str().unwrap();
        for args in [
            &["replay", path][..],
            &["replay", &plan],
            &["what-if", path],
            &["tune", path, "--objective", "span"],
        ] {
            let message = rejection(args);
            assert!(message.contains(&format!("{name}: ")), "{args:?}: {message}");
            assert!(
                message.contains("record again") || message.contains("record for"),
                "{args:?}: {message}"
            );
        }
    }
}

#[test]
fn plans_that_say_nonsense_are_refused_in_one_sentence() {
    let folder = Folder::new();
    for (text, says) in [
        ("", "missing field `recording`"),
        ("recording = \"\"", "directory"),
        ("recording = \"gone.parquet\"", "gone.parquet: cannot be read"),
        ("recording = \"plan.toml\"", "is not a recording"),
        ("recording = 3", "expected a path"),
        ("recording = \"MIX\"\nrecording = \"MIX\"", "duplicate key"),
        ("recording = \"MIX\"\nspeed = 3", "unknown field `speed`"),
        ("recording = \"MIX\"\nmachine = \"gone.toml\"", "gone.toml` is neither a file nor a machine"),
        (
            "recording = \"MIX\"\nscheduler = \"fifo\"",
            "there is no scheduler 'fifo'; a replay takes linux, tandem",
        ),
        ("recording = \"MIX\"\nscheduler = \"xen-credit\"", "not the tasks of a Linux machine"),
        ("recording = \"MIX\"\nscheduler = \"object:gone.o\"", "gone.o"),
        ("recording = \"MIX\"\nsettings = \"gone.toml\"", "name that, too"),
        ("recording = \"MIX\"\nscheduler = \"tandem\"\nsettings = \"gone.toml\"", "gone.toml"),
        ("recording = \"MIX\"\nscheduler = \"tandem\"\nslice = \"3 ms\"", "no slice to set"),
        ("recording = \"MIX\"\nslice = \"3\"", "has no unit"),
        ("recording = \"MIX\"\nslice = \"18446744073709551615 ns\"", "from 100 us to 1 s"),
        ("recording = \"MIX\"\n[group.nobody]\nnice = 1", "no group 'nobody'"),
        ("recording = \"MIX\"\n[group.gzip]\n[group.gzip]", "duplicate key"),
        ("recording = \"MIX\"\n[group.gzip]\nnice = 128", "expected a whole number"),
        ("recording = \"MIX\"\n[group.gzip]\nweight = 0", "from 1 to 10000"),
        ("recording = \"MIX\"\n[group.gzip]\nweight = 99999999999", "expected a whole number"),
        ("recording = \"MIX\"\n[group.gzip]\ncopies = 1001", "1 to 1000"),
        ("recording = \"MANY\"\n[group.\"*\"]\ncopies = 1000", "let groups be there less often"),
        ("recording = \"MIX\"\n[group.gzip]\ncpus = \"0-4294967295\"", "group 'gzip': '0-4294967295'"),
        ("recording = \"MIX\"\n[group.gzip]\ncpus = \"\"", "names no CPU"),
        ("recording = \"MIX\"\n[group.gzip]\ncpus = \"\\u001b[31m\"", "is no list of CPUs"),
    ] {
        let plan = folder.file("plan.toml", &text.replace("MIX", MIX).replace("MANY", MANY));
        let message = rejection(&["replay", &plan]);
        assert!(message.contains(says), "{text}: {message}");
        assert!(!message.contains('\u{1b}'), "{message:?}");
    }
    for verb in [&["what-if"][..], &["tune", "--objective", "span"]] {
        let plan = folder.file("plan.toml", &format!("recording = \"{MIX}\"\n"));
        assert!(rejection(&[verb, &[&plan]].concat()).contains("is a plan"));
    }
    let out = folder.path("plan");
    assert!(rejection(&["replay", MIX, "--out", out.to_str().unwrap()]).contains("ends in .toml"));
    // The command line is refused with a hint to its help.
    let refused = tandem(&["replay", MIX, "--policy", "host=xen-credit"]).assert().code(2).stdout("");
    assert!(String::from_utf8_lossy(&refused.get_output().stderr).contains("a replay takes linux, tandem"));
}

#[test]
fn a_plan_finds_its_files_from_its_own_folder_and_knows_its_recording() {
    let folder = Folder::new();
    fs::copy(MIX, folder.path("mix.parquet")).unwrap();
    let machine = output(&["topology", "--machine", "xeon-e5620-2s", "--format", "toml"]);
    folder.file("machine.toml", &machine);
    folder.file("plan.toml", "recording = \"mix.parquet\"\nmachine = \"machine.toml\"\n");
    fs::create_dir(folder.path("elsewhere")).unwrap();
    let replay = |plan: &str| {
        let mut command = tandem(&["replay", plan, "--runs", "1", "--out", "again.toml"]);
        let output = command.current_dir(folder.path("elsewhere")).assert().success().get_output().clone();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (first, notes) = replay("../plan.toml");
    assert!(!notes.contains("made of"), "{notes}");
    // Written anew, it may move.
    fs::rename(folder.path("elsewhere/again.toml"), folder.path("elsewhere/../moved.toml")).unwrap();
    assert_eq!(replay("../moved.toml").0, first);
    folder.recording("mix.parquet", |recording| recording.about.started_unix_ns = Some(1));
    let (_, notes) = replay("../moved.toml");
    assert!(notes.contains("the plan was made of another recording"), "{notes}");
}

#[test]
fn what_is_made_of_a_private_recording_is_private() {
    let folder = Folder::new();
    for (name, mode, expected) in
        [("private", 0o600, 0o600), ("of-group", 0o640, 0o600), ("public", 0o644, 0o644)]
    {
        let recording = folder.path(&format!("{name}.parquet"));
        fs::copy(MIX, &recording).unwrap();
        fs::set_permissions(&recording, Permissions::from_mode(mode)).unwrap();
        let recording = recording.to_str().unwrap();
        let path = |end: &str| folder.path(&format!("{name}{end}")).to_str().unwrap().to_owned();
        output(&["replay", recording, "--runs", "1", "--out", &path(".toml")]);
        // A plan is no way round it.
        output(&["replay", &path(".toml"), "--runs", "1", "--out", &path("-again.toml")]);
        output(&["what-if", recording, "--runs", "2", "--out", &path("-report")]);
        for file in [".toml", "-again.toml", "-report/what-if.html", "-report/what-if.json"] {
            // The umask of whoever runs the test may take more away.
            assert_eq!(folder.mode(&format!("{name}{file}")) & !expected, 0, "{name}{file}");
        }
    }
}

#[test]
fn work_that_is_not_done_in_time_is_said_everywhere() {
    let crowd = ["replay", MIX, "--runs", "1", "--copies", "bzip2=40"];
    let replay = json(&crowd);
    assert_eq!(replay["incomplete_runs"], 1);
    let longest_s = replay["longest_run_s"].as_f64().unwrap();
    // Ten times the recording, in which something runs from the first moment to the last.
    let recorded_s = replay["total"]["recorded"]["span_s"].as_f64().unwrap();
    assert!((longest_s / recorded_s - 10.0).abs() < 0.1, "{longest_s} s of {recorded_s} s");
    let words = format!("Not trusted: in 1 of 1 runs not all of the work was done in {longest_s:.1} s");
    assert!(output(&crowd).contains(&words));
    let answer = json(&["what-if", MIX, "--runs", "2"]);
    assert!(answer["answers"].as_array().unwrap().iter().all(|it| it["incomplete_runs"].is_number()));
}

#[test]
fn no_effect_takes_away_more_than_all() {
    let answer = json(&["what-if", MIX, "--runs", "2"]);
    for outcome in
        answer["answers"].as_array().unwrap().iter().flat_map(|it| it["outcomes"].as_array().unwrap())
    {
        for measure in ["run_s", "wait_s", "wait_p99_us", "span_s"] {
            let low = outcome[measure]["low_pct"].as_f64().unwrap_or(0.0);
            assert!(low >= -100.0, "{measure} of {}: {low}", outcome["group"]);
        }
    }
}

#[test]
fn a_command_that_cannot_be_recorded_is_refused_before_anything_begins() {
    let folder = Folder::new();
    let text = folder.file("text", "no program");
    let here = folder.0.path().to_str().unwrap();
    let out = format!("{here}/out.parquet");
    for (command, says) in [
        ("", "'' cannot be run: the command is empty"),
        ("no-such-command", "no such program in the folders of PATH"),
        ("/no/such-file", "there is no such file"),
        (&text, "no file that may be executed"),
        (here, "it is a folder"),
    ] {
        let message = rejection(&["record", "--out", &out, "--", command]);
        assert!(message.contains(says), "{command}: {message}");
    }
    assert_eq!(fs::read_dir(here).unwrap().count(), 1);
}
