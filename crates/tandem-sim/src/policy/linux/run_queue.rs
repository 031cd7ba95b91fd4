//! The run queue of a CPU.
//!
//! The tasks that wait stand in a sorted vector instead of the kernel's red-black tree: queues are short, so
//! that moving a few entries costs less than following pointers, and the order is the same.

use super::entity::Entity;
use super::load::QueueLoad;
use tandem_machine::ids::{CpuId, TaskId};

/// A task in a queue, and what it is sorted by.
#[derive(Clone, Copy, Debug)]
struct Queued {
    key: i64,
    task: TaskId,
}

/// Clock of a CPU for its tasks (`rq_clock_task()`): stands still while a vCPU is kept from running, if the
/// hypervisor says so.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TaskClock {
    /// The clock, ns.
    pub task_ns: u64,
    /// Simulated time up to which it has gone, ns.
    updated_ns: u64,
    /// Stolen time that it has left out so far, ns.
    stolen_ns: u64,
}

impl TaskClock {
    /// Brings the clock up to now. Stolen time that is told late is left out of what comes.
    pub fn advance(&mut self, now_ns: u64, stolen_ns: u64) {
        let passed_ns = now_ns.saturating_sub(self.updated_ns);
        let newly_stolen_ns = stolen_ns.saturating_sub(self.stolen_ns).min(passed_ns);
        self.updated_ns += passed_ns;
        self.stolen_ns += newly_stolen_ns;
        self.task_ns += passed_ns - newly_stolen_ns;
    }
}

/// What the scheduler knows of a CPU (`struct rq` with its `struct cfs_rq`).
#[derive(Clone, Debug, Default)]
pub(super) struct RunQueue {
    /// The task that runs.
    pub curr: Option<TaskId>,
    /// The tasks that wait, sorted: by virtual run time (CFS) or by virtual deadline (EEVDF); of equal ones
    /// the first to come stands first.
    queue: Vec<Queued>,
    /// Of these, the ones that only stay until they have paid for running ahead (EEVDF's delayed dequeue).
    pub delayed: usize,
    /// Weight of the tasks that wait.
    pub queued_weight: u64,
    /// Sum of weight x virtual run time over the tasks that wait.
    pub queued_weighted_vruntime: i128,
    /// CFS: smallest virtual run time of its tasks, which never falls. EEVDF: the average when it last ran
    /// empty.
    pub min_vruntime: i64,
    /// CFS: the task that was preempted last, that should run next, and that has yielded.
    pub last_buddy: Option<TaskId>,
    /// See `last_buddy`.
    pub next_buddy: Option<TaskId>,
    /// See `last_buddy`.
    pub skip_buddy: Option<TaskId>,
    /// The clock by which its tasks are charged.
    pub clock: TaskClock,
    /// It has been told to reschedule and has not done so yet, or is doing it.
    pub resched: bool,
    /// The CPU had nothing to run when it last looked.
    pub idling: bool,
    /// Since when it idles, ns; `None` from the first wake-up on (`idle_stamp`).
    pub idle_since_ns: Option<u64>,
    /// How long it idles on average, ns (`avg_idle`).
    pub avg_idle_ns: u64,
    /// Longest search for work when it became idle, ns (`max_idle_balance_cost`); `avg_idle_ns` is kept below
    /// twice that.
    pub max_idle_balance_cost_ns: u64,
    /// An idle CPU was kicked to balance on behalf of all idle CPUs.
    pub nohz_kicked: bool,
    /// Active balancing was asked for: the running task is to go to this CPU.
    pub push_to: Option<CpuId>,
    /// NUMA balancing asked for that, not active balancing.
    pub push_is_for_node: bool,
    /// It gets another task for the one that it hands over.
    pub swaps: bool,
    /// Load measures.
    pub load: QueueLoad,
}

impl RunQueue {
    /// The queue of a CPU that idles from the beginning.
    pub fn new(migration_cost_ns: u64) -> Self {
        Self {
            idling: true,
            idle_since_ns: Some(0),
            avg_idle_ns: 2 * migration_cost_ns,
            max_idle_balance_cost_ns: migration_cost_ns,
            ..Self::default()
        }
    }

    /// Tasks that run or wait; those that are leaving (delayed dequeue) not counted.
    pub fn nr_running(&self) -> usize {
        self.queue.len() - self.delayed + usize::from(self.curr.is_some())
    }

