//! The tasks of the scheduler: their structures, which programs see, and the kernel's other state of them.

use super::super::structures::{Field, TaskBlock, field, word};
use super::super::types::{SCX_SLICE_DFL, SignalStruct, Task};
use super::cgroups::{Belonging, USUAL_WEIGHT};
use super::number_map::NumberMap;
use super::queue::QueueKey;
use super::sets::{self, CpuSets};
use crate::policy::TaskFacts;
use std::ops::{Index, IndexMut};
use tandem_ebpf::{Fault, State};
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

/// The task exits (`PF_EXITING`).
pub const PF_EXITING: u64 = 4;

/// A thread of the kernel (`PF_KTHREAD`).
pub const PF_KTHREAD: u64 = 0x20_0000;

/// Numbers of tasks that are never used twice: PIDs, which here are not either, apart from these.
const TIDS: u64 = 1 << 32;

/// Where a runnable task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Custody {
    /// Nowhere: it cannot run, or runs.
    None,
    /// In a dispatch queue, by position in [`Queues`](super::queues::Queues).
    Queue(usize, QueueKey),
    /// The scheduler keeps it in a structure of its own.
    Scheduler,
}

/// The kernel's state of a task beside the structure that programs see.
#[derive(Clone, Debug)]
pub struct TaskState {
    /// Address of its structure; 0 before it begins and after it has ended.
    pub address: u64,
    pub cpus_mask: u64,
    /// Address of the structure that it shares with the other threads of its process.
    pub signal: u64,
    pub pid: i32,
    /// The CPU to whose run queue it belongs.
    pub cpu: usize,
    pub custody: Custody,
    /// The request of `select_cpu` or `enqueue` to insert it after the callback: queue and flags.
    pub direct: Option<(u64, u64)>,
    /// It is runnable: queued or running.
    pub is_queued: bool,
    /// It must run at once where it was sent, or be enqueued again; cleared when it is enqueued anew
    /// (`SCX_TASK_IMMED`).
    pub is_immediate: bool,
}

impl TaskState {
    pub const NONE: Self = Self {
        address: 0,
        cpus_mask: 0,
        signal: 0,
        pid: 0,
        cpu: 0,
        custody: Custody::None,
        direct: None,
        is_queued: false,
        is_immediate: false,
    };
}

/// A task that begins.
#[derive(Clone, Copy, Debug)]
pub struct NewTask<'a> {
    pub facts: &'a TaskFacts,
    pub belonging: Belonging,
    /// The CPU that it comes from.
    pub cpu: CpuId,
    /// Its start, by the clock that programs see, ns.
    pub clock_ns: u64,
}

/// All tasks. Indexing panics for a task that has never begun.
#[derive(Debug)]
pub struct Tasks {
    states: Vec<TaskState>,
    by_pid: NumberMap<i32, TaskId>,
    next_pid: i32,
}

impl Index<TaskId> for Tasks {
    type Output = TaskState;

    #[inline]
    fn index(&self, task: TaskId) -> &TaskState {
        &self.states[task.index()]
    }
}

impl IndexMut<TaskId> for Tasks {
    #[inline]
    fn index_mut(&mut self, task: TaskId) -> &mut TaskState {
        &mut self.states[task.index()]
    }
}

impl Tasks {
    pub fn new() -> Self {
        // Lower PIDs belong to the kernel and the init process.
        Self { states: Vec::new(), by_pid: NumberMap::default(), next_pid: 1000 }
    }

    /// Makes the structure of a task that begins, with the next PID; returns its address.
    pub fn begin(
        &mut self,
        state: &mut State,
        sets: &CpuSets,
        task: TaskId,
        new: NewTask<'_>,
    ) -> Result<u64, Fault> {
        if self.states.len() <= task.index() {
            self.states.resize(task.index() + 1, TaskState::NONE);
        }
        let NewTask { facts, belonging, cpu, clock_ns } = new;
        let address = state.memory.allocate(TaskBlock::SIZE + sets.bytes())?;
        let cpus_mask = address + TaskBlock::SIZE as u64;
        let pid = self.next_pid;
        self.next_pid += 1;
        self.by_pid.insert(pid, task);
        let prio = prio(facts.nice);
        let signal = match belonging.signal {
            0 => address + field!(TaskBlock, signal).0,
            shared => shared,
        };
        self[task] = TaskState { address, cpus_mask, signal, pid, cpu: cpu.index(), ..TaskState::NONE };
        for (field, value) in [
            (field!(Task, pid), pid as u64),
            (field!(Task, tgid), pid as u64),
            (field!(Task, thread_info.cpu), cpu.index() as u64),
            (field!(Task, wake_cpu), cpu.index() as u64),
            (field!(Task, recent_used_cpu), cpu.index() as u64),
            (field!(Task, prio), prio),
            (field!(Task, static_prio), prio),
            (field!(Task, normal_prio), prio),
            (field!(Task, policy), facts.policy.number().into()),
            (field!(Task, cpus_ptr), cpus_mask),
            (field!(Task, group_leader), address),
            (field!(Task, real_parent), address),
            (field!(Task, parent), address),
            // Any address stands for an address space.
            (field!(Task, mm), if facts.is_kernel_thread { 0 } else { sets.possible() }),
            (field!(Task, flags), if facts.is_kernel_thread { PF_KTHREAD } else { 0 }),
            (field!(Task, start_time), clock_ns),
            (field!(Task, start_boottime), clock_ns),
            (field!(Task, cgroups), belonging.css_set),
            (field!(Task, signal), signal),
            (field!(Task, scx.tid), TIDS | pid as u64),
            (field!(Task, scx.slice), SCX_SLICE_DFL),
            (field!(Task, scx.weight), cgroup_weight(facts.weight)),
            (field!(Task, scx.sticky_cpu), u64::MAX),
            (field!(Task, scx.holding_cpu), u64::MAX),
            (field!(TaskBlock, number), task.index() as u64),
            (field!(TaskBlock, cgroup), belonging.cgroup),
            (field!(TaskBlock, address), address),
        ] {
            self.set(state, task, field, value);
        }
        count_thread(state, signal, 1)?;
        self.set_affinity(state, sets, task, &facts.hard_affinity)?;
        Ok(address)
    }

