//! The completely fair scheduler (3.6, 4.2 and 5.2).
//!
//! Problem: give each task its share by weight, and serve tasks that often sleep soon.
//!
//! Approach:
//! 1. A task's virtual run time grows with its run time divided by its weight. The one with the least runs
//!    next.
//! 2. Every task should run once in `latency`; its slice is its part of that by weight. With more tasks than
//!    fit, each has at least `min_granularity` on average. A tick ends the slice of a task that has used it
//!    up, or is a whole slice ahead of the first in the queue.
//! 3. A task that wakes up is put at most half a latency behind the least virtual run time: it may catch up
//!    with what it missed, but not with more (`GENTLE_FAIR_SLEEPERS`). A new one is put a slice ahead
//!    (`START_DEBIT`).
//! 4. A task that wakes up preempts if it is behind the running one by more than `wakeup_granularity` of real
//!    time, as virtual time of its own (`WAKEUP_PREEMPTION`). Whether the wake-up was synchronous makes no
//!    difference.
//! 5. Buddies are chosen out of turn unless that is unfair by more than the same granularity: the task that
//!    has just preempted (`next`), or the one that was preempted, with many tasks on the CPU (`last`, feature
//!    `LAST_BUDDY`). One that has yielded is passed over once (`skip`).
//!
//! Left out: groups, `SCHED_BATCH` and `SCHED_IDLE`, high-resolution ticks (`HRTICK`), and `NEXT_BUDDY`, all
//! off or unused by default; `child_runs_first`, off by default.

use super::{Coming, scale, virtual_time};
use crate::policy::linux::queues::Timeline;
use crate::policy::linux::settings::Tunables;
use tandem_machine::ids::{CpuId, TaskId};

/// The state of CFS for the queue of a CPU.
#[derive(Clone, Debug, Default)]
struct CfsQueue {
    /// Smallest virtual run time of its tasks, which never falls.
    min_vruntime: i64,
    /// The task that was preempted last.
    last_buddy: Option<TaskId>,
    /// The task that should run next.
    next_buddy: Option<TaskId>,
    /// The task that has yielded.
    skip_buddy: Option<TaskId>,
}

impl CfsQueue {
    fn clear_buddies(&mut self, task: TaskId) {
        for buddy in [&mut self.last_buddy, &mut self.next_buddy, &mut self.skip_buddy] {
            if *buddy == Some(task) {
                *buddy = None;
            }
        }
    }
}

/// The state of CFS for a task.
#[derive(Clone, Debug)]
pub(in crate::policy::linux) struct CfsTask {
    weight: u32,
    /// Virtual time that it has run for: real time divided by weight, ns at nice 0.
    pub(super) vruntime: i64,
    /// Run time since its slice began, ns.
    slice_used_ns: u64,
}

/// The completely fair scheduler.
#[derive(Clone, Debug)]
pub(in crate::policy::linux) struct Cfs {
    latency_ns: u64,
    min_granularity_ns: u64,
    wakeup_granularity_ns: u64,
    /// With more tasks than this on a CPU, the latency cannot hold.
    nr_latency: u64,
    slice_restarts: bool,
    queues: Vec<CfsQueue>,
    tasks: Vec<CfsTask>,
}

impl Cfs {
    /// For this many CPUs. `slice_restarts`: a task that goes on without a switch begins a new slice.
    pub fn new(tunables: &Tunables, slice_restarts: bool, cpus: usize) -> Self {
        Self {
            latency_ns: tunables.latency_ns,
            min_granularity_ns: tunables.min_granularity_ns,
            wakeup_granularity_ns: tunables.wakeup_granularity_ns,
            nr_latency: tunables.nr_latency(),
            slice_restarts,
            queues: vec![CfsQueue::default(); cpus],
            tasks: Vec::new(),
        }
    }

    /// A task of this weight that has never run.
    pub fn begin(&mut self, task: TaskId, weight: u32) {
        let new = CfsTask { weight, vruntime: 0, slice_used_ns: 0 };
        match self.tasks.get_mut(task.index()) {
            Some(known) => *known = new,
            None => self.tasks.push(new),
        }
    }

