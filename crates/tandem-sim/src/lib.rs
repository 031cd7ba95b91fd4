//! A discrete-event simulator of machines, schedulers, and the work on them.
//!
//! The pieces, from the hardware up:
//!
//! ```text
//! machine    what there is: CPUs, caches, memory, and what things cost
//! engine     clock, event queue, random streams
//! kernel     one scheduling level, the host's or a guest's: CPUs, tasks, and a policy that decides
//! policy     the deciding code: Xen credit; Linux CFS and EEVDF
//! program    what a task does, operation by operation
//! scenario   all of the above put together, checked before it runs
//! trace      scheduling events, for whoever follows a run
//! metrics    what a run measured
//! placement  which NUMA nodes a new VM should live on
//! homes      the same while VMs come, go, and work more or less
//! ```
//!
//! This crate knows no file format, no terminal, and no published number. Time is in integer nanoseconds; the
//! same scenario and seed give the same run, event by event, on every machine.

pub mod cpumask;
mod engine;
pub mod homes;
pub mod ids;
mod kernel;
pub mod machine;
pub mod metrics;
pub mod placement;
pub mod policy;
pub mod program;
pub mod scenario;
pub mod trace;

pub use engine::{RunError, run, run_observed};
