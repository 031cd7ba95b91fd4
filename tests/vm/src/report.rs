//! The guest's reports to the machine, a line of JSON for each event.
//!
//! The lines have a serial port to themselves, the second one: on the first, messages of the kernel would
//! come in between. Other lines, such as a firmware's, are ignored.

use crate::record::Record;
use serde::{Deserialize, Serialize};
use std::io::{self, Write};

/// The guest's side of the serial port.
pub const GUEST_PORT: &str = "/dev/ttyS1";

/// One thing that happened in the guest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The guest has set itself up; the release of its kernel.
    Booted(String),
    /// A case begins; its name.
    Started(String),
    /// A figure or remark of the case that runs.
    Note(String),
    /// How long a workload took in the case that runs, by the guest's clock.
    Took {
        /// Its name in the results.
        workload: String,
        /// From its start to its end, seconds.
        seconds: f64,
    },
    /// The record of a program in the present case.
    Recorded(Record),
    /// The case that runs has ended.
    Finished {
        /// How long it took by the guest's clock, seconds.
        seconds: f64,
        /// Why it failed, if it did.
        failure: Option<Failure>,
    },
    /// The leg is over; the guest powers off.
    End,
}

/// Why a case failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The reason, in a line.
    pub why: String,
    /// The kernel's messages since the case began, a record per line; the last ones if there are many.
    pub dmesg: Vec<String>,
}

impl Event {
    /// The record of a program, if the event has one.
    pub fn record(&self) -> Option<Record> {
        match self {
            Self::Recorded(record) => Some(record.clone()),
            _ => None,
        }
    }

    /// Writes the event as a line, at once.
    pub fn write(&self, mut port: impl Write) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        port.write_all(&line)
    }

    /// The event in a line, if there is one.
    pub fn parse(line: &str) -> Option<Self> {
        serde_json::from_str(line.trim()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Scheduler, Task, Waits};

    fn record() -> Record {
        let task = Task {
            name: "a-0/0".into(),
            start_ns: 9,
            start_cpu: 1,
            run_ns: vec![0, u64::MAX],
            blocked: 1,
            runnable: 2,
            migrations: 3,
        };
        Record {
            program: "a".into(),
            scheduler: Scheduler::Eevdf,
            kernel: "6.12".into(),
            length_ns: 5,
            span_ns: 4,
            tasks: vec![task],
            waits: Waits::of(vec![3, 4]),
            counters: [("wake_idle".to_owned(), 7)].into(),
            others: Vec::new(),
            idle_wakes: 0,
            idle_wake_ns: 0,
            search_ns: vec![5],
        }
    }

    #[test]
    fn an_event_survives_the_port() {
        let failure = Failure { why: "a\nb".into(), dmesg: vec!["[1.0] \"quoted\"".into()] };
        let events = [
            Event::Booted("6.12".into()),
            Event::Started("boots".into()),
            Event::Note("n".into()),
            Event::Took { workload: "w".into(), seconds: 0.1 },
            Event::Recorded(record()),
            Event::Finished { seconds: 1.5, failure: Some(failure) },
            Event::End,
        ];
        for event in events {
            let mut line = Vec::new();
            event.write(&mut line).unwrap();
            let line = String::from_utf8(line).unwrap();
            assert_eq!(line.lines().count(), 1);
            // A terminal ends lines with a carriage return as well.
            assert_eq!(Event::parse(&line.replace('\n', "\r\n")), Some(event));
        }
    }

    #[test]
    fn other_lines_are_passed_over() {
        for line in ["", "SeaBIOS (version 1.16)", "{\"unknown\":1}", "[    0.000000] Linux version"] {
            assert_eq!(Event::parse(line), None, "{line}");
        }
    }
}
