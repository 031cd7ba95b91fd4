//! Processes of the host: the resulting scenario, and the errors about mistakes.

use super::build;
use std::path::Path;
use tandem_lab::scenario::ScenarioSource;
use tandem_lab::schema;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, NodeId};
use tandem_sim::program::{Amount, Op};
use tandem_sim::run;
use tandem_sim::scenario::{Scenario, Workload, WorkloadKind};

/// Every part of a table, on a machine of 16 pCPUs of two nodes.
const PROCESSES: &str = r#"length = "50ms"
machine = "xeon-e5620-2s"

[parameters]
workers = 20

[programs.worker]
ops = [{ forever = [{ compute = "20us" }, { signal = "log" }, { wait = "written" }, { count = "commits" }] }]

[programs.logger]
ops = [{ forever = [{ wait_all = "log" }, { compute = "100us" }, { signal_all = "written" }] }]

[[processes]]
group = "db"
count = 3
memory = "1GiB"
threads = true
weight = 512
homes = ["node:0", "8-11"]
has_past = true

[[processes.process]]
program = "logger"

[[processes.process]]
program = "worker"
copies = "$workers"

[[processes.affinity_change]]
at = "20ms"
soft = "node:1"

[[processes]]
group = "chat"
memory = "64MiB"
affinity = { hard = "0-7", soft = "0-3" }
hackbench = { groups = 2, fds = 3, transport = "pipes", loops = 5 }
"#;

/// Hackbench alone.
const HACKBENCH: &str = r#"length = "20ms"
machine = "xeon-e5620-2s"
[[processes]]
group = "chat"
memory = "64MiB"
hackbench = { groups = 1 }
"#;

fn vm<'a>(scenario: &'a Scenario, name: &str) -> &'a Workload {
    scenario.workloads.iter().find(|vm| vm.name == name).expect("it is there")
}

/// Whether a set of processes shares an address space.
fn is_threads(set: &Workload) -> bool {
    match set.kind {
        WorkloadKind::Threads(_) => true,
        WorkloadKind::Processes(_) => false,
        WorkloadKind::Vm(_) | WorkloadKind::KernelThreads(_) => panic!("{} is no set of processes", set.name),
    }
}

fn cpus(numbers: std::ops::Range<u32>) -> CpuMask {
    CpuMask::from_cpus(16, numbers.map(CpuId))
}

/// The scenario under a policy that ties VMs and processes to their homes or not.
fn placed(text: &str, placement: &str) -> Scenario {
    let policy = toml::from_str(&format!("placement = \"{placement}\"")).unwrap();
    let source = ScenarioSource::parse(Path::new("dir/s.toml"), text).unwrap();
    source.build(&Default::default(), &policy).unwrap()
}

#[test]
fn a_policy_says_where_processes_of_a_group_live() {
    let text = "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\n[policy]\nhost = \"linux\"\nplacement = \"pin\"\n\
        [policy.group.db]\nhomes = [\"node:1\"]\n[programs.hog]\nops = [{ compute = \"1ms\" }]\n\
        [[processes]]\ngroup = \"db\"\nmemory = \"1GiB\"\nprocess = [{ program = \"hog\" }]\nhomes = [\"node:0\"]\n";
    let source = ScenarioSource::parse(Path::new("dir/s.toml"), text).unwrap();
    let with = |policy: &str| source.build(&Default::default(), &toml::from_str(policy).unwrap());
    let shares = |policy: &str| with(policy).unwrap().workloads[0].memory_shares.clone();
    assert_eq!(shares(""), [0.0, 1.0], "the policy of the scenario counts before the table");
    assert_eq!(shares("group.db.homes = [\"node:0\"]"), [1.0, 0.0], "and that of a variant before both");
    assert_eq!(shares("group.db.memory_policy = { bind = \"0\" }"), [1.0, 0.0]);
    let bound = with("group.db.memory_policy = { bind = \"0\" }").unwrap();
    assert_eq!(bound.workloads[0].affinity(0).hard, bound.machine.node_cpus(1usize.into()).clone().into());
    assert_eq!(
        with("group.db.vcpu_affinity = [{ vcpus = \"0\" }]").unwrap_err().to_string(),
        "dir/s.toml:11: the policy has a `vcpu_affinity` for the processes of group `db`, which have no vCPUs; use `affinity`"
    );
}

