//! The completely fair scheduler (3.6, 4.2 and 5.2).
//!
//! Problem: give each task its share by weight, and answer soon to tasks that sleep much.
//!
//! Approach:
//! 1. A task's virtual run time grows with its run time divided by its weight. The one with the least runs
//!    next.
//! 2. Every task should run once in `latency`; its slice is its part of that by weight. With more tasks than
//!    fit, each has at least `min_granularity` on average. A tick ends the slice of a task that has used it
//!    up, or that is a whole slice ahead of the first in the queue.
//! 3. A task that wakes up is put at most half a latency behind the least virtual run time: it may catch up
//!    with what it missed, but not with more (`GENTLE_FAIR_SLEEPERS`). A new one is put a slice ahead
//!    (`START_DEBIT`).
//! 4. A task that wakes up preempts if it is behind the running one by more than `wakeup_granularity` of real
//!    time, as virtual time of its own (`WAKEUP_PREEMPTION`). Whether the wake-up was synchronous makes no
//!    difference.
//! 5. Buddies are taken out of turn if that is not unfair by more than the same granularity: the task that
//!    has just preempted (`next`), or the one that was preempted, with many tasks on the CPU (`last`, feature
//!    `LAST_BUDDY`). One that has yielded is passed over once (`skip`).
//!
//! Left out: groups, `SCHED_BATCH` and `SCHED_IDLE`, high-resolution ticks (`HRTICK`), and `NEXT_BUDDY`, all
//! off or unused by default; `child_runs_first`, off by default.

use super::entity::{Entity, scale};
use super::{Context, Linux};
use tandem_machine::ids::{CpuId, TaskId};

impl Linux {
    /// Slice of a task of this weight among the tasks of a CPU, of which it is one or to which it is `added`,
    /// ns (`sched_slice()`).
    fn cfs_slice_ns(&self, cpu: CpuId, weight: u32, added: bool) -> u64 {
        let tasks = self.cpus[cpu.index()].nr_running() as u64 + u64::from(added);
        let weights = self.total_weight(cpu) + if added { weight.into() } else { 0 };
        let tunables = &self.tunables;
        let period_ns = if tasks > tunables.nr_latency() {
            tasks * tunables.min_granularity_ns
        } else {
            tunables.latency_ns
        };
        scale(period_ns, weight.into(), weights)
    }

    /// First slice of a new task on a CPU, ns.
    pub(super) fn cfs_first_slice_ns(&self, task: TaskId, cpu: CpuId) -> u64 {
        self.cfs_slice_ns(cpu, self.entities[task.index()].weight, true)
    }

    /// Places a new task by the queue of the CPU on which it was born, a slice ahead, and not before its
    /// parent.
    pub(super) fn cfs_place_new(&mut self, task: TaskId) {
        let entity = &self.entities[task.index()];
        let slice_ns = self.cfs_first_slice_ns(task, entity.cpu);
        let queue = &self.cpus[entity.cpu.index()];
        let debited = queue.min_vruntime + entity.virtual_time(slice_ns);
        let parent = queue.curr.map(|parent| self.entities[parent.index()].vruntime);
        self.entities[task.index()].vruntime = parent.map_or(debited, |vruntime| vruntime.max(debited));
    }

    /// Makes the virtual run time of a task, in no queue, count from the queue of another CPU.
    pub(super) fn cfs_carry_over(&mut self, task: TaskId, from: CpuId, to: CpuId) {
        let offset = self.cpus[to.index()].min_vruntime - self.cpus[from.index()].min_vruntime;
        self.entities[task.index()].vruntime += offset;
    }

    /// Places a task that wakes up: see 3. in the [module](self).
    pub(super) fn cfs_place_woken(&mut self, task: TaskId, cpu: CpuId) {
        let credited = self.cpus[cpu.index()].min_vruntime - (self.tunables.latency_ns / 2) as i64;
        let vruntime = &mut self.entities[task.index()].vruntime;
        *vruntime = credited.max(*vruntime);
    }

