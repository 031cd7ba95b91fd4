//! Searches for the case that breaks a promise of a scheduler.
//!
//! Problem: a scheduler that does well in every case that somebody named breaks in those that nobody named.
//!
//! Approach: draw scenarios ([`generate`]), write them as files ([`plan`]), run them with the compiled object as a kernel would
//! load it, follow what happens by the events alone ([`follow`]), and judge that by [`promises`], with what is fair from an
//! [`oracle`] of its own ([`judge`]). What breaks a promise is made small ([`mod@shrink`]) and written down ([`report`]).
//!
//! Limits: it finds what breaks in the simulator; races between CPUs within one decision are not among that. That nothing is
//! found proves nothing.

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
