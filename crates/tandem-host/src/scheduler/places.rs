//! The machine as the scheduler's tables want it: a place for each CPU, last-level cache and node.
//!
//! An LLC is here what shares a last-level cache *inside one NUMA node*: with sub-NUMA clustering one cache spans
//! nodes, and a queue should not. CPUs of which no cache is told make one such group for each node. Nodes without CPUs
//! are left out. In guest mode there is one group of all CPUs, whatever topology the hypervisor made up.

use std::collections::BTreeMap;
use tandem_bpf::types::{llc_place, node_place, rodata};
use tandem_sim::ids::{LlcId, NodeId};
use tandem_sim::machine::Machine;
use thiserror::Error;

/// The node's number where there is no node of the kernel's: its `NUMA_NO_NODE`.
const NO_NODE: i32 = -1;

/// A machine that has more of something than the scheduler's tables hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this machine has {found} {what}; the scheduler can do with {max} at most")]
pub struct PlacesError {
    what: &'static str,
    found: usize,
    max: usize,
}

/// Where everything is, in the scheduler's numbers: LLCs and nodes count from 0 without gaps, CPUs have the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// By number; those of CPUs that are offline are `None`.
    cpus: Vec<Option<CpuPlace>>,
    llcs: Vec<LlcPlace>,
    nodes: Vec<NodePlace>,
    smt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuPlace {
    llc: usize,
    node: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LlcPlace {
    node: usize,
    cpu_count: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodePlace {
    first_llc: usize,
    llc_count: usize,
    /// The kernel's number.
    id: i32,
    by_distance: Vec<usize>,
}

impl Places {
    /// The places of a host.
    ///
    /// # Errors
    /// If the machine is too large.
    pub fn of_host(machine: &Machine) -> Result<Self, PlacesError> {
        let with_cpus: Vec<NodeId> = (0..machine.node_count())
            .map(NodeId::from)
            .filter(|&node| !machine.node_cpus(node).is_empty())
            .collect();
        let number_of = |node: &NodeId| with_cpus.iter().position(|other| other == node);
        let mut places =
            Self { cpus: empty_cpus(machine), llcs: Vec::new(), nodes: Vec::new(), smt: has_smt(machine) };
        for (node, &id) in with_cpus.iter().enumerate() {
            let first_llc = places.llcs.len();
            let mut numbers = BTreeMap::<Option<LlcId>, usize>::new();
            for cpu in machine.node_cpus(id).iter().map(|cpu| machine.cpu(cpu)) {
                let llc = *numbers.entry(cpu.llc).or_insert_with(|| {
                    places.llcs.push(LlcPlace { node, cpu_count: 0 });
                    places.llcs.len() - 1
                });
                places.llcs[llc].cpu_count += 1;
                places.cpus[cpu.os_index as usize] = Some(CpuPlace { llc, node });
            }
            places.nodes.push(NodePlace {
                first_llc,
                llc_count: places.llcs.len() - first_llc,
                id: i32::try_from(machine.nodes()[id.index()].os_index).unwrap_or(NO_NODE),
                by_distance: machine.nodes_by_distance(id).iter().filter_map(number_of).collect(),
            });
        }
        places.checked()
    }

    /// The places of a guest: all in one.
    ///
    /// # Errors
    /// If the machine is too large.
    pub fn of_guest(machine: &Machine) -> Result<Self, PlacesError> {
        let mut cpus = empty_cpus(machine);
        for cpu in machine.cpus() {
            cpus[cpu.os_index as usize] = Some(CpuPlace { llc: 0, node: 0 });
        }
        let llcs = vec![LlcPlace { node: 0, cpu_count: machine.cpu_count() }];
        let nodes = vec![NodePlace { first_llc: 0, llc_count: 1, id: NO_NODE, by_distance: vec![0] }];
        Self { cpus, llcs, nodes, smt: false }.checked()
    }

    /// One more than the highest number of a CPU.
    pub fn cpu_limit(&self) -> usize {
        self.cpus.len()
    }

    /// CPUs that are online.
    pub fn cpu_count(&self) -> usize {
        self.cpus.iter().flatten().count()
    }

    /// Groups of CPUs that share a last-level cache inside a node.
    pub fn llc_count(&self) -> usize {
        self.llcs.len()
    }

    /// Nodes that have CPUs.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    fn checked(self) -> Result<Self, PlacesError> {
        let max =
            |what, found, max| if found <= max { Ok(()) } else { Err(PlacesError { what, found, max }) };
        let tables = rodata_lengths();
        max("CPUs, or CPU numbers with gaps up to as many,", self.cpus.len(), tables.cpus)?;
        max("last-level caches", self.llcs.len(), tables.llcs)?;
        max("NUMA nodes", self.nodes.len(), tables.nodes)?;
        Ok(self)
    }

    /// Fills the scheduler's tables.
    pub(super) fn write(&self, rodata: &mut rodata) {
        // The numbers fit: `checked` has compared them with the lengths of the tables.
        let settings = &mut rodata.settings;
        settings.nr_cpus = self.cpus.len() as u32;
        settings.nr_llcs = self.llcs.len() as u32;
        settings.nr_nodes = self.nodes.len() as u32;
        settings.nr_online = self.cpu_count() as u32;
        settings.smt.write(self.smt);
        for (to, from) in rodata.cpu_places.iter_mut().zip(&self.cpus) {
            to.online.write(from.is_some());
            if let Some(place) = from {
                to.llc = place.llc as u16;
                to.node = place.node as u16;
            }
        }
        for (to, from) in rodata.llc_places.iter_mut().zip(&self.llcs) {
            *to = llc_place { node: from.node as u16, nr_cpus: from.cpu_count as u16 };
        }
        for (to, from) in rodata.node_places.iter_mut().zip(&self.nodes) {
            *to = node_place {
                first_llc: from.first_llc as u16,
                nr_llcs: from.llc_count as u16,
                id: from.id,
                ..node_place::default()
            };
            for (to, &node) in to.by_distance.iter_mut().zip(&from.by_distance) {
                *to = node as u8;
            }
        }
    }
}

/// How much the scheduler's tables hold.
struct Lengths {
    cpus: usize,
    llcs: usize,
    nodes: usize,
}

fn rodata_lengths() -> Lengths {
    const fn length<T, const N: usize>(_: fn(&rodata) -> &[T; N]) -> usize {
        N
    }
    Lengths {
        cpus: length(|rodata| &rodata.cpu_places),
        llcs: length(|rodata| &rodata.llc_places),
        nodes: length(|rodata| &rodata.node_places),
    }
}

fn empty_cpus(machine: &Machine) -> Vec<Option<CpuPlace>> {
    let limit = machine.cpus().iter().map(|cpu| cpu.os_index as usize + 1).max().unwrap_or(0);
    vec![None; limit]
}

fn has_smt(machine: &Machine) -> bool {
    machine.cores().iter().any(|core| core.cpus.count() > 1)
}
