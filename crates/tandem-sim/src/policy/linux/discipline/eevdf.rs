//! Earliest eligible virtual deadline first (6.12, 6.18 and 7.3).
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
//! 6. A task that goes on without a switch after its slice is protected no longer. Once that matters, another
//!    pick is due: in 6.12 when it is ahead of the average (`did_preempt_short()`), later at each charge.
//! 7. A task that yields is charged for the rest of its slice. The target of a directed yield runs next if it
//!    is eligible (`PICK_BUDDY`).
//!
//! Left out: the slices that tasks may ask for, so that all are equal, and with them what is left of
//! `PREEMPT_SHORT` and the `vprot` of 6.18; `NEXT_BUDDY`, off by default.

use super::{Charged, Coming, virtual_time};
use crate::policy::linux::features::EevdfFeatures;
use crate::policy::linux::queues::{LevelId, Member, NICE_0_WEIGHT, OfMembers, Timeline};
use crate::policy::linux::settings::Tunables;
use tandem_machine::ids::TaskId;

/// The state of EEVDF for a queue.
#[derive(Clone, Debug, Default)]
struct EevdfQueue {
    /// Sum of weight x virtual run time over the tasks that wait.
    waiting_vruntime: i128,
    /// The average virtual run time when the queue last became empty.
    empty_vruntime: i64,
    /// What should run next, because a task has yielded to it; it waits (`next`).
    next_buddy: Option<Member>,
    /// The task or group that has just blocked, and stays in the queue for now. It counts as running in the
    /// pick that follows, and so may be protected: then it is the first to leave.
    blocked: Option<Member>,
}

/// The state of EEVDF for a task, or for a group in its parent's queue.
#[derive(Clone, Debug, Default)]
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
    /// It has blocked while it was ahead, and is about to leave (`sched_delayed`).
    is_leaving: bool,
}

impl EevdfTask {
    fn weighted_vruntime(&self) -> i128 {
        i128::from(self.weight) * i128::from(self.vruntime)
    }

    /// Whether it is in the slice for which it was chosen (`protect_slice()`).
    fn is_protected(&self) -> bool {
        self.chosen_deadline == self.deadline
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
    features: EevdfFeatures,
    base_slice_ns: u64,
    /// Longest lag, for a task of nice 0.
    lag_limit_ns: u64,
    queues: Vec<EevdfQueue>,
    members: OfMembers<EevdfTask>,
}

impl Eevdf {
    /// For this many queues.
    pub fn new(features: EevdfFeatures, tunables: &Tunables, levels: usize, tick_period_ns: u64) -> Self {
        let base_slice_ns = tunables.base_slice_ns;
        Self {
            features,
            base_slice_ns,
            lag_limit_ns: match features.lag_of_slice_and_tick {
                true => base_slice_ns + tick_period_ns,
                false => (2 * base_slice_ns).max(tick_period_ns),
            },
            queues: vec![EevdfQueue::default(); levels],
            members: OfMembers::new(levels, EevdfTask { weight: NICE_0_WEIGHT, ..EevdfTask::default() }),
        }
    }

    /// A task of this weight that has never run.
    pub fn begin(&mut self, task: TaskId, weight: u32) {
        self.members.begin(task, EevdfTask { weight, ..EevdfTask::default() });
    }

    /// The weight of a task changes: it keeps its distances from the average, where it is in a queue with
    /// this one, in real time (`reweight_eevdf()`).
    pub fn reweigh(&mut self, task: Member, weight: u32, average: Option<i64>) {
        let it = &mut self.members[task];
        let scaled =
            |distance: i64| (i128::from(distance) * i128::from(it.weight) / i128::from(weight.max(1))) as i64;
        match average {
            Some(average) => {
                let stays_protected = self.features.reweigh_keeps_protection && it.is_protected();
                it.vruntime = average - scaled(average - it.vruntime);
                it.deadline = average + scaled(it.deadline - average);
                if stays_protected {
                    it.chosen_deadline = it.deadline;
                }
            }
            None => it.lag = scaled(it.lag),
        }
        it.weight = weight;
    }

    fn sums(&self, level: LevelId, tasks: &Timeline) -> Sums {
        let current = tasks.curr().map_or(0, |task| self.members[task].weighted_vruntime());
        let weighted_vruntime = self.queues[level.index()].waiting_vruntime + current;
        Sums { weight: tasks.weight(), weighted_vruntime }
    }

    /// Average virtual run time of the tasks of a CPU, rounded down (`avg_vruntime()`).
    pub fn average_vruntime(&self, level: LevelId, tasks: &Timeline) -> i64 {
        let sums = self.sums(level, tasks);
        match sums.weight {
            0 => self.queues[level.index()].empty_vruntime,
            weight => sums.weighted_vruntime.div_euclid(weight.into()) as i64,
        }
    }

