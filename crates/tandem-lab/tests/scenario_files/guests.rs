//! VMs with a guest kernel.

use super::{PLACED, build};
use std::path::Path;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::scenario::policy::PolicyTable;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;
use tandem_sim::cost::{ContextSwitch, CostModels, Idle, Interrupt};
use tandem_sim::policy::linux::{Domains, LinuxEra, LinuxSettings, Preemption, SoftAffinity};
use tandem_sim::program::{Amount, Op};
use tandem_sim::scenario::{Arrivals, Guest, PolicySettings, Process, Scenario, Source, TaskPolicy};

/// Every part of a guest.
const GUEST: &str = r#"length = "1s"
machine = "xeon-e5620-2s"
[parameters]
copies = 3
[policy]
host = { linux = {
  version = "4.2",
  domains = "flat",
  preemption = "full", tick_hz = 300 } }
guest = { linux = { version = "3.6", tick_hz = 100, paravirt_locks = false, steal_clock = true } }
[costs]
idle_exit = "5us"
[profiles.tiny]
footprint = "16KiB"
sweep = "10us"
memory_lines_per_us = 0
cache_sensitivity = 0
parallelism = 1
smt_slowdown = 1.3
[programs.ping]
profile = "tiny"
ops = [
  { fork = "pong" },
  { forever = [
    { send = { channel = "there", capacity = "$copies" } },
    { wait = "back" },
    { lock = "inode" },
    { compute = "1us" },
    { unlock = "inode" },
    "flush_tlbs",
  ] },
]
[programs.pong]
ops = [{ repeat = { times = 9, body = [{ wait = "there" }, { signal = "back" }] } }, { exec = "last" }]
[programs.last]
ops = [{ wait = "disk" }, { count = "done" }, { fork = "helper" }, "wait_child"]
[programs.helper]
ops = [{ compute = "1us" }]
[programs.unused]
ops = [{ compute = "1us" }]
[[vm]]
group = "dom0"
vcpus = 16
memory = "1GiB"
[[vm.source]]
channel = "disk"
arrivals = { every = "1ms" }
[vm.guest]
topology = "host"
numa = true
context_switch = { decision = "1us", peer_scan = "30ns" }
family_channels = ["there", "back"]
[[vm.guest.process]]
program = "ping"
copies = "$copies"
nice = -5
cpus = "0-1,node:1"
[[vm.guest.process]]
program = "last"
policy = "idle"
"#;

fn guest(scenario: &Scenario) -> &Guest {
    scenario.workloads[0].guest().unwrap()
}

#[test]
fn every_part_of_a_guest_reaches_the_engine() {
    let scenario = build(GUEST).unwrap();
    let vm = &scenario.workloads[0];
    let guest = guest(&scenario);
    assert_eq!(
        scenario.policy,
        PolicySettings::Linux(LinuxSettings {
            era: LinuxEra::V4_2,
            domains: Domains::Flat,
            tick_hz: 300,
            steal_clock: false,
            preemption: Some(Preemption::Full),
            spin_locks: None,
            paravirt_locks: true,
            soft_affinity: SoftAffinity::Ignored,
            numa_balancing: false,
            groups: None,
            base_slice_ns: None,
            queue_scan_ns: 0,
        })
    );
    assert_eq!(
        guest.policy,
        PolicySettings::Linux(LinuxSettings {
            era: LinuxEra::V3_6,
            domains: Domains::Topology,
            tick_hz: 100,
            steal_clock: true,
            preemption: None,
            spin_locks: None,
            paravirt_locks: false,
            soft_affinity: SoftAffinity::Ignored,
            numa_balancing: false,
            groups: Some(false),
            base_slice_ns: None,
            queue_scan_ns: 0,
        })
    );
    assert_eq!(scenario.costs.idle, Some(Idle::Fixed(5_000)));
    assert_eq!(
        guest.context_switch,
        Some(ContextSwitch { decision_ns: 1_000, peer_scan_ns: 30, ..ContextSwitch::linux() })
    );
    assert_eq!(guest.interrupt, Some(Interrupt::default()));
    assert_eq!(*guest.topology, *scenario.machine);

    let names: Vec<_> = guest.programs.iter().map(|program| program.name.as_str()).collect();
    assert_eq!(names, ["ping", "last", "pong", "helper", "kworker", "migration"]);
    // One channel that all share, number 0; those of a family follow.
    assert_eq!((vm.channels, guest.family_channels, guest.locks), (1, 2, 1));
    assert_eq!(vm.counters, ["done"]);
    let every_ms = Arrivals::Open { interval: Amount::Fixed(1_000_000) };
    assert_eq!(vm.sources, [Source { channel: 0, arrivals: every_ms }]);
    let ping = &guest.programs[0].program;
    assert_eq!(ping.profiles[0].smt_slowdown, Some(1.3));
    let forever = vec![
        Op::Send { channel: 1, capacity: 3, resume_at: None, message_lines: 0, queue_lines: 0 },
        Op::Wait { channel: 2 },
        Op::Lock { lock: 0 },
        Op::Compute { work: Amount::Fixed(1_000), profile: Some(0) },
        Op::Unlock { lock: 0 },
        Op::FlushTlbs,
    ];
    assert_eq!(ping.ops, [Op::Fork { program: 2 }, Op::Repeat { times: None, body: forever }]);
    assert_eq!(
        guest.programs[1].program.ops,
        [
            Op::Wait { channel: 0 },
            Op::Count { counter: 0, amount: 1 },
            Op::Fork { program: 3 },
            Op::WaitChild
        ]
    );
    let rounds = vec![Op::Wait { channel: 1 }, Op::Signal { channel: 2 }];
    assert_eq!(
        guest.programs[2].program.ops,
        [Op::Repeat { times: Some(9), body: rounds }, Op::Exec { program: 1 }]
    );

    let cpus = CpuMask::from_cpus(16, [0, 1].into_iter().chain(8..16).map(CpuId));
    let of_users = |process: &&Process| !guest.programs[process.program].is_kernel_thread;
    assert_eq!(
        guest.processes.iter().filter(of_users).cloned().collect::<Vec<_>>(),
        [
            Process {
                program: 0,
                copies: 3,
                nice: -5,
                policy: TaskPolicy::Normal,
                affinity: Some(cpus.into())
            },
            Process { program: 1, copies: 1, nice: 0, policy: TaskPolicy::Idle, affinity: None },
        ]
    );
    assert!(vm.programs().is_empty());
}

