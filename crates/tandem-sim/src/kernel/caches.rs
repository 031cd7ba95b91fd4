//! The caches of the machine: what tasks bring into them, lack, and leave behind.
//!
//! See [`crate::cost::Cache`] for the model.

use crate::cost::{CacheFill, Residue};
use crate::program::MemoryProfile;
use crate::program::code::ProfileId;
use std::sync::Arc;
use tandem_machine::ids::CpuId;
use tandem_machine::{CACHE_LINE_BYTES, Machine};

/// The part of a task's memory that it wants in caches, and what of it is there.
#[derive(Clone, Debug)]
pub(crate) struct Footprint {
    pub profile: ProfileId,
    /// Work during which the missing part is still coming in, ns.
    pub refill_work_left_ns: u64,
    /// Bytes in the private and in the last-level cache when the task came.
    resident_bytes: [f64; 2],
    /// Bytes that each of the two still lacked.
    pub missing_bytes: [f64; 2],
    /// What the task left in each.
    residues: [Residue; 2],
}

impl Default for Footprint {
    fn default() -> Self {
        Self {
            profile: ProfileId::NONE,
            refill_work_left_ns: 0,
            resident_bytes: [0.0; 2],
            missing_bytes: [0.0; 2],
            residues: [Residue::default(); 2],
        }
    }
}

impl Footprint {
    /// That of a task which begins with what this one left in caches.
    pub fn left_behind(&self) -> Self {
        Self { residues: self.residues, ..Self::default() }
    }

    /// What the other task left in caches is this one's too.
    pub fn inherit(&mut self, other: &Self) {
        self.residues = other.residues;
    }

    /// The task begins to use other memory, which is in no cache.
    pub fn forget(&mut self) {
        self.profile = ProfileId::NONE;
        self.residues = [Residue::default(); 2];
    }
}

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

    /// The profile of a footprint of which something stays in caches.
    #[inline]
    fn lasting_profile(&self, footprint: &Footprint) -> Option<&MemoryProfile> {
        Some(self.profile(footprint.profile)).filter(|profile| self.is_on && profile.footprint_bytes > 0)
    }

    /// A task on a pCPU brings lines into its caches, while it does so much work: what it lacked of its
    /// footprint, and what it streams at that rate.
    #[inline]
    pub fn fill(
        &mut self,
        pcpu: CpuId,
        footprint: &Footprint,
        lines_per_ns: f64,
        (refill_ns, steady_ns): (u64, u64),
    ) {
        if !self.is_on {
            return;
        }
        let profile = self.profile(footprint.profile);
        let streamed = lines_per_ns * CACHE_LINE_BYTES as f64 * (refill_ns + steady_ns) as f64;
        let swept = if profile.sweep_ns > 0 { refill_ns as f64 / profile.sweep_ns as f64 } else { 0.0 };
        let [private, shared] = footprint.missing_bytes.map(|bytes| streamed + swept * bytes);
        let place = self.machine.cpu(pcpu);
        self.private[place.core.index()].filled_bytes += private;
        if let Some(llc) = place.llc {
            self.llcs[llc.index()].filled_bytes += shared;
        }
    }

    /// Finds what a task has, and lacks, of its footprint in the caches of a pCPU.
    #[inline]
    pub fn enter(&self, pcpu: CpuId, footprint: &mut Footprint) {
        footprint.refill_work_left_ns = 0;
        let Some(profile) = self.lasting_profile(footprint) else { return };
        let place = self.machine.cpu(pcpu);
        let wanted_bytes = profile.footprint_bytes as f64;
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
                want = wanted_bytes.min(size_bytes as f64);
                have = footprint.residues[level].survived_bytes(number, &fill, size_bytes as f64).min(want);
            }
            footprint.resident_bytes[level] = have;
            footprint.missing_bytes[level] = want - have;
        }
        if footprint.missing_bytes != [0.0; 2] {
            footprint.refill_work_left_ns = profile.sweep_ns;
        }
    }

    /// Remembers what a task leaves in the caches of a pCPU.
    #[inline]
    pub fn leave(&self, pcpu: CpuId, footprint: &mut Footprint) {
        let Some(profile) = self.lasting_profile(footprint) else { return };
        let to_go = if profile.sweep_ns > 0 {
            footprint.refill_work_left_ns as f64 / profile.sweep_ns as f64
        } else {
            0.0
        };
        let place = self.machine.cpu(pcpu);
        let resident =
            |level: usize| footprint.resident_bytes[level] + footprint.missing_bytes[level] * (1.0 - to_go);
        let (private, shared) = (resident(0), resident(1));
        let core = place.core.index();
        footprint.residues[0] = Residue::leave(core, &self.private[core], private);
        if let Some(llc) = place.llc {
            footprint.residues[1] = Residue::leave(llc.index(), &self.llcs[llc.index()], shared);
        }
    }
}
