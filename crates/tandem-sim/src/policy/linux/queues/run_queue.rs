//! The run queue of a CPU: its tasks, its clock, its idle times, and the requests of other CPUs.

use super::load::QueueLoad;
use super::member::LevelId;
use super::stolen::Stolen;
use super::timeline::Timeline;
use crate::policy::linux::domains::CPU_CAPACITY;
use tandem_machine::ids::{CpuId, TaskId};

/// Clock of a CPU for its tasks (`rq_clock_task()`): it stops while a vCPU is kept from running, if the
/// hypervisor reports that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TaskClock {
    /// The clock, ns.
    pub task_ns: u64,
    /// Simulated time up to which it has advanced, ns.
    updated_ns: u64,
    /// Stolen time that it has skipped so far, ns.
    stolen_ns: u64,
}

impl TaskClock {
    /// Advances the clock to now (`update_rq_clock_task()`), and returns the stolen time that it skips, a
    /// multiple of `unit_ns`. Stolen time that is reported late, or that is less than that, is skipped later.
    pub fn advance(&mut self, now_ns: u64, stolen_ns: u64, unit_ns: u64) -> u64 {
        let passed_ns = now_ns.saturating_sub(self.updated_ns);
        let mut newly_stolen_ns = stolen_ns.saturating_sub(self.stolen_ns).min(passed_ns);
        newly_stolen_ns -= newly_stolen_ns % unit_ns;
        self.updated_ns += passed_ns;
        self.stolen_ns += newly_stolen_ns;
        self.task_ns += passed_ns - newly_stolen_ns;
        newly_stolen_ns
    }
}

/// A request to a CPU to hand its running task over to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy::linux) struct Push {
    /// Destination of the task.
    pub to: CpuId,
    /// The request is from NUMA balancing, not from active balancing.
    pub is_for_node: bool,
}

/// How many of some tasks a CPU counts apart.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Those that have blocked and are leaving.
    pub leaving: usize,
    /// Those with the idle policy.
    pub idle: usize,
}

/// The scheduler's state of a CPU (`struct rq`).
#[derive(Clone, Debug, Default)]
pub(in crate::policy::linux) struct RunQueue {
    pub(super) tasks: Timeline,
    /// The task that runs, in whatever group.
    pub(super) running: Option<TaskId>,
    /// Tasks that run or wait, of all groups.
    nr_running: usize,
    pub(super) clock: TaskClock,
    pub(super) load: QueueLoad,
    /// The time that is stolen from it, if its kernel wants to know.
    pub(super) stolen: Option<Stolen>,
    /// How much of its capacity that took when it last balanced, in 1024ths.
    capacity_lost: u64,
    /// It has been asked to reschedule and has not yet done so, or is doing so.
    resched: bool,
    /// It has been asked to reschedule when it next returns to its task (`TIF_NEED_RESCHED_LAZY`).
    resched_lazy: bool,
    /// When the timer expires that ends the turn of its task, ns (`hrtick_timer`).
    hrtick_ns: Option<u64>,
    /// Those of them that have blocked and are leaving.
    leaving: usize,
    /// Those of them with the idle policy (`h_nr_idle`).
    nr_idle: usize,
    /// The queue of the task that has just blocked, until the CPU has decided what comes next.
    pub(super) blocked_at: Option<LevelId>,
    /// The CPU had no task to run at its last decision.
    idling: bool,
    /// Since when it idles, ns; `None` from the first wake-up on (`idle_stamp`).
    idle_since_ns: Option<u64>,
    /// Average idle time, ns (`avg_idle`).
    avg_idle_ns: u64,
    /// Longest search for work when it became idle, ns (`max_idle_balance_cost`); `avg_idle_ns` is kept below
    /// twice that.
    max_idle_balance_cost_ns: u64,
    /// When the averages of its load were last brought up to date on their own, ns
    /// (`last_blocked_load_update_tick`).
    load_updated_ns: u64,
    /// An idle CPU was kicked to balance on behalf of all idle CPUs.
    nohz_kicked: bool,
    push: Option<Push>,
    /// It gets another task in exchange for the one that it hands over.
    swaps: bool,
}

impl RunQueue {
    /// The queue of a CPU that idles at first, and whose kernel counts stolen time so, if at all.
    pub fn new(migration_cost_ns: u64, stolen: Option<Stolen>) -> Self {
        Self {
            stolen,
            idling: true,
            idle_since_ns: Some(0),
            avg_idle_ns: 2 * migration_cost_ns,
            max_idle_balance_cost_ns: migration_cost_ns,
            ..Self::default()
        }
    }