#[test]
fn linux_kernels_have_threads_unless_housekeeping_is_off() {
    // A host of 4.2 with 16 CPUs and two nodes, and a guest of 3.6 with as many vCPUs.
    let threads = |text: &str| {
        let scenario = build(text).unwrap();
        let host: Vec<_> = scenario.workloads.iter().filter(|it| it.is_kernel()).collect();
        let host: usize = host.iter().map(|it| it.task_count()).sum();
        let guest = guest(&scenario);
        let all: u64 = guest.processes.iter().map(|process| u64::from(process.copies)).sum();
        (host, all - guest.started())
    };
    assert_eq!(threads(GUEST), (2 * 16 + 2, 2 * 16));
    assert_eq!(threads(&GUEST.replace("idle_exit = \"5us\"", "housekeeping = false")), (0, 0));
    assert_eq!(threads(&GUEST.replace("idle_exit = \"5us\"", "all = false")), (0, 0));
}

#[test]
fn costs_that_are_off_are_off_in_guests_too() {
    let text = GUEST.replace("idle_exit = \"5us\"", "all = false");
    let scenario = build(&text).unwrap();
    assert_eq!(
        (guest(&scenario).context_switch, guest(&scenario).interrupt, scenario.costs.idle),
        (None, None, None)
    );
}

#[test]
fn scheduling_costs_a_host_what_it_costs_its_scheduler() {
    let costs = |policy: &str| {
        let text = PLACED.replace("[programs.hog]", &format!("[policy]\n{policy}\n[programs.hog]"));
        build(&text).unwrap().costs
    };
    assert_eq!(costs("host = \"xen-credit\""), CostModels::all());
    let linux = CostModels { context_switch: Some(ContextSwitch::linux()), ..CostModels::all() };
    assert_eq!(costs("host = \"linux\""), linux);
    assert_eq!(costs("host = \"linux\"\n[costs]\nall = false"), CostModels::off());
}

#[test]
fn a_guest_is_told_a_topology() {
    // Lines of the guest, the vCPUs, and the result: packages, nodes, caches, cores.
    let cases = [
        ("", 16, (2, 1, 2, 8)),
        ("numa = true", 16, (2, 2, 2, 8)),
        ("topology = \"host\"", 16, (2, 1, 2, 8)),
        ("topology = \"flat\"", 16, (1, 1, 1, 16)),
        ("", 6, (1, 1, 1, 6)),
        ("topology = { packages = 3, cores = 1, threads = 2 }", 6, (3, 1, 3, 3)),
    ];
    for (lines, vcpus, expected) in cases {
        let text = GUEST
            .replace("topology = \"host\"\nnuma = true", lines)
            .replace("vcpus = 16", &format!("vcpus = {vcpus}"))
            .replace("cpus = \"0-1,node:1\"", "");
        let scenario = build(&text).unwrap();
        let told = &guest(&scenario).topology;
        let parts = (told.packages().len(), told.node_count(), told.llcs().len(), told.cores().len());
        assert_eq!((told.cpu_count(), parts), (vcpus, expected), "{lines}");
    }
}

