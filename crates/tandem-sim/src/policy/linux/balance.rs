//! Load balancing.

use super::{Context, Linux};
use crate::ids::{CpuId, TaskId};

impl Linux {
    /// At a tick: balances if it is time to, and kicks an idle CPU that is to balance for all idle ones.
    pub(super) fn balance_at_tick(&mut self, _ctx: &mut Context<'_>, _cpu: CpuId) {}

    /// The CPU has just run out of work: may pull some into its queue.
    pub(super) fn balance_new_idle(&mut self, _ctx: &mut Context<'_>, _cpu: CpuId) {}

    /// An idle CPU was kicked: balances for all idle CPUs, if that was the reason.
    pub(super) fn balance_for_idle(&mut self, _ctx: &mut Context<'_>, _cpu: CpuId) {}

    /// Moves `previous`, which has just been put into the queue of its CPU, where active balancing asked for it to go
    /// ([`RunQueue::push_to`](super::run_queue::RunQueue), which is cleared). Whether it moved.
    pub(super) fn active_push(&mut self, _ctx: &mut Context<'_>, cpu: CpuId, _previous: TaskId) -> bool {
        self.cpus[cpu.index()].push_to = None;
        false
    }
}
