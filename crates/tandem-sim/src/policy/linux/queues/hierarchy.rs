//! The tree of queues below a CPU's own: how tasks, and with them the groups that they are in, come to queues
//! and leave them.
//!
//! Problem: a CPU goes to groups by weight, and within each to its members. So a group with tasks on a CPU
//! stands in the queue of its parent there, with a weight that is its part of the group's shares.
//!
//! Approach, as in `enqueue_task_fair()` and `dequeue_task_fair()`: a task joins its group's queue; as long
//! as that was empty, the group joins its parent's, as a sleeper that wakes up. A task that leaves takes the
//! group along if it was the last, and so on. The weights of the groups on the way follow.
//!
//! Limits: the weight of a group on a CPU is its shares times its load here by that on all CPUs, as it is
//! when the weight is reckoned: at each tick, and when a task comes or goes here. In kernels, the total lags
//! behind by up to some 10 ms. Weights are whole numbers on all levels; kernels from 5.2 on lose less where
//! a queue is weighed as a whole (`scale_load()`).

use super::bandwidth::Bandwidth;
use super::group_load::GroupLoad;
use super::member::{GroupId, LevelId, Member};
use super::run_queue::Tally;
use super::timeline::Timeline;
use super::{Queues, Runqueues, scale};
use crate::policy::Context;
use crate::policy::linux::discipline::Coming;
use crate::scenario::{BandwidthLimit, TaskPolicy};
use tandem_machine::ids::{CpuId, TaskId};

/// A group below the root, to begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy::linux) struct GroupFacts {
    /// It comes before its children.
    pub parent: GroupId,
    /// Its weight against its siblings, for all CPUs together: 1024 by default.
    pub shares: u64,
    /// Its `cpu.max`.
    pub limit: Option<BandwidthLimit>,
}

/// A group of tasks, on all CPUs.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskGroup {
    /// Its weight against its siblings, for all CPUs together: 1024 by default (`shares`).
    pub shares: u64,
    /// Sum of what its queues contribute (`load_avg`, in 3.6 `load_weight`).
    pub total: u64,
    /// Sum over all CPUs of the part of time in which it is runnable there, in 1024ths (4.2).
    pub runnable: u64,
    pub limit: Option<Box<Bandwidth>>,
    /// The timer of its limit runs, even if that has been lifted since (`period_active`).
    pub timer_runs: bool,
}

/// What a group other than the root has on a CPU: its queue, and its place in that of its parent.
#[derive(Clone, Debug)]
pub(super) struct Level {
    pub group: GroupId,
    /// The queue of its parent on that CPU.
    pub parent: LevelId,
    pub tasks: Timeline,
    /// Tasks in it and in the groups below.
    pub nr_tasks: u32,
    /// What it contributes to the group's total.
    pub contribution: u64,
    pub load: GroupLoad,
    /// Weight of the group in its parent's queue.
    pub weight: u32,
    /// The group waits in its parent's queue.
    pub queued: bool,
    /// What it may run for until it takes more from its group's pool, ns; what it owes, if negative.
    pub runtime_ns: i64,
    /// It has no time left: the group is not in its parent's queue, whatever is in it.
    pub throttled: bool,
    /// It is empty, and its group stays in the parent's queue until it has paid for having run ahead.
    pub delayed: bool,
}

impl Level {
    pub fn new(group: GroupId, parent: LevelId) -> Self {
        Self {
            group,
            parent,
            tasks: Timeline::default(),
            nr_tasks: 0,
            contribution: 0,
            load: GroupLoad::default(),
            weight: super::NICE_0_WEIGHT,
            queued: false,
            runtime_ns: 0,
            throttled: false,
            delayed: false,
        }
    }
}

impl Runqueues {
    /// A group's queue on a CPU; not for the root group.
    #[inline]
    pub(super) fn level(&self, level: LevelId) -> &Level {
        &self.levels[level.index() - self.cpus.len()]
    }

    #[inline]
    pub(super) fn level_mut(&mut self, level: LevelId) -> &mut Level {
        &mut self.levels[level.index() - self.cpus.len()]
    }

