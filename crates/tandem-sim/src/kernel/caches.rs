//! The caches of the machine: what tasks bring into them, lack, and leave behind.
//!
//! See [`crate::cost::Cache`] for the model.

use super::task::Task;
use crate::cost::{CacheFill, Residue};
use crate::program::MemoryProfile;
use crate::program::code::ProfileId;
use std::sync::Arc;
use tandem_machine::ids::CpuId;
use tandem_machine::{CACHE_LINE_BYTES, Machine};

/// How much has come into each cache.
#[derive(Clone, Debug)]
pub(super) struct Caches {
    machine: Arc<Machine>,
    profiles: Vec<Arc<MemoryProfile>>,
    /// Whether the model is on.
    is_on: bool,
    /// By core.
    private: Vec<CacheFill>,
    /// By last-level cache.
    llcs: Vec<CacheFill>,
}

impl Caches {
    /// Empty ones.
    pub fn new(machine: &Arc<Machine>, profiles: Vec<Arc<MemoryProfile>>, is_on: bool) -> Self {
        Self {
            private: vec![CacheFill::default(); machine.cores().len()],
            llcs: vec![CacheFill::default(); machine.llcs().len()],
            machine: Arc::clone(machine),
            profiles,
            is_on,
        }
    }

    #[inline]
    pub fn profile(&self, profile: ProfileId) -> &MemoryProfile {
        &self.profiles[profile.0 as usize]
    }

    /// The profile of a task that leaves something in caches.
    #[inline]
    fn profile_with_footprint(&self, task: &Task) -> Option<&MemoryProfile> {
        Some(self.profile(task.profile)).filter(|profile| self.is_on && profile.footprint_bytes > 0)
    }

    /// A task on a pCPU brings lines into its caches, while it does so much work: what it lacked of its
    /// footprint, and what it streams at that rate.
    #[inline]
    pub fn fill(&mut self, pcpu: CpuId, task: &Task, lines_per_ns: f64, (refill_ns, steady_ns): (u64, u64)) {
        if !self.is_on {
            return;
        }
        let profile = self.profile(task.profile);
        let streamed = lines_per_ns * CACHE_LINE_BYTES as f64 * (refill_ns + steady_ns) as f64;
        let swept = if profile.sweep_ns > 0 { refill_ns as f64 / profile.sweep_ns as f64 } else { 0.0 };
        let [private, shared] = task.missing_bytes.map(|bytes| streamed + swept * bytes);
        let place = self.machine.cpu(pcpu);
        self.private[place.core.index()].filled_bytes += private;
        if let Some(llc) = place.llc {
            self.llcs[llc.index()].filled_bytes += shared;
        }
    }

    /// Finds what a task has, and lacks, of its footprint in the caches of a pCPU.
    #[inline]
    pub fn enter(&self, pcpu: CpuId, task: &mut Task) {
        task.refill_work_left_ns = 0;
        let Some(profile) = self.profile_with_footprint(task) else { return };
        let place = self.machine.cpu(pcpu);
        let footprint = profile.footprint_bytes as f64;
        let core = place.core.index();
        let levels = [
            Some((core, self.machine.hardware().l2_bytes, self.private[core])),
            place.llc.map(|llc| {
                (llc.index(), self.machine.llcs()[llc.index()].size_bytes, self.llcs[llc.index()])
            }),
        ];
        for (level, cache) in levels.into_iter().enumerate() {
            let (mut have, mut want) = (0.0, 0.0);
            if let Some((number, size_bytes, fill)) = cache {
                want = footprint.min(size_bytes as f64);
                have = task.residues[level].survived_bytes(number, &fill, size_bytes as f64).min(want);
            }
            task.resident_bytes[level] = have;
            task.missing_bytes[level] = want - have;
        }
        if task.missing_bytes != [0.0; 2] {
            task.refill_work_left_ns = profile.sweep_ns;
        }
    }

    /// Remembers what a task leaves in the caches of a pCPU.
    #[inline]
    pub fn leave(&self, pcpu: CpuId, task: &mut Task) {
        let Some(profile) = self.profile_with_footprint(task) else { return };
        let to_go = if profile.sweep_ns > 0 {
            task.refill_work_left_ns as f64 / profile.sweep_ns as f64
        } else {
            0.0
        };
        let place = self.machine.cpu(pcpu);
        let resident = |level: usize| task.resident_bytes[level] + task.missing_bytes[level] * (1.0 - to_go);
        let (private, shared) = (resident(0), resident(1));
        let core = place.core.index();
        task.residues[0] = Residue::leave(core, &self.private[core], private);
        if let Some(llc) = place.llc {
            task.residues[1] = Residue::leave(llc.index(), &self.llcs[llc.index()], shared);
        }
    }
}
