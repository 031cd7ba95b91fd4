//! Soft affinity: the CPUs that a task prefers among those that it may use.
//!
//! Problem: keep the tasks of one instance near each other and near their memory while there is room, without wasting
//! the CPUs elsewhere, as binding them would.
//!
//! Approach: one of two, or none ([`SoftAffinity`]).
//!
//! 1. *With tunables*: the patches "Scheduler Soft Affinity" by Subhra Mazumdar (RFC, linux-kernel, 2019-06-26), for
//!    era 5.2. Only placement changes.
//!    - First level (`first_level()` in `select/mod.rs`): for a task that wakes up, is new or begins another program, one CPU is
//!      looked at of those that it prefers and one of the others, the first of each. If the former is used so much more
//!      that its use x `sched_preferred` exceeds that of the latter x `sched_allowed`, all allowed CPUs come into
//!      question, else the preferred ones. Among them the idlest CPU is searched for, and in them the waker's CPU must
//!      be for the task to be pulled to it. A task that is not pulled keeps its old CPU for a target, though that be
//!      outside.
//!    - Second level (`select/llc_scan.rs`): the searches for an idle CPU near the target try the preferred CPUs first,
//!      then the others; that of single CPUs never comes to the others, by an oversight.
//!    - Balancing knows nothing of it, so idle CPUs pull tasks away, and their next wake-up may bring them back.
//! 2. *Work-conserving*: this project's own, after what the reviewers asked for: if a CPU idles, use it. See
//!    `select/preferred.rs` for wake-ups and [`Strays`] for balancing.
//!
//! A task whose soft affinity is absent, or all that it may use, is treated as without either.

use super::{Context, SoftAffinity};
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

impl SoftAffinity {
    /// The CPUs that the task prefers, if that is heeded and they are not all that it may use.
    #[inline]
    pub(super) fn preference<'a>(self, ctx: &Context<'a>, task: TaskId) -> Option<&'a CpuMask> {
        if self == Self::Ignored {
            return None;
        }
        let facts = &ctx.tasks[task.index()];
        facts.soft_affinity.as_deref().filter(|&soft| *soft != *facts.hard_affinity)
    }
}

/// Where a move would take a task, by its preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From a CPU that it does not prefer to one that it does.
    Home,
    /// The other way round.
    Out,
    /// Neither, or its preference does not count in balancing.
    Either,
}

/// Which CPUs may have tasks that prefer others, for work-conserving soft affinity: a hint, corrected by whichever CPU
/// looks, so that those without work need not look at all queues.
///
/// Tasks leave the CPUs that they prefer only for one that would idle, and come back when one of these would:
/// - A CPU that runs out of work takes or asks for strays first (`balance/new_idle.rs`).
/// - A task that waits where it prefers to be is cache-hot for a busy CPU where it does not.
/// - A task that runs where it prefers to be is not moved away to make groups even.
#[derive(Clone, Debug)]
pub(super) struct Strays {
    soft_affinity: SoftAffinity,
    cpus: CpuMask,
}

impl Strays {
    /// No CPU has any.
    pub fn new(soft_affinity: SoftAffinity, cpus: usize) -> Self {
        Self { soft_affinity, cpus: CpuMask::empty(cpus) }
    }

    /// Whether balancing heeds what tasks prefer.
    #[inline]
    pub fn are_heeded(&self) -> bool {
        self.soft_affinity == SoftAffinity::WorkConserving
    }

    /// Where a move from one CPU to another would take the task.
    pub fn way(&self, ctx: &Context<'_>, task: TaskId, from: CpuId, to: CpuId) -> Way {
        if !self.are_heeded() {
            return Way::Either;
        }
        let Some(preferred) = self.soft_affinity.preference(ctx, task) else { return Way::Either };
        match (preferred.contains(from), preferred.contains(to)) {
            (false, true) => Way::Home,
            (true, false) => Way::Out,
            _ => Way::Either,
        }
    }

    /// Whether the task, one of this CPU's, prefers others.
    pub fn is_stray(&self, ctx: &Context<'_>, task: TaskId, cpu: CpuId) -> bool {
        self.soft_affinity.preference(ctx, task).is_some_and(|preferred| !preferred.contains(cpu))
    }

    /// The task is one of this CPU's now, or prefers others now: notes it if it is a stray there.
    #[inline]
    pub fn note(&mut self, ctx: &Context<'_>, task: TaskId, cpu: CpuId) {
        if self.are_heeded() && self.is_stray(ctx, task, cpu) {
            self.cpus.insert(cpu);
        }
    }

    /// The CPU has none.
    pub fn has_none(&mut self, cpu: CpuId) {
        self.cpus.remove(cpu);
    }

    /// The CPUs that may have some.
    pub fn cpus(&self) -> &CpuMask {
        &self.cpus
    }
}