    /// The queue of the task's group on a CPU.
    #[inline]
    pub(super) fn level_on(&self, task: TaskId, cpu: CpuId) -> LevelId {
        LevelId::of(self.entity(task).group, cpu, self.cpus.len())
    }

    /// The queue that the task is in, or was in last.
    #[inline]
    pub(super) fn level_of(&self, task: TaskId) -> LevelId {
        self.level_on(task, self.entity(task).cpu)
    }

    /// The group that has this queue, and its parent's queue; `None` for the root.
    #[inline]
    pub(super) fn up(&self, level: LevelId) -> Option<(Member, LevelId)> {
        (level.index() >= self.cpus.len()).then(|| (Member::Group(level), self.level(level).parent))
    }

    /// Two tasks of a CPU, or the groups in which they are, with the queue that both are in
    /// (`find_matching_se()`).
    pub(super) fn rivals(&self, one: TaskId, other: TaskId) -> [(Member, LevelId); 2] {
        let mut rivals = [one, other].map(|task| (Member::Task(task), self.level_of(task)));
        let mut depths = rivals.map(|(_, level)| if self.levels.is_empty() { 0 } else { self.depth(level) });
        while rivals[0].1 != rivals[1].1 {
            let deeper = usize::from(depths[1] > depths[0]);
            let sides = if depths[0] == depths[1] { 0..2 } else { deeper..deeper + 1 };
            for side in sides {
                let Some(above) = self.up(rivals[side].1) else { continue };
                rivals[side] = above;
                depths[side] -= 1;
            }
        }
        rivals
    }

    /// Distance from the root.
    fn depth(&self, mut level: LevelId) -> usize {
        let mut depth = 0;
        while let Some((_, above)) = self.up(level) {
            level = above;
            depth += 1;
        }
        depth
    }

    /// What stands in a queue.
    #[inline]
    pub(super) fn timeline(&self, level: LevelId) -> &Timeline {
        match self.cpus.get(level.index()) {
            Some(root) => &root.tasks,
            None => &self.level(level).tasks,
        }
    }

    #[inline]
    pub(super) fn timeline_mut(&mut self, level: LevelId) -> &mut Timeline {
        let cpus = self.cpus.len();
        match self.cpus.get_mut(level.index()) {
            Some(root) => &mut root.tasks,
            None => &mut self.levels[level.index() - cpus].tasks,
        }
    }

    #[inline]
    pub(super) fn weight(&self, member: Member) -> u32 {
        match member {
            Member::Task(task) => self.entity(task).weight,
            Member::Group(below) => self.level(below).weight,
        }
    }

    fn set_weight(&mut self, member: Member, weight: u32) {
        match member {
            Member::Task(task) => self.entities[task.index()].weight = weight,
            Member::Group(below) => self.level_mut(below).weight = weight,
        }
    }

    /// Whether it waits in its queue.
    #[inline]
    pub(super) fn is_queued(&self, member: Member) -> bool {
        match member {
            Member::Task(task) => self.entity(task).queued,
            Member::Group(below) => self.level(below).queued,
        }
    }

    #[inline]
    fn set_queued(&mut self, member: Member, queued: bool) {
        match member {
            Member::Task(task) => self.entities[task.index()].queued = queued,
            Member::Group(below) => self.level_mut(below).queued = queued,
        }
    }

    /// Whether it is leaving its queue, but not yet.
    #[inline]
    pub(super) fn is_delayed(&self, member: Member) -> bool {
        match member {
            Member::Task(task) => self.entity(task).delayed,
            Member::Group(below) => self.level(below).delayed,
        }
    }

    #[inline]
    pub(super) fn set_delayed(&mut self, member: Member, delayed: bool) {
        match member {
            Member::Task(task) => self.entities[task.index()].delayed = delayed,
            Member::Group(below) => self.level_mut(below).delayed = delayed,
        }
    }

