//! Load: what tasks and CPUs are measured by when they are placed and balanced.
//!
//! - **3.6**: the load of a task is its weight, that of a CPU the sum over its tasks. Against ping-pong, each
//!   CPU keeps five averages of its load over longer and longer times, updated at its ticks; a CPU that tasks
//!   might leave is taken at the smaller of present and past load, one that they might go to at the larger.
//! - **4.2**: the load of a task is its weight times the part of its life in which it wanted to run, the
//!   recent past counting most ([`decay`](super::decay)); that of a CPU the sum over its tasks. The averages
//!   of 3.6 are kept, over this.
//! - **6.12**: a CPU has averages of its own: of its load, of the number of tasks that want to run, and of
//!   its use. What a task has added stays when it blocks, and fades. It goes along when the task goes to
//!   another CPU.
//! - **5.2**: has the averages of 6.12 and beside them one of the load of those tasks that run or wait
//!   (`runnable_load_avg`). That one is the load of a CPU, and the averages of 3.6 are kept over it. From memory of
//!   that release, like the rest of what is said of it.
//!
//! Limits: no groups, so that the load of a task is its own. 6.12's estimate of the use by tasks that wake up
//! (`util_est`) and its scaling of time by the speed of the CPU are left out.

use super::decay::Decay;
use super::features::LoadTracking;
use super::{Context, Linux};
use tandem_machine::ids::{CpuId, TaskId};

/// Fully used, in the unit of use (`SCHED_CAPACITY_SCALE`).
pub(super) const FULL_USE: u64 = 1024;
/// Averages of past load that a CPU keeps, the first of which is the present load (`CPU_LOAD_IDX_MAX`).
const HISTORY: usize = 5;
/// After so many missed ticks nothing is left of an average (`degrade_zero_ticks`).
const FORGOTTEN_AFTER_TICKS: [u64; HISTORY] = [0, 8, 32, 64, 128];

/// Decaying averages of a task, on the task clock of its CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TaskAverages {
    decay: Decay,
    /// Sum of the time in which it ran or wanted to.
    load_sum: u64,
    /// The same; a new task starts lower here than in `load_sum` (5.2, 6.12).
    runnable_sum: u64,
    /// Sum of the time in which it ran (5.2, 6.12).
    running_sum: u64,
    /// Sum of all time since its birth (4.2).
    life_sum: u64,
    /// Its load as it counts in the sum over its CPU's tasks (4.2).
    contribution: u64,
}

/// Load measures of a CPU, on its task clock.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueLoad {
    /// Load over longer and longer times (3.6 to 5.2).
    history: [u64; HISTORY],
    /// Ticks since the beginning up to which the history goes.
    history_ticks: u64,
    /// Sum of the loads of the tasks that run or wait (4.2).
    tracked: u64,
    decay: Decay,
    /// Sums over time of the weight of its tasks, of their number and of the use by them (5.2, 6.12).
    load_sum: u64,
    runnable_sum: u64,
    running_sum: u64,
    /// Sum over time of the weight of its tasks, without what those have left that blocked (5.2).
    present_sum: u64,
}

impl Linux {
    /// Load that the task brings to a CPU, as of when it was last updated.
    pub(super) fn task_load(&self, task: TaskId) -> u64 {
        let entity = &self.entities[task.index()];
        match self.features.load {
            LoadTracking::Weight => entity.weight.into(),
            LoadTracking::Contributions => entity.averages.contribution,
            LoadTracking::RunnableLoad | LoadTracking::LoadAvg => {
                entity.averages.load_sum * u64::from(entity.weight) / entity.averages.decay.divider()
            }
        }
    }

    /// Part of time in which the task runs, in 1024ths, as of when it was last updated (5.2, 6.12).
    pub(super) fn task_util(&self, task: TaskId) -> u64 {
        let averages = &self.entities[task.index()].averages;
        averages.running_sum * FULL_USE / averages.decay.divider()
    }

