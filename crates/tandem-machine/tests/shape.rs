//! The short form of machines: what it means, what it refuses, and that it comes back as it was.

use proptest::prelude::*;
use tandem_machine::ids::{CpuId, NodeId};
use tandem_machine::{MachineBuilder, Shape, machine_named};

fn named(name: &str) -> tandem_machine::Machine {
    machine_named(name).unwrap().unwrap()
}

#[test]
fn the_short_form_is_the_symmetric_machine() {
    let machine = named("2x64x2");
    assert_eq!(machine, MachineBuilder::symmetric(2, 64, 2).build().unwrap());
    assert_eq!(machine.name(), "2x64x2");
    assert_eq!((machine.packages().len(), machine.node_count(), machine.llcs().len()), (2, 2, 2));
    assert_eq!((machine.cores().len(), machine.cpu_count()), (128, 256));
}

#[test]
fn caches_and_nodes_hold_neighbouring_cores() {
    let machine = named("2x8x2:llcs=4,nodes=2");
    assert_eq!((machine.node_count(), machine.llcs().len(), machine.cpu_count()), (4, 8, 32));
    let lists: Vec<_> = machine.nodes().iter().map(|node| machine.os_list(&node.cpus)).collect();
    assert_eq!(lists, ["0-7", "8-15", "16-23", "24-31"]);
    assert_eq!(machine.os_list(machine.llc_cpus(CpuId(13))), "12-15");
    let from_second = [0, 1, 2, 3].map(|to| machine.distance(NodeId(1), NodeId(to)));
    assert_eq!(from_second, [12, 10, 20, 20]);
}

#[test]
fn what_is_left_out_is_assumed() {
    let nodes_alone = named("1x12x1:nodes=3");
    assert_eq!(nodes_alone, named("1x12x1:llcs=3,nodes=3"), "one cache in each node");
    assert_eq!(named("1x12x1:nodes=2,llcs=4"), named("1x12x1:llcs=4,nodes=2"), "in any order");
    assert!(named("1x12x1:llcs=0").llcs().is_empty());

    let memory =
        |name: &str| named(name).nodes().iter().map(|node| node.memory_bytes >> 30).collect::<Vec<_>>();
    assert_eq!(memory("1x4x2"), [64]);
    assert_eq!(memory("2x64x2"), [512, 512], "4 GiB a CPU");
    assert_eq!(memory("2x64x2:nodes=4"), [128; 8], "nodes share it");
}

#[test]
fn a_name_that_is_no_short_form_is_left_to_others() {
    for name in
        ["", "x", "2", "2x", "xx2", "pc", "x2x2", "2xeon.toml", "2x64.toml", "./2x64x2", "4xlarge", "a2x2"]
    {
        assert_eq!(machine_named(name), Ok(None), "{name}");
    }
    assert_eq!(named("xeon-e5620-2s").cpu_count(), 16);
}

#[test]
fn mistakes_are_told_in_one_sentence() {
    let form = |text: &str| {
        format!(
            "`{text}` is not of the form PACKAGESxCORESxTHREADS, such as 2x64x2, or with the last-level caches \
             and NUMA nodes of each package 2x96x2:llcs=12,nodes=4"
        )
    };
    for text in [
        "2x64",
        "2x64x2x2",
        "2x64x",
        "2x64x2:",
        "2x64x2:llcs",
        "2x64x2:llcs=",
        "2x64x2:llcs=+4",
        "2x64x2,nodes=2",
        "2x64x2:nodes=2,nodes=2",
        "2x64x2:cores=2",
        "2x64x2 ",
        "2x64x-2",
        "2x64x4294967296",
        "2x64x2:nodes=2:llcs=2",
    ] {
        assert_eq!(machine_named(text).unwrap_err().to_string(), form(text));
    }
    let cases = [
        ("0x64x2", "a machine of 0 packages does not exist; at least 1 is needed"),
        ("2x64x2:nodes=0", "a machine of 0 NUMA nodes does not exist; at least 1 is needed"),
        ("2x4096x2", "the machine has 16384 CPUs; at most 8192 are supported"),
        ("2x4096x4294967295", "the machine has 35184372080640 CPUs; at most 8192 are supported"),
        ("1025x1x1", "the machine has 1025 NUMA nodes; at most 1024 are supported"),
        (
            "2x96x2:llcs=10",
            "the 96 cores of a package do not divide evenly among 10 last-level caches; 8 or 12 would do",
        ),
        (
            "1x4x1:nodes=3",
            "the 4 cores of a package do not divide evenly among 3 NUMA nodes; 2 or 4 would do",
        ),
        (
            "1x4x1:llcs=9",
            "the 4 cores of a package do not divide evenly among 9 last-level caches; 4 would do",
        ),
        (
            "2x96x2:llcs=6,nodes=4",
            "the 6 last-level caches of a package do not divide evenly among its 4 NUMA nodes; 4 or 8 would do",
        ),
    ];
    for (text, sentence) in cases {
        assert_eq!(machine_named(text).unwrap_err().to_string(), sentence, "{text}");
    }
    let long = format!("2x{}", "9".repeat(1000));
    assert!(machine_named(&long).unwrap_err().to_string().len() < 300, "what is repeated is bounded");
}

prop_compose! {
    /// A shape that the text form allows: the parts of a package are products of its divisors.
    fn shapes()(
        packages in 1..5u32, nodes in 1..5u32, llcs in 1..4u32, cores in 1..5u32, threads in 1..4u32,
        reports_caches in prop::bool::weighted(0.8),
    ) -> Shape {
        let in_package = if reports_caches { nodes * llcs } else { 0 };
        Shape::new(packages, nodes * llcs * cores, threads).split(in_package, nodes)
    }
}

proptest! {
    #[test]
    fn a_machine_has_the_parts_of_its_shape_and_its_name_says_it(shape in shapes()) {
        let name = shape.to_string();
        prop_assert_eq!(name.parse::<Shape>(), Ok(shape));
        let machine = named(&name);
        let Shape { packages, cores, threads, llcs, nodes } = shape;
        prop_assert_eq!(machine.packages().len(), packages as usize);
        prop_assert_eq!(machine.cores().len(), (packages * cores) as usize);
        prop_assert_eq!(machine.cpu_count(), (packages * cores * threads) as usize);
        prop_assert_eq!(machine.llcs().len(), (packages * llcs) as usize);
        prop_assert_eq!(machine.node_count(), (packages * nodes) as usize);
        let llc_sizes = machine.llcs().iter().map(|llc| llc.cpus.count());
        prop_assert!(llc_sizes.into_iter().all(|cpus| cpus == (cores / llcs.max(1) * threads) as usize));
        for node in machine.nodes() {
            prop_assert_eq!(node.cpus.count(), (cores / nodes * threads) as usize);
        }
        for cpu in machine.cpus() {
            let first = machine.cpu(machine.cores()[cpu.core.index()].cpus.iter().next().unwrap());
            prop_assert_eq!((first.node, first.llc, first.package), (cpu.node, cpu.llc, cpu.package));
        }
        prop_assert_eq!(machine.name(), &name);
        prop_assert_eq!(&named(machine.name()), &machine);
    }

    #[test]
    fn no_text_panics(text in "[0-9x:,=lcsnode +-]{0,24}|[0-9]{1,4}x[0-9]{1,4}x[0-9]{1,10}(:(llcs|nodes)=[0-9]{1,10}){0,2}") {
        if let Ok(shape) = text.parse::<Shape>() {
            prop_assert_eq!(shape.to_string().parse::<Shape>(), Ok(shape));
        }
    }
}
