//! Traces of runs: every scheduling event of the host and of the guests, in a file.
//!
//! **Problem.** Numbers say that a vCPU waited or that a task moved; to find out why, one must see both
//! levels side by side: which vCPU held which pCPU, and which task the guest ran on that vCPU meanwhile.
//!
//! **Approach.** A trace observes a run and writes while it goes on. Its format follows from the name of the
//! file:
//!
//! ```text
//!          ┌─ timeline ── perfetto ────────────┐
//! events ──┤  slices on tracks, arrows          ├─ output ── file
//!          └─ json_lines ───────────────────────┘
//! ```
//!
//! A [`Selection`] leaves out what nobody asked about: both formats have a filter before them.
//!
//! Memory grows with the number of CPUs and of tasks that exist at the same time, not with the length of the
//! run. A run without a trace pays nothing.
//!
//! **Limits.** The time of a kernel's own code (interrupts, decisions, switches) has no slice of its own: a
//! slice lasts from the moment that a task is put on the CPU to the moment that it leaves. A decision that
//! lets the running task continue is in the JSON lines only.

mod json_lines;
mod names;
mod output;
mod perfetto;
mod selection;
mod timeline;

#[cfg(test)]
mod tests;

pub use json_lines::JsonLines;
pub use perfetto::PerfettoTrace;
pub use selection::Selection;

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};
use tandem_file::new_file::NewFile;
use tandem_machine::ids::{KernelId, TaskId};
use tandem_sim::scenario::Scenario;
use tandem_sim::trace::{Event, Observer};

/// The run that is traced.
#[derive(Clone, Copy, Debug)]
pub struct TracedRun<'a> {
    /// The scenario, by the name that the user gave.
    pub scenario_name: &'a str,
    /// The scenario.
    pub scenario: &'a Scenario,
    /// The seed.
    pub seed: u64,
    /// Which part of it is traced.
    pub selection: &'a Selection,
}

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The end of the file's name is not that of a format.
    #[error(
        "{path}: the format of a trace follows from the end of its name; allowed are .pftrace, .perfetto-trace and .pb \
         (Perfetto), and .jsonl (JSON lines)"
    )]
    UnknownFormat {
        /// The file.
        path: PathBuf,
    },
    /// The run has no such part.
    #[error("{0}")]
    Selection(String),
    /// The file cannot be made.
    #[error("{path}: the trace cannot be made: {error}")]
    Create {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// A part of the trace could not be written.
    #[error("{path}: the trace could not be written, and is gone: {error}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
}

/// A trace in a file, which appears when the trace is complete.
pub struct TraceFile {
    path: PathBuf,
    writer: Writer,
}

/// The formats.
enum Writer {
    Perfetto(PerfettoTrace<BufWriter<NewFile>>),
    JsonLines(JsonLines<BufWriter<NewFile>>),
}

impl TraceFile {
    /// Begins the trace of a run.
    ///
    /// # Errors
    /// If the name of the file does not end in that of a format, the run has no such part, or the file cannot be made.
    pub fn create(path: &Path, run: TracedRun) -> Result<Self, TraceError> {
        let path = path.to_owned();
        let is_perfetto = match path.extension().and_then(|extension| extension.to_str()) {
            Some("pftrace" | "perfetto-trace" | "pb") => true,
            Some("jsonl") => false,
            _ => return Err(TraceError::UnknownFormat { path }),
        };
        let out = match NewFile::create(&path) {
            Ok(file) => BufWriter::new(file),
            Err(error) => return Err(TraceError::Create { path, error }),
        };
        let writer = if is_perfetto {
            Writer::Perfetto(PerfettoTrace::new(out, run)?)
        } else {
            Writer::JsonLines(JsonLines::new(out, run)?)
        };
        Ok(Self { path, writer })
    }

    /// Ends the trace at the end of the run, ns since its start; the file appears.
    ///
    /// # Errors
    /// If anything of the trace could not be written.
    pub fn finish(self, end_ns: u64) -> Result<(), TraceError> {
        let out = match self.writer {
            Writer::Perfetto(trace) => trace.finish(end_ns),
            Writer::JsonLines(trace) => trace.finish(end_ns),
        };
        out.and_then(|out| out.into_inner().map_err(io::IntoInnerError::into_error))
            .and_then(NewFile::complete)
            .map_err(|error| TraceError::Write { path: self.path, error })
    }
}

impl Observer for TraceFile {
    fn observe(&mut self, event: Event) {
        match &mut self.writer {
            Writer::Perfetto(trace) => trace.observe(event),
            Writer::JsonLines(trace) => trace.observe(event),
        }
    }

    fn named(&mut self, at_ns: u64, kernel: KernelId, task: TaskId, name: &str) {
        match &mut self.writer {
            Writer::Perfetto(trace) => trace.named(at_ns, kernel, task, name),
            Writer::JsonLines(trace) => trace.named(at_ns, kernel, task, name),
        }
    }
}
