//! Balancing by a CPU that has just run out of work (`idle_balance()`, in 6.12 `sched_balance_newidle()`).
//!
//! It is worth its time only if the CPU would otherwise idle for longer than the search takes. The kernel
//! measures both; here the search takes a remote cache line for each CPU that it examines, as the queues of
//! others are in their caches.
//!
//! With work-conserving soft affinity, the CPU first takes a waiting task that prefers it from a CPU which
//! that task does not prefer; if there is none, it asks for such a task that runs, unless it expects to idle
//! for less time than a migration costs.

use super::{Attempt, Balancer, Idleness, Outcome};
use crate::policy::Context;
use crate::policy::linux::domains::Flags;
use crate::policy::linux::queues::Push;
use crate::policy::linux::soft_affinity::MoveDirection;
use tandem_machine::ids::{CpuId, TaskId};

/// Period after which the longest time of a search shrinks by [`KEEPS_OF_256`], ns.
const DECAY_NS: u64 = 1_000_000_000;
/// The part of it that is left, in 256ths.
const KEEPS_OF_256: u64 = 253;

impl Balancer<'_> {
    /// The CPU has just run out of work: it may pull tasks into its queue.
    pub fn balance_new_idle(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        if self.bring_home(ctx, cpu) {
            return;
        }
        let features = self.features;
        let avg_idle_ns = self.queues.of(cpu).avg_idle_ns();
        let floor_ns = if features.newidle_migration_cost { self.migration_cost_ns } else { 0 };
        if avg_idle_ns < floor_ns || (features.newidle_lb_cost && !self.queues.overload()) {
            return;
        }
        self.queues.refresh_load(ctx, cpu);
        let mut spent_ns = 0;
        for at in self.domains.of(cpu) {
            let domain = self.domains.domain(at);
            if features.newidle_lb_cost && avg_idle_ns < spent_ns + domain.newidle_cost_ns {
                break;
            }
            if !domain.tunables.flags.contains(Flags::NEWIDLE) {
                continue;
            }
            let before = *ctx.peers_scanned;
            let outcome = self.balance(ctx, Attempt { cpu, by: cpu, at, idleness: Idleness::Newly });
            let scanned = u64::from(*ctx.peers_scanned - before);
            let cost_ns = scanned * u64::from(ctx.machine.hardware().remote_memory_latency_ns);
            spent_ns += cost_ns;
            let domain = self.domains.domain_mut(at);
            domain.newidle_cost_ns = domain.newidle_cost_ns.max(cost_ns);
            if matches!(outcome, Outcome::Moved(_)) {
                break;
            }
        }
        self.queues.of_mut(cpu).note_idle_balance_cost(spent_ns);
    }

    /// Lets the longest search time of a domain decay (since 3.13).
    pub(super) fn decay_new_idle_cost(&mut self, now_ns: u64, at: usize) {
        let domain = self.domains.domain_mut(at);
        if now_ns >= domain.newidle_decay_ns + DECAY_NS {
            domain.newidle_cost_ns = domain.newidle_cost_ns * KEEPS_OF_256 / 256;
            domain.newidle_decay_ns = now_ns;
        }
    }

    /// Sets the CPU's longest search in all domains, at least the cost of a migration.
    pub(super) fn cap_new_idle_cost(&mut self, cpu: CpuId) {
        let costs = self.domains.of(cpu).map(|at| self.domains.domain(at).newidle_cost_ns);
        let cost_ns = costs.sum::<u64>().max(self.migration_cost_ns);
        self.queues.of_mut(cpu).set_idle_balance_cost(cost_ns);
    }

    /// The CPU has run out of work: takes a stray that prefers it, or asks for one. Returns whether there was
    /// one.
    pub(super) fn bring_home(&mut self, ctx: &mut Context<'_>, cpu: CpuId) -> bool {
        if !self.queues.strays().are_heeded() {
            return false;
        }
        let will_idle = self.queues.of(cpu).avg_idle_ns() >= self.migration_cost_ns;
        let mut running = None;
        let mut at = cpu;
        for _ in 0..self.queues.strays().cpus().count() {
            let Some(from) = self.queues.strays().cpus().next_after(at) else { break };
            at = from;
            *ctx.peers_scanned += u32::from(from != cpu);
            let queue = self.queues.of(from);
            let waiting = || queue.tasks().waiting().filter(|&task| !self.queues.entity(task).delayed);
            let comes_home = |task: &TaskId| self.queues.direction(ctx, *task, cpu) == MoveDirection::Home;
            let stray = waiting().find(comes_home);
            if let Some(task) = stray {
                ctx.locked.push(from);
                self.queues.move_queued(ctx, task, from, cpu);
                self.balancing.counters.lb_gained += 1;
                self.balancing.counters.soft_returned += 1;
                return true;
            }
            let strays = |task| self.queues.strays().is_stray(ctx, task, from);
            if !waiting().chain(queue.curr()).any(strays) {
                self.queues.strays_mut().has_none(from);
                continue;
            }
            if queue.curr().is_some_and(|task| comes_home(&task)) && !queue.has_push() && running.is_none() {
                running = Some(from);
            }
        }
        let Some(from) = running.filter(|_| will_idle) else { return false };
        ctx.locked.push(from);
        self.queues.of_mut(from).ask_push(Push { to: cpu, is_for_node: false });
        self.balancing.counters.soft_returned += 1;
        self.queues.reschedule(ctx, from);
        true
    }
}
