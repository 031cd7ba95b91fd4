//! Run queues: for each CPU the tasks that wait for it, by priority, then in the order of arrival.
//!
//! As in Xen, a queue is sorted on request, not when a priority changes: until then the task keeps its place,
//! and a new task is inserted before the first one whose priority is lower *now*. A queue is three linked
//! lists through one array of links, so that every operation is O(1) while the queue is in order; while it is
//! not, an insertion walks through it. Two masks give at once the CPUs with a queued task, and those with a
//! task worth stealing for a CPU that would run a task without credit.

use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

/// Priority of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Priority {
    /// Out of credit.
    Over = 0,
    /// Has credit left.
    Under = 1,
    /// Woke up with credit left.
    Boost = 2,
}

const PRIORITIES: usize = 3;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
}

/// Links of a task that is queued.
#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    after: u32,
    /// The CPU in whose queue it is; [`NONE`] if in none.
    cpu: u32,
    /// The list that it is in.
    list: u8,
    /// Its present priority.
    priority: Priority,
}

/// Number of tasks in the queue of a CPU.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    queued: u32,
    /// Those of these with credit.
    urgent: u32,
    /// Those of these whose list is not that of their priority.
    misplaced: u32,
}

/// The queues of all CPUs.
#[derive(Clone, Debug)]
pub(super) struct RunQueues {
    lists: Vec<[List; PRIORITIES]>,
    links: Vec<Link>,
    counts: Vec<Counts>,
    queued: CpuMask,
    urgent: CpuMask,
}

impl RunQueues {
    pub fn new(cpus: usize, tasks: usize) -> Self {
        let link = Link { before: NONE, after: NONE, cpu: NONE, list: 0, priority: Priority::Under };
        Self {
            lists: vec![[List { first: NONE, last: NONE }; PRIORITIES]; cpus],
            links: vec![link; tasks],
            counts: vec![Counts::default(); cpus],
            queued: CpuMask::empty(cpus),
            urgent: CpuMask::empty(cpus),
        }
    }

    /// CPUs with a task queued.
    pub fn queued(&self) -> &CpuMask {
        &self.queued
    }

    /// CPUs with a task queued that has credit left.
    pub fn urgent(&self) -> &CpuMask {
        &self.urgent
    }

    pub fn is_empty(&self, cpu: CpuId) -> bool {
        self.counts[cpu.index()].queued == 0
    }

    pub fn contains(&self, task: TaskId) -> bool {
        self.links[task.index()].cpu != NONE
    }

    /// The task that stands first in the CPU's queue.
    pub fn first(&self, cpu: CpuId) -> Option<TaskId> {
        self.iter(cpu).next()
    }

    /// The tasks of the CPU's queue, in order.
    pub fn iter(&self, cpu: CpuId) -> impl Iterator<Item = TaskId> + '_ {
        self.lists[cpu.index()].iter().rev().flat_map(|list| {
            let first = (list.first != NONE).then_some(list.first);
            std::iter::successors(first, |&at| {
                let after = self.links[at as usize].after;
                (after != NONE).then_some(after)
            })
            .map(TaskId)
        })
    }

    /// Puts the task before the first one of lower priority.
    pub fn push(&mut self, cpu: CpuId, task: TaskId, priority: Priority) {
        if self.counts[cpu.index()].misplaced == 0 {
            self.link(cpu, task, priority, priority as usize, NONE);
            return;
        }
        match self.first_lower(cpu, priority) {
            Some(lower) => self.link(cpu, task, priority, self.links[lower.index()].list as usize, lower.0),
            None => self.link(cpu, task, priority, Priority::Over as usize, NONE),
        }
    }

    /// Puts the task behind the first one of lower priority, if there is one, so that a task that yields lets
    /// that one go first.
    pub fn push_behind_one_lower(&mut self, cpu: CpuId, task: TaskId, priority: Priority) {
        match self.first_lower(cpu, priority) {
            Some(lower) => {
                let Link { list, after, .. } = self.links[lower.index()];
                self.link(cpu, task, priority, list as usize, after);
            }
            None => self.push(cpu, task, priority),
        }
    }

    fn first_lower(&self, cpu: CpuId, priority: Priority) -> Option<TaskId> {
        self.iter(cpu).find(|task| self.links[task.index()].priority < priority)
    }

    /// Takes the task out of the queue that it is in.
    pub fn remove(&mut self, task: TaskId) {
        self.count(task, -1);
        let Link { before, after, cpu, list, .. } = self.links[task.index()];
        let ends = &mut self.lists[cpu as usize][list as usize];
        match before {
            NONE => ends.first = after,
            _ => self.links[before as usize].after = after,
        }
        match after {
            NONE => ends.last = before,
            _ => self.links[after as usize].before = before,
        }
        self.links[task.index()].cpu = NONE;
    }

    /// Notes a change of priority; the task keeps its place until the next sort.
    pub fn priority_changed(&mut self, task: TaskId, priority: Priority) {
        let is_queued = self.contains(task);
        if is_queued {
            self.count(task, -1);
        }
        self.links[task.index()].priority = priority;
        if is_queued {
            self.count(task, 1);
        }
    }

    /// Puts the tasks with credit before those without; both keep their order (`csched_runq_sort()`). It does
    /// not distinguish BOOST from UNDER.
    pub fn sort(&mut self, cpu: CpuId) {
        if self.counts[cpu.index()].misplaced == 0 {
            return;
        }
        let all: Vec<TaskId> = self.iter(cpu).collect();
        for &task in &all {
            self.remove(task);
        }
        let priority = |queues: &Self, task: TaskId| queues.links[task.index()].priority;
        let boosted = all.iter().filter(|&&task| priority(self, task) == Priority::Boost).count();
        let mut boosted_left = boosted;
        for task in all {
            let priority = priority(self, task);
            boosted_left -= usize::from(priority == Priority::Boost);
            // A list holds all that stand before its last one, whatever their priority.
            let before_a_boosted = boosted_left > 0 && priority == Priority::Under;
            let list = if before_a_boosted { Priority::Boost } else { priority };
            self.link(cpu, task, priority, list as usize, NONE);
        }
    }

    fn link(&mut self, cpu: CpuId, task: TaskId, priority: Priority, list: usize, after: u32) {
        debug_assert!(!self.contains(task), "queued twice");
        let ends = &mut self.lists[cpu.index()][list];
        let before = match after {
            NONE => std::mem::replace(&mut ends.last, task.0),
            _ => std::mem::replace(&mut self.links[after as usize].before, task.0),
        };
        match before {
            NONE => ends.first = task.0,
            _ => self.links[before as usize].after = task.0,
        }
        self.links[task.index()] = Link { before, after, cpu: cpu.0, list: list as u8, priority };
        self.count(task, 1);
    }

    /// Counts a queued task in (1) or out (-1).
    fn count(&mut self, task: TaskId, change: i32) {
        let Link { cpu, list, priority, .. } = self.links[task.index()];
        debug_assert_ne!(cpu, NONE, "not queued");
        let counts = &mut self.counts[cpu as usize];
        counts.queued = counts.queued.wrapping_add_signed(change);
        if priority > Priority::Over {
            counts.urgent = counts.urgent.wrapping_add_signed(change);
        }
        if list != priority as u8 {
            counts.misplaced = counts.misplaced.wrapping_add_signed(change);
        }
        set(&mut self.queued, CpuId(cpu), counts.queued > 0);
        set(&mut self.urgent, CpuId(cpu), counts.urgent > 0);
    }
}

