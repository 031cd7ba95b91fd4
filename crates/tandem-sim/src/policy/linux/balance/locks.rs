//! Locks of other CPUs' queues that balancing takes.
//!
//! Looking for the busiest queue takes none; moving tasks out of it does. 3.6 holds the locks of both queues meanwhile
//! (`double_rq_lock()`), lower CPU first. Since 3.18 tasks are taken out under the one lock and, if there are any, put
//! in under the other. A CPU that balances for one that idles has to lock the queue of that one, too, and, from 3.7 on,
//! brings its clock and load up to date under its lock.
//!
//! The lock of the CPU that does the work is not listed. The list is in the order in which the locks are taken, with
//! one entry each time. Limits: the kernel is taken to be built with groups (`CONFIG_FAIR_GROUP_SCHED`) but to have
//! none; and the threads that move running tasks are woken without a lock.

use super::{Attempt, Idleness};
use crate::policy::linux::features::NohzRefresh;
use crate::policy::linux::{Context, Linux};
use tandem_machine::ids::CpuId;

impl Attempt {
    fn lock(self, ctx: &mut Context<'_>, queue: CpuId) {
        if queue != self.by {
            ctx.locked.push(queue);
        }
    }
}

impl Linux {
    /// Locks what has to be held to take tasks out of the busiest queue.
    pub(super) fn lock_to_detach(&self, ctx: &mut Context<'_>, attempt: Attempt, busiest: CpuId) {
        if self.features.balance.double_rq_lock {
            attempt.lock(ctx, busiest.min(attempt.cpu));
            attempt.lock(ctx, busiest.max(attempt.cpu));
        } else {
            attempt.lock(ctx, busiest);
        }
    }

    /// Locks what has to be held to put the tasks into the queue of the CPU that they are for.
    pub(super) fn lock_to_attach(&self, ctx: &mut Context<'_>, attempt: Attempt) {
        if !self.features.balance.double_rq_lock {
            attempt.lock(ctx, attempt.cpu);
        }
    }

    /// Locks the busiest queue to see whether its running task may move.
    pub(super) fn lock_to_ask(&self, ctx: &mut Context<'_>, attempt: Attempt, busiest: CpuId) {
        attempt.lock(ctx, busiest);
    }

    /// Locks the queue of another CPU that idles, as often as its clock and load are brought up to date before it is
    /// balanced for.
    pub(super) fn lock_to_refresh(&self, ctx: &mut Context<'_>, idle: CpuId) {
        let tick = self.balance_tick(ctx);
        let is_due = self.domains.of(idle).any(|at| tick >= self.next_balance_tick(at, Idleness::Idle));
        let due = usize::from(is_due);
        let times = match self.features.balance.nohz_refresh {
            NohzRefresh::Itself => 0,
            NohzRefresh::ClockAndGroups => 2 * due,
            NohzRefresh::BlockedLoad => {
                usize::from(self.lasting_load(idle) > 0 || self.cpu_util(idle) > 0) + due
            }
        };
        ctx.locked.extend(std::iter::repeat_n(idle, times));
    }
}
