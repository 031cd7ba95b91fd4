use super::super::present::parse_vm;
use super::*;
use std::fs;
use tandem_host::vms::homes_file::{HomeEntry, HomesFile, VERSION};
use tandem_host::vms::testing::{Cgroups, Process, Tree};
use tandem_machine::MachineBuilder;

const GIB: u64 = 1 << 30;

fn request(vcpus: u32, gib: u64) -> Request {
    Request { vcpus, memory_bytes: gib * GIB }
}

fn present(vms: &[&str]) -> Vec<PresentVm> {
    vms.iter().map(|text| parse_vm(text).unwrap()).collect()
}

/// What is printed for new VMs on a machine with so many nodes of four CPUs and 8 GiB.
fn lines(nodes: u32, vms: &[&str], new: Request, count: u32) -> Vec<String> {
    let builder = MachineBuilder::symmetric(nodes, 4, 1).every_node(8 * GIB, 1_000_000_000);
    let placed = Scene::described(builder.build().unwrap(), &present(vms))
        .and_then(|scene| Ok((scene.place_all(new, count)?, scene.machine)));
    match placed {
        Ok((newcomers, machine)) => {
            let texts = (1..).zip(&newcomers).map(|(number, newcomer)| describe(&machine, number, newcomer));
            texts.collect::<String>().lines().map(str::to_owned).collect()
        }
        Err(error) => vec![error.to_string()],
    }
}

/// The first line of each VM, up to the reason.
fn homes(lines: &[String]) -> Vec<&str> {
    let first = lines.iter().filter_map(|line| line.strip_prefix("VM "));
    first.map(|line| line.split(": ").nth(1).unwrap()).collect()
}

#[test]
fn busy_vms_count_and_idle_ones_do_not() {
    let new = request(4, 2);
    assert_eq!(homes(&lines(2, &["vcpus=4,memory=1GiB,nodes=0"], new, 1)), ["node 1"]);
    let vms = ["vcpus=4,memory=1GiB,nodes=0,busy=0", "vcpus=1,memory=1GiB,nodes=1"];
    assert_eq!(homes(&lines(2, &vms, new, 1)), ["node 0"]);
}

#[test]
fn what_other_nodes_would_cost_is_told() {
    // What may not leave its node waits there: one CPU of six for four. The new VM may leave.
    let vms = ["vcpus=2,memory=3GiB,nodes=0", "vcpus=2,memory=1GiB,nodes=1,busy=1"];
    assert_eq!(
        lines(2, &vms, request(2, 2), 1),
        [
            "VM 1: node 1: demand there is 3.0 of 4 CPUs with this VM; 7.0 GiB are free there",
            "  node 1: 0.00 CPUs lost (0.00 to 0.00), demand 3.0 of 4 CPUs, 7 GiB free",
            "  node 0: 0.00 CPUs lost (0.00 to 0.00), demand 4.0 of 4 CPUs, 5 GiB free",
        ]
    );
}

#[test]
fn each_placed_vm_is_there_for_the_next() {
    let all = ["node 0", "node 1", "node 0", "node 1", "nodes 0 and 1"];
    assert_eq!(homes(&lines(2, &[], request(2, 3), 5)), all, "a node of 8 GiB has room for two");
    assert_eq!(
        lines(2, &[], request(2, 3), 6),
        [
            "VM 6 of 6: the VM needs 3072 MiB of memory, but the nodes with pCPUs have only 1024 MiB free; if it is started all the \
             same, its home is node 0, by CPUs alone"
        ]
    );
}

#[test]
fn what_cannot_be_is_told_in_a_sentence() {
    #[rustfmt::skip]
    let cases: &[(u32, &[&str], Request, &str)] = &[
        (1, &[], request(2, 1), "VM 1: any node: the machine has one node, or too many to choose from"),
        (1, &[], request(2, 9), "the VM needs 9216 MiB of memory, but the nodes with pCPUs have only 8192 MiB free"),
        (2, &[], request(9, 1), "the VM has 9 vCPUs, but the machine only 8 pCPUs"),
        (2, &["vcpus=1,memory=1GiB,nodes=2"], request(1, 1), "--vm number 1: the machine has no node 2; its nodes are 0-1"),
        (2, &["vcpus=1,memory=1GiB", "vcpus=1,memory=9GiB,nodes=0"], request(1, 1),
            "--vm number 2: 9216 MiB of memory do not fit on the nodes, which have 7680 MiB free"),
    ];
    for &(nodes, vms, new, expected) in cases {
        assert_eq!(lines(nodes, vms, new, 1), [expected], "{vms:?}");
    }
}

#[test]
fn only_the_best_are_shown() {
    let lines = lines(6, &[], request(2, 1), 1);
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[5], "  and 2 more to choose from");
}

