//! Dispatch queues (DSQs).
//!
//! A queue is in order of arrival, or of virtual time; either way each task has a key that determines its
//! position, so that a task is found by bisection, and an iteration can continue after any change of the
//! queue.

use std::collections::VecDeque;
use tandem_machine::ids::TaskId;

/// Position of a task in the order of a queue: by virtual time, then by arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueueKey {
    vtime: i64,
    arrival: i64,
}

/// The order of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// First come, first served.
    Arrival,
    /// By virtual time.
    Vtime,
}

/// A dispatch queue.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// Its number.
    pub id: u64,
    /// The address of its structure, which programs see.
    pub address: u64,
    waiting: VecDeque<(QueueKey, TaskId)>,
    order: Option<Order>,
    arrivals: i64,
    /// Number of tasks that were put before all others.
    pushed_in: i64,
}

impl Queue {
    pub fn new(id: u64, address: u64) -> Self {
        Self { id, address, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The order of its tasks; `None` if it is empty.
    pub fn order(&self) -> Option<Order> {
        self.order.filter(|_| !self.is_empty())
    }

    /// Adds a task at the end, or before all others; returns its key.
    pub fn push(&mut self, task: TaskId, at_head: bool) -> QueueKey {
        self.order = Some(Order::Arrival);
        if at_head {
            self.pushed_in -= 1;
            let place = QueueKey { vtime: 0, arrival: self.pushed_in };
            self.waiting.push_front((place, task));
            return place;
        }
        self.arrivals += 1;
        let place = QueueKey { vtime: 0, arrival: self.arrivals };
        self.waiting.push_back((place, task));
        place
    }

    /// Adds a task behind those with no later virtual time; returns its key. Virtual times wrap around, and
    /// compare by their signed difference.
    pub fn insert(&mut self, task: TaskId, vtime: u64) -> QueueKey {
        self.order = Some(Order::Vtime);
        self.arrivals += 1;
        let place = QueueKey { vtime: vtime as i64, arrival: self.arrivals };
        let at = self.waiting.partition_point(|(other, _)| *other < place);
        self.waiting.insert(at, (place, task));
        place
    }

    /// Removes a task.
    pub fn remove(&mut self, place: QueueKey) {
        if self.waiting.front().is_some_and(|&(first, _)| first == place) {
            self.waiting.pop_front();
            return;
        }
        if let Ok(at) = self.waiting.binary_search_by_key(&place, |(place, _)| *place) {
            self.waiting.remove(at);
        }
    }

    /// The first task.
    pub fn first(&self) -> Option<TaskId> {
        self.waiting.front().map(|(_, task)| *task)
    }

    /// The tasks, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = TaskId> + '_ {
        self.waiting.iter().map(|(_, task)| *task)
    }

    /// Number of arrivals so far: an iteration that begins now skips later ones.
    pub fn arrivals(&self) -> i64 {
        self.arrivals
    }

    /// The next task of an iteration, among those that came before it began, with its index and key: after
    /// (or, backwards, before) the last one, which had this index unless the queue has changed since.
    pub fn next(
        &self,
        after: Option<(usize, QueueKey)>,
        backwards: bool,
        began: i64,
    ) -> Option<(usize, QueueKey, TaskId)> {
        let is_part = |&index: &usize| self.waiting[index].0.arrival <= began;
        let is_there =
            |index: usize, last: QueueKey| self.waiting.get(index).is_some_and(|(place, _)| *place == last);
        let index = match (after, backwards) {
            (None, false) => (0..self.waiting.len()).find(is_part),
            (None, true) => (0..self.waiting.len()).rev().find(is_part),
            (Some((index, last)), false) => {
                let start = match is_there(index, last) {
                    true => index + 1,
                    false => self.waiting.partition_point(|(place, _)| *place <= last),
                };
                (start..self.waiting.len()).find(is_part)
            }
            (Some((index, last)), true) => {
                let end = match is_there(index, last) {
                    true => index,
                    false => self.waiting.partition_point(|(place, _)| *place < last),
                };
                (0..end).rev().find(is_part)
            }
        }?;
        let (place, task) = self.waiting[index];
        Some((index, place, task))
    }
}

impl QueueKey {
    /// The key as two numbers, for a program's memory.
    pub fn to_words(self) -> [u64; 2] {
        [self.vtime as u64, self.arrival as u64]
    }

    /// The inverse of [`QueueKey::to_words`].
    pub fn from_words(words: [u64; 2]) -> Self {
        Self { vtime: words[0] as i64, arrival: words[1] as i64 }
    }
}
