//! Where a task is put that wakes up, is new, or begins another program.

use super::{Context, Linux};
use crate::ids::{CpuId, TaskId};
use crate::policy::Reason;

impl Linux {
    /// The CPU for the task.
    pub(super) fn select(&mut self, ctx: &mut Context<'_>, task: TaskId, _reason: Reason) -> CpuId {
        let cpu = self.entities[task.index()].cpu;
        ctx.tasks[task.index()].hard_affinity.next_and_wrapping(ctx.machine.all_cpus(), cpu).unwrap_or(cpu)
    }
}
