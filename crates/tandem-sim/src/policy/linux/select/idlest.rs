//! The idlest CPU for a new task or one at its exec (`find_idlest_cpu()`).
//!
//! From the widest domain down: the idlest group, unless it is not better enough than the own one; in it the
//! idlest CPU; then on in the domains below of that CPU.

use crate::cpumask::CpuMask;
use crate::ids::{CpuId, TaskId};
use crate::policy::linux::domains::Flags;
use crate::policy::linux::group::{GroupKind, GroupStats, tolerated_numa_imbalance};
use crate::policy::linux::{Context, Linux, LinuxEra};

impl Linux {
    /// The idlest CPU in the domains with this flag, seen from `start`.
    pub(super) fn idlest_cpu(&self, ctx: &mut Context<'_>, task: TaskId, flag: Flags, start: CpuId) -> CpuId {
        let mut cpu = start;
        let mut next = self.widest_below(cpu, flag, u32::MAX);
        while let Some(at) = next {
            let better = self
                .idlest_group(ctx, task, at)
                .map(|nth| self.idlest_of(ctx, task, &self.domains.group(at, nth).cpus, cpu))
                .filter(|&found| found != cpu);
            next = match better {
                Some(found) => {
                    cpu = found;
                    self.widest_below(cpu, flag, self.domains.span(at).weight)
                }
                None => at.checked_sub(1).filter(|below| self.domains.of(cpu).contains(below)),
            };
        }
        cpu
    }

    /// The widest domain of the CPU with this flag and fewer CPUs than `weight`.
    fn widest_below(&self, cpu: CpuId, flag: Flags, weight: u32) -> Option<usize> {
        self.domains.of(cpu).rev().find(|&at| {
            self.domains.span(at).weight < weight && self.domains.domain(at).tunables.flags.contains(flag)
        })
    }

    /// Which group of the domain is enough better than the own one, if any.
    fn idlest_group(&self, ctx: &mut Context<'_>, task: TaskId, at: usize) -> Option<usize> {
        *ctx.peers_scanned += self.domains.span(at).weight - 1;
        match self.settings.era {
            LinuxEra::V3_6 | LinuxEra::V4_2 => self.idlest_group_by_load(ctx, task, at),
            LinuxEra::V6_12 => self.idlest_group_by_kind(ctx, task, at),
        }
    }

    fn idlest_group_by_load(&self, ctx: &Context<'_>, task: TaskId, at: usize) -> Option<usize> {
        let allowed = &ctx.tasks[task.index()].hard_affinity;
        let mut own_load = 0;
        let mut idlest: Option<(u64, usize)> = None;
        for (nth, group) in self.domains.groups(at).enumerate() {
            if !group.cpus.intersects(allowed) {
                continue;
            }
            let load_of = |cpu| if nth == 0 { self.source_load(cpu, 0) } else { self.target_load(cpu, 0) };
            let load = group.cpus.iter().map(load_of).sum::<u64>() * 1024 / u64::from(group.capacity);
            if nth == 0 {
                own_load = load;
            } else if idlest.is_none_or(|(least, _)| load < least) {
                idlest = Some((load, nth));
            }
        }
        let (load, nth) = idlest?;
        let imbalance_pct = u64::from(self.domains.domain(at).tunables.imbalance_pct);
        let bias_pct = 100 + (imbalance_pct - 100) / 2;
        (100 * own_load >= bias_pct * load).then_some(nth)
    }

    fn idlest_group_by_kind(&self, ctx: &Context<'_>, task: TaskId, at: usize) -> Option<usize> {
        let allowed = &ctx.tasks[task.index()].hard_affinity;
        let tunables = self.domains.domain(at).tunables;
        let mut own = None;
        let mut idlest: Option<(GroupStats, usize)> = None;
        for (nth, group) in self.domains.groups(at).enumerate() {
            if !group.cpus.intersects(allowed) {
                continue;
            }
            let stats = self.group_stats(group, tunables.imbalance_pct, Some(task));
            if nth == 0 {
                own = Some(stats);
            } else if idlest.is_none_or(|(best, _)| stats.is_idler_than(&best)) {
                idlest = Some((stats, nth));
            }
        }
        let (other, nth) = idlest?;
        let Some(own) = own else { return Some(nth) };
        if own.kind != other.kind {
            return (own.kind > other.kind).then_some(nth);
        }
        let push = match own.kind {
            GroupKind::Overloaded | GroupKind::FullyBusy => {
                let pct = u64::from(tunables.imbalance_pct);
                let tolerated = 1024 * (pct - 100) / 100;
                let near_enough =
                    tunables.flags.contains(Flags::NUMA) && other.avg_load + tolerated >= own.avg_load;
                !near_enough
                    && other.avg_load < own.avg_load + tolerated
                    && 100 * own.avg_load > pct * other.avg_load
            }
            GroupKind::Imbalanced | GroupKind::SharedCore => false,
            GroupKind::HasSpare => {
                let stay = tunables.flags.contains(Flags::NUMA) && {
                    let threshold = self
                        .domains
                        .domain(at)
                        .imb_numa_nr
                        .min(allowed.count_and(&self.domains.span(at).cpus) as u32);
                    let imbalance = own.idle_cpus.abs_diff(other.idle_cpus);
                    tolerated_numa_imbalance(imbalance, own.nr_running + 1, threshold) == 0
                };
                !stay && own.idle_cpus < other.idle_cpus
            }
        };
        push.then_some(nth)
    }

    /// The CPU of the group that idles since the latest time, or has the least load. 3.6 knows only load.
    fn idlest_of(&self, ctx: &mut Context<'_>, task: TaskId, group: &CpuMask, own: CpuId) -> CpuId {
        let allowed = &ctx.tasks[task.index()].hard_affinity;
        let mut latest_idle: Option<(Option<u64>, CpuId)> = None;
        let mut least_load: Option<(u64, CpuId)> = None;
        for cpu in group.iter_and(allowed) {
            *ctx.peers_scanned += 1;
            if self.settings.era >= LinuxEra::V4_2 && self.idle.contains(cpu) {
                let since = self.cpus[cpu.index()].idle_since_ns;
                if latest_idle.is_none_or(|(latest, _)| since > latest) {
                    latest_idle = Some((since, cpu));
                }
            } else if latest_idle.is_none() {
                let load = self.cpu_load(cpu);
                if least_load.is_none_or(|(least, _)| load < least || (load == least && cpu == own)) {
                    least_load = Some((load, cpu));
                }
            }
        }
        latest_idle.map(|(_, cpu)| cpu).or(least_load.map(|(_, cpu)| cpu)).unwrap_or(own)
    }
}
