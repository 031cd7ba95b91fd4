//! Spin locks of guests: blind to which tasks have a CPU.
//!
//! Waiters spin, which keeps their CPU busy. Who gets the lock next, and whether waiters halt after a while,
//! is up to the kernel of the guest and to what the host offers it: see [`super::waiters`]. A holder or a
//! next waiter whose vCPU has lost its pCPU holds up the others; the host may notice them
//! ([`crate::policy::pause_loop`]). The guest's own kernel does not preempt them, as kernels switch
//! preemption off for their spin locks; it does so when the task gives the lock back. Taking a free lock
//! costs nothing beyond the program's own work; handing it to a waiter takes the time in which a cache line
//! travels between the two.

use super::program::Execution;
use super::simulation::Simulation;
use super::waiters::{LockRules, Released, SpinLock, Wait};
use crate::engine::event_queue::NEVER;
use crate::kernel::{CpuRef, Kernel, Spin, System, TaskRef};
use crate::trace::Observer;
use tandem_machine::ids::{CpuId, TaskId};

impl<O: Observer> Execution<'_, O> {
    /// Takes a lock for the task, or lets it spin or halt; whether it has got the lock.
    pub(super) fn take_lock(&mut self, lock: usize) -> bool {
        let kernel = &self.system.kernels[self.on.kernel];
        let wait = self.vm.locks[lock].take(self.task.task, |before| is_preempted(kernel, before));
        let limit_ns = limit_ns(self.system, wait);
        let looks = self.vm.locks[lock].rules().looks();
        let spin = &mut self.task().spin;
        match wait {
            Wait::HasLock => spin.get_lock(),
            Wait::Spins | Wait::SpinsOn | Wait::Halts => spin.await_lock(lock as u32, limit_ns, looks),
        }
        wait == Wait::HasLock
    }

    /// The task gives the lock back; whether its vCPU gives way to another that it has kicked. A task that
    /// does not hold it changes nothing.
    pub(super) fn release_lock(&mut self, lock: usize) -> bool {
        let lock = &mut self.vm.locks[lock];
        if lock.holder() != Some(self.task.task) {
            return false;
        }
        let System { kernels, processors, .. } = self.system;
        let (kernel, pcpu) = (self.on.kernel, self.pcpu);
        let Released { next, kicked } = lock.release(self.task.task, |task| {
            let cpu = kernels[kernel][task].last_cpu;
            let there = kernels[CpuRef { kernel, cpu }].pcpu?;
            let line_ns = processors.hardware().line_transfer_ns(pcpu, there);
            processors.spins_now(kernels, kernel, task).then_some(line_ns)
        });
        kernels[self.task].spin.release_lock();
        if let Some(next) = next {
            let next_state = &mut kernels[kernel][next];
            next_state.spin.get_lock();
            let there = CpuRef { kernel, cpu: next_state.last_cpu };
            let spinning = lock.waiting().filter(|&task| processors.spins_now(kernels, kernel, task));
            let watching = 1 + spinning.count();
            let released_ns = processors[pcpu].settled_ns.max(self.now_ns);
            processors.go_on(kernels, there, next, pcpu, released_ns, watching as u32);
        }
        settle_waiters(self.system, lock, kernel, next.is_some(), self.now_ns);
        let kicked = kicked.map(|halted| {
            halted.map(|halted| CpuRef { kernel, cpu: self.system.kernels[kernel][halted].last_cpu })
        });
        for there in kicked.into_iter().flatten() {
            self.system.paravirt.lock_kicks += 1;
            self.system.kick_halted(there, self.on, self.now_ns);
        }
        self.system.kernels[kernel].paravirt().kick_yields
            && kicked.into_iter().flatten().any(|to| self.system.yield_to_kicked(self.on, to, self.now_ns))
    }
}

