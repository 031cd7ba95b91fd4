//! Where the memory of VMs and processes lies at the start: memory policies, by the names of `numactl`.
//!
//! What nodes have room for is known from what was given out before, in the order of the file.

use super::build::{Builder, Home};
use schemars::JsonSchema;
use serde::Deserialize;
use tandem_file::file_error::FileError;
use tandem_file::located::Located;
use tandem_file::units::Size;
use tandem_machine::ids::NodeId;
use tandem_machine::placement::{self, Request};
use tandem_machine::{Machine, parse_cpulist};
use tandem_sim::scenario::MemoryPolicy;

/// Where memory lies at the start: "local", which is where the tasks start; "interleave", evenly over all
/// nodes; "home", for processes with `homes`, evenly over the nodes of these; { interleave = "0-1" }, evenly
/// over these nodes, and on the nearest others if they are full; { preferred = "1" }, on that node, and on
/// the nearest others if it is full; { bind = "0" }, evenly over these nodes and on no others; { cpuset = "0" },
/// the same by the cgroup's `cpuset.mems`. NUMA balancing leaves "interleave", `interleave`, `preferred` and
/// `bind` where they are; memory of a `cpuset` it moves among these nodes.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected \"local\", \"interleave\", \"home\", or a table such as { bind = \"0\" }, { preferred = \"1\" }, \
                 { interleave = \"0-1\" } or { cpuset = \"0\" }"
)]
pub enum MemoryPolicyForm {
    /// One that needs no nodes.
    Named(MemoryPolicyName),
    /// One with a list of nodes.
    Nodes(MemoryPolicyNodes),
}

/// A memory policy without nodes.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemoryPolicyName {
    /// On the nodes that the tasks are on once all of them have started, in proportion.
    Local,
    /// Evenly over all nodes.
    Interleave,
    /// Evenly over the nodes of the `homes`, whatever the policy's placement makes of them, and on no others.
    Home,
}

/// A memory policy with a list of nodes, by the numbers of the operating system.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum MemoryPolicyNodes {
    /// Evenly over these nodes and on no others.
    Bind(String),
    /// On this node, and on the nearest others if it is full.
    Preferred(String),
    /// Evenly over these nodes, and on the nearest others if they are full.
    Interleave(String),
    /// Evenly over these nodes and on no others, by `cpuset.mems` of their cgroup.
    Cpuset(String),
}

/// Where the memory of a VM lies.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Memory {
    pub shares: Vec<f64>,
    pub first_touch: bool,
    /// Who says so.
    pub policy: MemoryPolicy,
}

/// What is asked for: a size, and where it should lie.
#[derive(Clone, Copy)]
pub(super) struct MemoryKeys<'a> {
    pub size: &'a Located<Size>,
    pub policy: Option<&'a Located<MemoryPolicyForm>>,
    /// The nodes that "home" is; none if that is not said.
    pub home_nodes: &'a [NodeId],
    /// Whether it takes room from the start of the run; later, the engine sees to that.
    pub is_there: bool,
}

