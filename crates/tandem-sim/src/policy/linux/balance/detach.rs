//! Taking tasks out of a busy queue (`detach_tasks()`, `can_migrate_task()`).
//!
//! Simplified: a task of 6.12 that has blocked and only stays until it has paid for running ahead never moves; the
//! kernel takes it along to move its load. Tasks that were skipped stay where they are in the list; the kernel moves
//! them to its end, so that the next attempt, which looks at a limited number, begins with others.

use super::strays::Way;
use super::{Attempt, Idleness, Imbalance, Unit};
use crate::policy::linux::domains::Flags;
use crate::policy::linux::{Context, Linux};
use tandem_machine::ids::{CpuId, TaskId};

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detached {
    pub moved: u32,
    /// What should still move.
    pub missing: u64,
    /// Some task could not move because of its affinity.
    pub some_pinned: bool,
    /// None could.
    pub all_pinned: bool,
}

/// Why a task stays or goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Pinned,
    Hot,
    Goes,
}

impl Linux {
    /// Moves waiting tasks from the busiest queue to the CPU that balances, up to the imbalance.
    pub(super) fn detach_tasks(
        &mut self,
        ctx: &mut Context<'_>,
        attempt: Attempt,
        busiest: CpuId,
        imbalance: Imbalance,
    ) -> Detached {
        let mut result =
            Detached { moved: 0, missing: imbalance.amount, some_pinned: false, all_pinned: false };
        if self.cpus[busiest.index()].nr_running() <= 1 {
            return result;
        }
        self.lock_to_detach(ctx, attempt, busiest);
        let failed = self.domains.domain(attempt.at).failed;
        let mut any_movable = false;
        let mut last = None;
        let looks = (self.tunables.nr_migrate as usize).min(self.cpus[busiest.index()].nr_running());
        for _ in 0..looks {
            let drained = self.cpus[busiest.index()].nr_running() <= 1;
            if drained && attempt.idleness != Idleness::Busy && self.features.balance.leaves_last_task {
                break;
            }
            let Some(task) = self.next_in_list(busiest, last) else { break };
            last = Some(self.entities[task.index()].list_position);
            match self.verdict(ctx, attempt, task) {
                Verdict::Pinned => {
                    result.some_pinned = true;
                    continue;
                }
                Verdict::Hot => {
                    any_movable = true;
                    continue;
                }
                Verdict::Goes => any_movable = true,
            }
            let Some(share) = self.part_of_imbalance(task, imbalance.unit, failed, result.missing) else {
                continue;
            };
            self.move_queued(ctx, task, busiest, attempt.cpu);
            result.moved += 1;
            self.counters.lb_gained += 1;
            result.missing = result.missing.saturating_sub(share);
            // 6.12 is built to be preemptible (Debian), and then a CPU that waits for work takes one task.
            let enough = attempt.idleness == Idleness::Newly && self.features.balance.newidle_takes_one;
            if enough || result.missing == 0 {
                break;
            }
        }
        if result.moved > 0 {
            self.lock_to_attach(ctx, attempt);
        }
        // The running task may be the only one that could move, so the queue is not given up for it.
        let running = self.cpus[busiest.index()].curr;
        let running_may =
            running.is_some_and(|task| ctx.tasks[task.index()].hard_affinity.contains(attempt.cpu));
        result.all_pinned = result.some_pinned && !any_movable && !running_may;
        result
    }

    /// The next task of a queue's list: newest first, or since 4.14 the one that waits longest.
    fn next_in_list(&self, cpu: CpuId, last: Option<u64>) -> Option<TaskId> {
        let position = |task: &TaskId| self.entities[task.index()].list_position;
        let staying = |task: &TaskId| !self.entities[task.index()].delayed;
        let queued = self.cpus[cpu.index()].queued().filter(staying);
        if self.features.balance.lru_tasks {
            queued.filter(|task| last.is_none_or(|last| position(task) > last)).min_by_key(position)
        } else {
            queued.filter(|task| last.is_none_or(|last| position(task) < last)).max_by_key(position)
        }
    }

    fn verdict(&mut self, ctx: &Context<'_>, attempt: Attempt, task: TaskId) -> Verdict {
        if !ctx.tasks[task.index()].hard_affinity.contains(attempt.cpu) {
            return Verdict::Pinned;
        }
        let domain = self.domains.domain(attempt.at);
        let gives_up = domain.failed > domain.tunables.cache_nice_tries;
        match self.way(ctx, task, attempt.cpu) {
            Way::Home => return Verdict::Goes,
            Way::Out if attempt.idleness == Idleness::Busy && !gives_up => return Verdict::Hot,
            Way::Out | Way::Either => {}
        }
        // Threads share their caches; the kernel knows since 5.10.
        let keeps_cache =
            !self.features.balance.smt_is_cache_hot && domain.tunables.flags.contains(Flags::SHARE_CAPACITY);
        let to_idles = attempt.idleness == Idleness::Idle;
        let hot = match self.degrades_locality(ctx, task, attempt.cpu, to_idles) {
            Some(degrades) => degrades,
            None => !keeps_cache && self.ran_ago_ns(ctx, task) < self.tunables.migration_cost_ns,
        };
        if hot && !gives_up { Verdict::Hot } else { Verdict::Goes }
    }

    /// How much of the imbalance the task makes up; `None` if it is too large for it. After failures, larger tasks may
    /// go, too.
    fn part_of_imbalance(&self, task: TaskId, unit: Unit, failed: u32, missing: u64) -> Option<u64> {
        let (share, allowance) = match unit {
            Unit::Tasks => (1, 0),
            Unit::Util => (self.task_util(task), failed),
            Unit::Load if self.features.balance.shr_bound => (self.task_load(task).max(1), failed),
            Unit::Load => (self.task_load(task), 1),
        };
        (share >> allowance.min(63) <= missing).then_some(share)
    }
}