#[test]
fn every_part_reaches_the_engine() {
    let scenario = build(PROCESSES).unwrap();
    let names: Vec<_> = scenario.workloads.iter().map(|vm| (vm.group.as_str(), vm.name.as_str())).collect();
    assert_eq!(names, [("db", "db-0"), ("db", "db-1"), ("db", "db-2"), ("chat", "chat-0")]);

    let db = vm(&scenario, "db-1");
    assert_eq!((is_threads(db), db.weight, db.has_past), (true, 512, true));
    assert_eq!(db.task_count(), 21, "more than pCPUs");
    assert_eq!((db.channels, db.counters.as_slice()), (2, ["commits".to_string()].as_slice()));
    let body = |vcpu: usize| match &db.programs()[vcpu].program.ops[..] {
        [Op::Repeat { times: None, body }] => body.clone(),
        other => panic!("{other:?} is no loop"),
    };
    let work = |ns| Op::Compute { work: Amount::Fixed(ns), profile: None };
    assert_eq!(body(0), [Op::WaitAll { channel: 0 }, work(100_000), Op::SignalAll { channel: 1 }]);
    let [worker, last] = [1, 20].map(body);
    let count = Op::Count { counter: 0, amount: 1 };
    assert_eq!(worker, [work(20_000), Op::Signal { channel: 0 }, Op::Wait { channel: 1 }, count]);
    assert_eq!(worker, last);
    let change = &db.affinity_changes[0];
    assert_eq!((change.at_ns, &*change.affinity.hard), (20_000_000, scenario.machine.all_cpus()));
    assert!(change.affinity.soft.is_some());

    let chat = vm(&scenario, "chat-0");
    assert_eq!((is_threads(chat), chat.weight, chat.has_past), (false, Workload::DEFAULT_WEIGHT, false));
    assert_eq!(*chat.affinity(11).hard, cpus(0..8));
    assert_eq!(chat.affinity(11).soft.as_deref(), Some(&cpus(0..4)));

    let commits = &run(&scenario, 1).unwrap().vms[0].counts["commits"];
    assert!(*commits > 1_000, "workers whose commits are written together: {commits}");
}

#[test]
fn placement_ties_processes_to_their_homes() {
    let masks = |scenario: &Scenario, set: usize| {
        let affinity = scenario.workloads[set].affinity(0);
        ((*affinity.hard).clone(), affinity.soft.as_deref().cloned())
    };
    let (none, pin, prefer) =
        (placed(PROCESSES, "none"), placed(PROCESSES, "pin"), placed(PROCESSES, "prefer"));
    let (all, node_0, range) = (cpus(0..16), none.machine.node_cpus(NodeId(0)).clone(), cpus(8..12));
    // The third set has the first home again.
    for (set, home) in [(0, &node_0), (1, &range), (2, &node_0)] {
        assert_eq!(masks(&none, set), (all.clone(), None));
        assert_eq!(masks(&pin, set), (home.clone(), None));
        assert_eq!(masks(&prefer, set), (all.clone(), Some(home.clone())));
    }
    assert_eq!(none.workloads[0].memory_shares, [0.5, 0.5]);
    for scenario in [&pin, &prefer] {
        assert_eq!(scenario.workloads[0].memory_shares, [1.0, 0.0], "their memory is at home");
    }
    for scenario in [none, pin, prefer] {
        assert_eq!(*vm(&scenario, "chat-0").affinity(0).hard, cpus(0..8), "its own affinity counts");
    }
}