    /// Load of a CPU now (`weighted_cpuload()`, later `cpu_load()`): see the [module](self).
    pub(super) fn cpu_load(&self, cpu: CpuId) -> u64 {
        let load = &self.cpus[cpu.index()].load;
        match self.features.load {
            LoadTracking::Weight => self.total_weight(cpu),
            LoadTracking::Contributions => load.tracked,
            LoadTracking::RunnableLoad => load.present_sum / load.decay.divider(),
            LoadTracking::LoadAvg => load.load_sum / load.decay.divider(),
        }
    }

    /// Load of a CPU with what is left of tasks that blocked not long ago (`cfs_rq_load_avg()`; 5.2, 6.12).
    pub(super) fn lasting_load(&self, cpu: CpuId) -> u64 {
        let load = &self.cpus[cpu.index()].load;
        load.load_sum / load.decay.divider()
    }

    /// Load of a CPU that tasks might leave, guessed low from history (`source_load()`; 3.6 to 5.2). Index 0
    /// takes the present load; 1 to 4 look back further and further.
    pub(super) fn source_load(&self, cpu: CpuId, index: usize) -> u64 {
        self.past_load(cpu, index).map_or(self.cpu_load(cpu), |past| past.min(self.cpu_load(cpu)))
    }

    /// Load of a CPU that tasks might go to, guessed high from history (`target_load()`; 3.6 to 5.2).
    pub(super) fn target_load(&self, cpu: CpuId, index: usize) -> u64 {
        self.past_load(cpu, index).map_or(self.cpu_load(cpu), |past| past.max(self.cpu_load(cpu)))
    }

    fn past_load(&self, cpu: CpuId, index: usize) -> Option<u64> {
        let average = index.checked_sub(1)?.min(HISTORY - 1);
        Some(self.cpus[cpu.index()].load.history[average])
    }

    /// Part of time in which a CPU's tasks run, in 1024ths, with tasks that blocked not long ago (5.2, 6.12).
    pub(super) fn cpu_util(&self, cpu: CpuId) -> u64 {
        let load = &self.cpus[cpu.index()].load;
        load.running_sum * FULL_USE / load.decay.divider()
    }

    /// Makes it appear that so many 1024ths of a CPU are used.
    #[cfg(test)]
    pub(super) fn set_util(&mut self, cpu: CpuId, util: u64) {
        let load = &mut self.cpus[cpu.index()].load;
        load.running_sum = (util * load.decay.divider()).div_ceil(FULL_USE);
    }

    /// How many tasks want to run on a CPU on average, in 1024ths of a task, with tasks that blocked not long
    /// ago (6.12).
    pub(super) fn cpu_runnable(&self, cpu: CpuId) -> u64 {
        let load = &self.cpus[cpu.index()].load;
        load.runnable_sum * FULL_USE / load.decay.divider()
    }

    /// Weight of the tasks that run or wait.
    pub(super) fn total_weight(&self, cpu: CpuId) -> u64 {
        let queue = &self.cpus[cpu.index()];
        queue.queued_weight + queue.curr.map_or(0, |task| u64::from(self.entities[task.index()].weight))
    }

    /// Brings the load measures of a CPU up to date, which an idle CPU does not do by itself
    /// (`update_idle_cpu_load()`, later `update_blocked_averages()`).
    pub(super) fn refresh_load(&mut self, ctx: &Context<'_>, cpu: CpuId) {
        self.advance_clock(ctx, cpu);
        if self.features.load.keeps_blocked_load() {
            self.track_cpu(cpu);
        }
        if self.features.cpu_load_history {
            self.update_history(ctx, cpu);
        }
    }

