//! Limits of groups (`cpu.max`; CFS bandwidth control).
//!
//! Problem: a group may use no more than its quota in each period, on all CPUs together.
//!
//! Approach: a group has a pool, which a timer fills once a period. Each CPU takes slices of it, and is
//! charged with the rest. A CPU that finds nothing there is throttled when it next decides: the group leaves
//! its parent's queue there, with all tasks, until the timer has paid what it owes. As CPUs are charged at
//! ticks, wake-ups and switches, they use more than they have, by up to a tick, and owe it. A queue that
//! becomes empty gives back to the pool what it has, but for a millisecond. Groups may have limits within
//! groups that have limits; each has one timer, which goes on if its limit changes.
//!
//! Limits: one rule for all releases, that of 6.12. What a CPU holds does not expire at the end of the
//! period, as it does in 3.6 and 5.2, where limits therefore bind too early if a group runs briefly on many
//! CPUs; CPUs that are throttled get nothing of what is given back before the end of the period (no slack
//! timer); a timer that did not run is due at the next multiple of the period.

use super::Queues;
use super::member::{GroupId, LevelId, Member};
use crate::policy::linux::discipline::Coming;
use crate::policy::{Alarm, Context};
use crate::scenario::BandwidthLimit;
use std::collections::VecDeque;
use tandem_machine::ids::{CpuId, TaskId};

/// What a CPU takes at once (`sched_cfs_bandwidth_slice_us`), ns.
const SLICE_NS: i64 = 5_000_000;
/// What an empty queue keeps (`min_cfs_rq_runtime`), ns.
const KEPT_NS: i64 = 1_000_000;

/// The limit of a group (`struct cfs_bandwidth`).
#[derive(Clone, Debug)]
pub(super) struct Bandwidth {
    quota_ns: i64,
    period_ns: u64,
    /// What is left for this period, ns.
    pool_ns: i64,
    /// Nothing has been taken since the last period began.
    idle: bool,
    throttled: VecDeque<LevelId>,
}

impl Bandwidth {
    /// The group may use its whole quota at first.
    pub fn new(limit: BandwidthLimit) -> Self {
        let quota_ns = (limit.quota_us * 1000) as i64;
        Self {
            quota_ns,
            period_ns: limit.period_us * 1000,
            pool_ns: quota_ns,
            idle: false,
            throttled: VecDeque::new(),
        }
    }

    /// Takes up to this much, ns.
    fn take(&mut self, wanted_ns: i64) -> i64 {
        let taken_ns = wanted_ns.min(self.pool_ns).max(0);
        self.pool_ns -= taken_ns;
        self.idle &= taken_ns == 0;
        taken_ns
    }
}

impl Queues {
    /// A group's queue has used time (`account_cfs_rq_runtime()`). Returns whether it has no more.
    pub(super) fn use_up(&mut self, ctx: &mut Context<'_>, level: LevelId, ran_ns: u64) -> bool {
        let Some(_) = self.rqs.up(level) else { return false };
        let at = &mut self.rqs.levels[level.index() - self.rqs.cpus.len()];
        if self.rqs.groups[at.group.index()].limit.is_none() {
            return false;
        }
        at.runtime_ns -= ran_ns as i64;
        if at.runtime_ns > 0 {
            return false;
        }
        at.throttled || !self.take_runtime(ctx, level, SLICE_NS)
    }

    /// A group's queue takes from the pool what it lacks to this, ns, and the timer runs from now on. Returns
    /// whether it has any time then (`__assign_cfs_rq_runtime()`).
    fn take_runtime(&mut self, ctx: &mut Context<'_>, level: LevelId, target_ns: i64) -> bool {
        let cpu = self.cpu_of(level);
        let at = &mut self.rqs.levels[level.index() - self.rqs.cpus.len()];
        let group = &mut self.rqs.groups[at.group.index()];
        let Some(limit) = &mut group.limit else { return true };
        if !std::mem::replace(&mut group.timer_runs, true) {
            let at_ns = (ctx.now_ns / limit.period_ns + 1) * limit.period_ns;
            ctx.alarms.push(Alarm { cpu, at_ns, token: at.group.0 });
        }
        at.runtime_ns += limit.take(target_ns - at.runtime_ns);
        at.runtime_ns > 0
    }

    /// A task or a group has come to a queue. If it is the first there, it may have to wait
    /// (`check_enqueue_throttle()`).
    pub(super) fn check_first(&mut self, ctx: &mut Context<'_>, level: LevelId) {
        let tasks = self.rqs.timeline(level);
        let is_first = tasks.nr_running() == 1 && tasks.curr().is_none();
        if is_first && !self.rqs.level(level).throttled && self.use_up(ctx, level, 0) {
            self.throttle(level);
        }
    }

    fn cpu_of(&self, level: LevelId) -> CpuId {
        CpuId((level.index() % self.rqs.cpus.len()) as u32)
    }

    fn note_throttled(&mut self, level: LevelId) {
        self.counters.nr_throttled += 1;
        let at = self.rqs.level_mut(level);
        at.throttled = true;
        let group = at.group;
        if let Some(limit) = &mut self.rqs.groups[group.index()].limit {
            limit.throttled.push_back(level);
        }
    }

