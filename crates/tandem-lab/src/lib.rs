//! Experiments with their published tables, statistics and reports.

pub mod results;
pub mod xentrace;
