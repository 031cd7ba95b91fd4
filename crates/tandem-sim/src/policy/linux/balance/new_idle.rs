//! Balancing by a CPU that has just run out of work (`idle_balance()`, in 6.12 `sched_balance_newidle()`).
//!
//! It is worth its time only if the CPU would otherwise idle for longer than the search takes. The kernel
//! measures both by its clock, keeps the longest search of each domain, and lets that fade by 1% a second.
//! Here a search takes the time in which the lines of the queues that it compares travel from the caches of
//! their CPUs, near or far ([`BalanceFeatures::queue_lines`](super::BalanceFeatures)), one after the other;
//! and the time that the CPU waits for and holds the locks that the search takes, as the simulator charges
//! it.
//!
//! From 6.12 on, chance decides as well: of the searches that would be worth it, the CPU makes as large a
//! part as has found work of late, domain by domain (`NI_RANDOM`).
//!
//! Limits: the time of the instructions is left out unless the settings have it, as are interrupts, and, in a
//! guest, the time for which the vCPU is kept from running meanwhile; so searches take less time here, and
//! vary less, than measured ones. A guest's locks cost nothing. All lines of the queues have been written
//! since the search before.
//!
//! With work-conserving soft affinity, the CPU first takes a waiting task that prefers it from a CPU which
//! that task does not prefer; if there is none, it asks for such a task that runs, unless it expects to idle
//! for less time than a migration costs.

use super::{Attempt, Balancer, Idleness, Outcome};
use crate::policy::Context;
use crate::policy::linux::domains::{Flags, NewidleRate};
use crate::policy::linux::features::NewidleRandom;
use crate::policy::linux::queues::Push;
use crate::policy::linux::soft_affinity::MoveDirection;
use crate::program::Amount;
use tandem_machine::ids::{CpuId, TaskId};

/// Period after which the longest time of a search shrinks by [`KEEPS_OF_256`], ns.
const DECAY_NS: u64 = 1_000_000_000;
/// The part of it that is left, in 256ths.
const KEEPS_OF_256: u64 = 253;

