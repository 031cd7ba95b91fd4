//! Spin locks of guests: fair, and blind to who has a CPU.
//!
//! Waiters spin, which keeps their CPU busy, and get the lock in the order in which they came, as with ticket and queued
//! locks ([`crate::cost::SpinLock`] tells what the difference is). A holder or a next waiter whose vCPU has lost
//! its pCPU holds up all the others; the host may notice them ([`crate::policy::pause_loop`]). The guest's own kernel does
//! not preempt them, as kernels switch preemption off for their spin locks; it does so when the lock is given back. Taking a
//! free lock costs nothing beyond the program's own work; handing it to a waiter takes the time in which a cache line
//! travels between the two. Limits: no paravirtual locks, whose waiters block after a while.

use super::simulation::Simulation;
use crate::kernel::CpuRef;
use crate::trace::Observer;
use std::collections::VecDeque;
use tandem_machine::ids::{CpuId, TaskId, VmId};

/// A spin lock of a VM.
#[derive(Clone, Debug, Default)]
pub(super) struct SpinLock {
    holder: Option<TaskId>,
    /// Who spins, longest first.
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

    /// Takes the lock from the task and gives it to whoever waits longest, who is returned. Changes nothing if the task
    /// does not hold it.
    pub fn release(&mut self, task: TaskId) -> Option<TaskId> {
        if self.holder != Some(task) {
            return None;
        }
        self.holder = self.waiting.pop_front();
        self.holder
    }

    /// Who has it.
    pub fn holder(&self) -> Option<TaskId> {
        self.holder
    }

    /// Who spins, longest first.
    pub fn waiting(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.waiting.iter().copied()
    }
}

impl<O: Observer> Simulation<'_, O> {
    /// Takes a lock for the task, or lets it spin; tells whether it has got the lock.
    pub(super) fn take_lock(&mut self, vm: VmId, lock: usize, task: TaskId) -> bool {
        let state = &mut self.vms[vm.index()];
        let lock = &mut state.locks[lock];
        let task_state = &mut self.system.kernels[state.kernel][task];
        let has_it = lock.take(task);
        match has_it {
            true => task_state.locks_held += 1,
            false => task_state.spins = true,
        }
        has_it
    }

    /// The task on the processor gives the lock to the next one. A task that does not hold it changes nothing.
    pub(super) fn release_lock(&mut self, vm: VmId, lock: usize, task: TaskId, pcpu: CpuId, now_ns: u64) {
        let state = &mut self.vms[vm.index()];
        let lock = &mut state.locks[lock];
        if lock.holder() != Some(task) {
            return;
        }
        let next = lock.release(task);
        let kernel = &mut self.system.kernels[state.kernel];
        kernel[task].locks_held -= 1;
        let Some(next) = next else { return };
        let next_state = &mut kernel[next];
        next_state.spins = false;
        next_state.locks_held += 1;
        let there = CpuRef { kernel: state.kernel, cpu: kernel[next].last_cpu };
        let watching = 1 + lock
            .waiting()
            .filter(|&task| self.system.processors.spins_now(&self.system.kernels, there.kernel, task))
            .count();
        let released_ns = self.system.processors.settled_ns(pcpu).max(now_ns);
        self.system.processors.go_on(&self.system.kernels, there, next, pcpu, released_ns, watching as u32);
    }
}