    /// Takes the present load into the averages of past loads, for each tick since the last time. All but the
    /// last of these passed on an idle CPU, without a load: a busy one ticks.
    pub(super) fn update_history(&mut self, ctx: &Context<'_>, cpu: CpuId) {
        let present = self.cpu_load(cpu);
        let ticks = ctx.now_ns / self.settings.tick_period_ns();
        let load = &mut self.cpus[cpu.index()].load;
        let passed = ticks.saturating_sub(load.history_ticks);
        if passed == 0 {
            return;
        }
        load.history_ticks = ticks;
        load.history[0] = present;
        for (index, (average, forgotten_after)) in
            load.history.iter_mut().zip(FORGOTTEN_AFTER_TICKS).enumerate().skip(1)
        {
            let mut past = if passed > forgotten_after { 0 } else { *average };
            for _ in 1..passed.min(forgotten_after) {
                past -= past.div_ceil(1 << index);
            }
            let rounding = if present > past { (1 << index) - 1 } else { 0 };
            *average = ((past << index) - past + present + rounding) >> index;
        }
    }

    /// Starts the averages of a new task, with the clock of its CPU advanced: it counts in full until more is
    /// known.
    pub(super) fn start_tracking(&mut self, task: TaskId) {
        let cpu = self.entities[task.index()].cpu;
        let decay = Decay::starting_at(self.cpus[cpu.index()].clock.task_ns);
        let mut averages = TaskAverages { decay, ..TaskAverages::default() };
        match self.features.load {
            LoadTracking::Weight => {}
            LoadTracking::Contributions => {
                let slice_us = self.cfs_first_slice_ns(task, cpu) / 1024;
                let weight = u64::from(self.entities[task.index()].weight);
                averages.load_sum = slice_us;
                averages.life_sum = slice_us;
                averages.contribution = slice_us * weight / (slice_us + 1);
            }
            LoadTracking::RunnableLoad | LoadTracking::LoadAvg => averages.load_sum = decay.divider(),
        }
        self.entities[task.index()].averages = averages;
    }

    /// Guesses the use of a new task from that of the CPU on which it will begin, never more than half of
    /// what is free there (`post_init_entity_util_avg()`; 5.2, 6.12).
    fn guess_use(&mut self, task: TaskId, cpu: CpuId) {
        let used = self.cpu_util(cpu);
        let most = FULL_USE.saturating_sub(used) / 2;
        let entity = &mut self.entities[task.index()];
        let per_weight = used * u64::from(entity.weight);
        let load = &self.cpus[cpu.index()].load;
        let guess = match used {
            0 => most,
            _ => most.min(per_weight / (load.load_sum / load.decay.divider() + 1)),
        };
        let sum = guess * entity.averages.decay.divider() / FULL_USE;
        entity.averages.running_sum = sum;
        entity.averages.runnable_sum = sum;
    }

    /// Brings the averages of a task up to date, and with them what its CPU has of it. Call it before the
    /// task's state or its CPU's changes, with the clock of the CPU advanced.
    pub(super) fn track(&mut self, task: TaskId) {
        let entity = &mut self.entities[task.index()];
        let cpu = entity.cpu;
        let queue = &mut self.cpus[cpu.index()];
        if self.features.load == LoadTracking::Weight {
            return;
        }
        let runs = queue.curr == Some(task);
        let is_here = runs || entity.queued;
        let averages = &mut entity.averages;
        if let Some(step) = averages.decay.advance(queue.clock.task_ns) {
            averages.load_sum = step.apply(averages.load_sum, is_here.into());
            averages.runnable_sum = step.apply(averages.runnable_sum, is_here.into());
            averages.running_sum = step.apply(averages.running_sum, runs.into());
            averages.life_sum = step.apply(averages.life_sum, 1);
        }
        if self.features.load == LoadTracking::Contributions {
            let before = averages.contribution;
            averages.contribution = averages.load_sum * u64::from(entity.weight) / (averages.life_sum + 1);
            if is_here {
                queue.load.tracked = queue.load.tracked + averages.contribution - before;
            }
        } else {
            self.track_cpu(cpu);
        }
    }

