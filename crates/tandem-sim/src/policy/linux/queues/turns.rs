//! Turns on a CPU: which task gets the next one, and what ends it.
//!
//! A task may yield to one particular task (`yield_to()`, `yield_to_task_fair()`): a hypervisor has found a
//! vCPU that might hold the lock for which the vCPU on this CPU spins, and wants it to run instead. In the
//! kernels' order:
//! 1. A target that does not wait in a queue is refused: it already runs, or sleeps, or its group is
//!    throttled.
//! 2. The target becomes the *next* buddy of the CPU in whose queue it waits. CFS then picks it out of turn,
//!    unless that is unfair by more than the wake-up granularity; EEVDF does if it is eligible
//!    (`PICK_BUDDY`). It stays the buddy until it is picked, leaves that queue, or another task takes its
//!    place.
//! 3. The task that asks yields as in any other yield: CFS skips it once, EEVDF charges it for the rest of
//!    its slice. Alone on its CPU it loses nothing.
//! 4. If the target waits in another queue, its CPU is asked to reschedule.
//!
//! Limits: a buddy does not count as cache-hot when CPUs are balanced (`CACHE_HOT_BUDDY`), in any era.

use super::{LevelId, LoadTracking, Member, Queues};
use crate::policy::linux::discipline::SliceEnd;
use crate::policy::{Context, Later};
use tandem_machine::ids::{CpuId, TaskId};

/// Least time for which a turn's timer is set, ns (`hrtick_start()`).
const HRTICK_MIN_NS: u64 = 10_000;
/// Difference up to which a turn's timer that runs already is left alone, ns (`hrtick_needs_rearm()`).
const HRTICK_SLACK_NS: u64 = 5_000;

impl Queues {
    /// A CPU begins to decide: its running task is charged. From here on, the CPU sees changes without a
    /// kick.
    pub fn begin_decision(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        self.counters.sched_count += 1;
        self.rqs.cpus[cpu.index()].tell();
        self.charge(ctx, cpu);
    }

    /// The task that the CPU should run next; tasks that are leaving and would be next leave first, and
    /// groups likewise.
    pub fn pick(&mut self, ctx: &mut Context<'_>, cpu: CpuId) -> Option<TaskId> {
        let root = LevelId::root(cpu);
        let mut level = root;
        self.throttle_running(ctx, cpu);
        loop {
            let chosen = self.discipline.pick(level, self.rqs.timeline(level))?;
            match chosen {
                Member::Task(task) if !self.rqs.entities[task.index()].delayed => return Some(task),
                Member::Group(below) if !self.rqs.level(below).delayed => {
                    level = below;
                    continue;
                }
                Member::Task(task) => self.leave_at_last(ctx, task),
                Member::Group(_) => self.group_leaves_at_last(chosen, level),
            }
            level = root;
        }
    }

    /// The task or group that would be picked from a queue, which is not empty; those that are leaving and
    /// come out first leave (`pick_next_entity()` of 7.1).
    pub(super) fn pick_from(&mut self, ctx: &mut Context<'_>, level: LevelId) -> Option<Member> {
        loop {
            let chosen = self.discipline.pick(level, self.rqs.timeline(level))?;
            if !self.rqs.is_delayed(chosen) {
                return Some(chosen);
            }
            match chosen {
                Member::Task(task) => self.leave_at_last(ctx, task),
                Member::Group(_) => self.group_leaves_at_last(chosen, level),
            }
        }
    }

