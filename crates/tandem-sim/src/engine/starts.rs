//! Tasks that wait to be started: one after the other, so that each finds the CPUs as those before it have
//! left them.

use super::event_queue::NEVER;
use crate::kernel::TaskRef;
use std::collections::VecDeque;

/// Time between the starts of two tasks, ns: longer than the decisions that a start brings about.
pub(super) const START_SPACING_NS: u64 = 20_000;
/// The same after a process of the host: they are many, and the processes that start them wake one after the
/// other.
pub(super) const PROCESS_START_SPACING_NS: u64 = 1_000;

/// Tasks that are yet to start, in that order.
pub(super) struct Starts {
    tasks: VecDeque<TaskRef>,
    /// When the next one starts, ns.
    next_ns: u64,
    /// Before which none starts, ns.
    free_ns: u64,
}

impl Starts {
    /// None yet.
    pub fn new() -> Self {
        Self { tasks: VecDeque::new(), next_ns: NEVER, free_ns: 0 }
    }

    /// When the next one starts, ns.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// These are to start after all others: the first one now, or as long after the last one as it takes.
    pub fn add(&mut self, tasks: impl Iterator<Item = TaskRef>, now_ns: u64) {
        self.tasks.extend(tasks);
        self.next_ns = now_ns.max(self.free_ns);
    }

    /// Lets the vCPUs of all VMs come before the tasks of their guests.
    pub fn put_vcpus_first(&mut self) {
        self.tasks.make_contiguous().sort_by_key(|task| task.kernel);
    }

    /// Only these are still to start.
    pub fn retain(&mut self, is_kept: impl Fn(TaskRef) -> bool) {
        self.tasks.retain(|&task| is_kept(task));
    }

    /// The task that starts now, if any is left.
    pub fn take_next(&mut self) -> Option<TaskRef> {
        self.tasks.pop_front()
    }

    /// After a start, the next one may follow in so many ns.
    pub fn space_out(&mut self, now_ns: u64, spacing_ns: u64) {
        self.free_ns = now_ns + spacing_ns;
        self.next_ns = if self.tasks.is_empty() { NEVER } else { self.free_ns };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tandem_machine::ids::TaskId;

    #[test]
    fn a_start_keeps_its_distance_from_the_one_before() {
        let task = |kernel, task| TaskRef { kernel, task: TaskId(task) };
        let mut starts = Starts::new();
        assert_eq!(starts.next_ns(), NEVER);
        starts.add([task(0, 0), task(1, 0)].into_iter(), 5);
        starts.add([task(0, 1), task(0, 2)].into_iter(), 5);
        starts.put_vcpus_first();
        starts.retain(|task| task.task != TaskId(2));
        assert_eq!((starts.next_ns(), starts.take_next()), (5, Some(task(0, 0))));
        starts.space_out(5, 10);
        assert_eq!((starts.next_ns(), starts.take_next()), (15, Some(task(0, 1))));
        starts.space_out(15, 10);
        assert_eq!((starts.next_ns(), starts.take_next()), (25, Some(task(1, 0))));
        starts.space_out(25, 10);
        assert_eq!((starts.next_ns(), starts.take_next()), (NEVER, None));
        starts.add(std::iter::once(task(0, 3)), 30);
        assert_eq!(starts.next_ns(), 35, "also after the last task");
    }
}
