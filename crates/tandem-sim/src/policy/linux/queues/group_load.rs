//! The load of groups: what a group's queue on a CPU and its place in its parent's queue count for.
//!
//! Problem: the load of a CPU is that of what stands in its root's queue, where a group has its part of its
//! shares, not what its tasks weigh. So a task of a group adds less load to a CPU than it weighs.
//!
//! Approach:
//! - **3.6**: weights, of queues as of groups.
//! - **4.2**: a queue has the sum of what its members contribute; a group contributes its shares times its
//!   queue's sum by that on all CPUs (`__update_group_entity_contrib()`), and less if it is runnable for less
//!   than the time of a CPU.
//! - **5.2, 6.12**: a queue averages its weight over time; a group has its weight times the part of time in
//!   which it was queued. A task that comes or goes changes its queue's average, and through the time of the
//!   group those of the queues above (`propagate_entity_load_avg()`).
//!
//! The load of a task for others is its part of its queue's, times the group's part of its parent's, and so
//! on (`task_h_load()`).
//!
//! Limits: use and numbers of tasks do not need the tree, and are those of the CPU. What each CPU contributes
//! to the total of a group is known at once; kernels ignore changes below 1/8 (3.6, 4.2) or 1/64. 4.2: tasks
//! that have blocked do not count in the total. 5.2: the weight of a group counts in full in
//! `runnable_load_avg` while it is queued (`calc_group_runnable()` is left out).

use super::decay::Decay;
use super::entity::Entity;
use super::hierarchy::{Level, TaskGroup};
use super::load::FULL_USE;
use super::member::{LevelId, Member};
use super::{LoadTracking, Loads, Queues, Runqueues};
use crate::policy::linux::features::MIN_SHARES;
use tandem_machine::ids::{CpuId, TaskId};

/// Load measures of a group on a CPU, on its task clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GroupLoad {
    decay: Decay,
    /// Sum over time of the weight of its queue, with what those that have blocked leave (5.2, 6.12).
    load_sum: u64,
    /// Sum of the time in which it stood in its parent's queue (4.2 to 6.12).
    queued_sum: u64,
    /// Sum of all time since then (4.2).
    life_sum: u64,
    /// Sum of the loads of its members (4.2).
    pub tracked: u64,
    /// Its own load, as it counts in its parent's queue (4.2).
    counted: u64,
    /// Part of time in which it is runnable here, as it counts in the group's (4.2), in 1024ths.
    runnable: u64,
}

impl GroupLoad {
    fn average(&self) -> u64 {
        self.load_sum / self.decay.divider()
    }
}

impl Level {
    /// Load of its queue.
    fn load(&self, tracking: LoadTracking) -> u64 {
        match tracking {
            LoadTracking::Weight => self.tasks.weight(),
            LoadTracking::Contributions => self.load.tracked,
            LoadTracking::RunnableLoad | LoadTracking::LoadAvg => self.load.average(),
        }
    }

    /// Load of the group in its parent's queue.
    fn load_above(&self, tracking: LoadTracking) -> u64 {
        match tracking {
            LoadTracking::Weight => self.weight.into(),
            LoadTracking::Contributions => self.load.counted,
            LoadTracking::RunnableLoad | LoadTracking::LoadAvg => {
                u64::from(self.weight) * self.load.queued_sum / self.load.decay.divider()
            }
        }
    }

    /// What it contributes to its group's total, and what its weight on this CPU goes by.
    pub fn contribution(&self, tracking: LoadTracking) -> (u64, u64) {
        let (weight, load) = (self.tasks.weight(), self.load(tracking));
        if tracking.keeps_blocked_load() { (load, weight.max(load)) } else { (load, weight) }
    }

    /// Sum of the time in which the group stood in its parent's queue.
    pub fn queued_time(&self) -> u64 {
        self.load.queued_sum
    }

    /// Whether nothing is left of what it has done.
    pub fn is_forgotten(&self) -> bool {
        self.tasks.is_empty() && self.load.load_sum == 0 && self.load.queued_sum == 0
    }
}

impl Loads<'_> {
    /// Load of a queue, as parts of it are taken (`cfs_rq_load_avg()`).
    fn of_level(&self, level: LevelId) -> u64 {
        match self.cpus.get(level.index()) {
            Some(_) if self.tracking.keeps_blocked_load() => self.lasting(CpuId(level.index() as u32)),
            Some(root) => self.tracking.cpu_load(root),
            None => self.levels[level.index() - self.cpus.len()].load(self.tracking),
        }
    }

    /// The part of a CPU's load that is of this queue (`update_cfs_rq_h_load()`).
    fn hierarchical(&self, level: LevelId) -> u64 {
        let Some(at) = level.index().checked_sub(self.cpus.len()) else { return self.of_level(level) };
        let at = &self.levels[at];
        self.hierarchical(at.parent) * at.load_above(self.tracking) / (self.of_level(at.parent) + 1)
    }

    /// The part of a CPU's load that is of a task in this queue (`task_h_load()`).
    pub(super) fn part_of(&self, level: LevelId, task_load: u64) -> u64 {
        task_load * self.hierarchical(level) / (self.of_level(level) + 1)
    }
}

