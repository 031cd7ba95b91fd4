//! Balancing for CPUs that idle, and so have no ticks of their own (`nohz_balancer_kick()`, `nohz_idle_balance()`).
//!
//! A busy CPU that sees at its tick that others could help kicks the first idle CPU, which balances for itself and
//! for all other idle ones until it has something to run.
//!
//! Simplified: 3.6 does not refresh the load of the CPUs that it balances for; here all eras do. 6.12 also refreshes
//! the loads of idle CPUs now and then without balancing; here they are when they are next balanced for.

use super::Idleness;
use crate::policy::linux::domains::Flags;
use crate::policy::linux::features::NohzKick;
use crate::policy::linux::{Context, Linux};
use tandem_machine::ids::CpuId;

impl Linux {
    /// At the tick of a busy CPU: kicks an idle CPU if there is work for it.
    pub(super) fn kick_idle_balancer(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        let tick = self.balance_tick(ctx);
        if tick < self.balancing.next_nohz_tick || !self.idlers_could_help(cpu) {
            return;
        }
        let allowed = ctx.machine.all_cpus();
        let Some(idle) = self.idle.next_and_wrapping(allowed, CpuId(0)).filter(|&idle| idle != cpu) else {
            return;
        };
        self.balancing.next_nohz_tick = tick + 1;
        self.cpus[idle.index()].nohz_kicked = true;
        self.reschedule(ctx, idle);
    }

    /// Whether the CPU has more than it can run at once, or its cache is used by several: they might run faster
    /// apart. Without shared caches only the former counts.
    fn idlers_could_help(&self, cpu: CpuId) -> bool {
        if self.cpus[cpu.index()].nr_running() >= 2 {
            return true;
        }
        match self.features.balance.nohz_kick {
            NohzKick::Group => self
                .domains
                .of(cpu)
                .take_while(|&at| self.domains.domain(at).tunables.flags.contains(Flags::SHARE_LLC))
                .any(|at| self.busy_in(&self.domains.group(at, 0).cpus) > 1),
            NohzKick::CacheOfSeveral => self.domains.llc_domain(cpu).is_some_and(|at| {
                self.domains.of(cpu).contains(&(at + 1)) && self.busy_in(&self.domains.span(at).cpus) > 1
            }),
            NohzKick::Cache => {
                self.domains.llc_domain(cpu).is_some_and(|at| self.busy_in(&self.domains.span(at).cpus) > 1)
            }
        }
    }

    fn busy_in(&self, cpus: &tandem_machine::cpumask::CpuMask) -> usize {
        cpus.count() - cpus.count_and(&self.idle)
    }

    /// An idle CPU was kicked: balances for all idle CPUs, if that was the reason.
    pub(in crate::policy::linux) fn balance_for_idle(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        if !std::mem::take(&mut self.cpus[cpu.index()].nohz_kicked) {
            return;
        }
        let own_first = self.features.balance.nohz_own_first;
        if own_first {
            self.balance_due(ctx, cpu, cpu, Idleness::Idle);
        }
        let mut last = cpu;
        for _ in 0..self.cpus.len() {
            let Some(other) = self.idle.next_after(last) else { break };
            last = other;
            if other == cpu {
                break;
            }
            if self.cpus[cpu.index()].nr_running() > 0 {
                break;
            }
            self.lock_to_refresh(ctx, other);
            self.balance_due(ctx, other, cpu, Idleness::Idle);
        }
        if !own_first && self.cpus[cpu.index()].nr_running() == 0 {
            self.balance_due(ctx, cpu, cpu, Idleness::Idle);
        }
        self.balancing.next_nohz_tick = self.next_idle_balance(ctx);
    }

    /// The first tick at which an idle CPU is to balance again.
    fn next_idle_balance(&self, ctx: &Context<'_>) -> u64 {
        let due = self.idle.iter().flat_map(|cpu| self.domains.of(cpu));
        let next = due.map(|at| self.next_balance_tick(at, Idleness::Idle)).min();
        next.unwrap_or(0).max(self.balance_tick(ctx) + 1)
    }
}