#[test]
fn hackbench_is_senders_that_write_to_every_receiver_of_their_group() {
    let scenario = build(PROCESSES).unwrap();
    let chat = vm(&scenario, "chat-0");
    let (groups, fds, loops) = (2, 3, 5);
    assert_eq!(chat.task_count(), groups * 2 * fds);
    assert_eq!(
        (chat.channels, chat.counters.as_slice()),
        (groups * fds, ["messages".to_string()].as_slice())
    );
    let receives = |task: usize, channel| match &chat.programs()[task].program.ops[..] {
        [Op::Repeat { times, body }] => {
            assert_eq!(*times, Some((loops * fds) as u64), "as often as it is sent to");
            assert_eq!(body[0], Op::Wait { channel });
            assert_eq!(body[2], Op::Count { counter: 0, amount: 1 });
        }
        other => panic!("{other:?}"),
    };
    let sends = |task: usize, channels: &[usize]| match &chat.programs()[task].program.ops[..] {
        [Op::Repeat { times, body }] => {
            assert_eq!(*times, Some(loops as u64));
            let to = body.iter().filter_map(|op| match op {
                Op::Send { channel, .. } => Some(*channel),
                _ => None,
            });
            assert_eq!(to.collect::<Vec<_>>(), channels);
        }
        other => panic!("{other:?}"),
    };
    for (first, channels) in [(0, [0, 1, 2]), (6, [3, 4, 5])] {
        for (fd, &channel) in channels.iter().enumerate() {
            receives(first + fd, channel);
            sends(first + fds + fd, &channels);
        }
    }
    let metrics = run(&scenario, 1).unwrap();
    let messages = metrics.vms[3].counts["messages"];
    assert_eq!(messages, (groups * fds * fds * loops) as u64, "all arrive");
    assert!(metrics.vms[3].vcpus.iter().all(|task| task.run_ns > 0));
}

#[test]
fn hackbench_has_20_of_each_and_sockets_unless_it_says_otherwise() {
    let [plain, sockets, pipes, threads] = [
        HACKBENCH.to_string(),
        HACKBENCH.replace("groups = 1", "groups = 1, fds = 20, transport = \"sockets\""),
        HACKBENCH.replace("groups = 1", "groups = 1, transport = \"pipes\""),
        HACKBENCH.replace("hackbench", "threads = true\nhackbench"),
    ]
    .map(|text| build(&text).unwrap());
    let programs = |scenario: &Scenario| {
        scenario.workloads[0].programs().iter().map(|task| task.program.ops.clone()).collect::<Vec<_>>()
    };
    assert_eq!(plain.workloads[0].task_count(), 40);
    assert_eq!(programs(&plain), programs(&sockets));
    assert_ne!(programs(&plain), programs(&pipes));
    assert_eq!(programs(&plain), programs(&threads));
    assert_eq!([&plain, &threads].map(|scenario| is_threads(&scenario.workloads[0])), [false, true]);
    let endless = |ops: Vec<Op>| matches!(ops[..], [Op::Repeat { times: None, .. }]);
    assert!(programs(&plain).into_iter().all(endless), "without `loops` they go on for ever");
    let messages = |scenario: &Scenario| run(scenario, 1).unwrap().vms[0].counts["messages"];
    assert!(messages(&pipes) > messages(&plain), "pipes are quicker");
}

#[test]
fn processes_may_run_beside_vms() {
    let beside = "[programs.hog]\nops = [{ forever = [{ compute = \"1ms\" }] }]\n[[vm]]\ngroup = \"vm\"\n\
        vcpus = 2\nmemory = \"1GiB\"\nprograms = [\"hog\"]\n";
    let scenario = build(&format!("{PROCESSES}{beside}")).unwrap();
    let vms: Vec<_> = scenario.workloads.iter().map(|workload| workload.vm().is_some()).collect();
    assert_eq!(vms, [true, false, false, false, false]);
}

