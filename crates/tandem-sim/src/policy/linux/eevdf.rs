//! Earliest eligible virtual deadline first (6.12).
//!
//! Problem: the same as that of CFS ([`cfs`](super::cfs)), without its heuristics for tasks that sleep.
//!
//! Approach:
//! 1. A task's virtual run time grows with its run time divided by its weight. What all tasks of a CPU would
//!    have if each had its share is the average of their virtual run times, by weight. A task that is not
//!    ahead of it is *eligible*.
//! 2. Each task asks for one slice after the other. The *virtual deadline* of a slice is where the task's
//!    virtual run time would be at its end. Of the eligible tasks the one with the earliest deadline runs.
//! 3. The running task goes on until its slice is done or it is no longer eligible (`RUN_TO_PARITY`). Until
//!    then, a task that wakes up does not preempt it.
//! 4. How far a task is behind or ahead of the average, its *lag*, stays with it while it sleeps
//!    (`PLACE_LAG`). A task that blocks while it is ahead stays in the queue until it is eligible, and so
//!    pays for having run ahead (`DELAY_DEQUEUE`); what it would gain beyond that is forgotten
//!    (`DELAY_ZERO`).
//! 5. A new task starts at the average, with half a slice until its deadline (`PLACE_DEADLINE_INITIAL`).
//!
//! Left out: `PREEMPT_SHORT` and the slices that tasks may ask for, as all tasks here have the same slice and
//! then it does nothing; groups, `SCHED_BATCH` and `SCHED_IDLE`; `NEXT_BUDDY`, off by default. A task that is
//! leaving is not counted among those that run, as later releases have it.

use super::{Context, Linux};
use tandem_machine::ids::{CpuId, TaskId};

/// Weights and weighted virtual run times of the tasks of a CPU, added up.
#[derive(Clone, Copy, Debug)]
struct Sums {
    weight: u64,
    weighted_vruntime: i128,
}

impl Sums {
    /// Whether a task with this virtual run time is not ahead of the average; exact, where the average is
    /// rounded.
    fn is_eligible(self, vruntime: i64) -> bool {
        i128::from(vruntime) * i128::from(self.weight) <= self.weighted_vruntime
    }
}

impl Linux {
    fn sums(&self, cpu: CpuId) -> Sums {
        let queue = &self.cpus[cpu.index()];
        let current = queue.curr.map_or(0, |task| {
            let entity = &self.entities[task.index()];
            i128::from(entity.weight) * i128::from(entity.vruntime)
        });
        Sums { weight: self.total_weight(cpu), weighted_vruntime: queue.queued_weighted_vruntime + current }
    }

    /// Average virtual run time of the tasks of a CPU, rounded down (`avg_vruntime()`).
    fn average_vruntime(&self, cpu: CpuId) -> i64 {
        let sums = self.sums(cpu);
        match sums.weight {
            0 => self.cpus[cpu.index()].min_vruntime,
            weight => sums.weighted_vruntime.div_euclid(weight.into()) as i64,
        }
    }

    /// Slice of a task as its virtual time.
    fn virtual_slice(&self, task: TaskId) -> i64 {
        self.entities[task.index()].virtual_time(self.tunables.base_slice_ns)
    }

    /// Places a task, in no queue, by the average of a CPU. It keeps the time until its deadline if
    /// `keeps_deadline`.
    pub(super) fn eevdf_place(&mut self, task: TaskId, cpu: CpuId, keeps_deadline: bool) {
        let average = self.average_vruntime(cpu);
        let weight = i128::from(self.total_weight(cpu));
        let slice = self.virtual_slice(task);
        let entity = &mut self.entities[task.index()];
        // Its coming moves the average towards it: only a larger distance becomes the lag that it had.
        let lag = match weight {
            0 => 0,
            _ => (i128::from(entity.lag) * (weight + i128::from(entity.weight)) / weight) as i64,
        };
        entity.vruntime = average - lag;
        entity.deadline = entity.vruntime
            + match (keeps_deadline, entity.is_new) {
                (true, _) => entity.deadline,
                (false, true) => slice / 2,
                (false, false) => slice,
            };
    }

