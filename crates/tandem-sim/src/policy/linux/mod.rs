//! Linux's fair scheduler: CFS of the 3.6, 4.2 and 5.2 eras, and EEVDF of 6.12, 6.18 and 7.3.
//!
//! Problem: give each task of a kernel, the host's or a guest's, its share of the CPUs by weight, soon after
//! it asks for it, and keep all CPUs busy.
//!
//! Approach, as in `kernel/sched/fair.c`:
//! 1. Each CPU has a queue of its own ([`queues`]). On one CPU, the [`discipline`], CFS or EEVDF, decides
//!    which task runs and for how long.
//! 2. A task that wakes up, is new, or begins another program, is put where there is room, and near its
//!    partners and memory ([`select`]).
//! 3. At ticks, and when they run out of work, CPUs pull tasks from those that have more ([`balance`]),
//!    domain by domain ([`domains`]).
//! 4. For 2. and 3. the load of tasks and CPUs is tracked (`queues/load.rs`).
//! 5. A task may yield, to all others or to a particular one (`queues/turns.rs`).
//! 6. Soft affinity, which no release of Linux has, is available as it was once posted, and in a variant of
//!    this project ([`soft_affinity`]).
//! 7. A task is sent to the node of its memory, if NUMA balancing finds one ([`numa`]).
//! 8. Tasks may be in groups, which share CPUs by weight ([`task_groups`], `queues/hierarchy.rs`).
//!
//! [`features`] says how the releases differ. [`Linux`] owns the parts and passes each event to the one that
//! it concerns; a part borrows others only while it works.
//!
//! A CPU ticks while it runs a task; only then, and at wake-ups, slices end. An idle CPU does not tick
//! (`NO_HZ_IDLE`; since 4.17, a real CPU keeps its tick for a short time, which the model leaves out). On a
//! vCPU, the clock by which tasks are charged leaves out stolen time, if the settings say so and the
//! hypervisor reports it.
//!
//! The policy itself waits for no lock. It lists the queues beside the own one that it has locked
//! ([`Context::locked`]), and says which wake-ups are left to an interrupt and need no lock of another CPU's
//! queue ([`Policy::wakes_by_interrupt`], feature `TTWU_QUEUE`); the kernel charges for both. A wake-up is
//! left to its target CPU if, according to the domains, that shares no cache with the waker's; from 6.12 on,
//! also if that CPU has nothing to run (`ttwu_queue_cond()`).
//!
//! Wake-ups and ends of slices may preempt lazily ([`Preemption`]): the CPU is then asked to reschedule later
//! ([`super::Later`]). In 7.3, a timer of the CPU ends the turn of its task (`HRTICK`).
//!
//! Limits: one scheduling class without core scheduling; no CPU hotplug; a
//! contended lock changes no decision. All work is that of user mode or of a guest, where any kernel is
//! preempted; 3.6 to 5.2 are otherwise built without `CONFIG_PREEMPT`, later ones with
//! `CONFIG_PREEMPT_DYNAMIC`.

mod balance;
mod counters;
mod discipline;
mod domains;
mod features;
mod group;
mod numa;
mod queues;
mod select;
mod settings;
#[cfg(test)]
mod situation;
mod soft_affinity;
mod task_groups;
#[cfg(test)]
mod tests;

pub use domains::{describe as describe_domains, slowest_balancing_ns};
pub use queues::weight_of_nice;
pub use settings::{Domains, LinuxEra, LinuxSettings, Preemption, SoftAffinity, SpinLockKind};

use super::{Context, Dispatch, NodePreference, Policy, Reason, TaskFacts, VmFacts};
use crate::scenario::{BandwidthLimit, Cgroup, CgroupName};
use balance::{Balancer, Balancing};
use counters::{BalanceCounters, PlacementCounters, QueueCounters};
use domains::DomainTree;
use features::Features;
use numa::{NodeBalancer, Nodes};
use queues::{GroupId, Queues};
use select::{Placement, Selector};
use settings::Tunables;
use tandem_machine::Machine;
use tandem_machine::ids::{CpuId, NodeId, TaskId};
use task_groups::TaskGroups;

