//! A task of a kernel.

use crate::engine::random::Stream;
use crate::ids::{CpuId, TaskId, VmId};
use crate::machine::cost::Residue;
use crate::metrics::TaskMetrics;
use crate::program::LOOP_DEPTH_MAX;
use crate::program::channel::Request;
use crate::program::code::{Instruction, ProfileId};
use std::sync::Arc;

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// On a CPU.
    Running,
    /// Wants a CPU.
    Runnable,
    /// Waits for something else than a CPU.
    Blocked,
    /// Done for good.
    Exited,
}

/// A task: its program, how far it has come, what it left in the caches, and what it used.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub vm: VmId,
    pub state: TaskState,
    /// Where it ran last; before it ever ran, where it was queued first.
    pub last_cpu: CpuId,
    /// When it blocked or the measuring started, whichever is later.
    pub blocked_since_ns: u64,

    pub code: Arc<[Instruction]>,
    pub next_instruction: u32,
    pub loops: [u64; LOOP_DEPTH_MAX],
    pub random: Stream,
    /// Whether its program is in the middle of a burst of work.
    pub in_burst: bool,
    /// Work left of the current burst, ns.
    pub work_left_ns: u64,
    pub request: Option<Request>,
    pub timer_started_ns: u64,

    pub profile: ProfileId,
    /// Work during which the missing part of the footprint is still coming in, ns.
    pub refill_work_left_ns: u64,
    /// Bytes of the footprint in the private and in the last-level cache when the task came.
    pub resident_bytes: [f64; 2],
    /// Bytes of the footprint that each of the two still lacked.
    pub missing_bytes: [f64; 2],
    /// What it left in each.
    pub residues: [Residue; 2],

    pub metrics: TaskMetrics,
}

impl Task {
    pub fn new(vm: VmId, code: Arc<[Instruction]>, random: Stream) -> Self {
        Self {
            vm,
            state: TaskState::Blocked,
            last_cpu: CpuId(0),
            blocked_since_ns: 0,
            code,
            next_instruction: 0,
            loops: [0; LOOP_DEPTH_MAX],
            random,
            in_burst: false,
            work_left_ns: 0,
            request: None,
            timer_started_ns: 0,
            profile: ProfileId::NONE,
            refill_work_left_ns: 0,
            resident_bytes: [0.0; 2],
            missing_bytes: [0.0; 2],
            residues: [Residue::default(); 2],
            metrics: TaskMetrics::default(),
        }
    }
}

/// What an entry of a CPU's timer queue is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimerTarget {
    /// Ends the sleep of a task.
    Task(TaskId),
    /// An interrupt of the source with this number.
    Source(u32),
}
