//! Spin locks of guests: fair, and blind to which tasks have a CPU.
//!
//! Waiters spin, which keeps their CPU busy, and get the lock in the order in which they came, as with ticket
//! and queued locks ([`crate::cost::SpinLock`] has the difference). A holder or a next waiter whose vCPU has
//! lost its pCPU holds up all the others; the host may notice them ([`crate::policy::pause_loop`]). The
//! guest's own kernel does not preempt them, as kernels switch preemption off for their spin locks; it does
//! so when the task gives the lock back. Taking a free lock costs nothing beyond the program's own work;
//! handing it to a waiter takes the time in which a cache line travels between the two.
//!
//! Limits: no paravirtual locks, whose waiters block after a while.

use super::program::Execution;
use crate::kernel::{CpuRef, System};
use crate::trace::Observer;
use std::collections::VecDeque;
use tandem_machine::ids::TaskId;

/// A spin lock of a VM.
#[derive(Clone, Debug, Default)]
pub(super) struct SpinLock {
    holder: Option<TaskId>,
    /// Tasks that spin, longest first.
    waiting: VecDeque<TaskId>,
}

impl SpinLock {
    /// Gives the lock to the task, or puts it at the end of the line; whether it has got it.
    pub fn take(&mut self, task: TaskId) -> bool {
        match self.holder {
            None => self.holder = Some(task),
            Some(_) => self.waiting.push_back(task),
        }
        self.holder == Some(task)
    }

    /// Takes the lock from the task and gives it to the task that waits longest, which is returned. Changes
    /// nothing if the task does not hold it.
    pub fn release(&mut self, task: TaskId) -> Option<TaskId> {
        if self.holder != Some(task) {
            return None;
        }
        self.holder = self.waiting.pop_front();
        self.holder
    }

    /// The task that has it.
    pub fn holder(&self) -> Option<TaskId> {
        self.holder
    }

    /// Tasks that spin, longest first.
    pub fn waiting(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.waiting.iter().copied()
    }
}

impl<O: Observer> Execution<'_, O> {
    /// Takes a lock for the task, or lets it spin; whether it has got the lock.
    pub(super) fn take_lock(&mut self, lock: usize) -> bool {
        let has_it = self.vm.locks[lock].take(self.task.task);
        let spin = &mut self.task().spin;
        match has_it {
            true => spin.get_lock(),
            false => spin.await_lock(),
        }
        has_it
    }

    /// The task gives the lock to the next one. A task that does not hold it changes nothing.
    pub(super) fn release_lock(&mut self, lock: usize) {
        let lock = &mut self.vm.locks[lock];
        if lock.holder() != Some(self.task.task) {
            return;
        }
        let next = lock.release(self.task.task);
        let System { kernels, processors, .. } = self.system;
        kernels[self.task].spin.release_lock();
        let Some(next) = next else { return };
        let next_state = &mut kernels[self.on.kernel][next];
        next_state.spin.get_lock();
        let there = CpuRef { kernel: self.on.kernel, cpu: next_state.last_cpu };
        let spinning = lock.waiting().filter(|&task| processors.spins_now(kernels, there.kernel, task));
        let watching = 1 + spinning.count();
        let released_ns = processors[self.pcpu].settled_ns.max(self.now_ns);
        processors.go_on(kernels, there, next, self.pcpu, released_ns, watching as u32);
    }
}
