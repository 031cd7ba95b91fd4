//! What the model of sched_ext knows: tasks, CPUs, queues.

use super::cgroups::{CgroupState, Membership};
use super::number_map::NumberMap;
use super::queue::{Place, Queue};
use super::settings::{KernelVersion, SchedExtSettings};
use super::types::{self, SignalStruct, Task};
use crate::engine::random::{Entity, Stream};
use crate::program::Amount;
use std::sync::Arc;
use tandem_ebpf::{Fault, FunctionId, Image, Memory, State};
use tandem_machine::Machine;
use tandem_machine::ids::{CpuId, TaskId};

/// Age of the kernel when a run begins, ns: no clock that a program reads shows 0.
pub const BOOTED_NS: u64 = 1_000_000_000;

/// The structure of a task, and behind it what programs ask for by its address.
#[repr(C)]
pub struct TaskBlock {
    pub task: Task,
    /// The simulator's number of the task.
    pub number: u64,
    /// The address of its cgroup.
    pub cgroup: u64,
    /// Its own; 0 once the task has ended.
    pub address: u64,
    /// What it shares with the other threads of its process, if it has none.
    pub signal: SignalStruct,
}

impl TaskBlock {
    /// Bytes.
    pub const SIZE: usize = size_of::<Self>();
}

/// A field of a structure in memory: offset and bytes.
macro_rules! field {
    ($type:ty, $($field:ident).+) => {
        (std::mem::offset_of!($type, $($field).+) as u64, $crate::policy::sched_ext::kernel::size_of_field(
            |t: &$type| &t.$($field).+,
        ))
    };
}
pub(super) use field;

/// Bytes of the field that a function gives access to.
pub(super) const fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// A field of 64 bits in the structure of a task. Where it is is known to the compiler: this takes no check.
#[inline]
pub(super) fn word(block: &mut [u8; TaskBlock::SIZE], (offset, _): (u64, usize)) -> &mut [u8; 8] {
    block[offset as usize..].first_chunk_mut().expect("a field lies in the structure")
}

/// Writes a field of the structure at an address.
pub(super) fn store(
    memory: &mut Memory,
    structure: u64,
    (offset, bytes): (u64, usize),
    value: u64,
) -> Result<(), Fault> {
    memory.store(structure + offset, bytes, value)
}

/// Who has a task that can run and does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Custody {
    /// Nobody: it cannot run, or runs.
    None,
    /// It stands in a dispatch queue, by position in [`ScxKernel::queues`].
    Queue(usize, Place),
    /// The scheduler keeps it in a structure of its own.
    Scheduler,
}

/// What the kernel knows of a task beside the structure that programs see.
#[derive(Clone, Debug)]
pub struct TaskState {
    /// Of its structure; 0: it is not known yet, or has ended.
    pub address: u64,
    pub cpus_mask: u64,
    /// What it shares with the other threads of its process.
    pub signal: u64,
    pub pid: i32,
    /// The CPU to whose run queue it belongs.
    pub cpu: usize,
    pub custody: Custody,
    /// Where the scheduler wants it once `select_cpu` or `enqueue` is over: queue and flags.
    pub direct: Option<(u64, u64)>,
    /// It can run: queued or running.
    pub is_queued: bool,
    /// It is to run at once where it was sent, or to be enqueued again: until it is enqueued anew (`SCX_TASK_IMMED`).
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

/// What the kernel knows of a CPU.
#[derive(Clone, Debug, Default)]
pub struct CpuState {
    pub curr: Option<TaskId>,
    /// When the time of the running task was accounted last, ns.
    pub accounted_ns: u64,
    /// Tasks that belong to it and can run.
    pub nr_running: usize,
    /// The set's CPU that was given out last to a program that ran here.
    pub distributed: usize,
    pub is_idle: bool,
    /// A task of a higher class has it.
    pub is_taken: bool,
    pub is_offline: bool,
    /// The scheduler has been told, or would have been, that it has lost it.
    pub is_released: bool,
    /// It is choosing its next task: what comes into its queue is seen without a kick.
    pub in_balance: bool,
    /// A task of the scheduler's runs here, or has been chosen, or has woken here since none was.
    pub has_next: bool,
    /// Tasks in its local queue that are to run at once.
    pub immediate_count: usize,
    /// Its task was switched in with a slice that does not end (`SCX_RQ_CAN_STOP_TICK`).
    pub can_stop_tick: bool,
    pub rq: u64,
    /// Where its steal time is, if programs look at it; else 0.
    pub steal: u64,
}

/// What a program runs for, as far as functions of the kernel depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// `select_cpu` or `enqueue` of a task, which alone may be inserted, when the callback is over.
    Place(TaskId),
    /// `dispatch` on this CPU.
    Dispatch,
    /// Something else, on whose behalf nothing may be inserted.
    Other,
}

