//! The record of a program under the scheduler, for a comparison with the simulator: one JSON object per
//! program.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Whose scheduling a record shows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scheduler {
    /// This project's.
    #[default]
    Tandem,
    /// The kernel's own.
    Eevdf,
    /// Another one for sched_ext, by the name of its object file.
    Object(String),
}

/// The activity of a program's tasks, and of the scheduler for them, from the start of the program for its
/// length.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Record {
    /// The program: the name of its scenario file.
    pub program: String,
    /// The scheduler that was in charge.
    pub scheduler: Scheduler,
    /// The release of the kernel.
    pub kernel: String,
    /// The time that was measured, ns.
    pub length_ns: u64,
    /// From the start to when a task of it last left a CPU, ns; not longer than the length.
    pub span_ns: u64,
    /// The tasks in the order of the scenario: its sets, and the tasks of a set.
    pub tasks: Vec<Task>,
    /// How long these waited for a CPU.
    pub waits: Waits,
    /// By how much each counter of Tandem rose meanwhile; all tasks of the system count.
    pub counters: BTreeMap<String, u64>,
    /// The activity of all other tasks of the system that ran; the simulator has only the scenario's.
    pub others: Vec<Other>,
    /// How often a task of the program was woken and then the next on a CPU that had been idle.
    pub idle_wakes: u64,
    /// From these wake-ups to when it was on the CPU, in all, ns.
    pub idle_wake_ns: u64,
    /// The longest time in which a newly idle CPU searched each of its domains, as the kernel remembers it
    /// (`max_newidle_lb_cost`), ns: means over all CPUs, the smallest domain first. Of the kernel's own
    /// scheduler only.
    pub search_ns: Vec<u64>,
}

/// What a task did.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Task {
    /// The name of its set, and its number in it: `burners-0/3`.
    pub name: String,
    /// From the start of the program to when it first ran, ns.
    pub start_ns: u64,
    /// On which CPU that was.
    pub start_cpu: usize,
    /// Time on each CPU, ns.
    pub run_ns: Vec<u64>,
    /// How often it left a CPU because it slept, waited or ended.
    pub blocked: u64,
    /// How often it left a CPU though it could have gone on: its slice was over, another preempted it, or it
    /// yielded.
    pub runnable: u64,
    /// How often it continued on another CPU than before.
    pub migrations: u64,
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tandem => "Tandem",
            Self::Eevdf => "EEVDF",
            Self::Object(name) => name,
        })
    }
}

/// How long tasks waited: each time from when one woke up, or lost its CPU though it could have gone on, to
/// when it was on a CPU. What comes before a task first runs does not count, nor does a wait after a wake-up
/// that came before the task had left its CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Waits {
    /// How many there were.
    pub count: u64,
    /// The median, ns; 0 if there were none.
    pub median_ns: u64,
    /// The 99th percentile, ns; 0 if there were none.
    pub p99_ns: u64,
}

/// The activity of a task that does not belong to the program.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Other {
    /// The kernel's name of it.
    pub name: String,
    /// Its nice value.
    pub nice: i32,
    /// Each time that it woke up.
    pub bursts: Vec<Burst>,
}

/// A task wakes up, runs and sleeps again.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Burst {
    /// From the start of the program to the wake-up, ns.
    pub at_ns: u64,
    /// How long it ran, ns.
    pub run_ns: u64,
}

impl Record {
    /// What all tasks of a set did together.
    pub fn of_set(&self, set: &str) -> Task {
        let mut sum = Task { name: set.into(), ..Task::default() };
        for task in &self.tasks {
            if task.name.rsplit_once('/').is_some_and(|(name, _)| name == set) {
                sum.run_ns.resize(task.run_ns.len(), 0);
                sum.run_ns.iter_mut().zip(&task.run_ns).for_each(|(sum, ns)| *sum += ns);
                sum.blocked += task.blocked;
                sum.runnable += task.runnable;
                sum.migrations += task.migrations;
            }
        }
        sum
    }
}

impl Waits {
    /// The summary of these, ns.
    pub fn of(mut waits_ns: Vec<u64>) -> Self {
        waits_ns.sort_unstable();
        // The least that this share of all does not exceed.
        let percentile = |pct: usize| {
            let rank = (waits_ns.len() * pct).div_ceil(100);
            rank.checked_sub(1).map_or(0, |at| waits_ns[at])
        };
        Self { count: waits_ns.len() as u64, median_ns: percentile(50), p99_ns: percentile(99) }
    }
}

impl Task {
    /// Context switches away from it.
    pub fn switches(&self) -> u64 {
        self.blocked + self.runnable
    }

    /// Time on all CPUs, ns.
    pub fn total_ns(&self) -> u64 {
        self.run_ns.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_waits_themselves() {
        assert_eq!(Waits::of(Vec::new()), Waits::default());
        assert_eq!(Waits::of(vec![7]), Waits { count: 1, median_ns: 7, p99_ns: 7 });
        assert_eq!(Waits::of((1..=200).rev().collect()), Waits { count: 200, median_ns: 100, p99_ns: 198 });
    }

    #[test]
    fn a_set_is_all_tasks_of_that_name() {
        let task = |name: &str, run_ns: [u64; 2], blocked, migrations| Task {
            name: name.into(),
            run_ns: run_ns.into(),
            blocked,
            runnable: 10,
            migrations,
            ..Task::default()
        };
        let tasks =
            vec![task("a-1/0", [1, 2], 3, 4), task("a-1/1", [10, 20], 30, 40), task("a-10/0", [7, 7], 7, 7)];
        let record = Record { tasks, ..Record::default() };
        let sum = record.of_set("a-1");
        assert_eq!(
            (sum.run_ns.clone(), sum.blocked, sum.runnable, sum.migrations),
            (vec![11, 22], 33, 20, 44)
        );
        assert_eq!((sum.switches(), sum.total_ns()), (53, 33));
    }
}