/// Linux's fair scheduler for the CPUs of one kernel.
#[derive(Clone, Debug)]
pub struct Linux {
    settings: LinuxSettings,
    features: &'static Features,
    tunables: Tunables,
    queues: Queues,
    domains: DomainTree,
    placement: Placement,
    balancing: Balancing,
    nodes: Nodes,
    groups: TaskGroups,
}

impl Linux {
    /// A scheduler for all CPUs of the machine, as the kernel sees it, with these VMs and cgroups, which a
    /// guest does not have. More tasks may come later.
    /// `seed`: of its random numbers.
    pub fn new(
        settings: LinuxSettings,
        machine: &Machine,
        tasks: &[TaskFacts],
        vms: &[VmFacts],
        cgroups: &[Cgroup],
        seed: u64,
    ) -> Self {
        let (groups, group_facts) = match settings.groups.unwrap_or(!cgroups.is_empty()) {
            true => TaskGroups::new(vms, cgroups),
            false => Default::default(),
        };
        let cpus = machine.cpu_count();
        let mut tunables = Tunables::new(cpus);
        tunables.base_slice_ns = settings.base_slice_ns.unwrap_or(tunables.base_slice_ns);
        let features = Features::of(settings.era);
        let mut linux = Self {
            settings,
            features,
            tunables,
            queues: Queues::new(&settings, features, &tunables, machine, &group_facts),
            domains: DomainTree::new(&features.domains, settings.domains, machine),
            placement: Placement::default(),
            balancing: Balancing::new(cpus, seed),
            nodes: Nodes::default(),
            groups,
        };
        linux.grow(tasks);
        linux
    }

    /// Its settings.
    pub fn settings(&self) -> &LinuxSettings {
        &self.settings
    }

    /// Makes room for tasks that have come since the last time.
    #[inline]
    fn grow(&mut self, tasks: &[TaskFacts]) {
        if self.queues.task_count() >= tasks.len() {
            return;
        }
        for facts in &tasks[self.queues.task_count()..] {
            let task = TaskId::from(self.queues.task_count());
            let (group, weight) = self.groups.of(facts);
            self.queues.add_task(group, weight);
            self.placement.wakers.begin(task, None, CpuId(0));
            self.nodes.begin(task);
        }
    }

    /// Resets the state of a task number for a new task that was born on this CPU, forked or at the start.
    fn begin(&mut self, ctx: &Context<'_>, task: TaskId, parent: Option<TaskId>, cpu: CpuId) {
        let (group, weight) = self.groups.of(&ctx.tasks[task.index()]);
        self.queues.begin(ctx, task, cpu, group, weight);
        self.placement.wakers.begin(task, parent, cpu);
        self.nodes.begin(task);
    }

    /// A cgroup has got another `cpu.weight`.
    pub(crate) fn group_weight_changed(&mut self, ctx: &mut Context<'_>, cgroup: CgroupName, weight: u32) {
        if let Some(group) = self.groups.named(cgroup) {
            self.queues.set_shares(ctx, group, task_groups::shares_of_cgroup(weight));
        }
    }

    /// A cgroup has got another `cpu.max`.
    pub(crate) fn group_limit_changed(
        &mut self,
        ctx: &mut Context<'_>,
        cgroup: CgroupName,
        limit: Option<BandwidthLimit>,
    ) {
        if let Some(group) = self.groups.named(cgroup) {
            self.queues.set_limit(ctx, group, limit);
        }
    }

    /// A task has got another weight.
    pub(crate) fn weight_changed(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.grow(ctx.tasks);
        let (_, weight) = self.groups.of(&ctx.tasks[task.index()]);
        self.queues.set_task_weight(ctx, task, weight);
    }

    /// A CPU, which is a vCPU, seems to be preempted or no longer.
    pub(crate) fn set_preempted(&mut self, cpu: CpuId, is_preempted: bool) {
        self.queues.set_preempted(cpu, is_preempted);
    }