    /// Whether nothing waits, not even a task that is leaving.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// The tasks that wait, in the order of the queue; those that are leaving too.
    pub fn queued(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.queue.iter().map(|entry| entry.task)
    }

    /// Puts a task into the queue, behind those of an equal key.
    pub fn insert(&mut self, key: i64, task: TaskId, entity: &mut Entity) {
        debug_assert!(!entity.queued, "queued twice");
        let at = self.queue.partition_point(|entry| entry.key <= key);
        self.queue.insert(at, Queued { key, task });
        entity.queued = true;
        self.queued_weight += u64::from(entity.weight);
        self.queued_weighted_vruntime += i128::from(entity.weight) * i128::from(entity.vruntime);
    }

    /// Takes a task out of the queue, in which it stands under this key.
    pub fn remove(&mut self, key: i64, task: TaskId, entity: &mut Entity) {
        let from = self.queue.partition_point(|entry| entry.key < key);
        let equal = self.queue[from..].iter().take_while(|entry| entry.key == key);
        let Some(ahead) = equal.into_iter().position(|entry| entry.task == task) else {
            debug_assert!(false, "{task:?} is not in the queue");
            return;
        };
        self.queue.remove(from + ahead);
        entity.queued = false;
        self.queued_weight -= u64::from(entity.weight);
        self.queued_weighted_vruntime -= i128::from(entity.weight) * i128::from(entity.vruntime);
    }

    /// Forgets the task as a buddy.
    pub fn clear_buddies(&mut self, task: TaskId) {
        for buddy in [&mut self.last_buddy, &mut self.next_buddy, &mut self.skip_buddy] {
            if *buddy == Some(task) {
                *buddy = None;
            }
        }
    }

    /// Counts the end of an idle time into the average, as the kernel does at the first wake-up: an eighth of
    /// the difference, and never above twice the longest search. `caps_sample`: a long time sets the average
    /// to that at once (3.6).
    pub fn idle_ended(&mut self, now_ns: u64, caps_sample: bool) {
        let Some(since_ns) = self.idle_since_ns.take() else { return };
        let (idle_ns, most_ns) = (now_ns - since_ns, 2 * self.max_idle_balance_cost_ns);
        let average_ns = self.avg_idle_ns as i64 + (idle_ns as i64 - self.avg_idle_ns as i64) / 8;
        self.avg_idle_ns =
            if caps_sample && idle_ns > most_ns { most_ns } else { most_ns.min(average_ns as u64) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_key_then_arrival() {
        let mut queue = RunQueue::new(0);
        let mut entities = vec![Entity::new(1024, CpuId(0)); 4];
        for (task, key) in [(0, 5), (1, 3), (2, 5), (3, 4)] {
            queue.insert(key, TaskId(task), &mut entities[task as usize]);
        }
        assert_eq!(queue.queued().collect::<Vec<_>>(), [1, 3, 0, 2].map(TaskId));
        queue.remove(5, TaskId(2), &mut entities[2]);
        queue.remove(4, TaskId(3), &mut entities[3]);
        assert_eq!(queue.queued().collect::<Vec<_>>(), [1, 0].map(TaskId));
        assert_eq!((queue.queued_weight, queue.nr_running()), (2048, 2));
    }

    #[test]
    fn stolen_time_stops_the_task_clock() {
        let mut clock = TaskClock::default();
        clock.advance(10, 0);
        clock.advance(20, 4);
        assert_eq!(clock.task_ns, 16);
        clock.advance(25, 14);
        assert_eq!(clock.task_ns, 16, "no more than the time that passed");
        clock.advance(35, 14);
        assert_eq!(clock.task_ns, 21, "the rest of it later");
    }

    #[test]
    fn average_idle_time_follows_slowly_and_is_bounded() {
        let mut queue = RunQueue::new(500_000);
        for (idle_ns, caps_sample, expected_ns) in [
            (200_000, false, 900_000),
            (9_000_000, false, 1_000_000),
            (0, false, 875_000),
            (1_000_001, true, 1_000_000),
        ] {
            queue.idle_since_ns = Some(5);
            queue.idle_ended(5 + idle_ns, caps_sample);
            assert_eq!(queue.avg_idle_ns, expected_ns, "after {idle_ns} ns");
        }
    }
}
