//! The scheduler's state of a task.

use super::load::TaskAverages;
use super::member::GroupId;
use crate::scenario::TaskPolicy;
use tandem_machine::ids::CpuId;

/// Weight at nice 0 (`NICE_0_LOAD`, without the bits that 64-bit kernels add for precision).
pub(in crate::policy::linux) const NICE_0_WEIGHT: u32 = 1024;

/// Weights of nice -20 to 19 (`sched_prio_to_weight`): a step is a factor of about 1.25, so that it changes
/// the time that one of two tasks gets by about 10 percent.
const WEIGHTS: [u32; 40] = [
    88761, 71755, 56483, 46273, 36291, 29154, 23254, 18705, 14949, 11916, // -20 to -11
    9548, 7620, 6100, 4904, 3906, 3121, 2501, 1991, 1586, 1277, // -10 to -1
    1024, 820, 655, 526, 423, 335, 272, 215, 172, 137, // 0 to 9
    110, 87, 70, 56, 45, 36, 29, 23, 18, 15, // 10 to 19
];

/// Weight of a task of this nice value; nice values are clamped to -20 and 19.
pub fn weight_of_nice(nice: i8) -> u32 {
    WEIGHTS[(nice.clamp(-20, 19) + 20) as usize]
}

/// A task as the queues see it (`struct sched_entity` and a part of `struct task_struct`).
#[derive(Clone, Debug)]
pub(in crate::policy::linux) struct Entity {
    /// Its share against other tasks: 1024 at nice 0.
    pub weight: u32,
    pub policy: TaskPolicy,
    pub group: GroupId,
    /// The CPU that it runs on, or is queued on, or was on last.
    pub cpu: CpuId,
    /// It has not been in a queue yet.
    pub is_new: bool,
    /// It is in the queue of its CPU; a task that runs is not.
    pub queued: bool,
    /// It blocked while it was ahead of its share, and stays in the queue until it has paid for that
    /// (`DELAY_DEQUEUE`).
    pub delayed: bool,
    /// It has begun to exit (`PF_EXITING`).
    pub exiting: bool,
    /// Time up to which its run time is charged, on the task clock of its CPU, ns.
    pub exec_start_ns: u64,
    /// Position in the list of its CPU's tasks that balancing walks: the larger, the nearer to the head.
    pub list_position: u64,
    /// Averages of its load and its use of CPUs.
    pub averages: TaskAverages,
}

impl Entity {
    /// A task that has never run, born on this CPU.
    pub fn new(weight: u32, policy: TaskPolicy, group: GroupId, cpu: CpuId) -> Self {
        Self {
            weight: weight.max(1),
            policy,
            group,
            cpu,
            is_new: true,
            queued: false,
            delayed: false,
            exiting: false,
            exec_start_ns: 0,
            list_position: 0,
            averages: TaskAverages::default(),
        }
    }
}

/// `value` x `numerator` / `denominator`, rounded down, with no overflow on the way.
pub(in crate::policy::linux) fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    match value.checked_mul(numerator) {
        Some(product) => product / denominator,
        None => (u128::from(value) * u128::from(numerator) / u128::from(denominator)) as u64,
    }
}