    fn selector(&mut self) -> Selector<'_> {
        self.queues.update_available();
        Selector {
            queues: &self.queues,
            domains: &mut self.domains,
            placement: &mut self.placement,
            features: &self.features.placement,
            soft_affinity: self.settings.soft_affinity,
        }
    }

    fn balancer(&mut self) -> Balancer<'_> {
        Balancer {
            queues: &mut self.queues,
            domains: &mut self.domains,
            balancing: &mut self.balancing,
            nodes: &self.nodes,
            features: &self.features.balance,
            migration_cost_ns: self.tunables.migration_cost_ns,
            nr_migrate: self.tunables.nr_migrate,
            queue_scan_ns: self.settings.queue_scan_ns,
            tick_hz: self.settings.tick_hz,
            tick_period_ns: self.settings.tick_period_ns(),
        }
    }

    /// The first CPU that the task may use.
    fn first_allowed(ctx: &Context<'_>, task: TaskId) -> CpuId {
        ctx.tasks[task.index()].hard_affinity.iter().next().unwrap_or(CpuId(0))
    }

    fn is_allowed(ctx: &Context<'_>, task: TaskId, cpu: CpuId) -> bool {
        ctx.tasks[task.index()].hard_affinity.contains(cpu)
    }

    /// Sends the running task of the CPU elsewhere, if it may not stay or balancing asked for it.
    fn send_away_current(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        let queue = self.queues.of_mut(cpu);
        let push = queue.take_push();
        let Some(task) = queue.curr() else { return };
        if !Self::is_allowed(ctx, task, cpu) {
            let to = Self::first_allowed(ctx, task);
            ctx.locked.push(to);
            self.queues.put_back_current(ctx, cpu);
            self.queues.move_queued(ctx, task, cpu, to);
        } else if let Some(push) = push {
            self.queues.put_back_current(ctx, cpu);
            self.balancer().push(ctx, cpu, task, push);
        }
    }
}

impl Policy for Linux {
    fn select_cpu(&mut self, ctx: &mut Context<'_>, task: TaskId, reason: Reason) -> CpuId {
        self.grow(ctx.tasks);
        match reason {
            Reason::Start => self.begin(ctx, task, None, Self::first_allowed(ctx, task)),
            Reason::Fork { parent, cpu: parent_cpu } => self.begin(ctx, task, Some(parent), parent_cpu),
            Reason::Exec { .. } | Reason::Wake { .. } => {}
        }
        let entity = self.queues.entity(task);
        if entity.delayed {
            return entity.cpu; // it has not left, so it is not placed
        }
        self.selector().select(ctx, task, reason)
    }

    fn enqueue(&mut self, ctx: &mut Context<'_>, task: TaskId, cpu: CpuId, reason: Reason) {
        self.grow(ctx.tasks);
        match reason {
            Reason::Start => self.begin(ctx, task, None, cpu),
            Reason::Fork { parent, cpu: parent_cpu } if !self.queues.entity(task).is_new => {
                self.begin(ctx, task, Some(parent), parent_cpu);
            }
            _ => {}
        }
        // Such a wake-up interrupts the CPU in any case, and that returns to its task afterwards.
        let interrupts = match reason {
            Reason::Wake { cpu: by, .. } if self.queues.is_lazy() => {
                !self.queues.entity(task).delayed && by != cpu && self.wakes_by_interrupt(by, cpu)
            }
            _ => false,
        };
        self.queues.enqueue(ctx, task, cpu, reason);
        if interrupts && self.queues.of(cpu).is_told_lazily() {
            self.queues.reschedule(ctx, cpu);
        }
    }

