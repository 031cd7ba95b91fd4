//! Load: the measure of tasks and CPUs for placement and balancing.
//!
//! - **3.6**: the load of a task is its weight, that of a CPU the sum over its tasks. Against ping-pong, each
//!   CPU keeps five averages of its load over longer and longer times, updated at its ticks; a CPU that tasks
//!   might leave counts with the smaller of present and past load, one that they might go to with the larger.
//! - **4.2**: the load of a task is its weight times the part of its life in which it wanted to run, the
//!   recent past counting most ([`decay`](super::decay)); its use, the part in which it ran; those of a CPU
//!   are the sums over its tasks. The averages of 3.6 are kept, over its load.
//! - **6.12**: a CPU has averages of its own: of its load, of the number of tasks that want to run, and of
//!   its use. The contribution of a task stays when it blocks, and fades. It moves with the task to another
//!   CPU.
//! - **5.2**: has the averages of 6.12 and beside them one of the load of those tasks that run or wait
//!   (`runnable_load_avg`). That one is the load of a CPU. The averages of 3.6 still exist, but count for
//!   nothing: `source_load()` and `target_load()` return the present load while `LB_BIAS` is off.
//!
//! 5.2 and 6.12 also estimate the use of tasks that wake up ([`use_estimate`](super::use_estimate)).
//!
//! That of groups is in [`group_load`](super::group_load).
//!
//! Limits: a task of the root group counts as what it is, where kernels take a little less. The scaling of
//! time by the speed of the CPU is left out.

use super::decay::Decay;
use super::entity::Entity;
use super::group_load::is_of_root;
use super::hierarchy::Level;
use super::member::{GroupId, LevelId};
use super::run_queue::RunQueue;
use super::use_estimate::UseEstimate;
use crate::policy::linux::features::{LoadTracking, UseEstimates};
use tandem_machine::ids::{CpuId, TaskId};

/// Fully used, in the unit of use (`SCHED_CAPACITY_SCALE`).
pub(in crate::policy::linux) const FULL_USE: u64 = 1024;
/// Averages of past load that a CPU keeps, the first of which is the present load (`CPU_LOAD_IDX_MAX`).
const HISTORY: usize = 5;
/// Number of missed ticks after which nothing is left of an average (`degrade_zero_ticks`).
const FORGOTTEN_AFTER_TICKS: [u64; HISTORY] = [0, 8, 32, 64, 128];

/// Decaying averages of a task, on the task clock of its CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::policy::linux) struct TaskAverages {
    decay: Decay,
    /// Sum of the time in which it ran or wanted to.
    load_sum: u64,
    /// The same; a new task starts lower here than in `load_sum` (5.2, 6.12).
    runnable_sum: u64,
    /// Sum of the time in which it ran (4.2 to 6.12).
    running_sum: u64,
    /// Sum of all time since its birth (4.2).
    life_sum: u64,
    /// Its load as it counts in the sum over its CPU's tasks (4.2).
    contribution: u64,
    /// The same for its use (4.2, `utilization_avg_contrib`).
    use_contribution: u64,
    /// What it will use when it wakes up (5.2, 6.12).
    estimate: UseEstimate,
}

/// Load measures of a CPU, on its task clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueLoad {
    /// Load over longer and longer times (3.6, 4.2).
    history: [u64; HISTORY],
    /// The tick, counted from the beginning, up to which the history is current.
    history_ticks: u64,
    /// Sum of the loads of the tasks that run or wait (4.2).
    tracked: u64,
    /// Sum of their uses (4.2, `utilization_load_avg`).
    tracked_use: u64,
    /// Sum of the estimates of the tasks that run or wait (5.2, 6.12).
    estimated_use: u64,
    decay: Decay,
    /// Sums over time of the weight of its tasks, of their number and of the use by them (5.2, 6.12).
    load_sum: u64,
    runnable_sum: u64,
    running_sum: u64,
    /// Sum over time of the weight of its tasks, without the contributions of those that have blocked (5.2).
    present_sum: u64,
}

impl TaskAverages {
    /// Part of time in which the task runs, in 1024ths, as of when it was last updated (5.2, 6.12).
    pub fn util(&self) -> u64 {
        self.running_sum * FULL_USE / self.decay.divider()
    }
}

