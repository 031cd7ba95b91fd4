//! The tasks of a recording.
//!
//! The kernel uses numbers again. A number means the task that had it last; when a task has ended, or one
//! with its number is forked, the number means a new task.

use super::decode::TaskSeen;
use crate::NO_TASK;
use crate::error::TraceError;
use crate::facts::Task;
use std::collections::HashMap;

/// Tasks that a recording may have: as many as Linux allows at a time (`PID_MAX_LIMIT`), so that a file
/// cannot fill the memory.
pub const TASKS_MAX: usize = 1 << 22;

/// Tasks, in the order in which they were met.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    all: Vec<Task>,
    /// Of each, by how many sightings its priority leads over others.
    leads: Vec<u32>,
    /// Positions of those that live.
    current: HashMap<u32, u32>,
}

impl Tasks {
    /// The position of the task of a number, which is new if none lives; [`NO_TASK`] for the idle task.
    ///
    /// # Errors
    /// If there are too many.
    pub fn meet(&mut self, tid: u32) -> Result<u32, TraceError> {
        match self.current.get(&tid) {
            _ if tid == 0 => Ok(NO_TASK),
            Some(&at) => Ok(at),
            None => self.begin(tid),
        }
    }

    /// The position of a new task, whose number was another's if one had it.
    ///
    /// # Errors
    /// If there are too many.
    pub fn begin(&mut self, tid: u32) -> Result<u32, TraceError> {
        if tid == 0 {
            return Ok(NO_TASK);
        }
        if self.all.len() == TASKS_MAX {
            return Err(TraceError::Unsupported(format!("has more than {TASKS_MAX} tasks")));
        }
        let at = self.all.len() as u32;
        self.all.push(Task { tid, ..Task::default() });
        self.leads.push(0);
        self.current.insert(tid, at);
        Ok(at)
    }

    /// The task of a number has ended.
    pub fn end(&mut self, tid: u32) {
        self.current.remove(&tid);
    }

    /// A task has got another number: that of the first thread of its process, whose program it replaces.
    ///
    /// # Errors
    /// If there are too many.
    pub fn renumber(&mut self, old_tid: u32, tid: u32) -> Result<u32, TraceError> {
        let at = self.meet(old_tid)?;
        if at != NO_TASK && old_tid != tid && tid != 0 {
            self.current.remove(&old_tid);
            self.current.insert(tid, at);
            self.all[at as usize].tid = tid;
        }
        Ok(at)
    }

    /// Notes what a tracepoint reports of a task. Gives its position.
    ///
    /// Of several priorities, the task keeps the one that most sightings have, if that is more than half of them: one
    /// that it has while it ends, or while it holds a lock that another needs, is not what it ran with.
    ///
    /// # Errors
    /// If there are too many.
    pub fn see(&mut self, seen: TaskSeen) -> Result<u32, TraceError> {
        let at = self.meet(seen.tid)?;
        if let Some(task) = self.all.get_mut(at as usize) {
            vote(task, &mut self.leads[at as usize], seen.priority);
            rename(task, seen.name);
        }
        Ok(at)
    }

    /// The task of a number that lives now, to add what is known of it.
    pub fn living(&mut self, tid: u32) -> Option<&mut Task> {
        self.all.get_mut(*self.current.get(&tid)? as usize)
    }

    /// The task at a position.
    pub fn get_mut(&mut self, at: u32) -> Option<&mut Task> {
        self.all.get_mut(at as usize)
    }

    /// Numbers of the tasks that live.
    pub fn living_tids(&self) -> impl Iterator<Item = u32> {
        self.current.keys().copied()
    }

    /// All tasks, by position.
    pub fn all(&self) -> &[Task] {
        &self.all
    }

    /// All tasks, by position.
    pub fn into_all(self) -> Vec<Task> {
        self.all
    }
}

/// The majority vote of Boyer and Moore: a priority that more than half of all sightings have wins.
fn vote(task: &mut Task, lead: &mut u32, seen: Option<i32>) {
    match seen {
        None => {}
        Some(priority) if *lead == 0 => (task.priority, *lead) = (Some(priority), 1),
        Some(priority) if task.priority == Some(priority) => *lead = lead.saturating_add(1),
        Some(_) => *lead -= 1,
    }
}

/// Gives a task a name if it has another one. Most often it is the same.
pub(super) fn rename(task: &mut Task, name: &[u8]) {
    if task.name.as_bytes() != name && !name.is_empty() {
        task.name = String::from_utf8_lossy(name).into_owned();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(tid: u32, name: &[u8]) -> TaskSeen<'_> {
        TaskSeen { tid, name, priority: Some(120) }
    }

    #[test]
    fn a_number_that_is_used_again_is_another_task() {
        let mut tasks = Tasks::default();
        assert_eq!(tasks.see(seen(7, b"first")), Ok(0));
        assert_eq!(tasks.see(seen(7, b"renamed")), Ok(0));
        tasks.end(7);
        assert_eq!(tasks.see(seen(7, b"second")), Ok(1));
        assert_eq!(tasks.begin(7), Ok(2));
        assert_eq!(tasks.meet(7), Ok(2));
        let names: Vec<_> = tasks.all().iter().map(|task| task.name.as_str()).collect();
        assert_eq!(names, ["renamed", "second", ""]);
        assert_eq!(tasks.see(seen(0, b"swapper/0")), Ok(NO_TASK));
    }

    #[test]
    fn a_task_keeps_the_priority_that_it_has_most_often() {
        let mut tasks = Tasks::default();
        let mut see = |priority| tasks.see(TaskSeen { tid: 7, name: b"timer", priority }).unwrap();
        let sightings = [vec![Some(120); 3], vec![Some(96); 9], vec![None; 9], vec![Some(120); 2]].concat();
        let at = sightings.into_iter().map(&mut see).last().unwrap();
        assert_eq!(tasks.all()[at as usize].priority, Some(96));
        // What was known before, such as from /proc, counts as no sighting.
        let at = tasks.meet(8).unwrap();
        tasks.get_mut(at).unwrap().priority = Some(100);
        tasks.see(seen(8, b"worker")).unwrap();
        assert_eq!(tasks.all()[at as usize].priority, Some(120));
    }

    #[test]
    fn a_thread_that_executes_becomes_the_first_one() {
        let mut tasks = Tasks::default();
        tasks.see(seen(10, b"leader")).unwrap();
        let thread = tasks.see(seen(11, b"thread")).unwrap();
        assert_eq!(tasks.renumber(11, 10), Ok(thread));
        assert_eq!(tasks.meet(10), Ok(thread));
        assert_eq!(tasks.all()[1].tid, 10);
        assert_eq!(tasks.renumber(10, 10), Ok(thread));
    }
}
