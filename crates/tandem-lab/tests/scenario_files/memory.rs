//! Memory policies and NUMA balancing in scenario files.

use super::build;
use tandem_machine::ids::NodeId;
use tandem_sim::scenario::{MemoryPolicy, Pages, PolicySettings, Scenario};

/// A set of processes, before and after which there may be others; the machine has two nodes with 24 GB
/// between them.
fn with_tables(tables: &str) -> Result<Scenario, String> {
    build(&format!(
        "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\n[policy]\nhost = \"linux\"\n[programs.hog]\nops = [{{ compute = \"1ms\" }}]\n{tables}"
    ))
}

fn processes(group: &str, memory: &str, policy: &str) -> String {
    format!(
        "[[processes]]\ngroup = \"{group}\"\nmemory = \"{memory}\"\n{policy}\nprocess = [{{ program = \"hog\", copies = 20 }}]\n"
    )
}

fn shares(memory: &str, policy: &str) -> Vec<f64> {
    let built = with_tables(&processes("db", memory, policy)).unwrap();
    let bytes: u64 = built.machine.nodes().iter().map(|node| node.memory_bytes).sum();
    assert!(built.workloads[0].memory_bytes <= bytes);
    assert!(!built.workloads[0].first_touch);
    built.workloads[0].memory_shares.clone()
}

#[test]
fn each_policy_says_where_memory_lies() {
    assert_eq!(shares("1GiB", ""), [0.5, 0.5]);
    assert_eq!(shares("1GiB", "memory_policy = { bind = \"0\" }"), [1.0, 0.0]);
    assert_eq!(shares("1GiB", "memory_policy = { bind = \"0-1\" }"), [0.5, 0.5]);
    assert_eq!(shares("1GiB", "memory_policy = { preferred = \"1\" }"), [0.0, 1.0]);
    assert_eq!(shares("1GiB", "memory_policy = \"interleave\""), [0.5, 0.5]);
    assert_eq!(shares("1GiB", "memory_policy = { interleave = \"1\" }"), [0.0, 1.0]);
    assert_eq!(
        shares("1GiB", "memory_policy = { bind = \"0\" }\naffinity = { hard = \"node:1\" }"),
        [1.0, 0.0]
    );
    let local = with_tables(&processes("db", "1GiB", "memory_policy = \"local\"")).unwrap();
    assert!(local.workloads[0].first_touch);
    assert_eq!(local.workloads[0].memory_bytes, 1 << 30);
}

#[test]
fn what_numactl_sets_is_a_policy_and_a_cpuset_is_none() {
    let policy = |keys: &str| with_tables(&processes("db", "1GiB", keys)).unwrap().workloads[0].clone();
    for keys in ["{ bind = \"0\" }", "{ preferred = \"0\" }", "{ interleave = \"0-1\" }", "\"interleave\""] {
        let workload = policy(&format!("memory_policy = {keys}"));
        assert_eq!(workload.memory_policy, MemoryPolicy::Own, "{keys}");
    }
    for keys in ["", "memory_policy = \"local\"", "homes = [\"node:0\"]\nmemory_policy = \"home\""] {
        assert_eq!(policy(keys).memory_policy, MemoryPolicy::FirstTouch, "{keys}");
    }
    let bound = policy("memory_policy = { cpuset = \"1\" }");
    assert_eq!(bound.memory_policy, MemoryPolicy::Cpuset(vec![NodeId(1)]));
    assert_eq!(bound.memory_shares, [0.0, 1.0]);
}

