//! Moving tasks out of a busy queue: those that wait (`detach_tasks()`, `can_migrate_task()`), and the one
//! that runs (`active_load_balance_cpu_stop()`).
//!
//! A lone task runs, and so cannot be taken out of a queue. After enough failures its CPU is asked to preempt
//! it and to hand it over.
//!
//! Simplified: the kernel's stopper thread, which does that, takes no time beyond the switch. Tasks that were
//! skipped stay where they are in the list; the kernel moves them to its end, so that the next attempt, which
//! examines a limited number, begins with others.

use super::{Asked, Attempt, Balancer, Idleness, Imbalance, Unit};
use crate::policy::Context;
use crate::policy::linux::domains::Flags;
use crate::policy::linux::queues::Push;
use crate::policy::linux::soft_affinity::MoveDirection;
use crate::scenario::TaskPolicy;
use tandem_machine::ids::{CpuId, TaskId};

/// The outcome.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detached {
    pub moved: u32,
    /// The rest of the imbalance.
    pub missing: u64,
    /// Some task could not move because of its affinity.
    pub some_pinned: bool,
    /// No task could.
    pub all_pinned: bool,
}

/// Why a task stays or goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    Pinned,
    /// It is leaving, or ahead of its share, or its group is throttled at the destination: not for now.
    Stays,
    Hot,
    Goes,
}