    /// Brings the averages of a CPU up to date (5.2, 6.12). Call it before what they are of changes.
    fn track_cpu(&mut self, cpu: CpuId) {
        let weight = self.total_weight(cpu);
        let queue = &mut self.cpus[cpu.index()];
        let (wanting, running) = (queue.nr_running() as u64, queue.curr.is_some().into());
        let load = &mut queue.load;
        if let Some(step) = load.decay.advance(queue.clock.task_ns) {
            load.load_sum = step.apply(load.load_sum, weight);
            load.runnable_sum = step.apply(load.runnable_sum, wanting);
            load.running_sum = step.apply(load.running_sum, running);
            load.present_sum = step.apply(load.present_sum, weight);
        }
    }

    /// The task is about to come into the queue of its CPU. `is_foreign`: its averages are not in that CPU's
    /// yet.
    pub(super) fn count_in(&mut self, task: TaskId, is_foreign: bool) {
        self.track(task);
        match self.features.load {
            LoadTracking::Weight => {}
            LoadTracking::Contributions => {
                let Self { cpus, entities, .. } = self;
                let entity = &entities[task.index()];
                cpus[entity.cpu.index()].load.tracked += entity.averages.contribution;
            }
            LoadTracking::RunnableLoad => {
                if is_foreign {
                    self.attach(task);
                }
                let (load, [weighted, ..]) = self.share(task);
                load.present_sum += weighted;
            }
            LoadTracking::LoadAvg if is_foreign => self.attach(task),
            LoadTracking::LoadAvg => {}
        }
    }

    /// The task is about to leave the queue of its CPU, or the CPU itself.
    pub(super) fn count_out(&mut self, task: TaskId) {
        self.track(task);
        match self.features.load {
            LoadTracking::Contributions => {
                let Self { cpus, entities, .. } = self;
                let entity = &entities[task.index()];
                cpus[entity.cpu.index()].load.tracked -= entity.averages.contribution;
            }
            LoadTracking::RunnableLoad => {
                let (load, [weighted, ..]) = self.share(task);
                load.present_sum = load.present_sum.saturating_sub(weighted);
            }
            LoadTracking::Weight | LoadTracking::LoadAvg => {}
        }
    }

    /// Takes the averages of a task, up to date and in no queue, out of its CPU's, and restarts their clock
    /// as that of CPU `to`.
    pub(super) fn carry_over(&mut self, task: TaskId, to: CpuId) {
        if self.features.load.keeps_blocked_load() && !self.entities[task.index()].is_new {
            self.detach(task);
        }
        let now_ns = self.cpus[to.index()].clock.task_ns;
        self.entities[task.index()].averages.decay.move_to(now_ns);
    }

    /// Adds the averages of a task to those of its CPU.
    fn attach(&mut self, task: TaskId) {
        let cpu = self.entities[task.index()].cpu;
        if self.entities[task.index()].is_new {
            self.guess_use(task, cpu);
        }
        let (load, [weighted, runnable, running]) = self.share(task);
        load.load_sum += weighted;
        load.runnable_sum += runnable;
        load.running_sum += running;
    }

    /// Takes the averages of a task out of those of its CPU; rounding may leave a little less.
    pub(super) fn detach(&mut self, task: TaskId) {
        let (load, [weighted, runnable, running]) = self.share(task);
        load.load_sum = load.load_sum.saturating_sub(weighted);
        load.runnable_sum = load.runnable_sum.saturating_sub(runnable);
        load.running_sum = load.running_sum.saturating_sub(running);
    }

    /// The averages of a task as sums in its CPU's: periods of CPUs begin at different times.
    fn share(&mut self, task: TaskId) -> (&mut QueueLoad, [u64; 3]) {
        let entity = &self.entities[task.index()];
        let averages = &entity.averages;
        let load = &mut self.cpus[entity.cpu.index()].load;
        let here = |sum: u64| sum * load.decay.divider() / averages.decay.divider();
        let sums = [
            here(averages.load_sum) * u64::from(entity.weight),
            here(averages.runnable_sum),
            here(averages.running_sum),
        ];
        (load, sums)
    }
}