impl Runqueues {
    /// How much more load a CPU has if its queue of the task's group weighs this much more, and that group
    /// this much more on all CPUs together (`effective_load()`; 3.6, 4.2).
    pub fn effective_load(&self, task: TaskId, cpu: CpuId, more_here: i64, more_in_all: i64) -> i64 {
        let mut level = self.level_on(task, cpu);
        let (mut more_here, mut more_in_all) = (more_here, more_in_all);
        while let Some((_, above)) = self.up(level) {
            let at = self.level(level);
            let group = &self.groups[at.group.index()];
            let weight = at.tasks.weight() as i64;
            let all = more_in_all + group.total as i64 - at.contribution as i64 + weight;
            let (here, shares) = (weight + more_here, group.shares as i64);
            let then = if all > 0 && here < all { shares * here / all } else { shares };
            more_here = then.max(MIN_SHARES as i64) - i64::from(at.weight);
            more_in_all = 0;
            level = above;
        }
        more_here
    }

    /// What a CPU will be without of its load when the task that runs there and exits has gone. Up to 4.2,
    /// such a task has left its group for the root before it wakes its parent (`cgroup_exit()`), so that the
    /// group has what it has without it.
    pub fn load_of_exiting(&self, task: TaskId) -> i64 {
        let weight = i64::from(self.entity(task).weight);
        let level = self.level_of(task);
        match self.up(level) {
            None => weight,
            Some(_) if self.level(level).nr_tasks == 1 => self.level(level).load_above(self.load) as i64,
            Some(_) => -self.effective_load(task, self.entity(task).cpu, -weight, -weight),
        }
    }
}

impl Queues {
    /// Updates the averages of a group on a CPU. Call it before its state changes, with the clock advanced.
    pub(super) fn track_level(&mut self, level: LevelId, clock_ns: u64) {
        if self.rqs.load == LoadTracking::Weight {
            return;
        }
        let Some((group, above)) = self.rqs.up(level) else { return };
        let is_there = self.rqs.is_queued(group) || self.rqs.timeline(above).curr() == Some(group);
        let at = self.rqs.level_mut(level);
        let weight = at.tasks.weight();
        if let Some(step) = at.load.decay.advance(clock_ns) {
            at.load.load_sum = step.apply(at.load.load_sum, weight);
            at.load.queued_sum = step.apply(at.load.queued_sum, is_there.into());
            at.load.life_sum = step.apply(at.load.life_sum, 1);
        }
    }

    /// Updates the averages of the groups of a task on its CPU.
    pub(super) fn track_groups(&mut self, task: TaskId) {
        let clock_ns = self.of(self.entity(task).cpu).clock.task_ns;
        let mut level = self.rqs.level_of(task);
        while let Some((_, above)) = self.rqs.up(level) {
            self.track_level(level, clock_ns);
            level = above;
        }
    }

    /// Brings all groups of a CPU up to date, as far as they have any load (`update_blocked_averages()`).
    pub(super) fn refresh_groups(&mut self, cpu: CpuId) {
        let (clock_ns, cpus) = (self.of(cpu).clock.task_ns, self.rqs.cpus.len());
        for at in (cpu.index()..self.rqs.levels.len()).step_by(cpus).rev() {
            if !self.rqs.levels[at].is_forgotten() {
                let level = LevelId::of(self.rqs.levels[at].group, cpu, cpus);
                self.track_level(level, clock_ns);
                self.update_weight(level);
            }
        }
    }

    /// The load of a task comes to its queue (`attach_entity_load_avg()`) or, with `leaves`, goes.
    pub(super) fn move_load(&mut self, task: TaskId, leaves: bool) {
        if !self.rqs.load.keeps_blocked_load() {
            return;
        }
        let mut level = self.rqs.level_of(task);
        let Some(_) = self.rqs.up(level) else { return };
        let entity = self.rqs.entity(task);
        let (weight, time) = (u64::from(entity.weight), entity.averages.load_sum());
        let load = &mut self.rqs.level_mut(level).load;
        let weighted = weight * time.min(load.decay.divider());
        load.load_sum =
            if leaves { load.load_sum.saturating_sub(weighted) } else { load.load_sum + weighted };
        while let Some((group, above)) = self.rqs.up(level) {
            let at = self.rqs.level_mut(level);
            let queued_sum = match leaves {
                false => (at.load.queued_sum + time).min(at.load.decay.divider()),
                true => {
                    let average = at.load.load_sum.checked_div(at.tasks.weight()).unwrap_or(0);
                    at.load.queued_sum.min(average)
                }
            };
            let before = at.load.queued_sum;
            at.load.queued_sum = queued_sum;
            let weight = at.weight;
            self.change_load(group, above, (weight, before), (weight, queued_sum));
            level = above;
        }
    }

