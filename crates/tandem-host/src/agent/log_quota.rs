//! The agent's log lines about VMs, with a limit for each user.
//!
//! A user who may start VMs may start and end a thousand per second. Each is worth a line, so they would fill
//! the log. In each [`PERIOD`], the agent logs at most [`LINES_MAX`] lines about the VMs of a user; it counts
//! those beyond, and logs their number.

use crate::log_entry::{Level, LogEntry};
use crate::users::behind;
use crate::vms::{Identity, Vm};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Lines about the VMs of a user in a period: a host whose VMs all start at once under one user has some for
/// each.
const LINES_MAX: u32 = 1000;
const PERIOD: Duration = Duration::from_secs(60);

/// A line about the VM of a user.
pub(super) struct Line {
    pub user: u32,
    pub entry: LogEntry,
}

impl Line {
    /// A line about a VM: `VM web (process 4711)`, then the text.
    pub fn about(vm: &Vm, level: Level, event: &'static str, text: &str) -> Self {
        let Identity { pid, .. } = vm.identity;
        let text = format!("VM {} (process {pid}){text}", vm.name);
        let entry = LogEntry::new(level, event, text).with("TANDEM_VM", &vm.name).with("TANDEM_VM_PID", pid);
        Self { user: vm.user, entry: entry.with("TANDEM_USER", vm.user) }
    }
}

/// Counts the recent lines about the VMs of each user.
#[derive(Debug, Default)]
pub(super) struct LogQuota {
    /// By the user that VMs count towards.
    users: BTreeMap<u32, Lately>,
}

#[derive(Debug)]
struct Lately {
    since: Duration,
    lines: u32,
    left_out: u64,
}

impl LogQuota {
    /// The lines to log now.
    pub fn share(&mut self, root: &Path, lines: Vec<Line>, now: Duration) -> Vec<LogEntry> {
        let mut told = Vec::new();
        self.users.retain(|user, lately| {
            let is_over = now.saturating_sub(lately.since) >= PERIOD;
            if is_over && lately.left_out > 0 {
                let text = format!("left out {} more lines about VMs of user {user}", lately.left_out);
                told.push(LogEntry::new(Level::Warning, "left-out", text).with("TANDEM_USER", user));
            }
            !is_over
        });
        for Line { user, entry } in lines {
            let new = || Lately { since: now, lines: 0, left_out: 0 };
            let lately = self.users.entry(behind(root, user)).or_insert_with(new);
            match lately.lines < LINES_MAX || user == 0 {
                true => {
                    lately.lines += 1;
                    told.push(entry);
                }
                false => lately.left_out += 1,
            }
        }
        told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_a_share_are_counted() {
        let root = tempfile::tempdir().unwrap();
        let entry = |user, at| LogEntry::new(Level::Info, "test", format!("{user}: {at}"));
        let lines = |user, count| (0..count).map(|at| Line { user, entry: entry(user, at) }).collect();
        let mut told = LogQuota::default();
        let mut share = |lines, now_s| {
            let told = told.share(root.path(), lines, Duration::from_secs(now_s));
            told.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(share(lines(1000, LINES_MAX), 1).len(), LINES_MAX as usize);
        assert_eq!(share(lines(1000, 5), 2), [""; 0]);
        assert_eq!(share(lines(1001, 1), 2), ["1001: 0"], "other users have their own limit");
        assert_eq!(share(lines(0, LINES_MAX + 1), 2).len(), LINES_MAX as usize + 1, "and root has none");
        assert_eq!(share(Vec::new(), 60), [""; 0]);
        assert_eq!(
            share(lines(1000, 1), 61),
            ["warning: left out 5 more lines about VMs of user 1000", "1000: 0"]
        );
    }
}
