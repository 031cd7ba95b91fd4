//! An entry of the log: a sentence, its severity, and fields by which a journal finds it.
//!
//! A terminal and a file get the sentence; systemd's journal gets the priority and the fields as well, so
//! that `journalctl TANDEM_VM=web` shows what happened to a VM.

use std::fmt;

/// The severity of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Normal operation.
    Info,
    /// An operator may want to know: a user has changed something, or was refused.
    Notice,
    /// An operator has to do something.
    Warning,
    /// Something failed.
    Error,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The severity.
    pub level: Level,
    /// A sentence, or its continuation after `tandem:`.
    pub text: String,
    /// Fields of the journal, by name.
    pub fields: Vec<(&'static str, String)>,
}

impl LogEntry {
    /// An entry about an event of a kind, such as `vm-found`.
    pub fn new(level: Level, event: &'static str, text: impl Into<String>) -> Self {
        Self { level, text: text.into(), fields: vec![("TANDEM_EVENT", event.to_owned())] }
    }

    /// Adds a field.
    pub fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.fields.push((name, value.to_string()));
        self
    }
}

impl fmt::Display for LogEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.level {
            Level::Warning => write!(f, "warning: {}", self.text),
            _ => f.write_str(&self.text),
        }
    }
}
