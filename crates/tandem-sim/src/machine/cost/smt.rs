//! Sharing a core between its hardware threads.
//!
//! A thread whose sibling is busy gets less of the core. Only the core-bound part of the work is slowed: a
//! thread that waits for memory does not need the core. Limit: what the sibling does makes no difference.

/// Slow-down by a busy sibling.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Smt {
    /// Time that core-bound work takes with a busy sibling, against alone on the core; at least 1.
    pub slowdown: f64,
}

impl Default for Smt {
    /// Calibrated on published baseline cells: flat-domain, host e5620-16, vanilla, UnixBench dhrystone and whetstone
    /// at 8 copies (a core each) and 16 (a thread each). A core with two busy threads does 1.206 and 1.630 times
    /// the work; the geometric mean is 1.402, and each thread takes 2 / 1.402 = 1.427 times as long.
    fn default() -> Self {
        Self { slowdown: 1.427 }
    }
}
