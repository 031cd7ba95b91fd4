//! The tasks of a CPU: the one that runs, and those that wait in the order of the discipline
//! (`struct cfs_rq`).
//!
//! The tasks that wait are in a sorted vector instead of the kernel's red-black tree: queues are short, so
//! that moving a few entries costs less than following pointers, and the order is the same.

use tandem_machine::ids::TaskId;

/// A task that waits, and its sort key.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    key: i64,
    task: TaskId,
}

/// The tasks of a CPU.
#[derive(Clone, Debug, Default)]
pub(in crate::policy::linux) struct Timeline {
    curr: Option<TaskId>,
    curr_weight: u64,
    /// Sorted by key; equal keys are in order of arrival.
    waiting: Vec<Waiting>,
    waiting_weight: u64,
}

impl Timeline {
    /// The task that runs.
    #[inline]
    pub fn curr(&self) -> Option<TaskId> {
        self.curr
    }

    /// The tasks that wait, in the order of the queue; including those that are leaving.
    #[inline]
    pub fn waiting(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.waiting.iter().map(|entry| entry.task)
    }

    /// Whether no task waits, not even one that is leaving.
    #[inline]
    pub fn none_waits(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether no task runs or waits, not even one that is leaving.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.curr.is_none() && self.waiting.is_empty()
    }

    /// Tasks that run or wait, including those that are leaving.
    #[inline]
    pub fn nr_running(&self) -> usize {
        self.waiting.len() + usize::from(self.curr.is_some())
    }

    /// Weight of the tasks that run or wait, including those that are leaving.
    #[inline]
    pub fn weight(&self) -> u64 {
        self.waiting_weight + self.curr_weight
    }

    /// Puts a task among those that wait, behind those of an equal key.
    pub fn insert(&mut self, key: i64, task: TaskId, weight: u32) {
        let at = self.waiting.partition_point(|entry| entry.key <= key);
        self.waiting.insert(at, Waiting { key, task });
        self.waiting_weight += u64::from(weight);
    }

    /// Removes a task, which has this key, from those that wait.
    pub fn remove(&mut self, key: i64, task: TaskId, weight: u32) {
        let from = self.waiting.partition_point(|entry| entry.key < key);
        let mut equal = self.waiting[from..].iter().take_while(|entry| entry.key == key);
        let Some(ahead) = equal.position(|entry| entry.task == task) else {
            debug_assert!(false, "{task:?} is not in the queue");
            return;
        };
        self.waiting.remove(from + ahead);
        self.waiting_weight -= u64::from(weight);
    }

    /// A task that did not wait runs from now on.
    pub fn run(&mut self, task: TaskId, weight: u32) {
        self.curr = Some(task);
        self.curr_weight = weight.into();
    }

    /// The task that runs does so no longer.
    pub fn stop(&mut self) {
        self.curr = None;
        self.curr_weight = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_key_then_arrival() {
        let mut tasks = Timeline::default();
        for (task, key) in [(0, 5), (1, 3), (2, 5), (3, 4)] {
            tasks.insert(key, TaskId(task), 1024);
        }
        assert_eq!(tasks.waiting().collect::<Vec<_>>(), [1, 3, 0, 2].map(TaskId));
        tasks.remove(5, TaskId(2), 1024);
        tasks.remove(4, TaskId(3), 1024);
        assert_eq!(tasks.waiting().collect::<Vec<_>>(), [1, 0].map(TaskId));
        assert_eq!((tasks.weight(), tasks.nr_running()), (2048, 2));
    }
}
