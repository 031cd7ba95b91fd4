//! The log of users' changes and refusals, in a form in which no user can flood it.
//!
//! The first event of a user is a line at once. Those that follow within [`PAUSE`] are counted, and become
//! one line with the latest event when the pause is over.

use super::peer::Peer;
use crate::log_entry::{Level, LogEntry};
use std::collections::HashMap;
use std::fmt::Display;
use std::time::{Duration, Instant};
use tandem_file::shown::readable;

/// Least time between two lines about a user.
pub const PAUSE: Duration = Duration::from_secs(10);
/// Longest reason that is written, characters: it may quote what the user sent.
const REASON_MAX: usize = 200;

/// The events of one kind.
#[derive(Debug)]
pub struct Events {
    /// The beginning of each line.
    kind: &'static str,
    /// Their name in a journal.
    event: &'static str,
    /// By the user that they count towards.
    users: HashMap<u32, Pending>,
}

#[derive(Debug)]
struct Pending {
    told: Instant,
    count: u64,
    last: String,
}

impl Events {
    /// Events of a kind, such as "refused", with their name in a journal.
    pub fn new(kind: &'static str, event: &'static str) -> Self {
        Self { kind, event, users: HashMap::new() }
    }

    /// Records an event with its subject or reason; returns the line to log now, if there is one.
    pub fn note(&mut self, peer: &Peer, why: &dyn Display, now: Instant) -> Option<LogEntry> {
        let why = in_a_line(&why.to_string());
        match self.users.get_mut(&peer.payer) {
            Some(pending) => {
                pending.count += 1;
                pending.last = why;
                None
            }
            None => {
                self.users.insert(peer.payer, Pending { told: now, count: 0, last: String::new() });
                Some(self.entry(peer.payer, format!("{} {peer}: {why}", self.kind)))
            }
        }
    }

    /// The lines about users whose pause is over.
    pub fn due(&mut self, now: Instant) -> Vec<LogEntry> {
        let mut lines = Vec::new();
        self.users.retain(|user, pending| {
            if now.duration_since(pending.told) < PAUSE {
                return true;
            }
            if pending.count == 0 {
                return false;
            }
            let Pending { count, last, .. } = &pending;
            lines.push((
                *user,
                format!("{} user {user} {count} more times, most recently: {last}", self.kind),
            ));
            *pending = Pending { told: now, count: 0, last: String::new() };
            true
        });
        lines.sort();
        lines.into_iter().map(|(user, line)| self.entry(user, line)).collect()
    }

    fn entry(&self, user: u32, line: String) -> LogEntry {
        LogEntry::new(Level::Notice, self.event, line).with("TANDEM_USER", user)
    }
}

/// A reason that can neither begin a line of its own nor control a terminal.
fn in_a_line(why: &str) -> String {
    readable(&why.chars().take(REASON_MAX).collect::<String>(), &[])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_cannot_write_lines_of_the_log() {
        let mut events = Events::new("refused", "request-refused");
        let peer = Peer { pid: 42, user: 1000, group: 1000, payer: 1000 };
        let why = format!("no request `a\ntandem: all is well\u{1b}[2J{}`", "x".repeat(1000));
        let line = events.note(&peer, &why, Instant::now()).unwrap().text;
        let begin = "refused user 1000, process 42: no request `a\\ntandem: all is well\\u{1b}[2Jxxx";
        assert!(line.starts_with(begin), "{line}");
        assert!(line.len() < 300, "{line}");
    }

    #[test]
    fn each_refusal_is_logged_or_counted() {
        let mut events = Events::new("refused", "request-refused");
        let peer = Peer { pid: 42, user: 1000, group: 1000, payer: 1000 };
        let other = Peer { pid: 43, user: 1001, group: 1000, payer: 1001 };
        let start = Instant::now();
        let line = events.note(&peer, &"no reader", start).unwrap().text;
        assert_eq!(line, "refused user 1000, process 42: no reader");
        assert!(events.note(&other, &"no reader", start).is_some(), "another user");
        for why in ["a", "b", "not root"] {
            assert_eq!(events.note(&peer, &why, start), None);
        }
        let due = |events: &mut Events, now| -> Vec<String> {
            events.due(now).into_iter().map(|entry| entry.text).collect()
        };
        assert_eq!(due(&mut events, start), [""; 0]);
        assert_eq!(
            due(&mut events, start + PAUSE),
            ["refused user 1000 3 more times, most recently: not root"]
        );
        assert!(events.note(&other, &"again", start + PAUSE).is_some(), "its pause is over");
        assert_eq!(events.note(&peer, &"again", start + PAUSE), None, "logged a moment ago");
    }
}
