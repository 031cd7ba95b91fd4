//! Active balancing: moving a task although it runs (`active_load_balance_cpu_stop()`).
//!
//! A lone task cannot be taken out of a queue, because it is in none. After enough failures its CPU is made to
//! preempt it and to hand it over. Simplified: the kernel's stopper thread, which does that, takes no time beyond
//! the switch.

use super::Attempt;
use super::strays::Way;
use crate::policy::linux::{Context, Linux};
use tandem_machine::ids::{CpuId, TaskId};

impl Linux {
    /// Asks the busiest CPU for its running task; `false` if that may not run on the CPU that is balanced,
    /// or runs where it prefers to and would not there.
    pub(super) fn ask_for_running(
        &mut self,
        ctx: &mut Context<'_>,
        attempt: Attempt,
        busiest: CpuId,
    ) -> bool {
        self.lock_to_ask(ctx, attempt, busiest);
        let Some(running) = self.cpus[busiest.index()].curr else { return false };
        let allowed = ctx.tasks[running.index()].hard_affinity.contains(attempt.cpu);
        if !allowed || self.way(ctx, running, attempt.cpu) == Way::Out {
            return false;
        }
        let queue = &mut self.cpus[busiest.index()];
        if queue.push_to.is_none() {
            queue.push_to = Some(attempt.cpu);
            queue.push_is_for_node = false;
            self.reschedule(ctx, busiest);
        }
        true
    }

    /// Moves `previous`, which has just been put into the queue of its CPU, where active balancing, or NUMA balancing,
    /// asked for it to go ([`RunQueue::push_to`](super::super::run_queue::RunQueue), which is cleared). Whether it
    /// moved.
    pub(in crate::policy::linux) fn active_push(
        &mut self,
        ctx: &mut Context<'_>,
        cpu: CpuId,
        previous: TaskId,
    ) -> bool {
        let Some(to) = self.cpus[cpu.index()].push_to.take() else { return false };
        if to == cpu || !ctx.tasks[previous.index()].hard_affinity.contains(to) {
            return false;
        }
        ctx.locked.push(to);
        if self.cpus[cpu.index()].push_is_for_node {
            self.move_queued(ctx, previous, cpu, to);
            return true;
        }
        let asked = self.domains.of(to).find(|&at| self.domains.span(at).cpus.contains(cpu));
        if let Some(at) = asked {
            self.domains.domain_mut(at).failed = 0;
        }
        self.counters.alb_pushed += 1;
        self.move_queued(ctx, previous, cpu, to);
        true
    }
}
