//! Writing of recordings, group by group.

use super::columns::{COLUMNS, Column, dictionary};
use super::{ABOUT_KEY, EVENTS_MAX, FORMAT, FORMAT_KEY, GROUP, check_about, check_event};
use crate::NO_TASK;
use crate::error::TraceError;
use crate::event::{Event, KINDS, Kind, Source};
use crate::facts::About;
use crate::parquet::{ColumnKind, Dictionary, Frame};
use std::io::{self, Write};

/// Why a recording cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The writer failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The recording contradicts itself.
    #[error("the recording {0}")]
    Wrong(#[from] TraceError),
}

/// Writes a recording while it is made. Its memory is that of a group of events.
///
/// The file is complete after [`RecordingWriter::finish`]; before, it is no Parquet file.
pub struct RecordingWriter<W> {
    file: Frame<W>,
    pending: Vec<Event>,
    rows: u64,
    extremes: Extremes,
    // Kept, so that groups need no allocation.
    values: Vec<i64>,
    raw: Vec<u8>,
}

/// The last time and the largest numbers that events have used. What these may be is known at the end.
#[derive(Default)]
struct Extremes {
    at_ns: u64,
    cpu: u32,
    task: Option<u32>,
    timer: Option<u32>,
}

impl<W: Write> RecordingWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn new(out: W) -> io::Result<Self> {
        Ok(Self {
            file: Frame::new(out)?,
            pending: Vec::with_capacity(GROUP),
            rows: 0,
            extremes: Extremes::default(),
            values: Vec::new(),
            raw: Vec::new(),
        })
    }

    /// Adds an event. Events come in the order of time.
    ///
    /// # Errors
    /// If the writer fails, if the event is earlier than the one before, or if there are more than a
    /// recording may have.
    pub fn push(&mut self, event: Event) -> Result<(), WriteError> {
        let wrong = |what: String| Err(TraceError::Event { event: self.rows, what }.into());
        if event.at_ns < self.extremes.at_ns {
            return wrong(format!("is at {} ns, after one at {} ns", event.at_ns, self.extremes.at_ns));
        }
        if self.rows == EVENTS_MAX as u64 {
            return wrong("is one more than a recording may have".into());
        }
        self.extremes.add(&event);
        self.rows += 1;
        self.pending.push(event);
        if self.pending.len() == GROUP {
            self.group()?;
        }
        Ok(())
    }

    /// How many events it has been given.
    pub fn events(&self) -> u64 {
        self.rows
    }

    /// Ends the file, and gives back what it was written to.
    ///
    /// # Errors
    /// If the writer fails, or events are later than the end of the recording, or about CPUs, tasks or timers
    /// that it does not have.
    pub fn finish(mut self, about: &About) -> Result<W, WriteError> {
        check_about(about)?;
        for event in self.extremes.events() {
            check_event(&event, 0, about)
                .map_err(|what| TraceError::Unsupported(format!("has an event that {what}")))?;
        }
        self.group()?;
        let about = serde_json::to_string(about).map_err(io::Error::from)?;
        let columns: Vec<ColumnKind> = COLUMNS.iter().map(Column::kind).collect();
        Ok(self.file.finish(&columns, &[(ABOUT_KEY, &about), (FORMAT_KEY, FORMAT)])?)
    }

    /// Writes the events that wait.
    fn group(&mut self) -> io::Result<()> {
        let rows = self.pending.len();
        if rows == 0 {
            return Ok(());
        }
        let names = dictionary();
        for column in &COLUMNS {
            self.values.clear();
            self.values.extend(self.pending.iter().map(column.get));
            self.raw.clear();
            column.encode(&self.values, &mut self.raw);
            let names = column.has_dictionary().then_some(Dictionary { bytes: &names, words: KINDS.len() });
            self.file.column(rows, column.encoding, names, &self.raw)?;
        }
        self.file.end_group(rows);
        self.pending.clear();
        Ok(())
    }
}

impl Extremes {
    fn add(&mut self, event: &Event) {
        self.at_ns = event.at_ns;
        self.cpu = self.cpu.max(event.cpu);
        for task in [event.task, event.other].into_iter().filter(|&task| task != NO_TASK) {
            self.task = self.task.max(Some(task));
        }
        if let (Kind::Interrupt, Source::HrTimer(timer) | Source::Timer(timer)) = (event.kind, event.source())
        {
            self.timer = self.timer.max(Some(timer));
        }
    }

    /// Events that are in order if all are.
    fn events(&self) -> impl Iterator<Item = Event> {
        let task = self.task.unwrap_or(NO_TASK);
        let plain =
            Event { at_ns: self.at_ns, cpu: self.cpu, kind: Kind::Exec, task, other: NO_TASK, detail: 0 };
        let timer = self.timer.map(|timer| {
            let detail = Source::Timer(timer).detail();
            Event { at_ns: 0, cpu: 0, kind: Kind::Interrupt, task: NO_TASK, other: NO_TASK, detail }
        });
        let any = (self.at_ns, self.cpu, self.task) != (0, 0, None);
        any.then_some(plain).into_iter().chain(timer)
    }
}
