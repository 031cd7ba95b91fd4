//! Errors about files with the former spelling of policies.

use super::build;
use std::path::Path;
use tandem_file::file_error::FileError;
use tandem_file::located::SourceFile;
use tandem_lab::scenario::policy::former::explain;

/// A scenario with these lines under `[policy]`, from line 11 on.
fn scenario(lines: &str) -> String {
    format!(
        "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\n[programs.hog]\nops = [{{ compute = \"1ms\" }}]\n\
         [[vm]]\ngroup = \"hog\"\nvcpus = 2\nmemory = \"1GiB\"\nprograms = [\"hog\"]\n[policy]\n{lines}\n"
    )
}

fn error(lines: &str) -> String {
    build(&scenario(lines)).map(drop).expect_err(lines)
}

#[test]
fn the_present_table_is_shown_with_all_settings() {
    for (lines, line, keys, now) in [
        ("host = \"linux\"\nera = \"5.2\"", 12, "`era`", "host = { linux = { version = \"5.2\" } }"),
        (
            "host = \"linux\"\ntick_hz = 1000\nera = \"3.6\"",
            12,
            "`tick_hz`, `era`",
            "host = { linux = { tick_hz = 1000, version = \"3.6\" } }",
        ),
        (
            "host = \"xen-credit\"\nera = \"4.2\"",
            12,
            "`era`",
            "host = { xen-credit = { version = \"4.2\" } }",
        ),
        // Xen is the host of a policy that names none.
        ("era = \"4.2\"", 11, "`era`", "host = { xen-credit = { version = \"4.2\" } }"),
        ("host = \"tandem\"\nera = \"6.12\"", 12, "`era`", "host = { tandem = { kernel = \"6.12\" } }"),
        (
            "era = \"6.12\"\nhost = \"file:a.o\"",
            11,
            "`era`",
            "host = { object = \"a.o\", kernel = \"6.12\" }",
        ),
        ("host = \"tandem\"\ntick_hz = 100", 12, "`tick_hz`", "host = { tandem = { tick_hz = 100 } }"),
        ("timeslice = \"5ms\"", 11, "`timeslice`", "host = { xen-credit = { timeslice = \"5ms\" } }"),
        ("rate_control = {}", 11, "`rate_control`", "host = { xen-credit = { rate_control = {} } }"),
        (
            "host = \"tandem\"\n[policy.tandem]\nslice = \"3 ms\"",
            12,
            "`tandem`",
            "host = { tandem = { settings = { ... } } }",
        ),
        ("guest = { era = \"4.2\" }", 11, "`era`", "guest = { linux = { version = \"4.2\" } }"),
        (
            "host = \"xen-credit\"\nguest = { domains = \"flat\", tick_hz = 100 }",
            12,
            "`domains`, `tick_hz`",
            "guest = { linux = { domains = \"flat\", tick_hz = 100 } }",
        ),
        (
            "guest = { scheduler = \"file:a.o\", settings = { on = true }, era = \"6.12\" }",
            11,
            "`settings`, `era`",
            "guest = { object = \"a.o\", settings = { on = true }, kernel = \"6.12\" }",
        ),
        // Beside a present spelling as well.
        (
            "host = { linux = { version = \"5.2\" } }\ntick_hz = 100",
            12,
            "`tick_hz`",
            "host = { linux = { version = \"5.2\", tick_hz = 100 } }",
        ),
    ] {
        let belong = if keys.contains(',') { "belong" } else { "belongs" };
        let expected = format!("dir/s.toml:{line}: {keys} {belong} in the scheduler's table: write {now}");
        assert_eq!(error(lines), expected, "{lines}");
        // The suggested spelling is valid, except for omitted values and objects that do not exist.
        if !now.contains("...") && !now.contains("a.o") {
            build(&scenario(now)).expect(now);
        }
    }
    for (lines, expected) in [
        ("host = \"file:a.o\"", "dir/s.toml:11: write host = { object = \"a.o\" }"),
        ("host = 'file:a\"b\\c'", "dir/s.toml:11: write host = { object = 'a\"b\\c' }"),
        ("guest = { scheduler = \"tandem\" }", "dir/s.toml:11: write guest = \"tandem\""),
        ("guest = { scheduler = \"file:a.o\" }", "dir/s.toml:11: write guest = { object = \"a.o\" }"),
        ("tick_hz = 100", "dir/s.toml:11: `tick_hz` is not a setting of host `xen-credit`; remove it"),
        (
            "guest = { ratelimit = 1 }",
            "dir/s.toml:11: `ratelimit` is not a setting of guest `linux`; remove it",
        ),
    ] {
        assert_eq!(error(lines), expected);
    }
}

#[test]
fn a_variant_without_a_scheduler_is_not_given_another_one() {
    let experiment = |setting: &str| format!("[variants.a]\n{setting}\n");
    for (setting, expected) in [
        (
            "tick_hz = 100",
            "settings belong in the table of the scenario's scheduler (`tick_hz`): if that is linux, write host = { linux = \
             { tick_hz = 100 } }",
        ),
        (
            "domains = \"flat\"",
            "settings belong in the scheduler's table (`domains`): write host = { linux = { domains = \"flat\" } }",
        ),
        (
            "domains = \"flat\"\nratelimit = \"0us\"",
            "`domains`, `ratelimit` are settings of different schedulers; keep those of the scenario's host",
        ),
    ] {
        let source = SourceFile::new(Path::new("e.toml"), experiment(setting));
        let error = explain(FileError::whole("e.toml", "it cannot be read"), &source);
        assert_eq!(error.to_string(), format!("e.toml:2: {expected}"));
    }
}

#[test]
fn other_mistakes_are_not_taken_for_it() {
    for (lines, expected) in [
        ("host = \"bfq\"", "invalid value: string \"bfq\""),
        ("host = { linux = { era = \"5.2\" } }", "unknown field `era`, expected one of `version`"),
        ("guest = { object = \"a.o\", era = \"6.12\" }", "unknown field `era`, expected one of `object`"),
        ("guest = { tandem = { slice = \"3 ms\" } }", "unknown field `slice`, expected one of `settings`"),
        ("hots = \"linux\"", "unknown field `hots`, expected one of `host`, `guest`"),
        ("host = {}", "the table names no scheduler, expected \"xen-credit\""),
        ("host = { kernel = \"6.12\" }", "missing field `object`"),
        ("host = { linux = {}, tandem = {} }", "the table names a second scheduler, `tandem`; keep one"),
        ("host = { linux = {}, version = \"5.2\" }", "`version` stands beside the name of a scheduler"),
        ("host = { linux = {}, object = \"a.o\" }", "the table names a second scheduler, `object`; keep one"),
        ("host = { linux = {}, domains = \"flat\" }", "`domains` stands beside the name of a scheduler"),
    ] {
        let error = error(lines);
        assert!(error.starts_with("dir/s.toml:11: ") && error.contains(expected), "{lines}: {error}");
    }
}
