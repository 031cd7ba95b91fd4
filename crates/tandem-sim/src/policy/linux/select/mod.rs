//! Placement of a task that wakes up, is new, or begins another program (`select_task_rq_fair()`).
//!
//! - New tasks, and tasks at their exec, go to the idlest CPU, found on the way down the domains
//!   (`idlest.rs`).
//! - Tasks that wake up stay near the waker or near where they ran. The first step decides between the two
//!   (`wake_affine.rs`), the second searches for an idle CPU that shares its cache (`idle_sibling.rs`). Where
//!   no CPUs share a cache according to the domains, that search is empty, and the task goes to the CPU of
//!   the first step.
//!
//! Simplified: no autogroups or cgroups, so a task's load is its own; no placement for energy or for CPUs of
//! unequal speed. A vCPU that is preempted while it idles counts as idle, except on hosts of 5.2, to whose
//! guests all vCPUs that halt seem to be preempted (`available_idle_cpu()`).

mod idle_sibling;
mod idlest;
mod llc_scan;
mod preferred;
mod wake_affine;

use super::counters::PlacementCounters;
use super::domains::DomainTree;
use super::domains::Flags;
use super::features::{PlacementFeatures, RecentUsedCpu, SchedIdle, WakeWide};
use super::queues::Runqueues;
use super::{Context, SoftAffinity};
use crate::policy::Reason;
use crate::scenario::TaskPolicy;
use idlest::Idlest;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};
use wake_affine::{WakeAffine, Wakers};

/// A wake-up.
#[derive(Clone, Copy)]
struct WakeUp<'a> {
    task: TaskId,
    /// CPUs that it may use.
    allowed: &'a CpuMask,
    /// CPUs that it prefers, if these are fewer and the kernel heeds soft affinity.
    preferred: Option<&'a CpuMask>,
    /// CPUs to which the waker may pull the task: all allowed ones, or the preferred ones.
    within: &'a CpuMask,
    /// The CPU where it last ran.
    prev: CpuId,
    /// The task that wakes it, or that the interrupt hit; none if the CPU idled.
    waker: Option<TaskId>,
    /// The CPU where the wake-up happens.
    cpu: CpuId,
    /// The waker is about to block.
    sync: bool,
}

/// State of placement.
#[derive(Clone, Debug, Default)]
pub(super) struct Placement {
    pub wakers: Wakers,
    pub counters: PlacementCounters,
}

/// Chooses CPUs for tasks. It reads the queues and changes none.
pub(super) struct Selector<'a> {
    pub queues: &'a Runqueues,
    pub domains: &'a mut DomainTree,
    pub placement: &'a mut Placement,
    pub features: &'a PlacementFeatures,
    pub soft_affinity: SoftAffinity,
}

