//! The nodes that a VM lives on, where no agent decides.

use super::homes_file::{HomeSaving, PartHome};
use super::{Limits, Memory};
use serde::Serialize;
use tandem_machine::{Machine, format_cpulist};

/// A VM lives on the fewest nodes that together have this share of its memory: with less, every fifth access
/// or more would go elsewhere.
const HOME_SHARE: f64 = 0.8;

/// What determines where a VM lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HomeSource {
    /// The agent that gives VMs their homes.
    Agent,
    /// An agent that only observes: the home that it would give.
    Planned,
    /// The CPUs that the VM may use.
    Cpus,
    /// The nodes of its memory.
    Memory,
    /// The machine has one node.
    Machine,
}

/// The home nodes of a VM.
#[derive(Clone, Debug, PartialEq)]
pub struct Homes {
    /// In ascending order; empty if it has no home.
    pub nodes: Vec<u32>,
    /// What determines them; `None` if it has no home.
    pub source: Option<HomeSource>,
    /// Why it has these nodes, or none: a clause without a full stop.
    pub why: String,
    /// The homes of its virtual nodes, if an agent has given each its own.
    pub parts: Vec<PartHome>,
    /// What a planned home is expected to save.
    pub saving: Option<HomeSaving>,
}

/// Where a VM lives according to its limits and its memory: on the nodes of its CPUs if it is confined to
/// some, otherwise on the fewest nodes that hold most of its memory.
pub fn home_of(machine: &Machine, limits: &Limits, memory: &Memory) -> Homes {
    let with_cpus: Vec<u32> =
        machine.nodes().iter().filter(|node| !node.cpus.is_empty()).map(|node| node.os_index).collect();
    if let [node] = with_cpus[..] {
        let why = "no other node has CPUs".into();
        return Homes {
            nodes: vec![node],
            source: Some(HomeSource::Machine),
            why,
            parts: Vec::new(),
            saving: None,
        };
    }
    let nodes = nodes_of(machine, &limits.cpus);
    if !nodes.is_empty() && nodes.len() < with_cpus.len() {
        let why = format!("its CPUs are confined to {}", name_nodes(&nodes));
        return Homes { nodes, source: Some(HomeSource::Cpus), why, parts: Vec::new(), saving: None };
    }
    let none = |why: &str| Homes {
        nodes: Vec::new(),
        source: None,
        why: why.into(),
        parts: Vec::new(),
        saving: None,
    };
    let Some(by_node) = &memory.by_node else {
        return none("it may use the CPUs of all nodes, and the location of its memory cannot be read");
    };
    let mut by_size: Vec<(u32, u64)> = by_node.bytes.iter().map(|(&node, &bytes)| (node, bytes)).collect();
    by_size.sort_by_key(|&(node, bytes)| (std::cmp::Reverse(bytes), node));
    let all: f64 = by_size.iter().map(|&(_, bytes)| bytes as f64).sum();
    let mut nodes = Vec::new();
    let mut there = 0.0;
    for (node, bytes) in by_size {
        if there >= HOME_SHARE * all {
            break;
        }
        nodes.push(node);
        there += bytes as f64;
    }
    nodes.sort_unstable();
    // Nodes without CPUs may hold its memory, but no VM can live there.
    nodes.retain(|node| with_cpus.contains(node));
    match nodes.len() {
        0 => none("it has no memory on nodes with CPUs"),
        count if count == with_cpus.len() => none("its memory is spread over all nodes"),
        _ => {
            let why = format!("{:.0}% of its memory is there", 100.0 * there / all);
            Homes { nodes, source: Some(HomeSource::Memory), why, parts: Vec::new(), saving: None }
        }
    }
}

/// The nodes of CPUs. Both are numbers of the operating system, in ascending order.
pub(crate) fn nodes_of(machine: &Machine, cpus: &[u32]) -> Vec<u32> {
    let of = machine.cpus().iter().filter(|cpu| cpus.binary_search(&cpu.os_index).is_ok());
    let mut nodes: Vec<u32> = of.map(|cpu| machine.nodes()[cpu.node.index()].os_index).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

/// "node 1", "nodes 0-1,3".
pub(crate) fn name_nodes(nodes: &[u32]) -> String {
    let list = format_cpulist(nodes.iter().copied());
    if nodes.len() == 1 { format!("node {list}") } else { format!("nodes {list}") }
}

#[cfg(test)]
mod tests {
    use super::super::{MemoryByNode, MemorySource};
    use super::*;
    use tandem_machine::preset;

    fn home(
        cpus: std::ops::Range<u32>,
        bytes: Option<&[(u32, u64)]>,
    ) -> (Vec<u32>, Option<HomeSource>, String) {
        // 4 nodes of 20 CPUs.
        let machine = preset("westmere-ex-4s").unwrap();
        let limits = Limits {
            vcpus: Vec::new(),
            cpus: cpus.collect(),
            is_pinned: false,
            quota_cpus: None,
            memory_nodes: Vec::new(),
            cgroup: None,
        };
        let by_node = bytes.map(|bytes| MemoryByNode {
            bytes: bytes.iter().copied().collect(),
            source: MemorySource::NumaMaps,
        });
        let homes = home_of(&machine, &limits, &Memory { resident_bytes: None, by_node });
        (homes.nodes, homes.source, homes.why)
    }

    #[test]
    fn cpus_come_before_memory() {
        let expected = (vec![1], Some(HomeSource::Cpus), "its CPUs are confined to node 1".to_owned());
        assert_eq!(home(25..30, Some(&[(0, 100)])), expected);
        let (nodes, _, why) = home(0..40, None);
        assert_eq!((nodes, why.as_str()), (vec![0, 1], "its CPUs are confined to nodes 0-1"));
    }

    #[test]
    fn memory_decides_if_cpus_do_not() {
        let cases = [
            (vec![(0, 9), (2, 91)], vec![2], "91% of its memory is there"),
            (vec![(0, 45), (1, 5), (3, 50)], vec![0, 3], "95% of its memory is there"),
            (vec![(0, 25), (1, 25), (2, 25), (3, 25)], vec![], "its memory is spread over all nodes"),
            (vec![], vec![], "it has no memory on nodes with CPUs"),
        ];
        for (bytes, nodes, why) in cases {
            let (found, source, told) = home(0..80, Some(&bytes));
            assert_eq!((&found, told.as_str()), (&nodes, why));
            assert_eq!(source.is_some(), !nodes.is_empty());
        }
    }

    #[test]
    fn what_is_unknown_is_no_reason() {
        let (nodes, source, why) = home(0..80, None);
        assert_eq!((nodes, source), (vec![], None));
        assert_eq!(why, "it may use the CPUs of all nodes, and the location of its memory cannot be read");
    }
}
