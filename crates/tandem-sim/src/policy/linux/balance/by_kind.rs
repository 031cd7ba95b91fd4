//! The busiest group as 6.12 finds it: by the kinds of [`GroupKind`], and tasks rather than load wherever
//! there is room (`find_busiest_group()`, `calculate_imbalance()`).

use super::{Attempt, Idleness, Imbalance, Search, Unit};
use crate::policy::linux::domains::{CPU_CAPACITY, DomainTree, Flags};
use crate::policy::linux::group::{GroupKind, GroupStats, tolerated_numa_imbalance};

const SCALE: u64 = CPU_CAPACITY as u64;

/// The whole domain, in sums.
#[derive(Clone, Copy, Default)]
struct Total {
    load: u64,
    capacity: u64,
    util: u64,
}

impl Total {
    fn add(&mut self, stats: &GroupStats) {
        self.load += stats.load;
        self.capacity += stats.capacity;
        self.util += stats.util;
    }

    fn avg_load(&self) -> u64 {
        SCALE * self.load / self.capacity
    }
}

impl Search<'_> {
    /// The imbalance, and the use of the domain's CPUs, in 1024ths of one CPU.
    pub(super) fn busiest_group_by_kind(&self) -> (Option<Imbalance>, u64) {
        let attempt = self.attempt;
        let imbalance_pct = self.domains.domain(attempt.at).tunables.imbalance_pct;
        let below = self.flags_below();
        let groups_are_cores = below.contains(Flags::SHARE_CAPACITY);
        let idle = attempt.idleness != Idleness::Busy;

        let mut total = Total::default();
        let mut local = None;
        let mut busiest: Option<(GroupStats, usize)> = None;
        for (nth, group) in self.domains.groups(attempt.at).enumerate() {
            let mut stats = GroupStats::measure(self.queues, group, imbalance_pct, None);
            total.add(&stats);
            let shares = nth > 0 && idle && groups_are_cores && self.counted(&stats) > 1;
            if shares && stats.kind < GroupKind::SharedCore {
                stats.kind = GroupKind::SharedCore;
            }
            if nth == 0 {
                local = Some(stats);
            } else if self.members(group).next().is_some()
                && self.counted(&stats) > 0
                && busiest.is_none_or(|(best, _)| is_busier(&stats, &best))
            {
                busiest = Some((stats, nth));
            }
        }
        let found = local.zip(busiest).and_then(|(local, (busiest, group))| {
            let (unit, amount) = self.imbalance(&local, &busiest, &total)?;
            (amount > 0).then_some(Imbalance { group, amount, unit })
        });
        (found, total.util)
    }

    /// Tasks of the group; since 6.14 without those that are leaving (`sum_h_nr_running`).
    fn counted(&self, stats: &GroupStats) -> u32 {
        if self.features.h_nr_runnable { stats.nr_runnable } else { stats.nr_running }
    }

    /// What should move from the busiest group to the own one, if anything, and how much
    /// (`calculate_imbalance()`).
    fn imbalance(&self, local: &GroupStats, busiest: &GroupStats, total: &Total) -> Option<(Unit, u64)> {
        let attempt = self.attempt;
        let tunables = self.domains.domain(attempt.at).tunables;
        let (flags, imbalance_pct) = (tunables.flags, tunables.imbalance_pct);
        let prefer_sibling = self.flags_below().contains(Flags::PREFER_SIBLING);
        let idle = attempt.idleness != Idleness::Busy;
        if busiest.kind != GroupKind::Imbalanced {
            if local.kind > busiest.kind {
                return None;
            }
            if local.kind == GroupKind::Overloaded
                && (local.avg_load >= busiest.avg_load
                    || local.avg_load >= total.avg_load()
                    || 100 * busiest.avg_load <= u64::from(imbalance_pct) * local.avg_load)
            {
                return None;
            }
            let spread = prefer_sibling
                && local.kind == GroupKind::HasSpare
                && idle
                && sibling_imbalance(local, busiest) > 1;
            let settled = busiest.kind != GroupKind::Overloaded
                && (!idle
                    || (busiest.weight > 1 && local.idle_cpus <= busiest.idle_cpus + 1)
                    || self.counted(busiest) == 1);
            if settled && !spread {
                return None;
            }
        }
        let (unit, amount) = if matches!(busiest.kind, GroupKind::SharedCore | GroupKind::Imbalanced) {
            (Unit::Tasks, 1)
        } else if local.kind == GroupKind::HasSpare {
            if busiest.kind > GroupKind::FullyBusy && !flags.contains(Flags::SHARE_LLC) {
                match local.capacity.saturating_sub(local.util) {
                    0 if idle => (Unit::Tasks, 1),
                    room => (Unit::Util, room),
                }
            } else {
                let even = if busiest.weight == 1 || prefer_sibling {
                    if idle { sibling_imbalance(local, busiest) } else { 0 }
                } else {
                    local.idle_cpus.saturating_sub(busiest.idle_cpus)
                };
                let even = if flags.contains(Flags::NUMA) {
                    let threshold = self.domains.domain(attempt.at).imb_numa_nr;
                    tolerated_numa_imbalance(even, local.nr_running + 1, threshold)
                } else {
                    even
                };
                (Unit::Tasks, u64::from(even / 2))
            }
        } else {
            (Unit::Load, load_to_move(local, busiest, total.avg_load()))
        };
        Some((unit, amount))
    }

    /// The flags of the domain below, if there is one.
    fn flags_below(&self) -> Flags {
        let below =
            self.attempt.at.checked_sub(1).filter(|at| self.domains.of(self.attempt.cpu).contains(at));
        below.map_or(Flags::NONE, |at| self.domains.domain(at).tunables.flags)
    }
}

