//! Cost of waking an idle CPU.
//!
//! An idle CPU sleeps; it takes a while until it handles the interrupt that ends its idling. Limit: one sleep
//! state, whatever the length of the idle time.

/// Cost of waking an idle CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// From the interrupt to the first instruction of its handler, ns.
    pub exit_ns: u64,
}
