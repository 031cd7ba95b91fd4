//! Where a task is in its life, and the clocks that its metrics follow.

use super::Task;
use crate::engine::event_queue::NEVER;
use crate::metrics::TaskMetrics;
use tandem_machine::ids::CpuId;

/// Where a task is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// Yet to start.
    New,
    /// On a CPU.
    Running,
    /// Wants a CPU.
    Runnable,
    /// Waits for something else than a CPU.
    Blocked,
    /// Done for good.
    Exited,
}

/// Since when a task does what it does, ns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    /// When the measuring of the task began: it started, became another program by exec, or the measuring
    /// started.
    measured_since_ns: u64,
    /// When it blocked, or the measuring started, whichever is later; or when it ended.
    away_since_ns: u64,
    /// When it last began to wait for a CPU.
    runnable_since_ns: u64,
    /// When it woke up or started in the measured time, until it runs; else [`NEVER`].
    ready_ns: u64,
}

impl Default for Clocks {
    fn default() -> Self {
        Self { measured_since_ns: 0, away_since_ns: 0, runnable_since_ns: 0, ready_ns: NEVER }
    }
}

impl Task {
    #[inline]
    pub fn state(&self) -> TaskState {
        self.state
    }

    /// It starts: its life begins.
    pub fn start(&mut self, now_ns: u64) {
        self.clocks.measured_since_ns = now_ns;
        self.become_ready(now_ns);
    }

    /// It wakes up.
    #[inline]
    pub fn wake(&mut self, now_ns: u64) {
        self.metrics.sleep_ns += self.sleeping_ns(now_ns);
        self.metrics.wakeups += 1;
        self.become_ready(now_ns);
    }

    #[inline]
    fn become_ready(&mut self, now_ns: u64) {
        self.state = TaskState::Runnable;
        self.clocks.runnable_since_ns = now_ns;
        self.clocks.ready_ns = now_ns;
    }

    /// It gets a CPU, on which its first instruction runs at `runs_ns`. Returns the time since it woke up
    /// or started, if it has not run since, ns.
    #[inline]
    pub fn start_running(&mut self, cpu: CpuId, runs_ns: u64) -> Option<u64> {
        debug_assert_eq!(self.state, TaskState::Runnable, "the policy dispatched a task that cannot run");
        self.state = TaskState::Running;
        self.last_cpu = cpu;
        self.metrics.dispatches += 1;
        self.metrics.longest_wait_ns = self.metrics.longest_wait_ns.max(self.waited_ns(runs_ns));
        let ready_ns = std::mem::replace(&mut self.clocks.ready_ns, NEVER);
        // A CPU that wakes others is ahead of them by what it has begun to do: it may wake a task later than another CPU
        // takes that.
        (ready_ns != NEVER).then(|| runs_ns.saturating_sub(ready_ns))
    }

    /// It leaves its CPU, in this state.
    #[inline]
    pub fn stop_running(&mut self, state: TaskState, now_ns: u64) {
        self.state = state;
        self.clocks.away_since_ns = now_ns;
        self.clocks.runnable_since_ns = now_ns;
    }

    /// It ends before it has started.
    pub fn end_before_start(&mut self) {
        debug_assert_eq!(self.state, TaskState::New, "a task that has started ends as it runs");
        self.state = TaskState::Exited;
    }

    /// Its sleep counts from that time on.
    pub fn sleep_counts_from(&mut self, at_ns: u64) {
        self.clocks.away_since_ns = at_ns;
    }

    /// Begins to measure anew. A delay that has begun before does not count.
    pub fn start_measuring(&mut self, now_ns: u64) {
        self.metrics = TaskMetrics::default();
        self.clocks.measured_since_ns = now_ns;
        self.clocks.ready_ns = NEVER;
    }

    /// Accounts for its sleep up to now.
    pub fn settle_sleep(&mut self, now_ns: u64) {
        if self.state == TaskState::Blocked {
            self.metrics.sleep_ns += self.sleeping_ns(now_ns);
            self.clocks.away_since_ns = self.clocks.away_since_ns.max(now_ns);
        }
    }

    /// How long it has slept since its sleep was accounted for last, ns.
    fn sleeping_ns(&self, now_ns: u64) -> u64 {
        match self.state {
            TaskState::Blocked => now_ns.saturating_sub(self.clocks.away_since_ns),
            _ => 0,
        }
    }

    /// How long it has lived, of the measured time, ns.
    fn lived_ns(&self, now_ns: u64) -> u64 {
        let until_ns = match self.state {
            TaskState::New => return 0,
            TaskState::Exited => self.clocks.away_since_ns,
            _ => now_ns,
        };
        until_ns.saturating_sub(self.clocks.measured_since_ns)
    }

    /// How long ago it woke up or started, if that was in the measured time and it has not run since, ns.
    pub fn delayed_ns(&self, now_ns: u64) -> Option<u64> {
        (self.clocks.ready_ns != NEVER).then(|| now_ns.saturating_sub(self.clocks.ready_ns))
    }

    /// How long it has been runnable, counted from `from_ns` at the earliest, ns; 0 if it is not.
    pub fn runnable_ns(&self, from_ns: u64, now_ns: u64) -> u64 {
        match self.state {
            TaskState::Runnable => now_ns - self.clocks.runnable_since_ns.max(from_ns),
            _ => 0,
        }
    }

    /// How long it has waited for a CPU, of the measured time, ns.
    #[inline]
    fn waited_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.clocks.runnable_since_ns.max(self.clocks.measured_since_ns))
    }

    /// How long it has run or waited for a CPU, of the measured time, ns.
    pub fn awake_ns(&self, now_ns: u64) -> u64 {
        let asleep_ns = self.metrics.sleep_ns + self.sleeping_ns(now_ns);
        self.lived_ns(now_ns).saturating_sub(asleep_ns)
    }

    /// What it has come to. It waited in that time of its life in which it neither ran nor slept nor was
    /// robbed of its CPU.
    pub fn measured(&self, now_ns: u64) -> TaskMetrics {
        let mut metrics = self.metrics.clone();
        let spent_ns = metrics.run_ns + metrics.sleep_ns + metrics.stolen_ns;
        metrics.wait_ns = self.lived_ns(now_ns).saturating_sub(spent_ns);
        if self.state == TaskState::Runnable {
            metrics.longest_wait_ns = metrics.longest_wait_ns.max(self.waited_ns(now_ns));
        }
        metrics
    }
}