/// Sets how many CPUs a wake-up may examine for an idle one: the number falls with the square of the use of
/// the cache's CPUs (`update_idle_cpu_scan()`).
pub(super) fn limit_idle_scan(domains: &mut DomainTree, attempt: Attempt, util: u64) {
    if domains.llc_domain(attempt.cpu) != Some(attempt.at) {
        return;
    }
    let pct = u64::from(domains.domain(attempt.at).tunables.imbalance_pct);
    let span = domains.span_mut(attempt.at);
    let weight = u64::from(span.weight);
    let used = util / weight;
    let busy = (used * used * pct * pct / (10_000 * SCALE)).min(SCALE);
    span.idle_scan = ((SCALE - busy) * weight / SCALE) as u32;
}

/// Whether tasks should rather be taken from the one group than from the other (`update_sd_pick_busiest()`).
fn is_busier(stats: &GroupStats, best: &GroupStats) -> bool {
    if stats.kind != best.kind {
        return stats.kind > best.kind;
    }
    match stats.kind {
        GroupKind::Overloaded => stats.avg_load > best.avg_load,
        GroupKind::Imbalanced | GroupKind::FullyBusy => false,
        GroupKind::SharedCore | GroupKind::HasSpare => {
            stats.idle_cpus < best.idle_cpus
                || (stats.idle_cpus == best.idle_cpus && stats.nr_running > best.nr_running)
        }
    }
}

/// By how many tasks the busiest group has more than the own one; at least 2 if the own one has none and the
/// other has several. Groups have the same number of cores here.
fn sibling_imbalance(local: &GroupStats, busiest: &GroupStats) -> u32 {
    let more = busiest.nr_running.saturating_sub(local.nr_running);
    if more <= 1 && local.nr_running == 0 && busiest.nr_running > 1 { 2 } else { more }
}

/// How much load should move so that both groups approach the average and neither passes it.
fn load_to_move(local: &GroupStats, busiest: &GroupStats, average: u64) -> u64 {
    if local.avg_load >= busiest.avg_load {
        return 0;
    }
    let excess = busiest.avg_load.saturating_sub(average) * busiest.capacity;
    let lack = average.saturating_sub(local.avg_load) * local.capacity;
    excess.min(lack) / SCALE
}
