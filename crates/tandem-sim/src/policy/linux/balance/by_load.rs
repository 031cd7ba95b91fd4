//! The busiest group as 3.6, 4.2 and 5.2 find it: by load (`find_busiest_group()`, `calculate_imbalance()`).
//!
//! Loads of groups are compared for 1024 of capacity. A group is over its capacity if it has more tasks than
//! capacity for them: 3.6 counts its capacity in whole cores, 4.2 and 5.2 its CPUs, and these let a group
//! pass whose tasks, though many, use little of its time.

use super::{Idleness, Imbalance, Search, Unit};
use crate::policy::linux::domains::{CPU_CAPACITY, Flags, Group, Tunables};
use std::cmp::Ordering;

const SCALE: u64 = CPU_CAPACITY as u64;

/// How loaded a group is; the order is that in which groups are relieved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Other,
    /// Tasks could not move because of affinity.
    Imbalanced,
    OverCapacity,
}

#[derive(Clone, Copy, Debug)]
struct Stats {
    load: u64,
    capacity: u64,
    nr_running: u64,
    idle_cpus: u64,
    weight: u64,
    /// Number of tasks that the group has capacity for.
    room: u64,
    /// It has as many tasks, before the room is lowered for its siblings.
    is_full: bool,
    /// Its capacity compared with the use of its tasks; `Less` in 3.6, which does not know the use.
    time_to_use: Ordering,
    /// Load for 1024 of capacity.
    avg_load: u64,
    load_per_task: u64,
    imbalanced: bool,
    kind: Kind,
}

impl Stats {
    fn classify(&mut self) {
        self.kind = if self.nr_running > self.room && self.time_to_use == Ordering::Less {
            Kind::OverCapacity
        } else if self.imbalanced {
            Kind::Imbalanced
        } else {
            Kind::Other
        };
    }

    fn has_room(&self) -> bool {
        self.nr_running < self.room || self.time_to_use == Ordering::Greater
    }
}

