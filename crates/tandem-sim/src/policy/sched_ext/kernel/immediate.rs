//! Tasks that must run at once where they are sent, and are otherwise enqueued again (`SCX_ENQ_IMMED`, which
//! Linux has since 7.1).
//!
//! A task with that flag stays in the local queue of a CPU only as the first one there, and only while the
//! CPU has nothing else to run: neither a task of a higher class nor one of the scheduler's. If it runs and
//! is interrupted, it does not come back to the queue either. In all these cases the kernel enqueues it
//! again, with `SCX_ENQ_REENQ`. The flag holds until then.

use super::super::types::{
    SCX_ENQ_IMMED, SCX_ENQ_PREEMPT, SCX_TASK_IMMED, SCX_TASK_REENQ_IMMED, SCX_TASK_REENQ_KFUNC,
};
use super::run_queues::RunQueues;
use tandem_ebpf::State;
use tandem_machine::ids::TaskId;

impl RunQueues {
    /// A task has come into the local queue of a CPU: if it must run at once and cannot, it is enqueued again
    /// after the callback (`dsq_inc_nr()`).
    pub fn note_immediate(&mut self, state: &mut State, task: TaskId, cpu: usize, flags: u64) {
        if flags & SCX_ENQ_IMMED != 0 && !self.tasks[task].is_immediate {
            self.tasks[task].is_immediate = true;
            self.tasks.change_flags(state, task, SCX_TASK_IMMED, true);
        }
        if self.tasks[task].is_immediate {
            self.cpus[cpu].immediate_count += 1;
            if self.queues[cpu].len() > 1 || !self.is_open(cpu, flags) {
                self.pending.reenqueue(cpu, false);
            }
        }
    }

    /// A task is enqueued anew, and no longer has to run at once.
    pub fn end_immediate(&mut self, state: &mut State, task: TaskId) {
        if std::mem::take(&mut self.tasks[task].is_immediate) {
            self.tasks.change_flags(state, task, SCX_TASK_IMMED, false);
        }
    }

    /// Whether a CPU would run a task with these flags at once (`rq_is_open()`). Unknown, and so false, while
    /// the CPU decides.
    fn is_open(&self, cpu: usize, flags: u64) -> bool {
        let state = &self.cpus[cpu];
        let has_own = state.has_next || state.curr.is_some();
        state.in_balance || !state.is_away() && (!has_own || flags & SCX_ENQ_PREEMPT != 0)
    }

    /// Tasks in the local queue of a CPU that must run at once, and cannot, are enqueued again after the
    /// callback.
    pub fn recall_immediate(&mut self, cpu: usize) {
        if self.cpus[cpu].immediate_count > 0 {
            self.pending.reenqueue(cpu, false);
        }
    }

    /// The tasks of a queue that are enqueued again, and the reasons (`local_task_should_reenq()`).
    pub fn tasks_to_reenqueue(&self, position: usize, all: bool) -> Vec<(TaskId, u64)> {
        let is_open = self.queues.is_local(position) && self.is_open(position, 0);
        let tasks = self.queues[position].iter().enumerate();
        tasks
            .filter_map(|(at, task)| match self.tasks[task].is_immediate {
                true if at > 0 || !is_open => Some((task, SCX_TASK_REENQ_IMMED)),
                _ => all.then_some((task, SCX_TASK_REENQ_KFUNC)),
            })
            .collect()
    }
}
