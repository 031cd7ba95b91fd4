//! CPU times and waits of tasks, by the clocks of the CPUs for which they wait.

use super::cpus::OwnTimes;
use super::tasks::{self, Usage};
use super::wait;
use anyhow::Result;
use std::time::Duration;

/// The CPU time of a thread.
#[derive(Debug, Clone, Copy)]
pub struct Got {
    /// Its accounting, of the time in which it was watched.
    pub usage: Usage,
    /// The longest time that it did not run, by the clock of the CPU that ran longest meanwhile. It is too
    /// long by up to two samples.
    pub longest_wait: Duration,
}

/// Watches threads that never sleep until each of these CPUs, which they may use, has run that long by its
/// own clock.
pub fn watch(threads: &[u32], cpus: &[u32], time: Duration) -> Result<Vec<Got>> {
    struct Watched {
        begin: Usage,
        last: Usage,
        ran_at: OwnTimes,
        longest_wait: Duration,
    }
    let begin = OwnTimes::read()?;
    let watched = threads.iter().map(|&thread| {
        let usage = tasks::usage(thread)?;
        Ok(Watched { begin: usage, last: usage, ran_at: begin.clone(), longest_wait: Duration::ZERO })
    });
    let mut watched = watched.collect::<Result<Vec<_>>>()?;
    wait::until("that CPUs run for some seconds", || {
        let now = OwnTimes::read()?;
        for (&thread, watched) in threads.iter().zip(&mut watched) {
            let usage = tasks::usage(thread)?;
            let wait = now.since(&watched.ran_at, cpus).max().unwrap_or_default();
            watched.longest_wait = watched.longest_wait.max(wait);
            if usage.run_ns != watched.last.run_ns {
                watched.ran_at = now.clone();
            }
            watched.last = usage;
        }
        Ok(now.since(&begin, cpus).all(|ran| ran >= time).then_some(()))
    })?;
    let got = |watched: Watched| Got {
        usage: watched.last.since(&watched.begin),
        longest_wait: watched.longest_wait,
    };
    Ok(watched.into_iter().map(got).collect())
}
