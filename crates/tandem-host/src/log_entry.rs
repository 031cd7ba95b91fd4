//! What is to be told in the log: a sentence, how much it matters, and fields by which a journal finds it.
//!
//! A terminal and a file get the sentence; systemd's journal gets the priority and the fields as well, so that
//! `journalctl TANDEM_VM=web` tells what happened to a VM.

use std::fmt;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// It goes on as it should.
    Info,
    /// Somebody may want to know: a user has changed something, or may not.
    Notice,
    /// Somebody has to do something.
    Warning,
    /// Something failed.
    Error,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// How much it matters.
    pub level: Level,
    /// A sentence, or what is left of one behind `tandem:`.
    pub text: String,
    /// Fields of the journal, by their names.
    pub fields: Vec<(&'static str, String)>,
}

impl LogEntry {
    /// A line about an event of that kind, such as `vm-found`.
    pub fn new(level: Level, event: &'static str, text: impl Into<String>) -> Self {
        Self { level, text: text.into(), fields: vec![("TANDEM_EVENT", event.to_owned())] }
    }

    /// The same with another field.
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
