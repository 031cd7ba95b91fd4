//! Linux's fair scheduler: CFS of the 3.6 and 4.2 eras, and EEVDF of 6.12.

mod balance;
mod domains;
mod entity;
mod load;
mod run_queue;
mod select;
mod settings;

pub use settings::{Domains, LinuxEra, LinuxSettings};

use super::{Context, TaskFacts};
use crate::cpumask::CpuMask;
use crate::ids::{CpuId, TaskId};
use crate::machine::Machine;
use domains::DomainTree;
use entity::Entity;
use run_queue::RunQueue;
use settings::Tunables;

/// Counters, by the names of `/proc/schedstat` and `/proc/PID/sched` where they have them.
#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    /// Calls of the scheduler.
    sched_count: u64,
}

/// Linux's fair scheduler for the CPUs of one kernel.
#[derive(Clone, Debug)]
pub struct Linux {
    settings: LinuxSettings,
    tunables: Tunables,
    cpus: Vec<RunQueue>,
    entities: Vec<Entity>,
    /// CPUs that idle and have nothing in their queue.
    idle: CpuMask,
    domains: DomainTree,
    counters: Counters,
}

impl Linux {
    /// A scheduler for all CPUs of the machine, as the kernel sees it.
    pub fn new(settings: LinuxSettings, machine: &Machine, tasks: &[TaskFacts]) -> Self {
        let cpus = machine.cpu_count();
        Self {
            settings,
            tunables: Tunables::new(cpus),
            cpus: vec![RunQueue::default(); cpus],
            entities: tasks.iter().map(|facts| Entity::new(facts.weight)).collect(),
            idle: machine.all_cpus().clone(),
            domains: DomainTree::default(),
            counters: Counters::default(),
        }
    }

    /// Moves a task that waits from one queue to another, and lets it preempt there.
    pub(super) fn move_queued(&mut self, _ctx: &mut Context<'_>, _task: TaskId, _from: CpuId, _to: CpuId) {}
}
