//! The tasks of a CPU, or of a group on a CPU: the one that runs, and those that wait in the order of the
//! discipline (`struct cfs_rq`). What is said of tasks holds for groups in it, too.
//!
//! The tasks that wait are in a sorted vector instead of the kernel's red-black tree: queues are short, so
//! that moving a few entries costs less than following pointers, and the order is the same.

use super::member::Member;

/// A task that waits, and its sort key.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    key: i64,
    task: Member,
}

/// The tasks of a CPU.
#[derive(Clone, Debug, Default)]
pub(in crate::policy::linux) struct Timeline {
    curr: Option<Member>,
    curr_weight: u64,
    /// Sorted by key; equal keys are in order of arrival.
    waiting: Vec<Waiting>,
    waiting_weight: u64,
}

impl Timeline {
    /// The task that runs.
    #[inline]
    pub fn curr(&self) -> Option<Member> {
        self.curr
    }

    /// The tasks that wait, in the order of the queue; including those that are leaving.
    #[inline]
    pub fn waiting(&self) -> impl Iterator<Item = Member> + '_ {
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
    pub fn insert(&mut self, key: i64, task: Member, weight: u32) {
        let at = self.waiting.partition_point(|entry| entry.key <= key);
        self.waiting.insert(at, Waiting { key, task });
        self.waiting_weight += u64::from(weight);
    }

    /// Removes a task, which has this key, from those that wait.
    pub fn remove(&mut self, key: i64, task: Member, weight: u32) {
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
    pub fn run(&mut self, task: Member, weight: u32) {
        self.curr = Some(task);
        self.curr_weight = weight.into();
    }

    /// The task that runs does so no longer.
    pub fn stop(&mut self) {
        self.curr = None;
        self.curr_weight = 0;
    }

    /// The weight of a task that runs or waits changes.
    pub fn reweigh(&mut self, task: Member, before: u32, weight: u32) {
        if self.curr == Some(task) {
            self.curr_weight = weight.into();
        } else {
            self.waiting_weight = self.waiting_weight + u64::from(weight) - u64::from(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_machine::ids::TaskId;

    fn tasks<const N: usize>(numbers: [u32; N]) -> [Member; N] {
        numbers.map(|number| Member::Task(TaskId(number)))
    }

    #[test]
    fn by_key_then_arrival() {
        let mut line = Timeline::default();
        for (task, key) in [(0, 5), (1, 3), (2, 5), (3, 4)] {
            line.insert(key, Member::Task(TaskId(task)), 1024);
        }
        assert_eq!(line.waiting().collect::<Vec<_>>(), tasks([1, 3, 0, 2]));
        line.remove(5, Member::Task(TaskId(2)), 1024);
        line.remove(4, Member::Task(TaskId(3)), 1024);
        assert_eq!(line.waiting().collect::<Vec<_>>(), tasks([1, 0]));
        assert_eq!((line.weight(), line.nr_running()), (2048, 2));
    }

    #[test]
    fn weights_of_tasks_that_run_and_wait_change() {
        let [running, waiting] = tasks([0, 1]);
        let mut line = Timeline::default();
        line.run(running, 1024);
        line.insert(0, waiting, 512);
        line.reweigh(running, 1024, 100);
        line.reweigh(waiting, 512, 20);
        assert_eq!(line.weight(), 120);
        line.stop();
        assert_eq!(line.weight(), 20);
    }
}
