//! VMs that gain by moving their memory home.
//!
//! A home follows memory only where that is the cheapest way. Where CPUs, devices or the configuration keep a
//! VM on a node, an agent may move its memory there instead. That is worth it if, over the horizon of
//! [`HomeSettings`](super::HomeSettings), the VM loses more by far memory, according to [`super::estimate`],
//! than moving that memory costs.

use super::estimate::{Others, PlannedVm, Situation};
use super::{Planner, View, VmView};

/// Memory outside its home below this share of all that a VM has touched stays where it is. With all of it a
/// hop away a VM loses 0.18 of its time on the machines of `machine::preset`, so it loses less than 1% by
/// such a part.
const SHARE_MIN: f64 = 1.0 / 20.0;

/// CPU time to move memory, ns per byte: unmapping a page of 4 KiB, copying it and mapping it again, some 4
/// us in all. An assumption.
const MOVE_NS_PER_BYTE: f64 = 1.0;

/// Moving leaves one part in so many of a node's memory free: VMs touch memory there meanwhile, and a full
/// node reclaims. An assumption.
const RESERVE_SHARE: u64 = 16;

/// Memory of a VM outside its home that is worth moving there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FarMemory {
    /// The VM.
    pub vm: u64,
    /// How many bytes fit into its home.
    pub bytes: u64,
    /// CPUs that the VM saves when the memory is moved.
    pub gain: f64,
}

impl Planner {
    /// The memory worth moving, of VMs that have had their home for the rest time; those that gain most
    /// first.
    ///
    /// # Panics
    /// As [`Planner::place`].
    pub fn far_memory(&self, view: &View) -> Vec<FarMemory> {
        let situation = self.situation(view);
        let has_rested = |vm: &VmView| {
            let since_ns = vm.home.as_ref().map(|home| home.since_ns);
            since_ns.is_some_and(|since_ns| view.now_ns.saturating_sub(since_ns) >= self.settings.rest_ns)
        };
        let rested = (0..situation.vms.len()).filter(|&at| has_rested(situation.vms[at].view));
        let mut far: Vec<_> = rested.filter_map(|at| self.worth_bringing(&situation, at)).collect();
        far.sort_by(|a, b| b.gain.total_cmp(&a.gain).then(a.vm.cmp(&b.vm)));
        far
    }

    fn worth_bringing(&self, situation: &Situation<'_>, at: usize) -> Option<FarMemory> {
        let vm = &situation.vms[at];
        let resident = &vm.view.resident_bytes;
        let is_far = |node: usize| !vm.home.iter().any(|home| home.index() == node);
        let far: u64 = (0..resident.len()).filter(|&node| is_far(node)).map(|node| resident[node]).sum();
        let others = situation.others(at);
        let bytes = far.min(room(situation, vm, &others));
        if bytes == 0 || (bytes as f64) < SHARE_MIN * resident.iter().sum::<u64>() as f64 {
            return None;
        }
        let mut after = vm.view.clone();
        let mut left = bytes;
        for node in (0..resident.len()).filter(|&node| is_far(node)) {
            let moved = resident[node].min(left);
            after.resident_bytes[node] -= moved;
            left -= moved;
        }
        for node in &vm.home {
            after.resident_bytes[node.index()] += bytes / vm.home.len() as u64;
        }
        let moved = PlannedVm { view: &after, ..vm.clone() };
        let lost = |vm| situation.memory_loss(vm, &others, &moved.home);
        let gain = vm.demand * (lost(vm) - lost(&moved));
        let pays = gain * self.settings.horizon_ns as f64 > MOVE_NS_PER_BYTE * bytes as f64;
        pays.then_some(FarMemory { vm: vm.view.id, bytes, gain })
    }
}

/// How many bytes may move to a VM's home: as much to each of its nodes as to the fullest.
fn room(situation: &Situation<'_>, vm: &PlannedVm<'_>, others: &Others) -> u64 {
    if vm.home.is_empty() {
        return 0;
    }
    let untouched = situation.untouched(vm.view, &vm.home, &others.free_bytes);
    let of_node = |node: usize| {
        let reserve = situation.machine.nodes()[node].memory_bytes / RESERVE_SHARE;
        others.free_bytes[node].saturating_sub(untouched[node]).saturating_sub(reserve)
    };
    let least = vm.home.iter().map(|node| of_node(node.index())).min();
    least.unwrap_or(0).saturating_mul(vm.home.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GIB, SECOND, free, settled};
    use super::super::{HomeRequest, HomeSettings};
    use super::*;
    use crate::{Machine, preset};

    fn machine() -> Machine {
        preset("xeon-e5620-2s").unwrap()
    }

    /// A VM at home on node 0, with this memory on each node, GiB.
    fn vm(id: u64, vcpus: u32, memory_gib: [u64; 2]) -> VmView {
        let mut vm = settled(id, vcpus, memory_gib[0] + memory_gib[1], 2, 0);
        vm.resident_bytes = memory_gib.map(|gib| gib * GIB).to_vec();
        vm
    }

    /// The memory worth moving after these seconds.
    fn far(vms: &[VmView], now_s: u64) -> Vec<(u64, u64)> {
        let machine = machine();
        let free_bytes = free(&machine, vms);
        let view = View { machine: &machine, free_bytes: &free_bytes, vms, now_ns: now_s * SECOND };
        let far = Planner::new(HomeSettings::default()).far_memory(&view);
        assert!(far.iter().all(|far| far.gain > 0.0));
        far.iter().map(|far| (far.vm, far.bytes)).collect()
    }

    #[test]
    fn the_vm_that_loses_most_is_first() {
        let [small, large, near] = [vm(0, 1, [0, 1]), vm(1, 4, [1, 1]), vm(2, 2, [1, 0])];
        assert_eq!(far(&[small, large, near], 1_000), [(1, GIB), (0, GIB)]);
    }

    #[test]
    fn a_home_that_is_new_or_missing_gets_no_memory() {
        assert_eq!(far(&[vm(0, 2, [0, 1])], 119), []);
        assert_eq!(far(&[vm(0, 2, [0, 1])], 120), [(0, GIB)]);
        let homeless = VmView { home: None, request: HomeRequest::Exempt, ..vm(0, 2, [0, 1]) };
        assert_eq!(far(&[homeless], 1_000), []);
    }

    #[test]
    fn a_small_part_and_a_vm_that_sleeps_are_let_be() {
        let mut little = vm(0, 2, [3, 0]);
        little.resident_bytes[1] = GIB / 8;
        assert_eq!(far(&[little.clone()], 1_000), [], "an eighth of 3 GiB is one part in 25");
        little.resident_bytes[1] = GIB / 4;
        assert_eq!(far(&[little], 1_000), [(0, GIB / 4)]);
        let asleep = VmView { demand: Some(0.0), ..vm(0, 1, [0, 2]) };
        assert_eq!(far(&[asleep], 1_000), [], "copying takes longer than it loses in five minutes");
    }

    #[test]
    fn a_home_is_not_filled_beyond_its_reserve() {
        let node = machine().nodes()[0].memory_bytes;
        let room = |memory_gib| far(&[vm(0, 2, [0, 2]), vm(1, 2, [memory_gib, 0])], 1_000);
        let left = node - node / RESERVE_SHARE - 4 * GIB;
        assert_eq!(room(4), [(0, left.min(2 * GIB))]);
        assert_eq!(room(node / GIB), []);
    }
}
