//! Builds a machine from the objects found.

use super::bitmap::Bitmap;
use super::{HwlocObjects, NumaNode, Pu, Reader};
use crate::topology::TopologyError;
use roxmltree::Node as Element;
use std::collections::BTreeSet;
use std::path::Path;
use tandem_machine::{
    CpuSpec, Hardware, MAX_CPUS, MAX_NODES, Machine, MachineBuilder, MachineError, NodeSpec,
};

impl<'a> Reader<'a> {
    pub(super) fn assemble(
        &self,
        machine: Element<'a, 'a>,
        mut found: HwlocObjects,
    ) -> Result<Machine, TopologyError> {
        let inconsistent = |cause| TopologyError::Inconsistent { place: self.file.to_owned(), cause };
        if found.pus.len() > MAX_CPUS {
            return Err(inconsistent(MachineError::TooManyCpus(found.pus.len())));
        }
        check_node_count(&found).map_err(inconsistent)?;
        if found.nodes.is_empty() {
            found.nodes.push(NumaNode {
                os_index: 0,
                gp_index: None,
                memory_bytes: self.number(machine, "local_memory")?.unwrap_or(0),
                cpuset: Bitmap::everything(),
                depth: 0,
            });
        }
        let node_of_cpu = self.node_of_cpu(machine, &mut found)?;
        check_node_count(&found).map_err(inconsistent)?;
        let packages = package_numbers(&found.packages);
        let kinds = self.cpu_kinds()?;
        let capacities = capacities(&found.pus, &kinds);

        let mut builder = MachineBuilder::new(file_stem(self.file));
        for node in &found.nodes {
            builder = builder.node(NodeSpec {
                os_index: node.os_index,
                memory_bytes: node.memory_bytes,
                bandwidth_bytes_per_s: NodeSpec::GENERIC_BANDWIDTH_BYTES_PER_S,
            });
        }
        for (label, &size_bytes) in (0..).zip(&found.cache_sizes) {
            builder = builder.llc(label, size_bytes);
        }
        for ((pu, &node), &capacity) in found.pus.iter().zip(&node_of_cpu).zip(&capacities) {
            builder = builder.cpu(CpuSpec {
                os_index: pu.os_index,
                core: pu.core,
                llc: pu.llc,
                node,
                package: packages[pu.package.unwrap_or(found.packages.len())],
                capacity,
            });
        }
        if let Some(rows) = self.distances(machine, &found.nodes, &node_of_cpu)? {
            builder = builder.distances(rows);
        }
        let mut hardware = Hardware::GENERIC;
        if found.largest_l2_bytes > 0 {
            hardware.l2_bytes = found.largest_l2_bytes;
        }
        if let Some(mhz) = kinds.iter().filter_map(|kind| kind.max_mhz).max() {
            hardware.clock_mhz = mhz;
        }
        builder.hardware(hardware).build().map_err(inconsistent)
    }

    /// The number of each CPU's node; adds nodes that are hidden.
    fn node_of_cpu(
        &self,
        machine: Element<'a, 'a>,
        found: &mut HwlocObjects,
    ) -> Result<Vec<u32>, TopologyError> {
        let mut by_size: Vec<usize> = (0..found.nodes.len()).collect();
        by_size.sort_by_key(|&at| (found.nodes[at].cpuset.count(), found.nodes[at].os_index));
        let mut numbers = Vec::with_capacity(found.pus.len());
        for pu in &found.pus {
            let visible =
                by_size.iter().map(|&at| &found.nodes[at]).find(|node| node.cpuset.contains(pu.os_index));
            let hidden = || pu.complete_nodeset.as_ref()?.first();
            let Some(number) = visible.map(|node| node.os_index).or_else(hidden) else {
                return self.malformed(machine, format!("CPU {} is in no NUMA node", pu.os_index));
            };
            numbers.push(number);
        }
        let known: BTreeSet<u32> = found.nodes.iter().map(|node| node.os_index).collect();
        let hidden: BTreeSet<u32> =
            numbers.iter().copied().filter(|number| !known.contains(number)).collect();
        found.nodes.extend(hidden.into_iter().map(|os_index| NumaNode {
            os_index,
            gp_index: None,
            memory_bytes: 0,
            cpuset: Bitmap::nothing(),
            depth: 0,
        }));
        Ok(numbers)
    }

    fn cpu_kinds(&self) -> Result<Vec<CpuKind>, TopologyError> {
        let mut kinds = Vec::new();
        for element in self.document.root_element().children().filter(|child| child.has_tag_name("cpukind")) {
            let Some(cpuset) = self.bitmap(element, "cpuset")? else {
                return self.malformed(element, "this cpukind has no cpuset".to_owned());
            };
            let info = |name| {
                let mut infos = element.children().filter(|child| child.has_tag_name("info"));
                let value = infos.find(|info| info.attribute("name") == Some(name))?.attribute("value")?;
                value.parse::<u32>().ok().filter(|&value| value > 0)
            };
            kinds.push(CpuKind { cpuset, capacity: info("LinuxCapacity"), max_mhz: info("FrequencyMaxMHz") });
        }
        Ok(kinds)
    }
}

/// Refuses more nodes than a machine may have before doing work for each pair.
fn check_node_count(found: &HwlocObjects) -> Result<(), MachineError> {
    match found.nodes.len() {
        0..=MAX_NODES => Ok(()),
        count => Err(MachineError::TooManyNodes(count)),
    }
}

/// CPUs of one speed.
struct CpuKind {
    cpuset: Bitmap,
    capacity: Option<u32>,
    max_mhz: Option<u32>,
}

/// The speed of each CPU in the first unit that the file has for all CPUs; otherwise all are equal.
fn capacities(pus: &[Pu], kinds: &[CpuKind]) -> Vec<u32> {
    let told = |unit: fn(&CpuKind) -> Option<u32>| -> Option<Vec<u32>> {
        pus.iter()
            .map(|pu| kinds.iter().find(|kind| kind.cpuset.contains(pu.os_index)).and_then(unit))
            .collect()
    };
    told(|kind| kind.capacity).or_else(|| told(|kind| kind.max_mhz)).unwrap_or_else(|| vec![1; pus.len()])
}

/// A number for each package found, and one more for CPUs outside all packages: its own, or else the lowest
/// that is free.
fn package_numbers(packages: &[Option<u32>]) -> Vec<u32> {
    let taken: BTreeSet<u32> = packages.iter().flatten().copied().collect();
    let mut free = (0..).filter(|number| !taken.contains(number));
    packages.iter().chain([&None]).map(|number| number.or_else(|| free.next()).unwrap_or(u32::MAX)).collect()
}

fn file_stem(file: &str) -> String {
    Path::new(file).file_stem().map_or_else(|| file.to_owned(), |stem| stem.to_string_lossy().into_owned())
}