    /// Sets the CPUs that a task may use.
    pub fn set_affinity(
        &self,
        state: &mut State,
        sets: &CpuSets,
        task: TaskId,
        cpus: &CpuMask,
    ) -> Result<(), Fault> {
        sets.write(state, self[task].cpus_mask, cpus)?;
        self.set(state, task, field!(Task, nr_cpus_allowed), cpus.count() as u64);
        Ok(())
    }

    /// Sets the weight and the nice value of a task; returns the weight that the scheduler sees.
    pub fn set_weight(&self, state: &mut State, task: TaskId, facts: &TaskFacts) -> u64 {
        let (prio, weight) = (prio(facts.nice), cgroup_weight(facts.weight));
        for field in [field!(Task, prio), field!(Task, static_prio), field!(Task, normal_prio)] {
            self.set(state, task, field, prio);
        }
        self.set(state, task, field!(Task, scx.weight), weight);
        weight
    }

    /// Frees the structure of a task that has ended.
    pub fn end(&mut self, state: &mut State, sets: &CpuSets, task: TaskId) {
        self.set(state, task, field!(TaskBlock, address), 0);
        let TaskState { address, signal, pid, .. } = std::mem::replace(&mut self[task], TaskState::NONE);
        count_thread(state, signal, -1).expect("the kernel's own structures are in memory");
        self.by_pid.remove(&pid);
        state.forget(address);
        state.memory.free(address, TaskBlock::SIZE + sets.bytes());
    }

    /// Sets the PID of the next task; returns the value before.
    pub fn set_next_pid(&mut self, pid: i32) -> i32 {
        std::mem::replace(&mut self.next_pid, pid)
    }

    /// The tasks that exist.
    pub fn known(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.all().filter(|&task| self[task].address != 0)
    }

    /// The tasks that exist, and the numbers of those that have ended.
    pub fn all(&self) -> impl Iterator<Item = TaskId> + use<> {
        (0..self.states.len()).map(TaskId::from)
    }

    /// The state of a task; `None` if it has never begun.
    pub fn state(&self, task: TaskId) -> Option<&TaskState> {
        self.states.get(task.index())
    }

    /// A task in an error: by its PID, and whether it is one of the kernel's own.
    pub fn in_words(&self, state: &State, task: TaskId) -> String {
        let is_kernel_thread = self.get(state, task, field!(Task, flags)) & PF_KTHREAD != 0;
        let what = if is_kernel_thread { ", a thread of the kernel," } else { "" };
        format!("task {}{what}", self[task].pid)
    }

    /// The address of the task with a PID; 0 if there is none.
    pub fn address_of_pid(&self, pid: i32) -> u64 {
        self.by_pid.get(&pid).map_or(0, |&task| self[task].address)
    }

    /// The address of the task with a number that is never used twice; 0 if there is none.
    pub fn address_of_tid(&self, tid: u64) -> u64 {
        let pid = tid.checked_sub(TIDS).and_then(|pid| i32::try_from(pid).ok());
        pid.map_or(0, |pid| self.address_of_pid(pid))
    }

    /// The task whose structure is at an address.
    #[inline]
    pub fn at(&self, state: &State, address: u64) -> Result<TaskId, Fault> {
        let (offset, bytes) = field!(TaskBlock, number);
        let number = state.memory.load(address.wrapping_add(offset), bytes).unwrap_or(u64::MAX);
        match self.states.get(number as usize) {
            Some(task) if task.address == address && address != 0 => Ok(TaskId::from(number as usize)),
            _ => Err(no_task(address)),
        }
    }

