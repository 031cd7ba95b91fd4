//! `tandem build`: what it makes of sources, and what it says where there is nothing to make.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{self, Stdio};
use tempfile::{TempDir, tempdir};

/// A source that needs no headers, and is no scheduler.
const PLAIN: &str = "char _license[] __attribute__((section(\"license\"))) = \"GPL\";\n";
const NO_SCHEDULER: &str = "defines no scheduler";

fn tandem(folder: &Path) -> Command {
    let mut command = Command::new(cargo_bin!("tandem"));
    command.current_dir(folder);
    command
}

fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempdir().expect("a temporary directory");
    for (name, text) in files {
        fs::write(folder.path().join(name), text).expect("a file can be written");
    }
    folder
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder can be listed");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// What a command line that must fail with this status says.
fn failure(command: &mut Command, status: i32) -> String {
    let assert = command.assert().code(status).stdout("");
    String::from_utf8_lossy(&assert.get_output().stderr).into_owned()
}

/// A program that says it is clang of this version, and does what a script says when it is to compile.
fn false_clang(path: &Path, version: &str, script: &str) {
    let text =
        format!("#!/bin/sh\nif [ \"$1\" = -v ]; then echo clang version {version} >&2; exit; fi\n{script}\n");
    fs::write(path, text).expect("a script can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
}

/// One line of this command, and before it whatever clang says.
fn own_line(said: &str) -> &str {
    said.lines().last().filter(|line| line.starts_with("tandem: ")).unwrap_or_else(|| panic!("{said}"))
}

#[test]
fn what_a_source_has_wrong_is_told_by_clang_and_leaves_the_old_object() {
    let folder = folder_with(&[
        ("type.bpf.c", "#include <scx/common.bpf.h>\n\nint x = nothing;\n"),
        ("header.bpf.c", "#include <scx/nothing.bpf.h>\n"),
        ("good.bpf.c", PLAIN),
    ]);
    for (source, says) in [
        ("type.bpf.c", "type.bpf.c:3:9: error: use of undeclared identifier 'nothing'"),
        ("header.bpf.c", "header.bpf.c:1:10: fatal error: 'scx/nothing.bpf.h' file not found"),
    ] {
        fs::write(folder.path().join("old.bpf.o"), "old").expect("a file can be written");
        let said = failure(tandem(folder.path()).args(["build", source, "--out", "old.bpf.o"]), 2);
        assert!(said.contains(says), "{said}");
        assert!(own_line(&said).starts_with(&format!("tandem: {source} cannot be compiled")), "{said}");
        assert_eq!(fs::read(folder.path().join("old.bpf.o")).expect("it is there"), b"old");
    }
    assert_eq!(names(folder.path()), ["good.bpf.c", "header.bpf.c", "old.bpf.o", "type.bpf.c"]);
}

#[test]
fn warnings_pass_through_and_the_same_source_is_the_same_object() {
    let text = format!("#include <scx/common.bpf.h>\n{PLAIN}static int unused;\n");
    let folder = folder_with(&[("a.bpf.c", &text)]);
    let build = || {
        let assert = tandem(folder.path()).args(["build", "a.bpf.c"]).assert().success().stdout("a.bpf.o\n");
        let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(said.contains("a.bpf.c:3:12: warning: unused variable 'unused'"), "{said}");
        fs::read(folder.path().join("a.bpf.o")).expect("it is there")
    };
    assert!(build() == build());
}

#[test]
fn folders_and_macros_reach_the_compiler() {
    let folder = folder_with(&[
        ("own.h", "char own[] __attribute__((section(\"license\"))) = TEXT;\n"),
        ("vmlinux.h", "#error own vmlinux\n"),
    ]);
    let sources = folder_with(&[
        ("a.bpf.c", "#include <own.h>\n#ifndef SWITCH\n#error no switch\n#endif\n"),
        ("b.bpf.c", "#include <vmlinux.h>\n"),
    ]);
    let include = format!("-I{}", folder.path().display());
    let macros = ["-D", "TEXT=\"x y\"", "-D", "SWITCH"];
    tandem(sources.path()).args(["build", "a.bpf.c", &include]).args(macros).assert().success();
    let said = failure(tandem(sources.path()).args(["build", "b.bpf.c", &include]), 2);
    assert!(said.contains("own vmlinux"), "a folder of the user comes first: {said}");
    for wrong in ["", "1A", "A-B", "=3", "A B=3", "-o"] {
        let define = format!("-D{wrong}");
        tandem(sources.path()).args(["build", "a.bpf.c", &define]).assert().code(2).stdout("");
    }
}

#[test]
fn any_name_of_a_source_is_only_a_name() {
    let odd: [&[u8]; 7] = [
        b"-x.bpf.c",
        b"@x.bpf.c",
        b"a b.bpf.c",
        b"--out=y.c",
        b"\xff.bpf.c",
        "ü'\"$(id).bpf.c".as_bytes(),
        b".c.c",
    ];
    for name in odd.map(OsStr::from_bytes) {
        let folder = tempdir().expect("a temporary directory");
        fs::write(folder.path().join(name), PLAIN).expect("a file can be written");
        tandem(folder.path()).args(["build", "--"]).arg(name).assert().success();
        let object = folder.path().join(Path::new(name).with_extension("o"));
        assert!(object.exists(), "{name:?}: {:?}", names(folder.path()));
        assert_eq!(names(folder.path()).len(), 2, "{:?}", names(folder.path()));
    }
}

#[test]
fn what_is_no_source_and_where_nothing_can_be_written_is_refused_before_compiling() {
    let folder = folder_with(&[("a.bpf.c", PLAIN), ("a.txt", PLAIN)]);
    fs::create_dir(folder.path().join("folder.c")).expect("a folder can be made");
    let cases: [(&[&str], &str); 8] = [
        (&["nowhere.bpf.c"], "nowhere.bpf.c: cannot be read"),
        (&["folder.c"], "folder.c: is no regular file"),
        (&["/dev/zero"], "/dev/zero: is no regular file"),
        (&["a.txt"], "is no C source by its name"),
        (&["a.bpf.c", "--out", "nowhere/a.o"], "--out nowhere/a.o: "),
        (&["a.bpf.c", "--out", "folder.c"], "--out folder.c: "),
        (&["a.bpf.c", "--out", "/dev/null"], "--out /dev/null: it is no regular file"),
        (&["a.bpf.c", "--out", "./a.bpf.c"], "--out names the source itself"),
    ];
    for (args, says) in cases {
        let said = failure(tandem(folder.path()).arg("build").args(args), 2);
        assert!(said.contains(says) && said.lines().count() == 1, "{args:?}: {said}");
    }
    assert_eq!(names(folder.path()), ["a.bpf.c", "a.txt", "folder.c"]);
    assert_eq!(fs::read_to_string(folder.path().join("a.bpf.c")).expect("it is there"), PLAIN);
}

#[test]
fn a_compiler_is_found_or_the_package_is_named() {
    let folder = folder_with(&[("a.bpf.c", PLAIN)]);
    let bin = tempdir().expect("a temporary directory");
    let build = || {
        let mut command = tandem(folder.path());
        command.args(["build", "a.bpf.c"]).env("PATH", bin.path()).env_remove("BPF_CLANG");
        command
    };
    let said = failure(&mut build(), 1);
    assert!(said.contains("install the package clang") && said.lines().count() == 1, "{said}");

    false_clang(&bin.path().join("clang"), "14.0.6", "exit 1");
    let said = failure(&mut build(), 1);
    assert!(said.contains("clang 14 is too old; install the package clang-18"), "{said}");

    // The newest does, whatever else there is; the one of the usual name, if that is new enough.
    false_clang(&bin.path().join("clang-19"), "19.1.7", "echo nineteen >&2; exit 1");
    false_clang(&bin.path().join("clang-101"), "101.0.0git", "echo hundred >&2; exit 1");
    false_clang(&bin.path().join("clang-format-200"), "200", "echo format >&2; exit 1");
    assert!(failure(&mut build(), 2).starts_with("hundred\n"));
    false_clang(&bin.path().join("clang"), "18.1.0", "echo usual >&2; exit 1");
    assert!(failure(&mut build(), 2).starts_with("usual\n"));
    assert!(failure(build().env("BPF_CLANG", "clang-19"), 2).starts_with("nineteen\n"));
    fs::write(bin.path().join("a.bpf.c"), PLAIN).expect("a file can be written");
    let said = failure(build().current_dir(bin.path()).env("PATH", ".:"), 1);
    assert!(said.contains("there is no clang in PATH"), "the current folder is not searched: {said}");

    for (named, says) in [
        ("clang-7", "BPF_CLANG names clang-7, which is no program"),
        ("/bin/true", "BPF_CLANG names /bin/true, which is no clang"),
    ] {
        let said = failure(build().env("BPF_CLANG", named), 2);
        assert!(said.contains(says) && said.lines().count() == 1, "{said}");
    }
    false_clang(&bin.path().join("clang"), "18.1.0", "kill -9 $$");
    let said = failure(&mut build(), 1);
    assert!(own_line(&said).ends_with("was ended by signal 9"), "{said}");
    assert_eq!(names(folder.path()), ["a.bpf.c"]);
}

#[test]
fn an_object_that_the_simulator_refuses_is_a_warning() {
    // `ops` is a scheduler's, once it has a callback that calls what no kernel has.
    let unknown = "#include <scx/common.bpf.h>\nchar _license[] SEC(\"license\") = \"GPL\";\n\
        void scx_bpf_no_such_function(s32 cpu) __ksym;\n\
        void BPF_STRUCT_OPS(x_tick, struct task_struct *p) { scx_bpf_no_such_function(0); }\n\
        SCX_OPS_DEFINE(x_ops, .tick = (void *)x_tick, .name = \"x\");\n";
    for (text, says) in [(PLAIN, NO_SCHEDULER), (unknown, "scx_bpf_no_such_function")] {
        let folder = folder_with(&[("a.bpf.c", text)]);
        let assert = tandem(folder.path()).args(["build", "a.bpf.c"]).assert().success().stdout("a.bpf.o\n");
        let said = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(
            said.starts_with("tandem: warning: the simulator refuses a.bpf.o: ") && said.contains(says),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn nothing_is_left_when_it_is_killed() {
    let folder = folder_with(&[("a.bpf.c", PLAIN)]);
    let scratch = tempdir().expect("a temporary directory");
    let clang = scratch.path().join("clang");
    false_clang(
        &clang,
        "19.1.7",
        &format!("echo $$ > {0}.new; mv {0}.new {0}; exec sleep 1000", clang.with_extension("pid").display()),
    );
    let temporary = tempdir().expect("a temporary directory");
    let mut child = process::Command::new(cargo_bin!("tandem"))
        .args(["build", "a.bpf.c"])
        .current_dir(folder.path())
        .env("BPF_CLANG", &clang)
        .env("TMPDIR", temporary.path())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command starts");
    let compiler = loop {
        if let Ok(number) = fs::read_to_string(clang.with_extension("pid")) {
            break number.trim().parse().expect("it is a number");
        }
        std::thread::yield_now();
    };
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    let compiler = rustix::process::Pid::from_raw(compiler).expect("it is a process");
    rustix::process::kill_process(compiler, rustix::process::Signal::KILL).expect("it is ours");
    // Where the file system has no files without a name, a hidden one is left.
    let left: Vec<_> = names(folder.path()).into_iter().filter(|name| !name.starts_with('.')).collect();
    assert_eq!(left, ["a.bpf.c"]);
    assert!(names(temporary.path()).is_empty());
}