impl QueueLoad {
    /// Load, including the fading contributions of tasks that blocked recently (`cfs_rq_load_avg()`; 5.2,
    /// 6.12).
    pub fn lasting(&self) -> u64 {
        self.load_sum / self.decay.divider()
    }

    /// Part of time in which the CPU's tasks run, in 1024ths, including tasks that blocked recently (5.2,
    /// 6.12).
    pub fn util(&self) -> u64 {
        self.running_sum * FULL_USE / self.decay.divider()
    }

    /// Average number of runnable tasks, in 1024ths of a task, including tasks that blocked recently (6.12).
    pub fn runnable(&self) -> u64 {
        self.runnable_sum * FULL_USE / self.decay.divider()
    }

    /// Load over longer and longer times (3.6, 4.2): from 1 to 4. `None` for 0, the present load.
    fn past(&self, index: usize) -> Option<u64> {
        let average = index.checked_sub(1)?.min(HISTORY - 1);
        Some(self.history[average])
    }

    /// Includes the present load in the averages of past loads, for each tick since the last update. The CPU
    /// idled, without a load, at all but the last of these: a busy one ticks.
    fn update_history(&mut self, present: u64, ticks: u64) {
        let passed = ticks.saturating_sub(self.history_ticks);
        if passed == 0 {
            return;
        }
        self.history_ticks = ticks;
        self.history[0] = present;
        for (index, (average, forgotten_after)) in
            self.history.iter_mut().zip(FORGOTTEN_AFTER_TICKS).enumerate().skip(1)
        {
            let mut past = if passed > forgotten_after { 0 } else { *average };
            for _ in 1..passed.min(forgotten_after) {
                past -= past.div_ceil(1 << index);
            }
            let rounding = if present > past { (1 << index) - 1 } else { 0 };
            *average = ((past << index) - past + present + rounding) >> index;
        }
    }

    /// The averages of a task, converted to sums of this CPU: the periods of CPUs begin at different times.
    fn share(&self, entity: &Entity) -> [u64; 3] {
        let averages = &entity.averages;
        let here = |sum: u64| sum * self.decay.divider() / averages.decay.divider();
        [
            here(averages.load_sum) * u64::from(entity.weight),
            here(averages.runnable_sum),
            here(averages.running_sum),
        ]
    }

    /// Adds the averages of a task.
    fn attach(&mut self, entity: &Entity) {
        let [weighted, runnable, running] = self.share(entity);
        self.load_sum += if is_of_root(entity) { weighted } else { 0 };
        self.runnable_sum += runnable;
        self.running_sum += running;
    }

    /// Takes the averages of a task out again; rounding may leave a little less.
    fn detach(&mut self, entity: &Entity) {
        let [weighted, runnable, running] = self.share(entity);
        self.load_sum = self.load_sum.saturating_sub(if is_of_root(entity) { weighted } else { 0 });
        self.runnable_sum = self.runnable_sum.saturating_sub(runnable);
        self.running_sum = self.running_sum.saturating_sub(running);
    }

    /// The load of a group that is a member of the CPU's own queue changes (5.2, 6.12).
    pub fn change(&mut self, changed: impl Fn(u64) -> u64, is_there: bool) {
        self.load_sum = changed(self.load_sum);
        if is_there {
            self.present_sum = changed(self.present_sum);
        }
    }

    /// The sum of what is in the CPU's own queue (4.2, 5.2).
    pub fn present_mut(&mut self, tracking: LoadTracking) -> &mut u64 {
        match tracking {
            LoadTracking::Contributions => &mut self.tracked,
            _ => &mut self.present_sum,
        }
    }

    /// Sets the use of the CPU, in 1024ths.
    #[cfg(test)]
    pub fn set_util(&mut self, util: u64) {
        self.running_sum = (util * self.decay.divider()).div_ceil(FULL_USE);
        self.tracked_use = util;
    }
}

/// The measures of tasks and CPUs: see the [module](self).
impl LoadTracking {
    /// Load that the task brings to a CPU, as of when it was last updated.
    #[inline]
    pub(super) fn task_load(self, entity: &Entity) -> u64 {
        let averages = &entity.averages;
        match self {
            Self::Weight => entity.weight.into(),
            Self::Contributions => averages.contribution,
            Self::RunnableLoad | Self::LoadAvg => {
                averages.load_sum * u64::from(entity.weight) / averages.decay.divider()
            }
        }
    }

