//! The log of the service: entries of systemd's journal if standard error is connected to it, or else lines
//! there.
//!
//! Entries of the journal have a priority and fields: systemd.journal-fields(7). If the journal cannot be
//! reached, the line goes to standard error.

use log::{Level as JournalLevel, Record, RecordBuilder};
use std::io::{self, Write};
use std::sync::OnceLock;
use systemd_journal_logger::{JournalLog, connected_to_journal};
use tandem_host::log_entry::{Level, LogEntry};

/// Writes an entry. A closed standard error is ignored.
pub fn write(entry: &LogEntry) {
    static JOURNAL: OnceLock<Option<JournalLog>> = OnceLock::new();
    let open = || JournalLog::empty().ok().map(|log| log.with_syslog_identifier("tandem".to_owned()));
    let journal = JOURNAL.get_or_init(|| connected_to_journal().then(open).flatten());
    let is_written = journal.as_ref().is_some_and(|journal| send(journal, entry).is_ok());
    if !is_written {
        let _ = writeln!(io::stderr(), "tandem: {entry}");
    }
}

/// Writes an entry with this level, event and text.
pub fn log(level: Level, event: &'static str, text: impl Into<String>) {
    write(&LogEntry::new(level, event, text));
}

fn send(journal: &JournalLog, entry: &LogEntry) -> io::Result<()> {
    let level = match entry.level {
        // The journal's "informational" and "notice" are a step below the names of the facade.
        Level::Info => JournalLevel::Debug,
        Level::Notice => JournalLevel::Info,
        Level::Warning => JournalLevel::Warn,
        Level::Error => JournalLevel::Error,
    };
    let mut record: RecordBuilder<'_> = Record::builder();
    record.level(level).target("tandem").key_values(&entry.fields);
    journal.journal_send(&record.args(format_args!("{}", entry.text)).build())
}
