//! Recordings: what happened to the tasks of a machine, event by event, with what is known of them.
//!
//! `tandem record` makes them, other tools' traces become them, and replays start from them. A recording says
//! when tasks ran, on which CPU, who woke them, and what interrupted the CPUs at that time. It does not say
//! why: that is the work of the model that is made of it.
//!
//! **Tasks** are numbered in the order in which the recording meets them. Numbers of the kernel (tids) are
//! used again when a task has ended; these numbers are not.
//!
//! **Times** are ns since the start of the recording, from one clock for all CPUs.
//!
//! **Modules.** [`mod@file`] writes and reads recordings; [`ftrace`] makes them from the kernel's tracepoints, and
//! [`import`] from traces of other tools; [`Recording::write_perfetto`] makes such a trace. The file is Parquet, as are the
//! [tables](parquet::table) of results that others make.

mod bytes;
pub mod error;
pub mod event;
pub mod facts;
pub mod file;
pub mod ftrace;
pub mod import;
pub mod parquet;
mod perfetto;

pub use error::{OpenError, TraceError};
pub use event::{Context, Event, Kind, NO_TASK, Source, TaskState};
pub use facts::{About, Cgroup, Lost, Scheduler, Task, Vm};
pub use file::{RecordingWriter, WriteError};
pub use import::open;

/// A recording of a machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    /// The machine, its tasks, and how complete the recording is.
    pub about: About,
    /// What happened, in the order of time; at one time in the order in which each CPU did it.
    pub events: Vec<Event>,
}
