//! Locks of other CPUs' queues that balancing takes.
//!
//! The search for the busiest queue takes none; moving tasks out of it does. 3.6 holds the locks of both
//! queues meanwhile (`double_rq_lock()`), lower CPU first. Since 3.18 tasks are taken out under the one lock
//! and, if there are any, put in under the other. A CPU that balances for an idle one has to lock the queue
//! of that one as well, and, from 3.7 on, updates its clock and load under that lock. So does a newly idle
//! CPU of 5.2, for idle ones whose queues it compares (`update_nohz_stats()`).
//!
//! The lock of the CPU that does the work is not listed. The list is in the order in which the locks are
//! taken, with one entry each time. Limits: the model assumes a kernel that is built with groups
//! (`CONFIG_FAIR_GROUP_SCHED`) but uses none; and the threads that move running tasks are woken without a
//! lock.

use super::Attempt;
use crate::policy::Context;
use crate::policy::linux::features::BalanceFeatures;
use tandem_machine::ids::CpuId;

impl Attempt {
    fn lock(self, ctx: &mut Context<'_>, queue: CpuId) {
        if queue != self.by {
            ctx.locked.push(queue);
        }
    }

    /// Takes the locks that are needed to take tasks out of the busiest queue.
    pub(super) fn lock_to_detach(self, ctx: &mut Context<'_>, features: &BalanceFeatures, busiest: CpuId) {
        if features.double_rq_lock {
            self.lock(ctx, busiest.min(self.cpu));
            self.lock(ctx, busiest.max(self.cpu));
        } else {
            self.lock(ctx, busiest);
        }
    }

    /// Takes the locks that are needed to put the tasks into the queue of their new CPU.
    pub(super) fn lock_to_attach(self, ctx: &mut Context<'_>, features: &BalanceFeatures) {
        if !features.double_rq_lock {
            self.lock(ctx, self.cpu);
        }
    }

    /// Locks the busiest queue to see whether its running task may move.
    pub(super) fn lock_to_ask(self, ctx: &mut Context<'_>, busiest: CpuId) {
        self.lock(ctx, busiest);
    }
}
