//! Tickling: which CPU decides anew because a vCPU was queued.
//!
//! In this order (`runq_tickle()`): an idle CPU of the run queue that the vCPU prefers, then one that it may
//! use, each time its last one first, and CPUs whose whole core idles before others; the CPU where it was
//! last, if that runs a vCPU with less credit; the CPU whose vCPU has least, if that is less by the
//! resistance against migration. A CPU that was tickled and has not decided yet counts as neither idle nor
//! busy.

use super::credits::CREDIT_INIT;
use super::{Context, Credit2, Step};
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

/// A vCPU whose run is shorter than the rate limit by no more than this may be preempted, ns: the decision
/// will be made a little later (`CSCHED2_RATELIMIT_TICKLE_TOLERANCE`).
const RATELIMIT_TOLERANCE_NS: u64 = 50_000;

impl Credit2 {
    /// Tickles a CPU for a vCPU that was just queued.
    pub(super) fn tickle(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        let cpu = self.vcpus[task.index()].cpu;
        let pinned = ctx.tasks[task.index()].hard_affinity.count() == 1;
        let idles = self.idle.contains(cpu) && !self.tickled.contains(cpu);
        let found = if pinned && idles { Some(cpu) } else { self.idle_cpu_for(ctx, task, cpu) };
        if let Some(found) = found {
            self.counters.tickled_idle += 1;
            self.vcpus[task.index()].tickled_cpu = Some(found);
            self.tickle_cpu(ctx, found);
        } else if let Some(found) = self.busy_cpu_for(ctx, task, cpu) {
            self.counters.tickled_busy += 1;
            self.vcpus[task.index()].tickled_cpu = Some(found);
            self.tickle_cpu(ctx, found);
        } else {
            self.counters.tickled_none += 1;
        }
    }

    /// `tickle_cpu()`
    pub(super) fn tickle_cpu(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        self.tickled.insert(cpu);
        self.core_no_longer_idles(cpu);
        ctx.kicked.push(cpu);
    }

    fn idle_cpu_for(&mut self, ctx: &Context<'_>, task: TaskId, cpu: CpuId) -> Option<CpuId> {
        let mut near = std::mem::take(&mut self.scratch);
        let queue = &self.queues[self.queue_of_cpu(cpu)];
        let found = [Step::Soft, Step::Hard].into_iter().find_map(|step| {
            near.assign_and(self.mask(ctx, task, step)?, &queue.cpus);
            let itself_or_next = |near: &CpuMask, idle: &CpuMask| near.next_and_wrapping(idle, cpu);
            itself_or_next(&near, &self.idle_cores).or_else(|| {
                near.remove_all(&self.tickled);
                itself_or_next(&near, &self.idle)
            })
        });
        self.scratch = near;
        found
    }

    fn busy_cpu_for(&mut self, ctx: &Context<'_>, task: TaskId, cpu: CpuId) -> Option<CpuId> {
        let mut busy = std::mem::take(&mut self.scratch);
        busy.assign_and(&ctx.tasks[task.index()].hard_affinity, &self.queues[self.queue_of_cpu(cpu)].cpus);
        busy.remove_all(&self.idle);
        busy.remove_all(&self.tickled);
        let mut best: Option<(i64, CpuId)> = None;
        if busy.contains(cpu) {
            busy.remove(cpu);
            best = self.score(ctx, task, cpu).map(|score| (score, cpu));
        }
        if best.is_none() || !prefers(ctx, task, cpu) {
            for other in busy.iter() {
                if let Some(score) = self.score(ctx, task, other)
                    && best.is_none_or(|(most, _)| score > most)
                {
                    best = Some((score, other));
                }
            }
        }
        self.scratch = busy;
        best.map(|(_, cpu)| cpu)
    }

    /// How good it is that the vCPU preempts what runs on the CPU; `None` if it must not (`tickle_score()`).
    fn score(&mut self, ctx: &Context<'_>, task: TaskId, cpu: CpuId) -> Option<i64> {
        let current = self.pcpus[cpu.index()].current?;
        let limit_ns = self.settings.ratelimit_ns;
        let ran_ns = ctx.now_ns - self.vcpus[current.index()].started_ns;
        if limit_ns > RATELIMIT_TOLERANCE_NS && ran_ns <= limit_ns - RATELIMIT_TOLERANCE_NS {
            return None;
        }
        self.burn(current, ctx.now_ns);
        let mut score = self.vcpus[task.index()].credit - self.vcpus[current.index()].credit;
        if self.vcpus[task.index()].cpu != cpu {
            score -= self.settings.migrate_resist_ns as i64;
        }
        if score <= 0 {
            return None;
        }
        let bonuses = i64::from(prefers(ctx, task, cpu)) + i64::from(!prefers(ctx, current, cpu));
        Some(score + bonuses * CREDIT_INIT)
    }

    /// Notes that the CPU idles (`smt_idle_mask_set()`).
    pub(super) fn core_may_idle(&mut self, cpu: CpuId) {
        let threads = &self.pcpus[cpu.index()].threads;
        let idles = |cpu| self.idle.contains(cpu) && !self.tickled.contains(cpu);
        if threads.iter().all(idles) {
            for thread in self.pcpus[cpu.index()].threads.iter() {
                self.idle_cores.insert(thread);
            }
        }
    }

    /// Notes that the CPU is busy, or about to be (`smt_idle_mask_clear()`).
    pub(super) fn core_no_longer_idles(&mut self, cpu: CpuId) {
        self.idle_cores.remove_all(&self.pcpus[cpu.index()].threads);
    }
}

/// Whether the CPU is in the vCPU's soft affinity.
fn prefers(ctx: &Context<'_>, task: TaskId, cpu: CpuId) -> bool {
    ctx.tasks[task.index()].soft_affinity.as_ref().is_none_or(|soft| soft.contains(cpu))
}
