//! Computes a study's points on the threads of this machine.

use super::{Job, Shard, Shards, ShardsError, Study, task};
use rayon::iter::{ParallelBridge, ParallelIterator};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Why a study ended early.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// A result cannot be kept.
    #[error(transparent)]
    Shards(#[from] ShardsError),
    /// A point cannot be computed here.
    #[error("{0}")]
    Point(String),
}

/// Computes the jobs, so many at a time, and adds what is done to the folder. `done` is called at the end of each point.
///
/// When `cancel` becomes true, runs end in the middle; the points that were done by then are kept.
///
/// # Errors
/// If a result cannot be kept, or a point is another one than the job means; the others are kept.
pub fn run(
    study: &Study,
    jobs: Vec<Job>,
    shards: &mut Shards,
    threads: NonZeroUsize,
    cancel: &AtomicBool,
    done: &(dyn Fn() + Sync),
) -> Result<(), StudyError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.get()).build();
    let pool = pool.map_err(|error| {
        StudyError::Point(format!("cannot start threads for the jobs: {error}; try fewer with --jobs"))
    })?;
    let shards = Mutex::new(shards);
    let one = |job: Job| -> Result<(), StudyError> {
        if cancel.load(Ordering::Relaxed) {
            return Ok(());
        }
        let points = task::compute(study, &job, cancel, done).map_err(StudyError::Point)?;
        if points.is_empty() {
            return Ok(());
        }
        let shard = Shard::new(&points);
        Ok(shards.lock().unwrap_or_else(PoisonError::into_inner).add(&shard)?)
    };
    // In order, so that what was interrupted has its first points.
    pool.install(|| jobs.into_iter().par_bridge().try_for_each(one))
}