    /// Whether it is a task with the idle policy (`se_is_idle()`).
    #[inline]
    pub(super) fn is_idle(&self, member: Member) -> bool {
        member.task().is_some_and(|task| self.entity(task).policy == TaskPolicy::Idle)
    }

    /// Tasks in it that are counted apart: itself, or those that wait in a group.
    fn tally(&self, member: Member) -> Tally {
        let mut tally = Tally::default();
        let mut add = |task: TaskId| {
            tally.leaving += usize::from(self.entity(task).delayed);
            tally.idle += usize::from(self.is_idle(Member::Task(task)));
        };
        match member {
            Member::Task(task) => add(task),
            Member::Group(below) => self.visit_queue(below, &mut add),
        }
        tally
    }

    /// Visits the tasks that wait on a CPU, in the order of its queues; including those that are leaving.
    pub fn visit_waiting(&self, cpu: CpuId, visit: &mut impl FnMut(TaskId)) {
        self.visit_queue(LevelId::root(cpu), visit);
    }

    fn visit_queue(&self, level: LevelId, visit: &mut impl FnMut(TaskId)) {
        let tasks = self.timeline(level);
        // A group that runs may have other tasks that wait.
        let runs = tasks.curr().filter(|member| member.task().is_none());
        for member in tasks.waiting().chain(runs) {
            match member {
                Member::Task(task) => visit(task),
                Member::Group(below) => self.visit_queue(below, visit),
            }
        }
    }
}

impl Queues {
    /// Puts a task or a group among those that wait in a queue.
    pub(super) fn insert(&mut self, member: Member, level: LevelId) {
        debug_assert!(!self.rqs.is_queued(member), "queued twice");
        let key = self.discipline.enqueue(level, member);
        let weight = self.rqs.weight(member);
        self.rqs.timeline_mut(level).insert(key, member, weight);
        self.rqs.set_queued(member, true);
    }

    /// Takes a task or a group out of those that wait in a queue.
    pub(super) fn remove(&mut self, member: Member, level: LevelId) {
        let key = self.discipline.dequeue(level, member);
        let weight = self.rqs.weight(member);
        self.rqs.timeline_mut(level).remove(key, member, weight);
        self.rqs.set_queued(member, false);
    }

    /// A task joins its group's queue, and the groups above it join theirs, if they are not there.
    pub(super) fn come(&mut self, ctx: &mut Context<'_>, task: TaskId, coming: Coming) {
        self.come_from(ctx, Member::Task(task), self.rqs.level_of(task), 1, coming);
    }

    /// A task, or a group in which there are this many, joins a queue, and the groups above it join theirs.
    pub(super) fn come_from(
        &mut self,
        ctx: &mut Context<'_>,
        mut member: Member,
        mut level: LevelId,
        tasks: u32,
        mut coming: Coming,
    ) {
        let tally = self.rqs.tally(member);
        loop {
            let joins = !self.rqs.is_queued(member) && self.rqs.timeline(level).curr() != Some(member);
            if joins {
                if let Member::Group(below) = member {
                    self.group_moves(below, level, true);
                }
                self.discipline.place(level, self.rqs.timeline(level), member, coming);
                self.insert(member, level);
            } else if self.rqs.is_delayed(member) {
                self.stays_after_all(member, level);
            }
            let Some(above) = self.rqs.up(level) else { break };
            self.rqs.level_mut(level).nr_tasks += tasks;
            self.update_weight(level);
            if joins {
                self.check_first(ctx, level);
            }
            if self.rqs.level(level).throttled {
                return;
            }
            (member, level) = above;
            coming = Coming::Woken;
        }
        self.rqs.cpus[level.index()].count(tasks as usize, tally);
        self.rqs.idle.remove(CpuId(level.index() as u32));
    }

    /// A task leaves its queue, in which it waits or runs, and groups that it leaves empty leave theirs.
    /// `sleeps`: it blocks or has blocked, and so its group should run on.
    pub(super) fn go(&mut self, task: TaskId, sleeps: bool) {
        let cpu = self.rqs.entity(task).cpu;
        let tally = self.rqs.tally(Member::Task(task));
        if self.go_from(Member::Task(task), self.rqs.level_of(task), 1, sleeps, true) {
            self.uncount(cpu, 1, tally);
        }
    }