impl<O: Observer> Simulation<'_, O> {
    /// The task on the processor has spun for long, or has a reason to look at its lock.
    pub(super) fn spins_for_long(&mut self, pcpu: CpuId, now_ns: u64) {
        self.system.processors.settle(&mut self.system.kernels, pcpu, now_ns);
        let Some((on, task)) = self.system.processors.executing(pcpu) else { return };
        let spin = self.system.kernels[task].spin;
        if spin.left_ns() != Some(0) {
            return self.system.pause_loop_exit(pcpu, now_ns);
        }
        let vm = self.system.kernels[task].vm;
        let lock = &mut self.vms[vm.index()].locks[spin.lock()];
        let kernel = &self.system.kernels[task.kernel];
        let wait = match spin.is_to_look() {
            true => lock.look(task.task, |before| is_preempted(kernel, before)),
            false => lock.spun_out(task.task),
        };
        let limit_ns = limit_ns(&self.system, wait);
        self.system.events += 1;
        let System { kernels, processors, .. } = &mut self.system;
        let has_lock = wait == Wait::HasLock;
        match has_lock {
            true => kernels[task].spin.get_lock(),
            false => kernels[task].spin.looked(limit_ns),
        }
        processors[pcpu].burst_end_ns = NEVER;
        processors.rerate(kernels, pcpu);
        settle_waiters(&mut self.system, lock, task.kernel, has_lock, now_ns);
        if wait == Wait::Halts {
            self.halt_in_lock(on, pcpu, task.task, now_ns);
        }
    }

    /// The task waits for a lock without a pCPU from now on. The one behind it sees that soon.
    fn halt_in_lock(&mut self, on: CpuRef, pcpu: CpuId, task: TaskId, now_ns: u64) {
        let state = &self.system.kernels[on.kernel][task];
        let (vm, lock) = (state.vm, state.spin.lock());
        let lock = &mut self.vms[vm.index()].locks[lock];
        if !self.system.halt(on, pcpu, now_ns) {
            lock.stays_awake(task);
            // Handled, the interrupt takes it back to where it halts early again.
            let kernel = &self.system.kernels[on.kernel];
            let limit_ns = match lock.is_early(task, |before| is_preempted(kernel, before)) {
                true => self.system.processors.hardware().prev_check_ns(),
                false => limit_ns(&self.system, Wait::Spins),
            };
            let System { kernels, processors, .. } = &mut self.system;
            return processors.change_spin(kernels, on.kernel, task, now_ns, |spin| spin.restart(limit_ns));
        }
        self.system.paravirt.lock_halts += 1;
        is_noticed_behind(&mut self.system, lock, TaskRef { kernel: on.kernel, task }, now_ns);
    }

    /// vCPUs have lost their pCPUs, which waiters behind theirs notice.
    #[inline]
    pub(super) fn notice_preempted(&mut self, now_ns: u64) {
        while let Some(task) = self.system.preempted_waiters.pop() {
            let state = &self.system.kernels[task];
            let (vm, lock) = (state.vm, state.spin.lock());
            if let Some(lock) = self.vms[vm.index()].locks.get(lock) {
                is_noticed_behind(&mut self.system, lock, task, now_ns);
            }
        }
    }
}

/// The waiter behind the task, which has halted or is preempted, sees that soon, if it spins.
fn is_noticed_behind<O>(system: &mut System<O>, lock: &SpinLock, task: TaskRef, now_ns: u64) {
    if lock.rules() == LockRules::PvHybrid
        && let Some(behind) = lock.spinning_behind(task.task)
    {
        let System { kernels, processors, .. } = system;
        let check_ns = processors.hardware().prev_check_ns();
        processors.change_spin(kernels, task.kernel, behind, now_ns, |spin| spin.limit(check_ns));
    }
}

/// Whether the waiter behind that one, of a guest with this kernel, halts because it is preempted.
fn is_preempted(kernel: &Kernel, before: TaskId) -> bool {
    kernel.paravirt().waits_early_behind(&kernel[kernel[before].last_cpu])
}

/// After a change at the lock: a new head of the queue spins for the whole of its time, and those that stand
/// in no line, but have to by now, look at the lock.
fn settle_waiters<O>(system: &mut System<O>, lock: &SpinLock, kernel: usize, is_new_head: bool, now_ns: u64) {
    let limit_ns = limit_ns(system, Wait::Spins);
    let System { kernels, processors, .. } = system;
    if is_new_head && let Some(head) = lock.spinning_head() {
        processors.change_spin(kernels, kernel, head, now_ns, |spin| spin.restart(limit_ns));
    }
    if lock.crowd_has_to_queue() {
        for &task in lock.crowd() {
            processors.change_spin(kernels, kernel, task, now_ns, Spin::look);
        }
    }
}

/// How long a waiter spins, ns.
fn limit_ns<O>(system: &System<O>, wait: Wait) -> u64 {
    match wait {
        Wait::Spins => system.processors.hardware().spin_threshold_ns(),
        Wait::Halts => 0,
        Wait::SpinsOn | Wait::HasLock => NEVER,
    }
}
