//! Scenario files: the resulting scenarios, and the errors about mistakes.

mod affinity;
mod coherence;
mod credit2;
mod former;
mod guests;
mod homes;
mod memory;
mod mistakes;
mod pause_loops;
mod processes;
mod soft_affinity;

use std::path::Path;
use std::sync::Arc;
use tandem_lab::results::Key;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_sim::cost::CostModels;
use tandem_sim::policy::credit::{Era, RateControl};
use tandem_sim::program::{Amount, Op};
use tandem_sim::scenario::{Affinity, AffinityChange, Arrivals, PolicySettings, Scenario, Source, Which};

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
placement = "none"
[policy.host.xen-credit]
version = "4.3"
timeslice = "10ms"
ratelimit = "0us"
migration_delay = "100us"
rate_control = { rate_high = 60 }

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

[[vm.affinity_change]]
at = "500ms"
hard = "1-5"
soft = "1-2"

[[vm.affinity_change]]
at = "1s"

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
    let PolicySettings::Credit(credit) = scenario.policy else { panic!("the host schedules with credit") };
    assert_eq!(credit.era, Era::Xen4_3);
    assert_eq!((credit.timeslice_ns, credit.ratelimit_ns), (10_000_000, 0));
    assert_eq!(credit.migration_delay_ns, 100_000);
    assert_eq!(credit.rate_control, Some(RateControl { rate_high: 60, interval_ns: 10_000_000 }));

    let names: Vec<_> = scenario.workloads.iter().map(|vm| vm.name.as_str()).collect();
    assert_eq!(names, ["web-0", "web-1"]);
    let vm = &scenario.workloads[1];
    assert_eq!((vm.weight, vm.vm().unwrap().cap_pct, vm.channels), (512, 150, 2));
    assert_eq!(vm.counters, ["requests", "bytes"]);
    assert_eq!(vm.memory_shares, [1.0, 0.0]);
    assert_eq!(*vm.affinity(0).hard, *scenario.machine.all_cpus());
    assert_eq!(vm.affinity(0).soft.as_ref().unwrap().count(), 8);
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

    let change = |at_ns, hard: &[u32], soft: Option<&[u32]>| {
        let mask = |cpus: &[u32]| Arc::new(CpuMask::from_cpus(16, cpus.iter().map(|&cpu| CpuId(cpu))));
        AffinityChange {
            at_ns,
            tasks: Which::All,
            affinity: Affinity { hard: mask(hard), soft: soft.map(mask) },
        }
    };
    let all: Vec<u32> = (0..16).collect();
    assert_eq!(
        vm.affinity_changes,
        [change(500_000_000, &[1, 2, 3, 4, 5], Some(&[1, 2])), change(1_000_000_000, &all, None)]
    );

    let server = &vm.programs()[0].program;
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
    assert_eq!(vm.programs()[1].program.ops.len(), 1);
}

#[test]
fn parameters_and_policy_can_be_set_from_outside() {
    let source = ScenarioSource::parse(Path::new("s.toml"), FULL).unwrap();
    let policy: PolicyTable =
        toml::from_str("host = { xen-credit = { rate_control = \"off\", timeslice = \"5ms\" } }").unwrap();
    let scenario = source.build(&[("vms".into(), Key::Number(3))].into(), &policy).unwrap();
    assert_eq!(scenario.workloads.len(), 3);
    let PolicySettings::Credit(credit) = scenario.policy else { panic!("the host schedules with credit") };
    assert_eq!((credit.rate_control, credit.timeslice_ns, credit.ratelimit_ns), (None, 5_000_000, 0));
    let error = source.build(&[("vm".into(), Key::Number(3))].into(), &policy).unwrap_err();
    assert_eq!(
        error.to_string(),
        "s.toml: there is no parameter `vm`; parameters under [parameters]: `stop`, `vms`"
    );
}

