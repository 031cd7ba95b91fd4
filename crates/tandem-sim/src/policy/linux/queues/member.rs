//! Groups of tasks, and what stands in queues: tasks, and groups that have tasks on a CPU.
//!
//! Each group has a queue on each CPU, a [`LevelId`]; the root group's are the queues of the CPUs themselves.
//! In the queue of its parent, a group with tasks on the CPU stands as a member of its own (`struct
//! sched_entity` of a group).

use std::ops::{Index, IndexMut};
use tandem_machine::ids::{CpuId, TaskId};

/// A group of tasks (`struct task_group`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::policy::linux) struct GroupId(pub u32);

impl GroupId {
    /// The group of all tasks that are in no other.
    pub const ROOT: Self = Self(0);

    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The queue of a group on a CPU (`struct cfs_rq`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy::linux) struct LevelId(u32);

impl LevelId {
    /// The queue of the CPU itself, which is the root group's.
    #[inline]
    pub fn root(cpu: CpuId) -> Self {
        Self(cpu.0)
    }

    /// The queue of a group on a CPU, of this many.
    #[inline]
    pub fn of(group: GroupId, cpu: CpuId, cpus: usize) -> Self {
        Self(group.0 * cpus as u32 + cpu.0)
    }

    /// Its number; those of the root come first, in the order of CPUs.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// What stands in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::policy::linux) enum Member {
    Task(TaskId),
    /// The group that has this queue below.
    Group(LevelId),
}

impl Member {
    /// The task, if it is one.
    #[inline]
    pub fn task(self) -> Option<TaskId> {
        match self {
            Self::Task(task) => Some(task),
            Self::Group(_) => None,
        }
    }
}

/// Something of each member of any queue.
#[derive(Clone, Debug)]
pub(in crate::policy::linux) struct OfMembers<T> {
    tasks: Vec<T>,
    /// By the queue below.
    groups: Vec<T>,
}

impl<T: Clone> OfMembers<T> {
    /// Of no tasks yet, and of this many queues.
    pub fn new(levels: usize, of_group: T) -> Self {
        Self { tasks: Vec::new(), groups: vec![of_group; levels] }
    }

    /// Sets it for a task; new numbers come in order.
    pub fn begin(&mut self, task: TaskId, new: T) {
        match self.tasks.get_mut(task.index()) {
            Some(known) => *known = new,
            None => self.tasks.push(new),
        }
    }
}

impl<T> Index<Member> for OfMembers<T> {
    type Output = T;

    #[inline]
    fn index(&self, member: Member) -> &T {
        match member {
            Member::Task(task) => &self.tasks[task.index()],
            Member::Group(below) => &self.groups[below.index()],
        }
    }
}

impl<T> IndexMut<Member> for OfMembers<T> {
    #[inline]
    fn index_mut(&mut self, member: Member) -> &mut T {
        match member {
            Member::Task(task) => &mut self.tasks[task.index()],
            Member::Group(below) => &mut self.groups[below.index()],
        }
    }
}
