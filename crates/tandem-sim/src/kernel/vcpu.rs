//! Where the levels meet: vCPUs, which are tasks of the host and CPUs of a guest.
//!
//! - A guest's CPU that has nothing to run *idles*: its vCPU blocks in the host, which may poll for a while
//!   first ([`super::halt_poll`]). A timer of the guest, or an interrupt that is on its way, becomes a timer
//!   of the host, which wakes the vCPU.
//! - A guest that *kicks* another of its CPUs leaves for the host, which sends an interrupt if that vCPU
//!   runs, wakes it if it is idle, and need do nothing if it waits for a pCPU: the vCPU will see it when it
//!   gets one.
//! - A vCPU that loses its pCPU takes the task on it along: the task stays the guest's running task and makes
//!   no progress. The guest learns of the time that was stolen afterwards, if its policy asks.
//!
//! - A vCPU whose task waits for a paravirtual spin lock *halts* after a while: it blocks in the host,
//!   although its guest's CPU has that task. An interrupt, or the kick of the unlock, wakes it.
//!
//! Limits: a guest's idle CPU halts at once; the guest itself does not poll.

use super::schedule::Waker;
use super::{CpuRef, System, TaskState, TimerTarget};
use crate::trace::Observer;
use tandem_machine::ids::CpuId;

impl<O: Observer> System<O> {
    /// Makes one CPU of a guest reschedule, from another or itself.
    pub(super) fn kick_vcpu(&mut self, cpu: CpuRef, by: CpuRef, now_ns: u64) {
        let sender = self.kernels[by].pcpu;
        let mut arrives_ns = now_ns;
        let mut is_remote = false;
        if let Some(pcpu) = sender
            && cpu != by
        {
            self.processors.charge_exit(&mut self.kernels, pcpu);
            self.returns_to_task(CpuRef::host(pcpu), now_ns);
            is_remote = self.kernels[cpu].pcpu.is_some();
            if is_remote {
                let sent_ns = self.processors[pcpu].settled_ns;
                arrives_ns = sent_ns + self.processors.hardware.ipi_ns();
            }
        }
        let state = &mut self.kernels[cpu];
        state.resched_ns = state.resched_ns.min(arrives_ns);
        state.kicked_from_afar |= is_remote;
        match state.pcpu {
            Some(pcpu) => self.processors.refresh(&self.kernels, pcpu),
            None => {
                let waker = if sender.is_some() { Waker::Task { sync: false } } else { Waker::Interrupt };
                self.wake_vcpu(cpu, now_ns, sender, waker);
            }
        }
    }

    /// Interrupts one CPU of a guest, which is not idle, from another one that runs: sent by way of the host,
    /// taken when that CPU has a pCPU.
    pub fn interrupt_vcpu(&mut self, by: CpuRef, cpu: CpuRef, what: TimerTarget, now_ns: u64) {
        let Some(sender) = self.kernels[by].pcpu else { return };
        self.processors.charge_exit(&mut self.kernels, sender);
        self.returns_to_task(CpuRef::host(sender), now_ns);
        // To one that the host polls for, no interrupt has to be sent.
        let polls = self.kernels[cpu].is_polled_for();
        let delivery_ns = if polls { 0 } else { self.processors.hardware.ipi_ns() };
        let arrives_ns = self.processors[sender].settled_ns.max(now_ns) + delivery_ns;
        self.arm(cpu, arrives_ns, what);
        match self.kernels[cpu].pcpu {
            Some(pcpu) => self.processors.refresh(&self.kernels, pcpu),
            // It may have halted as it waited for a lock.
            None => self.wake_vcpu(cpu, now_ns, Some(sender), Waker::Task { sync: false }),
        }
    }

    /// Wakes a vCPU if it is idle, from the pCPU `by`; if there is none, from the one where it ran last.
    pub fn wake_vcpu(&mut self, cpu: CpuRef, now_ns: u64, by: Option<CpuId>, waker: Waker) {
        let vcpu = self.kernels.vcpu_task(cpu);
        let state = &self.kernels.host()[vcpu];
        if state.state() == TaskState::Blocked {
            let by = by.unwrap_or(state.last_cpu);
            self.processors.settle(&mut self.kernels, by, now_ns);
            self.wake(vcpu, now_ns, CpuRef::host(by), waker);
        } else if self.kernels[cpu].is_polled_for() {
            self.wake_polling(cpu, now_ns, by);
        }
    }

    /// A timer of the CPU was handled. If it has come as a guest's CPU ran out of work, which has kept the
    /// vCPU from blocking, and has brought no work, the vCPU blocks now.
    #[inline]
    pub fn timer_handled(&mut self, cpu: CpuRef, now_ns: u64) {
        self.returns_to_task(cpu, now_ns);
        let state = &self.kernels[cpu];
        if let (false, None, Some(pcpu)) = (cpu.is_host(), state.current, state.pcpu) {
            self.vcpu_idles(cpu, pcpu, now_ns);
        }
    }

    /// A guest's CPU, which is on that pCPU, has nothing to run. Its vCPU blocks, unless something has come
    /// meanwhile.
    pub(super) fn vcpu_idles(&mut self, cpu: CpuRef, pcpu: CpuId, now_ns: u64) {
        self.halt(cpu, pcpu, now_ns);
    }

    /// Lets the vCPU, which is on that pCPU, sleep until its next interrupt; whether it does.
    pub fn halt(&mut self, cpu: CpuRef, pcpu: CpuId, now_ns: u64) -> bool {
        let next_ns = self.kernels[cpu].next_interrupt_ns();
        if next_ns <= now_ns {
            return false;
        }
        if !self.polls_first(cpu, pcpu, next_ns) {
            let idle_ns = self.processors[pcpu].settled_ns;
            self.sleep_until(cpu, pcpu, next_ns, now_ns);
            // The guest's own code on the way there is no sleep.
            let vcpu = self.kernels.vcpu_task(cpu);
            self.kernels.host_mut()[vcpu].sleep_counts_from(idle_ns);
        }
        true
    }

    /// Wakes a CPU of a guest that has halted as it waited for a lock, from another that runs
    /// (`kvm_kick_cpu()`, `xen_qlock_kick()`).
    pub fn kick_halted(&mut self, cpu: CpuRef, by: CpuRef, now_ns: u64) {
        let Some(sender) = self.kernels[by].pcpu else { return };
        self.processors.charge_exit(&mut self.kernels, sender);
        self.wake_vcpu(cpu, now_ns, Some(sender), Waker::Task { sync: false });
    }
}
