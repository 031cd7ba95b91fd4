//! Searches for the case that breaks a promise of a scheduler.
//!
//! Problem: a scheduler that does well in every known case fails in one that nobody thought of.
//!
//! Approach: draw scenarios ([`generate`]), write them as files ([`plan`]), run them with the compiled object
//! as a kernel would load it, follow the run by its events alone ([`follow`]), and judge it by the
//! [`promises`], with fair shares from an independent [`oracle`] ([`judge`]). A case that breaks a promise is
//! made small ([`mod@shrink`]) and written to a file ([`report`]).
//!
//! Limits: the search finds faults that the simulator can express; races between CPUs within one decision are
//! not among these. A search without a finding proves nothing.

pub mod facts;
pub mod follow;
pub mod generate;
pub mod judge;
mod kept;
pub mod oracle;
pub mod plan;
pub mod promises;
pub mod report;
pub mod search;
pub mod shrink;
#[cfg(test)]
mod tests;
