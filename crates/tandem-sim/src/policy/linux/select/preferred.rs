//! Placement in a kernel that heeds soft affinity and conserves work.
//!
//! The task goes to an idle CPU that it prefers, or else to an idle CPU that it may use; if none idles, it
//! waits on a CPU that it prefers:
//! 1. The choice between the waker's CPU and the old one is as usual, but only considers those that the task
//!    prefers. If it prefers neither, the home is the preferred CPU nearest to the old one.
//! 2. From there it searches for an idle CPU: in the same cache, on the same node, on the other nodes by
//!    distance; in each, first for an idle core.
//! 3. If there is none, it searches the other allowed CPUs in the same way.
//!
//! New tasks, and those at their exec, go to the idlest preferred CPU, if one idles, else as above. A task at
//! its exec stays where it is rather than go to a CPU that it does not prefer.
//!
//! Assumption: such a kernel has a mask of idle CPUs for each node, so that a search pays for each cache and
//! node, not for each CPU.

use super::idle_sibling::round_from;
use super::{Selector, WakeUp, nearest_allowed};
use crate::policy::Context;
use crate::policy::Reason;
use crate::policy::linux::domains::Flags;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

impl Selector<'_> {
    /// The CPU for a task that prefers these.
    pub(super) fn select_preferring(
        &mut self,
        ctx: &mut Context<'_>,
        task: TaskId,
        preferred: &CpuMask,
        reason: Reason,
    ) -> CpuId {
        let chosen = match reason {
            Reason::Start => match ctx.tasks[task.index()].past_cpu {
                Some(past_cpu) => nearest_allowed(ctx, &ctx.tasks[task.index()].hard_affinity, past_cpu),
                None => {
                    let parent_cpu = nearest_allowed(ctx, preferred, self.queues.entity(task).cpu);
                    self.spread_preferring(ctx, task, preferred, parent_cpu)
                }
            },
            Reason::Fork { cpu, .. } => self.spread_preferring(ctx, task, preferred, cpu),
            Reason::Exec { cpu } => {
                *ctx.peers_scanned += 1;
                if preferred.contains(cpu) {
                    self.idlest_cpu(ctx, task, preferred, Flags::EXEC, cpu)
                } else {
                    self.nearest_idle(ctx, preferred, None, cpu).unwrap_or(cpu)
                }
            }
            Reason::Wake { waker, cpu, sync } => {
                let waker = waker.or(self.queues.of(cpu).curr());
                self.wake_preferring(ctx, task, preferred, (waker, cpu, sync))
            }
        };
        if preferred.contains(chosen) {
            self.placement.counters.soft_preferred += 1;
        } else {
            self.placement.counters.soft_allowed += 1;
        }
        chosen
    }

    fn wake_preferring(
        &mut self,
        ctx: &mut Context<'_>,
        task: TaskId,
        preferred: &CpuMask,
        (waker, cpu, sync): (Option<TaskId>, CpuId, bool),
    ) -> CpuId {
        let last = self.queues.entity(task).cpu;
        let prev = nearest_allowed(ctx, preferred, last);
        let wake =
            WakeUp { task, allowed: preferred, preferred: None, within: preferred, prev, waker, cpu, sync };
        self.placement.wakers.record(ctx.now_ns, wake);
        let home = self.affine_target(ctx, wake).unwrap_or(prev);
        for near in [home, prev] {
            *ctx.peers_scanned += u32::from(near != cpu);
            if self.queues.idle().contains(near) {
                return near;
            }
        }
        self.idle_or_home(ctx, task, preferred, home)
    }

    /// A new task: the idlest preferred CPU if one idles, else as usual.
    fn spread_preferring(
        &self,
        ctx: &mut Context<'_>,
        task: TaskId,
        preferred: &CpuMask,
        parent_cpu: CpuId,
    ) -> CpuId {
        let home = nearest_allowed(ctx, preferred, parent_cpu);
        let idlest = self.idlest_cpu(ctx, task, preferred, Flags::FORK, home);
        if self.queues.idle().contains(idlest) {
            idlest
        } else {
            self.idle_or_home(ctx, task, preferred, idlest)
        }
    }

    /// An idle CPU among the preferred ones, or else among the other allowed ones, or else `home`.
    fn idle_or_home(&self, ctx: &mut Context<'_>, task: TaskId, preferred: &CpuMask, home: CpuId) -> CpuId {
        let tasks = ctx.tasks;
        let allowed: &CpuMask = &tasks[task.index()].hard_affinity;
        self.nearest_idle(ctx, preferred, None, home)
            .or_else(|| self.nearest_idle(ctx, allowed, Some(preferred), home))
            .unwrap_or(home)
    }

    /// The idle CPU nearest to `start` that is in one mask and not in another.
    fn nearest_idle(
        &self,
        ctx: &mut Context<'_>,
        mask: &CpuMask,
        except: Option<&CpuMask>,
        start: CpuId,
    ) -> Option<CpuId> {
        let machine = ctx.machine;
        let nodes = machine.nodes_by_distance(machine.cpu(start).node);
        let regions =
            std::iter::once(machine.llc_cpus(start)).chain(nodes.iter().map(|&node| machine.node_cpus(node)));
        let is_usable =
            |cpu: &CpuId| mask.contains(*cpu) && except.is_none_or(|except| !except.contains(*cpu));
        let core_idles = |cpu: &CpuId| machine.siblings(*cpu).is_subset(self.queues.idle());
        for region in regions {
            *ctx.peers_scanned += 1;
            let idle = || round_from(region, self.queues.idle(), start).filter(is_usable);
            let found = idle().find(core_idles).or_else(|| idle().next());
            if found.is_some() {
                return found;
            }
        }
        None
    }
}
