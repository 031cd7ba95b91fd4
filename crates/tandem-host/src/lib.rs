//! The real machine: what it is, the virtual machines on it, and the scheduler that runs it.

pub mod cgroups;
#[cfg(feature = "scheduler")]
pub mod scheduler;
pub mod tasks;
pub mod topology;
pub mod vms;
