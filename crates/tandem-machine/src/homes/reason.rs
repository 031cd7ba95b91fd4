//! Why a VM gets a home, as one sentence with figures.

use super::estimate::Situation;
use super::{HomeRequest, Part};
use crate::ids::NodeId;
use crate::placement::Shortage;
use std::fmt::{self, Display, Formatter};

/// Why a VM gets a home, or none. It displays as a sentence without its full stop:
/// "node 1: 3.2 of 4 GiB of its memory is there; demand on node 0 is 9.1 of 8 CPUs".
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    /// The operating system's numbers of the home's nodes; empty if it has no home.
    pub nodes: Vec<u32>,
    /// The reasons, the weightiest first; at least one.
    pub facts: Vec<Fact>,
}

/// A reason for a home. Nodes have the operating system's numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Fact {
    /// The configuration requests it.
    Requested,
    /// The configuration requests nodes that the VM may not use.
    RequestNotAllowed,
    /// The VM may not stay where it was, or cannot with its number of vCPUs.
    CannotStay {
        /// Its home before.
        nodes: Vec<u32>,
    },
    /// It is isolated from others, as the configuration requests for it or for them.
    Apart {
        /// Other homes there: of isolated VMs, or of any if it is to be isolated itself.
        others: usize,
    },
    /// The location of its memory.
    Memory {
        /// In the home, bytes.
        there_bytes: u64,
        /// All memory that it has touched, bytes.
        all_bytes: u64,
    },
    /// Demand for CPU time on nodes.
    Asked {
        /// The nodes; those of the home if empty.
        nodes: Vec<u32>,
        /// CPUs that VMs demand, including this VM if it lives there.
        asked: f64,
        /// CPUs that they have.
        cpus: usize,
    },
    /// Free memory of the home, bytes.
    Free(u64),
    /// The memory of a virtual node was bound there when the VM was started.
    Bound,
    /// The number of other virtual nodes of its VM that are at home there.
    Siblings(usize),
    /// A device of the VM is at the home.
    Device,
    /// CPUs that all VMs together save.
    Gain(f64),
    /// No nodes have what the VM needs.
    Shortage(Shortage),
    /// The machine has one node, or too many to choose from.
    NothingToChoose,
}

impl Reason {
    /// The sentence without the nodes, for callers that show them separately.
    pub fn why(&self) -> String {
        self.facts.iter().map(Fact::to_string).collect::<Vec<_>>().join("; ")
    }

    /// The configuration requests these nodes.
    pub(super) fn requested(situation: &Situation<'_>, nodes: &[NodeId]) -> Self {
        Self { nodes: os_numbers(situation, nodes), facts: vec![Fact::Requested] }
    }

    /// No home is possible.
    pub(super) fn none(shortage: Option<Shortage>) -> Self {
        let fact = shortage.map_or(Fact::NothingToChoose, Fact::Shortage);
        Self { nodes: Vec::new(), facts: vec![fact] }
    }

    /// The VM has no home, or may not stay in its home.
    pub(super) fn of_new(situation: &Situation<'_>, at: usize, nodes: &[NodeId]) -> Self {
        let view = situation.vms[at].view;
        let mut facts = Vec::new();
        if let Some(home) = &view.home {
            facts.push(Fact::CannotStay { nodes: os_numbers(situation, &home.nodes) });
        }
        match &view.request {
            HomeRequest::Nodes(requested)
                if view.part.is_some() && nodes.iter().all(|node| requested.contains(node)) =>
            {
                facts.push(Fact::Requested);
            }
            HomeRequest::Nodes(_) => facts.push(Fact::RequestNotAllowed),
            HomeRequest::Any | HomeRequest::Isolated | HomeRequest::Exempt => {}
        }
        let is_bound = |part: &Part| nodes.iter().all(|node| part.bound.contains(node));
        facts.extend(view.part.as_ref().filter(|part| is_bound(part)).map(|_| Fact::Bound));
        facts.extend(situation.siblings_on(at, nodes).map(Fact::Siblings));
        facts.extend(apart(situation, at, nodes));
        facts.extend(memory(situation, at, nodes));
        facts.extend(device(situation, at, nodes));
        let asked = situation.asked(at, nodes, nodes);
        facts.push(Fact::Asked { nodes: Vec::new(), asked, cpus: situation.cpus(nodes) });
        if view.resident_bytes.iter().sum::<u64>() < view.memory_bytes {
            let others = situation.others(at);
            facts.push(Fact::Free(nodes.iter().map(|node| others.free_bytes[node.index()]).sum()));
        }
        Self { nodes: os_numbers(situation, nodes), facts }
    }