    /// The load of a task, in no queue, goes from the groups that it was in, and their weights follow.
    pub(super) fn forget_in_groups(&mut self, task: TaskId) {
        if self.entity(task).group == super::GroupId::ROOT {
            return;
        }
        self.move_load(task, true);
        let mut level = self.rqs.level_of(task);
        while let Some((_, above)) = self.rqs.up(level) {
            self.update_weight(level);
            level = above;
        }
    }

    /// The load of a group in its parent's queue changes: weight, and time in the queue (5.2, 6.12).
    pub(super) fn change_load(&mut self, group: Member, above: LevelId, from: (u32, u64), to: (u32, u64)) {
        let load = |(weight, time): (u32, u64)| u64::from(weight) * time;
        let changed = |sum: u64| (sum + load(to)).saturating_sub(load(from));
        let is_there = self.rqs.is_queued(group) || self.rqs.timeline(above).curr() == Some(group);
        match self.rqs.cpus.get_mut(above.index()) {
            Some(root) => root.load.change(changed, is_there),
            None => {
                let load = &mut self.rqs.level_mut(above).load;
                load.load_sum = changed(load.load_sum);
            }
        }
    }

    /// A group joins its parent's queue, or leaves it.
    pub(super) fn group_moves(&mut self, below: LevelId, above: LevelId, joins: bool) {
        let at = self.rqs.level(below);
        let load = match self.rqs.load {
            LoadTracking::Contributions => at.load.counted,
            LoadTracking::RunnableLoad => u64::from(at.weight) * at.load.queued_sum,
            LoadTracking::Weight | LoadTracking::LoadAvg => return,
        };
        let tracking = self.rqs.load;
        let change = |sum: &mut u64| *sum = if joins { *sum + load } else { sum.saturating_sub(load) };
        match self.rqs.cpus.get_mut(above.index()) {
            Some(root) => change(root.load.present_mut(tracking)),
            None if tracking == LoadTracking::Contributions => {
                change(&mut self.rqs.level_mut(above).load.tracked)
            }
            None => {}
        }
    }

    /// 4.2: what a group contributes to the load of its parent's queue (`__update_group_entity_contrib()`).
    pub(super) fn update_contribution(&mut self, level: LevelId) {
        if self.rqs.load != LoadTracking::Contributions {
            return;
        }
        let Some((group, above)) = self.rqs.up(level) else { return };
        let is_there = self.rqs.is_queued(group) || self.rqs.timeline(above).curr() == Some(group);
        let at = &mut self.rqs.levels[level.index() - self.rqs.cpus.len()];
        let of: &mut TaskGroup = &mut self.rqs.groups[at.group.index()];
        let runnable = at.load.queued_sum * FULL_USE / (at.load.life_sum + 1);
        of.runnable = of.runnable - at.load.runnable + runnable;
        at.load.runnable = runnable;
        let mut contribution = of.shares * at.load.tracked / (of.total + 1);
        if of.runnable < FULL_USE {
            contribution = contribution * of.runnable / FULL_USE;
        }
        let before = std::mem::replace(&mut at.load.counted, contribution);
        if is_there {
            let sum = match self.rqs.cpus.get_mut(above.index()) {
                Some(root) => root.load.present_mut(LoadTracking::Contributions),
                None => &mut self.rqs.level_mut(above).load.tracked,
            };
            *sum = (*sum + contribution).saturating_sub(before);
        }
    }

    /// 4.2: the contribution of a task to its group's queue changes.
    pub(super) fn contribute(&mut self, task: TaskId, before: u64, now: u64) {
        let level = self.rqs.level_of(task);
        if self.rqs.load == LoadTracking::Contributions && self.rqs.up(level).is_some() {
            let load = &mut self.rqs.level_mut(level).load;
            load.tracked = (load.tracked + now).saturating_sub(before);
        }
    }
}

/// Whether the load of a task is that of a member of its CPU's own queue.
pub(super) fn is_of_root(entity: &Entity) -> bool {
    entity.group == super::GroupId::ROOT
}
