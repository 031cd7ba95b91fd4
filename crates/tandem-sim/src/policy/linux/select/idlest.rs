//! The idlest CPU for a new task or one at its exec (`find_idlest_cpu()`).
//!
//! From the widest domain down, it takes the idlest group, if that is enough better than the own one, then
//! the idlest CPU in it, and continues in the lower domains of that CPU.

use crate::policy::Context;
use crate::policy::linux::domains::{DomainTree, Flags, Group};
use crate::policy::linux::features::{IdlestGroup, PlacementFeatures};
use crate::policy::linux::group::{GroupKind, GroupStats, tolerated_numa_imbalance};
use crate::policy::linux::queues::FULL_USE;
use crate::policy::linux::queues::Runqueues;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

/// A search for the idlest CPU.
#[derive(Clone, Copy)]
pub(super) struct Idlest<'a> {
    pub queues: &'a Runqueues,
    pub domains: &'a DomainTree,
    pub features: &'a PlacementFeatures,
    pub task: TaskId,
    /// The CPUs to consider.
    pub within: &'a CpuMask,
    /// The flag of the domains to search.
    pub flag: Flags,
}

/// The loads by which 5.2 compares groups, as sums over CPUs for 1024 of capacity.
#[derive(Clone, Copy)]
struct GroupLoads {
    /// Of tasks that run or wait.
    present: u64,
    /// The same, including the fading contributions of tasks that blocked.
    lasting: u64,
    /// Most unused time of one CPU, in 1024ths.
    most_spare: u64,
}

