//! Waiting for things that take a while on slow emulated CPUs.
//!
//! The time of anything depends on the other work of the machine, so no wait has a limit in time. A wait is
//! given up after a number of checks, for each of which the guest has to wake this process and run it: where
//! the machine gives QEMU little, checks are as slow as what they wait for. A caller that needs something
//! *soon* limits what the guest may do meanwhile.

use anyhow::{Result, bail};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two checks, and its least multiple of the time of a check: where CPUs are slow, checks must
/// not keep them busy.
const POLL: Duration = Duration::from_millis(20);
const POLL_PER_LOOK: u32 = 4;
const POLL_MAX: Duration = Duration::from_secs(1);

/// After this many checks a wait is given up: at least seven minutes. It only ends what hangs, and is four
/// times the maximum that was ever seen: 5,000, of some hundred wake-ups with a load of 20 on two CPUs. Two
/// that hang must leave CI the time to report it.
const LOOKS_MAX: u32 = 20_000;

/// Waits until there is an answer; fails after [`LOOKS_MAX`] checks, and names what it waited for.
pub fn until<T>(what: &str, mut answer: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    for _ in 0..LOOKS_MAX {
        let begin = Instant::now();
        if let Some(answer) = answer()? {
            return Ok(answer);
        }
        thread::sleep((POLL_PER_LOOK * begin.elapsed()).clamp(POLL, POLL_MAX));
    }
    bail!("{what} did not happen while this was looked for {LOOKS_MAX} times")
}