    /// Slice of a task of this weight on a CPU with these tasks; `added` if it is not yet one of them, ns
    /// (`sched_slice()`).
    fn slice_ns(&self, tasks: &Timeline, weight: u32, added: bool) -> u64 {
        let count = tasks.nr_running() as u64 + u64::from(added);
        let weights = tasks.weight() + if added { weight.into() } else { 0 };
        let period_ns =
            if count > self.nr_latency { count * self.min_granularity_ns } else { self.latency_ns };
        scale(period_ns, weight.into(), weights)
    }

    /// First slice of a new task among these, ns.
    pub fn first_slice_ns(&self, tasks: &Timeline, task: TaskId) -> u64 {
        self.slice_ns(tasks, self.tasks[task.index()].weight, true)
    }

    /// Places a new task by the queue of the CPU on which it was born, a slice ahead, and not before its
    /// parent.
    pub fn place_at_birth(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId) {
        let slice_ns = self.first_slice_ns(tasks, task);
        let slice = virtual_time(self.tasks[task.index()].weight, slice_ns);
        let debited = self.queues[cpu.index()].min_vruntime + slice;
        let parent = tasks.curr().map(|parent| self.tasks[parent.index()].vruntime);
        self.tasks[task.index()].vruntime = parent.map_or(debited, |vruntime| vruntime.max(debited));
    }

    /// Rebases the virtual run time of a task that is in no queue to that of another CPU.
    pub fn migrate(&mut self, task: TaskId, from: CpuId, to: CpuId) {
        let offset = self.queues[to.index()].min_vruntime - self.queues[from.index()].min_vruntime;
        self.tasks[task.index()].vruntime += offset;
    }

    /// Places a task that wakes up: see 3. in the [module](self). Other tasks keep their place.
    pub fn place(&mut self, cpu: CpuId, task: TaskId, coming: Coming) {
        if coming == Coming::Woken {
            let credited = self.queues[cpu.index()].min_vruntime - (self.latency_ns / 2) as i64;
            let vruntime = &mut self.tasks[task.index()].vruntime;
            *vruntime = credited.max(*vruntime);
        }
    }

    /// What queues are sorted by.
    #[inline]
    pub fn key(&self, task: TaskId) -> i64 {
        self.tasks[task.index()].vruntime
    }

    /// Charges the task on the CPU for a run time (`update_curr()`).
    #[inline]
    pub fn charge(&mut self, cpu: CpuId, tasks: &Timeline, task: TaskId, ran_ns: u64) {
        let running = &mut self.tasks[task.index()];
        running.slice_used_ns += ran_ns;
        running.vruntime += virtual_time(running.weight, ran_ns);
        self.update_min_vruntime(cpu, tasks);
    }

    /// Brings the least virtual run time of a CPU up to date.
    pub fn update_min_vruntime(&mut self, cpu: CpuId, tasks: &Timeline) {
        let tasks = tasks.waiting().take(1).chain(tasks.curr());
        if let Some(least) = tasks.map(|task| self.tasks[task.index()].vruntime).min() {
            let min_vruntime = &mut self.queues[cpu.index()].min_vruntime;
            *min_vruntime = least.max(*min_vruntime);
        }
    }

    /// At a tick: whether the slice of the running task is over (`check_preempt_tick()`).
    pub fn slice_is_over(&mut self, cpu: CpuId, tasks: &Timeline, current: TaskId) -> bool {
        let Some(first) = tasks.waiting().next() else { return false };
        let running = &self.tasks[current.index()];
        let slice_ns = self.slice_ns(tasks, running.weight, false);
        if running.slice_used_ns > slice_ns {
            self.clear_buddies(cpu, current);
            return true;
        }
        let ahead = running.vruntime - self.tasks[first.index()].vruntime;
        running.slice_used_ns >= self.min_granularity_ns && ahead > slice_ns as i64
    }