impl Selector<'_> {
    /// The CPU for the task.
    pub(super) fn select(&mut self, ctx: &mut Context<'_>, task: TaskId, reason: Reason) -> CpuId {
        let tasks = ctx.tasks;
        let allowed: &CpuMask = &tasks[task.index()].hard_affinity;
        let prev = self.queues.entity(task).cpu;
        if allowed.count() == 1 {
            return nearest_allowed(ctx, allowed, prev);
        }
        let preferred = self.soft_affinity.preference(ctx, task);
        let within = match preferred {
            Some(preferred) if self.soft_affinity == SoftAffinity::WorkConserving => {
                return self.select_preferring(ctx, task, preferred, self.as_heeded(reason));
            }
            Some(preferred) => self.first_level(ctx, allowed, preferred),
            None => allowed,
        };
        let chosen = match self.as_heeded(reason) {
            Reason::Start => match tasks[task.index()].past_cpu {
                Some(past_cpu) => past_cpu,
                // Its parent is no task of the model; it has the same affinity and preference.
                None => {
                    let parent_cpu = nearest_allowed(ctx, preferred.unwrap_or(allowed), prev);
                    self.idlest_cpu(ctx, task, within, Flags::FORK, parent_cpu)
                }
            },
            Reason::Fork { cpu, .. } => self.idlest_cpu(ctx, task, within, Flags::FORK, cpu),
            Reason::Exec { cpu } => self.idlest_cpu(ctx, task, within, Flags::EXEC, cpu),
            Reason::Wake { waker, cpu, sync } => {
                let waker = waker.or(self.queues.of(cpu).curr());
                self.select_waking(ctx, WakeUp { task, allowed, preferred, within, prev, waker, cpu, sync })
            }
        };
        nearest_allowed(ctx, allowed, chosen)
    }

    /// The reason, as far as the release heeds that a waker is about to leave its CPU.
    fn as_heeded(&self, reason: Reason) -> Reason {
        match reason {
            Reason::Wake { waker: Some(waker), cpu, sync: true }
                if self.features.exiting_is_not_sync && self.queues.entity(waker).exiting =>
            {
                Reason::Wake { waker: Some(waker), cpu, sync: false }
            }
            other => other,
        }
    }

    fn select_waking(&mut self, ctx: &mut Context<'_>, wake: WakeUp<'_>) -> CpuId {
        if self.features.wake_wide != WakeWide::Absent {
            self.placement.wakers.record(ctx.now_ns, wake);
        }
        let chosen = match self.affine_target(ctx, wake) {
            Some(target) => self.idle_sibling(ctx, wake, target),
            // If the task could not be pulled, 3.6 does not search for an idle CPU near the old one.
            None if !self.features.sis_near_prev => wake.prev,
            None => self.idle_sibling(ctx, wake, wake.prev),
        };
        if self.features.recent_used_cpu == RecentUsedCpu::Waker
            && let Some(waker) = wake.waker
            && wake.within.contains(wake.cpu)
            && !self.wake_affine(&wake).is_wide()
        {
            // Used when the waker itself next wakes up.
            self.placement.wakers.set_recent_cpu(waker, wake.cpu);
        }
        chosen
    }

    /// The waker's CPU or the old one; `None` if the task could not be pulled to its waker anyway.
    fn affine_target(&mut self, ctx: &mut Context<'_>, wake: WakeUp<'_>) -> Option<CpuId> {
        if !wake.within.contains(wake.cpu) {
            return None;
        }
        // The smallest domain over both CPUs, if tasks may be pulled within it.
        let common = self.domains.of(wake.cpu).find(|&at| {
            self.domains.domain(at).tunables.flags.contains(Flags::WAKE_AFFINE)
                && self.domains.span(at).cpus.contains(wake.prev)
        })?;
        let affine = self.wake_affine(&wake);
        let pull = wake.cpu != wake.prev && !affine.is_wide() && affine.pulls(ctx, common);
        self.placement.counters.ttwu_move_affine += u64::from(pull);
        Some(if pull { wake.cpu } else { wake.prev })
    }

    /// Whether the task finds a CPU idle or, where that is as good, with nothing but idle tasks
    /// (`choose_idle_cpu()`).
    fn takes(&self, task: TaskId, cpu: CpuId) -> bool {
        self.queues.available().contains(cpu) || self.features.takes_sched_idle(self.queues, task, cpu)
    }

    fn wake_affine<'a>(&'a self, wake: &'a WakeUp<'a>) -> WakeAffine<'a> {
        let Self { queues, domains, placement, features, .. } = self;
        WakeAffine { queues, domains, wakers: &placement.wakers, features, wake }
    }

    /// The idlest CPU of `within` in the domains of `start` with this flag; `start` need not be in `within`.
    fn idlest_cpu(
        &self,
        ctx: &mut Context<'_>,
        task: TaskId,
        within: &CpuMask,
        flag: Flags,
        start: CpuId,
    ) -> CpuId {
        let Self { queues, domains, features, .. } = self;
        Idlest { queues, domains, features, task, within, flag }.cpu(ctx, start)
    }

    /// The CPUs to search, the allowed or the preferred ones, by the tunables of soft affinity; the use of
    /// CPUs is as of its last update.
    fn first_level<'a>(
        &mut self,
        ctx: &mut Context<'_>,
        allowed: &'a CpuMask,
        preferred: &'a CpuMask,
    ) -> &'a CpuMask {
        let SoftAffinity::Tunables { allowed: allowed_factor, preferred: preferred_factor } =
            self.soft_affinity
        else {
            return allowed;
        };
        *ctx.peers_scanned += 2;
        let samples = preferred.iter().next().zip(allowed.iter_and_not(preferred).next());
        let tips = samples.is_some_and(|(inside, outside)| {
            let loads = self.queues.loads();
            u64::from(preferred_factor) * loads.average_util(inside)
                > u64::from(allowed_factor) * loads.average_util(outside)
        });
        let counters = &mut self.placement.counters;
        if tips {
            counters.soft_allowed += 1;
            allowed
        } else {
            counters.soft_preferred += 1;
            preferred
        }
    }
}

impl PlacementFeatures {
    /// Whether a CPU runs idle tasks alone, and that is as good for this task as if it idled.
    fn takes_sched_idle(&self, queues: &Runqueues, task: TaskId, cpu: CpuId) -> bool {
        let heeds = match self.sched_idle {
            SchedIdle::Never => false,
            SchedIdle::Any => true,
            SchedIdle::NotIdle => queues.entity(task).policy != TaskPolicy::Idle,
        };
        heeds && queues.runs_idle_tasks(cpu)
    }
}

/// The CPU itself if it is allowed, else an allowed one of its node, else any allowed one.
fn nearest_allowed(ctx: &Context<'_>, allowed: &CpuMask, cpu: CpuId) -> CpuId {
    if allowed.contains(cpu) {
        return cpu;
    }
    let node = ctx.machine.node_cpus(ctx.machine.cpu(cpu).node);
    let first = |mask: &CpuMask| allowed.next_and_wrapping(mask, CpuId(0));
    first(node).or_else(|| first(ctx.machine.all_cpus())).unwrap_or(cpu)
}

#[cfg(test)]
mod tests;
