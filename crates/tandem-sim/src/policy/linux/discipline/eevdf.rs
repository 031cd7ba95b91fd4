//! Earliest eligible virtual deadline first (6.12).
//!
//! Problem: the same as that of CFS ([`cfs`](super::cfs)), without its heuristics for tasks that sleep.
//!
//! Approach:
//! 1. A task's virtual run time grows with its run time divided by its weight. If each task of a CPU had its
//!    exact share, all would have the same virtual run time: the average, by weight. A task that is not ahead
//!    of the average is *eligible*.
//! 2. Each task asks for one slice after the other. The *virtual deadline* of a slice is where the task's
//!    virtual run time would be at its end. The eligible task with the earliest deadline runs.
//! 3. The running task goes on until its slice is done or it is no longer eligible (`RUN_TO_PARITY`). Until
//!    then, a task that wakes up does not preempt it.
//! 4. How far a task is behind or ahead of the average, its *lag*, stays with it while it sleeps
//!    (`PLACE_LAG`). A task that blocks while it is ahead stays in the queue until it is eligible, and so
//!    pays for having run ahead (`DELAY_DEQUEUE`); any gain beyond that is dropped (`DELAY_ZERO`).
//! 5. A new task starts at the average, with half a slice until its deadline (`PLACE_DEADLINE_INITIAL`).
//!
//! Left out: `PREEMPT_SHORT` and the slices that tasks may ask for: all tasks here have the same slice, and
//! then it has no effect; groups, `SCHED_BATCH` and `SCHED_IDLE`; `NEXT_BUDDY`, off by default. A task that
//! is leaving does not count as running, as in later releases.

use super::{Coming, virtual_time};
use crate::policy::linux::queues::Timeline;
use crate::policy::linux::settings::Tunables;
use tandem_machine::ids::{CpuId, TaskId};

/// The state of EEVDF for the queue of a CPU.
#[derive(Clone, Debug, Default)]
struct EevdfQueue {
    /// Sum of weight x virtual run time over the tasks that wait.
    waiting_vruntime: i128,
    /// The average virtual run time when the queue last became empty.
    empty_vruntime: i64,
}

/// The state of EEVDF for a task.
#[derive(Clone, Debug)]
pub(in crate::policy::linux) struct EevdfTask {
    weight: u32,
    /// Virtual time that it has run for: real time divided by weight, ns at nice 0.
    pub vruntime: i64,
    /// Virtual time by which its present slice should be done; while it is in no queue, counted from
    /// `vruntime`.
    pub deadline: i64,
    /// How far it was behind the average of its queue when it left it, ns at nice 0; ahead if negative.
    pub lag: i64,
    /// The deadline that it had when it was chosen to run.
    pub chosen_deadline: i64,
}

impl EevdfTask {
    fn weighted_vruntime(&self) -> i128 {
        i128::from(self.weight) * i128::from(self.vruntime)
    }
}

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

/// Earliest eligible virtual deadline first.
#[derive(Clone, Debug)]
pub(in crate::policy::linux) struct Eevdf {
    base_slice_ns: u64,
    /// Longest lag, for a task of nice 0.
    lag_limit_ns: u64,
    queues: Vec<EevdfQueue>,
    tasks: Vec<EevdfTask>,
}

impl Eevdf {
    /// For this many CPUs. The longest lag is two slices or, if that is longer, a tick.
    pub fn new(tunables: &Tunables, cpus: usize, tick_period_ns: u64) -> Self {
        Self {
            base_slice_ns: tunables.base_slice_ns,
            lag_limit_ns: (2 * tunables.base_slice_ns).max(tick_period_ns),
            queues: vec![EevdfQueue::default(); cpus],
            tasks: Vec::new(),
        }
    }

    /// A task of this weight that has never run.
    pub fn begin(&mut self, task: TaskId, weight: u32) {
        let new = EevdfTask { weight, vruntime: 0, deadline: 0, lag: 0, chosen_deadline: 0 };
        match self.tasks.get_mut(task.index()) {
            Some(known) => *known = new,
            None => self.tasks.push(new),
        }
    }

    fn sums(&self, cpu: CpuId, tasks: &Timeline) -> Sums {
        let current = tasks.curr().map_or(0, |task| self.tasks[task.index()].weighted_vruntime());
        let weighted_vruntime = self.queues[cpu.index()].waiting_vruntime + current;
        Sums { weight: tasks.weight(), weighted_vruntime }
    }

    /// Average virtual run time of the tasks of a CPU, rounded down (`avg_vruntime()`).
    fn average_vruntime(&self, cpu: CpuId, tasks: &Timeline) -> i64 {
        let sums = self.sums(cpu, tasks);
        match sums.weight {
            0 => self.queues[cpu.index()].empty_vruntime,
            weight => sums.weighted_vruntime.div_euclid(weight.into()) as i64,
        }
    }

    /// Length of every slice, ns.
    pub fn slice_ns(&self) -> u64 {
        self.base_slice_ns
    }

    /// Slice of a task as its virtual time.
    fn virtual_slice(&self, task: TaskId) -> i64 {
        virtual_time(self.tasks[task.index()].weight, self.base_slice_ns)
    }

