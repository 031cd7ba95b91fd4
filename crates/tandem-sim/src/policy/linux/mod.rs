//! Linux's fair scheduler: CFS of the 3.6, 4.2 and 5.2 eras, and EEVDF of 6.12.
//!
//! Problem: give each task of a kernel, the host's or a guest's, its share of the CPUs by weight, soon after
//! it asks for it, and keep all CPUs busy.
//!
//! Approach, as in `kernel/sched/fair.c`:
//! 1. Each CPU has a queue of its own ([`run_queue`], [`queueing`]). On one CPU, [`cfs`] or [`eevdf`] decides
//!    who runs and for how long.
//! 2. A task that wakes up, is new, or begins another program, is put where there is room, and near to what
//!    it works with ([`select`]).
//! 3. At ticks, and when they run out of work, CPUs pull tasks from those that have more ([`balance`]),
//!    domain by domain ([`domains`]).
//! 4. For 2. and 3. the load of tasks and CPUs is tracked ([`load`], [`decay`]).
//! 5. A task may give way, to all others or to a particular one ([`directed_yield`]).
//! 6. Soft affinity, which no release of Linux knows, can be had as it was once posted, or otherwise
//!    ([`soft_affinity`]).
//! 7. A task is sent to the node of its memory, if NUMA balancing finds that out ([`numa`]).
//!
//! A CPU ticks while it runs a task; only then, and at wake-ups, slices end. An idle CPU does not tick
//! (`NO_HZ_IDLE`). On a vCPU the clock that tasks are charged by leaves out stolen time, if the settings say
//! so and the hypervisor tells it.
//!
//! The policy itself waits for no lock. It tells which queues beside the own one it has locked
//! ([`Context::locked`]), and which wake-ups are left to an interrupt, so that they need no lock of another
//! CPU's queue ([`Policy::wakes_by_interrupt`], feature `TTWU_QUEUE`); the kernel charges for both. A wake-up
//! is left to the CPU that it is for if that shares no cache with the waker's, as far as the domains tell. In
//! 6.12 it also is if that CPU has nothing to run (`ttwu_queue_cond()`).
//!
//! Limits: one scheduling class without groups, bandwidth limits and core scheduling; no CPU hotplug; a lock that is
//! found taken makes nothing be done otherwise. A CPU decides at once when it is told to: what runs in kernel mode can
//! be preempted (`CONFIG_PREEMPT`).

mod balance;
mod cfs;
mod counters;
mod decay;
mod directed_yield;
mod domains;
mod eevdf;
mod entity;
mod features;
mod group;
mod load;
mod numa;
mod queueing;
mod run_queue;
mod select;
mod settings;
#[cfg(test)]
mod situation;
mod soft_affinity;
#[cfg(test)]
mod tests;

pub use domains::describe as describe_domains;
pub use entity::weight_of_nice;
pub use settings::{Domains, LinuxEra, LinuxSettings, SoftAffinity, SpinLockKind};

use super::{Context, Dispatch, NodePreference, Policy, Reason, TaskFacts};
use balance::Balancing;
use counters::Counters;
use domains::DomainTree;
use entity::Entity;
use features::{DisciplineKind, Features};
use run_queue::RunQueue;
use settings::Tunables;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, NodeId, TaskId};

/// Linux's fair scheduler for the CPUs of one kernel.
#[derive(Clone, Debug)]
pub struct Linux {
    settings: LinuxSettings,
    features: &'static Features,
    tunables: Tunables,
    cpus: Vec<RunQueue>,
    entities: Vec<Entity>,
    /// CPUs that idle and have nothing in their queue.
    idle: CpuMask,
    domains: DomainTree,
    balancing: Balancing,
    /// Positions in the lists of tasks that have been given out.
    list_positions: u64,
    counters: Counters,
}

impl Linux {
    /// A scheduler for all CPUs of the machine, as the kernel sees it. More tasks may come later.
    pub fn new(settings: LinuxSettings, machine: &Machine, tasks: &[TaskFacts]) -> Self {
        let cpus = machine.cpu_count();
        let tunables = Tunables::new(cpus);
        let features = Features::of(settings.era);
        Self {
            settings,
            features,
            tunables,
            cpus: vec![RunQueue::new(tunables.migration_cost_ns); cpus],
            entities: tasks.iter().map(|facts| Entity::new(facts.weight, CpuId(0))).collect(),
            idle: machine.all_cpus().clone(),
            domains: DomainTree::new(&features.domains, settings.domains, machine),
            balancing: Balancing::new(cpus),
            list_positions: 0,
            counters: Counters::default(),
        }
    }

    /// Its settings.
    pub fn settings(&self) -> &LinuxSettings {
        &self.settings
    }

    fn is_eevdf(&self) -> bool {
        self.features.discipline == DisciplineKind::Eevdf
    }