    /// Load of a CPU now (`weighted_cpuload()`, later `cpu_load()`).
    #[inline]
    pub(super) fn cpu_load(self, queue: &RunQueue) -> u64 {
        let load = &queue.load;
        match self {
            Self::Weight => queue.tasks.weight(),
            Self::Contributions => load.tracked,
            Self::RunnableLoad => load.present_sum / load.decay.divider(),
            Self::LoadAvg => load.load_sum / load.decay.divider(),
        }
    }

    /// Load of a CPU that tasks might leave, guessed low from history (`source_load()`; 3.6, 4.2). Index 0
    /// is the present load; 1 to 4 go back increasingly far.
    pub(super) fn source_load(self, queue: &RunQueue, index: usize) -> u64 {
        let present = self.cpu_load(queue);
        queue.load.past(index).map_or(present, |past| past.min(present))
    }

    /// Load of a CPU that tasks might go to, guessed high from history (`target_load()`; 3.6, 4.2).
    pub(super) fn target_load(self, queue: &RunQueue, index: usize) -> u64 {
        let present = self.cpu_load(queue);
        queue.load.past(index).map_or(present, |past| past.max(present))
    }

    /// Includes the present load of a CPU in the averages of its past loads, up to this tick.
    pub(super) fn update_history(self, queue: &mut RunQueue, tick: u64) {
        let present = self.cpu_load(queue);
        queue.load.update_history(present, tick);
    }

    /// Starts the averages of a new task on its CPU, whose clock has been advanced: it counts in full at
    /// first. Its first slice would be this long.
    pub(super) fn start(self, queue: &RunQueue, entity: &mut Entity, slice_ns: u64) {
        let decay = Decay::starting_at(queue.clock.task_ns);
        let mut averages = TaskAverages { decay, ..TaskAverages::default() };
        match self {
            Self::Weight => {}
            Self::Contributions => {
                let slice_us = slice_ns / 1024;
                averages.load_sum = slice_us;
                averages.life_sum = slice_us;
                averages.running_sum = slice_us;
                averages.contribution = slice_us * u64::from(entity.weight) / (slice_us + 1);
                averages.use_contribution = slice_us * FULL_USE / (slice_us + 1);
            }
            Self::RunnableLoad | Self::LoadAvg => averages.load_sum = decay.divider(),
        }
        entity.averages = averages;
    }

    /// Updates the averages of a task, and its contribution to its CPU. Call it before the state of the task
    /// or of its CPU changes, with the clock of the CPU advanced.
    pub(super) fn track(self, queue: &mut RunQueue, entity: &mut Entity, runs: bool) {
        if self == Self::Weight {
            return;
        }
        let is_here = runs || entity.queued;
        let averages = &mut entity.averages;
        let step = averages.decay.advance(queue.clock.task_ns);
        if let Some(step) = step {
            averages.load_sum = step.apply(averages.load_sum, is_here.into());
            averages.runnable_sum = step.apply(averages.runnable_sum, is_here.into());
            averages.running_sum = step.apply(averages.running_sum, runs.into());
            averages.life_sum = step.apply(averages.life_sum, 1);
            averages.estimate.is_current &= !step.ends_period();
        }
        if self != Self::Contributions {
            return self.track_cpu(queue);
        }
        if step.is_none() {
            return;
        }
        let (before, use_before) = (averages.contribution, averages.use_contribution);
        averages.contribution = averages.load_sum * u64::from(entity.weight) / (averages.life_sum + 1);
        averages.use_contribution = averages.running_sum * FULL_USE / (averages.life_sum + 1);
        if is_here {
            let load = &mut queue.load;
            if entity.group == GroupId::ROOT {
                load.tracked = load.tracked + averages.contribution - before;
            }
            load.tracked_use = load.tracked_use + averages.use_contribution - use_before;
        }
    }

    /// Updates the averages of a CPU, if it has its own. Call it before the measured state changes.
    pub(super) fn track_cpu(self, queue: &mut RunQueue) {
        if !self.keeps_blocked_load() {
            return;
        }
        let weight = queue.tasks.weight();
        let (wanting, running) = (queue.nr_running() as u64, queue.curr().is_some().into());
        let load = &mut queue.load;
        if let Some(step) = load.decay.advance(queue.clock.task_ns) {
            load.load_sum = step.apply(load.load_sum, weight);
            load.runnable_sum = step.apply(load.runnable_sum, wanting);
            load.running_sum = step.apply(load.running_sum, running);
            load.present_sum = step.apply(load.present_sum, weight);
        }
    }

