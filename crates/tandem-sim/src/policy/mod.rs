//! Policies: the code that decides where and when each task runs.
//!
//! A policy answers the questions that sched_ext asks, so that a model in Rust and a compiled BPF scheduler
//! fit the same place. It sees CPUs and tasks of one kernel and does not know at which level that kernel is.

mod any;
pub mod credit;
pub mod credit2;
pub mod halt_poll;
pub mod linux;
pub mod pause_loop;
pub mod sched_ext;

pub(crate) use any::AnyPolicy;

use crate::scenario::TaskPolicy;
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, NodeId, TaskId, VmId};

/// What a policy knows of a task.
#[derive(Clone, Debug)]
pub struct TaskFacts {
    /// The VM (the group) that it belongs to.
    pub vm: VmId,
    /// Its share against other tasks: 1024 for nice 0, and for a vCPU of a VM of usual weight.
    pub weight: u32,
    /// Its nice value, which is part of that share.
    pub nice: i8,
    /// Its scheduling policy, which is part of that share, too.
    pub policy: TaskPolicy,
    /// Where it may run.
    pub hard_affinity: Arc<CpuMask>,
    /// Where it prefers to run, within the hard affinity.
    pub soft_affinity: Option<Arc<CpuMask>>,
    /// Its last CPU before the run, if it has a past.
    pub past_cpu: Option<CpuId>,
    /// It is a thread of the kernel itself.
    pub is_kernel_thread: bool,
}

/// The findings of NUMA balancing about a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePreference {
    /// The node that it should run on.
    pub node: NodeId,
    /// Fraction on each node of the memory that it and its group use, in 1000ths of their hinting faults.
    pub weights: Box<[i64]>,
    /// It shares its memory with no other task.
    pub is_alone: bool,
}

/// What a policy knows of a VM (a group of tasks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmFacts {
    /// Weight against other VMs.
    pub weight: u32,
    /// Most CPU time, in percent of one CPU; 0 for no cap.
    pub cap_pct: u32,
    /// Its tasks are in a cgroup of their own, as those of a virtual machine are, and processes of the host
    /// are not.
    pub is_cgroup: bool,
    /// The parent of that cgroup, or the cgroup of the tasks, by position among those of the scenario;
    /// `None`: the root.
    pub cgroup: Option<usize>,
}

impl VmFacts {
    /// The default weight of a VM.
    pub const USUAL_WEIGHT: u32 = crate::scenario::Workload::DEFAULT_WEIGHT;
}

/// A timer that the policy starts on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// The CPU that gets the interrupt.
    pub cpu: CpuId,
    /// When it expires, ns.
    pub at_ns: u64,
    /// The policy's identifier of it.
    pub token: u32,
}

/// What a policy asks of a CPU that need not reschedule at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// To reschedule when it next returns from its kernel to its task (lazy preemption). The CPU that is in
    /// its kernel now, as it answers, does so at once; another one gets no interrupt.
    AtReturn(CpuId),
    /// To start the timer that ends the turn of its task ([`Policy::turn_ends`]), instead of the time that it
    /// was set to before. Another CPU is asked by an interrupt. A CPU that idles stops its timer.
    At {
        /// The CPU whose timer it is.
        cpu: CpuId,
        /// When it expires, ns.
        at_ns: u64,
    },
}

/// A CPU has locked a queue of tasks that CPUs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedLock {
    /// The CPU.
    pub cpu: CpuId,
    /// The queue: any number, but the same one for the same queue, and small.
    pub queue: u32,
    /// How often, one time right after the other.
    pub times: u32,
    /// Queued tasks that it looked at meanwhile.
    pub visited: u32,
}

/// The input and output of each question to a policy.
pub struct Context<'a> {
    /// Now.
    pub now_ns: u64,
    /// The CPUs as this kernel sees them.
    pub machine: &'a Machine,
    /// The tasks, by [`TaskId`].
    pub tasks: &'a [TaskFacts],
    /// Time for which each CPU, if it is a vCPU, wanted to run and did not, ns. 0 on real CPUs.
    pub stolen_ns: &'a [u64],
    /// CPUs that must reschedule when the callback returns; the policy adds to it.
    pub kicked: &'a mut Vec<CpuId>,
    /// Number of other CPUs whose queues were searched: the policy adds to it, and the CPU that asks pays for
    /// it.
    pub peers_scanned: &'a mut u32,
    /// CPUs whose queues were locked to move tasks out of them or into them, or to update their load, in that
    /// order: the policy adds to it, and the CPU that asks waits for those locks, one after the other.
    pub locked: &'a mut Vec<CpuId>,
    /// Queues of no CPU that a CPU locked: the policy adds to it, and the CPU waits for those locks as well.
    pub shared_locked: &'a mut Vec<SharedLock>,
    /// Timers to start: the policy adds to it.
    pub alarms: &'a mut Vec<Alarm>,
    /// What CPUs are to do later: the policy adds to it.
    pub later: &'a mut Vec<Later>,
    /// Why the policy cannot continue: if it sets this, the run ends.
    pub failure: &'a mut Option<String>,
}

/// Why a task joins a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is new and comes from outside of the kernel, as at the start of the run.
    Start,
    /// It is new: its parent, which runs on this CPU, has forked it.
    Fork {
        /// The parent.
        parent: TaskId,
        /// Where the parent runs.
        cpu: CpuId,
    },
    /// It runs on this CPU and begins another program: a good moment to move, as it needs new memory anyway.
    Exec {
        /// Where it runs.
        cpu: CpuId,
    },
    /// It was blocked, and the event that it waited for has come.
    Wake {
        /// The task that woke it; `None` for an interrupt.
        waker: Option<TaskId>,
        /// Where the waker runs or the interrupt came.
        cpu: CpuId,
        /// The waker announces that it is about to block, as a write into a pipe does.
        sync: bool,
    },
}