    /// A group with this many tasks leaves its queue, because it is throttled.
    pub(super) fn stop_group(&mut self, group: Member, level: LevelId, tasks: u32, cpu: CpuId) {
        let tally = if tasks > 0 { self.rqs.tally(group) } else { Tally::default() };
        if self.go_from(group, level, tasks, false, false) {
            self.uncount(cpu, tasks as usize, tally);
        }
        if self.rqs.is_delayed(group) {
            self.discipline.end_delay(group);
            self.rqs.set_delayed(group, false);
        }
    }

    /// A task or a group, in which there are this many, leaves its queue. So does the group that had it last,
    /// and so on; `delays`: unless that has run ahead. Returns whether the CPU has less to do.
    fn go_from(
        &mut self,
        mut member: Member,
        mut level: LevelId,
        tasks: u32,
        sleeps: bool,
        delays: bool,
    ) -> bool {
        let (mut leaves, mut runs_on) = (true, sleeps);
        loop {
            if leaves {
                self.take_out(member, level);
            }
            let Some(above) = self.rqs.up(level) else { return true };
            self.rqs.level_mut(level).nr_tasks -= tasks;
            leaves &= self.rqs.timeline(level).is_empty();
            self.update_weight(level);
            if leaves {
                self.give_back(level);
            }
            if self.rqs.level(level).throttled {
                return false;
            }
            (member, level) = above;
            if leaves && delays && self.discipline.delays_dequeue(level, self.rqs.timeline(level), member) {
                self.counters.delayed += 1;
                self.rqs.set_delayed(member, true);
                leaves = false;
            } else if !leaves && std::mem::take(&mut runs_on) && !self.is_in_throttled(level) {
                self.mark_next(member, level);
            }
        }
    }

    /// Tasks have left a CPU.
    fn uncount(&mut self, cpu: CpuId, tasks: usize, among: Tally) {
        let queue = &mut self.rqs.cpus[cpu.index()];
        queue.uncount(tasks, among);
        if queue.is_idling() && queue.nr_running() == 0 {
            self.rqs.idle.insert(cpu);
        }
    }

    /// A task or a group leaves a queue, in which it waits or runs.
    fn take_out(&mut self, member: Member, level: LevelId) {
        if let Member::Group(below) = member {
            self.group_moves(below, level, false);
        }
        self.discipline.leaves(level, self.rqs.timeline(level), member);
        self.clear_buddies(member, level);
        if self.rqs.timeline(level).curr() == Some(member) {
            self.rqs.timeline_mut(level).stop();
            self.discipline.left_running(level, self.rqs.timeline(level), member);
        } else {
            self.remove(member, level);
            self.discipline.left_waiting(level, self.rqs.timeline(level), member);
        }
    }

    /// A group that was leaving its queue does.
    pub(super) fn group_leaves_at_last(&mut self, member: Member, level: LevelId) {
        self.go_from(member, level, 0, true, true);
        self.discipline.end_delay(member);
        self.rqs.set_delayed(member, false);
    }

    /// A task or a group that was leaving its queue stays (`requeue_delayed_entity()`).
    pub(super) fn stays_after_all(&mut self, member: Member, level: LevelId) {
        self.counters.delayed_stayed += 1;
        if self.discipline.requeues_delayed(level, self.rqs.timeline(level), member)
            && self.rqs.is_queued(member)
        {
            self.remove(member, level);
            self.discipline.place(level, self.rqs.timeline(level), member, Coming::Woken);
            self.insert(member, level);
        }
        self.rqs.set_delayed(member, false);
    }