impl Builder<'_> {
    /// Gives memory to a VM, or a set of processes, with so many tasks and that home.
    pub(super) fn lay_memory(
        &mut self,
        keys: MemoryKeys<'_>,
        tasks: u32,
        home: &Home,
    ) -> Result<Memory, FileError> {
        let bytes = keys.size.bytes;
        let every_node: Vec<NodeId> = (0..self.machine().node_count()).map(NodeId::from).collect();
        let (nodes, may_spill, policy, kind) = match keys.policy.map(|policy| (&**policy, policy)) {
            None => return self.lay_evenly(keys, tasks, home, false),
            Some((MemoryPolicyForm::Named(MemoryPolicyName::Local), _)) => {
                return self.lay_evenly(keys, tasks, home, true);
            }
            Some((MemoryPolicyForm::Named(MemoryPolicyName::Interleave), policy)) => {
                (every_node.clone(), true, policy, MemoryPolicy::Own)
            }
            Some((MemoryPolicyForm::Named(MemoryPolicyName::Home), policy)) => {
                if keys.home_nodes.is_empty() {
                    let message = "memory policy \"home\" is for [[processes]] that have `homes`";
                    return Err(self.source().error(policy.span(), message));
                }
                (keys.home_nodes.to_vec(), false, policy, MemoryPolicy::FirstTouch)
            }
            Some((MemoryPolicyForm::Nodes(form), policy)) => {
                let (list, may_spill, is_one) = match form {
                    MemoryPolicyNodes::Bind(list) | MemoryPolicyNodes::Cpuset(list) => (list, false, false),
                    MemoryPolicyNodes::Preferred(list) => (list, true, true),
                    MemoryPolicyNodes::Interleave(list) => (list, true, false),
                };
                let nodes = self.nodes(list, policy)?;
                if is_one && nodes.len() != 1 {
                    let message = format!("`{list}` is more than one node; `preferred` needs a single one");
                    return Err(self.source().error(policy.span(), message));
                }
                let kind = match form {
                    MemoryPolicyNodes::Cpuset(_) => MemoryPolicy::Cpuset(nodes.clone()),
                    _ => MemoryPolicy::Own,
                };
                (nodes, may_spill, policy, kind)
            }
        };
        let no_room =
            |error: placement::OccupancyError| self.scenario.source.error(policy.span(), error.to_string());
        let free = |builder: &Self, nodes: &[NodeId]| {
            nodes.iter().map(|&node| builder.occupancy.free_memory_bytes(node)).collect::<Vec<_>>()
        };
        let before = free(self, &every_node);
        let has: u64 = free(self, &nodes).iter().fold(0, |sum, free| sum.saturating_add(*free));
        let at_first = if may_spill { bytes.min(has) } else { bytes };
        let request = |vcpus, memory_bytes| Request { vcpus, memory_bytes };
        self.occupancy.add(request(0, at_first), &nodes).map_err(no_room)?;
        let mut missing = bytes - at_first;
        for node in nearest_first(nodes[0], self.machine()) {
            let part = missing.min(self.occupancy.free_memory_bytes(node));
            self.occupancy.add(request(0, part), &[node]).map_err(no_room)?;
            missing -= part;
        }
        if missing > 0 {
            let message = format!("the nodes have {} less free than that", Size { bytes: missing });
            return Err(self.source().error(keys.size.span(), message));
        }
        self.occupancy.add(request(tasks, 0), &home.nodes).map_err(no_room)?;
        let after = free(self, &every_node);
        let taken = before.iter().zip(after).map(|(before, after)| (before - after) as f64 / bytes as f64);
        Ok(Memory { shares: taken.collect(), first_touch: false, policy: kind })
    }

    /// Evenly over the nodes of the home.
    fn lay_evenly(
        &mut self,
        keys: MemoryKeys<'_>,
        tasks: u32,
        home: &Home,
        first_touch: bool,
    ) -> Result<Memory, FileError> {
        if keys.is_there {
            let request = Request { vcpus: tasks, memory_bytes: keys.size.bytes };
            self.occupancy
                .add(request, &home.nodes)
                .map_err(|error| self.scenario.source.error(keys.size.span(), error.to_string()))?;
        }
        let shares = placement::memory_shares(&home.nodes, self.machine());
        Ok(Memory { shares, first_touch, policy: MemoryPolicy::FirstTouch })
    }

    /// The nodes of a list.
    fn nodes(&self, list: &str, policy: &Located<MemoryPolicyForm>) -> Result<Vec<NodeId>, FileError> {
        let known = self.machine().nodes();
        let node = |number: u32| known.iter().position(|node| node.os_index == number).map(NodeId::from);
        let nodes: Option<Vec<NodeId>> =
            parse_cpulist(list).ok().and_then(|numbers| numbers.into_iter().map(node).collect());
        nodes.filter(|nodes| !nodes.is_empty()).ok_or_else(|| {
            let numbers: Vec<_> = known.iter().map(|node| node.os_index.to_string()).collect();
            let message =
                format!("`{list}` names no nodes of the machine; its nodes are {}", numbers.join(", "));
            self.source().error(policy.span(), message)
        })
    }
}

/// All nodes, those nearest to this one first; of equally near ones, the lower number.
fn nearest_first(node: NodeId, machine: &Machine) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = (0..machine.node_count()).map(NodeId::from).collect();
    nodes.sort_by_key(|&other| (machine.distance(node, other), other));
    nodes
}