    /// Forgets what is known under the number of a task that is new, and was born on this CPU.
    fn begin(&mut self, ctx: &Context<'_>, task: TaskId, cpu: CpuId) {
        self.entities[task.index()] = Entity::new(ctx.tasks[task.index()].weight, cpu);
        self.advance_clock(ctx, cpu);
        self.start_tracking(task);
    }

    /// Makes room for tasks that have come since the scheduler was made.
    fn grow(&mut self, ctx: &Context<'_>) {
        if self.entities.len() < ctx.tasks.len() {
            let newcomers = &ctx.tasks[self.entities.len()..];
            self.entities.extend(newcomers.iter().map(|facts| Entity::new(facts.weight, CpuId(0))));
        }
    }

    /// The first CPU that the task may use.
    fn first_allowed(ctx: &Context<'_>, task: TaskId) -> CpuId {
        ctx.tasks[task.index()].hard_affinity.iter().next().unwrap_or(CpuId(0))
    }

    fn is_allowed(ctx: &Context<'_>, task: TaskId, cpu: CpuId) -> bool {
        ctx.tasks[task.index()].hard_affinity.contains(cpu)
    }

    /// Sends the running task of the CPU elsewhere, if it may not stay or active balancing asked for it.
    fn send_away_current(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        let queue = &mut self.cpus[cpu.index()];
        let Some(task) = queue.curr else {
            queue.push_to = None;
            return;
        };
        if !Self::is_allowed(ctx, task, cpu) {
            queue.push_to = None;
            let to = Self::first_allowed(ctx, task);
            ctx.locked.push(to);
            self.put_back_current(cpu);
            self.move_queued(ctx, task, cpu, to);
        } else if queue.push_to.is_some() {
            self.put_back_current(cpu);
            self.active_push(ctx, cpu, task);
        }
    }

    fn pick(&mut self, ctx: &mut Context<'_>, cpu: CpuId) -> Option<TaskId> {
        if self.is_eevdf() { self.eevdf_pick(ctx, cpu) } else { self.cfs_pick(cpu) }
    }
}

impl Policy for Linux {
    fn select_cpu(&mut self, ctx: &mut Context<'_>, task: TaskId, reason: Reason) -> CpuId {
        self.grow(ctx);
        match reason {
            Reason::Start => self.begin(ctx, task, Self::first_allowed(ctx, task)),
            Reason::Fork { cpu: parent_cpu, .. } => self.begin(ctx, task, parent_cpu),
            Reason::Exec { .. } | Reason::Wake { .. } => {}
        }
        let entity = &self.entities[task.index()];
        if entity.delayed {
            return entity.cpu; // it has not left, so it is not placed
        }
        self.select(ctx, task, reason)
    }

    fn enqueue(&mut self, ctx: &mut Context<'_>, task: TaskId, cpu: CpuId, reason: Reason) {
        self.grow(ctx);
        self.charge(ctx, cpu);
        if let Reason::Wake { cpu: waker_cpu, .. } = reason {
            self.counters.ttwu_count += 1;
            self.counters.ttwu_local += u64::from(waker_cpu == cpu);
            self.cpus[cpu.index()].idle_ended(ctx.now_ns, self.features.idle_sample_is_capped);
        }
        if self.entities[task.index()].delayed {
            if matches!(reason, Reason::Wake { .. }) && self.entities[task.index()].cpu == cpu {
                self.eevdf_stay(ctx, task);
                return self.preempt(ctx, cpu, task);
            }
            self.eevdf_leave(ctx, task);
        }
        match reason {
            Reason::Start => self.begin(ctx, task, cpu),
            Reason::Fork { cpu: parent_cpu, .. } if !self.entities[task.index()].is_new => {
                self.begin(ctx, task, parent_cpu);
            }
            _ => {}
        }
        let from = self.entities[task.index()].cpu;
        let is_foreign = from != cpu || reason.is_new();
        if !self.is_eevdf() && reason.is_new() {
            self.charge(ctx, from);
            self.cfs_place_new(task);
        }
        if from != cpu {
            self.advance_clock(ctx, from);
            self.change_cpu(task, cpu);
        }
        if !self.is_eevdf() && matches!(reason, Reason::Wake { .. }) {
            self.cfs_place_woken(task, cpu);
        }
        let keeps_deadline = matches!(reason, Reason::Exec { .. });
        self.join_queue(ctx, task, is_foreign, keeps_deadline);
    }

