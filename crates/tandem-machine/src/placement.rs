//! Which NUMA nodes a new VM should live on: the automatic placement of Xen's libxl.
//!
//! **Problem.** A VM whose memory lies on few nodes, and whose vCPUs stay there, loads from local memory. But
//! the nodes must have room for it, and no node should be crowded while another is empty.
//!
//! **Approach.** As few nodes as possible: for each number of nodes upwards, consider all combinations of
//! that many nodes which have enough free memory and at least as many pCPUs as the VM has vCPUs. The first
//! number that has such *candidates* is final. Among them, fewer runnable vCPUs win, then more free memory,
//! then the lower node numbers. An existing vCPU counts as runnable on each node that its affinity touches.
//!
//! Isolated pCPUs are for tasks that are pinned to them: they do not count, and a node that has no others is
//! not a candidate.
//!
//! **Limits.** There is nothing to decide with one node, and above [`MAX_NODES`] nodes the combinations would
//! be too many: placement is skipped then. Distances between nodes, the load of a vCPU, and SMT do not count.
//!
//! Source: `libxl_numa.c` of Xen 4.2 and later. It computes a first number of nodes from the pCPUs only if
//! all nodes have equally many; starting from the largest node, as here, omits no candidate either way.

use crate::cpumask::CpuMask;
use crate::ids::NodeId;
use crate::{Machine, Node};
use std::cmp::Reverse;

/// Most nodes of a machine on which placement is tried.
pub const MAX_NODES: usize = 16;

const KIB: u64 = 1 << 10;

/// What existing VMs leave free, and how many vCPUs may run on each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Occupancy {
    nodes: Vec<NodeOccupancy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NodeOccupancy {
    free_memory_bytes: u64,
    runnable_vcpus: u64,
}

impl Occupancy {
    /// A machine without VMs: all memory is free.
    pub fn empty(machine: &Machine) -> Self {
        let free = |node: &Node| NodeOccupancy { free_memory_bytes: node.memory_bytes, runnable_vcpus: 0 };
        Self { nodes: machine.nodes().iter().map(free).collect() }
    }

    /// A machine with this much free memory on each node, bytes, and no runnable vCPUs.
    pub fn with_free_memory(free_bytes: &[u64]) -> Self {
        let node = |&free_memory_bytes: &u64| NodeOccupancy { free_memory_bytes, runnable_vcpus: 0 };
        Self { nodes: free_bytes.iter().map(node).collect() }
    }

    /// Adds a VM whose vCPUs may run on, and whose memory lies on, the given nodes (all nodes of the machine
    /// if none are given).
    ///
    /// The memory is taken evenly; the other nodes provide what one has no room for.
    ///
    /// # Errors
    /// If a node is not part of the machine, or the nodes have too little free memory together; nothing is
    /// changed then.
    pub fn add(&mut self, request: Request, nodes: &[NodeId]) -> Result<(), OccupancyError> {
        let mut nodes = match nodes {
            [] => (0..self.nodes.len()).map(NodeId::from).collect(),
            some => some.to_vec(),
        };
        nodes.sort_unstable();
        nodes.dedup();
        if let Some(&node) = nodes.iter().find(|node| node.index() >= self.nodes.len()) {
            return Err(OccupancyError::UnknownNode { node, nodes: self.nodes.len() });
        }
        let free = nodes.iter().map(|&node| self.free_memory_bytes(node));
        let free_bytes = free.fold(0, u64::saturating_add);
        if request.memory_bytes > free_bytes {
            return Err(OccupancyError::TooLittleMemory { memory_bytes: request.memory_bytes, free_bytes });
        }
        // The fullest node first, so that the others can compensate.
        nodes.sort_by_key(|&node| self.free_memory_bytes(node));
        let mut missing_bytes = request.memory_bytes;
        for (done, &node) in nodes.iter().enumerate() {
            let node = &mut self.nodes[node.index()];
            let left = (nodes.len() - done) as u64;
            let taken_bytes = node.free_memory_bytes.min(missing_bytes.div_ceil(left));
            node.free_memory_bytes -= taken_bytes;
            node.runnable_vcpus += u64::from(request.vcpus);
            missing_bytes -= taken_bytes;
        }
        debug_assert_eq!(missing_bytes, 0);
        Ok(())
    }

    /// Free memory of a node, bytes.
    pub fn free_memory_bytes(&self, node: NodeId) -> u64 {
        self.nodes[node.index()].free_memory_bytes
    }

    /// The vCPUs whose affinity touches the node.
    pub fn runnable_vcpus(&self, node: NodeId) -> u64 {
        self.nodes[node.index()].runnable_vcpus
    }
}

/// Why a VM cannot be where the caller puts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OccupancyError {
    /// The node does not exist.
    #[error("the machine has no node {}: its nodes are 0 to {}", node.0, nodes - 1)]
    UnknownNode {
        /// The node.
        node: NodeId,
        /// Number of nodes of the machine.
        nodes: usize,
    },
    /// The memory does not fit.
    #[error(
        "{} MiB of memory do not fit on the nodes, which have {} MiB free",
        mib(*memory_bytes), mib(*free_bytes)
    )]
    TooLittleMemory {
        /// Memory of the VM, bytes.
        memory_bytes: u64,
        /// Free memory on its nodes, bytes.
        free_bytes: u64,
    },
}

