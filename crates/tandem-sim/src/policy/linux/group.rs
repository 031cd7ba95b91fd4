//! How busy a group of CPUs is by the measures of 6.12 (`struct sg_lb_stats`, `group_classify()`).

use super::domains::Group;
use super::queues::Runqueues;
use tandem_machine::ids::TaskId;

/// Kinds of groups, from those that take tasks to those that give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum GroupKind {
    /// Can run more tasks.
    HasSpare,
    /// Runs as much as it can; no task waits long.
    FullyBusy,
    /// Threads of one core run several tasks, and the CPU that asks would have a core for one.
    SharedCore,
    /// A lower level could not be balanced, because of affinity.
    Imbalanced,
    /// Has more tasks than it can run.
    Overloaded,
}

/// Measurements of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupStats {
    pub load: u64,
    /// Time used, in 1024ths of a CPU.
    pub util: u64,
    /// Time used and waited for, in 1024ths of a CPU.
    pub runnable: u64,
    pub nr_running: u32,
    /// Tasks without those that are leaving.
    pub nr_runnable: u32,
    pub idle_cpus: u32,
    /// Load for 1024 of capacity.
    pub avg_load: u64,
    pub capacity: u64,
    pub weight: u32,
    pub kind: GroupKind,
}

impl GroupStats {
    /// Measures a group, as if the task `without` were not there.
    pub fn measure(queues: &Runqueues, group: &Group, imbalance_pct: u32, without: Option<TaskId>) -> Self {
        let loads = queues.loads();
        let mut stats = Self {
            load: 0,
            util: 0,
            runnable: 0,
            nr_running: 0,
            nr_runnable: 0,
            idle_cpus: 0,
            avg_load: 0,
            capacity: queues.capacity(group),
            weight: group.weight,
            kind: GroupKind::HasSpare,
        };
        for cpu in group.cpus.iter() {
            let queue = queues.of(cpu);
            // A task's averages stay with the CPU that it ran on last.
            let own = without.filter(|&task| queues.entity(task).cpu == cpu && !queues.entity(task).is_new);
            let present = own.is_some_and(|task| queue.curr() == Some(task));
            let running = (queue.nr_running() - usize::from(present)) as u32;
            let less = |all: u64, of_task: u64| all.saturating_sub(of_task);
            stats.load += less(loads.of_cpu(cpu), own.map_or(0, |task| loads.of_task(task)));
            stats.util += own.map_or(loads.cpu_util(cpu), |task| loads.cpu_util_without(cpu, task));
            stats.runnable += less(loads.runnable(cpu), own.map_or(0, |task| loads.task_util(task)));
            stats.nr_running += running;
            stats.nr_runnable += (queue.nr_runnable() - usize::from(present)) as u32;
            stats.idle_cpus += u32::from(running == 0 && (present || queues.idle().contains(cpu)));
        }
        stats.avg_load = stats.load * 1024 / stats.capacity;
        stats.kind = stats.classify(u64::from(imbalance_pct), group.imbalanced);
        stats
    }

    fn classify(&self, imbalance_pct: u64, imbalanced: bool) -> GroupKind {
        let waits = self.capacity * imbalance_pct < self.runnable * 100;
        let used_up = self.capacity * 100 < self.util * imbalance_pct;
        if self.nr_running > self.weight && (used_up || waits) {
            GroupKind::Overloaded
        } else if imbalanced {
            GroupKind::Imbalanced
        } else if self.nr_running < self.weight || (!waits && self.capacity * 100 > self.util * imbalance_pct)
        {
            GroupKind::HasSpare
        } else {
            GroupKind::FullyBusy
        }
    }

    /// Whether a new task should rather go here (`update_pick_idlest()`).
    pub(super) fn is_idler_than(&self, best: &Self) -> bool {
        if self.kind != best.kind {
            return self.kind < best.kind;
        }
        match self.kind {
            GroupKind::Overloaded | GroupKind::FullyBusy => self.avg_load < best.avg_load,
            GroupKind::Imbalanced | GroupKind::SharedCore => false,
            GroupKind::HasSpare => {
                self.idle_cpus > best.idle_cpus || (self.idle_cpus == best.idle_cpus && self.util < best.util)
            }
        }
    }
}

/// The part of an imbalance between NUMA nodes that counts, with this many tasks running on the destination.
/// A pair of tasks that communicate stays together in a domain that has little to do
/// (`adjust_numa_imbalance()`).
pub(super) fn tolerated_numa_imbalance(imbalance: u32, running: u32, threshold: u32) -> u32 {
    const PAIR: u32 = 2;
    if running <= threshold && imbalance <= PAIR { 0 } else { imbalance }
}