    /// Throttles those groups that run on a CPU and have no more time, the inner ones first, unless their
    /// pools have got some meanwhile (`put_prev_entity()`, `check_cfs_rq_runtime()`).
    pub(super) fn throttle_running(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        let mut level = LevelId::root(cpu);
        while let Some(Member::Group(below)) = self.rqs.timeline(level).curr() {
            level = below;
        }
        while let Some((_, above)) = self.rqs.up(level) {
            let at = self.rqs.level(level);
            let is_limited = self.rqs.groups[at.group.index()].limit.is_some();
            if is_limited && at.runtime_ns <= 0 && !self.take_runtime(ctx, level, 1) {
                self.stop_running(cpu);
                self.put_back(level);
                self.throttle(level);
            }
            level = above;
        }
    }

    /// Takes a group, of which nothing runs on this CPU, with all its tasks out of its parent's queue, if it
    /// is there (`throttle_cfs_rq()`).
    fn throttle(&mut self, level: LevelId) {
        self.note_throttled(level);
        let (group, above) = (Member::Group(level), self.rqs.level(level).parent);
        if self.rqs.is_queued(group) || self.rqs.timeline(above).curr() == Some(group) {
            // One that is delayed has not counted what has just come to it.
            let tasks = if self.rqs.is_delayed(group) { 0 } else { self.rqs.level(level).nr_tasks };
            self.stop_group(group, above, tasks, self.cpu_of(level));
        }
    }

    /// The timer of a group (`sched_cfs_period_timer()`).
    pub fn period_ends(&mut self, ctx: &mut Context<'_>, cpu: CpuId, group: GroupId) {
        let of = &mut self.rqs.groups[group.index()];
        of.timer_runs = false;
        let Some(limit) = &mut of.limit else { return };
        limit.pool_ns = limit.quota_ns;
        if limit.throttled.is_empty() && limit.idle {
            return;
        }
        of.timer_runs = true;
        limit.idle = limit.throttled.is_empty();
        self.counters.nr_periods += 1;
        let at_ns = ctx.now_ns + limit.period_ns;
        ctx.alarms.push(Alarm { cpu, at_ns, token: group.0 });
        for _ in 0..limit.throttled.len() {
            self.pay_first(ctx, group);
        }
    }

    /// Pays what the queue owes that has been throttled for longest, as far as the pool goes
    /// (`distribute_cfs_runtime()`).
    fn pay_first(&mut self, ctx: &mut Context<'_>, group: GroupId) {
        let Some(limit) = &mut self.rqs.groups[group.index()].limit else { return };
        let Some(&level) = limit.throttled.front() else { return };
        let at = &mut self.rqs.levels[level.index() - self.rqs.cpus.len()];
        at.runtime_ns += limit.take(1 - at.runtime_ns);
        if at.runtime_ns > 0 {
            limit.throttled.pop_front();
            self.unthrottle(ctx, level);
        }
    }

    /// A group comes back to its parent's queue on a CPU (`unthrottle_cfs_rq()`).
    fn unthrottle(&mut self, ctx: &mut Context<'_>, below: LevelId) {
        let cpu = self.cpu_of(below);
        self.charge(ctx, cpu);
        let at = self.rqs.level_mut(below);
        at.throttled = false;
        let (level, tasks) = (at.parent, at.nr_tasks);
        if !self.rqs.timeline(below).is_empty() {
            let clock_ns = self.of(cpu).clock.task_ns;
            self.track_level(below, clock_ns);
            self.update_weight(below);
            self.come_from(ctx, Member::Group(below), level, tasks, Coming::Woken);
        }
        if self.of(cpu).curr().is_none() {
            self.reschedule(ctx, cpu);
        }
    }

    /// An empty queue gives back what it does not need (`return_cfs_rq_runtime()`).
    pub(super) fn give_back(&mut self, level: LevelId) {
        let at = &mut self.rqs.levels[level.index() - self.rqs.cpus.len()];
        let Some(limit) = &mut self.rqs.groups[at.group.index()].limit else { return };
        let spare_ns = at.runtime_ns - KEPT_NS;
        if spare_ns > 0 {
            limit.pool_ns += spare_ns;
            at.runtime_ns = KEPT_NS;
        }
    }

    /// A group gets another limit, or none (`tg_set_cfs_bandwidth()`). Its timer, if it runs, goes on: the
    /// next period begins when it expires.
    pub fn set_limit(&mut self, ctx: &mut Context<'_>, group: GroupId, limit: Option<BandwidthLimit>) {
        let cpus = self.rqs.cpus.len();
        self.rqs.groups[group.index()].limit = limit.map(|limit| Box::new(Bandwidth::new(limit)));
        for cpu in ctx.machine.all_cpus().iter() {
            let level = LevelId::of(group, cpu, cpus);
            self.rqs.level_mut(level).runtime_ns = 0;
            if self.rqs.level(level).throttled {
                self.unthrottle(ctx, level);
            }
        }
    }

    /// Whether the task's group, or one above it, is throttled on a CPU.
    pub fn is_throttled(&self, task: TaskId, cpu: CpuId) -> bool {
        self.is_in_throttled(self.rqs.level_on(task, cpu))
    }

    /// Whether the group of this queue, or one above it, is throttled on its CPU (`throttled_hierarchy()`).
    pub(super) fn is_in_throttled(&self, mut level: LevelId) -> bool {
        while let Some((_, above)) = self.rqs.up(level) {
            if self.rqs.level(level).throttled {
                return true;
            }
            level = above;
        }
        false
    }
}
