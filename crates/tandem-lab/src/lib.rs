//! Experiments with their published tables, statistics and reports.

pub mod report;
pub mod results;