/// An insertion that `dispatch` asked for.
#[derive(Clone, Copy, Debug)]
pub struct Insertion {
    pub task: TaskId,
    pub queue: u64,
    pub flags: u64,
}

/// What comes late, or fails, by chance.
#[derive(Clone, Debug)]
pub struct Disturbances {
    stream: Stream,
    timer_delay_max_ns: u64,
    timer_failure_pct: u8,
    storage_failure_pct: u8,
}

impl Disturbances {
    pub fn new(settings: &SchedExtSettings, seed: u64) -> Self {
        Self {
            stream: Stream::new(seed, Entity::Disturbance, 0),
            timer_delay_max_ns: settings.timer_delay_max_ns,
            timer_failure_pct: settings.timer_failure_pct,
            storage_failure_pct: settings.storage_failure_pct,
        }
    }

    /// By how much the next timer expires late, ns.
    pub fn timer_delay_ns(&mut self) -> u64 {
        match self.timer_delay_max_ns {
            0 => 0,
            max_ns => self.stream.draw(Amount::Uniform(0, max_ns)),
        }
    }

    /// Whether the next start of a timer finds no memory.
    pub fn timer_fails(&mut self) -> bool {
        self.happens(self.timer_failure_pct)
    }

    /// Whether the next storage cannot be made.
    pub fn storage_fails(&mut self) -> bool {
        self.happens(self.storage_failure_pct)
    }

    /// What is off draws nothing: a run without it is the same as before there was such a thing.
    fn happens(&mut self, pct: u8) -> bool {
        pct > 0 && self.stream.draw(Amount::Uniform(0, 99)) < u64::from(pct)
    }
}

/// The callbacks that the scheduler has.
#[derive(Clone, Debug, Default)]
pub struct Callbacks {
    pub select_cpu: Option<FunctionId>,
    pub enqueue: Option<FunctionId>,
    pub dequeue: Option<FunctionId>,
    pub dispatch: Option<FunctionId>,
    pub tick: Option<FunctionId>,
    pub runnable: Option<FunctionId>,
    pub running: Option<FunctionId>,
    pub stopping: Option<FunctionId>,
    pub quiescent: Option<FunctionId>,
    pub yield_: Option<FunctionId>,
    pub set_weight: Option<FunctionId>,
    pub set_cpumask: Option<FunctionId>,
    pub update_idle: Option<FunctionId>,
    pub init_task: Option<FunctionId>,
    pub exit_task: Option<FunctionId>,
    pub enable: Option<FunctionId>,
    pub disable: Option<FunctionId>,
    pub cgroup_init: Option<FunctionId>,
    pub cgroup_exit: Option<FunctionId>,
    pub cgroup_set_weight: Option<FunctionId>,
    pub cgroup_set_bandwidth: Option<FunctionId>,
    pub cpu_online: Option<FunctionId>,
    pub cpu_offline: Option<FunctionId>,
    pub cpu_acquire: Option<FunctionId>,
    pub cpu_release: Option<FunctionId>,
    pub exit: Option<FunctionId>,
    pub init: Option<FunctionId>,
    pub flags: u64,
    /// Most insertions of one `dispatch`.
    pub dispatch_max_batch: usize,
    /// After which the kernel's watchdog unloads it, ns.
    pub timeout_ns: u64,
}

