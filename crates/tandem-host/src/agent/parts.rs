//! The parts of a VM that have homes of their own: its virtual nodes, or all of it.
//!
//! **Problem.** A guest that sees virtual NUMA nodes keeps its tasks on the vCPUs near their memory, so each
//! virtual node needs a home of its own. The kernel reports how long each vCPU runs, but only where the
//! memory of the whole VM is.
//!
//! **Approach.** A VM has as many parts as virtual nodes with vCPUs, if every vCPU belongs to a known one,
//! and one part otherwise: see [`virtual_nodes`]. A part's memory is its share of the VM's, by the sizes of
//! virtual nodes in the command line. How the resident memory is divided among them is an
//! [assumption](divide): as much as possible lies where it is bound, or else at home.
//!
//! **Limits.** A VM that started before the agent, without bound memory, may therefore get the homes of its
//! parts in the wrong order, and nothing reveals that. A VM with more than [`PARTS_MAX`] virtual nodes has
//! one home: each of them costs the planner as much as a VM, and untrusted users choose their number.

use super::whereabouts::Whereabouts;
use crate::vms::{Thread, ThreadKind, VirtualNode, Vm};
use std::collections::BTreeSet;
use tandem_machine::homes::Home;
use tandem_machine::ids::NodeId;

/// Most parts of a VM.
pub(super) const PARTS_MAX: u64 = 8;
/// How many numbers the planner reserves for a VM: one for all of it, and one for each part.
const NUMBERS: u64 = PARTS_MAX + 1;

/// The planner's numbers of a VM's parts, in their order. A VM that is divided while it runs gets other
/// numbers than its whole had.
pub(super) fn planner_numbers(vm: u64, parts: &[Part]) -> impl Iterator<Item = u64> {
    let is_whole = parts.first().is_none_or(|part| part.node.is_none());
    vm * NUMBERS + u64::from(!is_whole)..
}

/// The VM that has this number in the planner.
pub(super) fn vm_of(number: u64) -> u64 {
    number / NUMBERS
}

/// A part of a VM that has a home of its own.
#[derive(Default)]
pub struct Part {
    /// The virtual node, as an index into [`Vm::virtual_nodes`]; `None` for all of the VM.
    pub node: Option<usize>,
    /// CPUs that its vCPUs ran on and waited for, on average since the scan before; `None` before the second
    /// scan.
    pub demand: Option<f64>,
    /// Its home.
    pub home: Option<Home>,
    /// Why it has its home, or none; `None` before the planner has decided.
    pub why: Option<String>,
    /// Only where homes are plans.
    pub(super) whereabouts: Whereabouts,
}

impl Part {
    /// Its virtual node, if it is one.
    pub fn virtual_node<'a>(&self, vm: &'a Vm) -> Option<&'a VirtualNode> {
        vm.virtual_nodes.get(self.node?)
    }
}

/// The virtual nodes that are parts, as indices into [`Vm::virtual_nodes`]; only `None` if the VM has one
/// home.
pub(super) fn virtual_nodes(vm: &Vm, threads: &[Thread]) -> Vec<Option<usize>> {
    let vcpus = threads.iter().filter(|thread| thread.kind == ThreadKind::Vcpu);
    let nodes: Option<BTreeSet<usize>> =
        vcpus.map(|thread| thread.vcpu.and_then(|vcpu| vm.virtual_node_of(vcpu))).collect();
    match nodes {
        Some(nodes) if (2..=PARTS_MAX as usize).contains(&nodes.len()) => {
            nodes.into_iter().map(Some).collect()
        }
        _ => vec![None],
    }
}

/// The part that a vCPU belongs to; `None` for other threads.
pub(super) fn part_of(parts: &[Part], vm: &Vm, thread: &Thread) -> Option<usize> {
    if thread.kind != ThreadKind::Vcpu {
        return None;
    }
    match parts {
        [_] => Some(0),
        _ => {
            let node = vm.virtual_node_of(thread.vcpu?)?;
            parts.iter().position(|part| part.node == Some(node))
        }
    }
}

/// How many of a VM's `bytes` belong to each part: by the sizes of the virtual nodes, or by their vCPUs if
/// the size of one is unknown.
pub(super) fn shares(nodes: &[&VirtualNode], bytes: u64) -> Vec<u64> {
    let sizes: Option<Vec<u64>> = nodes.iter().map(|node| node.memory_bytes).collect();
    let vcpus = || nodes.iter().map(|node| node.vcpus.len() as u64).collect();
    split(bytes, &sizes.unwrap_or_else(vcpus))
}

