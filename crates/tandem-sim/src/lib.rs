//! A discrete-event simulator of machines, schedulers, and the work on them.
//!
//! The pieces, from the hardware up:
//!
//! ```text
//! cost       what things cost on a machine: caches, memory, interrupts, locks
//! engine     clock, event queue, random streams
//! kernel     one scheduling level, the host's or a guest's: CPUs, tasks, and a policy that decides
//! policy     the deciding code: Xen credit; Linux CFS and EEVDF; compiled schedulers for sched_ext
//! program    what a task does, operation by operation
//! scenario   all of the above put together, checked before it runs
//! trace      scheduling events, for observers
//! metrics    what a run measured
//! times      distributions of times among that
//! ```
//!
//! This crate knows no file format, no terminal, and no published number. Time is in integer nanoseconds; the
//! same scenario and seed give the same run, event by event, on every machine.

pub mod cost;
mod engine;
mod kernel;
pub mod metrics;
pub mod policy;
pub mod program;
pub mod scenario;
pub mod times;
pub mod trace;

pub use engine::{RunError, run, run_observed};
