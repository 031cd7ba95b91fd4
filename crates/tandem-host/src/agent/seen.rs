//! The planner's view of a VM.

use super::parts::{Part, divide, part_of, shares};
use super::tracked_vm::{Apart, TrackedVm, id_of, ids_of, is_confined};
use crate::vms::VirtualNode;
use tandem_machine::Machine;
use tandem_machine::homes::{self, HomeRequest, VmView};
use tandem_machine::ids::NodeId;
use tandem_machine::placement::usable_nodes;
use tandem_settings::VmRule;

/// The memory of a part.
struct PartMemory {
    /// What it may come to use.
    all_bytes: u64,
    /// What it has on each node, in the machine's order.
    resident_bytes: Vec<u64>,
    /// Nodes to which it is bound.
    bound: Vec<NodeId>,
}

impl TrackedVm {
    /// The planner's input: a view of each part.
    pub fn views(&self, machine: &Machine) -> Vec<VmView> {
        let devices: Vec<NodeId> =
            self.vm.devices.iter().filter_map(|device| id_of(machine, device.node?)).collect();
        let (allowed, request) = (self.allowed(machine), self.request(machine));
        let mut views = Vec::with_capacity(self.parts.len());
        for ((part, id), memory) in self.parts.iter().zip(self.ids()).zip(self.memory_of_parts(machine)) {
            views.push(VmView {
                id,
                vcpus: self.unconfined_vcpus(views.len(), machine),
                memory_bytes: memory.all_bytes,
                resident_bytes: memory.resident_bytes,
                demand: part.demand,
                allowed: allowed.clone(),
                devices: devices.clone(),
                request: request.clone(),
                home: part.home.clone(),
                part: part.node.map(|_| homes::Part { of: self.id, bound: memory.bound }),
            });
        }
        views
    }

    fn memory_of_parts(&self, machine: &Machine) -> Vec<PartMemory> {
        let mut resident_bytes = vec![0; machine.node_count()];
        let known = self.memory.by_node.iter().flat_map(|by_node| &by_node.bytes);
        for (&node, &bytes) in known {
            if let Some(at) = id_of(machine, node) {
                resident_bytes[at.index()] = bytes;
            }
        }
        let all_bytes = self.vm.memory_bytes.unwrap_or(0).max(resident_bytes.iter().sum());
        let nodes: Vec<&VirtualNode> =
            self.parts.iter().filter_map(|part| part.virtual_node(&self.vm)).collect();
        if nodes.is_empty() {
            return vec![PartMemory { all_bytes, resident_bytes, bound: Vec::new() }];
        }
        let bound: Vec<_> = nodes.iter().map(|node| ids_of(machine, &node.host_nodes)).collect();
        let lies_on = |(part, bound): (&Part, &Vec<NodeId>)| match &part.home {
            Some(home) if bound.is_empty() => home.nodes.clone(),
            _ => bound.clone(),
        };
        let lies_on: Vec<_> = self.parts.iter().zip(&bound).map(lies_on).collect();
        let all = shares(&nodes, all_bytes);
        let resident = divide(&resident_bytes, &all, &lies_on);
        let parts = all.into_iter().zip(resident).zip(bound);
        parts
            .map(|((all_bytes, resident_bytes), bound)| PartMemory { all_bytes, resident_bytes, bound })
            .collect()
    }

    /// The number of vCPUs of a part that may use CPUs which are not isolated.
    fn unconfined_vcpus(&self, part: usize, machine: &Machine) -> u32 {
        let is_confined = |tid: u32| {
            let vcpus = &self.limits.vcpus;
            vcpus
                .binary_search_by_key(&tid, |(tid, _)| *tid)
                .is_ok_and(|at| is_confined(machine, &vcpus[at].1))
        };
        let its = self.vcpus().filter(|vcpu| part_of(&self.parts, &self.vm, vcpu) == Some(part));
        its.filter(|vcpu| !is_confined(vcpu.tid)).count() as u32
    }

    /// The nodes that it may use, by memory and by CPUs that are not isolated; empty stands for all.
    fn allowed(&self, machine: &Machine) -> Vec<NodeId> {
        let usable = usable_nodes(machine);
        let may_use = |node: &NodeId| {
            let mut cpus = machine.node_cpus(*node).iter_and(machine.housekeeping_cpus());
            cpus.any(|cpu| self.limits.cpus.binary_search(&machine.cpu(cpu).os_index).is_ok())
        };
        let of_cpus: Vec<NodeId> = usable.iter().copied().filter(may_use).collect();
        let of_memory = ids_of(machine, &self.limits.memory_nodes);
        let both: Vec<NodeId> = of_cpus.iter().filter(|node| of_memory.contains(node)).copied().collect();
        let allowed = if both.is_empty() { of_cpus } else { both };
        if allowed.len() == usable.len() { Vec::new() } else { allowed }
    }

    /// Whether the operator's rules name its home, which comes before what its user prefers.
    pub(super) fn has_ruled_home(&self) -> bool {
        let by_rule = self.rule.as_ref().is_some_and(|rule| rule.home.is_some() || rule.isolated);
        by_rule || self.apart == Some(Apart::Home)
    }

    pub(super) fn request(&self, machine: &Machine) -> HomeRequest {
        match (&self.decided, &self.rule) {
            (Some(decided), _) if decided.nodes.is_empty() => HomeRequest::Exempt,
            (Some(decided), _) => HomeRequest::Nodes(ids_of(machine, &decided.nodes)),
            (None, Some(VmRule { home: Some(nodes), .. })) => HomeRequest::Nodes(ids_of(machine, nodes)),
            (None, Some(VmRule { isolated: true, .. })) => HomeRequest::Isolated,
            (None, Some(VmRule { exempt: true, .. })) => HomeRequest::Exempt,
            (None, _) if self.apart == Some(Apart::Home) => HomeRequest::Isolated,
            (None, _) => HomeRequest::Any,
        }
    }
}
