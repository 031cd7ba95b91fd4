//! The real machine.

pub mod topology;