/// The needs of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Number of vCPUs.
    pub vcpus: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementOutcome {
    /// There are nodes for the VM.
    Placed(Placement),
    /// The VM fits, but the machine leaves placement no choice: the VM should run anywhere.
    Skipped(SkipReason),
    /// No nodes have what the VM needs.
    NoCandidate(Shortage),
}

/// The nodes for a VM, and the alternatives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// All candidates with the fewest nodes, best first; never empty.
    candidates: Vec<Candidate>,
}

/// Nodes that have what the VM needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The nodes, ascending.
    pub nodes: Vec<NodeId>,
    /// Their pCPUs, without isolated ones.
    pub pcpus: usize,
    /// Runnable vCPUs, summed over the nodes: one that may run on two of them counts twice.
    pub runnable_vcpus: u64,
    /// Their free memory, bytes; each node's counts in whole KiB, so that no smaller difference decides.
    pub free_memory_bytes: u64,
}

/// Why the best candidate is before all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidedBy {
    /// There was no other.
    OnlyCandidate,
    /// It has the fewest runnable vCPUs.
    RunnableVcpus,
    /// It has the most free memory among those with the fewest runnable vCPUs.
    FreeMemory,
    /// It has the lowest node numbers among equals.
    NodeOrder,
}

impl Placement {
    /// The best candidate.
    pub fn best(&self) -> &Candidate {
        &self.candidates[0]
    }

    /// All the candidates with this number of nodes, best first.
    pub fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Why the best candidate is the best.
    pub fn decided_by(&self) -> DecidedBy {
        // The order is total, so the difference between the best and the second decides against all.
        match &self.candidates[..] {
            [] | [_] => DecidedBy::OnlyCandidate,
            [best, second, ..] if best.runnable_vcpus != second.runnable_vcpus => DecidedBy::RunnableVcpus,
            [best, second, ..] if best.free_memory_bytes != second.free_memory_bytes => DecidedBy::FreeMemory,
            _ => DecidedBy::NodeOrder,
        }
    }
}

/// Why placement was not tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SkipReason {
    /// There is nothing to choose from.
    #[error("the machine has one NUMA node")]
    OneNode,
    /// There are too many combinations.
    #[error("the machine has {nodes} NUMA nodes; placement tries all combinations, of at most {MAX_NODES}")]
    TooManyNodes {
        /// Number of nodes.
        nodes: usize,
    },
}

/// What all nodes with pCPUs together lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// The nodes lack pCPUs.
    #[error(
        "the VM has {vcpus} vCPUs, but the machine only {pcpus} pCPUs{}",
        if *isolated > 0 { " that are not isolated" } else { "" }
    )]
    Pcpus {
        /// vCPUs of the VM.
        vcpus: u32,
        /// pCPUs of the machine that are not isolated.
        pcpus: usize,
        /// pCPUs of the machine that are isolated.
        isolated: usize,
    },
    /// The nodes lack free memory.
    #[error(
        "the VM needs {} MiB of memory, but the nodes with pCPUs have only {} MiB free",
        mib(*memory_bytes), mib(*free_bytes)
    )]
    Memory {
        /// Memory that the VM needs, bytes.
        memory_bytes: u64,
        /// Free memory of the nodes that have pCPUs, bytes.
        free_bytes: u64,
    },
}

/// Chooses nodes for a VM. Does not add it to the occupancy.
///
/// Considers at most 2^16 combinations of nodes for each number of nodes.
///
/// # Panics
/// If the occupancy is that of a machine with another number of nodes.
pub fn place(machine: &Machine, occupancy: &Occupancy, request: Request) -> PlacementOutcome {
    place_within(machine, occupancy, request, &usable_nodes(machine))
}

/// The nodes that have pCPUs which are not isolated: others can be part of no affinity, or are reserved for
/// pinned tasks.
pub fn usable_nodes(machine: &Machine) -> Vec<NodeId> {
    let nodes = (0..machine.node_count()).map(NodeId::from);
    nodes.filter(|node| machine.node_cpus(*node).intersects(machine.housekeeping_cpus())).collect()
}

/// As [`place`], for a VM that is limited to these nodes, some of the [`usable_nodes`] in ascending order.
///
/// # Panics
/// As [`place`].
pub fn place_within(
    machine: &Machine,
    occupancy: &Occupancy,
    request: Request,
    usable: &[NodeId],
) -> PlacementOutcome {
    let nodes = machine.node_count();
    assert_eq!(nodes, occupancy.nodes.len(), "the occupancy is of another machine");
    if let Some(shortage) = shortage(machine, occupancy, request, usable) {
        return PlacementOutcome::NoCandidate(shortage);
    }
    match nodes {
        0 | 1 => return PlacementOutcome::Skipped(SkipReason::OneNode),
        2..=MAX_NODES => {}
        _ => return PlacementOutcome::Skipped(SkipReason::TooManyNodes { nodes }),
    }

    let largest_node = usable.iter().map(|&node| pcpus(machine, node)).max().unwrap_or(1);
    let fewest_nodes = (request.vcpus as usize).div_ceil(largest_node).max(1);
    let mut candidates = (fewest_nodes..=usable.len())
        .map(|count| candidates(machine, occupancy, request, usable, count))
        .find(|candidates| !candidates.is_empty())
        .expect("nothing is short, so all usable nodes together are a candidate");
    candidates.sort_by(|a, b| order(a).cmp(&order(b)));
    PlacementOutcome::Placed(Placement { candidates })
}