    fn dispatch(&mut self, ctx: &mut Context<'_>, cpu: CpuId, _previous: Option<TaskId>) -> Dispatch {
        self.counters.sched_count += 1;
        // From here on what happens to this CPU is seen without a kick.
        self.cpus[cpu.index()].resched = true;
        self.charge(ctx, cpu);
        self.send_away_current(ctx, cpu);
        let mut next = self.pick(ctx, cpu);
        let swaps = std::mem::take(&mut self.cpus[cpu.index()].swaps);
        if next.is_none() && !swaps {
            if self.cpus[cpu.index()].idling {
                self.balance_for_idle(ctx, cpu);
            } else {
                self.balance_new_idle(ctx, cpu);
            }
            next = self.pick(ctx, cpu);
        }
        let queue = &mut self.cpus[cpu.index()];
        queue.resched = false;
        queue.nohz_kicked = false;
        match next {
            Some(task) if queue.curr == next => self.cfs_goes_on(task),
            Some(task) => {
                queue.idling = false;
                queue.idle_since_ns = None;
                self.put_back_current(cpu);
                self.set_current(cpu, task);
            }
            None => {
                self.counters.sched_goidle += u64::from(!queue.idling);
                queue.idling = true;
                queue.idle_since_ns.get_or_insert(ctx.now_ns);
                self.idle.insert(cpu);
            }
        }
        Dispatch { task: next, slice_ns: Dispatch::NO_SLICE }
    }

    fn running(&mut self, _: &mut Context<'_>, _: CpuId, _: TaskId) {}

    fn blocked(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.charge(ctx, cpu);
        if self.is_eevdf() && !self.eevdf_is_eligible(task, cpu) {
            self.counters.delayed += 1;
            self.put_back_current(cpu);
            self.entities[task.index()].delayed = true;
            self.cpus[cpu.index()].delayed += 1;
            return;
        }
        self.count_out(task);
        if self.is_eevdf() {
            self.eevdf_note_lag(task, cpu);
        }
        self.cpus[cpu.index()].curr = None;
        self.left(task, cpu);
    }

    fn exited(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        if self.entities[task.index()].delayed {
            self.eevdf_leave(ctx, task);
        }
        let cpu = self.entities[task.index()].cpu;
        self.advance_clock(ctx, cpu);
        self.track(task);
        if self.features.load.keeps_blocked_load() {
            self.detach(task);
        }
        self.entities[task.index()].is_new = false;
    }

    fn yielded(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.give_way(ctx, cpu, task);
    }

    fn yield_to(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId, target: TaskId) -> bool {
        self.give_way_to(ctx, cpu, task, target)
    }

    fn queue_of(&self, task: TaskId) -> Option<CpuId> {
        let entity = self.entities.get(task.index())?;
        let runs = self.cpus[entity.cpu.index()].curr == Some(task);
        (runs || (entity.queued && !entity.delayed)).then_some(entity.cpu)
    }

    fn queue_length(&self, cpu: CpuId) -> usize {
        self.cpus[cpu.index()].nr_running()
    }

    fn wakes_by_interrupt(&self, by: CpuId, cpu: CpuId) -> bool {
        let queue = &self.cpus[cpu.index()];
        let has_nothing = queue.curr.is_none() && queue.is_empty();
        let leaves_work = self.features.ttwu_queue_on_idle && by != cpu && has_nothing;
        leaves_work || !self.domains.share_cache(by, cpu)
    }

    fn affinity_changed(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.grow(ctx);
        let entity = &self.entities[task.index()];
        let cpu = entity.cpu;
        if Self::is_allowed(ctx, task, cpu) {
            self.note_stray(ctx, task, cpu);
            return;
        }
        let entity = &self.entities[task.index()];
        if self.cpus[cpu.index()].curr == Some(task) {
            self.reschedule(ctx, cpu);
        } else if entity.delayed {
            self.eevdf_leave(ctx, task);
        } else if entity.queued {
            self.move_queued(ctx, task, cpu, Self::first_allowed(ctx, task));
        }
    }

    fn prefer_node(
        &mut self,
        ctx: &mut Context<'_>,
        cpu: CpuId,
        task: TaskId,
        preference: NodePreference,
    ) -> Option<NodeId> {
        self.settle_on_node(ctx, cpu, task, preference)
    }

    fn tick_period_ns(&self) -> u64 {
        self.settings.tick_period_ns()
    }

    fn tick(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.charge(ctx, cpu);
        self.track(task);
        if self.features.cpu_load_history {
            self.update_history(ctx, cpu);
        }
        if !self.is_eevdf() && self.cfs_slice_is_over(cpu, task) {
            self.counters.slices_ended += 1;
            self.reschedule(ctx, cpu);
        }
        self.balance_at_tick(ctx, cpu);
    }

    fn timer_period_ns(&self) -> u64 {
        u64::MAX
    }

    fn timer(&mut self, _: &mut Context<'_>) {}

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.counters.named(&self.settings)
    }

    fn reset_counters(&mut self) {
        self.counters = Counters::default();
    }
}
