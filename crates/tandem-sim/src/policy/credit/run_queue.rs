//! Run queues: for each CPU the tasks that wait for it, by priority, then in the order of arrival.
//!
//! A queue is three linked lists through one array of links, so that every operation on a task is O(1). A task
//! stays in the list it was put in when its priority changes; sorting anew is a step of its own, as in Xen.
//! Two masks tell at once which CPUs have anything queued, and anything worth stealing for a CPU that would run
//! a task without credit. Limit: a task is put behind the others of its list, where Xen compares with the
//! priorities as they are now; the two differ only between an accounting and the next sort.

use crate::cpumask::CpuMask;
use crate::ids::{CpuId, TaskId};

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
    /// Its priority as it is now.
    priority: Priority,
}

/// The queues of all CPUs.
#[derive(Clone, Debug)]
pub(super) struct RunQueues {
    lists: Vec<[List; PRIORITIES]>,
    links: Vec<Link>,
    /// Tasks queued, and of these the ones with credit, by CPU.
    counts: Vec<(u32, u32)>,
    queued: CpuMask,
    urgent: CpuMask,
}

impl RunQueues {
    pub fn new(cpus: usize, tasks: usize) -> Self {
        let link = Link {
            before: NONE,
            after: NONE,
            cpu: NONE,
            list: 0,
            priority: Priority::Under,
        };
        Self {
            lists: vec![
                [List {
                    first: NONE,
                    last: NONE
                }; PRIORITIES];
                cpus
            ],
            links: vec![link; tasks],
            counts: vec![(0, 0); cpus],
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
        self.counts[cpu.index()].0 == 0
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

    /// Puts the task behind the others of its priority.
    pub fn push(&mut self, cpu: CpuId, task: TaskId, priority: Priority) {
        self.link(cpu, task, priority, priority as usize, NONE);
    }

    /// Puts the task behind the first one of the next lower priority that is queued, if any; a task that yields
    /// lets one of them go first.
    pub fn push_behind_one_lower(&mut self, cpu: CpuId, task: TaskId, priority: Priority) {
        let lists = &self.lists[cpu.index()];
        match (0..priority as usize)
            .rev()
            .find(|&lower| lists[lower].first != NONE)
        {
            Some(lower) => {
                let second = self.links[lists[lower].first as usize].after;
                self.link(cpu, task, priority, lower, second);
            }
            None => self.push(cpu, task, priority),
        }
    }

    /// Takes the task out of the queue that it is in.
    pub fn remove(&mut self, task: TaskId) {
        let Link {
            before,
            after,
            cpu,
            list,
            priority,
        } = self.links[task.index()];
        debug_assert_ne!(cpu, NONE, "not queued");
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
        self.count(CpuId(cpu), -1, priority);
    }

    /// Tells the queues of a change of priority; the task keeps its place until the next sort.
    pub fn priority_changed(&mut self, task: TaskId, priority: Priority) {
        let link = &mut self.links[task.index()];
        let before = std::mem::replace(&mut link.priority, priority);
        let cpu = link.cpu;
        if cpu != NONE && before != priority {
            self.count(CpuId(cpu), -1, before);
            self.count(CpuId(cpu), 1, priority);
        }
    }

    /// Sorts the CPU's queue by the priorities as they are now; tasks of equal priority keep their order.
    pub fn sort(&mut self, cpu: CpuId) {
        let misplaced: Vec<TaskId> = self
            .iter(cpu)
            .filter(|task| {
                let link = &self.links[task.index()];
                link.list != link.priority as u8
            })
            .collect();
        if misplaced.is_empty() {
            return;
        }
        let all: Vec<TaskId> = self.iter(cpu).collect();
        for &task in &all {
            self.remove(task);
        }
        for task in all {
            self.push(cpu, task, self.links[task.index()].priority);
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
        self.links[task.index()] = Link {
            before,
            after,
            cpu: cpu.0,
            list: list as u8,
            priority,
        };
        self.count(cpu, 1, priority);
    }

    fn count(&mut self, cpu: CpuId, change: i32, priority: Priority) {
        let (queued, urgent) = &mut self.counts[cpu.index()];
        *queued = queued.wrapping_add_signed(change);
        if priority > Priority::Over {
            *urgent = urgent.wrapping_add_signed(change);
        }
        let (queued, urgent) = (*queued, *urgent);
        set(&mut self.queued, cpu, queued > 0);
        set(&mut self.urgent, cpu, urgent > 0);
    }
}

fn set(mask: &mut CpuMask, cpu: CpuId, member: bool) {
    if member {
        mask.insert(cpu)
    } else {
        mask.remove(cpu)
    }
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
        let mut queues = RunQueues::new(1, 3);
        for task in 0..3 {
            queues.push(CPU, TaskId(task), Over);
        }
        assert!(!queues.urgent().contains(CPU));
        queues.priority_changed(TaskId(2), Under);
        assert!(queues.urgent().contains(CPU));
        assert_eq!(order(&queues), [0, 1, 2]);
        queues.sort(CPU);
        assert_eq!(order(&queues), [2, 0, 1]);
        queues.remove(TaskId(2));
        assert!(!queues.urgent().contains(CPU) && queues.queued().contains(CPU));
    }
}