    /// A CPU has decided what to run.
    pub fn end_decision(&mut self, ctx: &mut Context<'_>, cpu: CpuId, next: Option<TaskId>) {
        let queue = &mut self.rqs.cpus[cpu.index()];
        queue.has_decided();
        let mut blocked_at = queue.blocked_at.take();
        while let Some(level) = blocked_at {
            self.discipline.put_prev(level);
            blocked_at = self.rqs.up(level).map(|(_, above)| above);
        }
        let queue = &mut self.rqs.cpus[cpu.index()];
        match next {
            Some(task) if queue.curr() == next => self.goes_on(Member::Task(task), self.rqs.level_of(task)),
            Some(task) => {
                if self.idle_sampled_always {
                    queue.idle_ended(ctx.now_ns, self.idle_sample_is_capped);
                }
                queue.busy();
                if let Some(previous) = queue.curr() {
                    self.track(previous);
                }
                self.rqs.cpus[cpu.index()].running = None;
                self.track(task);
                self.set_current(Member::Task(task), self.rqs.level_of(task));
                let queue = &mut self.rqs.cpus[cpu.index()];
                queue.running = Some(task);
                self.rqs.entities[task.index()].exec_start_ns = queue.clock.task_ns;
                if self.lru_tasks {
                    self.move_to_list_head(task);
                }
                self.start_hrtick(ctx, cpu, task);
            }
            None => {
                self.counters.sched_goidle += u64::from(queue.idle(ctx.now_ns));
                self.rqs.idle.insert(cpu);
            }
        }
    }

    /// Puts the running task of the CPU, which can go on, back into the queue.
    pub fn put_back_current(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        self.throttle_running(ctx, cpu);
        self.stop_running(cpu);
        self.put_back(LevelId::root(cpu));
    }

    /// The task of the CPU, if it has one, runs no longer; what runs from the queues is still to be put back.
    pub(super) fn stop_running(&mut self, cpu: CpuId) {
        if let Some(task) = self.rqs.cpus[cpu.index()].running {
            self.track(task);
            self.rqs.cpus[cpu.index()].running = None;
        }
    }

    /// Puts what runs from a queue back into it, and so on in the queues below it.
    pub(super) fn put_back(&mut self, mut level: LevelId) {
        loop {
            let Some(member) = self.rqs.timeline(level).curr() else { return };
            self.rqs.timeline_mut(level).stop();
            self.insert(member, level);
            let Member::Group(below) = member else { return };
            level = below;
        }
    }

    /// Takes a task out of its queue to run it, and likewise the groups that do not run yet; others are put
    /// back.
    fn set_current(&mut self, member: Member, level: LevelId) {
        if let Some((group, above)) = self.rqs.up(level) {
            self.set_current(group, above);
        }
        if self.rqs.timeline(level).curr() == Some(member) {
            return self.discipline.goes_on(member);
        }
        self.put_back(level);
        self.remove(member, level);
        let weight = self.rqs.weight(member);
        self.rqs.timeline_mut(level).run(member, weight);
        self.discipline.set_next(member);
        if self.discipline.cfs().is_none() {
            self.clear_buddies(member, level);
        }
    }

    /// A task goes on without a switch, and so do the groups that it is in.
    fn goes_on(&mut self, mut member: Member, mut level: LevelId) {
        loop {
            self.discipline.goes_on(member);
            let Some(above) = self.rqs.up(level) else { return };
            (member, level) = above;
        }
    }

    /// A task has come into the queue of the CPU: the turn of the one that runs there ends at the end of its
    /// slice from now on (`hrtick_update()`).
    pub(super) fn update_hrtick(&mut self, ctx: &mut Context<'_>, cpu: CpuId) {
        let queue = self.of(cpu);
        if self.hrtick
            && queue.hrtick_ns().is_none()
            && let Some(task) = queue.curr()
        {
            self.start_hrtick(ctx, cpu, task);
        }
    }

    /// Sets the timer that ends the turn of the task on the CPU, if others wait (`hrtick_start_fair()`).
    fn start_hrtick(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        let queue = &mut self.rqs.cpus[cpu.index()];
        if !self.hrtick || queue.nr_running() <= 1 {
            return;
        }
        let at_ns = ctx.now_ns + self.discipline.slice_left_ns(Member::Task(task)).max(HRTICK_MIN_NS);
        if queue.hrtick_ns().is_none_or(|set_ns| set_ns.abs_diff(at_ns) > HRTICK_SLACK_NS) {
            queue.set_hrtick(Some(at_ns));
            ctx.later.push(Later::At { cpu, at_ns });
        }
    }

