//! The cycle of callbacks: the kernel's actions, and its calls of the scheduler, as tasks wake, run and stop.

use super::kernel::{Custody, Purpose};
use super::scheduler::Scheduler;
use super::settings::KernelVersion;
use super::structures::field;
use super::types::{
    SCX_ENQ_HEAD, SCX_ENQ_LAST, SCX_ENQ_REENQ, SCX_OPS_ENQ_EXITING, SCX_OPS_ENQ_LAST,
    SCX_TASK_REENQ_PREEMPTED, SCX_TASK_REENQ_REASON_MASK, Task,
};
use tandem_ebpf::Kernel;
use tandem_machine::ids::TaskId;

/// Number of rounds of `dispatch` that insert only tasks which cannot run here, before the CPU gives up
/// (`SCX_DSP_MAX_LOOPS`).
const DISPATCH_ROUNDS_MAX: usize = 32;
/// Rounds in which tasks of a local queue are enqueued again and come back to it
/// (`SCX_REENQ_LOCAL_MAX_REPEAT`).
const REENQUEUE_ROUNDS_MAX: usize = 256;

/// The next task of a CPU.
pub(super) enum Balance {
    /// The running task goes on.
    Keep,
    /// The first of its local queue.
    Local,
    Nothing,
}

impl Scheduler {
    /// Gives a runnable task to the scheduler, or puts it where it must go (`do_enqueue_task()`).
    pub fn give(&mut self, task: TaskId, flags: u64) {
        let callback = self.kernel.callbacks().enqueue;
        let exits_by_callback = self.kernel.callbacks().has(SCX_OPS_ENQ_EXITING);
        let (queues, state) = self.queues();
        queues.end_immediate(state, task);
        if queues.insert_directly(state, task, flags) {
            return;
        }
        let cpu = queues.tasks()[task].cpu;
        if queues.tasks().exits(state, task) && !exits_by_callback {
            queues.tasks().refill(state, task);
            return queues.join(state, task, cpu, flags);
        }
        if callback.is_none() {
            queues.tasks().refill(state, task);
            let global = queues.global_queue(task);
            return queues.join(state, task, global, flags);
        }
        queues.tasks_mut()[task].custody = Custody::Scheduler;
        let address = self.address(task);
        self.call(callback, Purpose::Place(task), &[address, flags]);
        let (queues, state) = self.queues();
        if queues.tasks()[task].direct.is_some() {
            queues.tasks_mut()[task].custody = Custody::None;
            queues.insert_directly(state, task, flags);
        }
    }

    /// Enqueues a task again; the flags give the reason.
    fn give_again(&mut self, task: TaskId, reason: u64) {
        self.set_reason(task, reason);
        self.give(task, SCX_ENQ_REENQ);
        self.set_reason(task, 0);
    }

    fn set_reason(&mut self, task: TaskId, reason: u64) {
        if self.kernel.version() >= KernelVersion::V7_3 {
            let (queues, state) = self.queues();
            let flags =
                queues.tasks().get(state, task, field!(Task, scx.flags)) & !SCX_TASK_REENQ_REASON_MASK;
            queues.tasks().set(state, task, field!(Task, scx.flags), flags | reason);
        }
    }

    /// Puts a task that ran and has slice left at the head of the local queue; one that must run at once is
    /// enqueued again instead (`put_prev_task_scx()`).
    pub fn put_aside(&mut self, task: TaskId, cpu: usize) {
        let (queues, state) = self.queues();
        match queues.tasks()[task].is_immediate {
            true => self.give_again(task, SCX_TASK_REENQ_PREEMPTED),
            false => queues.join(state, task, cpu, SCX_ENQ_HEAD),
        }
    }

    /// A task becomes runnable on a CPU (`enqueue_task_scx()`).
    pub fn make_runnable(&mut self, task: TaskId, cpu: usize, flags: u64) {
        self.note_runnable(task, cpu, flags);
        self.give(task, flags);
        // An idle CPU searches for work when a task comes to it, no matter where that waits.
        let queues = self.kernel.run_queues_mut();
        if queues.cpu(cpu).idles() {
            queues.cpu_mut(cpu).has_next = true;
            queues.pending_mut().reschedule(cpu);
        }
    }

    /// A task is runnable and belongs to a CPU.
    fn note_runnable(&mut self, task: TaskId, cpu: usize, flags: u64) {
        let clock_ns = self.kernel.clock_ns();
        let (queues, state) = self.queues();
        queues.begin_queued(state, task, cpu);
        queues.tasks().note_waits(state, task, clock_ns);
        let address = self.address(task);
        self.call(self.kernel.callbacks().runnable, Purpose::Other, &[address, flags]);
    }

    /// Resumes, on the same CPU, a task that was made quiescent while it ran.
    pub fn go_on_running(&mut self, task: TaskId, cpu: usize) {
        let now_ns = self.kernel.now_ns();
        self.note_runnable(task, cpu, 0);
        let (queues, state) = self.queues();
        queues.set_current(state, cpu, Some(task));
        queues.cpu_mut(cpu).accounted_ns = now_ns;
        let address = self.address(task);
        self.call(self.kernel.callbacks().running, Purpose::Other, &[address]);
    }

