//! A VM, or a set of processes, while it runs: what its tasks share, and what is counted and recorded for it.

use super::life::Life;
use super::waiters::{LockRules, SpinLock};
use crate::kernel::HOST;
use crate::program::channel::Channel;
use crate::program::code::Instruction;
use crate::scenario::Workload;
use crate::times::Times;
use std::ops::Range;
use std::sync::Arc;
use tandem_machine::ids::TaskId;

/// A VM, or a set of processes, while it runs.
pub(super) struct VmState {
    /// Position of the kernel that its tasks belong to: the host's if it has none of its own.
    pub kernel: usize,
    pub life: Life,
    /// It has started and not ended.
    pub is_there: bool,
    /// Those that all its tasks share, then those of each family.
    pub channels: Vec<Channel>,
    /// How many all its tasks share.
    pub shared_channels: u32,
    pub locks: Box<[SpinLock]>,
    /// The programs of its guest kernel.
    pub programs: Box<[Arc<[Instruction]>]>,
    first_vcpu: TaskId,
    vcpus: usize,
    measured: Measured,
}

/// What is measured of a VM.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// By counter.
    pub counts: Vec<u64>,
    /// Time in which its tasks fetched the lines of messages and channels, ns.
    pub coherence_ns: u64,
    /// Of requests that were answered in the measured time.
    pub responses: Times,
    reached_count: bool,
}

impl VmState {
    /// A VM whose tasks belong to that kernel, with so many families among them.
    pub fn new(
        spec: &Workload,
        kernel: usize,
        first_vcpu: TaskId,
        life: Life,
        families: usize,
        programs: Vec<Arc<[Instruction]>>,
        rules: LockRules,
    ) -> Self {
        let family_channels = spec.guest().map_or(0, |guest| guest.family_channels);
        let first_taker = if kernel == HOST { first_vcpu } else { TaskId(0) };
        Self {
            kernel,
            life,
            is_there: false,
            channels: vec![Channel::new(first_taker); spec.channels + families * family_channels],
            shared_channels: spec.channels as u32,
            locks: vec![SpinLock::new(rules); spec.guest().map_or(0, |guest| guest.locks)].into(),
            programs: programs.into(),
            first_vcpu,
            vcpus: spec.task_count(),
            measured: Measured { counts: vec![0; spec.counters.len()], ..Measured::default() },
        }
    }

    /// The host's tasks of the VM, by number.
    pub fn tasks(&self) -> Range<usize> {
        let first = self.first_vcpu.index();
        first..first + self.vcpus
    }

    pub fn measured(&self) -> &Measured {
        &self.measured
    }

    /// Begins to measure anew.
    pub fn start_measuring(&mut self) {
        self.measured.counts.fill(0);
        self.measured.coherence_ns = 0;
        self.measured.responses = Times::default();
    }

    /// Adds to a counter, up to the largest number that there is.
    pub fn count(&mut self, counter: usize, amount: u64) {
        let count = &mut self.measured.counts[counter];
        *count = count.saturating_add(amount);
    }

    /// Whether the first counter has reached this; true only once.
    pub fn reaches(&mut self, enough: u64) -> bool {
        let reaches = !self.measured.reached_count && self.measured.counts[0] >= enough;
        self.measured.reached_count |= reaches;
        reaches
    }

    /// Records a response time, ns.
    pub fn record_response(&mut self, elapsed_ns: u64) {
        self.measured.responses.record(elapsed_ns);
    }

    /// Adds to the time in which its tasks fetched lines, ns.
    pub fn add_coherence(&mut self, fetch_ns: u64) {
        self.measured.coherence_ns += fetch_ns;
    }
}
