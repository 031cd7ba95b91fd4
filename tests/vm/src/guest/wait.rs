//! Waiting for things that take a while on slow emulated CPUs.

use anyhow::{Result, bail};
use std::thread;
use std::time::{Duration, Instant};

/// After how long something that should happen soon is given up. An emulated CPU may not run for seconds.
pub const LIMIT: Duration = Duration::from_secs(60);

const POLL: Duration = Duration::from_millis(20);

/// Waits until there is an answer; fails after [`LIMIT`], saying what was waited for.
pub fn until<T>(what: &str, mut answer: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(answer) = answer()? {
            return Ok(answer);
        }
        if start.elapsed() > LIMIT {
            bail!("{what} did not happen within {} s", LIMIT.as_secs());
        }
        thread::sleep(POLL);
    }
}
