//! Scenario files: what they become, and what is said about mistakes.

use std::path::Path;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_sim::machine::cost::CostModels;
use tandem_sim::policy::credit::{Era, RateControl};
use tandem_sim::program::{Amount, Op};
use tandem_sim::scenario::{Arrivals, PolicySettings, Scenario, Source};

fn build(text: &str) -> Result<Scenario, String> {
    ScenarioSource::parse(Path::new("dir/s.toml"), text)
        .and_then(|source| source.build(&Default::default(), &PolicyTable::default()))
        .map_err(|error| error.to_string())
}

/// Every part of a scenario file.
const FULL: &str = r#"length = "2s"
warmup = "200ms"
stop_at_count = "$stop"
machine = "xeon-e5620-2s"

[parameters]
vms = 2
stop = 1000

[policy]
host = "xen-credit"
era = "4.3"
timeslice = "10ms"
ratelimit = "0us"
migration_delay = "100us"
rate_control = { rate_high = 60 }
placement = "none"

[costs]
all = false
smt = true

[profiles.busy]
footprint = "2MiB"
sweep = "300us"
memory_lines_per_us = 3.2
cache_sensitivity = 0.5
parallelism = 2.0

[profiles.light]
footprint = "16KiB"
sweep = "10us"
memory_lines_per_us = 0
cache_sensitivity = 0
parallelism = 1

[programs.server]
profile = "busy"
ops = [
  { sleep_until = "1ms" },
  "start_timer",
  { repeat = { times = "$vms", body = [{ sleep = { uniform = ["1ms", "2ms"] } }, "yield"] } },
  "stop_timer",
  { forever = [
    { wait = "requests" },
    { compute = { exponential = "100us" } },
    { compute = { work = "5us", profile = "light" } },
    { count = "requests" },
    { count = { counter = "bytes", amount = 4096 } },
    "respond",
    { signal = "log" },
  ] },
]

[programs.logger]
ops = [{ forever = [{ wait = "log" }, { compute = "2us" }] }]

[[vm]]
group = "web"
count = "$vms"
vcpus = 2
memory = "960MiB"
weight = 512
cap = 150
programs = ["server", "logger"]
affinity = { hard = "all", soft = "node:0" }

[[vm.source]]
channel = "requests"
arrivals = { clients = { number = 10, think = "5ms" } }

[[vm.source]]
channel = "log"
arrivals = { every = { exponential = "1ms" } }

[[vm.source]]
channel = "log"
arrivals = { per_second = 2000 }
"#;

