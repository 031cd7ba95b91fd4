//! What a home is expected to save, compared to where the VM's vCPUs run without one.
//!
//! **Problem.** An operator wants to know what homes are worth before the scheduler is loaded.
//!
//! **Approach.** The estimate of far memory, for the memory that the VM has already: with its vCPUs at home, less with its vCPUs
//! where they were seen. Where the homes on its nodes are asked for more than these have, the part that finds no CPU there stays
//! where it was seen.
//!
//! **Uncertainty.** The largest is how much of its time a VM waits for memory: nobody can see that from outside. So the estimate
//! is a range, from the least to the most of the three programs whose share is known ([`MEMORY_SHARE`]).
//!
//! **Limits.** Waits for a CPU, caches and devices do not count.

use super::estimate::MEMORY_SHARE;
use super::{Planner, View};
use std::collections::BTreeMap;

/// Part of its time that lmbench-proc waits for near memory, the least of the three: see [`MEMORY_SHARE`].
pub const MEMORY_SHARE_LEAST: f64 = 0.14;
/// That of sysbench-memory, the most of the three.
pub const MEMORY_SHARE_MOST: f64 = 0.59;

/// CPUs that a home saves: CPU time a second. Less than 0 where the vCPUs are nearer to the memory than at home.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Saving {
    /// If it waits for memory as little as the programs that do least.
    pub least: f64,
    /// As the planner takes it.
    pub expected: f64,
    /// If it waits as much as the programs that do most.
    pub most: f64,
}

impl Planner {
    /// What the homes in the view save, by VM. `runs` tells which part of its time a VM runs on each node; VMs without a home,
    /// or of which that is not known, are left out.
    ///
    /// # Panics
    /// As [`Planner::place`], and if the parts are of another number of nodes.
    pub fn savings(&self, view: &View, runs: impl Fn(u64) -> Option<Vec<f64>>) -> BTreeMap<u64, Saving> {
        let situation = self.situation(view);
        let mut savings = BTreeMap::new();
        for (at, vm) in situation.vms.iter().enumerate() {
            let Some(runs) = runs(vm.view.id).filter(|_| !vm.home.is_empty()) else { continue };
            assert_eq!(runs.len(), view.machine.node_count(), "VM {} runs on another machine", vm.view.id);
            let asked = situation.asked(at, &vm.home, &vm.home);
            let at_home = (situation.cpus(&vm.home) as f64 / asked).min(1.0);
            let far = |node| situation.far_of(&vm.view.resident_bytes, node);
            let far_now: f64 = runs.iter().enumerate().map(|(node, part)| part * far(node.into())).sum();
            let far_at_home = situation.mean_over_cpus(&vm.home, far);
            let saved = |share: f64| vm.demand * share * at_home * (far_now - far_at_home);
            let [a, b] = [saved(MEMORY_SHARE_LEAST), saved(MEMORY_SHARE_MOST)];
            let saving = Saving { least: a.min(b), expected: saved(MEMORY_SHARE), most: a.max(b) };
            savings.insert(vm.view.id, saving);
        }
        savings
    }
}
