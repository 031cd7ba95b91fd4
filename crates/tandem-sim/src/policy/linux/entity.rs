//! What the scheduler knows of a task.

use crate::ids::{CpuId, TaskId};
use crate::policy::linux::load::TaskAverages;

/// A task as the fair scheduler sees it (`struct sched_entity` and a part of `struct task_struct`).
#[derive(Clone, Debug)]
pub(super) struct Entity {
    /// Its share against other tasks: 1024 at nice 0.
    pub weight: u32,
    /// The CPU that it runs on, or is queued on, or was on last.
    pub cpu: CpuId,
    /// Waits in the queue of its CPU; a task that runs does not.
    pub queued: bool,
    /// EEVDF: it blocked while it was ahead of its share, and stays in the queue until it has paid for that.
    pub delayed: bool,
    /// Virtual time that it has run for: real time divided by weight, ns at nice 0.
    pub vruntime: i64,
    /// EEVDF: virtual time by which its present slice should be done.
    pub deadline: i64,
    /// EEVDF: `deadline` counts from `vruntime`, as it is between two queues.
    pub deadline_is_relative: bool,
    /// EEVDF: how far its virtual time was behind the average when it left its queue, ns at nice 0; ahead if negative.
    pub lag: i64,
    /// EEVDF: the deadline that it had when it was chosen; it goes on until that one is reached.
    pub chosen_deadline: i64,
    /// Up to when, on the task clock of its CPU, its run time is charged, ns; while it runs.
    pub exec_start_ns: u64,
    /// Run time in all, ns.
    pub sum_exec_ns: u64,
    /// Run time in all when it was last chosen, ns.
    pub prev_sum_exec_ns: u64,
    /// When it last left a CPU or ran on it while charged, ns of simulated time: for telling whether it is cache-hot.
    pub last_ran_ns: u64,
    /// Position in the list of its CPU's tasks that balancing walks: the larger, the nearer to the head.
    pub list_position: u64,
    /// How the load and use of CPU by it are tracked.
    pub averages: TaskAverages,
    /// How often it woke another task than the time before, halved every second.
    pub wakee_flips: u32,
    /// The task that it woke last.
    pub last_wakee: Option<TaskId>,
    /// When the flips were last halved, ns.
    pub wakee_flip_decay_ns: u64,
    /// 6.12: where it was before its present CPU (`recent_used_cpu`).
    pub recent_used_cpu: CpuId,
}

impl Entity {
    /// A task that has never run.
    pub fn new(weight: u32) -> Self {
        Self {
            weight: weight.max(1),
            cpu: CpuId(0),
            queued: false,
            delayed: false,
            vruntime: 0,
            deadline: 0,
            deadline_is_relative: false,
            lag: 0,
            chosen_deadline: 0,
            exec_start_ns: 0,
            sum_exec_ns: 0,
            prev_sum_exec_ns: 0,
            last_ran_ns: 0,
            list_position: 0,
            averages: TaskAverages::default(),
            wakee_flips: 0,
            last_wakee: None,
            wakee_flip_decay_ns: 0,
            recent_used_cpu: CpuId(0),
        }
    }
}
