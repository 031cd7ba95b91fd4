//! Files of hwloc: real ones, and unusual machines.
//!
//! `fixtures/lstopo-2.9-v2.xml` and `-v1.xml` are what lstopo 2.9.0 prints for
//! `lstopo -i "pack:2 numa:2 l3:1 core:4 pu:2" --of xml`, the latter with `--export-xml-flags 1`.

use std::path::Path;
use tandem_host::topology::{parse_hwloc, read_hwloc};
use tandem_machine::ids::{CpuId, NodeId};
use tandem_machine::{Hardware, Llc, Machine};

fn read(xml: &str) -> Machine {
    parse_hwloc(xml).unwrap()
}

/// Packages, nodes, caches, cores, CPUs.
fn counts(machine: &Machine) -> [usize; 5] {
    [
        machine.packages().len(),
        machine.node_count(),
        machine.llcs().len(),
        machine.cores().len(),
        machine.cpu_count(),
    ]
}

fn capacities(machine: &Machine) -> Vec<u32> {
    machine.cpus().iter().map(|cpu| cpu.capacity_permille).collect()
}

/// The objects inside a `Machine` of version 2, and elements after it.
fn topology(root: &str, objects: &str, after: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n\
         <topology version=\"2.0\">\n<object type=\"Machine\" {root}>{objects}</object>\n{after}</topology>\n"
    )
}

/// A core with these CPUs.
fn core(cpus: &[u32]) -> String {
    let pus: String = cpus.iter().map(|cpu| format!("<object type=\"PU\" os_index=\"{cpu}\"/>")).collect();
    format!("<object type=\"Core\">{pus}</object>")
}

fn node(os_index: u32, cpuset: &str, memory: u64) -> String {
    format!(
        "<object type=\"NUMANode\" os_index=\"{os_index}\" cpuset=\"{cpuset}\" local_memory=\"{memory}\"/>"
    )
}

fn package(os_index: u32, inside: &str) -> String {
    format!("<object type=\"Package\" os_index=\"{os_index}\">{inside}</object>")
}

#[test]
fn files_of_lstopo_in_both_versions() {
    for version in ["v1", "v2"] {
        let path = format!("{}/tests/fixtures/lstopo-2.9-{version}.xml", env!("CARGO_MANIFEST_DIR"));
        let machine = read_hwloc(Path::new(&path)).unwrap();
        assert_eq!(machine.name(), format!("lstopo-2.9-{version}"));
        assert_eq!(counts(&machine), [2, 4, 4, 16, 32], "{version}");
        assert_eq!(machine.os_list(machine.node_cpus(NodeId(2))), "16-23");
        assert_eq!(machine.os_list(machine.siblings(CpuId(9))), "8-9");
        assert_eq!(machine.nodes()[3].memory_bytes, 1 << 30);
        assert_eq!(machine.llcs()[1].size_bytes, 16 << 20);
        assert_eq!(machine.distance(NodeId(0), NodeId(3)), 20);
    }
}

#[test]
fn offline_and_disallowed_cpus_are_left_out() {
    let objects = node(0, "0xff", 0) + &package(0, &(core(&[0, 1]) + &core(&[2, 3]) + &core(&[4, 5])));
    let root = "cpuset=\"0x1f\" online_cpuset=\"0x3d\" allowed_cpuset=\"0xf...f\"";
    let machine = read(&topology(root, &objects, ""));
    assert_eq!(machine.os_list(machine.all_cpus()), "0,2-4");
    assert_eq!(counts(&machine), [1, 1, 0, 3, 4]);
    // hwloc 1 shows an offline CPU with an empty set.
    let empty =
        package(0, "<object type=\"PU\" os_index=\"0\"/><object type=\"PU\" os_index=\"1\" cpuset=\"0x0\"/>");
    assert_eq!(read(&topology("", &empty, "")).cpu_count(), 1);
}

