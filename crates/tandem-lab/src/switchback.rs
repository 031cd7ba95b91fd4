//! Trials on a live machine, in which schedulers take turns: the plan, the file of its state, the analysis
//! and the report.
//!
//! Nothing here touches a machine: the command joins it with what loads schedulers and measures. The
//! statistics are in [`crate::statistics::switchback`].

pub mod analysis;
pub mod file;
mod plan;
pub mod record;
pub mod report;

pub use plan::Plan;
