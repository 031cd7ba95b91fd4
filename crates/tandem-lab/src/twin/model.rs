//! The model of a recording: programs with their dependencies.

use super::grouping::Group;
use std::ops::AddAssign;

/// What tasks of a recording did and waited for, whatever scheduler they had.
#[derive(Clone, Debug, Default)]
pub struct Model {
    /// The tasks that were there, in the order in which the recording met them.
    pub tasks: Vec<ModelTask>,
    /// Names of the groups that they are in, of which no two are the same.
    pub groups: Vec<String>,
    /// What makes each of these.
    pub kinds: Vec<Group>,
    /// How many gates they have.
    pub gates: u32,
    /// Wake-ups by what caused them.
    pub wakeups: Wakeups,
    /// Turns whose end the recording does not have: another task left the CPU.
    pub breaks: u64,
    /// Length of the recording, ns.
    pub length_ns: u64,
    /// In a guest, time in which its tasks had vCPUs that slept in the host, as they do until a device has been
    /// emulated, ns.
    pub stalled_ns: u64,
}

/// A task of a model.
#[derive(Clone, Debug, Default)]
pub struct ModelTask {
    /// Its position among the tasks of the recording.
    pub recorded: usize,
    /// Its group, by position.
    pub group: usize,
    /// The CPU that it ran on first, by the kernel's number, if it was there from the start.
    pub first_cpu: Option<u32>,
    /// It was forked by a task of the recording, while that went on.
    pub is_forked: bool,
    /// What it did.
    pub steps: Vec<Step>,
    /// What it does after its steps.
    pub end: End,
    /// Its wake-ups by what caused them.
    pub wakeups: Wakeups,
}

/// What a task did when the recording ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// It had ended.
    Ended,
    /// It waited, or was about to.
    #[default]
    Waits,
    /// It computed, or wanted to, and had done so for long: it would have gone on.
    GoesOn,
}

/// What a task does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It computes for that long, ns.
    Work(u64),
    /// It waits.
    Wait(Wait),
    /// It does what the task behind a gate waits for.
    Open {
        /// The gate.
        gate: u32,
        /// As one that writes to a pipe or a socket: it tells the scheduler that it is about to wait.
        sync: bool,
    },
    /// It forks a task, by position in [`Model::tasks`].
    Fork(u32),
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// For something that another task does.
    Gate(u32),
    /// For a time, ns: a timer that it has set, or the answer of a device.
    For(u64),
    /// Until a time, ns since the start of the recording: a clock, or the world outside.
    Until(u64),
}

/// How many wake-ups had which cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wakeups {
    /// Another task.
    pub by_tasks: u64,
    /// A timer.
    pub by_timers: u64,
    /// A device, or the network.
    pub by_devices: u64,
    /// Not known.
    pub unknown: u64,
}

impl Wakeups {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.by_tasks + self.by_timers + self.by_devices + self.unknown
    }

    /// Share whose cause is known, percent; 100 of none.
    pub fn attributed_pct(&self) -> f64 {
        match self.total() {
            0 => 100.0,
            total => 100.0 * (total - self.unknown) as f64 / total as f64,
        }
    }
}

impl AddAssign for Wakeups {
    fn add_assign(&mut self, other: Self) {
        self.by_tasks += other.by_tasks;
        self.by_timers += other.by_timers;
        self.by_devices += other.by_devices;
        self.unknown += other.unknown;
    }
}