/// The CPUs of these nodes on which a workload with a home there runs: those that are not isolated.
pub fn home_cpus(nodes: &[NodeId], machine: &Machine) -> CpuMask {
    let cpus = |&node: &NodeId| machine.node_cpus(node).iter_and(machine.housekeeping_cpus());
    CpuMask::from_cpus(machine.cpu_count(), nodes.iter().flat_map(cpus))
}

/// How the memory of a VM is spread when it is striped evenly over the given nodes: the share of each node of
/// the machine.
///
/// Nodes without memory take no part. Without nodes, or if none of them has memory, the memory is spread over
/// all the nodes of the machine that have some: where Xen puts it when no nodes are preferred. The shares sum
/// to 1 on every machine.
pub fn memory_shares(nodes: &[NodeId], machine: &Machine) -> Vec<f64> {
    let all: Vec<NodeId> = (0..machine.node_count()).map(NodeId::from).collect();
    let has_memory = |node: &NodeId| machine.nodes()[node.index()].memory_bytes > 0;
    let (with_memory, without): (Vec<NodeId>, Vec<NodeId>) = all.iter().partition(|node| has_memory(node));
    let chosen = with_memory.iter().copied().filter(|node| nodes.contains(node)).collect();
    let taking_part = [chosen, with_memory, without]
        .into_iter()
        .find(|nodes: &Vec<NodeId>| !nodes.is_empty())
        .unwrap_or_default();
    let share = 1.0 / taking_part.len() as f64;
    let share_of = |node: &NodeId| if taking_part.contains(node) { share } else { 0.0 };
    all.iter().map(share_of).collect()
}

fn shortage(
    machine: &Machine,
    occupancy: &Occupancy,
    request: Request,
    usable: &[NodeId],
) -> Option<Shortage> {
    let all = candidate(machine, occupancy, usable.to_vec());
    if (request.vcpus as usize) > all.pcpus {
        return Some(Shortage::Pcpus {
            vcpus: request.vcpus,
            pcpus: all.pcpus,
            isolated: machine.isolated().count(),
        });
    }
    (request.memory_bytes > all.free_memory_bytes)
        .then_some(Shortage::Memory { memory_bytes: request.memory_bytes, free_bytes: all.free_memory_bytes })
}

/// All combinations of `count` usable nodes that satisfy the request.
fn candidates(
    machine: &Machine,
    occupancy: &Occupancy,
    request: Request,
    usable: &[NodeId],
    count: usize,
) -> Vec<Candidate> {
    combinations(usable, count)
        .map(|nodes| candidate(machine, occupancy, nodes))
        .filter(|candidate| {
            candidate.pcpus >= request.vcpus as usize && candidate.free_memory_bytes >= request.memory_bytes
        })
        .collect()
}

/// All combinations of `count` of at most [`MAX_NODES`] nodes, each in the order of the nodes.
pub(crate) fn combinations(nodes: &[NodeId], count: usize) -> impl Iterator<Item = Vec<NodeId>> {
    debug_assert!(nodes.len() <= MAX_NODES);
    (0u32..1 << nodes.len()).filter(move |combination| combination.count_ones() as usize == count).map(
        move |combination| {
            let in_combination = |&(bit, _): &(usize, &NodeId)| combination >> bit & 1 == 1;
            nodes.iter().enumerate().filter(in_combination).map(|(_, &node)| node).collect()
        },
    )
}

fn candidate(machine: &Machine, occupancy: &Occupancy, nodes: Vec<NodeId>) -> Candidate {
    Candidate {
        pcpus: nodes.iter().map(|&node| pcpus(machine, node)).sum(),
        runnable_vcpus: nodes.iter().map(|&node| occupancy.runnable_vcpus(node)).sum(),
        free_memory_bytes: nodes
            .iter()
            .map(|&node| occupancy.free_memory_bytes(node) / KIB * KIB)
            .fold(0, u64::saturating_add),
        nodes,
    }
}

/// For messages; shows fractions.
fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

/// The pCPUs of a node that are not isolated.
pub(crate) fn pcpus(machine: &Machine, node: NodeId) -> usize {
    machine.node_cpus(node).count_and(machine.housekeeping_cpus())
}

/// The smaller is the better candidate. Ties are broken by the nodes, so the order is total.
fn order(candidate: &Candidate) -> (u64, Reverse<u64>, &[NodeId]) {
    (candidate.runnable_vcpus, Reverse(candidate.free_memory_bytes), &candidate.nodes)
}

#[cfg(test)]
mod tests;