    fn dispatch(&mut self, ctx: &mut Context<'_>, cpu: CpuId, _previous: Option<TaskId>) -> Dispatch {
        self.queues.begin_decision(ctx, cpu);
        self.send_away_current(ctx, cpu);
        let mut next = self.queues.pick(ctx, cpu);
        let swaps = self.queues.of_mut(cpu).take_swap();
        while next.is_none() && !swaps {
            if self.queues.of(cpu).is_idling() {
                self.balancer().balance_for_idle(ctx, cpu);
            } else {
                self.balancer().balance_new_idle(ctx, cpu);
            }
            if self.queues.of(cpu).tasks().is_empty() {
                break;
            }
            // None again, if all that came are tasks that are leaving.
            next = self.queues.pick(ctx, cpu);
        }
        self.queues.end_decision(ctx, cpu, next);
        Dispatch { task: next, slice_ns: Dispatch::NO_SLICE }
    }

    fn running(&mut self, _: &mut Context<'_>, _: CpuId, _: TaskId) {}

    fn blocked(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.queues.blocked(ctx, cpu, task);
    }

    fn exits(&mut self, task: TaskId) {
        self.queues.exits(task);
    }

    fn exited(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.queues.exited(ctx, task);
    }

    fn yielded(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.queues.yields(ctx, cpu, task);
    }

    fn yield_to(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId, target: TaskId) -> bool {
        self.queues.yields_to(ctx, cpu, task, target)
    }

    fn queue_of(&self, task: TaskId) -> Option<CpuId> {
        let entity = self.queues.known(task)?;
        let is_there = self.queues.is_running(task) || (entity.queued && !entity.delayed);
        is_there.then_some(entity.cpu)
    }

    fn queue_length(&self, cpu: CpuId) -> usize {
        self.queues.of(cpu).nr_running()
    }

    fn wakes_by_interrupt(&self, by: CpuId, cpu: CpuId) -> bool {
        let leaves_work =
            self.features.ttwu_queue_on_idle && by != cpu && self.queues.of(cpu).nr_running() == 0;
        leaves_work || !self.domains.share_cache(by, cpu)
    }

    fn affinity_changed(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.grow(ctx.tasks);
        let entity = self.queues.entity(task);
        let cpu = entity.cpu;
        if Self::is_allowed(ctx, task, cpu) {
            self.queues.strays_mut().note(ctx, task, cpu);
        } else if self.queues.is_running(task) {
            self.queues.reschedule(ctx, cpu);
        } else if entity.delayed {
            self.queues.leave_at_last(ctx, task);
        } else if entity.queued {
            self.queues.move_queued(ctx, task, cpu, Self::first_allowed(ctx, task));
        }
    }

    fn prefer_node(
        &mut self,
        ctx: &mut Context<'_>,
        cpu: CpuId,
        task: TaskId,
        preference: NodePreference,
    ) -> Option<NodeId> {
        let mut balancer = NodeBalancer {
            queues: &mut self.queues,
            domains: &self.domains,
            nodes: &mut self.nodes,
            counters: &mut self.balancing.counters,
        };
        balancer.settle(ctx, cpu, task, preference)
    }

    fn spent_on_locks(&mut self, cpu: CpuId, spent_ns: u64) {
        self.balancer().spent_on_locks(cpu, spent_ns);
    }

    fn tick_period_ns(&self) -> u64 {
        self.settings.tick_period_ns()
    }

    fn tick(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.queues.tick(ctx, cpu, task);
        self.balancer().balance_at_tick(ctx, cpu);
    }

    fn timer_period_ns(&self) -> u64 {
        u64::MAX
    }

    fn timer(&mut self, _: &mut Context<'_>) {}

    fn turn_ends(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.queues.turn_ends(ctx, cpu, task);
    }

    fn alarm(&mut self, ctx: &mut Context<'_>, cpu: CpuId, token: u32) {
        self.queues.period_ends(ctx, cpu, GroupId(token));
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let Self { settings, queues, placement, balancing, .. } = self;
        counters::named(settings, &queues.counters, &placement.counters, &balancing.counters)
    }

    fn reset_counters(&mut self) {
        self.queues.counters = QueueCounters::default();
        self.placement.counters = PlacementCounters::default();
        self.balancing.counters = BalanceCounters::default();
    }
}
