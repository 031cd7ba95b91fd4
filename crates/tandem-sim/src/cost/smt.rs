//! Sharing a core between its hardware threads.
//!
//! A thread whose sibling is busy gets less of the core. Only the core-bound part of the work is slowed: a
//! thread that waits for memory does not need the core. Limit: the kind of work on the sibling makes no
//! difference.

/// Slow-down by a busy sibling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smt {
    /// Time that core-bound work takes with a busy sibling, relative to alone on the core; at least 1.
    pub slowdown: f64,
}

impl Default for Smt {
    /// Calibrated on published baseline cells: flat-domain, host e5620-16, vanilla, UnixBench dhrystone at 8
    /// copies (a core each) and at 16 (a thread each). A core with two busy threads does 18927.7 / 15691.5 =
    /// 1.206 times the integer work of one, so that each thread takes 2 / 1.206 = 1.658 times as long.
    /// (Whetstone, floating point, would give 1.227; a program can have its own in its memory profile.)
    ///
    /// That 8 copies have a core each is an assumption: the experiment flat-domain, which takes one copy
    /// against 16 instead, finds 1.99 for dhrystone and 1.28 for whetstone. This value stays for programs
    /// without one of their own, because other experiments were calibrated with it.
    fn default() -> Self {
        Self { slowdown: 1.658 }
    }
}