    /// What stolen time left of its capacity when it last balanced, in 1024ths (`cpu_capacity`).
    #[inline]
    pub fn capacity_left(&self) -> u64 {
        u64::from(CPU_CAPACITY) - self.capacity_lost
    }

    /// Finds out what stolen time leaves of its capacity (`update_cpu_capacity()`).
    pub fn update_capacity(&mut self, now_ns: u64) {
        if let Some(stolen) = &mut self.stolen {
            self.capacity_lost = u64::from(CPU_CAPACITY) - stolen.left(now_ns);
        }
    }

    /// The queue of the root group: tasks and groups that run or wait.
    #[inline]
    pub fn tasks(&self) -> &Timeline {
        &self.tasks
    }

    /// The task that runs.
    #[inline]
    pub fn curr(&self) -> Option<TaskId> {
        self.running
    }

    /// Tasks that run or wait, including those of 6.12 that have blocked and are leaving: the kernel counts a
    /// task until it has left (`dequeue_entities()`).
    #[inline]
    pub fn nr_running(&self) -> usize {
        self.nr_running
    }

    /// Those of them with the idle policy.
    #[inline]
    pub fn nr_idle(&self) -> usize {
        self.nr_idle
    }

    /// Tasks have come, among them these.
    #[inline]
    pub(super) fn count(&mut self, tasks: usize, among: Tally) {
        self.nr_running += tasks;
        self.leaving += among.leaving;
        self.nr_idle += among.idle;
    }

    /// Tasks have left, among them these.
    #[inline]
    pub(super) fn uncount(&mut self, tasks: usize, among: Tally) {
        self.nr_running -= tasks;
        self.leaving -= among.leaving;
        self.nr_idle -= among.idle;
    }

    /// Tasks that run or wait, without those that have blocked and are leaving (`h_nr_runnable`).
    #[inline]
    pub fn nr_runnable(&self) -> usize {
        self.nr_running - self.leaving
    }

    /// A task in the queue is about to leave from now on.
    pub fn begins_to_leave(&mut self) {
        self.leaving += 1;
    }

    /// A task that was about to leave stays.
    pub fn leaves_no_longer(&mut self) {
        self.leaving -= 1;
    }

    /// Whether it has been asked to reschedule at once and has not yet done so.
    pub fn is_told(&self) -> bool {
        self.resched
    }

    /// Asks the CPU to reschedule; returns whether it had not been asked before.
    pub fn tell(&mut self) -> bool {
        !std::mem::replace(&mut self.resched, true)
    }

    /// Whether it has been asked to reschedule when it next returns to its task, and has not yet done so.
    pub fn is_told_lazily(&self) -> bool {
        self.resched_lazy
    }

    /// Asks the CPU to reschedule when it next returns to its task; returns whether it had not been asked
    /// before.
    pub fn tell_lazily(&mut self) -> bool {
        !self.resched && !std::mem::replace(&mut self.resched_lazy, true)
    }

    /// When the timer expires that ends the turn of its task, ns.
    pub fn hrtick_ns(&self) -> Option<u64> {
        self.hrtick_ns
    }

    /// The timer that ends the turn of its task has been set, or has expired.
    pub fn set_hrtick(&mut self, at_ns: Option<u64>) {
        self.hrtick_ns = at_ns;
    }

    /// The CPU has decided: requests to reschedule and kicks are done.
    pub fn has_decided(&mut self) {
        self.resched = false;
        self.resched_lazy = false;
        self.nohz_kicked = false;
    }

    /// Whether the CPU had no task to run at its last decision.
    pub fn is_idling(&self) -> bool {
        self.idling
    }

    /// The CPU begins to idle, or continues to; returns whether it begins.
    pub fn idle(&mut self, now_ns: u64) -> bool {
        self.idle_since_ns.get_or_insert(now_ns);
        self.hrtick_ns = None;
        !std::mem::replace(&mut self.idling, true)
    }

    /// The CPU has a task to run.
    pub fn busy(&mut self) {
        self.idling = false;
        self.idle_since_ns = None;
    }

    /// Since when it idles, ns, if no wake-up has come since.
    pub fn idle_since_ns(&self) -> Option<u64> {
        self.idle_since_ns
    }

    /// Average idle time, ns.
    pub fn avg_idle_ns(&self) -> u64 {
        self.avg_idle_ns
    }