impl Idlest<'_> {
    /// The idlest CPU, seen from `start`.
    pub fn cpu(&self, ctx: &mut Context<'_>, start: CpuId) -> CpuId {
        let mut cpu = start;
        let mut next = self.widest_below(cpu, u32::MAX);
        while let Some(at) = next {
            let better = self
                .idlest_group(ctx, at)
                .map(|nth| self.idlest_of(ctx, &self.domains.group(at, nth).cpus, cpu))
                .filter(|&found| found != cpu);
            next = match better {
                Some(found) => {
                    cpu = found;
                    self.widest_below(cpu, self.domains.span(at).weight)
                }
                None => at.checked_sub(1).filter(|below| self.domains.of(cpu).contains(below)),
            };
        }
        cpu
    }

    /// The widest domain of the CPU with this flag and fewer CPUs than `weight`.
    fn widest_below(&self, cpu: CpuId, weight: u32) -> Option<usize> {
        self.domains.of(cpu).rev().find(|&at| {
            self.domains.span(at).weight < weight
                && self.domains.domain(at).tunables.flags.contains(self.flag)
        })
    }

    /// The group of the domain that is enough better than the own one, if any.
    fn idlest_group(&self, ctx: &mut Context<'_>, at: usize) -> Option<usize> {
        *ctx.peers_scanned += self.domains.span(at).weight - 1;
        match self.features.idlest_group {
            IdlestGroup::Load => self.idlest_group_by_load(at),
            IdlestGroup::SpareCapacity => self.idlest_group_by_spare(at),
            IdlestGroup::GroupType => self.idlest_group_by_kind(at),
        }
    }

    fn idlest_group_by_load(&self, at: usize) -> Option<usize> {
        let mut own_load = 0;
        let mut idlest: Option<(u64, usize)> = None;
        for (nth, group) in self.domains.groups(at).enumerate() {
            if !group.cpus.intersects(self.within) {
                continue;
            }
            let load_of = |cpu| {
                if nth == 0 { self.queues.loads().source(cpu, 0) } else { self.queues.loads().target(cpu, 0) }
            };
            let load = group.cpus.iter().map(load_of).sum::<u64>() * 1024 / self.queues.capacity(group);
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

    /// 5.2: the group with the CPU that has the most unused time, if that is enough for the task; for a
    /// child, whose use is not known yet, or without such a CPU, the group whose load is lower by more than
    /// the tolerance (`find_idlest_group()`). If the task may use no CPU of the own group, the own load stays
    /// the largest number, and the sum with the tolerance wraps: only an all but idle group is better.
    fn idlest_group_by_spare(&self, at: usize) -> Option<usize> {
        let tunables = self.domains.domain(at).tunables;
        let imbalance_pct = u64::from(tunables.imbalance_pct);
        let bias_pct = 100 + (imbalance_pct - 100) / 2;
        let tolerated = 1024 * (imbalance_pct - 100) / 100;
        let mut own = GroupLoads { present: u64::MAX, lasting: u64::MAX, most_spare: 0 };
        let mut idlest: Option<(GroupLoads, usize)> = None;
        let mut roomiest: Option<(u64, usize)> = None;
        for (nth, group) in self.domains.groups(at).enumerate() {
            if !group.cpus.intersects(self.within) {
                continue;
            }
            let loads = self.loads_without(group);
            if nth == 0 {
                own = loads;
                continue;
            }
            let better = idlest.is_none_or(|(best, _)| {
                best.present > loads.present + tolerated
                    || (loads.present < best.present + tolerated
                        && 100 * best.lasting > bias_pct * loads.lasting)
            });
            if better {
                let least = idlest.map_or(u64::MAX, |(best, _)| best.present);
                let present = if least > loads.present + tolerated { loads.present } else { least };
                idlest = Some((GroupLoads { present, ..loads }, nth));
            }
            if loads.most_spare > roomiest.map_or(0, |(most, _)| most) {
                roomiest = Some((loads.most_spare, nth));
            }
        }
        if self.flag != Flags::FORK {
            let enough = self.queues.loads().task_util(self.task) / 2;
            let most = roomiest.map_or(0, |(most, _)| most);
            if own.most_spare > enough && bias_pct * own.most_spare > 100 * most {
                return None;
            }
            if most > enough {
                return roomiest.map(|(_, nth)| nth);
            }
        }
        let (other, nth) = idlest?;
        let near_enough = tunables.flags.contains(Flags::NUMA) && other.present + tolerated >= own.present;
        let more_loaded = other.present > own.present.wrapping_add(tolerated);
        let about_equal = own.present < other.present + tolerated
            && 100 * u128::from(own.lasting) < u128::from(bias_pct * other.lasting);
        (!near_enough && !more_loaded && !about_equal).then_some(nth)
    }

    fn loads_without(&self, group: &Group) -> GroupLoads {
        let mut loads = GroupLoads { present: 0, lasting: 0, most_spare: 0 };
        for cpu in group.cpus.iter() {
            loads.present += self.queues.loads().of_cpu(cpu);
            loads.lasting += self.queues.loads().lasting(cpu);
            let entity = self.queues.entity(self.task);
            let used = if entity.cpu == cpu && !entity.is_new {
                self.queues.loads().cpu_util_without(cpu, self.task)
            } else {
                self.queues.loads().cpu_util(cpu)
            };
            loads.most_spare = loads.most_spare.max(FULL_USE.saturating_sub(used));
        }
        let capacity = self.queues.capacity(group);
        GroupLoads {
            present: loads.present * 1024 / capacity,
            lasting: loads.lasting * 1024 / capacity,
            ..loads
        }
    }

    fn idlest_group_by_kind(&self, at: usize) -> Option<usize> {
        let tunables = self.domains.domain(at).tunables;
        let mut own = None;
        let mut idlest: Option<(GroupStats, usize)> = None;
        for (nth, group) in self.domains.groups(at).enumerate() {
            if !group.cpus.intersects(self.within) {
                continue;
            }
            let stats = GroupStats::measure(self.queues, group, tunables.imbalance_pct, Some(self.task));
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
                        .min(self.within.count_and(&self.domains.span(at).cpus) as u32);
                    let imbalance = own.idle_cpus.abs_diff(other.idle_cpus);
                    tolerated_numa_imbalance(imbalance, own.nr_running + 1, threshold) == 0
                };
                !stay && own.idle_cpus < other.idle_cpus
            }
        };
        push.then_some(nth)
    }

    /// The CPU of the group that became idle last, or has the least load; since 5.4 rather the first that runs
    /// idle tasks alone. 3.6 uses load alone.
    fn idlest_of(&self, ctx: &mut Context<'_>, group: &CpuMask, own: CpuId) -> CpuId {
        let mut latest_idle: Option<(Option<u64>, CpuId)> = None;
        let mut least_load: Option<(u64, CpuId)> = None;
        for cpu in group.iter_and(self.within) {
            *ctx.peers_scanned += 1;
            if group.count() > 1 && self.features.takes_sched_idle(self.queues, self.task, cpu) {
                return cpu;
            }
            if self.features.idlest_by_idle_stamp && self.queues.available().contains(cpu) {
                let since = self.queues.of(cpu).idle_since_ns();
                if latest_idle.is_none_or(|(latest, _)| since > latest) {
                    latest_idle = Some((since, cpu));
                }
            } else if latest_idle.is_none() {
                let load = self.queues.loads().of_cpu(cpu);
                if least_load.is_none_or(|(least, _)| load < least || (load == least && cpu == own)) {
                    least_load = Some((load, cpu));
                }
            }
        }
        latest_idle.map(|(_, cpu)| cpu).or(least_load.map(|(_, cpu)| cpu)).unwrap_or(own)
    }
}
