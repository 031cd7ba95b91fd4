//! One type for all policies, so that host and guests can have different ones without dynamic dispatch.

use super::credit::Credit;
use super::credit2::Credit2;
use super::linux::{Linux, SpinLockKind};
use super::sched_ext::SchedExt;
use super::{Context, Dispatch, NodePreference, Policy, Reason, TaskFacts, VmFacts};
use crate::metrics::SchedulerCosts;
use crate::scenario::{BandwidthLimit, Cgroup, CgroupName, PolicySettings};
use std::sync::Arc;
use tandem_machine::Machine;
use tandem_machine::ids::{CpuId, NodeId, TaskId};

/// Any of the policies.
#[derive(Debug)]
pub(crate) enum AnyPolicy {
    Credit(Box<Credit>),
    Credit2(Box<Credit2>),
    Linux(Box<Linux>),
    SchedExt(Box<SchedExt>),
}

impl AnyPolicy {
    /// The policy with these settings, for a kernel with these CPUs, tasks, groups of tasks and cgroups.
    pub fn new(
        settings: &PolicySettings,
        machine: &Arc<Machine>,
        tasks: &[TaskFacts],
        vms: &[VmFacts],
        cgroups: &[Cgroup],
        seed: u64,
    ) -> Self {
        match settings {
            PolicySettings::Credit(settings) => {
                Self::Credit(Box::new(Credit::new(*settings, machine, tasks, vms)))
            }
            PolicySettings::Credit2(settings) => {
                Self::Credit2(Box::new(Credit2::new(*settings, machine, tasks, vms)))
            }
            PolicySettings::Linux(settings) => {
                Self::Linux(Box::new(Linux::new(*settings, machine, tasks, vms, cgroups, seed)))
            }
            PolicySettings::SchedExt(settings) => {
                Self::SchedExt(Box::new(SchedExt::new(settings, machine, tasks, vms, cgroups, seed)))
            }
        }
    }
}

impl AnyPolicy {
    /// The compiled scheduler, if it is one.
    pub fn sched_ext(&mut self) -> Option<&mut SchedExt> {
        match self {
            Self::SchedExt(policy) => Some(policy),
            Self::Credit(_) | Self::Credit2(_) | Self::Linux(_) => None,
        }
    }

    /// A cgroup of the host has got another `cpu.weight`. Xen has none.
    pub fn group_weight_changed(&mut self, ctx: &mut Context<'_>, cgroup: CgroupName, weight: u32) {
        match self {
            Self::SchedExt(policy) => policy.group_weight_changed(ctx, cgroup, weight),
            Self::Linux(policy) => policy.group_weight_changed(ctx, cgroup, weight),
            Self::Credit(_) | Self::Credit2(_) => {}
        }
    }

    /// A cgroup of the host has got another `cpu.max`.
    pub fn group_limit_changed(
        &mut self,
        ctx: &mut Context<'_>,
        cgroup: CgroupName,
        limit: Option<BandwidthLimit>,
    ) {
        match self {
            Self::SchedExt(policy) => policy.group_limit_changed(ctx, cgroup, limit),
            Self::Linux(policy) => policy.group_limit_changed(ctx, cgroup, limit),
            Self::Credit(_) | Self::Credit2(_) => {}
        }
    }

    /// The weight of a task of the host has changed.
    pub fn weight_changed(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        match self {
            Self::SchedExt(policy) => policy.weight_changed(ctx, task),
            Self::Linux(policy) => policy.weight_changed(ctx, task),
            Self::Credit(_) | Self::Credit2(_) => {}
        }
    }

    /// A CPU, which is a vCPU, seems to be preempted or no longer. sched_ext's own idle CPUs are not affected.
    pub fn set_preempted(&mut self, cpu: CpuId, is_preempted: bool) {
        if let Self::Linux(policy) = self {
            policy.set_preempted(cpu, is_preempted);
        }
    }

    /// Time for which a runnable task may not run before a watchdog unloads the policy, ns; `None` without a
    /// watchdog.
    pub fn watchdog_timeout_ns(&self) -> Option<u64> {
        match self {
            Self::SchedExt(policy) => policy.watchdog_timeout_ns(),
            Self::Credit(_) | Self::Credit2(_) | Self::Linux(_) => None,
        }
    }

    /// The cost of its decisions so far, if that is counted.
    pub fn decision_costs(&self) -> Option<SchedulerCosts> {
        match self {
            Self::SchedExt(policy) => Some(policy.decision_costs()),
            Self::Credit(_) | Self::Credit2(_) | Self::Linux(_) => None,
        }
    }

    /// The kind of spin locks of a kernel with this policy. Xen's are ticket locks, but have so little
    /// contention that the kind makes no difference here.
    pub fn spin_lock_kind(&self) -> SpinLockKind {
        match self {
            Self::Credit(_) | Self::Credit2(_) | Self::SchedExt(_) => SpinLockKind::Queued,
            Self::Linux(linux) => linux.settings().spin_lock_kind(),
        }
    }

