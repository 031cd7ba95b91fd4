//! VMs whose virtual NUMA nodes each have a home.
//!
//! **Problem.** A guest that sees virtual nodes keeps its tasks on the vCPUs that are near their memory. With
//! one home for all nodes of such a VM, vCPUs of one virtual node run beside memory of another one, and the
//! guest's effort is wasted.
//!
//! **Approach.** Each virtual node appears as a [`VmView`] with a [`Part`], and has demand, memory and a home
//! as a VM has. There are two differences. Parts of one VM prefer to live on different nodes: of each part,
//! the fraction that shares a node with another part loses [`TOGETHER_SHARE`] of its time. And the request of
//! the configuration, and the nodes to which the monitor has bound memory, are the nodes among which a part's
//! home is chosen, instead of being the home.
//!
//! **Limits.** A request for several nodes gives a part all of them if no choice among them has enough CPUs.

use super::estimate::{PlannedVm, Situation};
use super::{HomeRequest, VmView};
use crate::ids::NodeId;

/// Part of its time that a virtual node loses which shares all of its home with another one: the guest
/// separates memory and tasks of the two in vain, and they have the bandwidth and caches of one. An
/// assumption: two equal ones lose half of what one of them would if all of its memory was a hop away on the
/// machines of `machine::preset`. So they share a node only if most of their memory is there, and separate if
/// less than a quarter of it is left behind.
pub const TOGETHER_SHARE: f64 = 0.05;

/// Makes a [`VmView`] one of several virtual nodes of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The agent's number for the VM.
    pub of: u64,
    /// Nodes to which its memory was bound when the VM was started; empty if it was not bound.
    pub bound: Vec<NodeId>,
}

impl VmView {
    /// Whether the two are virtual nodes of one VM.
    pub(super) fn is_of_the_same_vm(&self, other: &Self) -> bool {
        self.part.as_ref().zip(other.part.as_ref()).is_some_and(|(a, b)| a.of == b.of)
    }

    /// The nodes among which its home is chosen, of those that it may use.
    pub(super) fn choices(&self, allowed: &[NodeId]) -> Vec<NodeId> {
        let mut choices = allowed.to_vec();
        let Some(part) = &self.part else { return choices };
        let requested = if let HomeRequest::Nodes(nodes) = &self.request { &nodes[..] } else { &[] };
        for only in [requested, &part.bound] {
            if choices.iter().any(|node| only.contains(node)) {
                choices.retain(|node| only.contains(node));
            }
        }
        choices
    }
}

impl PlannedVm<'_> {
    /// Whether the configuration or the binding of its memory limits its home, among the nodes that it may
    /// use.
    pub fn is_narrowed(&self) -> bool {
        self.choices.len() < self.allowed.len()
    }
}

impl Situation<'_> {
    /// The other virtual nodes of the same VM that have a home.
    fn siblings(&self, at: usize) -> impl Iterator<Item = &PlannedVm<'_>> {
        let view = self.vms[at].view;
        let others = self.vms.iter().enumerate().filter(move |(other, _)| *other != at).map(|(_, vm)| vm);
        others.filter(move |vm| vm.view.is_of_the_same_vm(view) && !vm.home.is_empty())
    }

    /// How many other virtual nodes of the same VM live on these nodes; `None` for a VM that is not a part.
    pub fn siblings_on(&self, at: usize, nodes: &[NodeId]) -> Option<usize> {
        self.vms[at].view.part.as_ref()?;
        Some(self.siblings(at).filter(|vm| vm.home.iter().any(|node| nodes.contains(node))).count())
    }

    /// CPUs that this part and the others of its VM lose by sharing nodes, if it lives on these nodes.
    pub fn together_loss(&self, at: usize, nodes: &[NodeId]) -> f64 {
        let shared = |of: &[NodeId], with: &[NodeId]| {
            self.mean_over_cpus(of, |node| f64::from(u8::from(with.contains(&node))))
        };
        let of_pair = |other: &PlannedVm<'_>| {
            self.vms[at].demand * shared(nodes, &other.home) + other.demand * shared(&other.home, nodes)
        };
        TOGETHER_SHARE * self.siblings(at).map(of_pair).sum::<f64>()
    }
}

#[cfg(test)]
mod tests;
