//! Giving way to one particular task (`yield_to()`, `yield_to_task_fair()`).
//!
//! Problem: a hypervisor has found a vCPU that might hold the lock for which the vCPU on this CPU spins, and wants
//! it to run instead.
//!
//! Approach, in the kernels' order:
//! 1. A target that does not wait in a queue is refused: it runs already, or sleeps.
//! 2. The target becomes the *next* buddy of the CPU in whose queue it stands. CFS then takes it out of turn, unless
//!    that is unfair by more than the wake-up granularity; it stays the buddy until it is taken, leaves that queue,
//!    or another task takes its place.
//! 3. The task that asks yields as any other: CFS passes over it once, EEVDF moves its deadline by a slice. Alone on
//!    its CPU it loses nothing by that.
//! 4. If the target stands in another queue, its CPU is told to reschedule.
//!
//! In 6.12 the second step comes to nothing. Whether a CPU takes its next buddy depends there on the feature
//! `NEXT_BUDDY`, which is off by default; it was meant for buddies of wake-ups alone. What is left is the yield, and a
//! reschedule that leaves the CPU to its task if that is within its slice (`RUN_TO_PARITY`). A feature of its own,
//! `PICK_BUDDY`, which is on, came with 6.14; the stable releases of 6.12 have it since February 2025, this model does
//! not.
//!
//! Limits: a buddy does not count as cache-hot when CPUs are balanced (`CACHE_HOT_BUDDY`), in any era.

use super::{Context, Linux};
use tandem_machine::ids::{CpuId, TaskId};

impl Linux {
    /// The task on the CPU gives way to `target`; `false` if that waits in no queue, and then nothing has changed.
    pub(super) fn give_way_to(
        &mut self,
        ctx: &mut Context<'_>,
        cpu: CpuId,
        task: TaskId,
        target: TaskId,
    ) -> bool {
        let waiting = self.entities.get(target.index()).filter(|entity| entity.queued && !entity.delayed);
        let Some(target_cpu) = waiting.map(|entity| entity.cpu) else { return false };
        if !self.is_eevdf() {
            self.cpus[target_cpu.index()].next_buddy = Some(target);
        }
        self.give_way(ctx, cpu, task);
        if target_cpu != cpu {
            self.reschedule(ctx, target_cpu);
        }
        true
    }

    /// The task on the CPU gives way to whoever comes next.
    pub(super) fn give_way(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.counters.yld_count += 1;
        if self.is_eevdf() {
            self.eevdf_yield(ctx, cpu, task);
        } else {
            self.cfs_yield(ctx, cpu, task);
        }
    }
}
