//! TLB shootdowns: a change of a process's memory map that all CPUs that run it must know of.
//!
//! The CPU that makes the change interrupts the others that run tasks of the process, each by an exit to the host, and
//! spins until the last of them has answered. A vCPU that has no pCPU answers when it gets one: the others burn theirs
//! until then. The guest's own kernel does not preempt who waits.
//!
//! Limits: a CPU that ran a task of the process last, but idles or runs another process, is not interrupted, as if it had
//! dropped the map at once (Linux drops it at the first such interrupt).

use super::simulation::Simulation;
use crate::kernel::{CpuRef, TimerTarget};
use crate::trace::Observer;
use tandem_machine::ids::{CpuId, TaskId};

impl<O: Observer> Simulation<'_, O> {
    /// Interrupts the other CPUs that run tasks of the same family as `task`, which is on the CPU `on`; whether it has to
    /// wait for answers.
    pub(super) fn flush_tlbs(&mut self, on: CpuRef, task: TaskId, now_ns: u64) -> bool {
        let kernel = &self.system.kernels[on.kernel];
        let family = kernel[task].family;
        let mut answers = 0;
        for cpu in (0..kernel.cpus().len()).map(CpuId::from).filter(|&cpu| cpu != on.cpu) {
            let kernel = &self.system.kernels[on.kernel];
            let runs_family = kernel[cpu].current.is_some_and(|at| kernel[at].family == family);
            if runs_family {
                self.system.interrupt_vcpu(
                    on,
                    CpuRef { kernel: on.kernel, cpu },
                    TimerTarget::Flush(task),
                    now_ns,
                );
                answers += 1;
            }
        }
        let state = &mut self.system.kernels[on.kernel][task];
        state.answers_missing = answers;
        state.spins = answers > 0;
        answers > 0
    }

    /// The CPU has flushed its TLB for the sender, who goes on if it was the last.
    pub(super) fn answer_flush(&mut self, on: CpuRef, sender: TaskId, now_ns: u64) {
        let kernel = &mut self.system.kernels[on.kernel];
        let state = &mut kernel[sender];
        state.answers_missing -= 1;
        if state.answers_missing > 0 {
            return;
        }
        state.spins = false;
        let waits_on = state.last_cpu;
        let Some(here) = self.system.kernels[on].pcpu else { return };
        let answered_ns = self.system.processors.settled_ns(here).max(now_ns);
        self.system.processors.go_on(
            &self.system.kernels,
            CpuRef { kernel: on.kernel, cpu: waits_on },
            sender,
            here,
            answered_ns,
            1,
        );
    }
}
