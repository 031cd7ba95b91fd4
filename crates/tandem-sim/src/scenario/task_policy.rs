//! Linux's scheduling policies for tasks that are not real-time ones.

use crate::policy::linux::weight_of_nice;

/// The scheduling policy of a task (`SCHED_NORMAL` and so on). Its children inherit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TaskPolicy {
    /// It may preempt another task when it wakes up.
    #[default]
    Normal,
    /// It does not preempt others when it wakes up.
    Batch,
    /// Nor does this one, which has very little weight, whatever its nice value; other tasks preempt it.
    Idle,
}

impl TaskPolicy {
    /// Weight of a task with [`TaskPolicy::Idle`] (`WEIGHT_IDLEPRIO`).
    const IDLE_WEIGHT: u32 = 3;

    /// Weight of a task with this policy and nice value (`set_load_weight()`).
    pub fn weight(self, nice: i8) -> u32 {
        match self {
            Self::Normal | Self::Batch => weight_of_nice(nice),
            Self::Idle => Self::IDLE_WEIGHT,
        }
    }

    /// The kernel's number of it.
    pub fn number(self) -> u32 {
        match self {
            Self::Normal => 0,
            Self::Batch => 3,
            Self::Idle => 5,
        }
    }

    /// The policy with that number, if it is one of these.
    pub fn of_number(number: u32) -> Option<Self> {
        [Self::Normal, Self::Batch, Self::Idle].into_iter().find(|policy| policy.number() == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_load_weight_gives_idle_tasks_3_whatever_their_nice_value() {
        for nice in [-20, 0, 19] {
            assert_eq!(TaskPolicy::Batch.weight(nice), weight_of_nice(nice));
            assert_eq!(TaskPolicy::Idle.weight(nice), 3);
        }
        let numbers = [0, 1, 2, 3, 4, 5, 6, 7].map(TaskPolicy::of_number);
        let [normal, batch, idle] = [TaskPolicy::Normal, TaskPolicy::Batch, TaskPolicy::Idle].map(Some);
        assert_eq!(numbers, [normal, None, None, batch, None, idle, None, None]);
    }
}
