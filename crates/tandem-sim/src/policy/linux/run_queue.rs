//! The run queue of a CPU.

use super::load::QueueLoad;
use crate::ids::{CpuId, TaskId};

/// A task in a queue, and what it is sorted by.
#[derive(Clone, Copy, Debug)]
struct Queued {
    key: i64,
    task: TaskId,
}

/// What the scheduler knows of a CPU (`struct rq` with its `struct cfs_rq`).
#[derive(Clone, Debug, Default)]
pub(super) struct RunQueue {
    /// The task that runs.
    pub curr: Option<TaskId>,
    /// The tasks that wait, sorted: by virtual run time (CFS) or by virtual deadline (EEVDF); of equal ones the
    /// first to come stands first.
    queue: Vec<Queued>,
    /// Of these, the ones that only stay until they have paid for running ahead (EEVDF's delayed dequeue).
    pub delayed: usize,
    /// The CPU has nothing to run and said so; what comes into its queue finds it asleep.
    pub idling: bool,
    /// Since when it idles, ns; `None` from the first wake-up on (`idle_stamp`).
    pub idle_since_ns: Option<u64>,
    /// How long it idles on average, ns (`avg_idle`).
    pub avg_idle_ns: u64,
    /// Longest search for work when it became idle, ns (`max_idle_balance_cost`); `avg_idle_ns` is kept below twice that.
    pub max_idle_balance_cost_ns: u64,
    /// An idle CPU was kicked to balance on behalf of all idle CPUs.
    pub nohz_kicked: bool,
    /// Active balancing was asked for: the running task is to go to this CPU.
    pub push_to: Option<CpuId>,
    /// Load measures.
    pub load: QueueLoad,
}

impl RunQueue {
    /// Tasks that run or wait; those that are leaving (delayed dequeue) not counted.
    pub fn nr_running(&self) -> usize {
        self.queue.len() - self.delayed + usize::from(self.curr.is_some())
    }

    /// The tasks that wait, in the order of the queue; delayed ones too.
    pub fn queued(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.queue.iter().map(|entry| entry.task)
    }
}