#[test]
fn nodes_without_cpus_or_memory_under_a_group() {
    let far = "<object type=\"Group\" cpuset=\"0x0\"><object type=\"NUMANode\" os_index=\"16\" cpuset=\"0x0\" \
               local_memory=\"1073741824\"/></object>";
    let objects = node(0, "0x3", 0) + &package(0, &core(&[0, 1])) + far;
    let distances = "<distances2 type=\"NUMANode\" nbobjs=\"2\" kind=\"5\" indexing=\"os\">\
                     <indexes length=\"5\">0 16 </indexes><u64values length=\"12\">10 17 17 14 </u64values></distances2>";
    let machine = read(&topology("", &objects, distances));
    assert_eq!(machine.nodes().iter().map(|node| node.os_index).collect::<Vec<_>>(), [0, 16]);
    assert_eq!(machine.nodes().iter().map(|node| node.memory_bytes).collect::<Vec<_>>(), [0, 1 << 30]);
    assert_eq!(machine.distance(NodeId(0), NodeId(1)), 17);
    assert_eq!(machine.distance(NodeId(1), NodeId(1)), 14, "as firmware says, where nothing runs");
}

#[test]
fn heterogeneous_memory_leaves_cpus_on_the_smallest_then_lowest_node() {
    let objects =
        node(4, "0x3", 16) + &node(0, "0x3", 64) + &node(2, "0xf", 128) + &core(&[0, 1]) + &core(&[2, 3]);
    let machine = read(&topology("", &objects, ""));
    let cpus = |at| machine.os_list(machine.node_cpus(NodeId(at)));
    assert_eq!([cpus(0), cpus(1), cpus(2)], ["0-1", "2-3", ""]);
}

#[test]
fn memory_side_caches_are_not_last_level_caches() {
    let cached =
        format!("<object type=\"MemCache\" cache_size=\"99\" depth=\"1\">{}</object>", node(0, "0x3", 64));
    let machine = read(&topology("", &package(0, &(cached + &core(&[0, 1]))), ""));
    assert_eq!(counts(&machine), [1, 1, 0, 1, 2]);
}

#[test]
fn the_outermost_cache_of_the_highest_level_is_last() {
    let cache = |kind: &str, depth: u32, size: u64, cache_type: u32, inside: &str| {
        format!(
            "<object type=\"{kind}\" cache_size=\"{size}\" depth=\"{depth}\" cache_type=\"{cache_type}\">{inside}\
             </object>"
        )
    };
    let l1i = cache("L1iCache", 1, 32768, 2, &core(&[0]));
    let l2 = cache("L2Cache", 2, 524_288, 0, &l1i);
    let without_l3 = read(&topology("", &(l2.clone() + &core(&[1])), ""));
    assert_eq!(without_l3.llcs().len(), 1);
    assert_eq!(without_l3.llcs()[0].size_bytes, 524_288);
    assert_eq!(without_l3.cpu(CpuId(1)).llc, None);
    // hwloc writes 0 for an unknown size; version 1 calls every cache Cache.
    let l3 = read(&topology("", &cache("Cache", 3, 0, 0, &l2), ""));
    assert_eq!(l3.llcs()[0].size_bytes, Llc::GENERIC_SIZE_BYTES);
    assert_eq!(l3.hardware(), &Hardware { l2_bytes: 524_288, ..Hardware::GENERIC });
}

#[test]
fn no_package_no_core_no_node() {
    let pus = "<object type=\"PU\" os_index=\"0\"/><object type=\"PU\" os_index=\"1\"/>";
    let machine = read(&topology("local_memory=\"4096\"", pus, ""));
    assert_eq!(counts(&machine), [1, 1, 0, 2, 2]);
    assert_eq!(machine.nodes()[0].memory_bytes, 4096);
}

