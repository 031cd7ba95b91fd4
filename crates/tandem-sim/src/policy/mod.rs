//! Policies: the code that decides which task runs where and when.
//!
//! A policy answers the questions that sched_ext asks, so that a model in Rust and a compiled BPF scheduler fit
//! the same place. It sees CPUs and tasks of one kernel and does not know at which level that kernel is.

pub mod credit;

use crate::cpumask::CpuMask;
use crate::ids::{CpuId, TaskId, VmId};
use crate::machine::Machine;
use std::sync::Arc;

/// What a policy may know of a task.
#[derive(Clone, Debug)]
pub struct TaskFacts {
    /// The VM (the group) that it belongs to.
    pub vm: VmId,
    /// Where it may run.
    pub hard_affinity: Arc<CpuMask>,
    /// Where it prefers to run, within the hard affinity.
    pub soft_affinity: Option<Arc<CpuMask>>,
}

/// What a policy may know of a VM (a group of tasks).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VmFacts {
    /// Weight against other VMs.
    pub weight: u32,
    /// Most CPU time, in percent of one CPU; 0 for no cap.
    pub cap_pct: u32,
}

/// What a policy is given with each question.
pub struct Context<'a> {
    /// Now.
    pub now_ns: u64,
    /// The CPUs as this kernel sees them.
    pub machine: &'a Machine,
    /// The tasks, by [`TaskId`].
    pub tasks: &'a [TaskFacts],
    /// CPUs that are to reschedule when the callback returns; the policy adds to it.
    pub kicked: &'a mut Vec<CpuId>,
}

/// Answer of [`Policy::dispatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dispatch {
    /// The task to run; `None` to idle.
    pub task: Option<TaskId>,
    /// For how long at most, ns.
    pub slice_ns: u64,
    /// Other CPUs whose queues were looked into.
    pub peers_scanned: u32,
}

/// Decides for one kernel.
pub trait Policy {
    /// The CPU in whose queue a task that wakes up, or is new, should be put.
    fn select_cpu(&mut self, ctx: &mut Context<'_>, task: TaskId, is_new: bool) -> CpuId;

    /// Puts a task that became runnable into the queue of `cpu`.
    fn enqueue(&mut self, ctx: &mut Context<'_>, task: TaskId, cpu: CpuId);

    /// Chooses what `cpu` runs next. `previous` is the task on it, if it could go on; if it is not chosen, it is
    /// queued by the policy.
    fn dispatch(&mut self, ctx: &mut Context<'_>, cpu: CpuId, previous: Option<TaskId>) -> Dispatch;

    /// The task starts to run on the CPU.
    fn running(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId);

    /// The task on the CPU blocks or exits.
    fn blocked(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId);

    /// The task on the CPU gives way to others; a dispatch follows.
    fn yielded(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId);

    /// The affinity of the task has changed.
    fn affinity_changed(&mut self, ctx: &mut Context<'_>, task: TaskId);

    /// Period of the tick on a CPU that is not idle, ns.
    fn tick_period_ns(&self) -> u64;

    /// A tick on a CPU that runs the task.
    fn tick(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId);

    /// Period of the policy's own timer, ns.
    fn timer_period_ns(&self) -> u64;

    /// The policy's own timer.
    fn timer(&mut self, ctx: &mut Context<'_>);

    /// Names and values of the policy's counters since the last reset.
    fn counters(&self) -> Vec<(&'static str, u64)>;

    /// Sets the counters to 0.
    fn reset_counters(&mut self);
}
