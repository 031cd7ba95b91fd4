//! What is said about files that have the former spelling of policies.

use super::build;

/// A scenario with these lines under `[policy]`, from line 11 on.
fn error(lines: &str) -> String {
    let text = format!(
        "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\n[programs.hog]\nops = [{{ compute = \"1ms\" }}]\n\
         [[vm]]\ngroup = \"hog\"\nvcpus = 2\nmemory = \"1GiB\"\nprograms = [\"hog\"]\n[policy]\n{lines}\n"
    );
    build(&text).map(drop).expect_err(lines)
}

#[test]
fn each_key_is_shown_as_it_is_written_now() {
    for (lines, line, key, now) in [
        ("host = \"linux\"\nera = \"5.2\"", 12, "era", "host = { linux = { version = \"5.2\" } }"),
        ("host = \"xen-credit\"\nera = \"4.2\"", 12, "era", "host = { xen-credit = { version = \"4.2\" } }"),
        ("era = \"4.3\"", 11, "era", "host = { xen-credit = { version = \"4.3\" } }"),
        ("host = \"tandem\"\nera = \"6.12\"", 12, "era", "host = { tandem = { kernel = \"6.12\" } }"),
        ("era = \"6.12\"\nhost = \"file:a.o\"", 11, "era", "host = { object = \"a.o\", kernel = \"6.12\" }"),
        ("tick_hz = 100", 11, "tick_hz", "host = { linux = { tick_hz = 100 } }"),
        ("host = \"tandem\"\ntick_hz = 100", 12, "tick_hz", "host = { tandem = { tick_hz = 100 } }"),
        ("timeslice = \"5ms\"", 11, "timeslice", "host = { xen-credit = { timeslice = \"5ms\" } }"),
        ("rate_control = {}", 11, "rate_control", "host = { xen-credit = { rate_control = {} } }"),
        (
            "host = \"tandem\"\n[policy.tandem]\nslice = \"3 ms\"",
            12,
            "tandem",
            "host = { tandem = { settings = { ... } } }",
        ),
        (
            "host = \"tandem\"\nstorage_failure_pct = 1",
            12,
            "storage_failure_pct",
            "host = { tandem = { storage_failure_pct = 1 } }",
        ),
        ("guest = { era = \"4.2\" }", 11, "era", "guest = { linux = { version = \"4.2\" } }"),
        (
            "host = \"xen-credit\"\nguest = { domains = \"flat\", tick_hz = 100 }",
            12,
            "domains",
            "guest = { linux = { domains = \"flat\" } }",
        ),
        // Beside a present spelling, too.
        ("host = { linux = {} }\ntick_hz = 100", 12, "tick_hz", "host = { linux = { tick_hz = 100 } }"),
    ] {
        let expected = format!("dir/s.toml:{line}: `{key}` belongs in a scheduler's table: write {now}");
        assert_eq!(error(lines), expected, "{lines}");
    }
    for (lines, expected) in [
        ("host = \"file:a.o\"", "dir/s.toml:11: write host = { object = \"a.o\" }"),
        ("guest = { scheduler = \"tandem\" }", "dir/s.toml:11: write guest = \"tandem\""),
        ("guest = { scheduler = \"file:a.o\" }", "dir/s.toml:11: write guest = { object = \"a.o\" }"),
    ] {
        assert_eq!(error(lines), expected);
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
        ("host = { linux = {}, tandem = {} }", "the table has keys beside the name of a scheduler"),
    ] {
        let error = error(lines);
        assert!(error.starts_with("dir/s.toml:11: ") && error.contains(expected), "{lines}: {error}");
    }
}