    /// The weight of a task, whose averages are current, is about to become another one.
    pub(super) fn reweigh(self, queue: &mut RunQueue, entity: &Entity, weight: u32, is_there: bool) {
        if self.keeps_blocked_load() && is_of_root(entity) && !entity.is_new {
            let [before, ..] = queue.load.share(entity);
            let now = before / u64::from(entity.weight) * u64::from(weight);
            queue.load.load_sum = queue.load.load_sum.saturating_sub(before) + now;
            if is_there {
                queue.load.present_sum = queue.load.present_sum.saturating_sub(before) + now;
            }
        }
    }

    /// The task, whose averages are current, is about to join the queue of its CPU. `is_foreign`: its
    /// averages are not in that CPU's yet.
    pub(super) fn count_in(self, queue: &mut RunQueue, entity: &mut Entity, is_foreign: bool) {
        match self {
            Self::Weight => {}
            Self::Contributions => {
                queue.load.tracked += if is_of_root(entity) { entity.averages.contribution } else { 0 };
                queue.load.tracked_use += entity.averages.use_contribution;
            }
            Self::RunnableLoad | Self::LoadAvg => {
                if is_foreign {
                    if entity.is_new {
                        guess_use(&queue.load, entity);
                    }
                    queue.load.attach(entity);
                }
                if self == Self::RunnableLoad && is_of_root(entity) {
                    let [weighted, ..] = queue.load.share(entity);
                    queue.load.present_sum += weighted;
                }
            }
        }
    }

    /// The task, which is in the queue of its CPU and not about to leave, counts with the estimate of its use
    /// (`util_est_enqueue()`).
    pub(super) fn count_estimate(self, queue: &mut RunQueue, entity: &mut Entity) {
        if self.keeps_blocked_load() {
            let estimate = &mut entity.averages.estimate;
            queue.load.estimated_use += estimate.value() - estimate.counted;
            estimate.counted = estimate.value();
        }
    }

    /// The task no longer counts with the estimate of its use (`util_est_dequeue()`).
    pub(super) fn discount_estimate(queue: &mut RunQueue, entity: &mut Entity) {
        queue.load.estimated_use -= std::mem::take(&mut entity.averages.estimate.counted);
    }

    /// The task, whose averages are current and which no longer counts, goes to sleep.
    pub(super) fn sleeps(rule: UseEstimates, entity: &mut Entity) {
        let averages = &mut entity.averages;
        let runnable = averages.runnable_sum * FULL_USE / averages.decay.divider();
        averages.estimate.update(rule, averages.util(), runnable);
    }

    /// The task, whose averages are current, is about to leave the queue of its CPU, or the CPU itself.
    pub(super) fn count_out(self, queue: &mut RunQueue, entity: &mut Entity) {
        Self::discount_estimate(queue, entity);
        match self {
            Self::Contributions => {
                queue.load.tracked -= if is_of_root(entity) { entity.averages.contribution } else { 0 };
                queue.load.tracked_use -= entity.averages.use_contribution;
            }
            Self::RunnableLoad if is_of_root(entity) => {
                let [weighted, ..] = queue.load.share(entity);
                queue.load.present_sum = queue.load.present_sum.saturating_sub(weighted);
            }
            Self::Weight | Self::RunnableLoad | Self::LoadAvg => {}
        }
    }

    /// Removes the contribution of a task, current and in no queue, from its CPU's averages.
    pub(super) fn forget(self, queue: &mut RunQueue, entity: &Entity) {
        if self.keeps_blocked_load() {
            queue.load.detach(entity);
        }
    }
}

/// Estimates the use of a new task from that of the CPU on which it will begin, at most half of the free part
/// (`post_init_entity_util_avg()`; 5.2, 6.12).
fn guess_use(load: &QueueLoad, entity: &mut Entity) {
    let used = load.util();
    let most = FULL_USE.saturating_sub(used) / 2;
    let per_weight = used * u64::from(entity.weight);
    let guess = match used {
        0 => most,
        _ => most.min(per_weight / (load.lasting() + 1)),
    };
    let sum = guess * entity.averages.decay.divider() / FULL_USE;
    entity.averages.running_sum = sum;
    entity.averages.runnable_sum = sum;
}

