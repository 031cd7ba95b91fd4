//! How tasks get into dispatch queues, and from one into another.

use super::kernel::{Custody, Insertion, Purpose, ScxKernel, field, store};
use super::masks;
use super::queue::Order;
use super::types::{
    self, DispatchQueue, SCX_DSQ_FLAG_BUILTIN, SCX_DSQ_GLOBAL, SCX_DSQ_LOCAL, SCX_DSQ_LOCAL_CPU_MASK,
    SCX_DSQ_LOCAL_ON, SCX_ENQ_DSQ_PRIQ, SCX_ENQ_HEAD, SCX_ENQ_PREEMPT, SCX_SLICE_DFL, Task,
};
use tandem_ebpf::{Fault, State};
use tandem_machine::ids::{CpuId, TaskId};

impl ScxKernel {
    /// The position of a queue that a program names for a task; what it names is gone or never was: the global queue, and a
    /// complaint.
    fn queue_named(&mut self, id: u64, task: TaskId, local: usize) -> usize {
        if id == SCX_DSQ_LOCAL {
            return local;
        }
        if id & SCX_DSQ_LOCAL_ON == SCX_DSQ_LOCAL_ON {
            let cpu = (id & SCX_DSQ_LOCAL_CPU_MASK) as usize;
            if cpu < self.cpu_count {
                return cpu;
            }
            self.complain(format!("a task was sent to CPU {cpu}, which does not exist"));
            return self.global_queue(task);
        }
        if id == SCX_DSQ_GLOBAL {
            return self.global_queue(task);
        }
        match self.own_queues.get(&id) {
            Some(&queue) => queue,
            None => {
                self.complain(format!("there is no dispatch queue {id:#x} for a task to be inserted into"));
                self.global_queue(task)
            }
        }
    }

    /// The global queue of the node where a task is.
    pub fn global_queue(&self, task: TaskId) -> usize {
        self.global_queue_of(self.tasks[task.index()].cpu)
    }

    pub fn global_queue_of(&self, cpu: usize) -> usize {
        self.cpu_count + self.machine.cpu(CpuId::from(cpu)).node.index()
    }