/// A host of two nodes with four CPUs each, and half of 32 GiB free on each.
struct Host(Tree, #[expect(dead_code, reason = "its end removes the folder")] tempfile::TempDir);

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree::new(folder.path());
        tree.machine(2, 4);
        tree.cgroups(Cgroups::Unified);
        for node in 0..2 {
            let text = format!("Node {node} MemTotal: 33554432 kB\nNode {node} MemFree: 16777216 kB\n");
            tree.write(&format!("sys/devices/system/node/node{node}/meminfo"), &text);
        }
        Self(tree, folder)
    }

    /// A VM of 4 GiB, of which this is on each node, MiB.
    fn vm(&self, pid: u32, vcpus: u32, memory_mib: [u64; 2]) {
        let mut process = Process::libvirt(pid, &format!("vm{pid}"), vcpus);
        process.resident_kib = (memory_mib[0] + memory_mib[1]) << 10;
        self.0.process(&process);
        let [first, second] = memory_mib.map(|mib| mib << 20);
        let scope = process.cgroup.trim_end_matches("/libvirt/emulator");
        self.0.cgroup(scope, "memory.numa_stat", &format!("anon N0={first} N1={second}\n"));
    }

    /// What an agent says of the VM with that process.
    fn say(&self, pid: u32, home: &[u32], are_planned: bool) {
        let mut vms = HostVms::find(self.0.root(), &Settings::default(), None).unwrap();
        vms.measure(Duration::ZERO).unwrap();
        let vm = vms.agent.tracked_vms().find(|tracked| tracked.vm.identity.pid == pid).unwrap();
        let (identity, name) = (vm.vm.identity, vm.vm.name.clone());
        let entry = HomeEntry {
            identity,
            name,
            home: home.to_vec(),
            why: "so".into(),
            parts: Vec::new(),
            saving: None,
            cores: None,
        };
        let file = HomesFile { version: VERSION, written_unix_s: 0, are_planned, vms: vec![entry] };
        file.write(self.0.root()).unwrap();
    }

    /// The home of a new VM of 4 GiB, after those that come before it.
    fn place(&self, vcpus: u32, coming: &[&str]) -> Vec<u32> {
        let settings = Settings::default();
        let (scene, notes) =
            Scene::of_host(self.0.root(), &settings, &present(coming), Duration::ZERO).unwrap();
        assert_eq!(notes, [""; 0]);
        let newcomers = scene.place_all(request(vcpus, 4), 1).unwrap();
        answer(&scene.machine, &newcomers[0]).nodes
    }
}

#[test]
fn the_vms_of_the_host_are_measured() {
    let host = Host::new();
    host.vm(100, 4, [1000, 0]);
    // Whoever idles takes as little room as this.
    assert_eq!(host.place(2, &[]), [1]);
    assert_eq!(host.place(2, &["vcpus=1,memory=1GiB,nodes=1"]), [0]);
    assert_eq!(host.place(2, &["vcpus=1,memory=1GiB,nodes=1,busy=0", "vcpus=1,memory=1GiB,nodes=0"]), [1]);
    // Memory that the others have not touched yet is taken as well: 1 of 16 GiB is left on node 0.
    assert_eq!(host.place(2, &["vcpus=1,memory=15GiB,nodes=1,busy=0"]), [0]);
}

#[test]
fn homes_are_those_of_the_agent_that_is_at_work() {
    let host = Host::new();
    host.vm(100, 4, [1000, 0]);
    host.say(100, &[1], false);
    assert_eq!(host.place(2, &[]), [0], "the VM lives on node 1, far from its memory");
    host.say(100, &[1], true);
    assert_eq!(host.place(2, &[]), [1], "nobody answers who had that plan");
    host.say(100, &[], false);
    assert_eq!(host.place(2, &[]), [0], "it has no home, and takes as much of both");
    fs::write(host.0.root().join("run/tandem/homes.json"), "{").unwrap();
    let of_host = Scene::of_host(host.0.root(), &Settings::default(), &[], Duration::ZERO).unwrap();
    assert!(
        of_host.1[0].starts_with("the agent's homes cannot be read, so those used are inferred: "),
        "{:?}",
        of_host.1
    );
}

#[test]
fn a_vm_that_comes_gets_the_home_that_was_said() {
    let mut random = 7u64;
    let mut number = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut on_nodes = [0; 3];
    for case in 0..24 {
        let host = Host::new();
        for pid in 1..=number(5) as u32 {
            host.vm(100 * pid, 1 + number(4) as u32, [number(3000), number(3000)]);
        }
        let vcpus = 1 + number(6) as u32;
        let said = host.place(vcpus, &[]);
        let mut there = HostVms::find(host.0.root(), &Settings::default(), None).unwrap();
        there.measure(Duration::ZERO).unwrap();
        host.vm(9_000, vcpus, [0, 0]);
        // Time enough for it to be found, and not for a look.
        there.agent.step(Duration::from_secs(5)).unwrap();
        let come = there.agent.tracked_vms().find(|tracked| tracked.vm.identity.pid == 9_000).unwrap();
        assert_eq!(come.home_numbers(&there.machine), said, "case {case}");
        on_nodes[if said.len() == 1 { said[0] as usize } else { 2 }] += 1;
    }
    assert!(on_nodes.iter().all(|&count| count > 0), "all answers are there: {on_nodes:?}");
}

#[test]
fn settings_without_homes_are_refused() {
    let mut settings = Settings::default();
    settings.agent.enabled = false;
    let refused = Scene::of_host(Path::new("/nowhere"), &settings, &[], Duration::ZERO);
    let message = refused.err().unwrap().to_string();
    assert!(message.starts_with("VMs get no homes with these settings"), "{message}");
}
