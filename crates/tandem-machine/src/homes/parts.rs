//! VMs whose virtual NUMA nodes live each in a home of its own.
//!
//! **Problem.** A guest that was told of virtual nodes keeps its tasks on the vCPUs that are near their memory. With one home for all
//! nodes of such a VM, vCPUs of one virtual node run beside memory of another one, and what the guest does is for nothing.
//!
//! **Approach.** Each virtual node is shown as a [`VmView`] with a [`Part`], and has demand, memory and a home as a VM has. Two things
//! are different. Parts of one VM rather live on different nodes: of each part, what shares a node with another one loses
//! [`TOGETHER_SHARE`] of its time. And what the configuration wishes, and where the monitor has bound memory, says among which nodes a
//! part's home is chosen, instead of being the home.
//!
//! **Limits.** A wish for several nodes gives a part all of them if no choice among them has its CPUs.

use super::estimate::{Known, Situation};
use super::{VmView, Wish};
use crate::ids::NodeId;

/// Part of its time that a virtual node loses which shares all of its home with another one: the guest keeps memory and tasks of the
/// two apart for nothing, and they have the bandwidth and caches of one. An assumption: two equal ones lose half of what one of them
/// would if all of its memory was a hop away on the machines of `machine::preset`. So they come together only where most of their memory
/// is, and part where less than a quarter of it is left behind.
pub const TOGETHER_SHARE: f64 = 0.05;

/// What makes a [`VmView`] one of several virtual nodes of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The agent's number for the VM.
    pub of: u64,
    /// Nodes to which its memory was bound when the VM was started; none if it was not.
    pub bound: Vec<NodeId>,
}

impl VmView {
    /// Whether the two are virtual nodes of one VM.
    pub(super) fn is_of_the_same_vm(&self, other: &Self) -> bool {
        self.part.as_ref().zip(other.part.as_ref()).is_some_and(|(a, b)| a.of == b.of)
    }

    /// Of the nodes that it may use, those among which its home is chosen.
    pub(super) fn choices(&self, allowed: &[NodeId]) -> Vec<NodeId> {
        let mut choices = allowed.to_vec();
        let Some(part) = &self.part else { return choices };
        let wished = if let Wish::Nodes(nodes) = &self.wish { &nodes[..] } else { &[] };
        for only in [wished, &part.bound] {
            if choices.iter().any(|node| only.contains(node)) {
                choices.retain(|node| only.contains(node));
            }
        }
        choices
    }
}

impl Known<'_> {
    /// Whether somebody has said where it is to live, among the nodes that it may use.
    pub fn is_narrowed(&self) -> bool {
        self.choices.len() < self.allowed.len()
    }
}

impl Situation<'_> {
    /// The other virtual nodes of the same VM that have a home.
    fn siblings(&self, at: usize) -> impl Iterator<Item = &Known<'_>> {
        let view = self.vms[at].view;
        let others = self.vms.iter().enumerate().filter(move |(other, _)| *other != at).map(|(_, vm)| vm);
        others.filter(move |vm| vm.view.is_of_the_same_vm(view) && !vm.home.is_empty())
    }

    /// How many other virtual nodes of the same VM live on these nodes; `None` for what is no part.
    pub fn siblings_on(&self, at: usize, nodes: &[NodeId]) -> Option<usize> {
        self.vms[at].view.part.as_ref()?;
        Some(self.siblings(at).filter(|vm| vm.home.iter().any(|node| nodes.contains(node))).count())
    }

    /// CPUs that this part and the others of its VM lose because they live together, if it lives on these nodes.
    pub fn together_loss(&self, at: usize, nodes: &[NodeId]) -> f64 {
        let shared = |of: &[NodeId], with: &[NodeId]| {
            self.mean_over_cpus(of, |node| f64::from(u8::from(with.contains(&node))))
        };
        let of_pair = |other: &Known<'_>| {
            self.vms[at].demand * shared(nodes, &other.home) + other.demand * shared(&other.home, nodes)
        };
        TOGETHER_SHARE * self.siblings(at).map(of_pair).sum::<f64>()
    }
}

#[cfg(test)]
mod tests;
