//! The tasks of a kernel, with what its policy may know of them. Tasks are added as they are forked.

use super::task::{Birth, Task};
use crate::policy::TaskFacts;
use tandem_machine::ids::TaskId;

/// Tasks and facts, by [`TaskId`]. Numbers of tasks that have ended are used again.
#[derive(Debug)]
pub(crate) struct Tasks {
    tasks: Vec<Task>,
    facts: Vec<TaskFacts>,
    free: Vec<TaskId>,
    births: u32,
}

impl Tasks {
    /// Those that are there from the start.
    pub fn new(mut tasks: Vec<Task>, facts: Vec<TaskFacts>) -> Self {
        for (birth, task) in (0..).zip(&mut tasks) {
            task.lineage.birth = birth;
        }
        Self { births: tasks.len() as u32, tasks, facts, free: Vec::new() }
    }

    /// Adds a task that is yet to start.
    pub fn add(&mut self, mut task: Task, facts: TaskFacts) -> TaskId {
        task.lineage.birth = self.births;
        self.births = self.births.wrapping_add(1);
        match self.free.pop() {
            Some(id) => {
                self.tasks[id.index()] = task;
                self.facts[id.index()] = facts;
                id
            }
            None => {
                self.tasks.push(task);
                self.facts.push(facts);
                TaskId::from(self.tasks.len() - 1)
            }
        }
    }

    /// The number of a task that has ended may be used again.
    pub fn release(&mut self, task: TaskId) {
        self.free.push(task);
    }

    /// Tasks that have not ended.
    pub fn live(&self) -> usize {
        self.tasks.len() - self.free.len()
    }

    /// How to find a task again, if it still lives.
    pub fn birth(&self, task: TaskId) -> Birth {
        Birth { task, number: self.tasks[task.index()].lineage.birth }
    }

    #[inline]
    pub fn get(&self, task: TaskId) -> &Task {
        &self.tasks[task.index()]
    }

    #[inline]
    pub fn get_mut(&mut self, task: TaskId) -> &mut Task {
        &mut self.tasks[task.index()]
    }

    #[inline]
    pub fn all(&self) -> &[Task] {
        &self.tasks
    }

    pub fn all_mut(&mut self) -> &mut [Task] {
        &mut self.tasks
    }

    #[inline]
    pub fn facts(&self) -> &[TaskFacts] {
        &self.facts
    }

    pub fn facts_mut(&mut self, task: TaskId) -> &mut TaskFacts {
        &mut self.facts[task.index()]
    }
}
