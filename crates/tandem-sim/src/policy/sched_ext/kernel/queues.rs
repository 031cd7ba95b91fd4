//! All dispatch queues: local ones by CPU, global ones by node, then the scheduler's own.

use super::super::structures::{field, store};
use super::super::types::{
    DispatchQueue, SCX_DSQ_FLAG_BUILTIN, SCX_DSQ_GLOBAL, SCX_DSQ_LOCAL, SCX_DSQ_LOCAL_CPU_MASK,
    SCX_DSQ_LOCAL_ON, SCX_ENQ_DSQ_PRIQ, SCX_ENQ_HEAD, SCX_ENQ_PREEMPT,
};
use super::number_map::NumberMap;
use super::queue::{Order, Queue, QueueKey};
use crate::policy::SharedLock;
use std::ops::Index;
use std::sync::Arc;
use tandem_ebpf::{Fault, State};
use tandem_machine::Machine;
use tandem_machine::ids::{CpuId, TaskId};

/// Most queues of a scheduler's own: what they take has a bound, as on a real machine.
const OWN_MAX: usize = 1 << 20;

/// The queues. Indexed by position.
#[derive(Debug)]
pub struct Queues {
    machine: Arc<Machine>,
    queues: Vec<Queue>,
    /// Positions of the scheduler's own, by number.
    own: NumberMap<u64, usize>,
    /// Positions of queues that were destroyed: the next ones take them.
    free: Vec<usize>,
    /// Number of queued tasks that were visited, or skipped, under the locks of queues.
    visited: u64,
    /// Locks of queues of no CPU that were taken since the last time: the position of each, how often in succession, and
    /// the tasks that were looked at.
    locked: Vec<(usize, u32, u32)>,
}

impl Index<usize> for Queues {
    type Output = Queue;

    #[inline]
    fn index(&self, position: usize) -> &Queue {
        &self.queues[position]
    }
}

impl Queues {
    /// No queues yet; earlier visits count.
    pub fn new(machine: &Arc<Machine>, visited: u64) -> Self {
        Self {
            machine: Arc::clone(machine),
            queues: Vec::new(),
            own: NumberMap::default(),
            free: Vec::new(),
            visited,
            locked: Vec::new(),
        }
    }

    /// Makes the local queue of the next CPU.
    pub fn prepare_local(&mut self, state: &mut State, cpu: usize) -> Result<(), Fault> {
        debug_assert_eq!(self.queues.len(), cpu, "local queues are in the order of CPUs");
        self.add(state, SCX_DSQ_LOCAL_ON | cpu as u64).map(drop)
    }

    /// Makes the global queues, after the local ones.
    pub fn prepare_global(&mut self, state: &mut State) -> Result<(), Fault> {
        (0..self.machine.node_count()).try_for_each(|_| self.add(state, SCX_DSQ_GLOBAL).map(drop))
    }

    fn add(&mut self, state: &mut State, id: u64) -> Result<usize, Fault> {
        let address = state.memory.allocate(DispatchQueue::SIZE)?;
        store(&mut state.memory, address, field!(DispatchQueue, id), id)?;
        self.queues.push(Queue::new(id, address));
        Ok(self.queues.len() - 1)
    }

    /// Makes a queue of the scheduler's own; returns 0 or an error number.
    pub fn create(&mut self, state: &mut State, id: u64) -> Result<u64, Fault> {
        const ENOMEM: i64 = -12;
        const EEXIST: i64 = -17;
        const EINVAL: i64 = -22;
        if id & SCX_DSQ_FLAG_BUILTIN != 0 {
            return Ok(EINVAL as u64);
        }
        if self.own.contains_key(&id) {
            return Ok(EEXIST as u64);
        }
        let position = match self.free.pop() {
            Some(position) => {
                // It goes on counting arrivals: an iteration over the old queue does not see the tasks of the new one.
                let queue = &mut self.queues[position];
                queue.id = id;
                store(&mut state.memory, queue.address, field!(DispatchQueue, id), id)?;
                position
            }
            None if self.own.len() >= OWN_MAX => return Ok(ENOMEM as u64),
            None => self.add(state, id)?,
        };
        self.own.insert(id, position);
        Ok(0)
    }

    /// Ends a queue of the scheduler's own, which must be empty.
    pub fn destroy(&mut self, id: u64) -> Result<(), String> {
        match self.own.get(&id) {
            Some(&position) if self.queues[position].is_empty() => {
                self.own.remove(&id);
                self.free.push(position);
                Ok(())
            }
            Some(_) => Err(format!("dispatch queue {id:#x} was destroyed with tasks in it")),
            None => Err(format!("there is no dispatch queue {id:#x} to destroy")),
        }
    }

    /// The position of a queue of the scheduler's own.
    pub fn own(&self, id: u64) -> Option<usize> {
        self.own.get(&id).copied()
    }

    /// The position of the global queue of a CPU's node.
    pub fn global_of(&self, cpu: usize) -> usize {
        self.machine.cpu_count() + self.machine.cpu(CpuId::from(cpu)).node.index()
    }

    /// Whether the position is that of the local queue of a CPU, which has the same number.
    #[inline]
    pub fn is_local(&self, position: usize) -> bool {
        position < self.machine.cpu_count()
    }