#[test]
fn several_packages_a_node_and_packages_without_numbers() {
    let nameless = format!("<object type=\"Package\">{}</object>", core(&[1]));
    let objects = node(0, "0x7", 1) + &package(0, &core(&[0])) + &nameless + &core(&[2]);
    let machine = read(&topology("", &objects, ""));
    assert_eq!(counts(&machine), [3, 1, 0, 3, 3]);
    assert_eq!(machine.packages().iter().map(|package| package.os_index).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn hundreds_of_cpus_in_words_that_may_be_left_out() {
    let objects =
        node(0, "0x1,,0x1", 1) + &node(1, "0xf...f,0x0,0xffffffff,0x0", 1) + &core(&[0, 64]) + &core(&[300]);
    let machine = read(&topology("", &objects, ""));
    assert_eq!(machine.os_list(machine.node_cpus(NodeId(0))), "0,64");
    assert_eq!(machine.os_list(machine.node_cpus(NodeId(1))), "300");
}

#[test]
fn hybrid_cores_by_kind() {
    let objects = core(&[0, 1]) + &core(&[2]);
    let kind = |cpuset: &str, name: &str, value: u32| {
        format!("<cpukind cpuset=\"{cpuset}\"><info name=\"{name}\" value=\"{value}\"/></cpukind>")
    };
    let mhz = kind("0x3", "FrequencyMaxMHz", 4000) + &kind("0x4", "FrequencyMaxMHz", 3000);
    let machine = read(&topology("", &objects, &mhz));
    assert_eq!(capacities(&machine), [1000, 1000, 750]);
    assert_eq!(machine.hardware().clock_mhz, 4000);
    let capacity = kind("0x3", "LinuxCapacity", 1024) + &kind("0x4", "LinuxCapacity", 512);
    assert_eq!(capacities(&read(&topology("", &objects, &capacity))), [1000, 1000, 500]);
    let incomplete = kind("0x3", "FrequencyMaxMHz", 4000);
    assert_eq!(capacities(&read(&topology("", &objects, &incomplete))), [1000; 3]);
}

#[test]
fn a_cpu_whose_node_is_hidden_is_on_a_node_without_memory() {
    let hidden = "<object type=\"PU\" os_index=\"1\" complete_nodeset=\"0x8\"/>";
    let machine = read(&topology("", &(node(0, "0x1", 64) + &core(&[0]) + hidden), ""));
    assert_eq!(machine.nodes().iter().map(|node| node.os_index).collect::<Vec<_>>(), [0, 3]);
    assert_eq!(machine.nodes()[1].memory_bytes, 0);
}

#[test]
fn distances_of_version_2_in_any_order_and_unit() {
    let objects = format!(
        "<object type=\"NUMANode\" os_index=\"0\" gp_index=\"70\" cpuset=\"0x1\"/>\
         <object type=\"NUMANode\" os_index=\"1\" gp_index=\"60\" cpuset=\"0x2\"/>{}{}",
        core(&[0]),
        core(&[1])
    );
    let matrix = |kind: u32, indexing: &str, indexes: &str, values: &str| {
        format!(
            "<distances2 type=\"NUMANode\" nbobjs=\"2\" kind=\"{kind}\" indexing=\"{indexing}\">\
             <indexes>{indexes}</indexes><u64values>{values}</u64values></distances2>"
        )
    };
    let between = |after: &str| {
        let machine = read(&topology("", &objects, after));
        [machine.distance(NodeId(0), NodeId(1)), machine.distance(NodeId(1), NodeId(0))]
    };
    assert_eq!(between(""), [20, 20]);
    assert_eq!(between(&matrix(5, "os", "1 0", "10 16 21 10")), [21, 16]);
    assert_eq!(between(&matrix(5, "gp", "60 70", "10 16 21 10")), [21, 16]);
    assert_eq!(between(&matrix(6, "os", "0 1", "80 120 136 81")), [15, 17], "measured: own distance is 10");
    assert_eq!(between(&matrix(9, "os", "0 1", "1 2 3 4")), [20, 20], "bandwidths are not distances");
    assert_eq!(between(&matrix(5, "os", "0 7", "10 99 99 10")), [20, 20], "node 7 is not there");
    let both = matrix(6, "os", "0 1", "10 30 30 10") + &matrix(5, "os", "0 1", "10 40 40 10");
    assert_eq!(between(&both), [40, 40], "the operating system's win");
}

#[test]
fn distances_of_version_1_belong_to_a_depth() {
    let latencies = |values: &[f64]| -> String {
        values.iter().map(|value| format!("<latency value=\"{value:.6}\"/>")).collect()
    };
    let matrix = |depth: u32, values: &[f64]| {
        let values = latencies(values);
        format!(
            "<distances nbobjs=\"2\" relative_depth=\"{depth}\" latency_base=\"10.000000\">{values}</distances>"
        )
    };
    let numa = |os_index: u32, cpuset: &str, cpu: u32| {
        format!(
            "<object type=\"NUMANode\" os_index=\"{os_index}\" cpuset=\"{cpuset}\">\
             <object type=\"Socket\" os_index=\"{os_index}\">{}</object></object>",
            core(&[cpu])
        )
    };
    let xml = format!(
        "<topology><object type=\"Machine\" cpuset=\"0x3\">{}{}{}{}</object></topology>",
        matrix(2, &[1.0, 9.0, 9.0, 1.0]),
        matrix(1, &[1.0, 2.1, 1.7, 1.0]),
        numa(0, "0x1", 0),
        numa(1, "0x2", 1),
    );
    let machine = read(&xml);
    assert_eq!(counts(&machine), [2, 2, 0, 2, 2]);
    assert_eq!(machine.distance(NodeId(0), NodeId(1)), 21);
    assert_eq!(machine.distance(NodeId(1), NodeId(0)), 17);
}

#[test]
fn what_cannot_be_read_is_one_sentence_with_the_line() {
    let deep = "<object type=\"Group\">".repeat(200) + &"</object>".repeat(200);
    let many: String = (0..8193).map(|cpu| format!("<object type=\"PU\" os_index=\"{cpu}\"/>")).collect();
    let pu = "<object type=\"PU\" os_index=\"0\"/>";
    let cases = [
        (String::new(), "hwloc XML: is not XML as lstopo writes it:"),
        ("<html/>".to_owned(), "hwloc XML:1: expected <topology>, as lstopo --of xml writes it"),
        ("<topology/>".to_owned(), "hwloc XML:1: has no object of type Machine"),
        (
            "<!DOCTYPE topology [<!ENTITY a \"a\">]><topology/>".to_owned(),
            "hwloc XML: declares XML entities, which hwloc does not write",
        ),
        (
            topology("", "\n<object type=\"Machine\"/>", ""),
            "hwloc XML:5: several objects of type Machine are not supported",
        ),
        (topology("", "", ""), "hwloc XML: the machine has no CPU; at least one is needed"),
        (topology("cpuset=\"0-3\"", pu, ""), "hwloc XML:4: cpuset `0-3` is not a set such as"),
        (
            topology("", "\n<object type=\"PU\" os_index=\"70000\"/>", ""),
            "hwloc XML:5: expected an os_index from 0 to 65535",
        ),
        (topology("", "\n<object type=\"PU\"/>", ""), "hwloc XML:5: expected an os_index from 0 to 65535"),
        (topology("", &(pu.to_owned() + pu), ""), "hwloc XML: CPU 0 is described twice"),
        (topology("", &many, ""), "hwloc XML: the machine has 8193 CPUs; at most 8192 are supported"),
        (topology("", &deep, ""), "hwloc XML:4: objects are nested more than 128 deep"),
        (topology("", &(node(0, "0x2", 1) + pu), ""), "hwloc XML:4: CPU 0 is in no NUMA node"),
        (
            topology("", &(node(0, "0x1", 1) + &node(1, "0x2", 1) + &core(&[0, 1])), ""),
            "hwloc XML: CPUs 0 and 1 are threads of one core but differ in NUMA node",
        ),
        (
            topology(
                "",
                &(node(0, "0x1", 1) + pu),
                "\n<distances2 type=\"NUMANode\"><indexes>0 1</indexes></distances2>",
            ),
            "hwloc XML:6: has 0 values; expected 2 x 2",
        ),
        (
            topology(
                "",
                &(node(0, "0x1", 1) + pu),
                "<distances2 type=\"NUMANode\"><indexes>0</indexes><u64values>0</u64values></distances2>",
            ),
            "hwloc XML:5: has the distance 0; it must be positive",
        ),
    ];
    for (xml, expected) in cases {
        let message = parse_hwloc(&xml).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}\n{expected}");
        assert_eq!(message.lines().count(), 1);
    }
}

#[test]
fn a_missing_file_is_named() {
    let message = read_hwloc(Path::new("no-such.xml")).unwrap_err().to_string();
    assert!(message.starts_with("no-such.xml: cannot be read: "), "{message}");
}