#[test]
fn a_parameter_can_be_a_time_or_a_name() {
    let text = "length = \"$length\"\nmachine = \"$machine\"\n[parameters]\nlength = \"2s\"\n\
        machine = \"xeon-e5620-2s\"\nprogram = \"hog\"\nburst = \"1ms\"\n\
        [programs.hog]\nops = [{ compute = { exponential = \"$burst\" } }]\n[programs.cat]\nops = [{ compute = \"3us\" }]\n\
        [[vm]]\ngroup = \"g\"\nvcpus = 1\nmemory = \"1GiB\"\nprograms = [\"$program\"]\n";
    let source = ScenarioSource::parse(Path::new("s.toml"), text).unwrap();
    let build = |name: &str, value: &str| {
        source.build(&[(name.into(), Key::parse(value))].into(), &PolicyTable::default())
    };
    let work = |scenario: &Scenario| match scenario.workloads[0].programs()[0].program.ops[0] {
        Op::Compute { work, .. } => work,
        _ => panic!("it computes"),
    };
    let scenario = build("burst", "5us").unwrap();
    assert_eq!((scenario.length_ns, work(&scenario)), (2_000_000_000, Amount::Exponential(5_000)));
    assert_eq!(work(&build("program", "cat").unwrap()), Amount::Fixed(3_000));
    assert_eq!(build("machine", "xeon-x5650-2s").unwrap().machine.cpu_count(), 24);
    for (name, value, says) in [
        ("burst", "5", "s.toml:9: expected a time with its unit such as \"100us\""),
        ("program", "dog", "s.toml:16: there is no program `dog`"),
        ("length", "soon", "s.toml:1: `soon`"),
    ] {
        let error = build(name, value).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
    }
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
fn the_number_of_vms_can_follow_from_how_full_the_host_is() {
    // vCPUs of a VM, percentage of 16 pCPUs, and the resulting number of VMs.
    for (vcpus, overcommit_pct, vms) in [(16, 100, 1), (4, 100, 4), (4, 150, 6), (8, 400, 8), (1, 25, 4)] {
        let text = PLACED
            .replace("count = 3", &format!("overcommit_pct = {overcommit_pct}"))
            .replace("vcpus = 2", &format!("vcpus = {vcpus}"))
            .replace("960MiB", "100MiB");
        assert_eq!(build(&text).unwrap().workloads.len(), vms, "{overcommit_pct}% with {vcpus} vCPUs each");
    }
    for (lines, says) in [
        ("overcommit_pct = 110", "no number of VMs with 2 vCPUs each comes to 110% of the 16 pCPUs"),
        ("overcommit_pct = 0", "`overcommit_pct` is 0; allowed are 1 to 10000"),
        ("overcommit_pct = 10001", "`overcommit_pct` is 10001; allowed are 1 to 10000"),
        (
            "overcommit_pct = 200\ncount = 3",
            "`overcommit_pct` says how many VMs there are, and so does `count`; leave one out",
        ),
    ] {
        let error = build(&PLACED.replace("count = 3", lines)).unwrap_err();
        assert_eq!(error, format!("dir/s.toml:7: {says}"));
    }
}

#[test]
fn placement_gives_homes_to_vms_without_an_affinity() {
    let source = ScenarioSource::parse(Path::new("s.toml"), PLACED).unwrap();
    let build = |placement: &str| {
        let policy = toml::from_str(&format!("placement = \"{placement}\"")).unwrap();
        source.build(&Default::default(), &policy).unwrap()
    };
    let shares = |scenario: &Scenario| {
        scenario.workloads.iter().map(|vm| vm.memory_shares.clone()).collect::<Vec<_>>()
    };

    let everywhere = build("none");
    assert_eq!(shares(&everywhere), [[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]);
    assert!(everywhere.workloads.iter().all(|vm| vm.affinity(0).soft.is_none()));

    let (pinned, preferring) = (build("pin"), build("prefer"));
    assert_eq!(shares(&pinned), shares(&preferring));
    assert_eq!(shares(&pinned), [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]);
    for (pinned, preferring) in pinned.workloads.iter().zip(&preferring.workloads) {
        assert_eq!(pinned.affinity(0).hard.count(), 8);
        assert_eq!(Some(&pinned.affinity(0).hard), preferring.affinity(0).soft.as_ref());
        assert_eq!(preferring.affinity(0).hard.count(), 16);
    }
}