impl Callbacks {
    /// Of the first scheduler that the image defines; none if there is none.
    pub fn of(image: &Image) -> Option<Self> {
        const DEFAULT_BATCH: u64 = 32;
        let ops = image.struct_ops.first()?;
        let callback = |name: &str| ops.callbacks.get(name).copied();
        let number = |name: &str| ops.numbers.get(name).copied().unwrap_or(0);
        Some(Self {
            select_cpu: callback("select_cpu"),
            enqueue: callback("enqueue"),
            dequeue: callback("dequeue"),
            dispatch: callback("dispatch"),
            tick: callback("tick"),
            runnable: callback("runnable"),
            running: callback("running"),
            stopping: callback("stopping"),
            quiescent: callback("quiescent"),
            yield_: callback("yield"),
            set_weight: callback("set_weight"),
            set_cpumask: callback("set_cpumask"),
            update_idle: callback("update_idle"),
            init_task: callback("init_task"),
            exit_task: callback("exit_task"),
            enable: callback("enable"),
            disable: callback("disable"),
            cgroup_init: callback("cgroup_init"),
            cgroup_exit: callback("cgroup_exit"),
            cgroup_set_weight: callback("cgroup_set_weight"),
            cgroup_set_bandwidth: callback("cgroup_set_bandwidth"),
            cpu_online: callback("cpu_online"),
            cpu_offline: callback("cpu_offline"),
            cpu_acquire: callback("cpu_acquire"),
            cpu_release: callback("cpu_release"),
            exit: callback("exit"),
            init: callback("init"),
            flags: number("flags"),
            timeout_ns: match number("timeout_ms") {
                0 => SchedExtSettings::WATCHDOG_TIMEOUT_NS,
                timeout_ms => (timeout_ms * 1_000_000).min(SchedExtSettings::WATCHDOG_TIMEOUT_NS),
            },
            dispatch_max_batch: match number("dispatch_max_batch") {
                0 => DEFAULT_BATCH as usize,
                batch => batch as usize,
            },
        })
    }

    pub fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Whether the kernel keeps track of idle CPUs.
    pub fn builtin_idle(&self) -> bool {
        self.update_idle.is_none() || self.has(types::SCX_OPS_KEEP_BUILTIN_IDLE)
    }
}