    /// Whether the kernel holds the lock of a CPU's queue not only for decisions but, as in Linux, also for
    /// ticks, for enqueueing a task that wakes up, and for the whole of a switch (`finish_lock_switch()`).
    pub fn holds_locks_long(&self) -> bool {
        matches!(self, Self::Linux(_) | Self::SchedExt(_))
    }
}

/// Forwards a call to the policy at hand.
macro_rules! each {
    ($any:expr, $policy:ident => $call:expr) => {
        match $any {
            AnyPolicy::Credit($policy) => $call,
            AnyPolicy::Credit2($policy) => $call,
            AnyPolicy::Linux($policy) => $call,
            AnyPolicy::SchedExt($policy) => $call,
        }
    };
}

impl Policy for AnyPolicy {
    #[inline]
    fn select_cpu(&mut self, ctx: &mut Context<'_>, task: TaskId, reason: Reason) -> CpuId {
        each!(self, policy => policy.select_cpu(ctx, task, reason))
    }

    #[inline]
    fn enqueue(&mut self, ctx: &mut Context<'_>, task: TaskId, cpu: CpuId, reason: Reason) {
        each!(self, policy => policy.enqueue(ctx, task, cpu, reason))
    }

    #[inline]
    fn dispatch(&mut self, ctx: &mut Context<'_>, cpu: CpuId, previous: Option<TaskId>) -> Dispatch {
        each!(self, policy => policy.dispatch(ctx, cpu, previous))
    }

    #[inline]
    fn running(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        each!(self, policy => policy.running(ctx, cpu, task))
    }

    #[inline]
    fn blocked(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        each!(self, policy => policy.blocked(ctx, cpu, task))
    }

    fn exits(&mut self, task: TaskId) {
        each!(self, policy => policy.exits(task))
    }

    fn exited(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        each!(self, policy => policy.exited(ctx, task))
    }

    fn yielded(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        each!(self, policy => policy.yielded(ctx, cpu, task))
    }

    fn yield_to(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId, target: TaskId) -> bool {
        each!(self, policy => policy.yield_to(ctx, cpu, task, target))
    }

    #[inline]
    fn queue_of(&self, task: TaskId) -> Option<CpuId> {
        each!(self, policy => policy.queue_of(task))
    }

    #[inline]
    fn queue_length(&self, cpu: CpuId) -> usize {
        each!(self, policy => policy.queue_length(cpu))
    }

    #[inline]
    fn wakes_by_interrupt(&self, by: CpuId, cpu: CpuId) -> bool {
        each!(self, policy => policy.wakes_by_interrupt(by, cpu))
    }

    fn affinity_changed(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        each!(self, policy => policy.affinity_changed(ctx, task))
    }

    fn prefer_node(
        &mut self,
        ctx: &mut Context<'_>,
        cpu: CpuId,
        task: TaskId,
        preference: NodePreference,
    ) -> Option<NodeId> {
        each!(self, policy => policy.prefer_node(ctx, cpu, task, preference))
    }

    #[inline]
    fn spent_on_locks(&mut self, cpu: CpuId, spent_ns: u64) {
        each!(self, policy => policy.spent_on_locks(cpu, spent_ns))
    }

    #[inline]
    fn tick_period_ns(&self) -> u64 {
        each!(self, policy => policy.tick_period_ns())
    }

    fn ticks_apart(&self) -> bool {
        each!(self, policy => policy.ticks_apart())
    }

    #[inline]
    fn tick_delay_ns(&mut self) -> u64 {
        each!(self, policy => policy.tick_delay_ns())
    }

    #[inline]
    fn stops_tick(&self, cpu: CpuId) -> bool {
        each!(self, policy => policy.stops_tick(cpu))
    }

    #[inline]
    fn is_interrupt(&self, token: u32) -> bool {
        each!(self, policy => policy.is_interrupt(token))
    }

    #[inline]
    fn tick(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        each!(self, policy => policy.tick(ctx, cpu, task))
    }

    fn timer_period_ns(&self) -> u64 {
        each!(self, policy => policy.timer_period_ns())
    }

    fn timer(&mut self, ctx: &mut Context<'_>) {
        each!(self, policy => policy.timer(ctx))
    }

    fn turn_ends(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        each!(self, policy => policy.turn_ends(ctx, cpu, task))
    }

    fn alarm(&mut self, ctx: &mut Context<'_>, cpu: CpuId, token: u32) {
        each!(self, policy => policy.alarm(ctx, cpu, token))
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        each!(self, policy => policy.counters())
    }

    fn reset_counters(&mut self) {
        each!(self, policy => policy.reset_counters())
    }
}
