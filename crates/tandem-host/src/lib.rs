//! The real machine: what it is, and the scheduler that runs on it.

pub mod cgroups;
#[cfg(feature = "scheduler")]
pub mod doctor;
pub mod mounts;
#[cfg(feature = "scheduler")]
pub mod scheduler;
pub mod tasks;
pub mod topology;
