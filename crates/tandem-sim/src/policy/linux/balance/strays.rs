//! Balancing that heeds soft affinity and conserves work: tasks leave the CPUs that they prefer only for one that would
//! idle, and come back when one of these would.
//!
//! - A CPU that runs out of work first takes a waiting task that prefers it from a CPU which that task does not prefer;
//!   without one, it asks for such a task that runs, unless it will not idle for as long as moving a task costs.
//! - A task that waits where it prefers to be is cache-hot for a busy CPU where it does not.
//! - A task that runs where it prefers to be is not moved away to make groups even.
//!
//! Which CPUs may have such strays is in a mask, so that CPUs without work need not look at all queues. It is a hint,
//! corrected by whoever looks.

use crate::policy::linux::{Context, Linux, SoftAffinity};
use tandem_machine::ids::{CpuId, TaskId};

/// Where a move would take a task, by its preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From a CPU that it does not prefer to one that it does.
    Home,
    /// The other way round.
    Out,
    /// Neither, or its preference does not count in balancing.
    Either,
}

impl Linux {
    fn conserves_work(&self) -> bool {
        self.settings.soft_affinity == SoftAffinity::WorkConserving
    }

    /// Where a move from its CPU to another one would take the task.
    pub(super) fn way(&self, ctx: &Context<'_>, task: TaskId, to: CpuId) -> Way {
        if !self.conserves_work() {
            return Way::Either;
        }
        let Some(preferred) = self.preference(ctx, task) else { return Way::Either };
        match (preferred.contains(self.entities[task.index()].cpu), preferred.contains(to)) {
            (false, true) => Way::Home,
            (true, false) => Way::Out,
            _ => Way::Either,
        }
    }

    /// The task is one of this CPU's now, or prefers others now: notes it if it is a stray there.
    pub(in crate::policy::linux) fn note_stray(&mut self, ctx: &Context<'_>, task: TaskId, cpu: CpuId) {
        if self.conserves_work() && self.is_stray(ctx, task, cpu) {
            self.balancing.stray_cpus.insert(cpu);
        }
    }

    fn is_stray(&self, ctx: &Context<'_>, task: TaskId, cpu: CpuId) -> bool {
        self.preference(ctx, task).is_some_and(|preferred| !preferred.contains(cpu))
    }

    /// The CPU has run out of work: takes a stray that prefers it, or asks for one. Whether there was any.
    pub(super) fn bring_home(&mut self, ctx: &mut Context<'_>, cpu: CpuId) -> bool {
        if !self.conserves_work() {
            return false;
        }
        let will_idle = self.cpus[cpu.index()].avg_idle_ns >= self.tunables.migration_cost_ns;
        let mut running = None;
        let mut at = cpu;
        for _ in 0..self.balancing.stray_cpus.count() {
            let Some(from) = self.balancing.stray_cpus.next_after(at) else { break };
            at = from;
            *ctx.peers_scanned += u32::from(from != cpu);
            let queue = &self.cpus[from.index()];
            let waiting = || queue.queued().filter(|task| !self.entities[task.index()].delayed);
            let stray = waiting().find(|&task| self.way(ctx, task, cpu) == Way::Home);
            if let Some(task) = stray {
                ctx.locked.push(from);
                self.move_queued(ctx, task, from, cpu);
                self.counters.lb_gained += 1;
                self.counters.soft_returned += 1;
                return true;
            }
            let strays = |task| self.is_stray(ctx, task, from);
            if !waiting().chain(queue.curr).any(strays) {
                self.balancing.stray_cpus.remove(from);
                continue;
            }
            let runs = queue.curr.filter(|&task| self.way(ctx, task, cpu) == Way::Home);
            if runs.is_some() && queue.push_to.is_none() && running.is_none() {
                running = Some(from);
            }
        }
        let Some(from) = running.filter(|_| will_idle) else { return false };
        ctx.locked.push(from);
        self.cpus[from.index()].push_to = Some(cpu);
        self.counters.soft_returned += 1;
        self.reschedule(ctx, from);
        true
    }
}