    /// Brings the least virtual run time of a CPU up to date.
    pub(super) fn cfs_update_min_vruntime(&mut self, cpu: CpuId) {
        let queue = &self.cpus[cpu.index()];
        let tasks = queue.queued().take(1).chain(queue.curr);
        if let Some(least) = tasks.map(|task| self.entities[task.index()].vruntime).min() {
            let min_vruntime = &mut self.cpus[cpu.index()].min_vruntime;
            *min_vruntime = least.max(*min_vruntime);
        }
    }

    /// At a tick: whether the slice of the running task is over (`check_preempt_tick()`).
    pub(super) fn cfs_slice_is_over(&mut self, cpu: CpuId, current: TaskId) -> bool {
        let queue = &self.cpus[cpu.index()];
        let Some(first) = queue.queued().next() else { return false };
        let entity = &self.entities[current.index()];
        let slice_ns = self.cfs_slice_ns(cpu, entity.weight, false);
        let ran_ns = entity.sum_exec_ns - entity.prev_sum_exec_ns;
        if ran_ns > slice_ns {
            self.cpus[cpu.index()].clear_buddies(current);
            return true;
        }
        let ahead = entity.vruntime - self.entities[first.index()].vruntime;
        ran_ns >= self.tunables.min_granularity_ns && ahead > slice_ns as i64
    }

    /// Whether a task that has come into the queue of a CPU preempts the one that runs there
    /// (`check_preempt_wakeup()`); marks them as buddies if so.
    pub(super) fn cfs_preempts(&mut self, cpu: CpuId, current: TaskId, task: TaskId) -> bool {
        if !self.preferable(current, task) {
            return false;
        }
        let many = self.cpus[cpu.index()].nr_running() as u64 >= self.tunables.nr_latency();
        let queue = &mut self.cpus[cpu.index()];
        queue.next_buddy = Some(task);
        if many {
            queue.last_buddy = Some(current);
        }
        true
    }

    /// Whether `other` is so far behind `task` that fairness demands to prefer it (`wakeup_preempt_entity()`
    /// is 1).
    fn preferable(&self, task: TaskId, other: TaskId) -> bool {
        let [task, other]: [&Entity; 2] = [task, other].map(|task| &self.entities[task.index()]);
        task.vruntime - other.vruntime > other.virtual_time(self.tunables.wakeup_granularity_ns)
    }

    /// The task that the CPU should run next (`pick_next_entity()`).
    pub(super) fn cfs_pick(&mut self, cpu: CpuId) -> Option<TaskId> {
        let (least, second) = self.first_two(cpu)?;
        let queue = &self.cpus[cpu.index()];
        let skips_least = queue.skip_buddy == Some(least);
        let mut picked = least;
        for other in
            [second.filter(|_| skips_least), queue.last_buddy, queue.next_buddy].into_iter().flatten()
        {
            if !self.preferable(other, least) {
                picked = other;
            }
        }
        self.cpus[cpu.index()].clear_buddies(picked);
        Some(picked)
    }

    /// The tasks of a CPU with the least virtual run times. The running one stands behind waiting ones that
    /// are equal.
    fn first_two(&self, cpu: CpuId) -> Option<(TaskId, Option<TaskId>)> {
        let queue = &self.cpus[cpu.index()];
        let mut waiting = queue.queued();
        let (first, second) = (waiting.next(), waiting.next());
        let is_before = |current: TaskId, other: Option<TaskId>| {
            let vruntime = |task: TaskId| self.entities[task.index()].vruntime;
            other.is_none_or(|other| vruntime(current) < vruntime(other))
        };
        match queue.curr {
            Some(current) if is_before(current, first) => Some((current, first)),
            Some(current) if is_before(current, second) => Some((first?, Some(current))),
            _ => Some((first?, second)),
        }
    }

    /// The task on the CPU gives way.
    pub(super) fn cfs_yield(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        if self.cpus[cpu.index()].is_empty() {
            return;
        }
        self.charge(ctx, cpu);
        let queue = &mut self.cpus[cpu.index()];
        queue.clear_buddies(task);
        queue.skip_buddy = Some(task);
    }

    /// A task goes on without a switch. 3.6 puts it back and takes it again, which begins a new slice.
    pub(super) fn cfs_goes_on(&mut self, task: TaskId) {
        if self.features.slice_restarts {
            let entity = &mut self.entities[task.index()];
            entity.prev_sum_exec_ns = entity.sum_exec_ns;
        }
    }
}