    /// Includes a finished idle time in the average, as the kernel does at the first wake-up: by an eighth of
    /// the difference, and never above twice the longest search. `caps_sample`: a long time sets the average
    /// to that limit at once (3.6).
    pub fn idle_ended(&mut self, now_ns: u64, caps_sample: bool) {
        let Some(since_ns) = self.idle_since_ns.take() else { return };
        // A wake-up may come before the code on the way into idleness has ended.
        let (idle_ns, most_ns) = (now_ns.saturating_sub(since_ns), 2 * self.max_idle_balance_cost_ns);
        let average_ns = self.avg_idle_ns as i64 + (idle_ns as i64 - self.avg_idle_ns as i64) / 8;
        self.avg_idle_ns =
            if caps_sample && idle_ns > most_ns { most_ns } else { most_ns.min(average_ns as u64) };
    }

    /// When the averages of its load were last brought up to date on their own, ns.
    pub fn load_updated_ns(&self) -> u64 {
        self.load_updated_ns
    }

    /// The averages of its load are brought up to date on their own.
    pub fn load_updated(&mut self, now_ns: u64) {
        self.load_updated_ns = now_ns;
    }

    /// Records the time of a search for work.
    pub fn note_idle_balance_cost(&mut self, cost_ns: u64) {
        self.max_idle_balance_cost_ns = self.max_idle_balance_cost_ns.max(cost_ns);
    }

    /// Sets the time of the longest search for work.
    pub fn set_idle_balance_cost(&mut self, cost_ns: u64) {
        self.max_idle_balance_cost_ns = cost_ns;
    }

    /// Asks the CPU, which idles, to balance for all idle ones.
    pub fn nohz_kick(&mut self) {
        self.nohz_kicked = true;
    }

    /// Whether it should balance for all idle ones; clears the request.
    pub fn take_nohz_kick(&mut self) -> bool {
        std::mem::take(&mut self.nohz_kicked)
    }

    /// Whether it should hand over its running task.
    pub fn has_push(&self) -> bool {
        self.push.is_some()
    }

    /// Asks the CPU to hand over its running task.
    pub fn ask_push(&mut self, push: Push) {
        self.push = Some(push);
    }

    /// The request to hand over its running task, if there is one; clears it.
    pub fn take_push(&mut self) -> Option<Push> {
        self.push.take()
    }

    /// Notes that it will get another task in exchange for the one that it hands over.
    pub fn expect_swap(&mut self) {
        self.swaps = true;
    }

    /// Whether it gets another task in exchange for the one that it handed over; clears the note.
    pub fn take_swap(&mut self) -> bool {
        std::mem::take(&mut self.swaps)
    }
}

/// For the tests: situations that would take long to produce.
#[cfg(test)]
impl RunQueue {
    pub fn set_avg_idle_ns(&mut self, avg_idle_ns: u64) {
        self.avg_idle_ns = avg_idle_ns;
    }

    pub fn set_util(&mut self, util: u64) {
        self.load.set_util(util);
    }

    pub fn clock_ns(&self) -> u64 {
        self.clock.task_ns
    }

    pub fn is_nohz_kicked(&self) -> bool {
        self.nohz_kicked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_stops_the_task_clock() {
        let mut clock = TaskClock::default();
        clock.advance(10, 0, 1);
        assert_eq!(clock.advance(20, 4, 1), 4);
        assert_eq!(clock.task_ns, 16);
        clock.advance(25, 14, 1);
        assert_eq!(clock.task_ns, 16, "no more than the time that passed");
        clock.advance(35, 14, 1);
        assert_eq!(clock.task_ns, 21, "the rest of it later");
    }

    #[test]
    fn update_rq_clock_task_of_3_6_skips_whole_ticks() {
        let mut clock = TaskClock::default();
        assert_eq!(clock.advance(25, 9, 10), 0);
        assert_eq!(clock.advance(50, 34, 10), 20, "no more than passed, in whole ticks");
        assert_eq!(clock.advance(80, 34, 10), 10, "the rest once it is a tick");
        assert_eq!((clock.task_ns, clock.advance(90, 34, 10)), (50, 0));
    }

    #[test]
    fn average_idle_time_follows_slowly_and_is_bounded() {
        let mut queue = RunQueue::new(500_000, None);
        for (idle_ns, caps_sample, expected_ns) in [
            (200_000, false, 900_000),
            (9_000_000, false, 1_000_000),
            (0, false, 875_000),
            (1_000_001, true, 1_000_000),
        ] {
            queue.idle_since_ns = Some(5);
            queue.idle_ended(5 + idle_ns, caps_sample);
            assert_eq!(queue.avg_idle_ns, expected_ns, "after {idle_ns} ns");
        }
    }
}
