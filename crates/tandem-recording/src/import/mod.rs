//! Traces that other tools have made.
//!
//! Each becomes a recording as if `tandem record` had made it, as far as the trace has what that needs:
//! switches at least. What it does not have stays unknown: cgroups, affinities, slices, the machine. The
//! book's chapter on recordings lists what each format lacks.
//!
//! A trace comes from a stranger: it is read with the checks of [`bytes`](crate::bytes), and what it becomes
//! is checked as a file is.

mod perf_data;
mod perfetto;
mod trace_dat;

use crate::error::{OpenError, TraceError};
use crate::event::Kind;
use crate::facts::{About, Task};
use crate::file::{EVENTS_MAX, FILE_MAX, is_parquet};
use crate::ftrace::{Moment, Tracepoint, Translator};
use crate::{Event, Recording};
use std::collections::HashMap;
use std::path::Path;
use tandem_file::named_file::read_bytes;

/// Reads a recording, or a trace of trace-cmd, perf or Perfetto. Which one, its first bytes say.
///
/// # Errors
/// If it cannot be read, is damaged, is none of these, or has no switches.
pub fn open(path: &Path) -> Result<Recording, OpenError> {
    let bytes =
        read_bytes(path, FILE_MAX).map_err(|error| OpenError::Read { path: path.to_owned(), error })?;
    from_bytes(&bytes).map_err(|error| OpenError::trace(path, error))
}

/// The recording that a file of these bytes is or becomes; see [`open`].
///
/// # Errors
/// As those of [`open`].
pub fn from_bytes(bytes: &[u8]) -> Result<Recording, TraceError> {
    match bytes {
        _ if is_parquet(bytes) => return Recording::from_bytes(bytes),
        _ if trace_dat::is_trace_dat(bytes) => trace_dat::read(bytes),
        _ if perf_data::is_perf_data(bytes) => perf_data::read(bytes),
        _ if perfetto::is_perfetto(bytes) => perfetto::read(bytes),
        _ => Err(TraceError::Unknown),
    }
    .and_then(|import| import.finish())
}

/// A recording in the making.
#[derive(Default)]
struct Import {
    about: About,
    translator: Translator,
    events: Vec<Event>,
    /// What the trace says of tasks by number, which applies to those that are met from then on.
    known: HashMap<u32, Known>,
    /// How many tasks have been given what is known.
    tasks_done: usize,
}

/// What a trace says of a task outside its events.
#[derive(Clone, Default)]
struct Known {
    pid: u32,
    name: String,
    is_kernel: bool,
}

impl Import {
    /// Adds a record, in the order of time.
    fn push(&mut self, moment: &Moment, point: &Tracepoint) -> Result<(), TraceError> {
        if let Some(event) = self.translator.translate(moment, point)? {
            if self.events.len() == EVENTS_MAX {
                return Err(TraceError::Unsupported(format!(
                    "has more than {EVENTS_MAX} events; record for less"
                )));
            }
            self.events.push(event);
        }
        self.tell_tasks();
        Ok(())
    }

    /// Gives tasks that are new what is known of them.
    fn tell_tasks(&mut self) {
        let tasks = self.translator.tasks();
        for at in self.tasks_done..tasks.all().len() {
            if let Some(task) = tasks.get_mut(at as u32)
                && let Some(known) = self.known.get(&task.tid)
            {
                known.tell(task);
            }
        }
        self.tasks_done = tasks.all().len();
    }

    /// Adds what is known of a task, also if it has been met.
    fn know(&mut self, tid: u32, known: Known) {
        if let Some(task) = self.translator.tasks().living(tid) {
            known.tell(task);
        }
        self.known.insert(tid, known);
    }

    /// Gives tasks the names of their processes: those of the first threads.
    fn name_processes(&mut self) {
        let tasks = &mut self.about.tasks;
        let first = tasks.iter().filter(|task| task.tid == task.pid);
        let names: HashMap<u32, String> = first.map(|task| (task.pid, task.name.clone())).collect();
        for task in tasks.iter_mut().filter(|task| task.process.is_empty() && task.pid != 0) {
            let known = || self.known.get(&task.pid).map(|known| &known.name);
            if let Some(name) = names.get(&task.pid).or_else(known) {
                task.process.clone_from(name);
            }
        }
    }

    /// Ends the recording.
    fn finish(mut self) -> Result<Recording, TraceError> {
        if !self.events.iter().any(|event| event.kind == Kind::Switch) {
            return Err(TraceError::Unsupported(
                "has no records of sched_switch; record with `trace-cmd record -e sched`, `perf sched record` or \
                 Perfetto's data source linux.ftrace with sched/sched_switch and sched/sched_waking"
                    .into(),
            ));
        }
        std::mem::take(&mut self.translator).finish(&mut self.about);
        self.name_processes();
        // A CPU may have lost everything.
        let lost_most = self.about.lost.iter().map(|lost| lost.cpu.saturating_add(1)).max();
        self.about.cpus = self.about.cpus.max(lost_most.unwrap_or(0));
        let recording = Recording { about: self.about, events: self.events };
        recording.check()?;
        Ok(recording)
    }
}

impl Known {
    fn tell(&self, task: &mut Task) {
        if self.pid != 0 {
            task.pid = self.pid;
        }
        if task.name.is_empty() {
            task.name.clone_from(&self.name);
        }
        task.is_kernel |= self.is_kernel;
    }
}
