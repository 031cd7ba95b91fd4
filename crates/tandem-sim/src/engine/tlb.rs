//! TLB shootdowns: a change of a process's memory map that all CPUs that run it must know of.
//!
//! The CPU that makes the change interrupts the others that run tasks of the process, each by an exit to the
//! host, and spins until the last of them has answered. A vCPU that has no pCPU answers when it gets one: the
//! others burn theirs until then, unless the guest knows better ([`Shootdown`]). The guest's own kernel does
//! not preempt a task that waits.
//!
//! Limits: a CPU that ran a task of the process last, but idles or runs another process, is not interrupted,
//! as if it had dropped the map at once (Linux drops it at the first such interrupt). A TLB that is flushed
//! costs nothing afterwards.

use super::program::Execution;
use crate::kernel::{CpuRef, Leaving, Shootdown, System, TimerTarget};
use crate::trace::Observer;
use tandem_machine::ids::{CpuId, TaskId};

impl<O: Observer> Execution<'_, O> {
    /// Interrupts the other CPUs that run tasks of the task's family; whether it has to wait for answers.
    pub(super) fn flush_tlbs(&mut self) -> bool {
        let on = self.on;
        let (mut answers, mut is_any_preempted) = (0, false);
        let kernel = &self.system.kernels[on.kernel];
        let (cpus, paravirt) = (kernel.cpus().len(), kernel.paravirt());
        for cpu in (0..cpus).map(CpuId::from).filter(|&cpu| cpu != on.cpu) {
            let kernel = &self.system.kernels[on.kernel];
            let family = &kernel[self.task.task].lineage;
            if !kernel[cpu].current.is_some_and(|at| kernel[at].lineage.is_same_family(family)) {
                continue;
            }
            let is_preempted = paravirt.seen_preempted.holds(&kernel[cpu]);
            if is_preempted && paravirt.shootdown == Shootdown::SkipsPreempted {
                self.system.paravirt.flush_skips += 1;
                continue;
            }
            let there = CpuRef { cpu, ..on };
            self.system.interrupt_vcpu(on, there, TimerTarget::Flush(self.task.task), self.now_ns);
            answers += 1;
            is_any_preempted |= is_preempted;
        }
        let waits = self.task().spin.await_answers(answers);
        // A single CPU is interrupted by another function, which does not look.
        if answers > 1 && is_any_preempted && paravirt.shootdown == Shootdown::Yields {
            self.system.paravirt.flush_yields += 1;
            self.system.decide(CpuRef::host(self.pcpu), self.now_ns, Leaving::Yield);
        }
        waits
    }
}

/// A CPU of the sender's kernel has flushed its TLB; the sender goes on if that was the last answer.
pub(super) fn answer_flush<O>(system: &mut System<O>, on: CpuRef, sender: TaskId, now_ns: u64) {
    let System { kernels, processors, .. } = system;
    let state = &mut kernels[on.kernel][sender];
    if !state.spin.get_answer() {
        return;
    }
    let there = CpuRef { cpu: state.last_cpu, ..on };
    let Some(here) = kernels[on].pcpu else { return };
    let answered_ns = processors[here].settled_ns.max(now_ns);
    processors.go_on(kernels, there, sender, here, answered_ns, 1);
}