    /// A task is no longer runnable, or is about to move (`dequeue_task_scx()`).
    pub fn make_quiescent(&mut self, task: TaskId, flags: u64) {
        let (kernel, state) = self.parts();
        let queues = kernel.run_queues_mut();
        if !queues.tasks()[task].is_queued {
            return;
        }
        let cpu = queues.tasks()[task].cpu;
        let was_kept = queues.tasks()[task].custody == Custody::Scheduler;
        let runs = queues.runs(task);
        queues.leave_queue(state, task);
        kernel.timers_mut().forget(task);
        if runs {
            kernel.account(state, cpu);
        }
        let address = self.address(task);
        if was_kept {
            self.call(self.kernel.callbacks().dequeue, Purpose::Other, &[address, flags]);
        }
        if runs {
            self.call(self.kernel.callbacks().stopping, Purpose::Other, &[address, 0]);
        }
        self.call(self.kernel.callbacks().quiescent, Purpose::Other, &[address, flags]);
        let (queues, state) = self.queues();
        queues.end_queued(state, task, cpu);
    }

    /// Chooses the next task of a CPU, which may be the running one (`balance_one()`).
    pub fn balance(&mut self, cpu: usize, previous: Option<TaskId>) -> Balance {
        let callback = self.kernel.callbacks().dispatch;
        if self.keeps(previous) {
            return Balance::Keep;
        }
        if self.has_local(cpu) {
            return Balance::Local;
        }
        if callback.is_some() {
            for _ in 0..DISPATCH_ROUNDS_MAX {
                let address = previous.map_or(0, |task| self.address(task));
                self.call(callback, Purpose::Dispatch, &[self.kernel.cpu_argument(cpu), address]);
                let (kernel, state) = self.parts();
                let inserted = kernel.carry_out(state);
                if self.keeps(previous) {
                    return Balance::Keep;
                }
                if self.has_local(cpu) {
                    return Balance::Local;
                }
                if inserted == 0 || self.has_failed() {
                    break;
                }
            }
        }
        match previous {
            Some(_) if !self.kernel.callbacks().has(SCX_OPS_ENQ_LAST) => Balance::Keep,
            _ => Balance::Nothing,
        }
    }

    /// Whether the task that ran goes on because it has slice left.
    fn keeps(&mut self, previous: Option<TaskId>) -> bool {
        let (queues, state) = self.queues();
        previous.is_some_and(|task| queues.tasks().slice_ns(state, task) > 0)
    }

    /// Whether the local queue of a CPU has a task, or gets one from the global queue.
    fn has_local(&mut self, cpu: usize) -> bool {
        let (queues, state) = self.queues();
        let global = queues.queues().global_of(cpu);
        !queues.queues()[cpu].is_empty() || queues.move_first(state, global, cpu, 0)
    }

    /// Puts back the task that has run, because another one or none comes next (`put_prev_task_scx()`).
    pub fn put_back(&mut self, cpu: usize, task: TaskId, goes_idle: bool) {
        let put_back_ns = self.settings.put_back_ns;
        let (kernel, state) = self.parts();
        kernel.account(state, cpu);
        let address = self.address(task);
        self.call(self.kernel.callbacks().stopping, Purpose::Other, &[address, 1]);
        let clock_ns = self.kernel.clock_ns();
        let (queues, state) = self.queues();
        queues.tasks().add(state, task, field!(Task, nivcsw), 1);
        queues.tasks().note_waits(state, task, clock_ns);
        queues.set_current(state, cpu, None);
        if queues.tasks().slice_ns(state, task) > 0 {
            return self.put_aside(task, cpu);
        }
        if goes_idle || put_back_ns == 0 {
            return self.give(task, if goes_idle { SCX_ENQ_LAST } else { 0 });
        }
        // It is in no queue until the decision is over: CPUs that decide at the same time do not find it.
        let at_ns = self.kernel.now_ns() + put_back_ns;
        self.kernel.timers_mut().return_at(at_ns, task);
    }

    /// A CPU begins or stops idling, or continues to idle (not a `change`) after a search for work.
    pub fn note_idle(&mut self, cpu: usize, idles: bool, change: bool) {
        let (kernel, state) = self.parts();
        kernel.note_idle(state, cpu, idles);
        if change {
            let callback = self.kernel.callbacks().update_idle;
            let arguments = [self.kernel.cpu_argument(cpu), u64::from(idles)];
            self.call(callback, Purpose::Other, &arguments);
        }
    }

    /// Moves a task away from a CPU that it runs on and may no longer use, as the kernel's stopper does;
    /// returns whether it did.
    pub fn leave_if_forbidden(&mut self, task: TaskId, cpu: usize) -> bool {
        let (kernel, state) = self.parts();
        if kernel.run_queues().tasks().may_run(state, task, cpu) {
            return false;
        }
        let to = kernel.allowed_cpu(state, task, cpu);
        self.make_quiescent(task, 0);
        let (queues, state) = self.queues();
        queues.set_current(state, cpu, None);
        self.make_runnable(task, to, 0);
        true
    }

    /// Enqueues tasks of queues again if the scheduler has asked for that, or they must run at once and
    /// cannot (`reenq_local()`).
    pub fn reenqueue(&mut self) {
        for _ in 0..REENQUEUE_ROUNDS_MAX {
            let asked = self.kernel.run_queues_mut().pending_mut().take_reenqueues();
            if asked.is_empty() {
                return;
            }
            for (position, all) in asked {
                let (queues, state) = self.queues();
                let tasks = queues.tasks_to_reenqueue(position, all);
                for &(task, _) in &tasks {
                    queues.leave_queue(state, task);
                }
                for (task, reason) in tasks {
                    self.give_again(task, reason);
                }
            }
        }
        self.kernel.run_queues_mut().pending_mut().take_reenqueues();
        self.fail(format!("SCX_ENQ_REENQ on SCX_DSQ_LOCAL repeated {REENQUEUE_ROUNDS_MAX} times"));
    }
}
