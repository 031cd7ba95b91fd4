//! The search for an idle CPU that shares the cache of the chosen CPU (`select_idle_sibling()`).
//!
//! Simplified: the model knows whether a cache has an idle core; 5.2 and 6.12 keep a hint, which can be wrong
//! until the next search finds none.

use super::{Selector, WakeUp};
use crate::policy::Context;
use crate::policy::linux::features::{IdleSibling, RecentUsedCpu};
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;

impl Selector<'_> {
    /// An idle CPU near `target`, or `target`.
    pub(super) fn idle_sibling(&mut self, ctx: &mut Context<'_>, wake: WakeUp<'_>, target: CpuId) -> CpuId {
        let prev_is_near = wake.prev != target && self.domains.share_cache(wake.prev, target);
        // All kernels examine the target first; 3.6 does not examine the CPU where the task ran before.
        *ctx.peers_scanned += u32::from(target != wake.cpu);
        if self.takes(wake.task, target) {
            return target;
        }
        if self.features.sis_prev && prev_is_near {
            *ctx.peers_scanned += 1;
            if self.takes(wake.task, wake.prev) {
                return wake.prev;
            }
        }
        if self.features.idle_sibling == IdleSibling::Groups {
            return self.idle_group(ctx, wake.allowed, target).unwrap_or(target);
        }
        if let Some(recent) = self.recently_used(wake, target) {
            return recent;
        }
        let Some(at) = self.domains.llc_domain(target) else { return target };
        if self.features.idle_sibling == IdleSibling::SisProp {
            return self.scan_llc(ctx, wake, at, target).unwrap_or(target);
        }
        let span = &self.domains.span(at).cpus;
        self.idle_core(ctx, wake.allowed, span, target)
            .or_else(|| self.idle_thread(ctx, wake, span, target))
            .or_else(|| self.idle_cpu(ctx, wake, at, target))
            .unwrap_or(target)
    }

    /// 3.6 and 4.2: a group that idles as a whole, first among the cores of the cache, then among the threads
    /// of the core.
    fn idle_group(&self, ctx: &mut Context<'_>, allowed: &CpuMask, target: CpuId) -> Option<CpuId> {
        let highest = self.domains.llc_domain(target)?;
        let lowest = self.domains.of(target).start;
        for at in (lowest..=highest).rev() {
            for group in self.domains.groups(at).filter(|group| group.cpus.intersects(allowed)) {
                let busy = group.cpus.iter().position(|cpu| !self.queues.available().contains(cpu));
                *ctx.peers_scanned += busy.map_or(group.weight, |before| before as u32 + 1);
                if busy.is_none() {
                    return group.cpus.next_and_wrapping(allowed, CpuId(0));
                }
            }
        }
        None
    }

    /// Since 5.2: the CPU where the task was before its last one, if it idles and is near.
    fn recently_used(&mut self, wake: WakeUp<'_>, target: CpuId) -> Option<CpuId> {
        let recent = self.placement.wakers.recent_cpu(wake.task);
        let usable = recent != wake.prev
            && recent != target
            && self.domains.share_cache(recent, target)
            && self.takes(wake.task, recent)
            && wake.allowed.contains(recent);
        if usable || self.features.recent_used_cpu == RecentUsedCpu::Wakee {
            self.placement.wakers.set_recent_cpu(wake.task, wake.prev);
        }
        usable.then_some(recent)
    }

    /// 6.12: a core of which all threads idle.
    fn idle_core(
        &self,
        ctx: &mut Context<'_>,
        allowed: &CpuMask,
        span: &CpuMask,
        target: CpuId,
    ) -> Option<CpuId> {
        if !self.queues.available().intersects(span) || ctx.machine.siblings(target).count() == 1 {
            return None;
        }
        let mut scanned = 0;
        let core = round_from(span, allowed, target).find(|&cpu| {
            scanned += 1;
            ctx.machine.siblings(cpu).is_subset(self.queues.available())
        })?;
        *ctx.peers_scanned += scanned;
        Some(core)
    }

    /// 6.12: another thread of the core where the task ran, if that core is near.
    fn idle_thread(
        &self,
        ctx: &mut Context<'_>,
        wake: WakeUp<'_>,
        span: &CpuMask,
        target: CpuId,
    ) -> Option<CpuId> {
        if !self.domains.share_cache(wake.prev, target) {
            return None;
        }
        let threads = ctx.machine.siblings(wake.prev);
        *ctx.peers_scanned += threads.count() as u32 - 1;
        threads
            .iter_and(wake.allowed)
            .find(|&cpu| cpu != wake.prev && span.contains(cpu) && self.takes(wake.task, cpu))
    }

    /// 6.12: an idle CPU among the next few of the cache; the busier the cache, the fewer (`SIS_UTIL`).
    fn idle_cpu(&self, ctx: &mut Context<'_>, wake: WakeUp<'_>, at: usize, target: CpuId) -> Option<CpuId> {
        let span = self.domains.span(at);
        let mut scanned = 0;
        let found = round_from(&span.cpus, wake.allowed, target).take(span.idle_scan as usize).find(|&cpu| {
            scanned += 1;
            self.takes(wake.task, cpu)
        });
        *ctx.peers_scanned += scanned;
        found
    }
}

/// The CPUs in both masks, once each, from the one after `start` on.
pub(super) fn round_from<'a>(
    mask: &'a CpuMask,
    allowed: &'a CpuMask,
    start: CpuId,
) -> impl Iterator<Item = CpuId> + 'a {
    let mut last = start;
    (0..mask.count_and(allowed)).map_while(move |_| {
        last = mask.next_and_after(allowed, last)?;
        Some(last)
    })
}
