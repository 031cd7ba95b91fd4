//! Experiments with their published tables, statistics and reports.

pub mod file_error;
pub mod results;
pub mod units;
