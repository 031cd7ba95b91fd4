//! Load: what tasks and CPUs are measured by when they are placed and balanced.

use super::{Context, Linux};
use crate::ids::{CpuId, TaskId};

/// Decaying averages of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TaskAverages {}

/// Load measures of a CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct QueueLoad {}

impl Linux {
    /// Load that the task brings to a CPU: its weight (3.6), times the part of time in which it wants to run (later).
    pub(super) fn task_load(&self, task: TaskId) -> u64 {
        u64::from(self.entities[task.index()].weight)
    }

    /// Part of time in which the task runs, in 1024ths (6.12).
    pub(super) fn task_util(&self, _task: TaskId) -> u64 {
        0
    }

    /// Load of a CPU now (`weighted_cpuload()`, `cpu_load()`): the weights of its tasks (3.6), the tracked load of its
    /// tasks (4.2), the tracked load of the queue, with that of tasks that blocked not long ago (6.12).
    pub(super) fn cpu_load(&self, _cpu: CpuId) -> u64 {
        0
    }

    /// Load of a CPU that tasks might leave, guessed low from history (3.6, 4.2; `source_load()`). Index 0 takes the
    /// present load; 1 to 4 look back further and further.
    pub(super) fn source_load(&self, cpu: CpuId, _index: usize) -> u64 {
        self.cpu_load(cpu)
    }

    /// Load of a CPU that tasks might go to, guessed high from history (3.6, 4.2; `target_load()`).
    pub(super) fn target_load(&self, cpu: CpuId, _index: usize) -> u64 {
        self.cpu_load(cpu)
    }

    /// Part of time in which a CPU's tasks run, in 1024ths, with tasks that blocked not long ago (6.12).
    pub(super) fn cpu_util(&self, _cpu: CpuId) -> u64 {
        0
    }

    /// As [`Self::cpu_util`], time in which tasks only wait to run included; each task counts (6.12).
    pub(super) fn cpu_runnable(&self, _cpu: CpuId) -> u64 {
        0
    }

    /// Brings the load measures of a CPU up to date (`update_blocked_averages()`, `update_cpu_load()`). An idle CPU does not do
    /// that by itself.
    pub(super) fn refresh_load(&mut self, _ctx: &Context<'_>, _cpu: CpuId) {}
}