    /// Whether there is a queue at that position.
    #[inline]
    pub fn has(&self, position: usize) -> bool {
        position < self.queues.len()
    }

    /// Whether a number means the local queue of a CPU, which may not exist.
    pub fn names_local(id: u64) -> bool {
        id == SCX_DSQ_LOCAL || id & SCX_DSQ_LOCAL_ON == SCX_DSQ_LOCAL_ON
    }

    /// The position of a queue by its number: one of the scheduler's own, a CPU's, or a global one. `local`
    /// is the CPU for a local queue without a CPU number, `global` the CPU whose node gives the global queue.
    pub fn named(&self, id: u64, local: usize, global: usize) -> Result<usize, NoQueue> {
        match id {
            SCX_DSQ_LOCAL => Ok(local),
            id if id & SCX_DSQ_LOCAL_ON == SCX_DSQ_LOCAL_ON => {
                let cpu = (id & SCX_DSQ_LOCAL_CPU_MASK) as usize;
                if self.is_local(cpu) { Ok(cpu) } else { Err(NoQueue::OfCpu(cpu)) }
            }
            SCX_DSQ_GLOBAL => Ok(self.global_of(global)),
            id => self.own(id).ok_or(NoQueue::Own(id)),
        }
    }

    /// Adds a task to a queue, by its virtual time if the flags say so; returns its key there.
    pub fn join(
        &mut self,
        state: &mut State,
        position: usize,
        task: TaskId,
        vtime: u64,
        flags: u64,
    ) -> Result<QueueKey, String> {
        let by_vtime = flags & SCX_ENQ_DSQ_PRIQ != 0;
        let queue = &mut self.queues[position];
        let order = if by_vtime { Order::Vtime } else { Order::Arrival };
        if by_vtime && queue.id & SCX_DSQ_FLAG_BUILTIN != 0 {
            return Err("a virtual time was given for a queue of the kernel's own, which has no such order"
                .to_owned());
        }
        if queue.order().is_some_and(|other| other != order) {
            return Err(format!("dispatch queue {:#x} has tasks by virtual time and by arrival", queue.id));
        }
        let place = match order {
            Order::Vtime => queue.insert(task, vtime),
            Order::Arrival => queue.push(task, flags & (SCX_ENQ_HEAD | SCX_ENQ_PREEMPT) != 0),
        };
        self.visited += u64::from(by_vtime);
        // The way down a balanced tree.
        let looked_at = if by_vtime { self.queues[position].len().ilog2() } else { 0 };
        self.lock(position, looked_at);
        self.show_length(state, position);
        Ok(place)
    }

    /// Removes a task from a queue, after a look at so many under the same lock.
    pub fn leave(&mut self, state: &mut State, position: usize, place: QueueKey, visited: u32) {
        self.queues[position].remove(place);
        self.lock(position, visited);
        self.show_length(state, position);
    }

    fn show_length(&self, state: &mut State, position: usize) {
        let queue = &self.queues[position];
        let (offset, bytes) = field!(DispatchQueue, nr);
        let _ = state.memory.store(queue.address + offset, bytes, queue.len() as u64);
    }

    /// The first task of a queue that fits, for it to be removed, and how many were looked at: it and those before it,
    /// which count as visited.
    pub fn find(&mut self, position: usize, fits: impl Fn(TaskId) -> bool) -> Option<(TaskId, u32)> {
        let queue = &self.queues[position];
        let found = queue.iter().enumerate().find(|&(_, task)| fits(task));
        let visited = found.map_or(queue.len(), |(passed, _)| passed + 1);
        self.visited += visited as u64;
        // The kernel looks whether there is any task before it takes the lock, and removes one under the same lock.
        if visited > 0 && found.is_none() {
            self.lock(position, visited as u32);
        }
        found.map(|(_, task)| (task, visited as u32))
    }

    /// The lock of a queue was taken, and so many tasks looked at.
    #[inline]
    fn lock(&mut self, position: usize, visited: u32) {
        if self.is_local(position) {
            return;
        }
        // An iteration takes it for each step: one entry for all of them.
        match self.locked.last_mut().filter(|(last, ..)| *last == position) {
            Some((_, times, so_far)) => {
                (*times, *so_far) = (times.saturating_add(1), so_far.saturating_add(visited));
            }
            None => self.locked.push((position, 1, visited)),
        }
    }

    /// The locks of queues of no CPU that were taken since the last time, by this CPU.
    pub fn take_locked(&mut self, cpu: CpuId) -> impl Iterator<Item = SharedLock> + '_ {
        let first = self.machine.cpu_count();
        self.locked.drain(..).map(move |(position, times, visited)| SharedLock {
            cpu,
            queue: (position - first) as u32,
            times,
            visited,
        })
    }

    /// Tasks of a queue were visited, or skipped, under its lock.
    #[inline]
    pub fn visit(&mut self, position: usize, tasks: usize) {
        self.visited += tasks as u64;
        self.lock(position, tasks as u32);
    }

    /// Number of queued tasks that were visited, or skipped, so far.
    pub fn visited(&self) -> u64 {
        self.visited
    }
}

/// A number that means no queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoQueue {
    /// The local queue of a CPU that does not exist.
    OfCpu(usize),
    /// One of the scheduler's own.
    Own(u64),
}