/// A search by a newly idle CPU that has taken locks, whose cost is not known yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewIdleSearch {
    pub now_ns: u64,
    pub cpu: CpuId,
    /// The last domain that it went over.
    pub at: usize,
    /// Its cost without the locks, in that domain and in all, ns.
    pub cost_ns: u64,
    pub spent_ns: u64,
}

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
            let cost_ns = self.search_ns(at);
            let Some(worth) = self.draw_new_idle(ctx.now_ns, at) else { continue };
            let locked = ctx.locked.len();
            self.update_idle_loads(ctx, cpu, at);
            let outcome = self.balance(ctx, Attempt { cpu, by: cpu, at, idleness: Idleness::Newly });
            spent_ns += cost_ns;
            let success = if matches!(outcome, Outcome::Moved(_)) { worth } else { 0 };
            self.note_new_idle_attempt(ctx.now_ns, at, success);
            self.note_new_idle_cost(ctx.now_ns, at, cost_ns);
            if features.newidle_lb_cost && ctx.locked.len() > locked {
                self.balancing.new_idle_search =
                    Some(NewIdleSearch { now_ns: ctx.now_ns, cpu, at, cost_ns, spent_ns });
            }
            if matches!(outcome, Outcome::Moved(_)) {
                break;
            }
        }
        self.queues.of_mut(cpu).note_idle_balance_cost(spent_ns);
    }

    /// The CPU has waited for the locks that its last decision took, and held them, for this time, ns. If it
    /// was newly idle then, they belong to its search.
    pub fn spent_on_locks(&mut self, cpu: CpuId, locks_ns: u64) {
        let Some(search) = self.balancing.new_idle_search.take_if(|search| search.cpu == cpu) else { return };
        self.note_new_idle_cost(search.now_ns, search.at, search.cost_ns + locks_ns);
        self.queues.of_mut(cpu).note_idle_balance_cost(search.spent_ns + locks_ns);
    }

    /// Draws whether the CPU searches the domain. Returns what a success counts, so that a rate comes out
    /// that does not depend on how rarely it searches; `None` if it goes on to the next domain, which counts
    /// as a failure.
    pub(super) fn draw_new_idle(&mut self, now_ns: u64, at: usize) -> Option<u32> {
        let ratio = self.domains.domain(at).newidle.ratio;
        if self.features.newidle_random == NewidleRandom::Never || ratio >= NewidleRate::SCALE {
            return Some(1);
        }
        let drawn = self.balancing.random.draw(Amount::Uniform(0, u64::from(NewidleRate::SCALE) - 1));
        let weight = 1 + ratio;
        if drawn > u64::from(weight) {
            self.note_new_idle_attempt(now_ns, at, 0);
            return None;
        }
        Some((NewidleRate::SCALE + weight / 2) / weight)
    }

    /// Counts an attempt on the domain (`update_newidle_stats()`).
    fn note_new_idle_attempt(&mut self, now_ns: u64, at: usize, success: u32) {
        let with_rate = match self.features.newidle_random {
            NewidleRandom::Never => return,
            NewidleRandom::BySuccess => false,
            NewidleRandom::BySuccessAndRate => true,
        };
        self.domains.domain_mut(at).newidle.count(now_ns, success, with_rate);
    }

    /// 5.2: before the CPU compares the groups, it updates the load that tasks have left on CPUs that idle,
    /// each at most once a tick (`update_nohz_stats()`).
    fn update_idle_loads(&mut self, ctx: &mut Context<'_>, cpu: CpuId, at: usize) {
        if !self.features.newidle_updates_idle {
            return;
        }
        let tick = self.balance_tick(ctx);
        let span = &self.domains.span(at).cpus;
        let mut last = cpu;
        for _ in 0..span.count_and(self.queues.idle()) {
            let Some(idle) = span.next_and_after(self.queues.idle(), last) else { break };
            last = idle;
            let loads = self.queues.loads();
            let has_load = loads.lasting(idle) > 0 || loads.average_util(idle) > 0;
            if idle != cpu && has_load && self.queues.of(idle).load_updated_ns() / self.tick_period_ns < tick
            {
                ctx.locked.push(idle);
                self.queues.refresh_load(ctx, idle);
            }
        }
    }

    /// A search of the domain has taken this time (`update_newidle_cost()`).
    fn note_new_idle_cost(&mut self, now_ns: u64, at: usize, cost_ns: u64) {
        let domain = self.domains.domain_mut(at);
        if cost_ns > domain.newidle_cost_ns {
            domain.newidle_cost_ns = cost_ns;
            if self.features.newidle_cost_fades_in_use {
                domain.newidle_decay_ns = now_ns;
            }
        } else if self.features.newidle_cost_fades_in_use {
            self.decay_new_idle_cost(now_ns, at);
        }
    }

    /// Lets the longest search time of a domain decay, once a second; whether it did.
    pub(super) fn decay_new_idle_cost(&mut self, now_ns: u64, at: usize) -> bool {
        let domain = self.domains.domain_mut(at);
        let is_due = self.features.newidle_lb_cost && now_ns > domain.newidle_decay_ns + DECAY_NS;
        if is_due {
            domain.newidle_cost_ns = domain.newidle_cost_ns * KEEPS_OF_256 / 256;
            domain.newidle_decay_ns = now_ns;
        }
        is_due
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
            let comes_home = |task: &TaskId| self.queues.direction(ctx, *task, cpu) == MoveDirection::Home;
            let is_stray = |task| self.queues.strays().is_stray(ctx, task, from);
            let mut stray = None;
            let mut has_strays = queue.curr().is_some_and(is_stray);
            self.queues.visit_waiting(from, &mut |task| {
                if !self.queues.entity(task).delayed {
                    stray = stray.or(Some(task).filter(comes_home));
                    has_strays |= is_stray(task);
                }
            });
            if let Some(task) = stray {
                ctx.locked.push(from);
                self.queues.move_queued(ctx, task, from, cpu);
                self.balancing.counters.lb_gained += 1;
                self.balancing.counters.soft_returned += 1;
                return true;
            }
            if !has_strays {
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