#[test]
fn a_variant_changes_only_what_it_names() {
    let source = ScenarioSource::parse(Path::new("s.toml"), GUEST).unwrap();
    let with = |variant: &str| {
        let policy: PolicyTable = toml::from_str(variant).unwrap();
        source.build(&Default::default(), &policy)
    };
    let baseline = build(GUEST).unwrap();
    let PolicySettings::Linux(settings) = guest(&baseline).policy else { panic!("guests run Linux") };
    let flat = with("guest = { linux = { domains = \"flat\" } }").unwrap();
    assert_eq!(flat.policy, baseline.policy);
    let flat_settings = LinuxSettings { domains: Domains::Flat, ..settings };
    assert_eq!(guest(&flat).policy, PolicySettings::Linux(flat_settings));

    // Another host begins with its own defaults, and leaves the guests alone.
    let xen = with("host = \"xen-credit\"").unwrap();
    assert_eq!(xen.policy, PolicySettings::Credit(Default::default()));
    assert_eq!(guest(&xen).policy, guest(&baseline).policy);

    // Settings that do not fit together are found when the two tables are combined.
    let numa =
        with("host = { linux = { version = \"3.6\", numa_balancing = true } }").unwrap_err().to_string();
    assert!(numa.starts_with("s.toml: `numa_balancing` is not modelled for version \"3.6\""), "{numa}");
}