impl TaskAverages {
    /// Sum of the time in which the task ran or wanted to.
    pub fn load_sum(&self) -> u64 {
        self.load_sum
    }

    /// Its load as it counts in its queue (4.2).
    pub fn contribution(&self) -> u64 {
        self.contribution
    }

    /// Continues with the clock of another CPU.
    pub fn move_to(&mut self, clock_ns: u64) {
        self.decay.move_to(clock_ns);
    }
}

/// The loads of all CPUs and tasks, to read.
#[derive(Clone, Copy)]
pub(in crate::policy::linux) struct Loads<'a> {
    pub(super) tracking: LoadTracking,
    pub(super) cpus: &'a [RunQueue],
    pub(super) entities: &'a [Entity],
    pub(super) levels: &'a [Level],
}

impl Loads<'_> {
    /// Load that the task brings to a CPU, as of when it was last updated.
    pub fn of_task(self, task: TaskId) -> u64 {
        let entity = &self.entities[task.index()];
        let load = self.tracking.task_load(entity);
        match entity.group {
            GroupId::ROOT => load,
            group => self.part_of(LevelId::of(group, entity.cpu, self.cpus.len()), load),
        }
    }

    /// Part of time in which the task runs, in 1024ths, as of when it was last updated (5.2, 6.12).
    pub fn task_util(self, task: TaskId) -> u64 {
        self.entities[task.index()].averages.util()
    }

    /// Load of a CPU now.
    pub fn of_cpu(self, cpu: CpuId) -> u64 {
        self.tracking.cpu_load(&self.cpus[cpu.index()])
    }

    /// Load of a CPU that tasks might leave: see [`LoadTracking::source_load`].
    pub fn source(self, cpu: CpuId, index: usize) -> u64 {
        self.tracking.source_load(&self.cpus[cpu.index()], index)
    }

    /// Load of a CPU that tasks might go to: see [`LoadTracking::target_load`].
    pub fn target(self, cpu: CpuId, index: usize) -> u64 {
        self.tracking.target_load(&self.cpus[cpu.index()], index)
    }

    /// Load of a CPU, including the fading contributions of tasks that blocked recently (5.2, 6.12).
    pub fn lasting(self, cpu: CpuId) -> u64 {
        self.cpus[cpu.index()].load.lasting()
    }

    /// Part of time in which a CPU's tasks run, in 1024ths, including tasks that blocked recently (5.2,
    /// 6.12).
    pub fn average_util(self, cpu: CpuId) -> u64 {
        self.cpus[cpu.index()].load.util()
    }

    /// The same, or if it is more, what those that run or wait are estimated to use (5.2, 6.12); in 4.2 what
    /// these have used (`cpu_util()`, `get_cpu_usage()`).
    pub fn cpu_util(self, cpu: CpuId) -> u64 {
        let load = &self.cpus[cpu.index()].load;
        match self.tracking {
            LoadTracking::Contributions => load.tracked_use.min(FULL_USE),
            _ => load.util().max(load.estimated_use).min(FULL_USE),
        }
    }

    /// The use of a CPU without that of a task, which ran there last and may still be there
    /// (`cpu_util_without()`; 5.2, 6.12).
    pub fn cpu_util_without(self, cpu: CpuId, task: TaskId) -> u64 {
        let load = &self.cpus[cpu.index()].load;
        let counted = self.entities[task.index()].averages.estimate.counted;
        let average = load.util().saturating_sub(self.task_util(task));
        average.max(load.estimated_use - counted).min(FULL_USE)
    }

    /// What the task uses, or if it is more, is estimated to use (`task_util_est()`; 5.2, 6.12).
    pub fn estimated_task_util(self, task: TaskId) -> u64 {
        self.task_util(task).max(self.entities[task.index()].averages.estimate.value())
    }

    /// Average number of runnable tasks of a CPU, in 1024ths of a task (6.12).
    pub fn runnable(self, cpu: CpuId) -> u64 {
        self.cpus[cpu.index()].load.runnable()
    }
}
