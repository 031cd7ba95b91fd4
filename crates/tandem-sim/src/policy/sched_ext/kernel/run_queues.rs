//! The places of tasks: the CPUs, the tasks that run on them and belong to them, and the queues in which
//! tasks wait.

use super::super::structures::{field, store, word};
use super::super::types::{
    RunQueue, SCX_ENQ_DSQ_PRIQ, SCX_ENQ_PREEMPT, SCX_KICK_IDLE, SCX_KICK_PREEMPT, SCX_SLICE_INF,
    SCX_TASK_QUEUED, Task,
};
use super::pending::Pending;
use super::queues::{NoQueue, Queues};
use super::tasks::{Custody, Tasks};
use tandem_ebpf::{Fault, State};
use tandem_machine::ids::TaskId;

/// The kernel's state of a CPU.
#[derive(Clone, Debug, Default)]
pub struct CpuState {
    pub curr: Option<TaskId>,
    /// Time up to which the running task is accounted, ns.
    pub accounted_ns: u64,
    /// Number of runnable tasks that belong to it.
    pub nr_running: usize,
    /// The CPU that was last picked from a set for a program that ran here.
    pub distributed: usize,
    pub is_idle: bool,
    /// A task of a higher class has it.
    pub is_taken: bool,
    pub is_offline: bool,
    /// `cpu_release` has been called for it, or would have been if the scheduler had it.
    pub is_released: bool,
    /// It is choosing its next task: it sees tasks that come into its queue without a kick.
    pub in_balance: bool,
    /// A task of the scheduler runs here, or has been chosen, or has woken here since none was.
    pub has_next: bool,
    /// Number of tasks in its local queue that must run at once.
    pub immediate_count: usize,
    /// Its task was switched in with an infinite slice (`SCX_RQ_CAN_STOP_TICK`).
    pub can_stop_tick: bool,
    /// The structure of its run queue.
    pub rq: u64,
    /// Address of its steal time, if programs read it; else 0.
    pub steal: u64,
}

impl CpuState {
    /// The state before the scheduler is loaded, or loaded again.
    pub fn without_scheduler(before: &Self) -> Self {
        let Self { is_idle, is_taken, is_offline, is_released, .. } = *before;
        Self { is_idle, is_taken, is_offline, is_released, ..Self::default() }
    }

    /// Whether no task runs on it, and one could.
    pub fn idles(&self) -> bool {
        self.curr.is_none() && !self.is_away()
    }

    /// Whether the scheduler does not have it at present.
    pub fn is_away(&self) -> bool {
        self.is_taken || self.is_offline
    }
}

/// Tasks, CPUs and queues.
#[derive(Debug)]
pub struct RunQueues {
    pub(super) tasks: Tasks,
    pub(super) cpus: Vec<CpuState>,
    pub(super) queues: Queues,
    pub(super) pending: Pending,
    /// The structure of the idle task.
    pub(super) idle_task: u64,
}

impl RunQueues {
    /// The state without tasks and queues.
    pub fn new(cpus: Vec<CpuState>, queues: Queues, pending: Pending) -> Self {
        Self { tasks: Tasks::new(), cpus, queues, pending, idle_task: 0 }
    }

    pub fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    pub fn tasks_mut(&mut self) -> &mut Tasks {
        &mut self.tasks
    }

    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    pub fn queues_mut(&mut self) -> &mut Queues {
        &mut self.queues
    }

    pub fn pending_mut(&mut self) -> &mut Pending {
        &mut self.pending
    }

    #[inline]
    pub fn cpu(&self, cpu: usize) -> &CpuState {
        &self.cpus[cpu]
    }

    #[inline]
    pub fn cpu_mut(&mut self, cpu: usize) -> &mut CpuState {
        &mut self.cpus[cpu]
    }

    /// Makes the structures that programs see of a CPU, on which no task runs.
    pub fn prepare_cpu(&mut self, state: &mut State, cpu: usize, rq: u64) -> Result<(), Fault> {
        store(&mut state.memory, rq, field!(RunQueue, cpu), cpu as u64)?;
        store(&mut state.memory, rq, field!(RunQueue, curr), self.idle_task)?;
        store(&mut state.memory, rq, field!(RunQueue, idle), self.idle_task)?;
        self.cpus[cpu].rq = rq;
        Ok(())
    }

