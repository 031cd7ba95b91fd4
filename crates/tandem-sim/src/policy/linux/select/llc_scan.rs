//! The search of 5.2 through a last-level cache for an idle CPU (the later part of its
//! `select_idle_sibling()`): for a core that idles as a whole, then for any CPU, with a limit, then for a
//! thread of the target's core.
//!
//! The limit (`SIS_PROP`) is the number of CPUs that fits into a small part of the usual idle time of the
//! waker's CPU, by the duration of earlier searches. The kernel measures that; here examining a CPU takes a
//! line from the cache that is searched. With soft affinity, the searches for a core and for a thread go over
//! the preferred CPUs first and then over the others. The search for any CPU was meant to as well; but as
//! posted, it skips the others unless the first round ended at the target, and a round that finds nothing
//! ends at no CPU. The model does the same.

use super::{Selector, WakeUp};
use crate::policy::Context;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::CpuId;

/// A search may take one part in this many of the usual idle time; the divisor is large because the variance
/// is.
const IDLE_TIME_PART: u64 = 512;
/// Least limit; the CPU at which it is reached ends the search and is not examined.
const LEAST_LOOKS: u64 = 4;
/// The last search has a weight of one in this many in the average.
const COST_WEIGHT: i64 = 8;

/// CPUs that a search goes over at one time: those of a mask, but not of another one.
#[derive(Clone, Copy)]
struct Pass<'a> {
    mask: &'a CpuMask,
    except: Option<&'a CpuMask>,
}

impl Pass<'_> {
    fn holds(self, cpu: CpuId) -> bool {
        self.mask.contains(cpu) && self.except.is_none_or(|except| !except.contains(cpu))
    }
}

impl<'a> WakeUp<'a> {
    fn passes(self) -> impl Iterator<Item = Pass<'a>> {
        let first = Pass { mask: self.preferred.unwrap_or(self.allowed), except: None };
        let second = self.preferred.map(|preferred| Pass { mask: self.allowed, except: Some(preferred) });
        std::iter::once(first).chain(second)
    }
}

impl Selector<'_> {
    /// An idle CPU of the cache of `target`, whose domain is `at`.
    pub(super) fn scan_llc(
        &mut self,
        ctx: &mut Context<'_>,
        wake: WakeUp<'_>,
        at: usize,
        target: CpuId,
    ) -> Option<CpuId> {
        self.scan_for_core(ctx, wake, at, target)
            .or_else(|| self.scan_for_cpu(ctx, wake, at, target))
            .or_else(|| self.scan_for_thread(ctx, wake, target))
    }

    fn scan_for_core(
        &self,
        ctx: &mut Context<'_>,
        wake: WakeUp<'_>,
        at: usize,
        target: CpuId,
    ) -> Option<CpuId> {
        let span = &self.domains.span(at).cpus;
        if !self.queues.available().intersects(span) || ctx.machine.siblings(target).count() == 1 {
            return None;
        }
        let mut scanned = 0;
        let core = wake.passes().find_map(|pass| {
            ring(span, target).filter(|&cpu| pass.holds(cpu)).find(|&cpu| {
                scanned += 1;
                ctx.machine.siblings(cpu).is_subset(self.queues.available())
            })
        })?;
        *ctx.peers_scanned += scanned;
        Some(core)
    }

    fn scan_for_cpu(
        &mut self,
        ctx: &mut Context<'_>,
        wake: WakeUp<'_>,
        at: usize,
        target: CpuId,
    ) -> Option<CpuId> {
        let own = self.domains.llc_domain(wake.cpu)?;
        let average_ns = self.domains.domain(own).scan_cost_ns;
        let span = self.domains.span(at);
        let time_ns = u64::from(span.weight) * (self.queues.of(wake.cpu).avg_idle_ns() / IDLE_TIME_PART);
        let limit = (time_ns / (average_ns + 1)).max(LEAST_LOOKS);
        let searched = wake.preferred.unwrap_or(wake.allowed);
        let (mut looks, mut found) = (0, None);
        for (counted, cpu) in (1..).zip(ring(&span.cpus, target)) {
            if counted == limit {
                *ctx.peers_scanned += looks;
                // A search that stops early does not count in the average duration.
                return None;
            }
            if !searched.contains(cpu) {
                continue;
            }
            looks += 1;
            if self.queues.available().contains(cpu) {
                found = Some(cpu);
                break;
            }
        }
        *ctx.peers_scanned += looks;
        let took_ns = u64::from(looks) * u64::from(ctx.machine.hardware().llc_latency_ns);
        let change_ns = (took_ns as i64 - average_ns as i64) / COST_WEIGHT;
        self.domains.domain_mut(own).scan_cost_ns = average_ns.saturating_add_signed(change_ns);
        found
    }

    fn scan_for_thread(&self, ctx: &mut Context<'_>, wake: WakeUp<'_>, target: CpuId) -> Option<CpuId> {
        let threads = ctx.machine.siblings(target);
        *ctx.peers_scanned += threads.count() as u32 - 1;
        wake.passes().find_map(|pass| {
            threads.iter().find(|&cpu| pass.holds(cpu) && self.queues.available().contains(cpu))
        })
    }
}

/// The CPUs of a mask, once each, from `start` on.
fn ring(mask: &CpuMask, start: CpuId) -> impl Iterator<Item = CpuId> + '_ {
    let first = mask.next_and_wrapping(mask, start);
    let after = move |last: &CpuId| mask.next_after(*last).filter(|&next| Some(next) != first);
    std::iter::successors(first, after)
}
