//! Warm-up, measuring and end of a run.

use super::vm::VmState;
use crate::scenario::Scenario;

/// How far a run has come.
pub(super) struct Phase {
    warmup_ns: u64,
    end_ns: u64,
    /// When the measuring began; none during the warm-up.
    measuring_since_ns: Option<u64>,
    /// The count of each VM at which the run may end earlier.
    stop_at_count: Option<u64>,
    /// VMs that have not reached it yet.
    vms_to_go: usize,
    has_ended: bool,
}

impl Phase {
    /// The start of a run.
    pub fn new(scenario: &Scenario) -> Self {
        Self {
            warmup_ns: scenario.warmup_ns,
            end_ns: scenario.warmup_ns + scenario.length_ns,
            measuring_since_ns: None,
            stop_at_count: scenario.stop_at_count,
            vms_to_go: scenario.measured().count(),
            has_ended: false,
        }
    }

    /// When the next phase begins, ns.
    pub fn next_ns(&self) -> u64 {
        if self.measuring_since_ns.is_none() { self.warmup_ns } else { self.end_ns }
    }

    /// The next phase begins; whether it is that of measuring, and not the end.
    pub fn begin_next(&mut self, now_ns: u64) -> bool {
        let measures = now_ns < self.end_ns;
        match measures {
            true => self.measuring_since_ns = Some(now_ns),
            false => self.has_ended = true,
        }
        measures
    }

    /// The VM has counted; the run ends if it was the last to do enough.
    pub fn end_after_count(&mut self, vm: &mut VmState) {
        if let Some(enough) = self.stop_at_count
            && self.measuring_since_ns.is_some()
            && vm.reaches(enough)
        {
            self.vms_to_go -= 1;
            self.has_ended |= self.vms_to_go == 0;
        }
    }

    #[inline]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Since when the run is measured, ns.
    pub fn measured_since_ns(&self) -> u64 {
        self.measuring_since_ns.unwrap_or(0)
    }
}
