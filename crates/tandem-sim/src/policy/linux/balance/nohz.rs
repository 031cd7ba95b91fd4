//! Balancing for CPUs that idle, and so have no ticks of their own (`nohz_balancer_kick()`,
//! `nohz_idle_balance()`).
//!
//! A busy CPU that sees at its tick that others could help kicks the first idle CPU, in 7.3 rather the first
//! whose core idles, which balances for
//! itself and for all other idle ones until it has something to run.
//!
//! Simplified: 3.6 does not refresh the load of the CPUs that it balances for; here all eras do. 6.12 also
//! refreshes the loads of idle CPUs now and then without balancing; here that happens when they are next
//! balanced.

use super::{Balancer, Idleness};
use crate::policy::Context;
use crate::policy::linux::domains::Flags;
use crate::policy::linux::features::{NohzKick, NohzRefresh};
use tandem_machine::ids::CpuId;

impl Balancer<'_> {
    /// At the tick of a busy CPU: kicks an idle CPU if there is work for it.
    pub(super) fn kick_idle_balancer(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        let tick = self.balance_tick(ctx);
        if tick < self.balancing.next_nohz_tick || !self.idlers_could_help(cpu) {
            return;
        }
        let Some(idle) = self.idle_balancer(ctx).filter(|&idle| idle != cpu) else { return };
        self.balancing.next_nohz_tick = tick + 1;
        self.queues.of_mut(idle).nohz_kick();
        self.queues.reschedule(ctx, idle);
    }

    /// The idle CPU that balances for all: the first, since 7.3 the first whose core idles if there is one
    /// (`find_new_ilb()`).
    pub(super) fn idle_balancer(&self, ctx: &Context<'_>) -> Option<CpuId> {
        let idle = self.queues.idle();
        let core_idles = |cpu: &CpuId| ctx.machine.siblings(*cpu).is_subset(idle);
        let on_idle_core = if self.features.ilb_idle_core { idle.iter().find(core_idles) } else { None };
        on_idle_core.or_else(|| idle.iter().next())
    }

    /// Whether the CPU has more than it can run at once, or several CPUs of its cache are busy: their tasks
    /// might run faster apart. Without shared caches only the former counts.
    fn idlers_could_help(&self, cpu: CpuId) -> bool {
        if self.queues.of(cpu).nr_running() >= 2 {
            return true;
        }
        match self.features.nohz_kick {
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
        cpus.count() - cpus.count_and(self.queues.idle())
    }

    /// An idle CPU was kicked: balances for all idle CPUs, if that was the reason.
    pub fn balance_for_idle(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        if !self.queues.of_mut(cpu).take_nohz_kick() {
            return;
        }
        let own_first = self.features.nohz_own_first;
        if own_first {
            self.balance_due(ctx, cpu, cpu, Idleness::Idle);
        }
        let mut last = cpu;
        for _ in 0..self.queues.all().len() {
            let Some(other) = self.queues.idle().next_after(last) else { break };
            last = other;
            if other == cpu {
                break;
            }
            if self.queues.of(cpu).nr_running() > 0 {
                break;
            }
            self.lock_to_refresh(ctx, other);
            self.balance_due(ctx, other, cpu, Idleness::Idle);
        }
        if !own_first && self.queues.of(cpu).nr_running() == 0 {
            self.balance_due(ctx, cpu, cpu, Idleness::Idle);
        }
        self.balancing.next_nohz_tick = self.next_idle_balance(ctx);
    }

    /// The first tick at which an idle CPU is due to balance again.
    fn next_idle_balance(&self, ctx: &Context<'_>) -> u64 {
        let due = self.queues.idle().iter().flat_map(|cpu| self.domains.of(cpu));
        let next = due.map(|at| self.next_balance_tick(at, false)).min();
        next.unwrap_or(0).max(self.balance_tick(ctx) + 1)
    }

    /// Locks the queue of another CPU that idles, as often as its clock and load are brought up to date
    /// before it is balanced for.
    fn lock_to_refresh(&self, ctx: &mut Context<'_>, idle: CpuId) {
        let tick = self.balance_tick(ctx);
        let is_due = self.domains.of(idle).any(|at| tick >= self.next_balance_tick(at, false));
        let due = usize::from(is_due);
        let times = match self.features.nohz_refresh {
            NohzRefresh::Itself => 0,
            NohzRefresh::ClockAndGroups => 2 * due,
            NohzRefresh::BlockedLoad => {
                let loads = self.queues.loads();
                usize::from(loads.lasting(idle) > 0 || loads.average_util(idle) > 0) + due
            }
        };
        ctx.locked.extend(std::iter::repeat_n(idle, times));
    }
}