    /// The weight of a group on a CPU follows that of its queue there (`update_cfs_group()`, before
    /// `update_cfs_shares()`), unless it or a group above it is throttled. Under EEVDF, an empty one keeps
    /// its weight, by which it pays for having run ahead.
    pub(super) fn update_weight(&mut self, level: LevelId) {
        let cpus = self.rqs.cpus.len();
        let at = &mut self.rqs.levels[level.index() - cpus];
        let is_empty = at.tasks.is_empty();
        let group = &mut self.rqs.groups[at.group.index()];
        let (contribution, here) = at.contribution(self.rqs.load);
        group.total = group.total - at.contribution + contribution;
        at.contribution = contribution;
        let total = group.total - contribution + here;
        let part = if total > 0 { scale(group.shares, here, total) } else { group.shares };
        let weight = part.max(self.group_weight_min) as u32;
        let changes = weight != self.rqs.level(level).weight;
        if changes && !(is_empty && self.discipline.cfs().is_none()) && !self.is_in_throttled(level) {
            let parent = self.rqs.level(level).parent;
            self.reweigh(Member::Group(level), parent, weight);
        }
        self.update_contribution(level);
    }

    /// The weight of a task or a group changes, in its queue or out of it (`reweight_entity()`).
    pub(super) fn reweigh(&mut self, member: Member, level: LevelId, weight: u32) {
        let before = self.rqs.weight(member);
        let waits = self.rqs.is_queued(member);
        let tasks = self.rqs.timeline(level);
        let is_there = waits || tasks.curr() == Some(member);
        let average = if is_there { self.discipline.average_vruntime(level, tasks) } else { None };
        let moves = waits && average.is_some();
        if moves {
            self.remove(member, level);
        }
        if let Member::Group(below) = member
            && self.rqs.load.keeps_blocked_load()
        {
            let time = self.rqs.level(below).queued_time();
            self.change_load(member, level, (before, time), (weight, time));
        }
        self.discipline.reweigh(member, weight, average);
        self.rqs.set_weight(member, weight);
        if moves {
            self.insert(member, level);
        } else if is_there {
            self.rqs.timeline_mut(level).reweigh(member, before, weight);
        }
    }

    /// A group gets other shares (`sched_group_set_shares()`).
    pub fn set_shares(&mut self, ctx: &mut Context<'_>, group: GroupId, shares: u64) {
        self.rqs.groups[group.index()].shares = shares;
        for cpu in ctx.machine.all_cpus().iter() {
            self.charge(ctx, cpu);
            let mut level = LevelId::of(group, cpu, self.rqs.cpus.len());
            while let Some((_, above)) = self.rqs.up(level) {
                self.update_weight(level);
                level = above;
            }
        }
    }

    /// A task gets another weight (`reweight_task()`).
    pub fn set_task_weight(&mut self, ctx: &mut Context<'_>, task: TaskId, weight: u32) {
        let cpu = self.rqs.entity(task).cpu;
        self.charge(ctx, cpu);
        self.track(task);
        let mut level = self.rqs.level_of(task);
        let queue = &mut self.rqs.cpus[cpu.index()];
        let entity = &self.rqs.entities[task.index()];
        let is_there = entity.queued || queue.curr() == Some(task);
        self.rqs.load.reweigh(queue, entity, weight.max(1), is_there);
        self.reweigh(Member::Task(task), level, weight.max(1));
        while let Some((_, above)) = self.rqs.up(level) {
            self.update_weight(level);
            level = above;
        }
    }

    /// Slice of a task or a group, ns; `added` if it is not yet in its queue (`sched_slice()`).
    pub(super) fn slice_ns(&self, member: Member, level: LevelId, added: bool) -> u64 {
        let mut slice_ns = self.discipline.slice_ns(self.rqs.timeline(level), member, added);
        if !self.discipline.divides_slices() {
            return slice_ns;
        }
        let mut at = level;
        while let Some((group, above)) = self.rqs.up(at) {
            let weight = u64::from(self.rqs.weight(group));
            let is_there = self.rqs.is_queued(group) || self.rqs.timeline(above).curr() == Some(group);
            let all = self.rqs.timeline(above).weight() + if is_there { 0 } else { weight };
            slice_ns = scale(slice_ns, weight, all);
            at = above;
        }
        slice_ns
    }
}
