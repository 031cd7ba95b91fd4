//! Experiments with their published tables, statistics and reports.

pub mod file_error;
pub mod machine_file;
pub mod results;
pub mod units;