#[test]
fn mistakes_about_guests_name_the_line_and_what_is_allowed() {
    // A part of the file, its replacement, and the text of the error.
    let cases = [
        // Policy.
        (
            "host = { linux = {",
            "host = { kvm = {",
            ":6: there is no scheduler `kvm`, expected \"xen-credit\", \"xen-credit2\", \"linux\", \"tandem\", or a table",
        ),
        (
            "version = \"4.2\"",
            "version = \"4.5\"",
            ":7: unknown variant `4.5`, expected one of `3.6`, `4.2`, `5.2`, `6.12`, `6.18`, `7.3`",
        ),
        (
            "version = \"4.2\"",
            "ratelimit = \"1ms\"",
            ":7: unknown field `ratelimit`, expected one of `version`",
        ),
        (
            "host = { linux = {",
            "host = { xen-credit = {",
            ":8: unknown field `domains`, expected one of `version`",
        ),
        (
            "guest = { linux = {",
            "guest = { xen-credit = {",
            ":10: there is no scheduler `xen-credit`, expected \"linux\"",
        ),
        (
            "preemption = \"full\"",
            "preemption = \"lazy\"",
            ":9: `preemption = \"lazy\"` begins with version 6.18",
        ),
        (
            "tick_hz = 100",
            "preemption = \"lazy\", tick_hz = 100",
            ":10: `preemption = \"lazy\"` begins with version 6.18",
        ),
        (
            "version = \"3.6\"",
            "version = \"7.3\", preemption = \"voluntary\"",
            ":10: version 7.3 has no `preemption = \"voluntary\"`; allowed are \"full\" and \"lazy\"",
        ),
        (
            "paravirt_locks = false",
            "paravirt_locks = true",
            ":10: version \"3.6\" has no `paravirt_locks`, which begin with \"4.2\"; remove the setting",
        ),
        ("tick_hz = 300", "tick_hz = 50", ":9: `tick_hz` is 50; allowed are 100, 250, 300 and 1000"),
        ("tick_hz = 100", "tick_hz = 50", ":10: `tick_hz` is 50; allowed are"),
        (
            "version = \"3.6\"",
            "version = \"4.9\"",
            ":10: unknown variant `4.9`, expected one of `3.6`, `4.2`",
        ),
        ("steal_clock", "steel_clock", ":10: unknown field `steel_clock`, expected one of `version`"),
        ("idle_exit = \"5us\"", "idle_exit = \"2000min\"", ":12: 2000 min is too long"),
        ("smt_slowdown = 1.3", "smt_slowdown = 0.5", ":19: `smt_slowdown` is 0.5; allowed are 1 to 1000"),
        // Programs.
        ("{ fork = \"pong\" }", "{ fork = \"pung\" }", ":23: there is no program `pung`; programs under"),
        ("{ exec = \"last\" }", "{ exec = \"lost\" }", ":34: there is no program `lost`"),
        ("program = \"last\"", "program = \"lost\"", ":59: there is no program `lost`"),
        ("capacity = \"$copies\"", "capacity = 0", ":25: `capacity` is 0; allowed are 1 to 1000000"),
        (
            "{ unlock = \"inode\" }",
            "{ unlock = \"dir\" }",
            ":27: nothing in this VM unlocks `inode`, only `dir`",
        ),
        ("{ lock = \"inode\" },", "", ":29: nothing in this VM locks `inode`"),
        ("{ signal = \"back\" }", "{ signal = \"front\" }", ":26: nothing in this VM signals channel `back`"),
        (
            "ops = [{ compute = \"1us\" }]\n[programs.unused]",
            "ops = [{ repeat = { times = 2, body = [\"yield\", { exec = \"helper\" }] } }]\n[programs.unused]",
            ":38: the program `helper` starts itself before any time has passed",
        ),
        (
            "ops = [{ compute = \"1us\" }]\n[programs.unused]",
            "ops = [{ forever = [\"flush_tlbs\"] }]\n[programs.unused]",
            ":38: the loop takes no time",
        ),
        (
            "ops = [{ compute = \"1us\" }]\n[programs.unused]",
            "ops = [{ forever = [{ fork = \"ping\" }] }]\n[programs.unused]",
            ":38: the loop takes no time",
        ),
        // The VM and its guest.
        (
            "memory = \"1GiB\"",
            "memory = \"1GiB\"\nprograms = [\"last\"]",
            ":45: a VM with a guest kernel runs no",
        ),
        ("channel = \"disk\"", "channel = \"there\"", ":46: each process has a channel `there` of its own"),
        (
            "vcpus = 16",
            "vcpus = 8",
            ":49: topology \"host\" needs as many vCPUs as machine `xeon-e5620-2s` has pCPUs, 16, but the VM has 8",
        ),
        (
            "topology = \"host\"",
            "topology = \"hots\"",
            ":49: expected \"host\", \"flat\", or a table such as",
        ),
        ("topology = \"host\"", "topology = \"flat\"", ":50: only topology \"host\" can show NUMA nodes"),
        (
            "topology = \"host\"\nnuma = true",
            "topology = { packages = 1, cores = 4, threads = 2 }",
            ":49: the topology has 8 CPUs, but the VM 16 vCPUs",
        ),
        ("decision = \"1us\"", "decision = \"2000min\"", ":51: 2000 min is too long"),
        ("[\"there\", \"back\"]", "[\"there\", \"bakc\"]", ":52: no program uses a channel `bakc`"),
        ("copies = \"$copies\"\n", "copies = 100001\n", ":55: `copies` is 100001; allowed are 0 to 100000"),
        (
            "copies = \"$copies\"\n",
            "copies = 100000\n",
            ":42: host and guests have more than 100000 processes",
        ),
        ("nice = -5", "nice = 20", ":56: `nice` is 20; allowed are -20 to 19"),
        (
            "policy = \"idle\"",
            "policy = \"fifo\"",
            ":60: unknown variant `fifo`, expected one of `normal`, `batch`",
        ),
        ("cpus = \"0-1,node:1\"", "cpus = \"16\"", ":57: `16` names no CPUs of the machine; allowed are"),
    ];
    for (part, instead, says) in cases {
        assert!(GUEST.contains(part), "{part}");
        let error = build(&GUEST.replacen(part, instead, 1)).map(|_| ()).expect_err(instead);
        assert!(error.contains(&format!("dir/s.toml{says}")), "{instead}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn some_operations_need_a_guest_kernel() {
    for op in [
        "{ lock = \"a\" }",
        "{ unlock = \"a\" }",
        "\"flush_tlbs\"",
        "{ fork = \"hog\" }",
        "{ exec = \"hog\" }",
        "\"wait_child\"",
        "\"wait_child_signal\"",
    ] {
        let text = PLACED.replace("{ compute = \"1ms\" }", &format!("{{ compute = \"1ms\" }}, {op}"));
        let error = build(&text).unwrap_err();
        assert!(error.contains("dir/s.toml:4: `"), "{error}");
        assert!(error.contains("needs a guest kernel, which this VM lacks; give it a [vm.guest]"), "{error}");
    }
    let error = build(&PLACED.replace("programs = [\"hog\"]", "")).unwrap_err();
    assert_eq!(
        error,
        "dir/s.toml:6: the VM does nothing; it needs `programs`, or a [vm.guest] with processes"
    );
}
