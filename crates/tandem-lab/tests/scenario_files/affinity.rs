//! Affinities of single vCPUs in scenario files.

use super::build;
use tandem_machine::ids::CpuId;
use tandem_sim::scenario::{HostAction, Scenario, Which};

/// Two VMs of three vCPUs on two nodes of eight CPUs, with these keys, and more tables after them.
fn with_keys(keys: &str, tables: &str) -> Result<Scenario, String> {
    build(&format!(
        "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\npolicy = {{ host = \"linux\", placement = \"pin\" }}\n\
         [programs.hog]\nops = [{{ compute = \"1ms\" }}]\n\
         [[vm]]\ngroup = \"vm\"\ncount = 2\nvcpus = 3\nmemory = \"1GiB\"\nprograms = [\"hog\"]\n{keys}\n{tables}"
    ))
}

/// The CPUs that each vCPU of the second VM may use, and prefers.
fn cpus(scenario: &Scenario) -> Vec<(usize, Option<Vec<CpuId>>)> {
    let of = |affinity: &tandem_sim::scenario::Affinity| {
        (affinity.hard.count(), affinity.soft.as_ref().map(|soft| soft.iter().collect()))
    };
    scenario.workloads[1].affinities().map(of).collect()
}

#[test]
fn a_vcpu_has_its_own_affinity_or_that_of_the_vm() {
    let own = "vcpu_affinity = [{ vcpus = \"0\", hard = \"1\" }, { vcpus = \"2\", hard = \"0-3\", soft = \"2-3\" }]";
    let some = vec![CpuId(2), CpuId(3)];
    let alone = with_keys(own, "").unwrap();
    assert_eq!(cpus(&alone), [(1, None), (16, None), (4, Some(some.clone()))], "nothing is placed");
    assert_eq!(alone.workloads[1].memory_shares, [0.5, 0.5], "where any of them may run");

    let within = with_keys(&format!("affinity = {{ hard = \"node:0\" }}\n{own}"), "").unwrap();
    assert_eq!(cpus(&within), [(1, None), (8, None), (4, Some(some))]);

    let apart = "vcpu_affinity = [{ vcpus = \"0-2\", hard = \"all\", soft = \"node:1\" }]";
    let home = with_keys(apart, "").unwrap();
    assert_eq!(home.workloads[0].memory_shares, [0.0, 1.0], "where all of them prefer to run");
}

#[test]
fn affinities_of_single_vcpus_change() {
    let change = "affinity_change = [{ at = \"10ms\", vcpus = \"1-2\", hard = \"0\" }, { at = \"20ms\", hard = \"1\" }]";
    let event = "[[event]]\nat = \"30ms\"\nset_affinity = { group = \"vm\", vcpus = \"0\", cpus = \"2\" }";
    let scenario = with_keys(change, event).unwrap();
    let changes = &scenario.workloads[0].affinity_changes;
    assert_eq!(changes[0].tasks, Which::These(vec![1, 2]));
    assert_eq!(changes[1].tasks, Which::All);
    let HostAction::SetAffinity { vms, tasks, .. } = &scenario.events[0].action else { panic!("it is set") };
    assert_eq!((vms.len(), tasks), (2, &Which::These(vec![0])));
}

#[test]
fn mistakes_name_the_line_and_what_is_allowed() {
    let process = "[[processes]]\ngroup = \"p\"\nmemory = \"1MiB\"\nprocess = [{ program = \"hog\" }]";
    for (keys, tables, expected) in [
        (
            "vcpu_affinity = [{ vcpus = \"3\", hard = \"0\" }]",
            String::new(),
            "dir/s.toml:12: `3` names no vCPUs of the VM; allowed are numbers and ranges within 0 to 2",
        ),
        (
            "vcpu_affinity = [{ vcpus = \"\", hard = \"0\" }]",
            String::new(),
            "dir/s.toml:12: `` names no vCPUs",
        ),
        (
            "vcpu_affinity = [{ vcpus = \"0-1\" }, { vcpus = \"1\" }]",
            String::new(),
            "dir/s.toml:12: vCPU 1 has an affinity already; name it once",
        ),
        (
            "vcpu_affinity = [{ vcpus = \"0\", hard = \"0\", soft = \"1\" }]",
            String::new(),
            "dir/s.toml:12: the soft affinity has CPUs outside the hard one",
        ),
        (
            "",
            format!("{process}\naffinity_change = [{{ at = \"1ms\", vcpus = \"0\" }}]"),
            "dir/s.toml:17: processes have no vCPUs; leave `vcpus` out",
        ),
        (
            "",
            format!(
                "{process}\n[[event]]\nat = \"1ms\"\nset_affinity = {{ group = \"p\", vcpus = \"0\", cpus = \"0\" }}"
            ),
            "dir/s.toml:19: processes have no vCPUs; leave `vcpus` out",
        ),
    ] {
        let error = with_keys(keys, &tables).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn xen_before_4_5_prefers_by_vm_alone() {
    let text = |keys: &str| {
        format!(
            "length = \"1s\"\nmachine = \"xeon-e5620-2s\"\npolicy = {{ host = {{ xen-credit = {{ version = \"4.3\" }} }} }}\n\
             [programs.hog]\nops = [{{ compute = \"1ms\" }}]\n\
             [[vm]]\ngroup = \"vm\"\nvcpus = 2\nmemory = \"1GiB\"\nprograms = [\"hog\"]\n{keys}"
        )
    };
    for keys in [
        "vcpu_affinity = [{ vcpus = \"0\", soft = \"0\" }]",
        "affinity_change = [{ at = \"1ms\", vcpus = \"0\", soft = \"0\" }]",
    ] {
        let error = build(&text(keys)).unwrap_err();
        assert!(error.contains("different soft affinities, which came with Xen 4.5"), "{error}");
    }
    for keys in [
        "vcpu_affinity = [{ vcpus = \"0\", hard = \"0\" }]",
        "vcpu_affinity = [{ vcpus = \"0-1\", soft = \"0\" }]",
        "affinity_change = [{ at = \"1ms\", vcpus = \"0-1\", soft = \"0\" }]",
    ] {
        assert!(build(&text(keys)).is_ok(), "{keys}");
    }
}
