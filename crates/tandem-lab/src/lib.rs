//! Experiments with their published tables, statistics and reports.

pub mod calibrate;
pub mod check;
pub mod compare;
pub mod evaluate;
pub mod experiment;
pub mod latency;
pub mod library;
pub mod machine_file;
pub mod measure;
pub mod precision;
pub mod published;
pub mod report;
pub mod request;
pub mod results;
pub mod runner;
pub mod scenario;
pub mod schema;
pub mod simulate;
pub mod stat;
pub mod statistics;
pub mod summary;
pub mod switchback;
pub mod tables;
pub mod trace;
pub mod twin;
pub mod xentrace;
