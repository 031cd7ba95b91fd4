//! Errors about mistakes in scenario files.

use super::{FULL, PLACED, build};

#[test]
fn mistakes_name_the_file_the_line_and_what_is_allowed() {
    // A line of the full file, its replacement, and the text of the error.
    let cases = [
        // Form.
        (
            "length = \"2s\"",
            "lenght = \"2s\"",
            "dir/s.toml:1: unknown field `lenght`, expected one of `length`",
        ),
        ("length = \"2s\"", "length = 2", "dir/s.toml:1: `2` has no unit; allowed are ns, us, ms, s"),
        ("length = \"2s\"", "length = \"2\"", "dir/s.toml:1: `2` has no unit; allowed are"),
        ("length = \"2s\"", "length = \"2h\"", "unknown unit `h`; allowed are ns, us, ms, s"),
        ("length = \"2s\"", "length = \"0s\"", "dir/s.toml:1: the length is nothing; it must be longer than"),
        ("length = \"2s\"", "length = \"2000min\"", "dir/s.toml:1: 2000 min is too long; at most a day"),
        ("length = \"2s\"", "length = \"2s", "dir/s.toml:1: "),
        ("length = \"2s\"", "", "dir/s.toml:1: missing field `length`"),
        ("footprint = \"2MiB\"", "footprint = 2", "`2` has no unit; allowed are B, kB"),
        (
            "footprint = \"2MiB\"",
            "footprint = \"2MiB\"\nx = 1",
            "dir/s.toml:25: unknown field `x`, expected one of `footprint`",
        ),
        (
            "  { wait = \"requests\" },",
            "{ await = \"requests\" },",
            "unknown variant `await`, expected one of `compute`",
        ),
        (
            "    { compute = { exponential = \"100us\" } },",
            "{ compute = \"100\" },",
            "expected a time with its unit such as \"100us\"",
        ),
        (
            "    { compute = { exponential = \"100us\" } },",
            "{ compute = { uniform = [\"2us\", \"1us\"] } },",
            "`uniform` goes from 2 us to 1 us",
        ),
        ("    { count = \"requests\" },", "{ count = 1 },", "expected the name of a counter"),
        (
            "count = \"$vms\"",
            "count = \"vms\"",
            "expected a whole number such as 2, or a parameter such as \"$vms\"",
        ),
        ("count = \"$vms\"", "count = -1", "expected a whole number such as 2"),
        ("count = \"$vms\"", "count = 1000000", "`count` is 1000000; allowed are 0 to 65536"),
        ("warmup = \"200ms\"", "warmup = \"2000min\"", "dir/s.toml:2: 2000 min is too long"),
        (
            "    { signal = \"log\" },",
            "{ signal = \"log\", wait = \"log\" },",
            "dir/s.toml:51: needs exactly one key; write one table for each",
        ),
        (
            "    { signal = \"log\" },",
            "{ repeat = { times = 2, body = [], x = 1 } },",
            "dir/s.toml:51: unexpected keys in table: x, available keys: times, body",
        ),
        ("    { signal = \"log\" },", "{ repeat = { body = [] } },", "dir/s.toml:51: missing field `times`"),
        // Policy.
        (
            "version = \"4.3\"",
            "version = \"5.0\"",
            "dir/s.toml:13: unknown variant `5.0`, expected one of `4.2`, `4.3`, `4.5`, `4.9`, `4.13`",
        ),
        (
            "[policy.host.xen-credit]",
            "[policy.host.xen]",
            "dir/s.toml:12: there is no scheduler `xen`, expected \"xen-credit\"",
        ),
        (
            "[policy.host.xen-credit]",
            "host = \"xen\"\n[programs.xen]",
            "dir/s.toml:12: invalid value: string \"xen\", expected \"xen-credit\"",
        ),
        (
            "rate_control = { rate_high = 60 }",
            "tick_hz = 250",
            "dir/s.toml:17: unknown field `tick_hz`, expected one of `version`, `timeslice`, `ratelimit`",
        ),
        (
            "rate_control = { rate_high = 60 }",
            "[policy.host.linux]",
            "dir/s.toml:12: the table names a second scheduler, `xen-credit`; keep one",
        ),
        (
            "timeslice = \"10ms\"",
            "timeslice = \"2s\"",
            "dir/s.toml:14: the timeslice is out of range; allowed are",
        ),
        (
            "ratelimit = \"0us\"",
            "ratelimit = \"1us\"",
            "dir/s.toml:15: the rate limit is out of range; allowed are",
        ),
        (
            "rate_control = { rate_high = 60 }",
            "rate_control = true",
            "dir/s.toml:17: invalid type: boolean `true`, expected \"off\" or a table",
        ),
        (
            "placement = \"none\"",
            "placement = \"best\"",
            "dir/s.toml:11: unknown variant `best`, expected one of `none`, `pin`, `prefer`",
        ),
        ("smt = true", "smp = true", "dir/s.toml:21: unknown field `smp`, expected one of `all`"),
        // References of the file.
        (
            "machine = \"xeon-e5620-2s\"",
            "machine = \"pc\"",
            "dir/s.toml:4: there is no machine `pc`; allowed are `xeon-e5620-2s`",
        ),
        ("machine = \"xeon-e5620-2s\"", "machine = \"no.toml\"", "dir/no.toml: cannot be read"),
        (
            "machine = \"xeon-e5620-2s\"",
            "machine = \"2x96x2:llcs=10\"",
            "dir/s.toml:4: the 96 cores of a package do not divide evenly among 10 last-level caches; 8 or 12",
        ),
        (
            "profile = \"busy\"",
            "profile = \"bust\"",
            "there is no memory profile `bust`; profiles under [profiles]: `busy`, `light`",
        ),
        (
            "programs = [\"server\", \"logger\"]",
            "programs = [\"srv\"]",
            "there is no program `srv`; programs under [programs]: `logger`, `server`",
        ),
        (
            "programs = [\"server\", \"logger\"]",
            "programs = [\"server\", \"logger\", \"logger\"]",
            "there are 3 programs for 2 vCPUs; allowed are",
        ),
        ("parallelism = 2.0", "parallelism = 0.5", "`parallelism` is 0.5; allowed are 1 to 1000"),
        ("parallelism = 2.0", "parallelism = nan", "`nan` is no finite number; give one"),
        (
            "    { signal = \"log\" },",
            "{ signal = \"logs\" },",
            "nothing in this VM waits on channel `logs`, only `log`, `requests`",
        ),
        (
            "  { wait = \"requests\" },",
            "{ wait = \"request\" },",
            "nothing in this VM signals channel `request`, only `log`, `requests`",
        ),
        (
            "    { wait = \"requests\" },",
            "{ wait_all = \"requests\" },",
            "dir/s.toml:77: clients would wait for ever, because `respond` answers only the first request",
        ),
        ("    \"respond\",", "", "no program of this VM has a \"respond\""),
        (
            "arrivals = { every = { exponential = \"1ms\" } }",
            "arrivals = { every = \"0ms\" }",
            "the time between two interrupts is nothing",
        ),
        (
            "arrivals = { per_second = 2000 }",
            "arrivals = { per_second = 0 }",
            "`per_second` is 0; allowed are 1 to 1000000000",
        ),
        (
            "ops = [{ forever = [{ wait = \"log\" }, { compute = \"2us\" }] }]",
            "ops = [{ wait = \"log\" }, { forever = [{ count = \"x\" }] }]",
            "the loop takes no time; it needs a `compute`",
        ),
        // Size.
        (
            "vcpus = 2",
            "vcpus = 17",
            "a VM with 17 vCPUs does not fit the machine `xeon-e5620-2s`; allowed are 1 to 16",
        ),
        ("vcpus = 2", "vcpus = 0", "a VM with 0 vCPUs does not fit"),
        (
            "memory = \"960MiB\"",
            "memory = \"1TiB\"",
            "a VM with 1 TiB of memory does not fit the machine `xeon-e5620-2s`; more than nothing and at most",
        ),
        (
            "memory = \"960MiB\"",
            "memory = \"5GiB\"",
            "dir/s.toml:62: 5120 MiB of memory do not fit on the nodes",
        ),
        (
            "affinity = { hard = \"all\", soft = \"node:0\" }",
            "affinity = { hard = \"0-3\", soft = \"0-4\" }",
            "the soft affinity has CPUs outside the hard one; allowed are CPUs of \"0-3\"",
        ),
        (
            "affinity = { hard = \"all\", soft = \"node:0\" }",
            "affinity = { hard = \"node:2\" }",
            "`node:2` names no CPUs of the machine; allowed are numbers and ranges within \"0-15\", \"node:0\", \"node:1\", and \"all\"",
        ),
        (
            "affinity = { hard = \"all\", soft = \"node:0\" }",
            "affinity = { hard = \"0-16\" }",
            "`0-16` names no CPUs of the machine; allowed are",
        ),
        (
            "affinity = { hard = \"all\", soft = \"node:0\" }",
            "affinity = { hard = \"\" }",
            "`` names no CPU; allowed are",
        ),
        (
            "soft = \"1-2\"",
            "soft = \"5-6\"",
            "dir/s.toml:71: the soft affinity has CPUs outside the hard one; allowed are CPUs of \"1-5\"",
        ),
        ("at = \"500ms\"", "", "dir/s.toml:68: missing field `at`"),
        ("at = \"500ms\"", "at = 1", "dir/s.toml:69: `1` has no unit; allowed are"),
        (
            "at = \"1s\"",
            "at = \"499ms\"",
            "dir/s.toml:74: the change comes at 499 ms; allowed are times from 500 ms",
        ),
        ("at = \"1s\"", "at = \"2200ms\"", "to before 2.2 s (the end of the run"),
        ("cap = 150", "cap = 4294967296", "`cap` is 4294967296; allowed are 0 to"),
        ("weight = 512", "weight = 0", "`weight` is 0; allowed are 1 to 65535"),
    ];
    for (line, instead, says) in cases {
        assert!(FULL.contains(line), "{line}");
        let error = build(&FULL.replacen(line, instead, 1)).map(|_| ()).expect_err(instead);
        assert!(error.contains(says), "{instead}: {error}");
        let names_a_line =
            error.strip_prefix("dir/s.toml:").is_some_and(|rest| rest.starts_with(char::is_numeric));
        assert!(names_a_line || error.starts_with("dir/no.toml: "), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn a_scenario_without_vms_or_with_a_group_twice_is_refused() {
    let empty = "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\nvm = []\n[programs]\n";
    assert_eq!(
        build(empty).unwrap_err(),
        "dir/s.toml: nothing runs; at least one [[vm]] or [[processes]] is needed"
    );
    let twice = format!("{PLACED}{}", &PLACED[PLACED.find("[[vm]]").unwrap()..]);
    assert_eq!(
        build(&twice).unwrap_err(),
        "dir/s.toml:12: the group `hog` is there twice; each [[vm]] and [[processes]] needs its own"
    );
    let more_than_memory = PLACED.replace("count = 3", "count = 1000");
    assert!(build(&more_than_memory).unwrap_err().starts_with("dir/s.toml:9: "));
}

#[test]
fn a_run_that_stops_at_a_count_needs_something_counted() {
    let text = PLACED.replacen("machine", "stop_at_count = 5\nmachine", 1);
    let error = build(&text).unwrap_err();
    assert_eq!(error, "dir/s.toml:2: group `hog` counts nothing, so the run would not stop");
}

#[test]
fn no_more_happens_in_a_run_than_it_can_bear() {
    let with = |events: &str| {
        build(&format!("length = \"1s\"\n{}{events}", &PLACED[PLACED.find('\n').unwrap() + 1..]))
    };
    let refused = |events: &str, times: u64| {
        let expected =
            format!("with this event, {times} things happen in the run; at most 1000000 are allowed");
        let error = with(events).map(drop).unwrap_err();
        assert!(error.contains(&expected), "{error}");
    };
    refused("[[event]]\nat = \"0s\"\nevery = \"1ns\"\nreload = true\n", 1_000_000_000);
    let intrude = |every: &str| {
        format!(
            "[[event]]\nat = \"0s\"\nevery = \"{every}\"\nintrude = {{ cpus = \"0-3\", length = \"1us\" }}\n"
        )
    };
    refused(&intrude("1us"), 4_000_000);
    // Not each alone, but all together.
    refused(&intrude("5us").repeat(2), 1_600_000);
    // This host gets no events, which would otherwise be the mistake.
    let error = with(&intrude("4us")).map(drop).unwrap_err();
    assert!(!error.contains("things happen"), "{error}");
}
