//! What a home is expected to save, compared with where the VM's vCPUs run without one.
//!
//! **Problem.** An operator wants to know the benefit of homes before the scheduler is loaded.
//!
//! **Approach.** The estimate of far memory, for the memory that the VM has already: the loss with its vCPUs
//! where they were observed, minus the loss with its vCPUs at home. If VMs at home on its nodes demand more
//! than these have, the part that finds no CPU there stays where it was observed.
//!
//! **Uncertainty.** The largest is the share of time that a VM waits for memory, which cannot be seen from
//! outside. So the estimate is a range, from the least to the most of the three programs whose share is known
//! ([`MEMORY_SHARE`]).
//!
//! **Limits.** Waits for a CPU, caches and devices do not count.

use super::estimate::MEMORY_SHARE;
use super::{Planner, View};
use std::collections::BTreeMap;

/// Share of its time that lmbench-proc waits for near memory, the least of the three: see [`MEMORY_SHARE`].
pub const MEMORY_SHARE_LEAST: f64 = 0.14;
/// The share of sysbench-memory, the most of the three.
pub const MEMORY_SHARE_MOST: f64 = 0.59;

/// CPUs that a home saves: CPU time per second. Negative if the vCPUs are nearer to the memory than they
/// would be at home.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Saving {
    /// If it waits for memory as little as the least memory-bound programs.
    pub least: f64,
    /// With the planner's own assumption.
    pub expected: f64,
    /// If it waits as much as the most memory-bound programs.
    pub most: f64,
}

impl Planner {
    /// What the homes in the view save, by VM. `runs` returns the share of its time that a VM runs on each
    /// node; VMs without a home, or with unknown shares, are left out.
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
