//! Unusual machines as their kernels report them.

mod support;

use support::Tree;
use tandem_host::topology::{read_isolated, read_sysfs, read_sysfs_assuming};
use tandem_machine::ids::{CpuId, NodeId};
use tandem_machine::{CpuSpec, Hardware, Llc, Machine, MachineBuilder, NodeSpec, format_cpulist};
use tandem_settings::Places;

/// Two packages, each a node with one cache and two cores of two threads: CPUs 0-3 and 4-7.
fn plain() -> Tree {
    Tree::of(&MachineBuilder::symmetric(2, 2, 2).build().unwrap())
}

fn read(tree: &Tree) -> Machine {
    read_sysfs(tree.root()).unwrap()
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

fn error(tree: &Tree) -> String {
    let message = read_sysfs(tree.root()).unwrap_err().to_string();
    message.replace(&format!("{}/", tree.root().display()), "")
}

#[test]
fn a_plain_machine() {
    let machine = read(&plain());
    assert_eq!(counts(&machine), [2, 2, 2, 4, 8]);
    assert_eq!(machine.os_list(machine.siblings(CpuId(5))), "4-5");
    assert_eq!(machine.os_list(machine.llc_cpus(CpuId(5))), "4-7");
}

#[test]
fn a_copy_of_sys_alone_will_do() {
    let tree = plain();
    let machine = read_sysfs(&tree.root().join("sys")).unwrap();
    assert_eq!(counts(&machine), [2, 2, 2, 4, 8]);
}

#[test]
fn offline_cpus_are_left_out() {
    let tree = plain();
    tree.cpu("online", "0-2,5-7");
    for cpu in [3, 4] {
        tree.remove(&format!("cpu/cpu{cpu}/topology"));
        tree.remove(&format!("cpu/cpu{cpu}/cache"));
    }
    let machine = read(&tree);
    assert_eq!(counts(&machine), [2, 2, 2, 4, 6]);
    assert_eq!(machine.os_list(machine.all_cpus()), "0-2,5-7");
    assert_eq!(machine.os_list(machine.siblings(CpuId(2))), "2", "its sibling is offline");
    assert_eq!(machine.os_list(machine.llc_cpus(CpuId(3))), "5-7");
}

/// Two Ampere Altra, as Linux reports them: each package a node of 80 cores of one thread, an L2 of 1 MiB for
/// each core, and no L3.
fn altra() -> Tree {
    let tree = Tree::of(&MachineBuilder::symmetric(2, 80, 1).build().unwrap());
    for cpu in 0..160 {
        tree.remove(&format!("cpu/cpu{cpu}/cache/index3"));
    }
    tree
}

#[test]
fn a_server_whose_last_caches_are_private_has_a_queue_for_each_node() {
    let machine = read(&altra());
    assert_eq!(counts(&machine), [2, 2, 160, 160, 160], "as the hardware is");
    assert_eq!(machine.llcs()[7].size_bytes, 1 << 20);
    let places = Places::of_host(&machine, 160).unwrap();
    assert_eq!((places.cpu_count(), places.llc_count(), places.node_count()), (160, 2, 2));
}

#[test]
fn isolated_cpus_are_known_as_far_as_they_are_online() {
    let tree = plain();
    assert!(read(&tree).isolated().is_empty());
    for none in ["", "\n", "(null)\n", " \n\0"] {
        tree.cpu("isolated", none);
        assert!(read(&tree).isolated().is_empty(), "{none:?}");
    }
    tree.cpu("online", "0-6");
    tree.cpu("isolated", "2-3,6-9");
    let machine = read(&tree);
    assert_eq!(machine.os_list(machine.isolated()), "2-3,6");
    assert_eq!(machine.os_list(machine.housekeeping_cpus()), "0-1,4-5");
    let places = Places::of_host(&machine, 10).unwrap();
    assert_eq!((places.cpu_count(), places.llc_count()), (7, 2));
}

#[test]
fn cpus_of_isolated_partitions_are_isolated() {
    let tree = plain();
    tree.cpu("isolated", "2-3");
    tree.write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    assert_eq!(read_isolated(tree.root()).unwrap(), [2, 3], "a kernel that does not list partitions");
    tree.write("sys/fs/cgroup/cpuset.cpus.isolated", "3,6-9\n");
    assert_eq!(read_isolated(tree.root()).unwrap(), [2, 3, 6, 7, 8, 9]);
    let machine = read(&tree);
    assert_eq!(machine.os_list(machine.isolated()), "2-3,6-7");
    tree.write("sys/fs/cgroup/cpuset.cpus.isolated", "\n");
    assert_eq!(read_isolated(tree.root()).unwrap(), [2, 3]);
}

#[test]
fn cpus_without_a_tick_are_known_as_far_as_they_are_online() {
    let tree = plain();
    assert!(read(&tree).tickless().is_empty());
    for none in ["", "(null)\n", "  (null)\n"] {
        tree.cpu("nohz_full", none);
        assert!(read(&tree).tickless().is_empty(), "{none:?}");
    }
    tree.cpu("online", "0-6");
    tree.cpu("nohz_full", "2-3,6-9\n");
    let machine = read(&tree);
    assert_eq!(machine.os_list(machine.tickless()), "2-3,6");
    assert!(machine.isolated().is_empty());
}

#[test]
fn offline_by_the_file_of_the_cpu() {
    let tree = plain();
    tree.cpu("cpu7/online", "0");
    tree.cpu("cpu6/online", "1");
    assert_eq!(counts(&read(&tree)), [2, 2, 2, 4, 7]);
}

#[test]
fn without_a_list_cpus_with_a_topology_are_online() {
    let tree = plain();
    tree.remove("cpu/online");
    tree.remove("cpu/cpu0/topology");
    assert_eq!(counts(&read(&tree)), [2, 2, 2, 4, 7]);
}

#[test]
fn an_online_cpu_without_topology_is_a_core_in_package_0() {
    let tree = plain();
    tree.remove("cpu/cpu0/topology");
    tree.remove("cpu/cpu1/topology");
    assert_eq!(counts(&read(&tree)), [2, 2, 2, 5, 8]);
}

#[test]
fn a_package_offline_as_a_whole_is_gone_but_its_node_stays() {
    let tree = plain();
    tree.cpu("online", "0-3");
    tree.node("node1/cpulist", "");
    let machine = read(&tree);
    assert_eq!(counts(&machine), [1, 2, 1, 2, 4]);
    assert!(machine.node_cpus(NodeId(1)).is_empty());
    assert!(machine.nodes()[1].memory_bytes > 0);
}

#[test]
fn a_node_without_cpus() {
    let tree = plain();
    tree.node("online", "0-2");
    tree.node("node2/cpulist", "");
    tree.node("node2/meminfo", "Node 2 MemTotal: 1048576 kB");
    tree.node("node0/distance", "10 20 17");
    tree.node("node1/distance", "20 10 28");
    // Real firmware reports such distances for nodes without CPUs.
    tree.node("node2/distance", "17 28 14");
    let machine = read(&tree);
    assert_eq!(counts(&machine), [2, 3, 2, 4, 8]);
    assert_eq!(machine.nodes()[2].memory_bytes, 1 << 30);
    assert_eq!(machine.distance(NodeId(1), NodeId(2)), 28);
    assert_eq!(machine.nodes_by_distance(NodeId(0)), [0, 2, 1].map(NodeId));
}

#[test]
fn a_node_without_memory() {
    let tree = plain();
    tree.node("node0/meminfo", "Node 0 MemTotal: 0 kB");
    tree.remove("node/node1/meminfo");
    let machine = read(&tree);
    assert_eq!(machine.nodes().iter().map(|node| node.memory_bytes).collect::<Vec<_>>(), [0, 0]);
}

#[test]
fn node_numbers_with_holes() {
    let tree = Tree::of(
        &MachineBuilder::new("holes")
            .node(NodeSpec { os_index: 0, memory_bytes: 1 << 30, bandwidth_bytes_per_s: 1 })
            .node(NodeSpec { os_index: 8, memory_bytes: 2 << 30, bandwidth_bytes_per_s: 1 })
            .cpu(CpuSpec { os_index: 0, core: 0, llc: None, node: 0, package: 0, capacity: 1 })
            .cpu(CpuSpec { os_index: 80, core: 1, llc: None, node: 8, package: 8, capacity: 1 })
            .distances(vec![vec![10, 40], vec![40, 10]])
            .build()
            .unwrap(),
    );
    let machine = read(&tree);
    assert_eq!(machine.nodes().iter().map(|node| node.os_index).collect::<Vec<_>>(), [0, 8]);
    assert_eq!(machine.distance(NodeId(0), NodeId(1)), 40);
    assert_eq!(machine.cpu(CpuId(1)).node, NodeId(1));
}

#[test]
fn no_cache_is_reported() {
    let tree = plain();
    for cpu in 0..8 {
        tree.remove(&format!("cpu/cpu{cpu}/cache"));
    }
    let machine = read(&tree);
    assert_eq!(counts(&machine), [2, 2, 0, 4, 8]);
    assert_eq!(machine.os_list(machine.llc_cpus(CpuId(0))), "0-1", "what shares a core");
    assert_eq!(machine.hardware(), &Hardware { clock_mhz: 2100, ..Hardware::GENERIC });
}

#[test]
fn without_an_l3_the_l2_is_last() {
    let tree = plain();
    for cpu in 0..8 {
        tree.remove(&format!("cpu/cpu{cpu}/cache/index3"));
    }
    let machine = read(&tree);
    assert_eq!(machine.llcs().len(), 4);
    assert_eq!(machine.llcs()[0].size_bytes, 1 << 20);
}

#[test]
fn a_cache_of_unknown_size_has_the_generic_one() {
    let tree = plain();
    for cpu in 0..4 {
        tree.remove(&format!("cpu/cpu{cpu}/cache/index3/size"));
        tree.remove(&format!("cpu/cpu{cpu}/cache/index2/size"));
    }
    for cpu in 4..8 {
        tree.cpu(&format!("cpu{cpu}/cache/index3/size"), "0K");
    }
    let machine = read(&tree);
    assert!(machine.llcs().iter().all(|llc| llc.size_bytes == Llc::GENERIC_SIZE_BYTES));
    assert_eq!(machine.hardware().l2_bytes, 1 << 20, "as the other CPUs report");
}

#[test]
fn sizes_of_caches_have_units() {
    let tree = plain();
    for cpu in 0..8 {
        let (size, shared) = if cpu < 4 { ("12288K", "0-3") } else { ("32M", "4-7") };
        tree.cache(cpu, 3, ("3", "Unified", size, shared));
    }
    let sizes: Vec<u64> = read(&tree).llcs().iter().map(|llc| llc.size_bytes).collect();
    assert_eq!(sizes, [12 << 20, 32 << 20]);
}

#[test]
fn several_caches_a_node() {
    let tree = plain();
    for cpu in 0..8 {
        tree.cache(cpu, 3, ("3", "Unified", "16384K", &format_cpulist([cpu & !1, cpu | 1])));
    }
    assert_eq!(counts(&read(&tree)), [2, 2, 4, 4, 8]);
}

#[test]
fn cpu_numbers_that_interleave_nodes() {
    let tree = plain();
    tree.node("node0/cpulist", "0,2,4,6");
    tree.node("node1/cpulist", "1,3,5,7");
    for cpu in 0..8u32 {
        let core = format_cpulist([cpu % 4, cpu % 4 + 4]);
        tree.cpu(&format!("cpu{cpu}/topology/core_cpus_list"), &core);
        tree.cpu(&format!("cpu{cpu}/topology/physical_package_id"), &(cpu % 2).to_string());
        tree.cache(cpu, 3, ("3", "Unified", "8M", if cpu % 2 == 0 { "0,2,4,6" } else { "1,3,5,7" }));
    }
    let machine = read(&tree);
    assert_eq!(counts(&machine), [2, 2, 2, 4, 8]);
    assert_eq!(machine.os_list(machine.node_cpus(NodeId(1))), "1,3,5,7");
    assert_eq!(machine.os_list(machine.siblings(CpuId(6))), "2,6");
}

#[test]
fn hybrid_cores_by_capacity_or_else_by_frequency() {
    let tree = plain();
    for cpu in 0..8 {
        let (capacity, khz) = if cpu < 2 { ("1024", "5000000") } else { ("512", "4000000") };
        tree.cpu(&format!("cpu{cpu}/cpu_capacity"), capacity);
        tree.cpu(&format!("cpu{cpu}/cpufreq/cpuinfo_max_freq"), khz);
    }
    let speeds = |tree: &Tree| read(tree).cpus().iter().map(|cpu| cpu.capacity_permille).collect::<Vec<_>>();
    assert_eq!(speeds(&tree), [1000, 1000, 500, 500, 500, 500, 500, 500]);
    tree.remove("cpu/cpu3/cpu_capacity");
    assert_eq!(speeds(&tree), [1000, 1000, 800, 800, 800, 800, 800, 800]);
    assert_eq!(read(&tree).hardware().clock_mhz, 5000);
    tree.remove("cpu/cpu3/cpufreq/cpuinfo_max_freq");
    assert_eq!(speeds(&tree), [1000; 8]);
}

#[test]
fn hundreds_of_cpus() {
    let tree = Tree::of(&MachineBuilder::symmetric(8, 20, 2).build().unwrap());
    assert_eq!(counts(&read(&tree)), [8, 8, 8, 160, 320]);
}

#[test]
fn several_packages_a_node() {
    let tree = plain();
    tree.node("online", "0");
    tree.node("node0/cpulist", "0-7");
    tree.node("node0/distance", "10");
    assert_eq!(counts(&read(&tree)), [2, 1, 2, 4, 8]);
}

#[test]
fn several_nodes_a_package_under_one_cache() {
    let tree = plain();
    for cpu in 0..8 {
        tree.cpu(&format!("cpu{cpu}/topology/physical_package_id"), "0");
        tree.cache(cpu, 3, ("3", "Unified", "32M", "0-7"));
    }
    let machine = read(&tree);
    assert_eq!(counts(&machine), [1, 2, 1, 4, 8]);
    assert_eq!(machine.os_list(machine.llc_cpus(CpuId(0))), "0-7");
}

#[test]
fn a_kernel_without_numa_has_one_node() {
    let tree = plain();
    tree.remove("node");
    assert_eq!(counts(&read(&tree)), [2, 1, 2, 4, 8]);
    assert_eq!(read(&tree).nodes()[0].memory_bytes, 0);
    tree.write("proc/meminfo", "MemTotal:        2097152 kB\nMemFree:  1 kB");
    assert_eq!(read(&tree).nodes()[0].memory_bytes, 2 << 30);
}

#[test]
fn an_unknown_package_is_package_0() {
    let tree = plain();
    for cpu in 0..8 {
        tree.cpu(&format!("cpu{cpu}/topology/physical_package_id"), "-1");
    }
    assert_eq!(counts(&read(&tree)), [1, 2, 2, 4, 8]);
}

#[test]
fn kernels_before_5_3_have_another_name_for_the_threads_of_a_core() {
    let tree = plain();
    for cpu in 0..8u32 {
        tree.remove(&format!("cpu/cpu{cpu}/topology/core_cpus_list"));
        tree.cpu(&format!("cpu{cpu}/topology/thread_siblings_list"), &format_cpulist([cpu & !1, cpu | 1]));
    }
    assert_eq!(counts(&read(&tree)), [2, 2, 2, 4, 8]);
}

#[test]
fn fake_numa_shows_a_cpu_on_several_nodes() {
    let tree = plain();
    tree.node("node0/cpulist", "0-7");
    tree.node("node1/cpulist", "0-7");
    tree.node("node0/distance", "10 10");
    tree.node("node1/distance", "10 10");
    let machine = read(&tree);
    assert_eq!(machine.node_cpus(NodeId(0)).count(), 8);
    assert!(machine.node_cpus(NodeId(1)).is_empty());
}

#[test]
fn distances_may_be_missing() {
    let tree = plain();
    tree.remove("node/node0/distance");
    tree.remove("node/node1/distance");
    assert_eq!(read(&tree).distance(NodeId(0), NodeId(1)), 20);
}

#[test]
fn masks_will_do_without_lists_and_so_do_padded_texts() {
    let expected = counts(&read(&plain()));
    let tree = plain();
    tree.remove("node/node1/cpulist");
    tree.node("node1/cpumap", "f0\n");
    tree.cpu("online", "0-7\n\0\0\0\0");
    for cpu in 0..8 {
        tree.remove(&format!("cpu/cpu{cpu}/cache/index3/shared_cpu_list"));
        tree.cpu(
            &format!("cpu{cpu}/cache/index3/shared_cpu_map"),
            if cpu < 4 { "0000000f" } else { "000000f0" },
        );
    }
    let (machine, assumed) = read_sysfs_assuming(tree.root()).unwrap();
    assert_eq!((counts(&machine), assumed), (expected, Vec::new()));
}

#[test]
fn assumptions_are_reported() {
    type Damage = fn(&Tree);
    let cases: [(Damage, &str); 8] = [
        (|tree| tree.cpu("online", "0-8"), "CPU 8 is offline, since it has no folder"),
        (|tree| tree.cpu("online", "0-65535"), "CPUs 8-65535 are offline, since they have no folders"),
        (|tree| tree.node("online", "0-2"), "node 2 is offline, since it has no folder"),
        // 4 GiB, if each had a distance from each.
        (|tree| tree.node("online", "0-32767"), "nodes 2-32767 are offline, since they have no folders"),
        (|tree| tree.remove("node/node1/cpulist"), "node 1 has no CPUs, since it lists none"),
        (|tree| tree.node("node1/cpulist", "4-6"), "online CPU 7 is on node 0, since no node lists it"),
        (
            |tree| tree.node("node1/distance", "20"),
            "node 1 is 10 from itself and 20 from others, since it lists 1 of 2 distances",
        ),
        (
            |tree| {
                tree.cpu("cpu1/topology/core_cpus_list", "0-1");
                tree.cpu("cpu0/topology/core_cpus_list", "0-1");
                tree.cpu("cpu1/cache/index3/shared_cpu_list", "1");
            },
            "CPU 1 has the package, node and cache of CPU 0, the first of its core",
        ),
    ];
    for (damage, expected) in cases {
        let tree = plain();
        damage(&tree);
        let (machine, assumed) = read_sysfs_assuming(tree.root()).unwrap();
        assert!(assumed.iter().any(|one| one == expected), "{assumed:?}\n{expected}");
        assert_eq!((machine.cpu_count(), machine.node_count()), (8, 2));
    }
}

#[test]
fn more_nodes_than_a_kernel_has_are_refused_before_their_distances_are_made() {
    let tree = plain();
    for node in 2..5000 {
        tree.node(&format!("node{node}/cpulist"), "");
    }
    tree.node("online", "0-4999");
    let error = read_sysfs_assuming(tree.root()).unwrap_err().to_string();
    assert!(error.ends_with("the machine has 5000 NUMA nodes; at most 1024 are supported"), "{error}");
}

#[test]
fn distances_of_offline_nodes_are_left_out() {
    let tree = plain();
    for (node, row) in [(0, "10 15 31"), (1, "31 15 10")] {
        tree.node(&format!("node{node}/distance"), row);
    }
    // Node 1 is the third in the firmware's order.
    std::fs::rename(
        tree.root().join("sys/devices/system/node/node1"),
        tree.root().join("sys/devices/system/node/node2"),
    )
    .unwrap();
    tree.node("online", "0,2");
    let (machine, assumed) = read_sysfs_assuming(tree.root()).unwrap();
    assert_eq!((machine.distance(NodeId(0), NodeId(1)), assumed.len()), (31, 0));
}

#[test]
fn what_cannot_be_read_is_one_sentence_that_names_the_file() {
    let cpu = "sys/devices/system/cpu";
    let node = "sys/devices/system/node";
    type Damage = fn(&Tree);
    let cases: [(Damage, String); 13] = [
        (|tree| tree.cpu("isolated", "x"), format!("{cpu}/isolated: `x` is not a number or range")),
        (|tree| tree.cpu("nohz_full", "x"), format!("{cpu}/nohz_full: `x` is not a number or range")),
        (
            |tree| tree.remove("cpu"),
            format!("{cpu}: is not a folder; give a root that contains a machine's `sys`"),
        ),
        (|tree| tree.cpu("online", "0-x"), format!("{cpu}/online: `0-x` is not a number or range from 0")),
        (|tree| tree.cpu("online", ""), "the machine has no CPU; at least one is needed".to_owned()),
        (
            |tree| tree.cpu("cpu1/topology/core_cpus_list", "?"),
            format!("{cpu}/cpu1/topology/core_cpus_list: `?` is not a number or range"),
        ),
        (
            |tree| tree.cpu("cpu1/topology/physical_package_id", "one"),
            format!("{cpu}/cpu1/topology/physical_package_id: `one` is not a number"),
        ),
        (
            |tree| tree.cpu("cpu2/cache/index3/size", "12 miles"),
            format!("{cpu}/cpu2/cache/index3/size: `12 miles` is not a size such as 12288K"),
        ),
        (
            |tree| tree.cpu("cpu2/cpu_capacity", "-5"),
            format!("{cpu}/cpu2/cpu_capacity: `-5` is not a number"),
        ),
        (|tree| tree.cpu("cpu2/cpu_capacity", "0"), "has a capacity of 0; it must be positive".to_owned()),
        (
            |tree| {
                tree.remove("node/node1/cpulist");
                tree.node("node1/cpumap", "f0,");
            },
            format!("{node}/node1/cpumap: `f0,` is not a mask such as"),
        ),
        (
            |tree| tree.node("node1/distance", "20 11"),
            "the distance from NUMA node 1 to 1 is 11; allowed is 10 from a node with CPUs to itself"
                .to_owned(),
        ),
        (
            |tree| tree.node("node1/meminfo", "nothing"),
            format!("{node}/node1/meminfo: has no line such as \"MemTotal: 6805476 kB\""),
        ),
    ];
    for (damage, expected) in cases {
        let tree = plain();
        damage(&tree);
        let message = error(&tree);
        assert!(message.contains(&expected), "{message}\n{expected}");
        assert_eq!(message.lines().count(), 1);
    }
}
