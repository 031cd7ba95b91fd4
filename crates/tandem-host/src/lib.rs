//! The real machine: what it is, and the scheduler that runs on it.

pub mod cgroups;
pub mod scheduler;
pub mod tasks;
pub mod topology;