impl Search<'_> {
    pub(super) fn busiest_group_by_load(&self) -> Option<Imbalance> {
        let attempt = self.attempt;
        let tunables = self.domains.domain(attempt.at).tunables;
        let load_idx = match attempt.idleness {
            _ if !self.features.lb_bias => 0,
            Idleness::Busy => tunables.busy_idx,
            Idleness::Idle => tunables.idle_idx,
            Idleness::Newly => 0,
        } as usize;
        let below = attempt.at.checked_sub(1).filter(|at| self.domains.of(attempt.cpu).contains(at));
        let prefer_sibling =
            below.is_some_and(|at| self.domains.domain(at).tunables.flags.contains(Flags::PREFER_SIBLING));

        let mut groups = self.domains.groups(attempt.at).enumerate();
        let (_, own) = groups.next()?;
        let local = self.loads_of(own, tunables, load_idx, true);
        let (mut total_load, mut total_capacity) = (local.load, local.capacity);
        let mut busiest: Option<(Stats, usize)> = None;
        for (nth, group) in groups {
            let mut stats = self.loads_of(group, tunables, load_idx, false);
            if prefer_sibling && local.has_room() {
                if !self.features.group_overloaded {
                    // One task for each group, so that all others go where there is room.
                    stats.room = stats.room.min(1);
                    stats.classify();
                } else if self.features.prefer_sibling_evens {
                    // Only if moving a task brings the groups closer to each other.
                    if stats.nr_running > local.nr_running + 1 {
                        stats.kind = Kind::OverCapacity;
                    }
                } else if stats.nr_running > 1 {
                    stats.kind = Kind::OverCapacity;
                }
            }
            total_load += stats.load;
            total_capacity += stats.capacity;
            if self.is_busier(&stats, busiest.as_ref().map(|(best, _)| best)) {
                busiest = Some((stats, nth));
            }
        }
        let (mut busiest, group) = busiest.filter(|(stats, _)| stats.nr_running > 0)?;
        let average = SCALE * total_load / total_capacity;

        let idles = attempt.idleness == Idleness::Newly
            || (attempt.idleness == Idleness::Idle && self.features.idle_fills_up);
        // 3.6 asks for the room that the group has by itself, and for its CPUs, not for what is left of that.
        let by_kind = self.features.group_overloaded;
        let is_full = if by_kind { busiest.kind == Kind::OverCapacity } else { busiest.is_full };
        let is_over = if by_kind { is_full } else { busiest.nr_running > busiest.weight };
        let fill_up = idles && local.has_room() && is_full;
        if self.is_imbalanced(&busiest) {
            busiest.load_per_task = busiest.load_per_task.min(average);
        } else if !fill_up {
            if local.avg_load >= busiest.avg_load || local.avg_load >= average {
                return None;
            }
            let balanced = if attempt.idleness == Idleness::Idle {
                !is_over && local.idle_cpus <= busiest.idle_cpus + 1
            } else {
                100 * busiest.avg_load <= u64::from(tunables.imbalance_pct) * local.avg_load
            };
            if balanced {
                return None;
            }
        }
        let amount = self.imbalance_of(local, busiest, average);
        let is_found = amount > 0 || !self.features.no_group_without_imbalance;
        is_found.then_some(Imbalance { group, amount, unit: Unit::Load })
    }

    /// Measures a group (`update_sg_lb_stats()`). The own group's load is guessed high, that of others low,
    /// so that tasks stay where they are in doubt.
    fn loads_of(&self, group: &Group, tunables: Tunables, load_idx: usize, local: bool) -> Stats {
        let features = self.features;
        let capacity = self.queues.capacity(group);
        let mut stats = Stats {
            load: 0,
            capacity,
            nr_running: 0,
            idle_cpus: 0,
            weight: u64::from(group.weight),
            is_full: false,
            room: if features.group_overloaded {
                u64::from(group.weight)
            } else {
                ((capacity + SCALE / 2) / SCALE).max(1)
            },
            time_to_use: Ordering::Less,
            avg_load: 0,
            load_per_task: 0,
            imbalanced: group.imbalanced,
            kind: Kind::Other,
        };
        let mut present_load = 0;
        let (mut least, mut most) = ((u64::MAX, u64::MAX), (0, 0));
        for cpu in self.members(group) {
            let running = self.queues.of(cpu).nr_running() as u64;
            let load = if local {
                self.queues.loads().target(cpu, load_idx)
            } else {
                self.queues.loads().source(cpu, load_idx)
            };
            stats.load += load;
            stats.nr_running += running;
            stats.idle_cpus += u64::from(self.queues.idle().contains(cpu));
            present_load += self.queues.loads().of_cpu(cpu);
            least = (least.0.min(load), least.1.min(running));
            most = (most.0.max(load), most.1.max(running));
        }
        stats.avg_load = stats.load * SCALE / stats.capacity;
        stats.load_per_task = present_load.checked_div(stats.nr_running).unwrap_or(0);
        if features.group_util {
            let util: u64 = self.members(group).map(|cpu| self.queues.loads().cpu_util(cpu)).sum();
            // A CPU that is fully used uses its capacity, which is less than 1024 for a thread in 4.2.
            let util = util * u64::from(group.capacity) / (SCALE * u64::from(group.weight));
            stats.time_to_use = (100 * stats.capacity).cmp(&(u64::from(tunables.imbalance_pct) * util));
        }
        if !features.group_overloaded {
            stats.imbalanced = !local
                && most.0.saturating_sub(least.0) >= stats.load_per_task
                && most.1.saturating_sub(least.1) > 1;
        }
        stats.is_full = stats.nr_running >= stats.room;
        stats.classify();
        stats
    }

    /// Whether affinity, or in 3.6 a spread of loads, makes the averages of the group meaningless.
    fn is_imbalanced(&self, stats: &Stats) -> bool {
        if self.features.group_overloaded { stats.kind == Kind::Imbalanced } else { stats.imbalanced }
    }

    fn is_busier(&self, stats: &Stats, best: Option<&Stats>) -> bool {
        let (kind, load) = best.map_or((Kind::Other, 0), |best| (best.kind, best.avg_load));
        if self.features.group_overloaded {
            stats.kind > kind || (stats.kind == kind && stats.avg_load > load)
        } else {
            // Only groups count that are over their capacity or out of balance.
            stats.avg_load > load && stats.kind != Kind::Other
        }
    }

    /// How much load should move so that both groups approach the average and neither passes it.
    fn imbalance_of(&self, local: Stats, busiest: Stats, average: u64) -> u64 {
        let features = self.features;
        // 3.6 does not ask for the own load: a negative lack of it counts as a very large one.
        let has_enough = features.group_overloaded && local.avg_load >= average;
        if busiest.avg_load <= average || has_enough {
            return self.small_imbalance(local, busiest);
        }
        let mut excess = busiest.avg_load - average;
        let spares_idle = if features.group_overloaded {
            busiest.kind == Kind::OverCapacity && local.kind == Kind::OverCapacity
        } else {
            !busiest.imbalanced
        };
        if spares_idle {
            // No more than what is over the capacity: that would create an idle CPU.
            let above = if features.group_overloaded {
                match (busiest.nr_running * SCALE).saturating_sub(busiest.capacity) {
                    0 => u64::MAX,
                    above if features.scaled_excess => above * SCALE / busiest.capacity,
                    above => above,
                }
            } else {
                busiest.nr_running.saturating_sub(busiest.room) * SCALE * SCALE / busiest.capacity
            };
            excess = excess.min(above);
        }
        let lack = average.checked_sub(local.avg_load).map_or(u64::MAX, |lack| lack * local.capacity);
        let amount = (excess * busiest.capacity).min(lack) / SCALE;
        if amount < busiest.load_per_task {
            // Too little for a task; it may still be worth moving one.
            return self.small_imbalance(local, busiest).max(amount);
        }
        amount
    }

    /// One task's load if moving it gains, else 0 (`fix_small_imbalance()`).
    fn small_imbalance(&self, mut local: Stats, busiest: Stats) -> u64 {
        let mut margin = 2;
        if local.nr_running == 0 {
            let running = self.queues.of(self.attempt.cpu).nr_running() as u64;
            local.load_per_task =
                self.queues.loads().of_cpu(self.attempt.cpu).checked_div(running).unwrap_or(0);
        } else if busiest.load_per_task > local.load_per_task {
            margin = 1;
        }
        let task = busiest.load_per_task;
        let scaled = task * SCALE / busiest.capacity;
        if busiest.avg_load + scaled >= local.avg_load + scaled * margin {
            return task;
        }
        // The throughput of both groups now, and with the task moved.
        let now = busiest.capacity * task.min(busiest.avg_load)
            + local.capacity * local.load_per_task.min(local.avg_load);
        let left = busiest.avg_load.saturating_sub(scaled);
        let added = (busiest.avg_load * busiest.capacity).min(task * SCALE) / local.capacity;
        let moved = busiest.capacity * task.min(left)
            + local.capacity * local.load_per_task.min(local.avg_load + added);
        if moved / SCALE > now / SCALE { task } else { 0 }
    }
}
