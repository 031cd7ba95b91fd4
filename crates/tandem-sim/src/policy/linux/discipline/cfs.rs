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
//! Left out: high-resolution ticks (`HRTICK`), `NEXT_BUDDY` and `child_runs_first`, all off by default.

use super::{Coming, scale, virtual_time};
use crate::policy::linux::queues::{LevelId, Member, NICE_0_WEIGHT, OfMembers, Timeline};
use crate::policy::linux::settings::Tunables;
#[cfg(test)]
use tandem_machine::ids::CpuId;
use tandem_machine::ids::TaskId;

/// The state of CFS for a queue.
#[derive(Clone, Debug, Default)]
struct CfsQueue {
    /// Smallest virtual run time of its tasks, which never falls.
    min_vruntime: i64,
    /// The task that was preempted last.
    last_buddy: Option<Member>,
    /// The task that should run next.
    next_buddy: Option<Member>,
    /// The task that has yielded.
    skip_buddy: Option<Member>,
}

/// Kinds of buddies: last, next and skip.
pub(in crate::policy::linux) type Buddies = [bool; 3];

impl CfsQueue {
    /// Forgets the task as a buddy of these kinds; returns which of them it was.
    fn clear_buddies(&mut self, task: Member, kinds: Buddies) -> Buddies {
        let mut buddies = [&mut self.last_buddy, &mut self.next_buddy, &mut self.skip_buddy];
        let mut was = kinds;
        for (buddy, was) in buddies.iter_mut().zip(&mut was) {
            *was &= **buddy == Some(task);
            if *was {
                **buddy = None;
            }
        }
        was
    }
}

/// The state of CFS for a task, or for a group in its parent's queue.
#[derive(Clone, Debug, Default)]
pub(in crate::policy::linux) struct CfsTask {
    weight: u32,
    /// Virtual time that it has run for: real time divided by weight, ns at nice 0.
    pub(super) vruntime: i64,
    /// Run time since its slice began, ns.
    slice_used_ns: u64,
}

/// Why a slice is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy::linux) enum SliceEnd {
    UsedUp,
    /// The task is a slice ahead of the first one that waits.
    Ahead,
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
    members: OfMembers<CfsTask>,
}

impl Cfs {
    /// For this many queues. `slice_restarts`: a task that goes on without a switch begins a new slice.
    pub fn new(tunables: &Tunables, slice_restarts: bool, levels: usize) -> Self {
        Self {
            latency_ns: tunables.latency_ns,
            min_granularity_ns: tunables.min_granularity_ns,
            wakeup_granularity_ns: tunables.wakeup_granularity_ns,
            nr_latency: tunables.nr_latency(),
            slice_restarts,
            queues: vec![CfsQueue::default(); levels],
            members: OfMembers::new(levels, CfsTask { weight: NICE_0_WEIGHT, ..CfsTask::default() }),
        }
    }

    /// A task of this weight that has never run.
    pub fn begin(&mut self, task: TaskId, weight: u32) {
        self.members.begin(task, CfsTask { weight, ..CfsTask::default() });
    }

    /// The weight of a task changes; its virtual run time stays.
    pub fn reweigh(&mut self, task: Member, weight: u32) {
        self.members[task].weight = weight;
    }

    /// Slice of a task among these, if there are no others; `added` if it is not yet one of them, ns
    /// (`sched_slice()`).
    pub fn slice_ns(&self, tasks: &Timeline, task: Member, added: bool) -> u64 {
        let weight = self.members[task].weight;
        let count = tasks.nr_running() as u64 + u64::from(added);
        let weights = tasks.weight() + if added { weight.into() } else { 0 };
        let period_ns =
            if count > self.nr_latency { count * self.min_granularity_ns } else { self.latency_ns };
        scale(period_ns, weight.into(), weights)
    }

    /// Places a new task by its queue on the CPU on which it was born, a slice ahead, and not before its
    /// parent.
    pub fn place_at_birth(&mut self, level: LevelId, tasks: &Timeline, task: Member, slice_ns: u64) {
        let slice = virtual_time(self.members[task].weight, slice_ns);
        let debited = self.queues[level.index()].min_vruntime + slice;
        let parent = tasks.curr().map(|parent| self.members[parent].vruntime);
        self.members[task].vruntime = parent.map_or(debited, |vruntime| vruntime.max(debited));
    }

    /// Rebases the virtual run time of a task that is in no queue to that of another CPU.
    pub fn migrate(&mut self, task: Member, from: LevelId, to: LevelId) {
        let offset = self.queues[to.index()].min_vruntime - self.queues[from.index()].min_vruntime;
        self.members[task].vruntime += offset;
    }

    /// Places a task that wakes up: see 3. in the [module](self). Other tasks keep their place.
    pub fn place(&mut self, level: LevelId, task: Member, coming: Coming) {
        if coming == Coming::Woken {
            let credited = self.queues[level.index()].min_vruntime - (self.latency_ns / 2) as i64;
            let vruntime = &mut self.members[task].vruntime;
            *vruntime = credited.max(*vruntime);
        }
    }