    /// Notes that a program wants a task in a queue; it gets there when the callback is over.
    pub fn insert(
        &mut self,
        state: &mut State,
        task: u64,
        queue: u64,
        slice: u64,
        flags: u64,
    ) -> Result<bool, Fault> {
        let task = self.task_at(state, task)?;
        let Some(flags) = self.vetted(queue, flags) else { return Ok(false) };
        let slice = match slice {
            0 => self.slice_ns(state, task).max(1),
            slice => slice,
        };
        match self.purpose {
            Purpose::Place(placed) if placed == task => {
                if self.tasks[task.index()].direct.is_some() {
                    self.complain("a task was inserted twice in one callback");
                    return Ok(false);
                }
                self.set_slice_ns(state, task, slice);
                self.tasks[task.index()].direct = Some((queue, flags));
            }
            Purpose::Place(_) => {
                self.complain("`enqueue` or `select_cpu` of one task inserted another one");
                return Ok(false);
            }
            Purpose::Dispatch => {
                if self.insertions.len() >= self.callbacks.dispatch_max_batch {
                    self.complain("`dispatch` inserted more tasks than `dispatch_max_batch`");
                    return Ok(false);
                }
                self.set_slice_ns(state, task, slice);
                self.insertions.push(Insertion { task, queue, flags });
            }
            Purpose::Other => {
                self.complain("a task was inserted outside of `select_cpu`, `enqueue` and `dispatch`");
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Carries out what `dispatch` asked for; how many insertions that were.
    pub fn flush_insertions(&mut self, state: &mut State) -> usize {
        let insertions = std::mem::take(&mut self.insertions);
        for &Insertion { task, queue, flags } in &insertions {
            // It may have been dequeued, or inserted, meanwhile.
            if self.tasks[task.index()].custody == Custody::Scheduler {
                self.tasks[task.index()].custody = Custody::None;
                let position = self.queue_named(queue, task, self.cpu);
                self.join(state, task, position, flags);
            }
        }
        let count = insertions.len();
        self.insertions = insertions;
        self.insertions.clear();
        count
    }

    /// Carries out what `select_cpu` or `enqueue` asked for; whether it asked for anything.
    pub fn insert_directly(&mut self, state: &mut State, task: TaskId, flags: u64) -> bool {
        let Some((queue, own_flags)) = self.tasks[task.index()].direct.take() else { return false };
        let position = self.queue_named(queue, task, self.tasks[task.index()].cpu);
        self.join(state, task, position, own_flags | flags);
        true
    }

    /// Puts a task that is nowhere into a queue; one that is to go to the local queue of a CPU where it may not run goes to the
    /// global one, with a complaint.
    pub fn join(&mut self, state: &mut State, task: TaskId, mut position: usize, flags: u64) {
        if position < self.cpu_count
            && self.tasks[task.index()].cpu != position
            && !self.may_run(state, task, position)
        {
            let pid = self.tasks[task.index()].pid;
            self.complain(format!("task {pid} was sent to CPU {position}, where it may not run"));
            position = self.global_queue(task);
        }
        if position < self.cpu_count && self.cpus[position].is_offline {
            position = self.global_queue(task);
        }
        let vtime = self.get(state, task, field!(Task, scx.dsq_vtime));
        let by_vtime = flags & SCX_ENQ_DSQ_PRIQ != 0;
        let queue = &mut self.queues[position];
        let order = if by_vtime { Order::Vtime } else { Order::Arrival };
        if by_vtime && queue.id & SCX_DSQ_FLAG_BUILTIN != 0 {
            return self.complain(
                "a virtual time was given for a queue of the kernel's own, which has no such order",
            );
        }
        if queue.order().is_some_and(|other| other != order) {
            let id = queue.id;
            return self.complain(format!("dispatch queue {id:#x} has tasks by virtual time and by arrival"));
        }
        self.visited += u64::from(order == Order::Vtime);
        let place = match order {
            Order::Vtime => queue.insert(task, vtime),
            Order::Arrival => queue.push(task, flags & (SCX_ENQ_HEAD | SCX_ENQ_PREEMPT) != 0),
        };
        let address = queue.address;
        self.tasks[task.index()].custody = Custody::Queue(position, place);
        self.tasks[task.index()].direct = None;
        self.set(state, task, field!(Task, scx.dsq), address);
        self.count_queue(state, position);
        if position < self.cpu_count {
            self.note_immediate(state, task, position, flags);
            self.joined_local(state, task, position, flags);
        }
    }

    /// A task has come into the local queue of a CPU: it belongs there now, and the CPU may have to reschedule.
    fn joined_local(&mut self, state: &mut State, task: TaskId, cpu: usize, flags: u64) {
        self.move_to_cpu(state, task, cpu);
        if self.cpus[cpu].in_balance || self.cpus[cpu].is_away() {
            return;
        }
        let curr = self.cpus[cpu].curr;
        if let Some(curr) = curr.filter(|&curr| flags & SCX_ENQ_PREEMPT != 0 && curr != task) {
            self.set_slice_ns(state, curr, 0);
        }
        if curr.is_none() || flags & SCX_ENQ_PREEMPT != 0 {
            self.resched.push(CpuId::from(cpu));
        }
    }

    /// A task belongs to the run queue of a CPU from now on.
    pub fn move_to_cpu(&mut self, state: &mut State, task: TaskId, cpu: usize) {
        let own = &mut self.tasks[task.index()];
        let from = std::mem::replace(&mut own.cpu, cpu);
        if from != cpu {
            if own.is_queued {
                self.cpus[from].nr_running -= 1;
                self.cpus[cpu].nr_running += 1;
            }
            self.add(state, task, field!(Task, se.nr_migrations), 1);
            self.set(state, task, field!(Task, thread_info.cpu), cpu as u64);
            self.set(state, task, field!(Task, wake_cpu), cpu as u64);
        }
    }

    /// Takes a task out of the queue that it stands in, if it does.
    pub fn leave_queue(&mut self, state: &mut State, task: TaskId) {
        if let Custody::Queue(position, place) =
            std::mem::replace(&mut self.tasks[task.index()].custody, Custody::None)
        {
            self.queues[position].remove(place);
            if self.tasks[task.index()].is_immediate && position < self.cpu_count {
                self.cpus[position].immediate_count -= 1;
            }
            self.set(state, task, field!(Task, scx.dsq), 0);
            self.count_queue(state, position);
        }
    }

    fn count_queue(&mut self, state: &mut State, position: usize) {
        let queue = &self.queues[position];
        let (offset, bytes) = field!(DispatchQueue, nr);
        let _ = state.memory.store(queue.address + offset, bytes, queue.len() as u64);
    }

    pub fn may_run(&self, state: &State, task: TaskId, cpu: usize) -> bool {
        masks::contains(&state.memory, self.tasks[task.index()].cpus_mask, cpu).unwrap_or(false)
    }

    /// Moves the first task of a queue that may run on the CPU into its local queue (`scx_bpf_dsq_move_to_local()`).
    pub fn move_first(&mut self, state: &mut State, position: usize, cpu: usize, flags: u64) -> bool {
        let fits = |&task: &TaskId| self.may_run(state, task, cpu);
        let found = self.queues[position].iter().enumerate().find(|(_, task)| fits(task));
        let Some((passed, task)) = found else {
            self.visited += self.queues[position].len() as u64;
            return false;
        };
        self.visited += passed as u64 + 1;
        self.leave_queue(state, task);
        self.join(state, task, cpu, flags & !SCX_ENQ_DSQ_PRIQ);
        true
    }

    /// Moves a task that stands in a queue of an iteration into another queue (`scx_bpf_dsq_move()`); false: it has gone.
    pub fn move_iterated(
        &mut self,
        state: &mut State,
        task: TaskId,
        from: usize,
        to: u64,
        flags: u64,
    ) -> bool {
        if !matches!(self.tasks[task.index()].custody, Custody::Queue(at, _) if at == from) {
            return false;
        }
        let Some(flags) = self.vetted(to, flags) else { return false };
        let position = self.queue_named(to, task, self.cpu);
        if position < self.cpu_count && !self.may_run(state, task, position) {
            let pid = self.tasks[task.index()].pid;
            self.complain(format!("task {pid} was moved to CPU {position}, where it may not run"));
            return false;
        }
        self.leave_queue(state, task);
        self.join(state, task, position, flags);
        true
    }

    /// Gives a task the usual slice.
    pub fn refill(&mut self, state: &mut State, task: TaskId) {
        self.set_slice_ns(state, task, SCX_SLICE_DFL);
    }

    /// Makes a queue of the scheduler's own.
    pub fn create_queue(&mut self, state: &mut State, id: u64) -> Result<u64, Fault> {
        const EEXIST: i64 = -17;
        const EINVAL: i64 = -22;
        if id & SCX_DSQ_FLAG_BUILTIN != 0 {
            return Ok(EINVAL as u64);
        }
        if self.own_queues.contains_key(&id) {
            return Ok(EEXIST as u64);
        }
        let position = self.add_queue(state, id)?;
        self.own_queues.insert(id, position);
        Ok(0)
    }

    /// Adds a queue; its position.
    pub fn add_queue(&mut self, state: &mut State, id: u64) -> Result<usize, Fault> {
        let address = state.memory.allocate(DispatchQueue::SIZE)?;
        store(&mut state.memory, address, field!(DispatchQueue, id), id)?;
        self.queues.push(super::queue::Queue::new(id, address));
        Ok(self.queues.len() - 1)
    }

    /// Ends a queue of the scheduler's own, which must be empty.
    pub fn destroy_queue(&mut self, id: u64) {
        match self.own_queues.get(&id) {
            Some(&position) if self.queues[position].is_empty() => {
                self.own_queues.remove(&id);
            }
            Some(_) => self.complain(format!("dispatch queue {id:#x} was destroyed with tasks in it")),
            None => self.complain(format!("there is no dispatch queue {id:#x} to destroy")),
        }
    }

    /// The position of a queue by its number: one of the scheduler's own, a CPU's, or the global one of this CPU's node.
    pub fn queue_at(&self, id: u64) -> Option<usize> {
        match id {
            SCX_DSQ_LOCAL => Some(self.cpu),
            SCX_DSQ_GLOBAL => Some(self.global_queue_of(self.cpu)),
            id if id & SCX_DSQ_LOCAL_ON == SCX_DSQ_LOCAL_ON => {
                Some((id & SCX_DSQ_LOCAL_CPU_MASK) as usize).filter(|&cpu| cpu < self.cpu_count)
            }
            id => self.own_queues.get(&id).copied(),
        }
    }

    /// Sends the kicks that programs asked for.
    pub fn flush_kicks(&mut self, state: &mut State) {
        for at in 0..self.kicks.len() {
            let (cpu, flags) = self.kicks[at];
            if self.cpus[cpu].is_away() {
                continue;
            }
            let curr = self.cpus[cpu].curr;
            if flags & types::SCX_KICK_IDLE != 0 {
                if curr.is_none() {
                    self.resched.push(CpuId::from(cpu));
                }
                continue;
            }
            if let Some(curr) = curr.filter(|_| flags & types::SCX_KICK_PREEMPT != 0) {
                self.set_slice_ns(state, curr, 0);
            }
            self.resched.push(CpuId::from(cpu));
        }
        self.kicks.clear();
    }
}
