//! The history of the scheduler on this machine: `history.json` in [`LOG_FOLDER`].
//!
//! **Problem.** When the scheduler is gone, what an operator wants to know about its end is gone, too.
//!
//! **Approach.** `tandem run` counts events in a file that outlives it. Every agent that serves metrics
//! includes the counts: that of the next scheduler, or one that only observes. Each event, which is rare,
//! replaces the file in one step.
//!
//! **Limits.** If the file is lost or malformed, the counts begin anew, as counters may. An agent without the
//! right to read the folder reports none.

use super::Exit;
use super::log_folder::{LOG_FOLDER, read, write};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use tandem_file::shown::readable;
use tandem_file::units::Size;

/// The name of the file.
const FILE: &str = "history.json";
/// Longest file that is read: the reasons are the kernel's, a few dozen.
const LENGTH_MAX: Size = Size { bytes: 64 << 10 };
/// Most different reasons, and the longest, in characters; the kernel has some ten.
const REASONS_MAX: usize = 32;
const REASON_MAX: usize = 80;
/// Stands for further reasons.
const OTHER_REASONS: &str = "other";

/// Counts since the file was created.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct History {
    /// How often the scheduler was loaded, for whatever reason.
    pub loads: u64,
    /// How often the kernel ejected it, by the kernel's wording of the reason.
    pub ejections: BTreeMap<String, u64>,
    /// The time of the last ejection, in Unix time.
    pub last_ejection_unix_s: Option<u64>,
    /// How often settings were to be read again and had a mistake.
    pub failed_reloads: u64,
    /// How often the agent ended by itself or was silent for too long, and was restarted.
    pub agent_restarts: u64,
}

impl History {
    /// The counts below this root; empty if there is no such file, a malformed one, or the folder belongs to
    /// another user.
    pub fn read(root: &Path) -> Self {
        let text = read(&folder(root), FILE, LENGTH_MAX);
        let mut history: Self =
            text.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        for (reason, count) in std::mem::take(&mut history.ejections) {
            history.add_ejections(&reason, count);
        }
        history
    }

    /// Changes the counts. Only the holder of the service's lock may call this.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn note(root: &Path, change: impl FnOnce(&mut Self)) -> io::Result<()> {
        let mut history = Self::read(root);
        change(&mut history);
        write(&folder(root), FILE, &(serde_json::to_string_pretty(&history)? + "\n")).map(drop)
    }

    /// Counts an ejection.
    pub fn count_ejection(&mut self, exit: &Exit) {
        self.add_ejections(&exit.reason, 1);
        self.last_ejection_unix_s =
            SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|time| time.as_secs());
    }

    fn add_ejections(&mut self, reason: &str, count: u64) {
        // Cut after escaping, so that reading it again does not change it.
        let start = readable(&reason.chars().take(REASON_MAX).collect::<String>(), &[]);
        let reason: String = start.chars().take(REASON_MAX).collect();
        let is_room = self.ejections.len() < REASONS_MAX || self.ejections.contains_key(&reason);
        let sum = self.ejections.entry(if is_room { reason } else { OTHER_REASONS.into() }).or_insert(0);
        *sum = sum.saturating_add(count);
    }
}

fn folder(root: &Path) -> PathBuf {
    root.join(LOG_FOLDER.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn ejection(reason: &str) -> Exit {
        Exit::with_reason(reason)
    }

    #[test]
    fn what_was_counted_stays() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("var/log")).unwrap();
        assert_eq!(History::read(root.path()), History::default());
        History::note(root.path(), |history| history.loads += 1).unwrap();
        for _ in 0..2 {
            History::note(root.path(), |history| history.count_ejection(&ejection("runnable task stall")))
                .unwrap();
        }
        let history = History::read(root.path());
        assert_eq!((history.loads, history.ejections["runnable task stall"]), (1, 2));
        assert!(history.last_ejection_unix_s > Some(1_700_000_000));
    }

    #[test]
    fn reasons_are_bounded() {
        let mut history = History::default();
        for number in 0..1_000 {
            history.count_ejection(&ejection(&format!("{number:03}{}\n", "x".repeat(1_000))));
        }
        assert_eq!(history.ejections.len(), REASONS_MAX + 1);
        assert_eq!(history.ejections[OTHER_REASONS], 1_000 - REASONS_MAX as u64);
        assert!(history.ejections.keys().all(|reason| reason.len() <= REASON_MAX));
    }

    #[test]
    fn a_reason_is_the_same_when_it_is_read_again() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("var/log")).unwrap();
        let reason = format!("\u{8}{}", "x".repeat(REASON_MAX));
        History::note(root.path(), |history| history.count_ejection(&ejection(&reason))).unwrap();
        let before = History::read(root.path());
        History::note(root.path(), |history| history.count_ejection(&ejection(&reason))).unwrap();
        let after = History::read(root.path());
        assert!(before.ejections.keys().eq(after.ejections.keys()), "{before:?}, {after:?}");
        assert_eq!(after.ejections.values().copied().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_malformed_file_restarts_the_counts() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        fs::create_dir_all(&folder).unwrap();
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        let many: Vec<_> = (0..300).map(|number| format!("\"\\u001b{number:03}\": {}", u64::MAX)).collect();
        fs::write(folder.join(FILE), format!("{{\"ejections\": {{{}}}}}", many.join(", "))).unwrap();
        let read = History::read(root.path());
        assert_eq!((read.ejections.len(), read.ejections[OTHER_REASONS]), (REASONS_MAX + 1, u64::MAX));
        assert!(read.ejections.keys().all(|reason| !reason.contains(char::is_control)), "{read:?}");
        for text in ["", "[]", "{\"loads\": -1}", &"9".repeat(1 << 20)] {
            fs::write(folder.join(FILE), text).unwrap();
            assert_eq!(History::read(root.path()), History::default());
            History::note(root.path(), |history| history.loads += 1).unwrap();
            assert_eq!(History::read(root.path()).loads, 1);
        }
    }
}