    /// What queues are sorted by.
    #[inline]
    pub fn key(&self, task: Member) -> i64 {
        self.members[task].vruntime
    }

    /// Charges the task on the CPU for a run time (`update_curr()`).
    #[inline]
    pub fn charge(&mut self, level: LevelId, tasks: &Timeline, task: Member, ran_ns: u64) {
        let running = &mut self.members[task];
        running.slice_used_ns += ran_ns;
        running.vruntime += virtual_time(running.weight, ran_ns);
        self.update_min_vruntime(level, tasks);
    }

    /// Brings the least virtual run time of a CPU up to date.
    pub fn update_min_vruntime(&mut self, level: LevelId, tasks: &Timeline) {
        let tasks = tasks.waiting().take(1).chain(tasks.curr());
        if let Some(least) = tasks.map(|task| self.members[task].vruntime).min() {
            let min_vruntime = &mut self.queues[level.index()].min_vruntime;
            *min_vruntime = least.max(*min_vruntime);
        }
    }

    /// At a tick: whether and how the slice of the running task is over (`check_preempt_tick()`).
    pub fn slice_is_over(&self, tasks: &Timeline, current: Member, slice_ns: u64) -> Option<SliceEnd> {
        let first = tasks.waiting().next()?;
        let running = &self.members[current];
        if running.slice_used_ns > slice_ns {
            return Some(SliceEnd::UsedUp);
        }
        let ahead = running.vruntime - self.members[first].vruntime;
        let is_ahead = running.slice_used_ns >= self.min_granularity_ns && ahead > slice_ns as i64;
        is_ahead.then_some(SliceEnd::Ahead)
    }

    /// Whether the latency cannot hold with one task more, so that one that is preempted is to run next
    /// (`LAST_BUDDY`).
    pub fn is_full(&self, tasks: &Timeline) -> bool {
        tasks.nr_running() as u64 >= self.nr_latency
    }

    /// Whether `other` is so far behind `task` that fairness requires to prefer it (`wakeup_preempt_entity()`
    /// is 1).
    pub fn preferable(&self, task: Member, other: Member) -> bool {
        let [task, other]: [&CfsTask; 2] = [task, other].map(|task| &self.members[task]);
        task.vruntime - other.vruntime > virtual_time(other.weight, self.wakeup_granularity_ns)
    }

    /// The task that the CPU should run next (`pick_next_entity()`).
    #[inline]
    pub fn pick(&mut self, level: LevelId, tasks: &Timeline) -> Option<Member> {
        let (least, second) = self.first_two(tasks)?;
        let queue = &self.queues[level.index()];
        let skips_least = queue.skip_buddy == Some(least);
        let mut picked = least;
        for other in
            [second.filter(|_| skips_least), queue.last_buddy, queue.next_buddy].into_iter().flatten()
        {
            if !self.preferable(other, least) {
                picked = other;
            }
        }
        self.clear_buddies(level, picked, [true; 3]);
        Some(picked)
    }

    /// The tasks with the least virtual run times. The running one stands behind waiting ones that are equal.
    fn first_two(&self, tasks: &Timeline) -> Option<(Member, Option<Member>)> {
        let mut waiting = tasks.waiting();
        let (first, second) = (waiting.next(), waiting.next());
        let is_before = |current: Member, other: Option<Member>| {
            let vruntime = |task: Member| self.members[task].vruntime;
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
    pub fn set_next(&mut self, task: Member) {
        self.members[task].slice_used_ns = 0;
    }

    /// A task goes on without a switch. 3.6 puts it back and picks it again, which begins a new slice.
    #[inline]
    pub fn goes_on(&mut self, task: Member) {
        if self.slice_restarts {
            self.set_next(task);
        }
    }

    /// The task is passed over once.
    pub fn set_skip_buddy(&mut self, level: LevelId, task: Member) {
        self.queues[level.index()].skip_buddy = Some(task);
    }

    /// The task should run next in its queue.
    pub fn set_next_buddy(&mut self, level: LevelId, task: Member) {
        self.queues[level.index()].next_buddy = Some(task);
    }

    /// The task, which is preempted, should run next in its queue.
    pub fn set_last_buddy(&mut self, level: LevelId, task: Member) {
        self.queues[level.index()].last_buddy = Some(task);
    }

    /// Forgets the task as a buddy of these kinds; returns which of them it was.
    pub fn clear_buddies(&mut self, level: LevelId, task: Member, kinds: Buddies) -> Buddies {
        self.queues[level.index()].clear_buddies(task, kinds)
    }
}

#[cfg(test)]
impl Cfs {
    pub fn task_mut(&mut self, task: TaskId) -> &mut CfsTask {
        &mut self.members[Member::Task(task)]
    }

    pub fn min_vruntime_mut(&mut self, cpu: CpuId) -> &mut i64 {
        &mut self.queues[cpu.index()].min_vruntime
    }

    pub fn slice_used_ns(&self, task: TaskId) -> u64 {
        self.members[Member::Task(task)].slice_used_ns
    }

    pub fn skips(&self, cpu: CpuId) -> Option<TaskId> {
        self.queues[cpu.index()].skip_buddy?.task()
    }
}
