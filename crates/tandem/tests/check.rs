//! `tandem check`, as a user sees it.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Output, Stdio};

fn check(args: &[&str], dir: &Path) -> Output {
    Command::new(cargo_bin!("tandem")).arg("check").args(args).current_dir(dir).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A scheduler with one queue, first come, first served: it knows no weights.
fn fifo() -> String {
    format!("host=object:{}", scheduler_tests::object("fifo").display())
}

#[test]
fn mistakes_are_told_in_one_sentence() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("bad.bpf.o"), "no object").unwrap();
    let cases: [(&[&str], &str); 10] = [
        (&["--policy", "guest=tandem"], "write host=NAME"),
        (&["--policy", "host=none"], "is no scheduler"),
        (&["--policy", "host=object:none.bpf.o", "--cases", "1"], "none.bpf.o"),
        (&["--except", "host=object:bad.bpf.o", "--cases", "1"], "/bad.bpf.o: "),
        (&["--from-case", "18446744073709551615", "--for", "1s"], "numbers from 0 to 1000000000000000000"),
        (&["--promise", "all"], "there is no promise 'all'; there are"),
        (&["--for", "2"], "a time with its unit"),
        (&["--for", "0s"], "longer than 0s"),
        (&["--cases", "0"], "whole numbers from 1"),
        (&["none.toml"], "none.toml"),
    ];
    for (args, message) in cases {
        let output = check(args, dir.path());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(message), "{args:?}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("drawn.toml"), "nobody has such a file");
    }
}

#[test]
fn what_is_found_is_a_scenario_that_breaks_the_same_promise() {
    let dir = tempfile::tempdir().unwrap();
    let fifo = fifo();
    let args = ["--policy", &fifo, "--promise", "shares", "--cases", "300", "--first", "--out", "found"];
    let output = check(&args, dir.path());
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let files: Vec<_> =
        fs::read_dir(dir.path().join("found")).unwrap().map(|file| file.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let scenario = fs::read_to_string(file).unwrap();
    assert!(scenario.starts_with("# Breaks P2 (shares): "), "{scenario}");
    let third = scenario.lines().nth(2).unwrap();
    assert!(third.starts_with("# Found by `tandem check --seed 1` as case "), "{third}");

    let file = file.to_str().unwrap();
    let output = check(&["--promise", "shares", file], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("P2 shares: "), "{}", text(&output.stdout));
    let output = Command::new(cargo_bin!("tandem")).args(["sim", file]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_search_that_finds_nothing_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let output = check(&["--policy", "host=linux", "--promise", "runs", "--cases", "8"], dir.path());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("8 cases, 0 promises broken"));
}

/// Sends the signal when the first of many cases is made small; exit status, output, and the text of each
/// file.
fn interrupted(signal: Signal) -> (Option<i32>, String, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(cargo_bin!("tandem"))
        .args(["check", "--policy", &fifo(), "--cases", "64", "--keep", "1000", "--out", "found"])
        .args(["--jobs", "1"])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(command.stderr.take().unwrap()).lines().map(Result::unwrap);
    lines.find(|line| line.contains("making the case")).expect("it makes small what it finds");
    kill_process(Pid::from_child(&command), signal).unwrap();
    lines.for_each(drop);
    let mut output = String::new();
    command.stdout.take().unwrap().read_to_string(&mut output).unwrap();
    let status = command.wait().unwrap();
    let files = fs::read_dir(dir.path().join("found")).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "toml"));
    (status.code(), output, files.map(|path| fs::read_to_string(path).unwrap()).collect())
}

#[test]
fn an_interrupt_ends_making_small_with_a_report() {
    for signal in [Signal::INT, Signal::TERM] {
        let (status, output, files) = interrupted(signal);
        assert_eq!(status, Some(1), "{output}");
        assert!(output.contains("\n64 cases, "), "{output}");
        let ended = files.iter().filter(|text| text.contains("not made small to the end")).count();
        assert!(ended > 1, "{ended} of {}", files.len());
        assert_eq!(files.len(), output.matches(".toml\n").count());
    }
}

#[test]
fn nothing_that_was_found_is_lost_when_the_command_is_killed() {
    let (status, _, files) = interrupted(Signal::KILL);
    assert_eq!(status, None);
    assert!(files.len() > 1);
    assert!(files.iter().all(|text| text.starts_with("# Breaks P")), "{files:?}");
}

/// Tasks of little weight that had the CPUs to themselves, and others of much that come after a second:
/// nobody waits longer than is promised, wherever they may run. What the light ones ran before is many turns
/// by what they weigh then.
#[test]
fn nobody_starves_when_heavier_tasks_come() {
    let dir = tempfile::tempdir().unwrap();
    let affinities = [("pinned", "affinity = { hard = \"0\" }"), ("free", "")];
    let caches: [(&str, &[&str]); 2] = [("one", &["0-3"]), ("two", &["0-1", "2-3"])];
    let mut files = Vec::new();
    for (light, heavy) in [(26, 25_600), (64, 25_600), (64, 2_560), (256, 25_600)] {
        for ((place, affinity), (layout, llcs)) in
            affinities.iter().flat_map(|affinity| caches.iter().map(move |layout| (affinity, layout)))
        {
            let machine: String = llcs
                .iter()
                .enumerate()
                .map(|(number, cpus)| {
                    format!(
                        "[[machine.llc]]\nnumber = {number}\nsize = \"8MiB\"\n\
                         [[machine.cores]]\npackage = 0\nnode = 0\nllc = {number}\ncpus = [\"{cpus}\"]\n"
                    )
                })
                .collect();
            let vcpus = if *place == "pinned" { 1 } else { 4 };
            let scenario = format!(
                "length = \"14s\"\nwarmup = \"500ms\"\n[policy]\nhost = \"tandem\"\n\
                 [machine]\nname = \"m\"\n[[machine.node]]\nnumber = 0\nmemory = \"16GiB\"\nbandwidth = \"40GB/s\"\n{machine}\
                 [programs.early]\nops = [{{ forever = [{{ compute = \"10ms\" }}] }}]\n\
                 [programs.late]\nops = [{{ sleep = \"1s\" }}, {{ forever = [{{ compute = \"10ms\" }}] }}]\n\
                 [[vm]]\ngroup = \"light\"\nvcpus = {vcpus}\nmemory = \"64MiB\"\nweight = {light}\nprograms = [\"early\"]\ncount = 2\n{affinity}\n\
                 [[vm]]\ngroup = \"heavy\"\nvcpus = {vcpus}\nmemory = \"64MiB\"\nweight = {heavy}\nprograms = [\"late\"]\n{affinity}\n"
            );
            let name = format!("{place}-{layout}-{light}-{heavy}.toml");
            fs::write(dir.path().join(&name), scenario).unwrap();
            files.push(name);
        }
    }
    let mut args = vec!["--promise", "waits", "--promise", "runs"];
    args.extend(files.iter().map(String::as_str));
    let output = check(&args, dir.path());
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

/// Cases that were found and mended: they keep what they broke.
#[test]
fn what_was_mended_stays_mended() {
    let mended = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mended");
    let files: Vec<String> = fs::read_dir(&mended)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!files.is_empty());
    let output = check(&files.iter().map(String::as_str).collect::<Vec<_>>(), &mended);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