#[test]
fn mistakes_name_the_line() {
    // A part of the file, its replacement, and the text of the error.
    let cases = [
        ("fds = 3, ", "fds = 0, ", ":37: `fds` is 0; allowed are 1 to 1000"),
        ("fds = 3, ", "fds = 1001, ", ":37: `fds` is 1001; allowed are 1 to 1000"),
        ("groups = 2", "groups = 0", ":37: `groups` is 0; allowed are 1 to 16666"),
        ("groups = 2", "groups = 16667", ":37: `groups` is 16667; allowed are 1 to 16666"),
        ("loops = 5", "loops = 0", ":37: `loops` is 0; allowed are 1 to"),
        ("\"pipes\"", "\"fifos\"", ":37: unknown variant `fifos`, expected `sockets` or `pipes`"),
        ("groups = 2, ", "", ":37: missing field `groups`"),
        (
            "hackbench = { groups = 2, fds = 3, transport = \"pipes\", loops = 5 }",
            "",
            ":34: the processes need either `hackbench` or a `process` list",
        ),
        (
            "threads = true",
            "hackbench = { groups = 1 }",
            ":14: the processes need either `hackbench` or a `process` list",
        ),
        (
            "homes = [\"node:0\", \"8-11\"]",
            "affinity = { hard = \"0-3\" }\nhomes = [\"node:0\"]",
            ":20: `affinity` says where they run, and so do `homes`; leave one out",
        ),
        ("\"8-11\"", "\"8-16\"", ":19: `8-16` names no CPUs of the machine; allowed are"),
        ("\"8-11\"", "\"node:2\"", ":19: `node:2` names no CPUs of the machine; allowed are"),
        ("soft = \"0-3\"", "soft = \"6-8\"", ":36: the soft affinity has CPUs outside the hard one"),
        ("at = \"20ms\"", "at = \"51ms\"", ":30: the change comes at 51 ms; allowed are"),
        ("group = \"chat\"", "group = \"db\"", ":34: the group `db` is there twice"),
        ("program = \"logger\"", "program = \"lodger\"", ":23: there is no program `lodger`; programs under"),
        ("copies = \"$workers\"", "copies = 100001", ":27: `copies` is 100001; allowed are 0 to 100000"),
        ("copies = \"$workers\"", "copies = 40000", ":14: host and guests have more than 100000 processes"),
        ("count = 3", "count = 10001", ":15: `count` is 10001; allowed are 0 to 10000"),
        ("weight = 512", "weight = 0", ":18: `weight` is 0; allowed are 1 to 65535"),
        ("memory = \"64MiB\"", "memory = \"1TiB\"", ":35: 1048576 MiB of memory do not fit on the nodes"),
        ("memory = \"64MiB\"", "", ":33: missing field `memory`"),
        ("memory = \"64MiB\"", "memory = \"64MiB\"\ncap = 5", ":36: unknown field `cap`, expected one of"),
        (
            "{ compute = \"20us\" }",
            "{ compute = \"20us\" }, { fork = \"logger\" }",
            ":8: `fork` needs a guest kernel, which processes of the host do not have",
        ),
        (
            "{ wait_all = \"log\" }, ",
            "",
            ":8: none of these processes waits on channel `log`, only `written`",
        ),
        (
            "{ signal_all = \"written\" }",
            "{ signal_all = \"read\" }",
            ":8: none of these processes signals channel `written`, only `log`, `read`",
        ),
    ];
    for (part, instead, says) in cases {
        assert!(PROCESSES.contains(part), "{part}");
        let error = build(&PROCESSES.replacen(part, instead, 1)).map(|_| ()).expect_err(instead);
        assert!(error.starts_with(&format!("dir/s.toml{says}")), "{instead}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let none = PROCESSES.replace("program = \"logger\"", "program = \"logger\"\ncopies = 0");
    let error = build(&none.replace("workers = 20", "workers = 0")).unwrap_err();
    assert_eq!(error, "dir/s.toml:14: there is no process; at least one is needed");
}

#[test]
fn groups_of_vms_and_of_processes_have_different_names() {
    let text = format!(
        "{HACKBENCH}[programs.hog]\nops = [{{ forever = [{{ compute = \"1ms\" }}] }}]\n[[vm]]\ngroup = \"chat\"\n\
         vcpus = 2\nmemory = \"1GiB\"\nprograms = [\"hog\"]\n"
    );
    assert_eq!(
        build(&text).unwrap_err(),
        "dir/s.toml:4: the group `chat` is there twice; each [[vm]] and [[processes]] needs its own"
    );
}

#[test]
fn something_has_to_run() {
    let empty = "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\n";
    assert_eq!(
        build(empty).unwrap_err(),
        "dir/s.toml: nothing runs; at least one [[vm]] or [[processes]] is needed"
    );
}

#[test]
fn the_schema_tells_of_processes() {
    let schema = serde_json::to_string(&schema::scenario()).unwrap();
    for key in ["processes", "hackbench", "transport", "homes", "threads", "wait_all", "signal_all"] {
        assert!(schema.contains(&format!("\"{key}\":")), "{key}");
    }
}
