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
    /// When the measuring of the task began: it was born, became another program by exec, or the measuring
    /// started.
    measured_since_ns: u64,
    /// When it was born, it blocked, or the measuring started, whichever is latest.
    blocked_since_ns: u64,
    /// When it last began to wait for a CPU.
    runnable_since_ns: u64,
    /// When it woke up, until it runs; else [`NEVER`].
    woken_ns: u64,
}

impl Default for Clocks {
    fn default() -> Self {
        Self { measured_since_ns: 0, blocked_since_ns: 0, runnable_since_ns: 0, woken_ns: NEVER }
    }
}

impl Clocks {
    /// Those of a task that is born at that time.
    pub fn born(now_ns: u64) -> Self {
        Self { measured_since_ns: now_ns, blocked_since_ns: now_ns, ..Self::default() }
    }
}

impl Task {
    #[inline]
    pub fn state(&self) -> TaskState {
        self.state
    }

    /// It becomes runnable.
    #[inline]
    pub fn wake(&mut self, now_ns: u64) {
        self.state = TaskState::Runnable;
        self.clocks.runnable_since_ns = now_ns;
        self.metrics.sleep_ns += now_ns.saturating_sub(self.clocks.blocked_since_ns);
        self.clocks.woken_ns = now_ns;
    }

    /// It gets a CPU, on which its first instruction runs at `runs_ns`. Returns the time since its wake-up,
    /// if it has not run since, ns.
    #[inline]
    pub fn start_running(&mut self, cpu: CpuId, runs_ns: u64) -> Option<u64> {
        debug_assert_eq!(self.state, TaskState::Runnable, "the policy dispatched a task that cannot run");
        self.state = TaskState::Running;
        self.last_cpu = cpu;
        self.metrics.dispatches += 1;
        self.metrics.longest_wait_ns = self.metrics.longest_wait_ns.max(self.waited_ns(runs_ns));
        let woken_ns = std::mem::replace(&mut self.clocks.woken_ns, NEVER);
        (woken_ns != NEVER).then(|| runs_ns - woken_ns)
    }

    /// It leaves its CPU, in this state.
    #[inline]
    pub fn stop_running(&mut self, state: TaskState, now_ns: u64) {
        self.state = state;
        self.clocks.blocked_since_ns = now_ns;
        self.clocks.runnable_since_ns = now_ns;
    }

    /// It ends before it has started.
    pub fn end_before_start(&mut self) {
        debug_assert_eq!(self.state, TaskState::New, "a task that has started ends as it runs");
        self.state = TaskState::Exited;
    }

    /// Its sleep counts from that time on.
    pub fn sleep_counts_from(&mut self, at_ns: u64) {
        self.clocks.blocked_since_ns = at_ns;
    }

    /// Begins to measure anew.
    pub fn start_measuring(&mut self, now_ns: u64) {
        self.metrics = TaskMetrics::default();
        self.clocks.measured_since_ns = now_ns;
    }

    /// Accounts for its sleep up to now.
    pub fn settle_sleep(&mut self, now_ns: u64) {
        self.metrics.sleep_ns += self.sleeping_ns(now_ns);
        if self.is_away() {
            self.clocks.blocked_since_ns = self.clocks.blocked_since_ns.max(now_ns);
        }
    }

    /// Whether it neither runs nor wants to.
    fn is_away(&self) -> bool {
        matches!(self.state, TaskState::New | TaskState::Blocked | TaskState::Exited)
    }

    /// How long it has slept since its sleep was accounted for last, ns.
    fn sleeping_ns(&self, now_ns: u64) -> u64 {
        if self.is_away() { now_ns.saturating_sub(self.clocks.blocked_since_ns) } else { 0 }
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
        (now_ns - self.clocks.measured_since_ns).saturating_sub(asleep_ns)
    }

    /// What it has come to. It waited in the time in which it neither ran nor slept nor was robbed of its
    /// CPU.
    pub fn measured(&self, now_ns: u64) -> TaskMetrics {
        let mut metrics = self.metrics.clone();
        let life_ns = now_ns - self.clocks.measured_since_ns;
        metrics.wait_ns = life_ns.saturating_sub(metrics.run_ns + metrics.sleep_ns + metrics.stolen_ns);
        if self.state == TaskState::Runnable {
            metrics.longest_wait_ns = metrics.longest_wait_ns.max(self.waited_ns(now_ns));
        }
        metrics
    }
}