#[test]
fn vms_have_transparent_huge_pages_unless_something_else_is_said() {
    let of_vm = |keys: &str| {
        with_tables(&format!(
            "[[vm]]\ngroup = \"vm\"\nvcpus = 2\nmemory = \"1GiB\"\nprograms = [\"hog\"]\n{keys}"
        ))
        .map(|built| built.workloads[0].pages)
    };
    let of_processes = |keys: &str| with_tables(&processes("db", "1GiB", keys)).unwrap().workloads[0].pages;
    assert_eq!((of_vm(""), of_processes("")), (Ok(Pages::Transparent(100)), Pages::Small));
    for (value, expected) in [
        ("\"none\"", Pages::Small),
        ("\"transparent\"", Pages::Transparent(100)),
        ("\"hugetlb\"", Pages::Hugetlb),
        ("{ transparent_pct = 80 }", Pages::Transparent(80)),
    ] {
        let keys = format!("huge_pages = {value}");
        assert_eq!((of_vm(&keys), of_processes(&keys)), (Ok(expected), expected), "{value}");
    }
    for (value, expected) in [
        ("{ transparent_pct = 101 }", "dir/s.toml:12: `transparent_pct` is 101; allowed are 0 to 100"),
        ("\"2MiB\"", "dir/s.toml:12: expected \"transparent\", \"none\", \"hugetlb\", or a table"),
    ] {
        let error = of_vm(&format!("huge_pages = {value}")).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn memory_at_home_stays_there_wherever_the_processes_may_run() {
    for placement in ["none", "pin", "prefer"] {
        let keys = "count = 3\nhomes = [\"node:1\", \"node:0\"]\nmemory_policy = \"home\"";
        let text = processes("db", "1GiB", keys);
        let text = format!(
            "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\n[policy]\nhost = \"linux\"\nplacement = \"{placement}\"\n\
             [programs.hog]\nops = [{{ compute = \"1ms\" }}]\n{text}"
        );
        let built = build(&text).unwrap();
        let shares: Vec<_> = built.measured().map(|vm| vm.memory_shares.clone()).collect();
        assert_eq!(shares, [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]], "{placement}");
    }
    let error = with_tables(&processes("db", "1GiB", "memory_policy = \"home\"")).unwrap_err();
    assert!(error.contains("is for [[processes]] that have `homes`"), "{error}");
}

#[test]
fn a_vm_has_a_policy_too() {
    let vm = "[[vm]]\ngroup = \"vm\"\nvcpus = 2\nmemory = \"1GiB\"\nmemory_policy = { bind = \"1\" }\nprograms = [\"hog\"]\n";
    let built = with_tables(vm).unwrap();
    assert_eq!(built.workloads[0].memory_shares, [0.0, 1.0]);
    assert_eq!(built.workloads[0].memory_bytes, 1 << 30);
}

#[test]
fn what_a_preferred_node_has_no_room_for_lies_on_the_next() {
    let machine = with_tables(&processes("db", "1GiB", "")).unwrap().machine;
    let node_gib = machine.nodes()[1].memory_bytes >> 30;
    let first = processes("first", &format!("{}GiB", node_gib - 1), "memory_policy = { bind = \"1\" }");
    let second = |policy: &str| processes("second", "4GiB", policy);
    let free = machine.nodes()[1].memory_bytes - ((node_gib - 1) << 30);
    let there = free as f64 / (4u64 << 30) as f64;
    for policy in ["{ preferred = \"1\" }", "{ interleave = \"1\" }"] {
        let built = with_tables(&format!("{first}{}", second(&format!("memory_policy = {policy}")))).unwrap();
        let shares = &built.workloads[1].memory_shares;
        assert!(
            (shares[1] - there).abs() < 1e-9 && (shares[0] + there - 1.0).abs() < 1e-9,
            "{policy}: {shares:?}"
        );
    }
    let bound = format!("{first}{}", second("memory_policy = { bind = \"1\" }"));
    let error = with_tables(&bound).unwrap_err();
    assert!(error.starts_with("dir/s.toml:15: 4096 MiB of memory do not fit on the nodes"), "{error}");
}

#[test]
fn mistakes_name_the_line_and_what_is_allowed() {
    for (policy, expected) in [
        ("\"everywhere\"", "dir/s.toml:10: expected \"local\", \"interleave\", \"home\", or a table such as"),
        ("{ bind = 0 }", "dir/s.toml:10: expected \"local\""),
        ("{ bind = \"2\" }", "dir/s.toml:10: `2` names no nodes of the machine; its nodes are 0, 1"),
        ("{ bind = \"\" }", "`` names no nodes of the machine"),
        ("{ interleave = \"all\" }", "`all` names no nodes of the machine"),
        (
            "{ preferred = \"0-1\" }",
            "dir/s.toml:10: `0-1` is more than one node; `preferred` needs a single one",
        ),
    ] {
        let error = with_tables(&processes("db", "1GiB", &format!("memory_policy = {policy}"))).unwrap_err();
        assert!(error.contains(expected), "{policy}: {error}");
    }
    let error = with_tables(&processes("db", "10TiB", "memory_policy = { preferred = \"0\" }")).unwrap_err();
    assert!(error.contains("dir/s.toml:9: the nodes have"), "{error}");
}

#[test]
fn numa_balancing_is_a_setting_of_a_linux_host() {
    let policy = |host: &str| {
        let text = processes("db", "1GiB", "");
        let tables = format!("{text}[policy]\n{host}");
        build(&format!(
            "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\n[programs.hog]\nops = [{{ compute = \"1ms\" }}]\n{tables}"
        ))
    };
    let is_on = |host: &str| match policy(host).unwrap().policy {
        PolicySettings::Linux(settings) => settings.numa_balancing,
        PolicySettings::Credit(_) | PolicySettings::Credit2(_) | PolicySettings::SchedExt(_) => false,
    };
    assert!(!is_on("host = \"linux\""), "off unless it is asked for");
    assert!(is_on("host = { linux = { numa_balancing = true } }"));
    assert!(is_on("host = { linux = { version = \"4.2\", numa_balancing = true } }"));
    assert!(!is_on("host = { linux = { version = \"3.6\", numa_balancing = false } }"));
    for (host, expected) in [
        (
            "[policy.host.linux]\nversion = \"3.6\"\nnuma_balancing = true",
            ":13: `numa_balancing` is not modelled for version \"3.6\"",
        ),
        (
            "[policy.host.xen-credit]\nnuma_balancing = true",
            ":12: unknown field `numa_balancing`, expected one of `version`, `timeslice`",
        ),
    ] {
        let error = policy(host).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}