/// Divides the memory that is resident on each node among parts, each of which has a weight and a home. As
/// much of a part's share as possible is at its home; the rest belongs to parts that have less than their
/// share, in proportion. Returns the bytes on each node for each part; all bytes of each node are assigned.
pub(super) fn divide(resident: &[u64], weights: &[u64], homes: &[Vec<NodeId>]) -> Vec<Vec<u64>> {
    let all = resident.iter().fold(0, |all: u64, bytes| all.saturating_add(*bytes));
    let mut missing = split(all, weights);
    let mut parts = vec![vec![0; resident.len()]; weights.len()];
    let mut left = resident.to_vec();
    for at_home in [true, false] {
        for (node, left) in left.iter_mut().enumerate() {
            let may_have = |part: usize| !at_home || homes[part].iter().any(|home| home.index() == node);
            let wanted: Vec<u64> =
                (0..weights.len()).map(|part| if may_have(part) { missing[part] } else { 0 }).collect();
            let all_wanted = wanted.iter().fold(0, |all: u64, bytes| all.saturating_add(*bytes));
            // At the end, rounding leaves some bytes, which do not matter.
            let given = if at_home { (*left).min(all_wanted) } else { *left };
            let weights = if all_wanted > 0 { &wanted } else { weights };
            for (part, bytes) in split(given, weights).into_iter().enumerate() {
                parts[part][node] += bytes;
                missing[part] = missing[part].saturating_sub(bytes);
            }
            *left -= given;
        }
    }
    parts
}

/// Splits a number in proportion to weights, evenly if all of them are 0; the parts add up to it.
fn split(number: u64, weights: &[u64]) -> Vec<u64> {
    // Untrusted users choose sizes: larger ones count as 64 PiB, so that products fit.
    let weight = |&weight: &u64| u128::from(weight.min(1 << 56));
    let all: u128 = weights.iter().map(weight).sum();
    let (mut before, mut given) = (0, 0);
    let part = |(at, share): (usize, &u64)| {
        before += weight(share);
        let until = match all {
            0 => u128::from(number) * (at as u128 + 1) / weights.len() as u128,
            all => u128::from(number) * before / all,
        };
        let bytes = until as u64 - given;
        given = until as u64;
        bytes
    };
    weights.iter().enumerate().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nodes(numbers: &[u32]) -> Vec<NodeId> {
        numbers.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn no_two_parts_have_one_number() {
        let whole = [Part::default()];
        let parts: Vec<Part> =
            (0..PARTS_MAX as usize).map(|node| Part { node: Some(node), ..Part::default() }).collect();
        let mut numbers = BTreeSet::new();
        for vm in [0, 1, 2, 1 << 40] {
            for parts in [&whole[..], &parts] {
                for number in planner_numbers(vm, parts).take(parts.len()) {
                    assert!(numbers.insert(number), "{number} of {vm}");
                    assert_eq!(vm_of(number), vm);
                }
            }
        }
    }

    #[test]
    fn memory_is_taken_to_be_at_home() {
        let homes = [nodes(&[0]), nodes(&[1])];
        assert_eq!(divide(&[50, 50], &[1, 1], &homes), [[50, 0], [0, 50]]);
        assert_eq!(
            divide(&[60, 40], &[1, 1], &homes),
            [[50, 0], [10, 40]],
            "the second one has some far away"
        );
        assert_eq!(divide(&[0, 100], &[1, 1], &homes), [[0, 50], [0, 50]]);
        assert_eq!(divide(&[30, 90], &[1, 3], &homes), [[30, 0], [0, 90]]);
        let none = [nodes(&[]), nodes(&[])];
        assert_eq!(divide(&[60, 40], &[1, 1], &none), [[30, 20], [30, 20]], "without homes");
        let both = [nodes(&[0, 1]), nodes(&[0])];
        assert_eq!(divide(&[60, 40, 20], &[1, 1], &both), [[30, 30, 0], [30, 10, 20]]);
    }

    #[test]
    fn sizes_or_vcpus_say_how_much() {
        let node = |bytes, vcpus: u32| VirtualNode {
            memory_bytes: bytes,
            vcpus: (0..vcpus).collect(),
            ..VirtualNode::default()
        };
        assert_eq!(shares(&[&node(Some(1), 2), &node(Some(3), 2)], 100), [25, 75]);
        assert_eq!(shares(&[&node(Some(1), 2), &node(None, 6)], 100), [25, 75]);
        assert_eq!(shares(&[&node(Some(u64::MAX), 1), &node(Some(u64::MAX), 1)], u64::MAX)[0], u64::MAX / 2);
    }

    proptest! {
        #[test]
        fn all_is_given_and_nothing_else(
            resident in proptest::collection::vec(prop_oneof![Just(0), Just(u64::MAX / 8), 0..1000u64], 4),
            parts in proptest::collection::vec((prop_oneof![Just(0), Just(u64::MAX), 0..1000u64], proptest::collection::vec(0..4u32, 0..3)), 1..5),
        ) {
            let weights: Vec<u64> = parts.iter().map(|(weight, _)| *weight).collect();
            let homes: Vec<_> = parts.iter().map(|(_, home)| nodes(home)).collect();
            let divided = divide(&resident, &weights, &homes);
            for (node, bytes) in resident.iter().enumerate() {
                prop_assert_eq!(divided.iter().map(|part| part[node]).sum::<u64>(), *bytes);
            }
        }
    }
}
