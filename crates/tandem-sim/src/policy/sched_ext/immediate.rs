//! Tasks that run at once where they are sent, or else are enqueued again (`SCX_ENQ_IMMED`, which Linux has since 7.1).
//!
//! A task with that flag stays in the local queue of a CPU only as the first one there, and only while the CPU has nothing else to
//! run: neither a task of a higher class nor one of the scheduler's. If it runs and is interrupted, it does not come back to the
//! queue either. In all these cases the scheduler is asked for it again, with `SCX_ENQ_REENQ`. The flag holds until then.

use super::SchedExt;
use super::kernel::{ScxKernel, field};
use super::settings::KernelVersion;
use super::types::{
    SCX_DSQ_LOCAL, SCX_DSQ_LOCAL_ON, SCX_ENQ_HEAD, SCX_ENQ_IMMED, SCX_ENQ_PREEMPT, SCX_ENQ_REENQ,
    SCX_OPS_ALWAYS_ENQ_IMMED, SCX_TASK_IMMED, SCX_TASK_REENQ_IMMED, SCX_TASK_REENQ_KFUNC,
    SCX_TASK_REENQ_PREEMPTED, SCX_TASK_REENQ_REASON_MASK, Task,
};
use tandem_ebpf::State;
use tandem_machine::ids::TaskId;

impl SchedExt {
    /// A task that ran and has slice left is put where it waits for the CPU: at the head of the local queue; one that is to run at
    /// once is enqueued again instead (`put_prev_task_scx()`).
    pub(super) fn put_aside(&mut self, task: TaskId, cpu: usize) {
        if self.kernel.tasks[task.index()].is_immediate {
            return self.give_again(task, SCX_TASK_REENQ_PREEMPTED);
        }
        if let Some((kernel, state)) = self.parts() {
            kernel.join(state, task, cpu, SCX_ENQ_HEAD);
        }
    }

    /// A task is enqueued again; its flags tell the scheduler why.
    pub(super) fn give_again(&mut self, task: TaskId, reason: u64) {
        self.tell_reason(task, reason);
        self.give(task, SCX_ENQ_REENQ);
        self.tell_reason(task, 0);
    }

    fn tell_reason(&mut self, task: TaskId, reason: u64) {
        let Some((kernel, state)) = self.parts() else { return };
        if kernel.version >= KernelVersion::V7_3 {
            let flags = kernel.get(state, task, field!(Task, scx.flags)) & !SCX_TASK_REENQ_REASON_MASK;
            kernel.set(state, task, field!(Task, scx.flags), flags | reason);
        }
    }
}

impl ScxKernel {
    /// The flags of an insertion as this kernel takes them; none, with a complaint, if it does not (`scx_vet_enq_flags()`).
    pub(super) fn vetted(&mut self, queue: u64, flags: u64) -> Option<u64> {
        if self.version < KernelVersion::V7_3 {
            return Some(flags & !SCX_ENQ_IMMED);
        }
        let is_local = queue == SCX_DSQ_LOCAL || queue & SCX_DSQ_LOCAL_ON == SCX_DSQ_LOCAL_ON;
        match (flags & SCX_ENQ_IMMED != 0, is_local) {
            (true, false) => {
                self.complain(format!("SCX_ENQ_IMMED was given for the dispatch queue {queue:#x} of no CPU"));
                None
            }
            (false, true) if self.callbacks.has(SCX_OPS_ALWAYS_ENQ_IMMED) => Some(flags | SCX_ENQ_IMMED),
            _ => Some(flags),
        }
    }

    /// A task has come into the local queue of a CPU: if it is to run at once and cannot, it is enqueued again when the callback is
    /// over (`dsq_inc_nr()`).
    pub(super) fn note_immediate(&mut self, state: &mut State, task: TaskId, cpu: usize, flags: u64) {
        if flags & SCX_ENQ_IMMED != 0 && !self.tasks[task.index()].is_immediate {
            self.tasks[task.index()].is_immediate = true;
            self.change_flags(state, task, SCX_TASK_IMMED, true);
        }
        if self.tasks[task.index()].is_immediate {
            self.cpus[cpu].immediate_count += 1;
            if self.queues[cpu].len() > 1 || !self.is_open(cpu, flags) {
                self.want_reenqueue(cpu, false);
            }
        }
    }

    /// A task is enqueued anew, and need not run at once any longer.
    pub(super) fn end_immediate(&mut self, state: &mut State, task: TaskId) {
        if std::mem::take(&mut self.tasks[task.index()].is_immediate) {
            self.change_flags(state, task, SCX_TASK_IMMED, false);
        }
    }

    /// Whether a CPU runs a task at once that comes with these flags (`rq_is_open()`). While it decides that is not known yet.
    fn is_open(&self, cpu: usize, flags: u64) -> bool {
        let state = &self.cpus[cpu];
        let has_own = state.has_next || state.curr.is_some();
        state.in_balance || !state.is_away() && (!has_own || flags & SCX_ENQ_PREEMPT != 0)
    }

    /// Those in the local queue of a CPU that were to run at once, and cannot, are enqueued again when the callback is over.
    pub(super) fn recall_immediate(&mut self, cpu: usize) {
        if self.cpus[cpu].immediate_count > 0 {
            self.want_reenqueue(cpu, false);
        }
    }

    /// Tasks of a queue are to be enqueued again when the callback is over; a second wish for it changes nothing.
    pub(super) fn want_reenqueue(&mut self, position: usize, all: bool) {
        match self.to_reenqueue.iter_mut().find(|(other, _)| *other == position) {
            Some((_, all_of_it)) => *all_of_it |= all,
            None => self.to_reenqueue.push((position, all)),
        }
    }

    /// Which tasks of a queue are enqueued again, and why (`local_task_should_reenq()`).
    pub(super) fn tasks_to_reenqueue(&self, position: usize, all: bool) -> Vec<(TaskId, u64)> {
        let is_open = position < self.cpu_count && self.is_open(position, 0);
        let tasks = self.queues[position].iter().enumerate();
        tasks
            .filter_map(|(at, task)| match self.tasks[task.index()].is_immediate {
                true if at > 0 || !is_open => Some((task, SCX_TASK_REENQ_IMMED)),
                _ => all.then_some((task, SCX_TASK_REENQ_KFUNC)),
            })
            .collect()
    }
}
