//! Which descriptions become machines, and which are refused.

use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, NodeId, PackageId};
use tandem_machine::{CpuSpec, Hardware, MachineBuilder, MachineError, NodeSpec};

fn cpu(os_index: u32, core: u32, node: u32) -> CpuSpec {
    CpuSpec { os_index, core, llc: None, node, package: 0, capacity: 1 }
}

fn node(os_index: u32) -> NodeSpec {
    NodeSpec { os_index, memory_bytes: 1 << 30, bandwidth_bytes_per_s: 1 << 30 }
}

fn numbers(mask: &CpuMask) -> Vec<u32> {
    mask.iter().map(|cpu| cpu.0).collect()
}

#[test]
fn relations_follow_labels_and_indices_are_dense() {
    let machine = MachineBuilder::new("odd")
        .node(node(4))
        .node(node(2))
        .llc(7, 1 << 20)
        .cpu(CpuSpec { llc: Some(7), package: 9, capacity: 512, ..cpu(12, 50, 4) })
        .cpu(CpuSpec { llc: Some(7), package: 9, capacity: 512, ..cpu(3, 50, 4) })
        .cpu(CpuSpec { package: 1, capacity: 1024, ..cpu(5, 8, 2) })
        .distances(vec![vec![10, 17], vec![21, 10]])
        .build()
        .unwrap();
    assert_eq!(machine.cpus().iter().map(|cpu| cpu.os_index).collect::<Vec<_>>(), [3, 5, 12]);
    assert_eq!(machine.cpus().iter().map(|cpu| cpu.capacity_permille).collect::<Vec<_>>(), [500, 1000, 500]);
    assert_eq!(machine.nodes().iter().map(|node| node.os_index).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(numbers(machine.siblings(CpuId(0))), [0, 2]);
    assert_eq!(numbers(machine.llc_cpus(CpuId(2))), [0, 2]);
    assert_eq!(numbers(machine.llc_cpus(CpuId(1))), [1], "without a cache, the core's CPUs");
    assert_eq!(numbers(machine.node_cpus(NodeId(0))), [1]);
    assert_eq!(numbers(machine.package_cpus(PackageId(1))), [0, 2]);
    // The rows are in the order 4, 2.
    assert_eq!(machine.distance(NodeId(1), NodeId(0)), 17);
    assert_eq!(machine.distance(NodeId(0), NodeId(1)), 21);
}

#[test]
fn nearest_nodes_come_first_and_ties_go_by_number() {
    let rows = vec![vec![10, 30, 20, 20], vec![30, 10, 10, 10], vec![20, 20, 10, 20], vec![20; 4]];
    let mut rows = rows;
    rows[3][3] = 10;
    let machine = MachineBuilder::symmetric(4, 1, 1).distances(rows).build().unwrap();
    assert_eq!(machine.nodes_by_distance(NodeId(0)), [0, 2, 3, 1].map(NodeId));
    assert_eq!(machine.nodes_by_distance(NodeId(1)), [1, 2, 3, 0].map(NodeId), "itself before its equals");
    assert_eq!(machine.nodes_by_distance(NodeId(3)), [3, 0, 1, 2].map(NodeId));
}

#[test]
fn inconsistent_descriptions_are_refused() {
    use MachineError::*;
    let fits = || MachineBuilder::new("m").node(node(0)).cpu(cpu(0, 0, 0));
    let slow = Hardware { remote_memory_latency_ns: 1, ..Hardware::GENERIC };
    let cases = [
        (MachineBuilder::new("m").node(node(0)), NoCpu),
        (MachineBuilder::new("m").cpu(cpu(0, 0, 0)), NoNode),
        (MachineBuilder::symmetric(1, 8193, 1), TooManyCpus(8193)),
        (MachineBuilder::symmetric(1025, 1, 1), TooManyNodes(1025)),
        (fits().cpu(cpu(0, 1, 0)), DuplicateCpu(0)),
        (fits().node(node(0)), DuplicateNode(0)),
        (fits().llc(1, 1).llc(1, 1), DuplicateLlc(1)),
        (fits().cpu(cpu(1, 1, 3)), UnknownNode { cpu: 1, node: 3 }),
        (fits().cpu(CpuSpec { llc: Some(5), ..cpu(1, 1, 0) }), UnknownLlc { cpu: 1, llc: 5 }),
        (fits().node(node(1)).cpu(cpu(1, 0, 1)), SplitCore { first: 0, second: 1, what: "NUMA node" }),
        (fits().cpu(CpuSpec { capacity: 0, ..cpu(1, 1, 0) }), NoCapacity(1)),
        (fits().distances(vec![vec![10, 20]]), DistanceShape { nodes: 1 }),
        (fits().distances(vec![vec![11]]), BadDistance { from: 0, to: 0, distance: 11 }),
        (fits().every_node(1, 0), NoBandwidth(0)),
        (fits().llc(3, 0), EmptyLlc(3)),
        (fits().hardware(Hardware { l2_bytes: 0, ..Hardware::GENERIC }), EmptyL2),
        (fits().hardware(Hardware { clock_mhz: 0, ..Hardware::GENERIC }), NoClock),
        (fits().hardware(slow), LatencyOrder { llc_ns: 29, local_ns: 89, remote_ns: 1 }),
    ];
    for (builder, error) in cases {
        assert_eq!(builder.build(), Err(error));
    }
}

#[test]
fn isolated_cpus_are_left_to_tasks_that_name_them() {
    let machine = MachineBuilder::symmetric(1, 4, 1).isolated([2, 3, 9]).build().unwrap();
    assert_eq!(machine.os_list(machine.isolated()), "2-3");
    assert_eq!(machine.os_list(machine.housekeeping_cpus()), "0-1");
    let all = MachineBuilder::symmetric(1, 4, 1).isolated(0..4).build().unwrap();
    assert_eq!(all.housekeeping_cpus(), all.all_cpus(), "tasks without an affinity have to run somewhere");
    assert!(MachineBuilder::symmetric(1, 4, 1).build().unwrap().isolated().is_empty());
    assert!(machine.reported(true).isolated().is_empty(), "a guest does not see them");
}

#[test]
fn cpus_without_a_tick_are_those_named() {
    let machine = MachineBuilder::symmetric(1, 4, 1).tickless([1, 3, 9]).build().unwrap();
    assert_eq!(machine.os_list(machine.tickless()), "1,3");
    assert!(machine.isolated().is_empty());
    assert!(machine.reported(true).tickless().is_empty(), "a guest does not see them");
}