#[test]
fn every_part_reaches_the_engine() {
    let scenario = build(FULL).unwrap();
    assert_eq!((scenario.length_ns, scenario.warmup_ns), (2_000_000_000, 200_000_000));
    assert_eq!(scenario.stop_at_count, Some(1000));
    assert_eq!(scenario.costs, CostModels { smt: CostModels::all().smt, ..CostModels::off() });
    let PolicySettings::Credit(credit) = scenario.policy;
    assert_eq!(credit.era, Era::Xen4_3);
    assert_eq!((credit.timeslice_ns, credit.ratelimit_ns), (10_000_000, 0));
    assert_eq!(credit.migration_delay_ns, 100_000);
    assert_eq!(credit.rate_control, Some(RateControl { rate_high: 60, interval_ns: 10_000_000 }));

    let names: Vec<_> = scenario.vms.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["web-0", "web-1"]);
    let vm = &scenario.vms[1];
    assert_eq!((vm.weight, vm.cap_pct, vm.channels), (512, 150, 2));
    assert_eq!(vm.counters, ["requests", "bytes"]);
    assert_eq!(vm.memory_shares, [1.0, 0.0]);
    assert_eq!(*vm.vcpus[0].hard_affinity, *scenario.machine.all_cpus());
    assert_eq!(vm.vcpus[0].soft_affinity.as_ref().unwrap().count(), 8);
    assert_eq!(
        vm.sources,
        [
            Source {
                channel: 0,
                arrivals: Arrivals::Closed { clients: 10, think: Amount::Fixed(5_000_000) }
            },
            Source { channel: 1, arrivals: Arrivals::Open { interval: Amount::Exponential(1_000_000) } },
            Source { channel: 1, arrivals: Arrivals::Open { interval: Amount::Exponential(500_000) } },
        ]
    );

    let server = &vm.vcpus[0].program;
    assert_eq!(server.profiles.iter().map(|p| p.footprint_bytes).collect::<Vec<_>>(), [2 << 20, 16 << 10]);
    let forever = vec![
        Op::Wait { channel: 0 },
        Op::Compute { work: Amount::Exponential(100_000), profile: Some(0) },
        Op::Compute { work: Amount::Fixed(5_000), profile: Some(1) },
        Op::Count { counter: 0, amount: 1 },
        Op::Count { counter: 1, amount: 4096 },
        Op::Respond,
        Op::Signal { channel: 1 },
    ];
    let twice = vec![Op::Sleep(Amount::Uniform(1_000_000, 2_000_000)), Op::Yield];
    assert_eq!(
        server.ops,
        [
            Op::SleepUntil(1_000_000),
            Op::StartTimer,
            Op::Repeat { times: Some(2), body: twice },
            Op::StopTimer,
            Op::Repeat { times: None, body: forever },
        ]
    );
    assert_eq!(vm.vcpus[1].program.ops.len(), 1);
}

#[test]
fn parameters_and_policy_can_be_set_from_outside() {
    let source = ScenarioSource::parse(Path::new("s.toml"), FULL).unwrap();
    let policy: PolicyTable = toml::from_str("rate_control = \"off\"\ntimeslice = \"5ms\"").unwrap();
    let scenario = source.build(&[("vms".into(), 3)].into(), &policy).unwrap();
    assert_eq!(scenario.vms.len(), 3);
    let PolicySettings::Credit(credit) = scenario.policy;
    assert_eq!((credit.rate_control, credit.timeslice_ns, credit.ratelimit_ns), (None, 5_000_000, 0));
    let error = source.build(&[("vm".into(), 3)].into(), &policy).unwrap_err();
    assert_eq!(
        error.to_string(),
        "s.toml: there is no parameter `vm`; parameters under [parameters]: `stop`, `vms`"
    );
}

/// A scenario without an affinity, on two nodes.
const PLACED: &str = r#"length = "1s"
machine = "xeon-e5620-2s"
[programs.hog]
ops = [{ forever = [{ compute = "1ms" }] }]
[[vm]]
group = "hog"
count = 3
vcpus = 2
memory = "960MiB"
programs = ["hog"]
"#;

#[test]
fn placement_gives_homes_to_vms_without_an_affinity() {
    let source = ScenarioSource::parse(Path::new("s.toml"), PLACED).unwrap();
    let build = |placement: &str| {
        let policy = toml::from_str(&format!("placement = \"{placement}\"")).unwrap();
        source.build(&Default::default(), &policy).unwrap()
    };
    let shares =
        |scenario: &Scenario| scenario.vms.iter().map(|vm| vm.memory_shares.clone()).collect::<Vec<_>>();

    let everywhere = build("none");
    assert_eq!(shares(&everywhere), [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]);
    assert!(everywhere.vms.iter().all(|vm| vm.vcpus[0].soft_affinity.is_none()));

    let (pinned, preferring) = (build("pin"), build("prefer"));
    assert_eq!(shares(&pinned), shares(&preferring));
    assert_eq!(shares(&pinned), [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]);
    for (pinned, preferring) in pinned.vms.iter().zip(&preferring.vms) {
        assert_eq!(pinned.vcpus[0].hard_affinity.count(), 8);
        assert_eq!(Some(&pinned.vcpus[0].hard_affinity), preferring.vcpus[0].soft_affinity.as_ref());
        assert_eq!(preferring.vcpus[0].hard_affinity.count(), 16);
    }
}