    /// Places a task, in no queue, by the average of a CPU. One that moves keeps the time until its deadline.
    pub fn place(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId, coming: Coming) {
        let average = self.average_vruntime(cpu, tasks);
        let weight = i128::from(tasks.weight());
        let slice = self.virtual_slice(task);
        let it = &mut self.tasks[task.index()];
        // Its arrival moves the average towards it, so a larger distance is needed to keep its lag.
        let lag = match weight {
            0 => 0,
            _ => (i128::from(it.lag) * (weight + i128::from(it.weight)) / weight) as i64,
        };
        it.vruntime = average - lag;
        it.deadline = it.vruntime
            + match coming {
                Coming::Moved => it.deadline,
                Coming::New => slice / 2,
                Coming::Woken => slice,
            };
    }

    /// Records how far a task that is about to leave the CPU or its queue is behind the average
    /// (`update_entity_lag()`).
    pub fn note_lag(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId) {
        let average = self.average_vruntime(cpu, tasks);
        let it = &mut self.tasks[task.index()];
        let limit = virtual_time(it.weight, self.lag_limit_ns);
        it.lag = (average - it.vruntime).clamp(-limit, limit);
    }

    /// The task is about to wait in the queue of the CPU, which is sorted by deadlines.
    #[inline]
    pub fn enqueue(&mut self, cpu: CpuId, task: TaskId) -> i64 {
        let it = &self.tasks[task.index()];
        self.queues[cpu.index()].waiting_vruntime += it.weighted_vruntime();
        it.deadline
    }

    /// The task is about to leave that queue.
    #[inline]
    pub fn dequeue(&mut self, cpu: CpuId, task: TaskId) -> i64 {
        let it = &self.tasks[task.index()];
        self.queues[cpu.index()].waiting_vruntime -= it.weighted_vruntime();
        it.deadline
    }

    /// Charges the running task for a run time. Begins its next slice if it has done the present one, and
    /// returns whether it has (`update_deadline()`).
    #[inline]
    pub fn charge(&mut self, task: TaskId, ran_ns: u64) -> bool {
        let slice = self.virtual_slice(task);
        let it = &mut self.tasks[task.index()];
        it.vruntime += virtual_time(it.weight, ran_ns);
        let is_over = it.vruntime >= it.deadline;
        if is_over {
            it.deadline = it.vruntime + slice;
        }
        is_over
    }

    /// Whether the task, on the CPU or in its queue, is not ahead of its share.
    pub fn is_eligible(&self, cpu: CpuId, tasks: &Timeline, task: TaskId) -> bool {
        self.sums(cpu, tasks).is_eligible(self.tasks[task.index()].vruntime)
    }

    /// The task that the CPU should run next (`pick_eevdf()`).
    pub fn choose(&self, cpu: CpuId, tasks: &Timeline) -> Option<TaskId> {
        if tasks.none_waits() {
            return tasks.curr();
        }
        let sums = self.sums(cpu, tasks);
        let of = |task: TaskId| &self.tasks[task.index()];
        let is_eligible = |task: &TaskId| sums.is_eligible(of(*task).vruntime);
        let current = tasks.curr().filter(is_eligible);
        if let Some(task) = current
            && of(task).chosen_deadline == of(task).deadline
        {
            return current;
        }
        // In the order of deadlines. At least one task is eligible, because not all can be ahead of the
        // average.
        let best = tasks.waiting().find(is_eligible);
        match (current, best) {
            (Some(current), Some(best)) if of(current).deadline < of(best).deadline => Some(current),
            _ => best.or(current),
        }
    }

    /// The task begins a turn.
    #[inline]
    pub fn set_next(&mut self, task: TaskId) {
        let it = &mut self.tasks[task.index()];
        it.chosen_deadline = it.deadline;
    }

    /// The task on the CPU gives way: its deadline moves by a slice.
    pub fn yields(&mut self, task: TaskId) {
        self.tasks[task.index()].deadline += self.virtual_slice(task);
    }

    /// The task has left the CPU or its queue, in which these tasks remain.
    pub fn left(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId) {
        let it = &mut self.tasks[task.index()];
        it.deadline -= it.vruntime;
        if tasks.is_empty() {
            self.queues[cpu.index()].empty_vruntime = it.vruntime;
        }
    }

    /// Drops a positive lag of a task; what it owes remains (`DELAY_ZERO`).
    pub fn forget_gain(&mut self, task: TaskId) {
        let lag = &mut self.tasks[task.index()].lag;
        *lag = (*lag).min(0);
    }

    /// A task that was leaving wakes up: it stays, but gains nothing. Returns whether it has to be placed
    /// again.
    pub fn requeues_delayed(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId) -> bool {
        self.note_lag(cpu, tasks, task);
        let gains = self.tasks[task.index()].lag > 0;
        self.forget_gain(task);
        gains
    }
}

#[cfg(test)]
impl Eevdf {
    pub fn waiting_vruntime(&self, cpu: CpuId) -> i128 {
        self.queues[cpu.index()].waiting_vruntime
    }

    pub fn task_mut(&mut self, task: TaskId) -> &mut EevdfTask {
        &mut self.tasks[task.index()]
    }
}