    /// Length of every slice, ns.
    pub fn slice_ns(&self) -> u64 {
        self.base_slice_ns
    }

    /// Slice of a task as its virtual time.
    fn virtual_slice(&self, task: Member) -> i64 {
        virtual_time(self.members[task].weight, self.base_slice_ns)
    }

    /// Places a task, in no queue, by the average of a CPU. One that moves keeps the time until its deadline.
    pub fn place(&mut self, level: LevelId, tasks: &Timeline, task: Member, coming: Coming) {
        let average = self.average_vruntime(level, tasks);
        let weight = i128::from(tasks.weight());
        let slice = self.virtual_slice(task);
        let it = &mut self.members[task];
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

    /// Records how far a task that is about to leave the CPU or its queue is behind the average; returns
    /// whether it is not exactly as far (`update_entity_lag()`).
    pub fn note_lag(&mut self, level: LevelId, tasks: &Timeline, task: Member) -> bool {
        let average = self.average_vruntime(level, tasks);
        let debt_is_fixed = self.features.delayed_debt_is_fixed;
        let it = &mut self.members[task];
        let limit = virtual_time(it.weight, self.lag_limit_ns);
        let mut lag = (average - it.vruntime).clamp(-limit, limit);
        if it.is_leaving && debt_is_fixed {
            lag = lag.max(it.lag).min(0);
        }
        it.lag = lag;
        average - lag != it.vruntime
    }

    /// The task is about to wait in the queue of the CPU, which is sorted by deadlines.
    #[inline]
    pub fn enqueue(&mut self, level: LevelId, task: Member) -> i64 {
        let it = &self.members[task];
        self.queues[level.index()].waiting_vruntime += it.weighted_vruntime();
        it.deadline
    }

    /// The task is about to leave that queue.
    #[inline]
    pub fn dequeue(&mut self, level: LevelId, task: Member) -> i64 {
        let it = &self.members[task];
        self.queues[level.index()].waiting_vruntime -= it.weighted_vruntime();
        it.deadline
    }

    /// Charges the running task for a run time, and begins its next slice if it has done the present one
    /// (`update_curr()`, `update_deadline()`).
    #[inline]
    pub fn charge(&mut self, level: LevelId, tasks: &Timeline, task: Member, ran_ns: u64) -> Charged {
        let slice = self.virtual_slice(task);
        let it = &mut self.members[task];
        it.vruntime += virtual_time(it.weight, ran_ns);
        let is_over = it.vruntime >= it.deadline;
        let is_protected = it.is_protected();
        if is_over {
            it.deadline = it.vruntime + slice;
        }
        if tasks.none_waits() {
            Charged::GoesOn
        } else if is_over {
            Charged::SliceOver
        } else if !is_protected
            && (self.features.unprotected_resched || !self.is_eligible(level, tasks, task))
        {
            Charged::Unprotected
        } else {
            Charged::GoesOn
        }
    }

    /// Time until the slice of the task on a CPU ends, if it goes on, ns.
    pub fn slice_left_ns(&self, task: Member) -> u64 {
        let it = &self.members[task];
        let left = (it.deadline - it.vruntime).max(0) as u64;
        (left * u64::from(it.weight)).div_ceil(NICE_0_WEIGHT.into())
    }

    /// Whether the task, on the CPU or in its queue, is not ahead of its share.
    pub fn is_eligible(&self, level: LevelId, tasks: &Timeline, task: Member) -> bool {
        self.sums(level, tasks).is_eligible(self.members[task].vruntime)
    }

    /// The task that the CPU should run next (`pick_next_entity()`). A next buddy comes first, if it is
    /// eligible (`PICK_BUDDY`).
    pub fn pick(&self, level: LevelId, tasks: &Timeline) -> Option<Member> {
        let buddy = self.queues[level.index()].next_buddy;
        buddy.filter(|&task| self.is_eligible(level, tasks, task)).or_else(|| self.choose(level, tasks))
    }

    /// Whether a task that has come into the queue would be picked now.
    pub fn preempts(&self, level: LevelId, tasks: &Timeline, task: Member) -> bool {
        let chosen =
            if self.features.buddy_at_wakeup { self.pick(level, tasks) } else { self.choose(level, tasks) };
        chosen == Some(task)
    }

    /// The task that the CPU should run next by eligibility and deadline (`pick_eevdf()`).
    fn choose(&self, level: LevelId, tasks: &Timeline) -> Option<Member> {
        if tasks.none_waits() {
            return tasks.curr();
        }
        let sums = self.sums(level, tasks);
        let of = |task: Member| &self.members[task];
        let is_eligible = |task: &Member| sums.is_eligible(of(*task).vruntime);
        let current = tasks.curr().filter(is_eligible);
        if let Some(task) = current
            && of(task).is_protected()
        {
            return current;
        }
        if let Some(task) = self.queues[level.index()].blocked.filter(is_eligible)
            && of(task).is_protected()
        {
            return Some(task);
        }
        // In the order of deadlines. At least one task is eligible, because not all can be ahead of the
        // average.
        let best = tasks.waiting().find(is_eligible);
        match (current, best) {
            (Some(current), Some(best)) if of(current).deadline < of(best).deadline => Some(current),
            _ => best.or(current),
        }
    }

    /// Nothing runs from the queue any longer (`put_prev_entity()`).
    pub fn put_prev(&mut self, level: LevelId) {
        self.queues[level.index()].blocked = None;
    }

    /// The task begins a turn.
    #[inline]
    pub fn set_next(&mut self, task: Member) {
        let it = &mut self.members[task];
        it.chosen_deadline = it.deadline;
    }

    /// The task on the CPU is protected in its slice no longer, if it was (`cancel_protect_slice()`).
    pub fn cancel_protection(&mut self, task: Member) {
        let it = &mut self.members[task];
        if it.is_protected() {
            it.chosen_deadline = it.deadline + 1;
        }
    }

    /// The task on the CPU gives way: it is charged for the rest of its slice, unless it is ahead already
    /// (`yield_task_fair()`).
    pub fn yields(&mut self, level: LevelId, tasks: &Timeline, task: Member) {
        if self.is_eligible(level, tasks, task) {
            let slice = self.virtual_slice(task);
            let it = &mut self.members[task];
            it.vruntime = it.deadline;
            it.deadline += slice;
        }
    }

    /// The task, which waits in the queue, should run next.
    pub fn set_next_buddy(&mut self, level: LevelId, task: Member) {
        self.queues[level.index()].next_buddy = Some(task);
    }

    /// The task is no longer the one that should run next; whether it was.
    pub fn clear_buddy(&mut self, level: LevelId, task: Member) -> bool {
        self.queues[level.index()].next_buddy.take_if(|buddy| *buddy == task).is_some()
    }

    /// Whether the task on the CPU, which blocks, stays in the queue for now, as it is ahead
    /// (`DELAY_DEQUEUE`).
    pub fn delays_dequeue(&mut self, level: LevelId, tasks: &Timeline, task: Member) -> bool {
        let delays = !self.is_eligible(level, tasks, task);
        if delays {
            self.note_lag(level, tasks, task);
            self.members[task].is_leaving = true;
            if tasks.curr() == Some(task) {
                self.queues[level.index()].blocked = Some(task);
            }
        }
        delays
    }

    /// The task has left the CPU or its queue, in which these tasks remain.
    pub fn left(&mut self, level: LevelId, tasks: &Timeline, task: Member) {
        let blocked = &mut self.queues[level.index()].blocked;
        *blocked = blocked.filter(|&blocked| blocked != task);
        let it = &mut self.members[task];
        it.deadline -= it.vruntime;
        if tasks.is_empty() {
            self.queues[level.index()].empty_vruntime = it.vruntime;
        }
    }

    /// A task is no longer about to leave. What it owes remains, but it gains nothing (`DELAY_ZERO`).
    pub fn end_delay(&mut self, task: Member) {
        let it = &mut self.members[task];
        it.is_leaving = false;
        it.lag = it.lag.min(0);
    }

    /// A task that was leaving wakes up: it stays, but gains nothing. Returns whether it has to be placed
    /// again: if it would have gained and, since 7.1, also if it owes less than it is ahead.
    pub fn requeues_delayed(&mut self, level: LevelId, tasks: &Timeline, task: Member) -> bool {
        let differs = self.note_lag(level, tasks, task);
        let gains = self.members[task].lag > 0;
        self.end_delay(task);
        if self.features.delayed_debt_is_fixed { differs } else { gains }
    }
}

#[cfg(test)]
impl Eevdf {
    pub fn waiting_vruntime(&self, level: LevelId) -> i128 {
        self.queues[level.index()].waiting_vruntime
    }

    pub fn weighted_vruntime(&self, task: Member) -> i128 {
        self.members[task].weighted_vruntime()
    }

    pub fn blocked(&self, level: LevelId) -> Option<Member> {
        self.queues[level.index()].blocked
    }

    pub fn task_mut(&mut self, task: TaskId) -> &mut EevdfTask {
        &mut self.members[Member::Task(task)]
    }
}