    /// A task's structure.
    #[inline]
    pub fn block<'s>(&self, state: &'s mut State, task: TaskId) -> Option<&'s mut [u8; TaskBlock::SIZE]> {
        state.memory.slice_mut(self[task].address, TaskBlock::SIZE).ok()?.first_chunk_mut()
    }

    /// A field of a task's structure.
    #[inline]
    pub fn get(&self, state: &State, task: TaskId, (offset, bytes): Field) -> u64 {
        state.memory.load(self[task].address + offset, bytes).unwrap_or(0)
    }

    /// Writes a field of a task's structure.
    #[inline]
    pub fn set(&self, state: &mut State, task: TaskId, (offset, bytes): Field, value: u64) {
        let address = self[task].address + offset;
        // Its structure exists: only the kernel frees it.
        let _ = state.memory.store(address, bytes, value);
    }

    /// Adds to a field of a task's structure.
    #[inline]
    pub fn add(&self, state: &mut State, task: TaskId, field: Field, amount: u64) {
        let value = self.get(state, task, field).wrapping_add(amount);
        self.set(state, task, field, value);
    }

    /// A task waits for a CPU from now on (`sched_info_enqueue()`).
    #[inline]
    pub fn note_waits(&self, state: &mut State, task: TaskId, clock_ns: u64) {
        self.set(state, task, field!(Task, sched_info.last_queued), clock_ns);
    }

    /// A task gets a CPU (`sched_info_arrive()`).
    #[inline]
    pub fn note_arrives(&self, state: &mut State, task: TaskId, clock_ns: u64) {
        let Some(block) = self.block(state, task) else { return };
        let queued_ns = std::mem::take(word(block, field!(Task, sched_info.last_queued)));
        let waited_ns = match u64::from_le_bytes(queued_ns) {
            0 => 0,
            queued_ns => clock_ns.saturating_sub(queued_ns),
        };
        for (field, more) in
            [(field!(Task, sched_info.run_delay), waited_ns), (field!(Task, sched_info.pcount), 1)]
        {
            let place = word(block, field);
            *place = u64::from_le_bytes(*place).wrapping_add(more).to_le_bytes();
        }
        *word(block, field!(Task, sched_info.last_arrival)) = clock_ns.to_le_bytes();
    }

    /// Sets flags of sched_ext in a task's structure, or clears them.
    pub fn change_flags(&self, state: &mut State, task: TaskId, flag: u64, is_set: bool) {
        let flags = self.get(state, task, field!(Task, scx.flags));
        self.set(state, task, field!(Task, scx.flags), if is_set { flags | flag } else { flags & !flag });
    }

    /// The rest of a task's slice, ns.
    #[inline]
    pub fn slice_ns(&self, state: &State, task: TaskId) -> u64 {
        self.get(state, task, field!(Task, scx.slice))
    }

    #[inline]
    pub fn set_slice_ns(&self, state: &mut State, task: TaskId, slice_ns: u64) {
        self.set(state, task, field!(Task, scx.slice), slice_ns);
    }

    /// Gives a task the default slice.
    pub fn refill(&self, state: &mut State, task: TaskId) {
        self.set_slice_ns(state, task, SCX_SLICE_DFL);
    }

    /// Whether a task exits.
    pub fn exits(&self, state: &State, task: TaskId) -> bool {
        self.get(state, task, field!(Task, flags)) & PF_EXITING != 0
    }

    /// Whether a task's affinity has the CPU.
    pub fn may_run(&self, state: &State, task: TaskId, cpu: usize) -> bool {
        sets::contains(&state.memory, self[task].cpus_mask, cpu).unwrap_or(false)
    }
}

/// The kernel's priority of a task with that nice value.
fn prio(nice: i8) -> u64 {
    /// `MAX_RT_PRIO + 20`: that of a task with nice 0.
    const DEFAULT_PRIO: u64 = 120;
    DEFAULT_PRIO.wrapping_add_signed(nice.into())
}

/// The weight of a task that a scheduler sees (`sched_weight_to_cgroup()`).
fn cgroup_weight(weight: u32) -> u64 {
    /// Weight of a task at nice 0 in the simulator, and in Linux's fair scheduler.
    const NICE_0_WEIGHT: u64 = 1024;
    let weight = (u64::from(weight) * USUAL_WEIGHT + NICE_0_WEIGHT / 2) / NICE_0_WEIGHT;
    weight.clamp(1, 10_000)
}

/// Counts a thread of a process that begins (1) or ends (-1).
fn count_thread(state: &mut State, signal: u64, by: i64) -> Result<(), Fault> {
    let (offset, bytes) = field!(SignalStruct, nr_threads);
    let threads = state.memory.load(signal + offset, bytes)?.wrapping_add_signed(by);
    state.memory.store(signal + offset, bytes, threads)
}

#[cold]
fn no_task(address: u64) -> Fault {
    Fault(format!("address {address:#x} is not that of a task"))
}
