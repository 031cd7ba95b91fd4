//! The queueing discipline of a CPU: [`cfs`] or [`eevdf`].
//!
//! Problem: the two keep different state of queues and tasks, and decide differently; the rest of the
//! scheduler should not depend on which one runs.
//!
//! Approach: a discipline owns its state, and answers the same few questions. It gets the [`Timeline`] of the
//! queue to read: the caller ([`Queues`](super::queues::Queues)) puts tasks into queues and takes them out,
//! and announces it. What is said of tasks holds for groups in a queue, too.

mod cfs;
mod eevdf;

pub(super) use cfs::{Cfs, SliceEnd};
pub(super) use eevdf::Eevdf;

use super::features::{DisciplineKind, Features};
use super::queues::{LevelId, Member, NICE_0_WEIGHT, Timeline, scale};
use super::settings::Tunables;
use crate::policy::Reason;
use tandem_machine::ids::TaskId;

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

/// What a charge makes of the turn of the task on the CPU; the stronger comes later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Charged {
    GoesOn,
    /// Others wait, and the task is not protected from them: another pick is due.
    Unprotected,
    /// The slice is over, and others wait.
    SliceOver,
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
    /// The discipline of a release, for this many queues. A lag may be as long as a tick.
    pub fn new(features: &Features, tunables: &Tunables, levels: usize, tick_period_ns: u64) -> Self {
        match features.discipline {
            DisciplineKind::Cfs => Self::Cfs(Cfs::new(tunables, features.slice_restarts, levels)),
            DisciplineKind::Eevdf(features) => {
                Self::Eevdf(Eevdf::new(features, tunables, levels, tick_period_ns))
            }
        }
    }

    /// Starts the state of a task of this weight that has never run; new numbers come in order.
    pub fn begin(&mut self, task: TaskId, weight: u32) {
        each!(self, it => it.begin(task, weight))
    }

    /// The weight of a task changes. `average`: that of its queue, if it is in one and the discipline has
    /// any.
    pub fn reweigh(&mut self, task: Member, weight: u32, average: Option<i64>) {
        match self {
            Self::Cfs(cfs) => cfs.reweigh(task, weight),
            Self::Eevdf(eevdf) => eevdf.reweigh(task, weight, average),
        }
    }

    /// The average virtual run time of a queue, if the discipline has any.
    pub fn average_vruntime(&self, level: LevelId, tasks: &Timeline) -> Option<i64> {
        match self {
            Self::Cfs(_) => None,
            Self::Eevdf(eevdf) => Some(eevdf.average_vruntime(level, tasks)),
        }
    }

    /// Whether slices depend on who shares the CPU.
    pub fn divides_slices(&self) -> bool {
        matches!(self, Self::Cfs(_))
    }

    /// Slice of a task among these, if there are no others; `added` if it is not yet one of them, ns.
    pub fn slice_ns(&self, tasks: &Timeline, task: Member, added: bool) -> u64 {
        match self {
            Self::Cfs(cfs) => cfs.slice_ns(tasks, task, added),
            Self::Eevdf(eevdf) => eevdf.slice_ns(),
        }
    }

    /// Whether a new task is placed by the queue of the CPU on which it was born, even if it goes to another
    /// CPU.
    pub fn places_at_birth(&self) -> bool {
        matches!(self, Self::Cfs(_))
    }

    /// Places a new task by the queue of the CPU on which it was born, if that is what the discipline does.
    pub fn place_at_birth(&mut self, level: LevelId, tasks: &Timeline, task: Member, slice_ns: u64) {
        if let Self::Cfs(cfs) = self {
            cfs.place_at_birth(level, tasks, task, slice_ns);
        }
    }

    /// A task in no queue is from now on one of CPU `to`.
    pub fn migrate(&mut self, task: Member, from: LevelId, to: LevelId) {
        if let Self::Cfs(cfs) = self {
            cfs.migrate(task, from, to);
        }
    }

    /// Places a task that is about to come to the queue of the CPU.
    #[inline]
    pub fn place(&mut self, level: LevelId, tasks: &Timeline, task: Member, coming: Coming) {
        match self {
            Self::Cfs(cfs) => cfs.place(level, task, coming),
            Self::Eevdf(eevdf) => eevdf.place(level, tasks, task, coming),
        }
    }

    /// The task is about to wait in the queue of the CPU, sorted by what this returns.
    #[inline]
    pub fn enqueue(&mut self, level: LevelId, task: Member) -> i64 {
        match self {
            Self::Cfs(cfs) => cfs.key(task),
            Self::Eevdf(eevdf) => eevdf.enqueue(level, task),
        }
    }

    /// The task is about to leave the queue of the CPU, where it is sorted by what this returns.
    #[inline]
    pub fn dequeue(&mut self, level: LevelId, task: Member) -> i64 {
        match self {
            Self::Cfs(cfs) => cfs.key(task),
            Self::Eevdf(eevdf) => eevdf.dequeue(level, task),
        }
    }

    /// Charges the task on the CPU for a run time.
    #[inline]
    pub fn charge(&mut self, level: LevelId, tasks: &Timeline, task: Member, ran_ns: u64) -> Charged {
        match self {
            Self::Cfs(cfs) => {
                cfs.charge(level, tasks, task, ran_ns);
                Charged::GoesOn
            }
            Self::Eevdf(eevdf) => eevdf.charge(level, tasks, task, ran_ns),
        }
    }

    /// Time until the slice of the task on a CPU ends, if it goes on; 0 with a discipline that does not know.
    pub fn slice_left_ns(&self, task: Member) -> u64 {
        match self {
            Self::Cfs(_) => 0,
            Self::Eevdf(eevdf) => eevdf.slice_left_ns(task),
        }
    }

    /// Whether a task that has come into the queue preempts the one that runs from it.
    pub fn preempts(&self, level: LevelId, tasks: &Timeline, current: Member, task: Member) -> bool {
        match self {
            Self::Cfs(cfs) => cfs.preferable(current, task),
            Self::Eevdf(eevdf) => eevdf.preempts(level, tasks, task),
        }
    }

    /// The task on the CPU is protected in its slice no longer, if it was.
    pub fn cancel_protection(&mut self, task: Member) {
        if let Self::Eevdf(eevdf) = self {
            eevdf.cancel_protection(task);
        }
    }

    /// The task that the CPU should run next; it may be one that is leaving.
    #[inline]
    pub fn pick(&mut self, level: LevelId, tasks: &Timeline) -> Option<Member> {
        match self {
            Self::Cfs(cfs) => cfs.pick(level, tasks),
            Self::Eevdf(eevdf) => eevdf.pick(level, tasks),
        }
    }

    /// Nothing runs from the queue any longer.
    pub fn put_prev(&mut self, level: LevelId) {
        if let Self::Eevdf(eevdf) = self {
            eevdf.put_prev(level);
        }
    }

    /// A task begins a turn on its CPU.
    #[inline]
    pub fn set_next(&mut self, task: Member) {
        each!(self, it => it.set_next(task))
    }

    /// A task goes on without a switch.
    #[inline]
    pub fn goes_on(&mut self, task: Member) {
        if let Self::Cfs(cfs) = self {
            cfs.goes_on(task);
        }
    }

    /// CFS, if it is that.
    #[inline]
    pub fn cfs(&mut self) -> Option<&mut Cfs> {
        match self {
            Self::Cfs(cfs) => Some(cfs),
            Self::Eevdf(_) => None,
        }
    }

    /// The task on the CPU gives way; others wait. CFS marks it instead.
    pub fn yields(&mut self, level: LevelId, tasks: &Timeline, task: Member) {
        if let Self::Eevdf(eevdf) = self {
            eevdf.yields(level, tasks, task);
        }
    }

    /// The task, which waits in the queue, should run next.
    pub fn set_next_buddy(&mut self, level: LevelId, task: Member) {
        each!(self, it => it.set_next_buddy(level, task))
    }

    /// Takes marks of these kinds off the task; returns which it had.
    pub fn clear_buddies(&mut self, level: LevelId, task: Member, kinds: [bool; 3]) -> [bool; 3] {
        match self {
            Self::Cfs(cfs) => cfs.clear_buddies(level, task, kinds),
            Self::Eevdf(eevdf) => [eevdf.clear_buddy(level, task), false, false],
        }
    }

    /// Whether the task, on the CPU or in its queue, is ahead of its share; never with CFS.
    pub fn is_ahead(&self, level: LevelId, tasks: &Timeline, task: Member) -> bool {
        match self {
            Self::Cfs(_) => false,
            Self::Eevdf(eevdf) => !eevdf.is_eligible(level, tasks, task),
        }
    }

    /// Whether the task on the CPU, which blocks, stays in the queue for now (`DELAY_DEQUEUE`).
    pub fn delays_dequeue(&mut self, level: LevelId, tasks: &Timeline, task: Member) -> bool {
        match self {
            Self::Cfs(_) => false,
            Self::Eevdf(eevdf) => eevdf.delays_dequeue(level, tasks, task),
        }
    }

    /// A task is about to leave the CPU or its queue.
    #[inline]
    pub fn leaves(&mut self, level: LevelId, tasks: &Timeline, task: Member) {
        if let Self::Eevdf(eevdf) = self {
            eevdf.note_lag(level, tasks, task);
        }
    }

    /// The task has left the CPU; it ran.
    #[inline]
    pub fn left_running(&mut self, level: LevelId, tasks: &Timeline, task: Member) {
        if let Self::Eevdf(eevdf) = self {
            eevdf.left(level, tasks, task);
        }
    }

    /// The task has left the queue of the CPU; it waited.
    #[inline]
    pub fn left_waiting(&mut self, level: LevelId, tasks: &Timeline, task: Member) {
        match self {
            Self::Cfs(cfs) => cfs.update_min_vruntime(level, tasks),
            Self::Eevdf(eevdf) => eevdf.left(level, tasks, task),
        }
    }

    /// A task that was leaving has left for good.
    pub fn end_delay(&mut self, task: Member) {
        if let Self::Eevdf(eevdf) = self {
            eevdf.end_delay(task);
        }
    }

    /// A task that was leaving wakes up; returns whether it must be placed again
    /// (`requeue_delayed_entity()`).
    pub fn requeues_delayed(&mut self, level: LevelId, tasks: &Timeline, task: Member) -> bool {
        match self {
            Self::Cfs(_) => false,
            Self::Eevdf(eevdf) => eevdf.requeues_delayed(level, tasks, task),
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