    /// The VM, which still is where it was, is better off on these nodes.
    pub(super) fn of_move(situation: &Situation<'_>, at: usize, nodes: &[NodeId], gain: f64) -> Self {
        let mut facts = Vec::new();
        facts.extend(situation.siblings_on(at, nodes).map(Fact::Siblings));
        facts.extend(apart(situation, at, nodes));
        facts.extend(memory(situation, at, nodes));
        facts.extend(device(situation, at, nodes));
        let home = &situation.vms[at].home;
        let (before, after) = (situation.asked(at, home, home), situation.asked(at, nodes, nodes));
        if before > after {
            let of = os_numbers(situation, home);
            facts.push(Fact::Asked { nodes: of, asked: before, cpus: situation.cpus(home) });
            facts.push(Fact::Asked { nodes: Vec::new(), asked: after, cpus: situation.cpus(nodes) });
        }
        if gain > 0.0 {
            facts.push(Fact::Gain(gain));
        }
        Self { nodes: os_numbers(situation, nodes), facts }
    }
}

fn os_numbers(situation: &Situation<'_>, nodes: &[NodeId]) -> Vec<u32> {
    nodes.iter().map(|node| situation.machine.nodes()[node.index()].os_index).collect()
}

fn apart(situation: &Situation<'_>, at: usize, nodes: &[NodeId]) -> Option<Fact> {
    let is_isolated = |at: usize| situation.vms[at].view.request == HomeRequest::Isolated;
    let matters = is_isolated(at) || (0..situation.vms.len()).any(is_isolated);
    matters.then(|| Fact::Apart { others: situation.pairs(at, nodes) })
}

fn memory(situation: &Situation<'_>, at: usize, nodes: &[NodeId]) -> Option<Fact> {
    let resident = &situation.vms[at].view.resident_bytes;
    let there_bytes = nodes.iter().map(|node| resident[node.index()]).sum();
    (there_bytes > 0).then(|| Fact::Memory { there_bytes, all_bytes: resident.iter().sum() })
}

fn device(situation: &Situation<'_>, at: usize, nodes: &[NodeId]) -> Option<Fact> {
    let devices = &situation.vms[at].view.devices;
    devices.iter().any(|node| nodes.contains(node)).then_some(Fact::Device)
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.nodes[..] {
            [] => write!(f, "no home: ")?,
            nodes => write!(f, "{}: ", named(nodes))?,
        }
        f.write_str(&self.why())
    }
}

impl Display for Fact {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Requested => write!(f, "the configuration says so"),
            Self::RequestNotAllowed => {
                write!(f, "it may use none of the nodes that the configuration requests")
            }
            Self::CannotStay { nodes } => write!(f, "it cannot stay on {}", named(nodes)),
            Self::Apart { others: 0 } => write!(f, "it is apart from others there"),
            Self::Apart { others: 1 } => write!(f, "only one other that it should be apart from is there"),
            Self::Apart { others } => {
                write!(f, "only {others} others that it should be apart from are there")
            }
            Self::Memory { there_bytes, all_bytes } => {
                let unit = Unit::of(*all_bytes);
                let (there, all) = (unit.count(*there_bytes), unit.count(*all_bytes));
                write!(f, "{there:.1} of {all:.1} {} of its memory is there", unit.name)
            }
            Self::Asked { nodes, asked, cpus } if nodes.is_empty() => {
                write!(f, "demand there is {asked:.1} of {cpus} CPUs with this VM")
            }
            Self::Asked { nodes, asked, cpus } => {
                write!(f, "demand on {} is {asked:.1} of {cpus} CPUs", named(nodes))
            }
            Self::Free(bytes) => {
                let unit = Unit::of(*bytes);
                write!(f, "{:.1} {} are free there", unit.count(*bytes), unit.name)
            }
            Self::Bound => write!(f, "its memory is bound there"),
            Self::Siblings(0) => write!(f, "no other virtual node is there"),
            Self::Siblings(1) => write!(f, "one other virtual node is there"),
            Self::Siblings(others) => write!(f, "{others} other virtual nodes are there"),
            Self::Device => write!(f, "its device is there"),
            Self::Gain(gain) => write!(f, "it saves {gain:.2} CPUs"),
            Self::Shortage(shortage) => write!(f, "{shortage}"),
            Self::NothingToChoose => write!(f, "the machine has one node, or too many to choose from"),
        }
    }
}

/// "node 1", "nodes 0 and 1", "nodes 0, 1 and 2".
fn named(nodes: &[u32]) -> String {
    let numbers: Vec<String> = nodes.iter().map(u32::to_string).collect();
    match &numbers[..] {
        [] => "no node".to_owned(),
        [one] => format!("node {one}"),
        [first @ .., last] => format!("nodes {} and {last}", first.join(", ")),
    }
}

/// A unit for sizes of memory.
struct Unit {
    name: &'static str,
    bytes: u64,
}

impl Unit {
    /// The unit for a size.
    fn of(bytes: u64) -> Self {
        match bytes >> 30 {
            0 => Self { name: "MiB", bytes: 1 << 20 },
            _ => Self { name: "GiB", bytes: 1 << 30 },
        }
    }

    fn count(&self, bytes: u64) -> f64 {
        bytes as f64 / self.bytes as f64
    }
}