    /// The timer that ends the turn of the task on the CPU has expired (`hrtick()`).
    pub fn turn_ends(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.rqs.cpus[cpu.index()].set_hrtick(None);
        self.charge(ctx, cpu);
        self.track(task);
        self.reschedule(ctx, cpu);
    }

    /// A tick on a CPU that runs the task.
    pub fn tick(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        if self.rqs.cpus[cpu.index()].is_told_lazily() {
            self.reschedule(ctx, cpu);
        }
        self.charge(ctx, cpu);
        self.track(task);
        self.update_history(ctx, cpu);
        let (mut member, mut level) = (Member::Task(task), self.rqs.level_of(task));
        let mut is_over = false;
        loop {
            is_over |= self.slice_is_over(member, level);
            let Some(above) = self.rqs.up(level) else { break };
            self.update_weight(level);
            (member, level) = above;
        }
        if is_over {
            self.counters.slices_ended += 1;
            self.reschedule(ctx, cpu);
        }
    }

    /// Whether the slice of a task or a group that runs from a queue is over, at a tick.
    fn slice_is_over(&mut self, member: Member, level: LevelId) -> bool {
        if !self.discipline.divides_slices() || self.rqs.timeline(level).none_waits() {
            return false;
        }
        let slice_ns = self.slice_ns(member, level, false);
        let Some(cfs) = self.discipline.cfs() else { return false };
        let end = cfs.slice_is_over(self.rqs.timeline(level), member, slice_ns);
        if end == Some(SliceEnd::UsedUp) {
            self.clear_buddies(member, level);
        }
        end.is_some()
    }

    /// The task on the CPU blocks: it leaves the CPU, and also the queue unless the discipline keeps it
    /// there. One that exits leaves both (`DEQUEUE_SPECIAL`).
    pub fn blocked(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.charge(ctx, cpu);
        let level = self.rqs.level_of(task);
        self.rqs.cpus[cpu.index()].blocked_at = Some(level);
        if !self.rqs.entities[task.index()].exiting
            && self.discipline.delays_dequeue(level, self.rqs.timeline(level), Member::Task(task))
        {
            self.counters.delayed += 1;
            self.track(task);
            self.rqs.cpus[cpu.index()].running = None;
            self.rqs.timeline_mut(level).stop();
            self.insert(Member::Task(task), level);
            let entity = &mut self.rqs.entities[task.index()];
            entity.delayed = true;
            self.rqs.cpus[cpu.index()].begins_to_leave();
            LoadTracking::discount_estimate(&mut self.rqs.cpus[cpu.index()], entity);
            LoadTracking::sleeps(self.use_estimates, entity);
            return;
        }
        self.track(task);
        let queue = &mut self.rqs.cpus[cpu.index()];
        let entity = &mut self.rqs.entities[task.index()];
        self.rqs.load.count_out(queue, entity);
        LoadTracking::sleeps(self.use_estimates, entity);
        queue.running = None;
        self.contribute(task, self.entity(task).averages.contribution(), 0);
        self.go(task, true);
    }

    /// The task on the CPU yields to the next one.
    pub fn yields(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        self.counters.yld_count += 1;
        if self.rqs.cpus[cpu.index()].nr_running() > 1 {
            self.charge(ctx, cpu);
            let (member, level) = (Member::Task(task), self.rqs.level_of(task));
            self.clear_buddies(member, level);
            self.mark_skip(member, level);
            self.discipline.yields(level, self.rqs.timeline(level), member);
        }
    }

    /// The task on the CPU yields to `target`; `false`, and no change, if that waits in no queue.
    pub fn yields_to(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId, target: TaskId) -> bool {
        let waiting = self.known(target).filter(|entity| entity.queued && !entity.delayed);
        let Some(target_cpu) = waiting.map(|entity| entity.cpu) else { return false };
        if self.is_throttled(target, target_cpu) {
            return false;
        }
        self.mark_next(Member::Task(target), self.rqs.level_of(target));
        self.yields(ctx, cpu, task);
        if target_cpu != cpu {
            self.reschedule(ctx, target_cpu);
        }
        true
    }
}
