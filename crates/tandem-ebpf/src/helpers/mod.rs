//! Helpers and kfuncs that need no kernel, by name.
//!
//! They return the same as the kernel's, with negative error numbers. A [`Fault`] is what a verifier would
//! refuse.

mod arenas;
pub(crate) mod format;
mod graphs;
mod held;
pub(crate) mod loops;
mod maps;
mod objects;
mod perf_events;
mod probing;
mod ring_buffers;
#[cfg(test)]
mod tests;
mod timers;
mod variables;

use crate::fault::Fault;
use crate::runtime::Run;
pub(crate) use held::Held;
pub(crate) use maps::CREATE as STORAGE_CREATE;
pub(crate) use timers::Timer;

/// A function of the runtime: arguments r1 to r5, the caller's frame pointer, r0.
pub(crate) type Helper = fn(&mut Run, [u64; 5], u64) -> Result<u64, Fault>;

/// Names and functions.
type Table = &'static [(&'static str, Helper)];

const TABLES: &[Table] = &[
    maps::TABLE,
    objects::TABLE,
    graphs::TABLE,
    ring_buffers::TABLE,
    perf_events::TABLE,
    arenas::TABLE,
    loops::TABLE,
    held::TABLE,
    probing::TABLE,
    format::TABLE,
    timers::TABLE,
    variables::TABLE,
];

/// The name of a function, if the runtime has it.
pub(crate) fn is_runtime(name: &str) -> Option<&'static str> {
    find(name).map(|entry| entry.0)
}

/// The function of a name.
pub(crate) fn helper(name: &str) -> Option<Helper> {
    find(name).map(|entry| entry.1)
}

fn find(name: &str) -> Option<&'static (&'static str, Helper)> {
    TABLES.iter().copied().flatten().find(|entry| entry.0 == name)
}