impl Balancer<'_> {
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
        if self.queues.of(busiest).nr_running() <= 1 {
            return result;
        }
        attempt.lock_to_detach(ctx, self.features, busiest);
        if imbalance.amount == 0 {
            // No task is examined, and so none is found that could move.
            result.all_pinned = true;
            return result;
        }
        let failed = self.domains.domain(attempt.at).failed;
        let (mut any_movable, mut any_stays) = (false, false);
        let mut last = None;
        let looks = (self.nr_migrate as usize).min(self.queues.of(busiest).nr_running());
        for _ in 0..looks {
            let drained = self.queues.of(busiest).nr_running() <= 1;
            if drained && attempt.idleness != Idleness::Busy && self.features.leaves_last_task {
                break;
            }
            let Some(task) = self.next_in_list(busiest, last) else { break };
            last = Some(self.queues.entity(task).list_position);
            match self.verdict(ctx, attempt, task, imbalance.unit) {
                Verdict::Pinned => {
                    result.some_pinned = true;
                    continue;
                }
                Verdict::Stays => {
                    any_stays = true;
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
            self.queues.move_queued(ctx, task, busiest, attempt.cpu);
            result.moved += 1;
            self.balancing.counters.lb_gained += 1;
            result.missing = result.missing.saturating_sub(share);
            let enough = attempt.idleness == Idleness::Newly && self.features.newidle_takes_one;
            if enough || result.missing == 0 {
                break;
            }
        }
        if result.moved > 0 {
            attempt.lock_to_attach(ctx, self.features);
        }
        // The running task may be the only one that could move, so the queue is not given up for it.
        let running = self.queues.of(busiest).curr();
        let running_may = running.is_some_and(|task| {
            ctx.tasks[task.index()].hard_affinity.contains(attempt.cpu) && !self.stays(attempt, task)
        });
        result.all_pinned = (result.some_pinned || any_stays) && !any_movable && !running_may;
        result
    }

    /// The next task of a queue's list: newest first, or since 4.14 the one that waits longest.
    fn next_in_list(&self, cpu: CpuId, last: Option<u64>) -> Option<TaskId> {
        let position = |task: TaskId| self.queues.entity(task).list_position;
        let lru = self.features.lru_tasks;
        let mut next: Option<(u64, TaskId)> = None;
        self.queues.visit_waiting(cpu, &mut |task| {
            let at = position(task);
            let is_left = last.is_none_or(|last| if lru { at > last } else { at < last });
            if is_left && next.is_none_or(|(known, _)| if lru { at < known } else { at > known }) {
                next = Some((at, task));
            }
        });
        next.map(|(_, task)| task)
    }

    /// Whether the task is ahead of its share and stays for that, as the CPU that balances has tasks and no
    /// attempt has failed.
    fn stays(&self, attempt: Attempt, task: TaskId) -> bool {
        self.features.ineligible_stays
            && self.domains.domain(attempt.at).failed == 0
            && !self.queues.is_empty_for(task, attempt.cpu)
            && self.queues.is_ahead(task)
    }

    /// `unit`: what is to move.
    pub(super) fn verdict(
        &mut self,
        ctx: &Context<'_>,
        attempt: Attempt,
        task: TaskId,
        unit: Unit,
    ) -> Verdict {
        let leaves = self.features.h_nr_runnable && self.queues.entity(task).delayed;
        let throttled = self.queues.is_throttled(task, attempt.cpu);
        if throttled || (leaves && unit != Unit::Load) || self.stays(attempt, task) {
            return Verdict::Stays;
        }
        if !ctx.tasks[task.index()].hard_affinity.contains(attempt.cpu) {
            return Verdict::Pinned;
        }
        let domain = self.domains.domain(attempt.at);
        let gives_up = domain.failed > domain.tunables.cache_nice_tries;
        match self.queues.direction(ctx, task, attempt.cpu) {
            MoveDirection::Home => return Verdict::Goes,
            MoveDirection::Out if attempt.idleness == Idleness::Busy && !gives_up => return Verdict::Hot,
            MoveDirection::Out | MoveDirection::Either => {}
        }
        // Threads share their caches; the kernel knows since 5.10.
        let keeps_cache =
            !self.features.smt_is_cache_hot && domain.tunables.flags.contains(Flags::SHARE_CAPACITY);
        let to_idles = attempt.idleness == Idleness::Idle;
        let hot = match self.nodes.degrades_locality(
            ctx,
            self.queues,
            task,
            attempt.cpu,
            to_idles,
            self.features,
        ) {
            Some(degrades) => degrades,
            // An idle task is never cache-hot (`task_hot()`).
            None if self.queues.entity(task).policy == TaskPolicy::Idle => false,
            None => !keeps_cache && self.queues.ran_ago_ns(ctx, task) < self.migration_cost_ns,
        };
        if hot && !gives_up { Verdict::Hot } else { Verdict::Goes }
    }

    /// How much of the imbalance the task makes up; `None` if it is too large for it. After failures, larger
    /// tasks may go as well.
    fn part_of_imbalance(&self, task: TaskId, unit: Unit, failed: u32, missing: u64) -> Option<u64> {
        let (share, allowance) = match unit {
            Unit::Tasks => (1, 0),
            Unit::Util => (self.queues.loads().estimated_task_util(task), failed),
            Unit::Load if self.features.shr_bound => (self.queues.loads().of_task(task).max(1), failed),
            Unit::Load => (self.queues.loads().of_task(task), 1),
        };
        (share >> allowance.min(63) <= missing).then_some(share)
    }

    /// Asks the busiest CPU for its running task, which may not move if it may not run on the CPU that is
    /// balanced, or runs on a CPU that it prefers and does not prefer that one.
    pub(super) fn ask_for_running(
        &mut self,
        ctx: &mut Context<'_>,
        attempt: Attempt,
        busiest: CpuId,
    ) -> Asked {
        attempt.lock_to_ask(ctx, busiest);
        let Some(running) = self.queues.of(busiest).curr() else { return Asked::Refused };
        let allowed = ctx.tasks[running.index()].hard_affinity.contains(attempt.cpu);
        if !allowed || self.queues.direction(ctx, running, attempt.cpu) == MoveDirection::Out {
            return Asked::Refused;
        }
        let queue = self.queues.of_mut(busiest);
        if queue.has_push() {
            return Asked::Before;
        }
        queue.ask_push(Push { to: attempt.cpu, is_for_node: false });
        self.queues.reschedule(ctx, busiest);
        Asked::Now
    }

    /// Moves `previous`, which has just been put into the queue of its CPU, where active balancing, or NUMA
    /// balancing, asked for it to go, if it may.
    pub fn push(&mut self, ctx: &mut Context<'_>, cpu: CpuId, previous: TaskId, push: Push) {
        let to = push.to;
        if to == cpu || !ctx.tasks[previous.index()].hard_affinity.contains(to) {
            return;
        }
        ctx.locked.push(to);
        if !push.is_for_node {
            let asked = self.domains.of(to).find(|&at| self.domains.span(at).cpus.contains(cpu));
            if let Some(at) = asked.filter(|_| self.features.push_resets_failed) {
                self.domains.domain_mut(at).failed = 0;
            }
            self.balancing.counters.alb_pushed += 1;
        }
        self.queues.move_queued(ctx, previous, cpu, to);
    }
}
