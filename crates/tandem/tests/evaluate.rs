//! `tandem evaluate`: what it prints, and what a hostile source can reach.

use assert_cmd::cargo::cargo_bin;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const SECRET: &str = "zq-secret-zq";

fn evaluate(file: &Path, cache: &Path, options: &[&str]) -> Output {
    let mut command = Command::new(cargo_bin!("tandem"));
    command.arg("evaluate").arg(file).args(options).env("XDG_CACHE_HOME", cache).output().unwrap()
}

/// The JSON of a candidate that was judged.
fn judged(file: &Path, cache: &Path, suite: &str) -> Value {
    let output = evaluate(file, cache, &["--suite", suite, "--format", "json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(!String::from_utf8_lossy(&output.stdout).contains(SECRET) && !said.contains(SECRET));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// That of a source.
fn judged_source(source: &str) -> Value {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("mine.bpf.c");
    fs::write(&file, source).unwrap();
    judged(&file, folder.path(), "tasks")
}

/// The reason for which a source has no number.
fn reason(source: &str) -> (String, String) {
    let result = judged_source(source);
    assert_eq!(result["combined_score"], "-inf", "{result:#}");
    let text = |key: &str| result["reasons"][0][key].as_str().unwrap().to_owned();
    assert!(!text("advice").is_empty());
    (text("kind"), text("message"))
}

#[test]
fn a_scheduler_has_the_same_number_each_time() {
    let cache = TempDir::new().unwrap();
    let object = scheduler_tests::object("honest");
    for suite in ["hosts", "guests", "tasks"] {
        let first = judged(&object, cache.path(), suite);
        let score = first["combined_score"].as_f64().unwrap_or_else(|| panic!("{first:#}"));
        assert!((0.5..2.0).contains(&score), "{score}");
        assert_eq!(first, judged(&object, cache.path(), suite), "with what is kept of Linux");
        assert_eq!(first["parts"].as_object().unwrap().len(), 3);
        let other = evaluate(&object, cache.path(), &["--suite", suite, "--seed", "2", "--format", "json"]);
        let other: Value = serde_json::from_slice(&other.stdout).unwrap();
        assert_ne!(first["suite_hash"], other["suite_hash"]);
    }
    // What is kept can be had again.
    for file in fs::read_dir(cache.path().join("tandem/evaluate")).unwrap() {
        fs::write(file.unwrap().path(), "[nonsense").unwrap();
    }
    assert!(judged(&object, cache.path(), "hosts")["combined_score"].is_f64());
}

#[test]
fn a_source_is_compiled_and_judged() {
    let source = include_str!("../../../tests/schedulers/cheats/base.bpf.h");
    assert!(judged_source(source)["combined_score"].is_f64());
    let weighted = include_str!("../../../tests/schedulers/examples/weighted.bpf.c");
    let (kind, message) = reason(&weighted.replace("clamp", "").replace("u64 vtime =", "u65 vtime ="));
    assert_eq!(kind, "compile");
    assert!(message.contains("mine.bpf.c:81:") || message.contains("mine.bpf.c:"), "{message}");
    assert!(message.contains("u65"), "{message}");
    assert_eq!(reason("int x;").0, "load");
}

#[test]
fn a_wrong_command_line_is_not_a_wrong_candidate() {
    let folder = TempDir::new().unwrap();
    let object = scheduler_tests::object("honest");
    for (file, options) in [
        (object.as_path(), &["--suite", "none"][..]),
        (&object, &[]),
        (&object, &["--suite", "hosts", "--split", "none"]),
        (Path::new("nowhere.bpf.o"), &["--suite", "hosts"]),
        (Path::new("/dev/null"), &["--suite", "hosts"]),
        (folder.path(), &["--suite", "hosts"]),
        (&object, &["--suite", "hosts", "--settings", "/dev/null"]),
        (Path::new("tandem"), &["--suite", "hosts", "--settings", "nowhere"]),
    ] {
        let output = evaluate(file, folder.path(), options);
        assert_eq!(output.status.code(), Some(2), "{file:?} {options:?}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_source_reads_no_file_of_the_user() {
    let folder = TempDir::new().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, format!("{SECRET}\nu65 {SECRET};\n")).unwrap();
    let secret = secret.to_str().unwrap();
    for source in [
        format!("#include \"{secret}\"\n"),
        format!("#include <{secret}>\n"),
        format!("#include_next \"{secret}\"\n"),
        format!("#import \"{secret}\"\n"),
        format!("asm(\".incbin \\\"{secret}\\\"\");\n"),
        format!("asm(\".include \\\"{secret}\\\"\");\n"),
        format!("const char x[] = {{\n#embed \"{secret}\"\n}};\n"),
        format!("#if __has_embed(\"{secret}\")\n#error there\n#endif\n#error not there\n"),
        format!("#if __has_include(\"{secret}\")\n#error there\n#endif\n#include \"{secret}\"\n"),
        format!("#pragma clang module load \"{secret}\"\n#include \"../../..{secret}\"\n"),
        "#include \"/etc/shadow\"\n".into(),
        "#include \"/proc/self/environ\"\n".into(),
        "#include \"/proc/self/fd/0\"\n".into(),
        "#include </dev/zero>\n".into(),
        "#include </dev/stdin>\n".into(),
        "#include \"/root/.ssh/id_rsa\"\n".into(),
    ] {
        let (kind, message) = reason(&source);
        assert!(["compile", "load"].contains(&kind.as_str()), "{source}: {kind} {message}");
        assert!(!message.contains("root:"), "{source}: {message}");
    }
}

#[test]
fn a_source_that_wants_all_of_the_machine_is_stopped() {
    let levels: String =
        (1..12).map(|at| format!("#define A{at} {}\n", format!("A{} ", at - 1).repeat(16))).collect();
    for source in [
        format!("#define A0 x\n{levels}int y = A11;\n"),
        format!("int x = {}1{};\n", "(".repeat(100_000), ")".repeat(100_000)),
        "char x[1UL << 34] = {1};\n".into(),
        format!("asm(\".fill {}, 8, 1\");\n", 1_u64 << 40),
        "#include __FILE__\n".into(),
        "struct a { struct a x[sizeof(struct a)]; };\n".repeat(1000),
    ] {
        let (kind, message) = reason(&source);
        assert!(["compile", "limit"].contains(&kind.as_str()), "{source:.60}: {kind} {message}");
        assert!(message.len() < 9_000);
    }
}

#[test]
fn a_scheduler_that_computes_for_ever_is_stopped() {
    let cache = TempDir::new().unwrap();
    let result = judged(&scheduler_tests::object("never_ends"), cache.path(), "tasks");
    assert_eq!(result["combined_score"], "-inf");
    assert_eq!(result["reasons"][0]["kind"], "limit", "{result:#}");
}

#[test]
fn settings_are_a_candidate() {
    let folder = TempDir::new().unwrap();
    let own = judged(Path::new("tandem"), folder.path(), "hosts");
    assert!(own["combined_score"].as_f64().is_some_and(|score| score > 1.0), "{own:#}");
    let settings = folder.path().join("mine");
    fs::write(&settings, "[fairness]\nslice = \"2ms\"\n[agent]\nenabled = false\n").unwrap();
    let with = |options: &[&str]| -> Value {
        let mut command = Command::new(cargo_bin!("tandem"));
        command.args(["evaluate", "--suite", "hosts", "--format", "json"]).args(options);
        let output = command.env("XDG_CACHE_HOME", folder.path()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let changed = with(&["--settings", settings.to_str().unwrap()]);
    assert_eq!(changed["candidate"], "mine");
    assert_eq!(changed["suite_hash"], own["suite_hash"]);
    assert_ne!(changed["object_hash"], own["object_hash"]);
    assert_ne!(changed["parts"], own["parts"]);
    assert_eq!(changed, with(&["tandem", "--settings", settings.to_str().unwrap()]));
    // What the scheduler does not read makes no other candidate.
    fs::write(&settings, "[agent]\nenabled = false\n").unwrap();
    let same = with(&["--settings", settings.to_str().unwrap()]);
    assert_eq!((&same["object_hash"], &same["parts"]), (&own["object_hash"], &own["parts"]));
}

#[test]
fn the_time_of_the_day_is_no_die() {
    let base = include_str!("../../../tests/schedulers/cheats/base.bpf.h");
    let source = format!("{base}\nconst char when[] SEC(\".rodata\") = __DATE__ __TIME__;\n");
    let first = judged_source(&source);
    std::thread::sleep(std::time::Duration::from_millis(1100));
    assert_eq!(first, judged_source(&source));
}

#[test]
fn files_of_others_are_neither_deleted_nor_believed() {
    let folder = TempDir::new().unwrap();
    let (cache, others) = (folder.path().join("cache/tandem"), folder.path().join("others"));
    fs::create_dir_all(&cache).unwrap();
    fs::create_dir(&others).unwrap();
    let precious = ["precious", "tandem-1-2-3-hosts-train-x.json", ".hidden"].map(|name| others.join(name));
    precious.iter().for_each(|file| fs::write(file, "precious").unwrap());
    std::os::unix::fs::symlink(&others, cache.join("evaluate")).unwrap();
    let object = scheduler_tests::object("honest");
    let first = judged(&object, &folder.path().join("cache"), "tasks");
    assert!(precious.iter().all(|file| fs::read(file).unwrap() == b"precious"));
    assert_eq!(fs::read_dir(&others).unwrap().count(), 3, "nothing is written through a link");
    // Nor is what others may write.
    fs::remove_file(cache.join("evaluate")).unwrap();
    assert_eq!(first, judged(&object, &folder.path().join("cache"), "tasks"));
    let kept = fs::read_dir(cache.join("evaluate")).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&kept).unwrap().replace("\"done\":", "\"done\":1");
    fs::write(&kept, text).unwrap();
    assert_ne!(first, judged(&object, &folder.path().join("cache"), "tasks"), "one's own file is believed");
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(&kept, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(first, judged(&object, &folder.path().join("cache"), "tasks"));
}

#[test]
fn what_a_stranger_writes_begins_no_line() {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("mine.bpf.c");
    fs::write(&file, "#error x\n#pragma GCC error \"a\\nscore 9.0000\"\n").unwrap();
    let output = evaluate(&file, folder.path(), &["--suite", "tasks"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("score 9.0000") && !text.contains("\nscore 9"), "{text}");
}