/// The model's side of everything.
#[derive(Debug)]
pub struct ScxKernel {
    pub machine: Arc<Machine>,
    pub version: KernelVersion,
    pub callbacks: Callbacks,
    pub cpu_count: usize,
    /// Words of 64 bits of a set of CPUs.
    pub mask_words: usize,
    pub now_ns: u64,
    /// The CPU on which the program runs.
    pub cpu: usize,
    pub purpose: Purpose,
    pub tasks: Vec<TaskState>,
    pub by_pid: NumberMap<i32, TaskId>,
    pub next_pid: i32,
    pub cpus: Vec<CpuState>,
    /// Local queues by CPU, global queues by node, then the scheduler's own.
    pub queues: Vec<Queue>,
    /// Positions of the scheduler's own queues, by number.
    pub own_queues: NumberMap<u64, usize>,
    pub possible_mask: u64,
    pub online_mask: u64,
    pub idle_mask: u64,
    pub idle_core_mask: u64,
    pub has_smt: bool,
    /// The masks of each CPU's last-level cache and node, if the search for an idle CPU looks at them.
    pub llc_masks: Vec<u64>,
    pub node_masks: Vec<u64>,
    pub scratch_masks: [u64; 2],
    /// What `exit_task` is told: that the task was not cancelled.
    pub exit_task_args: u64,
    /// The structure of the task that runs where nothing else does.
    pub idle_task: u64,
    /// The structure of the task of a higher class that takes CPUs; 0 before one has.
    pub intruder: u64,
    /// What happens now comes from none of the tasks that run: one starts that comes from outside.
    pub from_outside: bool,
    /// The callback of a timer runs.
    pub in_timer: bool,
    /// The root first, parents before their children.
    pub cgroups: Vec<CgroupState>,
    /// By VM; none where tasks are not in VMs.
    pub memberships: Vec<Membership>,
    /// Kicks to be sent when the callback is over: CPU and flags.
    pub kicks: Vec<(usize, u64)>,
    /// CPUs that are to reschedule.
    pub resched: Vec<CpuId>,
    pub insertions: Vec<Insertion>,
    /// Queued tasks that were looked at, or passed by, under the locks of dispatch queues.
    pub visited: u64,
    /// Queues, by position, whose tasks are to be enqueued again: all of them, or those that were to run at once and cannot.
    pub to_reenqueue: Vec<(usize, bool)>,
    /// Timers that have been started: the token of each one's alarm by address, and the other way round.
    pub timers: NumberMap<u64, u32>,
    pub armed: NumberMap<u32, u64>,
    pub next_token: u32,
    /// Tasks that have run and are yet to be put into a queue, by the token of the alarm at which that happens.
    pub returning: Vec<(u32, TaskId)>,
    /// Alarms to be set: when, ns, and token.
    pub alarms: Vec<(u64, u32)>,
    pub random: u64,
    pub disturbances: Disturbances,
    /// What the scheduler complained of, or did wrong.
    pub error: Option<String>,
}

impl ScxKernel {
    /// The task whose structure is at an address.
    #[inline]
    pub fn task_at(&self, state: &State, address: u64) -> Result<TaskId, Fault> {
        let (offset, bytes) = field!(TaskBlock, number);
        let number = state.memory.load(address.wrapping_add(offset), bytes).unwrap_or(u64::MAX);
        match self.tasks.get(number as usize) {
            Some(task) if task.address == address && address != 0 => Ok(TaskId::from(number as usize)),
            _ => Err(no_task(address)),
        }
    }

    /// A task's structure.
    #[inline]
    pub fn block<'s>(&self, state: &'s mut State, task: TaskId) -> Option<&'s mut [u8; TaskBlock::SIZE]> {
        state.memory.slice_mut(self.tasks[task.index()].address, TaskBlock::SIZE).ok()?.first_chunk_mut()
    }

    /// A field of a task's structure.
    #[inline]
    pub fn get(&self, state: &State, task: TaskId, (offset, bytes): (u64, usize)) -> u64 {
        state.memory.load(self.tasks[task.index()].address + offset, bytes).unwrap_or(0)
    }

    /// Writes a field of a task's structure.
    #[inline]
    pub fn set(&self, state: &mut State, task: TaskId, (offset, bytes): (u64, usize), value: u64) {
        let address = self.tasks[task.index()].address + offset;
        // Its structure is there: nobody but the kernel gives it back.
        let _ = state.memory.store(address, bytes, value);
    }

    /// Adds to a field of a task's structure.
    #[inline]
    pub fn add(&self, state: &mut State, task: TaskId, field: (u64, usize), amount: u64) {
        let value = self.get(state, task, field).wrapping_add(amount);
        self.set(state, task, field, value);
    }

    #[inline]
    pub fn slice_ns(&self, state: &State, task: TaskId) -> u64 {
        self.get(state, task, field!(Task, scx.slice))
    }

    #[inline]
    pub fn set_slice_ns(&self, state: &mut State, task: TaskId, slice_ns: u64) {
        self.set(state, task, field!(Task, scx.slice), slice_ns);
    }

    /// The scheduler has done something for which the kernel would unload it.
    pub fn complain(&mut self, message: impl Into<String>) {
        self.error.get_or_insert(message.into());
    }
}

#[cold]
fn no_task(address: u64) -> Fault {
    Fault(format!("address {address:#x} is not that of a task"))
}
