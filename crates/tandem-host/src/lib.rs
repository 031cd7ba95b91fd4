//! The real machine: what it is, and the scheduler that runs on it.

pub mod scheduler;
pub mod topology;