    /// A task is runnable and belongs to a CPU.
    pub fn begin_queued(&mut self, state: &mut State, task: TaskId, cpu: usize) {
        self.move_to_cpu(state, task, cpu);
        self.tasks[task].is_queued = true;
        self.cpus[cpu].nr_running += 1;
        self.tasks.change_flags(state, task, SCX_TASK_QUEUED, true);
    }

    /// A task that belonged to a CPU is no longer runnable.
    pub fn end_queued(&mut self, state: &mut State, task: TaskId, cpu: usize) {
        self.tasks[task].is_queued = false;
        self.cpus[cpu].nr_running -= 1;
        self.tasks.change_flags(state, task, SCX_TASK_QUEUED, false);
    }

    /// Charges the running task of a CPU for the time since it was charged last (`update_curr_scx()`).
    pub fn account(&mut self, state: &mut State, cpu: usize, now_ns: u64) {
        let Some(task) = self.cpus[cpu].curr else { return };
        let ran_ns = now_ns - std::mem::replace(&mut self.cpus[cpu].accounted_ns, now_ns);
        let Some(block) = self.tasks.block(state, task) else { return };
        let sum = word(block, field!(Task, se.sum_exec_runtime));
        *sum = (u64::from_le_bytes(*sum) + ran_ns).to_le_bytes();
        let slice = word(block, field!(Task, scx.slice));
        let slice_ns = u64::from_le_bytes(*slice);
        if slice_ns != SCX_SLICE_INF {
            *slice = slice_ns.saturating_sub(ran_ns).to_le_bytes();
        }
    }

    /// Sets the running task of a CPU.
    pub fn set_current(&mut self, state: &mut State, cpu: usize, task: Option<TaskId>) {
        let (offset, bytes) = field!(RunQueue, curr);
        let address = task.map_or(self.idle_task, |task| self.tasks[task].address);
        let _ = state.memory.store(self.cpus[cpu].rq + offset, bytes, address);
        if let Some(before) = self.cpus[cpu].curr {
            self.tasks.set(state, before, field!(Task, on_cpu), 0);
        }
        if let Some(task) = task {
            self.tasks.set(state, task, field!(Task, on_cpu), 1);
        }
        self.cpus[cpu].curr = task;
    }

    /// The position of a queue that a program names for a task; if it does not exist, that of the global
    /// queue, with a complaint.
    pub fn queue_named(&mut self, id: u64, task: TaskId, local: usize) -> usize {
        let cpu = self.tasks[task].cpu;
        let message = match self.queues.named(id, local, cpu) {
            Ok(position) => return position,
            Err(NoQueue::OfCpu(cpu)) => format!("a task was sent to CPU {cpu}, which does not exist"),
            Err(NoQueue::Own(id)) => {
                format!("there is no dispatch queue {id:#x} for a task to be inserted into")
            }
        };
        self.pending.complain(message);
        self.queues.global_of(cpu)
    }

    /// The position of the global queue of the node where a task is.
    pub fn global_queue(&self, task: TaskId) -> usize {
        self.queues.global_of(self.tasks[task].cpu)
    }

    /// Adds a task that is in no queue to one; if that is the local queue of a CPU that the task may not use,
    /// adds it to the global one, with a complaint.
    pub fn join(&mut self, state: &mut State, task: TaskId, mut position: usize, flags: u64) {
        if self.queues.is_local(position)
            && self.tasks[task].cpu != position
            && !self.tasks.may_run(state, task, position)
        {
            let who = self.tasks.in_words(state, task);
            self.pending.complain(format!("{who} was sent to CPU {position}, where it may not run"));
            position = self.global_queue(task);
        }
        if self.queues.is_local(position) && self.cpus[position].is_offline {
            position = self.global_queue(task);
        }
        let vtime = self.tasks.get(state, task, field!(Task, scx.dsq_vtime));
        let place = match self.queues.join(state, position, task, vtime, flags) {
            Ok(place) => place,
            Err(message) => return self.pending.complain(message),
        };
        self.tasks[task].custody = Custody::Queue(position, place);
        self.tasks[task].direct = None;
        self.tasks.set(state, task, field!(Task, scx.dsq), self.queues[position].address);
        if self.queues.is_local(position) {
            self.note_immediate(state, task, position, flags);
            self.joined_local(state, task, position, flags);
        }
    }

