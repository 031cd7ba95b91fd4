//! Work that takes long, for a Python program.
//!
//! **Approach.** The work runs in a thread of its own without the interpreter's lock, so that other Python threads go
//! on. The calling thread looks every [`TICK`] whether a signal came, and reports how far the work is. Ctrl-C, or an
//! exception of the reporting function, ends runs in the middle.

use crate::error::internal;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;
use tandem_lab::runner::Progress;

/// Time between two looks.
const TICK: Duration = Duration::from_millis(50);
/// Parts of a run that are counted.
const PARTS: u64 = 1_000;

/// How far the work is, and whether it is to end.
#[derive(Default)]
pub struct Monitor {
    planned: AtomicU64,
    /// In parts of runs.
    done: AtomicU64,
    abort: AtomicBool,
}

impl Monitor {
    /// So many more parts of a run, of a thousand, are done.
    pub fn advance(&self, parts: u64) {
        self.done.fetch_add(parts, Ordering::Relaxed);
    }

    /// Whether it is to end.
    pub fn ended(&self) -> &AtomicBool {
        &self.abort
    }

    fn report(&self, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let Some(progress) = progress else { return Ok(()) };
        let done = self.done.load(Ordering::Relaxed) as f64 / PARTS as f64;
        progress.call1((done, self.planned.load(Ordering::Relaxed))).map(drop)
    }
}

impl Progress for Monitor {
    fn planned(&self, runs: usize) {
        self.planned.fetch_add(runs as u64, Ordering::Relaxed);
    }

    fn done(&self) {
        self.advance(PARTS);
    }

    fn abort(&self) -> &AtomicBool {
        &self.abort
    }
}

/// Says when the work is at its end, however it ends.
#[derive(Default)]
struct Ended {
    is_so: Mutex<bool>,
    told: Condvar,
}

struct Tells<'a>(&'a Ended);

impl Drop for Tells<'_> {
    fn drop(&mut self) {
        *self.0.is_so.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.told.notify_all();
    }
}

impl Ended {
    fn wait(&self) -> bool {
        let is_so = self.is_so.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.told.wait_timeout_while(is_so, TICK, |is_so| !*is_so);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Does the work. `progress` is called with how many runs are done and how many are planned.
///
/// # Errors
/// KeyboardInterrupt after Ctrl-C, what `progress` raises, or that the work has panicked.
pub fn supervise<T: Send>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Monitor) -> T + Send,
) -> PyResult<T> {
    let (monitor, ended) = (Monitor::default(), Ended::default());
    thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let _tells = Tells(&ended);
            work(&monitor)
        });
        let mut looked = Ok(());
        while !py.detach(|| ended.wait()) {
            if looked.is_ok() {
                looked = py.check_signals().and_then(|()| monitor.report(progress));
                monitor.abort.store(looked.is_err(), Ordering::Relaxed);
            }
        }
        let result = py.detach(|| worker.join());
        looked?;
        // A signal may have come at the very end.
        py.check_signals()?;
        monitor.report(progress)?;
        result.map_err(|_| internal("the work has panicked"))
    })
}
