//! What a CPU runs next.
//!
//! The first vCPU of the run queue that has more credit than the one that runs, may use this CPU, is not
//! awaited by another CPU that was tickled for it, and, if it was on another CPU last, is ahead by the
//! resistance against migration. A vCPU that has run for less than the rate limit goes on.

use super::credits::IDLE_CREDIT;
use super::{Context, Credit2, Step};
use tandem_machine::ids::{CpuId, TaskId};

impl Credit2 {
    /// Chooses between the vCPU that runs and those that wait; `None`: the CPU idles (`runq_candidate()`).
    pub(super) fn candidate(
        &mut self,
        ctx: &Context<'_>,
        queue: usize,
        cpu: CpuId,
        current: Option<TaskId>,
    ) -> Option<TaskId> {
        let yields = current.is_some_and(|task| std::mem::take(&mut self.vcpus[task.index()].yielded));
        let can_go_on = current.filter(|task| self.vcpus[task.index()].is_runnable());
        if let Some(task) = can_go_on {
            let ran_ns = ctx.now_ns - self.vcpus[task.index()].started_ns;
            if !yields && ran_ns < self.settings.ratelimit_ns {
                self.counters.ratelimited += 1;
                return Some(task);
            }
        }
        let mut best = can_go_on.filter(|&task| !self.would_rather_move(ctx, queue, cpu, task));
        let credit = best.map_or(IDLE_CREDIT, |task| self.vcpus[task.index()].credit);
        let mut at = 0;
        while let Some(&task) = self.queues[queue].waiting.get(at) {
            let vcpu = &self.vcpus[task.index()];
            if !yields && vcpu.credit <= credit {
                break;
            }
            at += 1;
            if !ctx.tasks[task.index()].hard_affinity.contains(cpu) {
                continue;
            }
            if vcpu.tickled_cpu.is_some_and(|other| other != cpu && self.tickled.contains(other)) {
                self.counters.deferred += 1;
                continue;
            }
            if vcpu.cpu != cpu && credit + self.settings.migrate_resist_ns as i64 > vcpu.credit {
                self.counters.resisted += 1;
                continue;
            }
            if vcpu.is_capped() && !self.grab_budget(task, ctx.now_ns) {
                at -= 1; // parked, so that the next one has its place
                continue;
            }
            best = Some(task);
            break;
        }
        best
    }

    /// Whether the vCPU runs where it does not prefer to, while a CPU of this queue idles where it does.
    fn would_rather_move(&self, ctx: &Context<'_>, queue: usize, cpu: CpuId, task: TaskId) -> bool {
        let Some(soft) = self.mask(ctx, task, Step::Soft) else {
            return false;
        };
        let hard = &ctx.tasks[task.index()].hard_affinity;
        let idles =
            |other: CpuId| self.idle.contains(other) && !self.tickled.contains(other) && hard.contains(other);
        !soft.contains(cpu) && soft.iter_and(&self.queues[queue].cpus).any(idles)
    }
}
