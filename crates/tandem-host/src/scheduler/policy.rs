//! Which of the kernel's schedulers has a task: the boundary to sched_getscheduler(2), sched_setscheduler(2)
//! and sched_getattr(2).
//!
//! Every user may give their own tasks the policy `SCHED_EXT`, with which the loaded sched_ext scheduler has
//! them; other users' tasks require `CAP_SYS_NICE` (`user_check_sched_setscheduler()` in the kernel's
//! `kernel/sched/syscalls.c`). The nice value and the slice stay when the policy changes, and so does the
//! flag `SCHED_RESET_ON_FORK` if the caller passes it on.
//!
//! This is unsafe code, because no library in use has these calls. It passes numbers and a structure to the
//! kernel, and takes one from it.
#![allow(unsafe_code)]

use crate::tasks::Tid;
use nix::libc;
use rustix::io::Errno;

/// `SCHED_EXT` of the kernel's `include/uapi/linux/sched.h`.
const SCHED_EXT: libc::c_int = 7;

/// A scheduling policy of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// `SCHED_OTHER`: the default.
    Other,
    /// `SCHED_BATCH`.
    Batch,
    /// `SCHED_IDLE`, in which the nice value has no effect.
    Idle,
    /// `SCHED_EXT`.
    Ext,
    /// One of the real-time and deadline classes, which run before all of these.
    Higher,
}

/// The policy of a task, with its flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskPolicy {
    /// The policy.
    pub policy: Policy,
    /// The flag `SCHED_RESET_ON_FORK`: children begin without a real-time policy or a nice value below 0.
    pub is_reset_on_fork: bool,
}

/// Reads and changes policies of tasks.
pub trait Policies {
    /// The policy of a task.
    ///
    /// # Errors
    /// If the task is gone, or may not be queried.
    fn policy(&self, tid: Tid) -> Result<TaskPolicy, Errno>;

    /// Sets the policy of a task, except [`Policy::Higher`].
    ///
    /// # Errors
    /// If the task is gone, or the kernel refuses.
    fn set_policy(&self, tid: Tid, policy: TaskPolicy) -> Result<(), Errno>;
}

/// The policies of this machine's tasks.
#[derive(Clone, Copy, Debug)]
pub struct KernelPolicies;

impl Policies for KernelPolicies {
    fn policy(&self, tid: Tid) -> Result<TaskPolicy, Errno> {
        // SAFETY: The call takes a number and returns one.
        let answer = unsafe { libc::sched_getscheduler(tid.get() as i32) };
        if answer < 0 {
            return Err(Errno::from_raw_os_error(nix::errno::Errno::last_raw()));
        }
        let policy = match answer & !libc::SCHED_RESET_ON_FORK {
            libc::SCHED_OTHER => Policy::Other,
            libc::SCHED_BATCH => Policy::Batch,
            libc::SCHED_IDLE => Policy::Idle,
            SCHED_EXT => Policy::Ext,
            _ => Policy::Higher,
        };
        Ok(TaskPolicy { policy, is_reset_on_fork: answer & libc::SCHED_RESET_ON_FORK != 0 })
    }

    fn set_policy(&self, tid: Tid, policy: TaskPolicy) -> Result<(), Errno> {
        let number = match policy.policy {
            Policy::Other => libc::SCHED_OTHER,
            Policy::Batch => libc::SCHED_BATCH,
            Policy::Idle => libc::SCHED_IDLE,
            Policy::Ext => SCHED_EXT,
            Policy::Higher => return Err(Errno::INVAL),
        };
        let flag = if policy.is_reset_on_fork { libc::SCHED_RESET_ON_FORK } else { 0 };
        let none = libc::sched_param { sched_priority: 0 };
        // SAFETY: The kernel reads the structure, which outlives the call.
        let answer = unsafe { libc::sched_setscheduler(tid.get() as i32, number | flag, &raw const none) };
        if answer < 0 { Err(Errno::from_raw_os_error(nix::errno::Errno::last_raw())) } else { Ok(()) }
    }
}

/// The slice of a task of the fair class, ns; `None` if it is of another class, is gone, or the kernel is
/// older than Linux 6.12, where tasks have no slices of their own.
pub fn slice_ns(tid: Tid) -> Option<u64> {
    let mut answer = SchedAttr::default();
    let size = u32::try_from(size_of::<SchedAttr>()).ok()?;
    // SAFETY: The kernel writes at most `size` bytes to the structure, which outlives the call.
    let result = unsafe { libc::syscall(libc::SYS_sched_getattr, tid.get(), &raw mut answer, size, 0) };
    let is_fair = [libc::SCHED_OTHER, libc::SCHED_BATCH, libc::SCHED_IDLE]
        .iter()
        .any(|&policy| u32::try_from(policy) == Ok(answer.policy));
    (result == 0 && is_fair && answer.runtime > 0).then_some(answer.runtime)
}

/// `struct sched_attr` of the kernel's `include/uapi/linux/sched/types.h`, in its first version, which all
/// kernels fill.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    /// Of a task of the fair class, its slice.
    runtime: u64,
    deadline: u64,
    period: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn policies_are_read_and_set() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let tid = Tid::new(child.id()).unwrap();
        let of = |policy, is_reset_on_fork| TaskPolicy { policy, is_reset_on_fork };
        assert_eq!(KernelPolicies.policy(tid), Ok(of(Policy::Other, false)));
        for policy in [of(Policy::Other, true), of(Policy::Batch, false), of(Policy::Idle, true)] {
            KernelPolicies.set_policy(tid, policy).unwrap();
            assert_eq!(KernelPolicies.policy(tid), Ok(policy));
        }
        assert_eq!(KernelPolicies.set_policy(tid, of(Policy::Higher, false)), Err(Errno::INVAL));

        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(KernelPolicies.policy(tid), Err(Errno::SRCH));
        assert_eq!(KernelPolicies.set_policy(tid, of(Policy::Other, false)), Err(Errno::SRCH));
    }
}
