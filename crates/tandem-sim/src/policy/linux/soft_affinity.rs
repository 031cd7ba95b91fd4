//! Soft affinity: the CPUs that a task prefers among those that it may use.
//!
//! Problem: keep the tasks of one instance near each other and near their memory while there is room, without wasting
//! the CPUs elsewhere, as binding them would.
//!
//! Approach: one of two, or none ([`SoftAffinity`]).
//!
//! 1. *With tunables*: the patches "Scheduler Soft Affinity" by Subhra Mazumdar (RFC, linux-kernel, 2019-06-26), for
//!    era 5.2. Only placement changes.
//!    - First level ([`Linux::first_level`]): for a task that wakes up, is new or begins another program, one CPU is
//!      looked at of those that it prefers and one of the others, the first of each. If the former is used so much more
//!      that its use x `sched_preferred` exceeds that of the latter x `sched_allowed`, all allowed CPUs come into
//!      question, else the preferred ones. Among them the idlest CPU is searched for, and in them the waker's CPU must
//!      be for the task to be pulled to it. A task that is not pulled keeps its old CPU for a target, though that be
//!      outside.
//!    - Second level (`select/llc_scan.rs`): the searches for an idle CPU near the target try the preferred CPUs first,
//!      then the others; that of single CPUs never comes to the others, by an oversight.
//!    - Balancing knows nothing of it, so idle CPUs pull tasks away, and their next wake-up may bring them back.
//! 2. *Work-conserving*: this project's own, after what the reviewers asked for: if a CPU idles, use it. See
//!    `select/preferred.rs` for wake-ups and `balance/strays.rs` for balancing.
//!
//! A task whose soft affinity is absent, or all that it may use, is treated as without either.

use super::{Context, Linux, SoftAffinity};
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::TaskId;

impl Linux {
    /// The CPUs that the task prefers, if that is heeded and they are not all that it may use.
    pub(super) fn preference<'a>(&self, ctx: &Context<'a>, task: TaskId) -> Option<&'a CpuMask> {
        if self.settings.soft_affinity == SoftAffinity::Ignored {
            return None;
        }
        let facts = &ctx.tasks[task.index()];
        facts.soft_affinity.as_deref().filter(|&soft| *soft != *facts.hard_affinity)
    }

    /// Of the allowed and the preferred CPUs those among which to look, by the tunables; the uses are as of when they
    /// were last updated.
    pub(super) fn first_level<'a>(
        &mut self,
        ctx: &mut Context<'_>,
        allowed: &'a CpuMask,
        preferred: &'a CpuMask,
    ) -> &'a CpuMask {
        let SoftAffinity::Tunables { allowed: allowed_factor, preferred: preferred_factor } =
            self.settings.soft_affinity
        else {
            return allowed;
        };
        *ctx.peers_scanned += 2;
        let samples = preferred.iter().next().zip(allowed.iter_and_not(preferred).next());
        let tips = samples.is_some_and(|(inside, outside)| {
            u64::from(preferred_factor) * self.cpu_util(inside)
                > u64::from(allowed_factor) * self.cpu_util(outside)
        });
        if tips {
            self.counters.soft_allowed += 1;
            allowed
        } else {
            self.counters.soft_preferred += 1;
            preferred
        }
    }
}
