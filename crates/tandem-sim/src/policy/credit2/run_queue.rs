//! A run queue: the CPUs that share it, the vCPUs that are assigned to it, and those that wait in it.

use super::load::QueueLoad;
use tandem_machine::cpumask::CpuMask;
use tandem_machine::ids::{CpuId, TaskId};

/// The vCPUs of some CPUs (`struct csched2_runqueue_data`).
#[derive(Clone, Debug)]
pub(super) struct RunQueue {
    /// The CPUs that run vCPUs of this queue.
    pub cpus: CpuMask,
    /// Number of these.
    pub cpu_count: i64,
    /// The vCPUs that wait, by credit: the first has most; of equal ones, the first came first.
    pub waiting: Vec<TaskId>,
    /// All vCPUs of this queue, also those that sleep, in the order in which they were assigned.
    pub assigned: Vec<TaskId>,
    /// The largest weight of these.
    pub weight_max: i64,
    pub load: QueueLoad,
    /// The CPU that a vCPU was last assigned by: the next one gets the next.
    pub pick_bias: CpuId,
}

impl RunQueue {
    pub fn new(cpus: CpuMask) -> Self {
        let first = cpus.iter().next();
        Self {
            cpu_count: cpus.count() as i64,
            pick_bias: first.unwrap_or(CpuId(0)),
            cpus,
            waiting: Vec::new(),
            assigned: Vec::new(),
            weight_max: 1,
            load: QueueLoad::default(),
        }
    }
}
