//! Soft affinity: the CPUs that a task prefers among those that it may use.
//!
//! Problem: keep the tasks of one instance near each other and near their memory while there is room, without
//! wasting CPUs elsewhere, as binding would.
//!
//! Approach: one of two, or none ([`SoftAffinity`]).
//!
//! 1. *With tunables*: the patches "Scheduler Soft Affinity" by Subhra Mazumdar (RFC, linux-kernel,
//!    2019-06-26), for era 5.2. Only placement changes.
//!    - First level (`first_level()` in `select/mod.rs`): for a task that wakes up, is new or begins another
//!      program, it compares the first CPU that the task prefers with the first of the others. If the use of
//!      the former x `sched_preferred` exceeds that of the latter x `sched_allowed`, the search covers all
//!      allowed CPUs, else the preferred ones. The idlest CPU comes from this set, and a waker pulls the task
//!      only to a CPU of this set. A task that is not pulled keeps its old CPU as the target, even if that is
//!      outside.
//!    - Second level (`select/llc_scan.rs`): the searches for an idle CPU near the target try the preferred
//!      CPUs first, then the others; by an oversight, the search for single CPUs never reaches the others.
//!    - Balancing ignores it, so idle CPUs pull tasks away, and their next wake-up may bring them back.
//! 2. *Work-conserving*: this project's own, after the reviewers' request to use any CPU that idles. See
//!    `select/preferred.rs` for wake-ups and [`Strays`] for balancing.
//!
//! A soft affinity that equals the hard affinity has no effect.

use super::{Context, SoftAffinity};
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

impl SoftAffinity {
    /// The CPUs that the task prefers, if the kernel heeds that and they are not all that it may use.
    #[inline]
    pub(super) fn preference<'a>(self, ctx: &Context<'a>, task: TaskId) -> Option<&'a CpuMask> {
        if self == Self::Ignored {
            return None;
        }
        let facts = &ctx.tasks[task.index()];
        facts.soft_affinity.as_deref().filter(|&soft| *soft != *facts.hard_affinity)
    }
}

/// Direction of a move, by the preference of the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveDirection {
    /// From a CPU that it does not prefer to one that it does.
    Home,
    /// The other way round.
    Out,
    /// Neither, or its preference does not count in balancing.
    Either,
}

/// The CPUs that may have tasks that prefer other CPUs, for work-conserving soft affinity: a hint that each
/// search corrects, so that CPUs without work need not search all queues.
///
/// A task leaves the CPUs that it prefers only for one that would idle, and comes back when one of the
/// preferred CPUs would idle:
/// - A CPU that runs out of work takes or asks for strays first (`balance/new_idle.rs`).
/// - A task that waits on a CPU that it prefers is cache-hot for a busy CPU that it does not prefer.
/// - A task that runs on a CPU that it prefers is not moved away to even out groups.
#[derive(Clone, Debug)]
pub(super) struct Strays {
    soft_affinity: SoftAffinity,
    cpus: CpuMask,
}

impl Strays {
    /// No CPU has strays.
    pub fn new(soft_affinity: SoftAffinity, cpus: usize) -> Self {
        Self { soft_affinity, cpus: CpuMask::empty(cpus) }
    }

    /// Whether balancing heeds the preferences of tasks.
    #[inline]
    pub fn are_heeded(&self) -> bool {
        self.soft_affinity == SoftAffinity::WorkConserving
    }

    /// The direction of a move of the task from one CPU to another.
    pub fn direction(&self, ctx: &Context<'_>, task: TaskId, from: CpuId, to: CpuId) -> MoveDirection {
        if !self.are_heeded() {
            return MoveDirection::Either;
        }
        let Some(preferred) = self.soft_affinity.preference(ctx, task) else { return MoveDirection::Either };
        match (preferred.contains(from), preferred.contains(to)) {
            (false, true) => MoveDirection::Home,
            (true, false) => MoveDirection::Out,
            _ => MoveDirection::Either,
        }
    }

    /// Whether the task, which is on this CPU, prefers other CPUs.
    pub fn is_stray(&self, ctx: &Context<'_>, task: TaskId, cpu: CpuId) -> bool {
        self.soft_affinity.preference(ctx, task).is_some_and(|preferred| !preferred.contains(cpu))
    }

    /// Notes the CPU if the task, which has come to it or changed its preference, is a stray there.
    #[inline]
    pub fn note(&mut self, ctx: &Context<'_>, task: TaskId, cpu: CpuId) {
        if self.are_heeded() && self.is_stray(ctx, task, cpu) {
            self.cpus.insert(cpu);
        }
    }

    /// Notes that the CPU has no strays.
    pub fn has_none(&mut self, cpu: CpuId) {
        self.cpus.remove(cpu);
    }

    /// The CPUs that may have strays.
    pub fn cpus(&self) -> &CpuMask {
        &self.cpus
    }
}