#[test]
fn mistakes_name_the_file_the_line_and_what_is_allowed() {
    // A line of the full file, what takes its place, and what the error says.
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
            "there is no parameter `vms`; parameters under [parameters]: `$stop`, `$vms`",
        ),
        ("count = \"$vms\"", "count = -1", "expected a whole number such as 2"),
        ("count = \"$vms\"", "count = 1000000", "`count` is 1000000; allowed are 0 to 65536"),
        ("warmup = \"200ms\"", "warmup = \"2000min\"", "dir/s.toml:2: 2000 min is too long"),
        (
            "    { signal = \"log\" },",
            "{ signal = \"log\", wait = \"log\" },",
            "dir/s.toml:51: needs one key, which says what it is; write one table for each",
        ),
        (
            "    { signal = \"log\" },",
            "{ repeat = { times = 2, body = [], x = 1 } },",
            "dir/s.toml:51: unexpected keys in table: x, available keys: times, body",
        ),
        ("    { signal = \"log\" },", "{ repeat = { body = [] } },", "dir/s.toml:51: missing field `times`"),
        // Policy.
        (
            "era = \"4.3\"",
            "era = \"5.0\"",
            "dir/s.toml:12: unknown variant `5.0`, expected one of `4.2`, `4.3`",
        ),
        (
            "host = \"xen-credit\"",
            "host = \"xen\"",
            "dir/s.toml:11: unknown variant `xen`, expected `xen-credit`",
        ),
        (
            "timeslice = \"10ms\"",
            "timeslice = \"2s\"",
            "dir/s.toml:13: the timeslice is out of range; allowed are",
        ),
        (
            "ratelimit = \"0us\"",
            "ratelimit = \"1us\"",
            "dir/s.toml:14: the rate limit is out of range; allowed are",
        ),
        (
            "rate_control = { rate_high = 60 }",
            "rate_control = true",
            "dir/s.toml:16: expected \"off\" or a table",
        ),
        (
            "placement = \"none\"",
            "placement = \"best\"",
            "dir/s.toml:17: unknown variant `best`, expected one of `none`, `pin`, `prefer`",
        ),
        ("smt = true", "smp = true", "dir/s.toml:21: unknown field `smp`, expected one of `all`"),
        // What the file refers to.
        (
            "machine = \"xeon-e5620-2s\"",
            "machine = \"pc\"",
            "dir/s.toml:4: there is no machine `pc`; allowed are `xeon-e5620-2s`",
        ),
        ("machine = \"xeon-e5620-2s\"", "machine = \"no.toml\"", "dir/no.toml: cannot be read"),
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
        ("parallelism = 2.0", "parallelism = nan", "`parallelism` is NaN; allowed are"),
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
            "dir/s.toml:62: a VM with 5120 MiB of memory does not fit on its nodes",
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
    assert_eq!(build(empty).unwrap_err(), "dir/s.toml:3: there is no VM; at least one [[vm]] is needed");
    let twice = format!("{PLACED}{}", &PLACED[PLACED.find("[[vm]]").unwrap()..]);
    assert_eq!(
        build(&twice).unwrap_err(),
        "dir/s.toml:12: the group `hog` is there twice; each [[vm]] needs its own"
    );
    let more_than_memory = PLACED.replace("count = 3", "count = 1000");
    assert!(build(&more_than_memory).unwrap_err().starts_with("dir/s.toml:9: "));
}

#[test]
fn a_run_that_stops_at_a_count_needs_something_counted() {
    let text = PLACED.replacen("machine", "stop_at_count = 5\nmachine", 1);
    let error = build(&text).unwrap_err();
    assert_eq!(error, "dir/s.toml:2: the VMs of group `hog` count nothing, so the run would not stop");
}
