//! CPUs that the scheduler loses to tasks of higher classes, or because they go offline, and that it gets
//! back.

use super::kernel::Purpose;
use super::scheduler::Scheduler;
use super::structures::{field, store};
use super::types::{CpuReleaseArgs, SCX_CPU_PREEMPT_RT, SCX_CPU_PREEMPT_STOP, Task};
use tandem_ebpf::{Fault, Kernel};
use tandem_machine::ids::TaskId;

/// What takes a CPU from the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taker {
    /// A real-time task.
    RealTime,
    /// The kernel, as the CPU goes offline.
    Hotplug,
}

impl Scheduler {
    /// A CPU is taken, on which `before` ran. If that can go on, it waits at the head of the local queue,
    /// with the rest of its slice (`put_prev_task_scx()`, `switch_class()`).
    pub fn taken(&mut self, cpu: usize, before: Option<TaskId>, can_go_on: bool, by: Taker) {
        let idled = std::mem::replace(&mut self.kernel.run_queues_mut().cpu_mut(cpu).is_idle, false);
        let previous = before.filter(|&task| can_go_on && !self.leave_if_forbidden(task, cpu));
        if let Some(task) = previous {
            let (kernel, state) = self.parts();
            kernel.account(state, cpu);
            let address = self.address(task);
            self.call(self.kernel.callbacks().stopping, Purpose::Other, &[address, 1]);
        }
        let (kernel, state) = self.parts();
        kernel.run_queues_mut().set_current(state, cpu, None);
        kernel.run_queues_mut().cpu_mut(cpu).is_taken = true;
        let result = kernel.show_intruder(state, cpu);
        self.check(result);
        if let Some(task) = previous {
            let (kernel, state) = self.parts();
            let to = kernel.allowed_cpu(state, task, cpu);
            let clock_ns = kernel.clock_ns();
            let queues = kernel.run_queues_mut();
            queues.tasks().add(state, task, field!(Task, nivcsw), 1);
            queues.tasks().note_waits(state, task, clock_ns);
            match queues.tasks().slice_ns(state, task) {
                // The stopper takes it to another CPU before this one decides again.
                _ if by == Taker::Hotplug => {
                    queues.move_to_cpu(state, task, to);
                    self.give(task, 0);
                }
                0 => self.give(task, 0),
                _ => self.put_aside(task, cpu),
            }
        }
        self.kernel.run_queues_mut().recall_immediate(cpu);
        if before.is_some() {
            self.release(cpu, by);
        }
        if idled {
            self.note_idle(cpu, false, true);
        }
        if by == Taker::Hotplug {
            self.push_away(cpu);
            // The idle task is the last to run there.
            self.kernel.run_queues_mut().cpu_mut(cpu).is_idle = true;
            self.note_idle(cpu, true, true);
        }
    }

    /// Calls `cpu_release`, once until the scheduler gets the CPU back.
    fn release(&mut self, cpu: usize, by: Taker) {
        if std::mem::replace(&mut self.kernel.run_queues_mut().cpu_mut(cpu).is_released, true) {
            return;
        }
        let Some(callback) = self.kernel.callbacks().cpu_release else { return };
        let reason = match by {
            Taker::RealTime => SCX_CPU_PREEMPT_RT,
            Taker::Hotplug => SCX_CPU_PREEMPT_STOP,
        };
        let (kernel, state) = self.parts();
        let arguments = || -> Result<u64, Fault> {
            let arguments = state.memory.allocate(CpuReleaseArgs::SIZE)?;
            store(&mut state.memory, arguments, field!(CpuReleaseArgs, reason), reason)?;
            store(&mut state.memory, arguments, field!(CpuReleaseArgs, task), kernel.intruder())?;
            Ok(arguments)
        }();
        match arguments {
            Ok(arguments) => {
                self.call(Some(callback), Purpose::Other, &[cpu as u64, arguments]);
                self.instance.state_mut().memory.free(arguments, CpuReleaseArgs::SIZE);
            }
            Err(fault) => self.fail(fault.to_string()),
        }
    }

    /// A CPU decides again: if it had been taken, calls `cpu_acquire` (`balance_one()`).
    pub fn acquire(&mut self, cpu: usize) {
        let (queues, state) = self.queues();
        if std::mem::take(&mut queues.cpu_mut(cpu).is_taken) {
            queues.set_current(state, cpu, None);
        }
        if std::mem::take(&mut queues.cpu_mut(cpu).is_released) {
            self.call(self.kernel.callbacks().cpu_acquire, Purpose::Other, &[cpu as u64, 0]);
        }
    }

    /// A CPU goes offline: the tasks in its local queue go to other CPUs (`__balance_push_cpu_stop()`), and
    /// its other tasks no longer belong to it.
    fn push_away(&mut self, cpu: usize) {
        let (kernel, state) = self.parts();
        let pushed: Vec<TaskId> = kernel.run_queues().queues()[cpu].iter().collect();
        for task in kernel.run_queues().tasks().all() {
            let own = &kernel.run_queues().tasks()[task];
            if own.is_queued && own.cpu == cpu {
                let to = kernel.allowed_cpu(state, task, cpu);
                let queues = kernel.run_queues_mut();
                if pushed.contains(&task) {
                    queues.leave_queue(state, task);
                }
                queues.move_to_cpu(state, task, to);
            }
        }
        for task in pushed {
            self.give(task, 0);
        }
    }
}
