//! Any machine, written in the form of a kernel or hwloc, is read back as that machine.

mod support;

use proptest::prelude::*;
use support::{Tree, hwloc_xml, machines};
use tandem_host::topology::{parse_hwloc, read_sysfs};
use tandem_machine::Machine;
use tandem_machine::ids::{CpuId, NodeId};

/// Everything but the name.
fn assert_same(read: &Machine, machine: &Machine) {
    assert_eq!(read.cpus(), machine.cpus());
    assert_eq!(read.cores(), machine.cores());
    assert_eq!(read.llcs(), machine.llcs());
    assert_eq!(read.nodes(), machine.nodes());
    assert_eq!(read.packages(), machine.packages());
    assert_eq!(read.hardware(), machine.hardware());
    for node in (0..machine.node_count()).map(NodeId::from) {
        assert_eq!(read.nodes_by_distance(node), machine.nodes_by_distance(node));
        for to in (0..machine.node_count()).map(NodeId::from) {
            assert_eq!(read.distance(node, to), machine.distance(node, to));
        }
    }
    assert_eq!(read.siblings(CpuId(0)), machine.siblings(CpuId(0)));
}

proptest! {
    // Each case writes hundreds of files.
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn sysfs(machine in machines()) {
        assert_same(&read_sysfs(Tree::of(&machine).root()).unwrap(), &machine);
    }
}

proptest! {
    #[test]
    fn hwloc(machine in machines()) {
        assert_same(&parse_hwloc(&hwloc_xml(&machine)).unwrap(), &machine);
    }

    #[test]
    fn no_xml_makes_the_reader_panic(
        machine in machines(),
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..60usize, "[ -~]{0,12}"), 1..4),
    ) {
        let mut xml = hwloc_xml(&machine);
        for (at, length, insert) in cuts {
            let at = at.index(xml.len());
            let end = (at + length).min(xml.len());
            xml.replace_range(at..end, &insert);
        }
        let _ = parse_hwloc(&xml);
    }

    #[test]
    fn numbers_out_of_place_do_not_make_the_reader_panic(
        machine in machines(),
        at: prop::sample::Index,
        number in prop::sample::select(vec!["", "-1", "0", "4294967295", "99999999999999999999", "0xf...f", "nan"]),
    ) {
        let xml = hwloc_xml(&machine);
        let quotes: Vec<usize> = xml.match_indices("=\"").map(|(at, _)| at + 2).collect();
        let start = quotes[at.index(quotes.len())];
        let end = start + xml[start..].find('"').unwrap();
        let _ = parse_hwloc(&format!("{}{number}{}", &xml[..start], &xml[end..]));
    }
}