    /// Notes how far a task that is to leave the CPU or its queue is behind the average, at most two slices
    /// or, if that is longer, a tick (`update_entity_lag()`).
    pub(super) fn eevdf_note_lag(&mut self, task: TaskId, cpu: CpuId) {
        let average = self.average_vruntime(cpu);
        let limit_ns = (2 * self.tunables.base_slice_ns).max(self.settings.tick_period_ns());
        let entity = &mut self.entities[task.index()];
        let limit = entity.virtual_time(limit_ns);
        entity.lag = (average - entity.vruntime).clamp(-limit, limit);
    }

    /// Begins the task's next slice if it has done the present one; whether it has (`update_deadline()`).
    pub(super) fn eevdf_slice_is_over(&mut self, task: TaskId) -> bool {
        let slice = self.virtual_slice(task);
        let entity = &mut self.entities[task.index()];
        let is_over = entity.vruntime >= entity.deadline;
        if is_over {
            entity.deadline = entity.vruntime + slice;
        }
        is_over
    }

    /// Whether the task, on the CPU or in its queue, is not ahead of its share.
    pub(super) fn eevdf_is_eligible(&self, task: TaskId, cpu: CpuId) -> bool {
        self.sums(cpu).is_eligible(self.entities[task.index()].vruntime)
    }

    /// The task that the CPU should run next (`pick_eevdf()`); one that is leaving may be chosen too.
    pub(super) fn eevdf_choose(&self, cpu: CpuId) -> Option<TaskId> {
        let queue = &self.cpus[cpu.index()];
        let first = queue.queued().next();
        let (Some(_), sums) = (first, self.sums(cpu)) else { return queue.curr };
        let entity = |task: TaskId| &self.entities[task.index()];
        let is_eligible = |task: &TaskId| sums.is_eligible(entity(*task).vruntime);
        let current = queue.curr.filter(is_eligible);
        if let Some(task) = current
            && entity(task).chosen_deadline == entity(task).deadline
        {
            return current;
        }
        // Sorted by deadline, of which one task at least is eligible: the average is not below all of them.
        let best = queue.queued().find(is_eligible);
        match (current, best) {
            (Some(current), Some(best)) if entity(current).deadline < entity(best).deadline => Some(current),
            _ => best.or(current),
        }
    }

    /// The task that the CPU should run next, once those that are leaving and have their turn are gone.
    pub(super) fn eevdf_pick(&mut self, ctx: &mut Context<'_>, cpu: CpuId) -> Option<TaskId> {
        loop {
            let chosen = self.eevdf_choose(cpu)?;
            if !self.entities[chosen.index()].delayed {
                return Some(chosen);
            }
            self.eevdf_leave(ctx, chosen);
        }
    }

    /// Takes a task that was leaving out of its queue for good.
    pub(super) fn eevdf_leave(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        let cpu = self.entities[task.index()].cpu;
        self.charge(ctx, cpu);
        self.leave_queue(task, cpu);
        let entity = &mut self.entities[task.index()];
        entity.delayed = false;
        entity.lag = entity.lag.min(0);
        self.cpus[cpu.index()].delayed -= 1;
    }

    /// A task that was leaving wakes up: it stays, but gains nothing (`requeue_delayed_entity()`).
    pub(super) fn eevdf_stay(&mut self, ctx: &mut Context<'_>, task: TaskId) {
        self.counters.delayed_stayed += 1;
        let cpu = self.entities[task.index()].cpu;
        self.charge(ctx, cpu);
        self.track(task);
        self.eevdf_note_lag(task, cpu);
        if self.entities[task.index()].lag > 0 {
            self.remove(task, cpu);
            self.entities[task.index()].lag = 0;
            self.eevdf_place(task, cpu, false);
            self.insert(task, cpu);
        }
        self.entities[task.index()].delayed = false;
        self.cpus[cpu.index()].delayed -= 1;
    }

    /// The task on the CPU gives way: its deadline moves by a slice.
    pub(super) fn eevdf_yield(&mut self, ctx: &mut Context<'_>, cpu: CpuId, task: TaskId) {
        if self.cpus[cpu.index()].is_empty() {
            return;
        }
        self.charge(ctx, cpu);
        self.entities[task.index()].deadline += self.virtual_slice(task);
    }
}
