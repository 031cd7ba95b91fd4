//! The queueing discipline of a CPU: [`cfs`] or [`eevdf`].
//!
//! Problem: the two keep different state of queues and tasks, and decide differently; the rest of the
//! scheduler should not depend on which one runs.
//!
//! Approach: a discipline owns its state, and answers the same few questions. It gets the [`Timeline`] of the
//! CPU to read: the caller ([`Queues`](super::queues::Queues)) puts tasks into queues and takes them out, and
//! announces it.

mod cfs;
mod eevdf;

pub(super) use cfs::Cfs;
pub(super) use eevdf::Eevdf;

use super::features::{DisciplineKind, Features};
use super::queues::{NICE_0_WEIGHT, Timeline, scale};
use super::settings::Tunables;
use crate::policy::Reason;
use tandem_machine::ids::{CpuId, TaskId};

/// How a task comes to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coming {
    /// For the first time.
    New,
    /// It was blocked.
    Woken,
    /// It could run all the time, but elsewhere.
    Moved,
}

impl From<Reason> for Coming {
    fn from(reason: Reason) -> Self {
        match reason {
            Reason::Start | Reason::Fork { .. } => Self::New,
            Reason::Wake { .. } => Self::Woken,
            Reason::Exec { .. } => Self::Moved,
        }
    }
}

/// Either discipline.
#[derive(Clone, Debug)]
pub(super) enum Discipline {
    Cfs(Cfs),
    Eevdf(Eevdf),
}

/// Forwards a call to the discipline at hand.
macro_rules! each {
    ($any:expr, $discipline:ident => $call:expr) => {
        match $any {
            Discipline::Cfs($discipline) => $call,
            Discipline::Eevdf($discipline) => $call,
        }
    };
}

impl Discipline {
    /// The discipline of a release, for this many CPUs. A lag may be as long as a tick.
    pub fn new(features: &Features, tunables: &Tunables, cpus: usize, tick_period_ns: u64) -> Self {
        match features.discipline {
            DisciplineKind::Cfs => Self::Cfs(Cfs::new(tunables, features.slice_restarts, cpus)),
            DisciplineKind::Eevdf => Self::Eevdf(Eevdf::new(tunables, cpus, tick_period_ns)),
        }
    }

    /// Starts the state of a task of this weight that has never run; new numbers come in order.
    pub fn begin(&mut self, task: TaskId, weight: u32) {
        each!(self, it => it.begin(task, weight))
    }

    /// Slice of a task that would join these now, ns.
    pub fn first_slice_ns(&self, tasks: &Timeline, task: TaskId) -> u64 {
        match self {
            Self::Cfs(cfs) => cfs.first_slice_ns(tasks, task),
            Self::Eevdf(eevdf) => eevdf.slice_ns(),
        }
    }

    /// Whether a new task is placed by the queue of the CPU on which it was born, even if it goes to another
    /// CPU.
    pub fn places_at_birth(&self) -> bool {
        matches!(self, Self::Cfs(_))
    }

    /// Places a new task by the queue of the CPU on which it was born, if that is what the discipline does.
    pub fn place_at_birth(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId) {
        if let Self::Cfs(cfs) = self {
            cfs.place_at_birth(cpu, tasks, task);
        }
    }

    /// A task in no queue is from now on one of CPU `to`.
    pub fn migrate(&mut self, task: TaskId, from: CpuId, to: CpuId) {
        if let Self::Cfs(cfs) = self {
            cfs.migrate(task, from, to);
        }
    }

    /// Places a task that is about to come to the queue of the CPU.
    #[inline]
    pub fn place(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId, coming: Coming) {
        match self {
            Self::Cfs(cfs) => cfs.place(cpu, task, coming),
            Self::Eevdf(eevdf) => eevdf.place(cpu, tasks, task, coming),
        }
    }

    /// The task is about to wait in the queue of the CPU, sorted by what this returns.
    #[inline]
    pub fn enqueue(&mut self, cpu: CpuId, task: TaskId) -> i64 {
        match self {
            Self::Cfs(cfs) => cfs.key(task),
            Self::Eevdf(eevdf) => eevdf.enqueue(cpu, task),
        }
    }

    /// The task is about to leave the queue of the CPU, where it is sorted by what this returns.
    #[inline]
    pub fn dequeue(&mut self, cpu: CpuId, task: TaskId) -> i64 {
        match self {
            Self::Cfs(cfs) => cfs.key(task),
            Self::Eevdf(eevdf) => eevdf.dequeue(cpu, task),
        }
    }

    /// Charges the task on the CPU for a run time; returns whether that ends its turn before the next tick.
    #[inline]
    pub fn charge(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId, ran_ns: u64) -> bool {
        match self {
            Self::Cfs(cfs) => {
                cfs.charge(cpu, tasks, task, ran_ns);
                false
            }
            Self::Eevdf(eevdf) => eevdf.charge(task, ran_ns) && !tasks.none_waits(),
        }
    }