    /// Whether a task that has come into the queue of a CPU preempts the one that runs there
    /// (`check_preempt_wakeup()`); marks them as buddies if so.
    pub fn preempts(&mut self, cpu: CpuId, tasks: &Timeline, current: TaskId, task: TaskId) -> bool {
        if !self.preferable(current, task) {
            return false;
        }
        let queue = &mut self.queues[cpu.index()];
        queue.next_buddy = Some(task);
        if tasks.nr_running() as u64 >= self.nr_latency {
            queue.last_buddy = Some(current);
        }
        true
    }

    /// Whether `other` is so far behind `task` that fairness requires to prefer it (`wakeup_preempt_entity()`
    /// is 1).
    fn preferable(&self, task: TaskId, other: TaskId) -> bool {
        let [task, other]: [&CfsTask; 2] = [task, other].map(|task| &self.tasks[task.index()]);
        task.vruntime - other.vruntime > virtual_time(other.weight, self.wakeup_granularity_ns)
    }

    /// The task that the CPU should run next (`pick_next_entity()`).
    #[inline]
    pub fn pick(&mut self, cpu: CpuId, tasks: &Timeline) -> Option<TaskId> {
        let (least, second) = self.first_two(tasks)?;
        let queue = &self.queues[cpu.index()];
        let skips_least = queue.skip_buddy == Some(least);
        let mut picked = least;
        for other in
            [second.filter(|_| skips_least), queue.last_buddy, queue.next_buddy].into_iter().flatten()
        {
            if !self.preferable(other, least) {
                picked = other;
            }
        }
        self.clear_buddies(cpu, picked);
        Some(picked)
    }

    /// The tasks with the least virtual run times. The running one stands behind waiting ones that are equal.
    fn first_two(&self, tasks: &Timeline) -> Option<(TaskId, Option<TaskId>)> {
        let mut waiting = tasks.waiting();
        let (first, second) = (waiting.next(), waiting.next());
        let is_before = |current: TaskId, other: Option<TaskId>| {
            let vruntime = |task: TaskId| self.tasks[task.index()].vruntime;
            other.is_none_or(|other| vruntime(current) < vruntime(other))
        };
        match tasks.curr() {
            Some(current) if is_before(current, first) => Some((current, first)),
            Some(current) if is_before(current, second) => Some((first?, Some(current))),
            _ => Some((first?, second)),
        }
    }

    /// The task begins a turn, and with it a slice.
    #[inline]
    pub fn set_next(&mut self, task: TaskId) {
        self.tasks[task.index()].slice_used_ns = 0;
    }

    /// A task goes on without a switch. 3.6 puts it back and picks it again, which begins a new slice.
    #[inline]
    pub fn goes_on(&mut self, task: TaskId) {
        if self.slice_restarts {
            self.set_next(task);
        }
    }

    /// The task on the CPU gives way: it is passed over once.
    pub fn yields(&mut self, cpu: CpuId, task: TaskId) {
        self.clear_buddies(cpu, task);
        self.queues[cpu.index()].skip_buddy = Some(task);
    }

    /// The task should run next on the CPU.
    pub fn set_next_buddy(&mut self, cpu: CpuId, task: TaskId) {
        self.queues[cpu.index()].next_buddy = Some(task);
    }

    /// Forgets the task as a buddy.
    pub fn clear_buddies(&mut self, cpu: CpuId, task: TaskId) {
        self.queues[cpu.index()].clear_buddies(task);
    }
}

#[cfg(test)]
impl Cfs {
    pub fn task_mut(&mut self, task: TaskId) -> &mut CfsTask {
        &mut self.tasks[task.index()]
    }

    pub fn min_vruntime_mut(&mut self, cpu: CpuId) -> &mut i64 {
        &mut self.queues[cpu.index()].min_vruntime
    }

    pub fn slice_used_ns(&self, task: TaskId) -> u64 {
        self.tasks[task.index()].slice_used_ns
    }

    pub fn skips(&self, cpu: CpuId) -> Option<TaskId> {
        self.queues[cpu.index()].skip_buddy
    }
}
