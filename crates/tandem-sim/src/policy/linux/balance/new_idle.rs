//! Balancing by a CPU that has just run out of work (`idle_balance()`, in 6.12 `sched_balance_newidle()`).
//!
//! It is worth its time only if the CPU would otherwise idle for longer than the search takes. The kernel measures
//! both; here the search takes a cache line from far away for each CPU that it looks at, as the queues of others
//! are in their caches.

use super::{Attempt, Idleness, Outcome};
use crate::policy::linux::domains::Flags;
use crate::policy::linux::{Context, Linux};
use tandem_machine::ids::CpuId;

/// The longest time that a search took shrinks that often, by [`KEEPS_OF_256`].
const DECAY_NS: u64 = 1_000_000_000;
/// What is left of it, in 256ths.
const KEEPS_OF_256: u64 = 253;

impl Linux {
    /// The CPU has just run out of work: may pull some into its queue.
    pub(in crate::policy::linux) fn balance_new_idle(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        if self.bring_home(ctx, cpu) {
            return;
        }
        let features = self.features.balance;
        let avg_idle_ns = self.cpus[cpu.index()].avg_idle_ns;
        let floor_ns = if features.newidle_migration_cost { self.tunables.migration_cost_ns } else { 0 };
        if avg_idle_ns < floor_ns || (features.newidle_lb_cost && !self.any_overloaded()) {
            return;
        }
        self.refresh_load(ctx, cpu);
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
        let queue = &mut self.cpus[cpu.index()];
        queue.max_idle_balance_cost_ns = queue.max_idle_balance_cost_ns.max(spent_ns);
    }

    /// Whether any CPU has more than one task (`rd->overload`).
    fn any_overloaded(&self) -> bool {
        self.cpus.iter().any(|queue| queue.nr_running() > 1)
    }

    /// Lets the longest search of a domain be forgotten slowly (since 3.13).
    pub(super) fn decay_new_idle_cost(&mut self, now_ns: u64, at: usize) {
        let domain = self.domains.domain_mut(at);
        if now_ns >= domain.newidle_decay_ns + DECAY_NS {
            domain.newidle_cost_ns = domain.newidle_cost_ns * KEEPS_OF_256 / 256;
            domain.newidle_decay_ns = now_ns;
        }
    }

    /// The CPU's longest search in all domains, at least the cost of a migration.
    pub(super) fn cap_new_idle_cost(&mut self, cpu: CpuId) {
        let costs = self.domains.of(cpu).map(|at| self.domains.domain(at).newidle_cost_ns);
        let cost_ns = costs.sum::<u64>().max(self.tunables.migration_cost_ns);
        self.cpus[cpu.index()].max_idle_balance_cost_ns = cost_ns;
    }
}
