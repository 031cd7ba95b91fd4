//! The file of a recording: Apache Parquet, so that pandas, Polars and others read its events as a table.
//!
//! **Layout.** Events are rows, in groups of [`GROUP`], each of which is in the file before the next one
//! begins: a writer needs the memory of one group. Columns are `time_ns`, `cpu`, `kind`, `task`, `other` and
//! `detail`; none has nulls. [`NO_TASK`] is -1. What the recording knows beside its events
//! is JSON under the key `tandem` of the footer; the version of this layout is under `tandem_format`.
//!
//! **Size.** Times grow slowly, so that their differences are few bits; kinds are numbers of a dictionary.
//! Everything is compressed by Zstandard.
//!
//! **Limits.** Only files that this module has written are read: [Parquet](crate::parquet) has many encodings, and a
//! recording needs three.

mod columns;
mod reader;
mod writer;

pub(crate) use reader::is_parquet;
pub use writer::{RecordingWriter, WriteError};

use crate::error::{OpenError, TraceError};
use crate::event::Event;
use crate::facts::About;
use crate::{NO_TASK, Recording, Source};
use std::io::Write;
use std::path::Path;
use tandem_file::named_file::read_bytes;
use tandem_file::units::Size;

/// Rows of a group. Larger ones compress hardly better.
pub const GROUP: usize = 1 << 18;
/// Rows that a group may have when it is read.
const GROUP_MAX: usize = 1 << 20;
/// Events that a recording may have: 2 GiB of memory.
pub const EVENTS_MAX: usize = 1 << 26;
/// Maximum size of a file with a recording or a trace.
pub const FILE_MAX: Size = Size { bytes: 2 << 30 };
/// CPUs that a recording may have: eight times those that Linux can have.
pub const CPUS_MAX: u32 = 1 << 16;

/// The key of what is known beside the events.
const ABOUT_KEY: &str = "tandem";
/// The key of the version.
const FORMAT_KEY: &str = "tandem_format";
/// The version of the layout that is written and read.
const FORMAT: &str = "1";

impl Recording {
    /// Writes it as a file.
    ///
    /// # Errors
    /// If the writer fails, or events contradict the rest; see [`check`](Recording::check).
    pub fn write(&self, out: impl Write) -> Result<(), WriteError> {
        let mut writer = RecordingWriter::new(out)?;
        self.events.iter().try_for_each(|&event| writer.push(event))?;
        writer.finish(&self.about)?;
        Ok(())
    }

    /// Reads a file that [`Recording::write`] or a [`RecordingWriter`] has written.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or is something else. [`crate::open`] also reads traces of others.
    pub fn read(path: &Path) -> Result<Self, OpenError> {
        let bytes =
            read_bytes(path, FILE_MAX).map_err(|error| OpenError::Read { path: path.to_owned(), error })?;
        Self::from_bytes(&bytes).map_err(|error| OpenError::trace(path, error))
    }

    /// The recording that a file of these bytes has.
    ///
    /// # Errors
    /// If it is damaged, or is something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TraceError> {
        reader::read(bytes)
    }

    /// Checks that the events are in the order of time, not after the end, and refer to CPUs, tasks and
    /// timers that there are, as do tasks to cgroups and VMs.
    ///
    /// # Errors
    /// The first mistake.
    pub fn check(&self) -> Result<(), TraceError> {
        check_about(&self.about)?;
        let mut last_ns = 0;
        for (at, event) in self.events.iter().enumerate() {
            check_event(event, last_ns, &self.about)
                .map_err(|what| TraceError::Event { event: at as u64, what })?;
            last_ns = event.at_ns;
        }
        Ok(())
    }
}

fn check_about(about: &About) -> Result<(), TraceError> {
    let large = |what: String| Err(TraceError::Unsupported(what));
    let wrong = |what: String| Err(TraceError::Contradiction(what));
    if about.cpus > CPUS_MAX {
        return large(format!("has {} CPUs; at most {CPUS_MAX} are supported", about.cpus));
    }
    if i64::try_from(about.length_ns).is_err() {
        return large(format!("is {} ns long; at most {} are supported", about.length_ns, i64::MAX));
    }
    if let Some(lost) = about.lost.iter().find(|lost| lost.cpu >= about.cpus) {
        return wrong(format!("lost events on CPU {}, and has only {} CPUs", lost.cpu, about.cpus));
    }
    for (at, task) in about.tasks.iter().enumerate() {
        if task.cgroup.is_some_and(|cgroup| cgroup >= about.cgroups.len()) {
            return wrong(format!("has a task {at} of a cgroup that it does not have"));
        }
        if task.vm.is_some_and(|vm| vm >= about.vms.len()) {
            return wrong(format!("has a task {at} of a VM that it does not have"));
        }
    }
    Ok(())
}

fn check_event(event: &Event, last_ns: u64, about: &About) -> Result<(), String> {
    if event.at_ns < last_ns {
        return Err(format!("is at {} ns, after one at {last_ns} ns", event.at_ns));
    }
    if event.at_ns > about.length_ns {
        return Err(format!("is at {} ns, after the end at {} ns", event.at_ns, about.length_ns));
    }
    if event.cpu >= about.cpus {
        return Err(format!("is on CPU {}, of {} CPUs", event.cpu, about.cpus));
    }
    for task in [event.task, event.other] {
        if task != NO_TASK && task as usize >= about.tasks.len() {
            return Err(format!("is about task {task}, of {} tasks", about.tasks.len()));
        }
    }
    if let (crate::Kind::Interrupt, Source::HrTimer(timer) | Source::Timer(timer)) =
        (event.kind, event.source())
        && timer as usize >= about.timers.len()
    {
        return Err(format!("is of timer {timer}, of {} timers", about.timers.len()));
    }
    Ok(())
}