    /// A tick; returns whether it ends the turn of the task on the CPU.
    pub fn tick(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId) -> bool {
        match self {
            Self::Cfs(cfs) => cfs.slice_is_over(cpu, tasks, task),
            Self::Eevdf(_) => false,
        }
    }

    /// Whether a task that has come into the queue of the CPU preempts the one that runs there.
    pub fn preempts(&mut self, cpu: CpuId, tasks: &Timeline, current: TaskId, task: TaskId) -> bool {
        match self {
            Self::Cfs(cfs) => cfs.preempts(cpu, tasks, current, task),
            Self::Eevdf(eevdf) => eevdf.choose(cpu, tasks) == Some(task),
        }
    }

    /// The task that the CPU should run next; it may be one that is leaving.
    #[inline]
    pub fn pick(&mut self, cpu: CpuId, tasks: &Timeline) -> Option<TaskId> {
        match self {
            Self::Cfs(cfs) => cfs.pick(cpu, tasks),
            Self::Eevdf(eevdf) => eevdf.choose(cpu, tasks),
        }
    }

    /// A task begins a turn on its CPU.
    #[inline]
    pub fn set_next(&mut self, task: TaskId) {
        each!(self, it => it.set_next(task))
    }

    /// A task goes on without a switch.
    #[inline]
    pub fn goes_on(&mut self, task: TaskId) {
        if let Self::Cfs(cfs) = self {
            cfs.goes_on(task);
        }
    }

    /// The task on the CPU gives way; others wait.
    pub fn yields(&mut self, cpu: CpuId, task: TaskId) {
        match self {
            Self::Cfs(cfs) => cfs.yields(cpu, task),
            Self::Eevdf(eevdf) => eevdf.yields(task),
        }
    }

    /// Another task has yielded to this one, which waits in the queue of the CPU.
    pub fn yielded_to(&mut self, cpu: CpuId, task: TaskId) {
        if let Self::Cfs(cfs) = self {
            cfs.set_next_buddy(cpu, task);
        }
    }

    /// Whether the task on the CPU, which blocks, stays in the queue for now (`DELAY_DEQUEUE`).
    pub fn delays_dequeue(&self, cpu: CpuId, tasks: &Timeline, task: TaskId) -> bool {
        match self {
            Self::Cfs(_) => false,
            Self::Eevdf(eevdf) => !eevdf.is_eligible(cpu, tasks, task),
        }
    }

    /// A task is about to leave the CPU or its queue.
    #[inline]
    pub fn leaves(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId) {
        if let Self::Eevdf(eevdf) = self {
            eevdf.note_lag(cpu, tasks, task);
        }
    }

    /// The task has left the CPU; it ran.
    #[inline]
    pub fn left_running(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId) {
        match self {
            Self::Cfs(cfs) => cfs.clear_buddies(cpu, task),
            Self::Eevdf(eevdf) => eevdf.left(cpu, tasks, task),
        }
    }

    /// The task has left the queue of the CPU; it waited.
    #[inline]
    pub fn left_waiting(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId) {
        match self {
            Self::Cfs(cfs) => {
                cfs.clear_buddies(cpu, task);
                cfs.update_min_vruntime(cpu, tasks);
            }
            Self::Eevdf(eevdf) => eevdf.left(cpu, tasks, task),
        }
    }

    /// A task that was leaving has left for good.
    pub fn end_delay(&mut self, task: TaskId) {
        if let Self::Eevdf(eevdf) = self {
            eevdf.forget_gain(task);
        }
    }

    /// A task that was leaving wakes up; returns whether it must be placed again
    /// (`requeue_delayed_entity()`).
    pub fn requeues_delayed(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId) -> bool {
        match self {
            Self::Cfs(_) => false,
            Self::Eevdf(eevdf) => eevdf.requeues_delayed(cpu, tasks, task),
        }
    }
}

/// Real time as virtual time of a task of this weight, ns at nice 0.
fn virtual_time(weight: u32, time_ns: u64) -> i64 {
    if weight == NICE_0_WEIGHT {
        return time_ns as i64;
    }
    scale(time_ns, NICE_0_WEIGHT.into(), weight.into()) as i64
}

/// For the tests: the state of either discipline, to read and to set.
#[cfg(test)]
impl Discipline {
    pub fn vruntime_mut(&mut self, task: TaskId) -> &mut i64 {
        match self {
            Self::Cfs(cfs) => &mut cfs.task_mut(task).vruntime,
            Self::Eevdf(eevdf) => &mut eevdf.task_mut(task).vruntime,
        }
    }

    pub fn cfs_mut(&mut self) -> &mut Cfs {
        match self {
            Self::Cfs(cfs) => cfs,
            Self::Eevdf(_) => panic!("it is EEVDF"),
        }
    }

    pub fn eevdf_mut(&mut self) -> &mut Eevdf {
        match self {
            Self::Cfs(_) => panic!("it is CFS"),
            Self::Eevdf(eevdf) => eevdf,
        }
    }
}