fn set(mask: &mut CpuMask, cpu: CpuId, member: bool) {
    if member { mask.insert(cpu) } else { mask.remove(cpu) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Priority::{Boost, Over, Under};

    const CPU: CpuId = CpuId(0);

    fn order(queues: &RunQueues) -> Vec<u32> {
        queues.iter(CPU).map(|task| task.0).collect()
    }

    #[test]
    fn by_priority_then_arrival() {
        let mut queues = RunQueues::new(1, 6);
        for (task, priority) in [(0, Over), (1, Under), (2, Boost), (3, Under), (4, Over)] {
            queues.push(CPU, TaskId(task), priority);
        }
        assert_eq!(order(&queues), [2, 1, 3, 0, 4]);
        queues.remove(TaskId(1));
        assert_eq!(order(&queues), [2, 3, 0, 4]);
        queues.push_behind_one_lower(CPU, TaskId(1), Under);
        assert_eq!(order(&queues), [2, 3, 0, 1, 4], "one lower goes first");
        queues.push_behind_one_lower(CPU, TaskId(5), Over);
        assert_eq!(order(&queues), [2, 3, 0, 1, 4, 5], "nothing lower is there");
    }

    #[test]
    fn a_changed_priority_takes_its_place_at_the_next_sort() {
        let mut queues = RunQueues::new(1, 4);
        for task in 0..3 {
            queues.push(CPU, TaskId(task), Over);
        }
        assert!(!queues.urgent().contains(CPU));
        queues.priority_changed(TaskId(2), Under);
        assert!(queues.urgent().contains(CPU));
        assert_eq!(order(&queues), [0, 1, 2]);
        queues.priority_changed(TaskId(0), Under);
        queues.push(CPU, TaskId(3), Under);
        assert_eq!(order(&queues), [0, 3, 1, 2], "before the first that is lower now");
        queues.sort(CPU);
        assert_eq!(order(&queues), [0, 3, 2, 1]);
        for task in [0, 2, 3] {
            queues.remove(TaskId(task));
        }
        assert!(!queues.urgent().contains(CPU) && queues.queued().contains(CPU));
    }

    #[test]
    fn csched_runq_sort_does_not_distinguish_boost_from_under() {
        let mut queues = RunQueues::new(1, 5);
        for task in 0..2 {
            queues.push(CPU, TaskId(task), Boost);
        }
        queues.push(CPU, TaskId(2), Under);
        queues.push(CPU, TaskId(3), Over);
        queues.priority_changed(TaskId(0), Under);
        queues.priority_changed(TaskId(3), Under);
        queues.priority_changed(TaskId(2), Over);
        queues.sort(CPU);
        assert_eq!(order(&queues), [0, 1, 3, 2]);
        queues.push(CPU, TaskId(4), Boost);
        assert_eq!(order(&queues), [4, 0, 1, 3, 2], "before the first that is lower now");
        for task in [1, 0, 3, 4, 2] {
            queues.remove(TaskId(task));
        }
        assert!(queues.is_empty(CPU));
    }
}