    /// A task has come into the local queue of a CPU: it belongs there now, and the CPU may have to
    /// reschedule.
    fn joined_local(&mut self, state: &mut State, task: TaskId, cpu: usize, flags: u64) {
        self.move_to_cpu(state, task, cpu);
        if self.cpus[cpu].in_balance || self.cpus[cpu].is_away() {
            return;
        }
        let curr = self.cpus[cpu].curr;
        if let Some(curr) = curr.filter(|&curr| flags & SCX_ENQ_PREEMPT != 0 && curr != task) {
            self.tasks.set_slice_ns(state, curr, 0);
        }
        if curr.is_none() || flags & SCX_ENQ_PREEMPT != 0 {
            self.pending.reschedule(cpu);
        }
    }

    /// A task belongs to the run queue of a CPU from now on.
    pub fn move_to_cpu(&mut self, state: &mut State, task: TaskId, cpu: usize) {
        let own = &mut self.tasks[task];
        let from = std::mem::replace(&mut own.cpu, cpu);
        if from != cpu {
            if own.is_queued {
                self.cpus[from].nr_running -= 1;
                self.cpus[cpu].nr_running += 1;
            }
            self.tasks.add(state, task, field!(Task, se.nr_migrations), 1);
            self.tasks.set(state, task, field!(Task, thread_info.cpu), cpu as u64);
            self.tasks.set(state, task, field!(Task, wake_cpu), cpu as u64);
        }
    }

    /// Carries out the request of `select_cpu` or `enqueue`; returns whether there was one.
    pub fn insert_directly(&mut self, state: &mut State, task: TaskId, flags: u64) -> bool {
        let Some((queue, own_flags)) = self.tasks[task].direct.take() else { return false };
        let position = self.queue_named(queue, task, self.tasks[task].cpu);
        self.join(state, task, position, own_flags | flags);
        true
    }

    /// Removes a task from its queue, if it is in one.
    pub fn leave_queue(&mut self, state: &mut State, task: TaskId) {
        self.leave_queue_after(state, task, 0);
    }

    /// The same after a look at so many tasks there under the same lock.
    fn leave_queue_after(&mut self, state: &mut State, task: TaskId, visited: u32) {
        if let Custody::Queue(position, place) =
            std::mem::replace(&mut self.tasks[task].custody, Custody::None)
        {
            self.queues.leave(state, position, place, visited);
            if self.tasks[task].is_immediate && self.queues.is_local(position) {
                self.cpus[position].immediate_count -= 1;
            }
            self.tasks.set(state, task, field!(Task, scx.dsq), 0);
        }
    }

    /// Whether a task runs, on the CPU to which it belongs.
    pub fn runs(&self, task: TaskId) -> bool {
        self.cpus[self.tasks[task].cpu].curr == Some(task)
    }

    /// Whether a task is in the queue at a position.
    pub fn is_in_queue(&self, task: TaskId, position: usize) -> bool {
        matches!(self.tasks[task].custody, Custody::Queue(at, _) if at == position)
    }

    /// Moves the first task of a queue that may run on the CPU into its local queue
    /// (`scx_bpf_dsq_move_to_local()`).
    pub fn move_first(&mut self, state: &mut State, position: usize, cpu: usize, flags: u64) -> bool {
        let tasks = &self.tasks;
        let Some((task, visited)) = self.queues.find(position, |task| tasks.may_run(state, task, cpu)) else {
            return false;
        };
        self.leave_queue_after(state, task, visited);
        self.join(state, task, cpu, flags & !SCX_ENQ_DSQ_PRIQ);
        true
    }

    /// Sends the kicks that programs asked for.
    pub fn send_kicks(&mut self, state: &mut State) {
        let kicks = self.pending.take_kicks();
        for &(cpu, flags) in &kicks {
            if self.cpus[cpu].is_away() {
                continue;
            }
            let curr = self.cpus[cpu].curr;
            if flags & SCX_KICK_IDLE != 0 {
                if curr.is_none() {
                    self.pending.reschedule(cpu);
                }
                continue;
            }
            if let Some(curr) = curr.filter(|_| flags & SCX_KICK_PREEMPT != 0) {
                self.tasks.set_slice_ns(state, curr, 0);
            }
            self.pending.reschedule(cpu);
        }
        self.pending.reuse_kicks(kicks);
    }
}
