//! Data that programs share: messages with cache lines, and shared data sets.

use super::build;
use tandem_lab::schema;
use tandem_lab::summary::RunSummary;
use tandem_sim::cost::{Coherence, CostModels};
use tandem_sim::program::{Op, SharedData};

const SHARING: &str = r#"length = "1s"
machine = "xeon-e5620-2s"
[profiles.log]
footprint = "0B"
sweep = "0us"
memory_lines_per_us = 0
cache_sensitivity = 0
parallelism = 1
shared = { data = "log", lines_per_us = 0.5, writes_pct = 100 }
[profiles.scan]
footprint = "0B"
sweep = "0us"
memory_lines_per_us = 0
cache_sensitivity = 0
parallelism = 1
[profiles.scan.shared]
data = "buffers"
lines_per_us = 3.0
writes_pct = 20
[profiles.update]
footprint = "0B"
sweep = "0us"
memory_lines_per_us = 0
cache_sensitivity = 0
parallelism = 1
shared = { data = "buffers", lines_per_us = 1, writes_pct = 50 }
[programs.reader]
profile = "scan"
ops = [{ forever = [
  { compute = "1ms" },
  { compute = { work = "1ms", profile = "log" } },
  { compute = { work = "1ms", profile = "update" } },
  { send = { channel = "x", capacity = 16, message_lines = 4, queue_lines = 3 } },
  { send = { channel = "x", capacity = 16 } },
] }]
[programs.writer]
ops = [{ forever = [{ wait = "x" }] }]
[[vm]]
group = "vm"
vcpus = 2
memory = "1GiB"
programs = ["reader", "writer"]
"#;

#[test]
fn lines_and_shared_data_reach_the_engine() {
    let scenario = build(SHARING).unwrap();
    assert_eq!(scenario.costs.coherence, Some(Coherence), "on unless it is switched off");
    let program = &scenario.workloads[0].programs()[0].program;
    let shared: Vec<_> = program.profiles.iter().map(|profile| profile.shared).collect();
    let data = |data, lines_per_us, write_share| Some(SharedData { data, lines_per_us, write_share });
    assert_eq!(shared, [data(0, 3.0, 0.2), data(1, 0.5, 1.0), data(0, 1.0, 0.5)]);
    let Op::Repeat { body, .. } = &program.ops[0] else { panic!("a loop") };
    let send = |message_lines, queue_lines| Op::Send {
        channel: 0,
        capacity: 16,
        resume_at: None,
        message_lines,
        queue_lines,
    };
    assert_eq!(body[3..], [send(4, 3), send(0, 0)]);
}

#[test]
fn the_model_has_a_switch() {
    let costs = |switches: &str| build(&format!("{SHARING}[costs]\n{switches}\n")).unwrap().costs;
    assert_eq!(costs("coherence = false"), CostModels { coherence: None, ..CostModels::all() });
    let alone = CostModels { coherence: Some(Coherence), ..CostModels::off() };
    assert_eq!(costs("all = false\ncoherence = true"), alone);
}

#[test]
fn mistakes_name_the_line() {
    let cases = [
        (
            "lines_per_us = 0.5",
            "lines_per_us = -1",
            "dir/s.toml:9: `lines_per_us` is -1; allowed are 0 to 1000000",
        ),
        ("lines_per_us = 3.0", "lines_per_us = nan", "dir/s.toml:18: `nan` is no finite number; give one"),
        ("writes_pct = 20", "writes_pct = 101", "dir/s.toml:19: `writes_pct` is 101; allowed are 0 to 100"),
        (
            "writes_pct = 20",
            "write_pct = 20",
            "dir/s.toml:19: unknown field `write_pct`, expected one of `data`",
        ),
        ("writes_pct = 20", "", "missing field `writes_pct`"),
        ("data = \"buffers\"", "data = 1", "dir/s.toml:17: invalid type"),
        ("message_lines = 4", "message_lines = -4", "expected a whole number such as 2"),
        (
            "queue_lines = 3",
            "queue_lines = 1000001",
            "dir/s.toml:33: `queue_lines` is 1000001; allowed are 0 to 1000000",
        ),
        ("message_lines = 4", "lines = 4", "dir/s.toml:33: unknown field `lines`, expected one of `channel`"),
    ];
    for (text, instead, says) in cases {
        let error = build(&SHARING.replacen(text, instead, 1)).map(|_| ()).expect_err(instead);
        assert!(error.contains(says), "{instead}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn data_sets_are_limited() {
    let profiles = (0..99).map(|number| {
        format!(
            "[profiles.p{number}]\nfootprint = \"0B\"\nsweep = \"0us\"\nmemory_lines_per_us = 0\n\
             cache_sensitivity = 0\nparallelism = 1\n\
             shared = {{ data = \"a{number}\", lines_per_us = 1, writes_pct = 1 }}\n"
        )
    });
    let text = format!("{SHARING}{}", profiles.collect::<String>());
    let error = build(&text).unwrap_err();
    assert!(error.contains("VM 'vm-0': its programs share more than 100 data sets"), "{error}");
}

#[test]
fn the_schema_tells_what_can_be_shared() {
    let schema = serde_json::to_string(&schema::scenario()).unwrap();
    for key in ["coherence", "shared", "data", "lines_per_us", "writes_pct", "message_lines", "queue_lines"] {
        assert!(schema.contains(&format!("\"{key}\":")), "{key}");
    }
}

#[test]
fn a_summary_tells_what_messages_cost_if_anything() {
    let summary = |switches: &str| {
        let scenario = build(&format!("{SHARING}[costs]\n{switches}\n")).unwrap();
        RunSummary::new("sharing.toml", &scenario, 1, &tandem_sim::run(&scenario, 1).unwrap())
    };
    let (on, off) = (summary(""), summary("coherence = false"));
    assert!(on.host.coherence_pct.is_some_and(|pct| 0.0 < pct && pct < 100.0), "{on}");
    assert!(on.to_string().contains("\nmessages  "), "{on}");
    assert!(!off.to_string().contains("messages"), "{off}");
    assert!(!serde_json::to_string(&off).unwrap().contains("coherence"), "no key without a value");
}