impl Reason {
    /// Whether the task has never run before.
    pub fn is_new(self) -> bool {
        matches!(self, Self::Start | Self::Fork { .. })
    }
}

/// Answer of [`Policy::dispatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The task to run; `None` to idle.
    pub task: Option<TaskId>,
    /// Longest time for which it runs, ns; [`Dispatch::NO_SLICE`] for a policy that ends slices at its ticks.
    pub slice_ns: u64,
}

impl Dispatch {
    /// The task runs until a kick or a block ends its turn; half the range of the clock, so that sums with it
    /// do not overflow.
    pub const NO_SLICE: u64 = u64::MAX / 2;
}

/// The decisions of one kernel.
pub trait Policy {
    /// Chooses the CPU whose queue a task joins that wakes up, is new, or (with [`Reason::Exec`], while it
    /// runs) could move.
    fn select_cpu(&mut self, ctx: &mut Context<'_>, task: TaskId, reason: Reason) -> CpuId;

    /// Puts a task into the queue of `cpu`. With [`Reason::Exec`], [`Policy::blocked`] has taken it from its
    /// CPU.
    fn enqueue(&mut self, ctx: &mut Context<'_>, task: TaskId, cpu: CpuId, reason: Reason);

    /// Chooses the next task of `cpu`; an idle CPU also asks when it is kicked. `previous` is the task on it,
    /// if it could go on; if the policy does not choose it, the policy queues it.
    fn dispatch(&mut self, ctx: &mut Context<'_>, cpu: CpuId, previous: Option<TaskId>) -> Dispatch;

    /// The task starts to run on the CPU.
    fn running(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId);

    /// The task on the CPU leaves it, and the queues: it blocks, exits, or moves at its exec.
    fn blocked(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId);

    /// The task, which runs, begins to exit: it will wake the tasks that wait for its end, and then block for
    /// good.
    fn exits(&mut self, _task: TaskId) {}

    /// The task has ended; another one may get its number. [`Policy::blocked`] has been called.
    fn exited(&mut self, ctx: &mut Context<'_>, task: TaskId);

    /// The task on the CPU yields to others; a dispatch follows.
    fn yielded(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId);

    /// The task on the CPU asks that `target`, which waits in the queue of some CPU, runs instead of it; a
    /// dispatch on this CPU follows. Returns whether the policy grants it; if not, nothing has changed.
    fn yield_to(&mut self, _ctx: &mut Context<'_>, _cpu: CpuId, _task: TaskId, _target: TaskId) -> bool {
        false
    }

    /// The CPU in whose queue the task waits, or on which it runs; `None` if it does neither.
    fn queue_of(&self, _task: TaskId) -> Option<CpuId> {
        None
    }

    /// Tasks that run on the CPU or wait in its queue.
    fn queue_length(&self, _cpu: CpuId) -> usize {
        0
    }

    /// Whether a wake-up on CPU `by` that puts a task into the queue of `cpu` leaves that to an interrupt
    /// there, instead of locking that queue itself.
    fn wakes_by_interrupt(&self, by: CpuId, cpu: CpuId) -> bool;

    /// The affinity of the task has changed.
    fn affinity_changed(&mut self, ctx: &mut Context<'_>, task: TaskId);

    /// NUMA balancing has found a node for the task, which runs on the CPU. Returns the node that it prefers
    /// from now on, if the policy supports that.
    fn prefer_node(
        &mut self,
        _: &mut Context<'_>,
        _cpu: CpuId,
        _task: TaskId,
        _preference: NodePreference,
    ) -> Option<NodeId> {
        None
    }

    /// The CPU has waited for, and held, the locks in [`Context::locked`] of its last decision for this time,
    /// ns.
    fn spent_on_locks(&mut self, _cpu: CpuId, _spent_ns: u64) {}

    /// Period of the tick on a CPU that is not idle, ns.
    fn tick_period_ns(&self) -> u64;

    /// Whether each CPU keeps the time of its ticks for itself, as in Xen, rather than all together.
    fn ticks_apart(&self) -> bool {
        false
    }

    /// Delay of the next tick of a CPU, ns.
    fn tick_delay_ns(&mut self) -> u64 {
        0
    }

    /// Whether the task that runs on the CPU, one of those without a tick (`nohz_full=`), lets its tick stop.
    fn stops_tick(&self, _cpu: CpuId) -> bool {
        false
    }

    /// Whether the alarm with this token is an interrupt; if not, it ends work that the CPU does anyway.
    fn is_interrupt(&self, _token: u32) -> bool {
        true
    }

    /// A tick on a CPU that runs the task.
    fn tick(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId);

    /// Period of the policy's own timer, ns; `u64::MAX` if it has none.
    fn timer_period_ns(&self) -> u64;

    /// The policy's own timer.
    fn timer(&mut self, ctx: &mut Context<'_>);

    /// A timer that the policy has started has expired on the CPU.
    fn alarm(&mut self, _: &mut Context<'_>, _cpu: CpuId, _token: u32) {}

    /// The timer that ends the turn of the task on the CPU has expired ([`Later::At`]).
    fn turn_ends(&mut self, _: &mut Context<'_>, _cpu: CpuId, _task: TaskId) {}

    /// Names and values of the policy's counters since the last reset.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// Sets the counters to 0.
    fn reset_counters(&mut self);
}
