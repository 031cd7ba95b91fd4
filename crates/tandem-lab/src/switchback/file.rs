//! The file of a trial's state: JSON lines, so that a trial goes on after an interruption.
//!
//! The first line is the trial, with the version of the format; each further line is an [`Event`], on the disk
//! before the next block begins. A line that a crash has cut off is removed, and its block runs again. The
//! file is locked while a trial writes it.

use super::record::{Event, History, Trial};
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The name of the format.
const FORMAT: &str = "tandem-verify";
/// Its version.
const VERSION: u32 = 1;
/// Longest file that is read, bytes: a day of blocks of a second, with the values of 100 VMs.
const LENGTH_MAX: u64 = 4 << 30;

/// Why a state file cannot be used. Each message is one sentence.
#[derive(Debug, Error)]
pub enum StateError {
    /// The system refuses.
    #[error("{}: {cause}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A new trial would overwrite it.
    #[error("{} exists already; add --resume to go on with its trial, or name another file", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// Another process writes it.
    #[error("another trial writes {}; wait for its end", path.display())]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// It is something else, or damaged.
    #[error("{}:{line}: {what}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        what: String,
    },
    /// It belongs to another trial.
    #[error("{} is of a trial with another {what}; repeat the options with which it began", path.display())]
    Other {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
    },
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    format: String,
    version: u32,
    trial: Trial,
}

/// The file, locked, to append to.
#[derive(Debug)]
pub struct StateFile {
    file: File,
    path: PathBuf,
}

/// A process that is being started has a copy of every open file until it executes its program, so that closing
/// alone might leave the lock in place for a moment.
impl Drop for StateFile {
    fn drop(&mut self) {
        // Closing does it else.
        let _ = self.file.unlock();
    }
}

impl StateFile {
    /// Creates the file of a new trial.
    ///
    /// # Errors
    /// If there is such a file, or it cannot be written.
    pub fn create(path: &Path, trial: &Trial) -> Result<Self, StateError> {
        let file = OpenOptions::new().append(true).create_new(true).open(path).map_err(|cause| {
            let path = path.to_owned();
            match cause.kind() {
                io::ErrorKind::AlreadyExists => StateError::Exists { path },
                _ => StateError::File { path, cause },
            }
        })?;
        let mut state = Self { file, path: path.to_owned() };
        state.lock()?;
        let header = Header { format: FORMAT.into(), version: VERSION, trial: trial.clone() };
        state.write(&header)?;
        // Its name has to be on the disk as well.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let synced = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
        synced.map_err(|cause| state.error(cause))?;
        Ok(state)
    }

    /// Opens the file of a trial that was interrupted; `is_seed_free` accepts a trial of any seed. Returns what
    /// the trial is and what has happened in it.
    ///
    /// # Errors
    /// If it cannot be read or written, is no such file, or belongs to another trial.
    pub fn resume(
        path: &Path,
        trial: &Trial,
        is_seed_free: bool,
    ) -> Result<(Self, Trial, History), StateError> {
        let file = OpenOptions::new().read(true).append(true).open(path);
        let file = file.map_err(|cause| StateError::File { path: path.to_owned(), cause })?;
        let state = Self { file, path: path.to_owned() };
        let is_regular = state.file.metadata().map_err(|cause| state.error(cause))?.is_file();
        if !is_regular {
            return Err(state.error(io::Error::other("it is not a regular file")));
        }
        state.lock()?;
        let mut bytes = Vec::new();
        let read = (&state.file).take(LENGTH_MAX).read_to_end(&mut bytes);
        read.map_err(|cause| state.error(cause))?;
        // What follows the last line break was cut off.
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        let (recorded, history) = state.parse(&bytes[..whole])?;
        let mut wanted = trial.clone();
        if is_seed_free {
            wanted.plan.seed = recorded.plan.seed;
        }
        if let Some(what) = difference(&recorded, &wanted) {
            return Err(StateError::Other { path: state.path.clone(), what });
        }
        if whole < bytes.len() {
            let cut = state.file.set_len(whole as u64).and_then(|()| state.file.sync_all());
            cut.map_err(|cause| state.error(cause))?;
        }
        Ok((state, recorded, history))
    }

    /// Appends an event; it is on the disk afterwards.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn append(&mut self, event: &Event) -> Result<(), StateError> {
        self.write(event)
    }

    fn write(&mut self, line: &impl Serialize) -> Result<(), StateError> {
        let written = serde_json::to_string(line)
            .map_err(io::Error::from)
            .and_then(|text| self.file.write_all(format!("{text}\n").as_bytes()))
            .and_then(|()| self.file.sync_data());
        written.map_err(|cause| self.error(cause))
    }

    fn lock(&self) -> Result<(), StateError> {
        self.file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StateError::Locked { path: self.path.clone() },
            TryLockError::Error(cause) => self.error(cause),
        })
    }

    fn parse(&self, bytes: &[u8]) -> Result<(Trial, History), StateError> {
        let wrong = |line: usize, what: String| StateError::Content { path: self.path.clone(), line, what };
        let mut lines = bytes.split_inclusive(|&byte| byte == b'\n');
        let no_trial = "is not the state of a trial of `tandem verify`";
        let header: serde_json::Value = serde_json::from_slice(lines.next().unwrap_or_default())
            .map_err(|_| wrong(1, no_trial.to_owned()))?;
        if header["format"] != FORMAT {
            return Err(wrong(1, no_trial.to_owned()));
        }
        if header["version"] != VERSION {
            let what = format!(
                "is of version {} of the format; this tandem knows version {VERSION}",
                header["version"]
            );
            return Err(wrong(1, what));
        }
        let header: Header = serde_json::from_value(header).map_err(|error| wrong(1, error.to_string()))?;
        let mut events = Vec::new();
        for (number, line) in (2..).zip(lines) {
            events.push(serde_json::from_slice(line).map_err(|error| wrong(number, error.to_string()))?);
        }
        Ok((header.trial, History { events }))
    }

    fn error(&self, cause: io::Error) -> StateError {
        StateError::File { path: self.path.clone(), cause }
    }
}

/// What differs between two trials.
fn difference(recorded: &Trial, wanted: &Trial) -> Option<&'static str> {
    [
        ("list of arms", recorded.arms != wanted.arms),
        ("seed", recorded.plan.seed != wanted.plan.seed),
        ("number of blocks", recorded.plan != wanted.plan),
        ("length of blocks", recorded.block_ns != wanted.block_ns),
        ("settling time", recorded.settle_ns != wanted.settle_ns),
        ("metric", (&recorded.metric, recorded.better) != (&wanted.metric, wanted.better)),
    ]
    .into_iter()
    .find_map(|(what, differs)| differs.then_some(what))
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::{block, trial};
    use super::*;
    use proptest::prelude::*;
    use std::fs;

    fn events(trial: &Trial, count: usize) -> Vec<Event> {
        (0..count).map(|at| Event::Block(block(trial, at, |arm| arm as f64 + 0.1))).collect()
    }

    proptest! {
        #[test]
        fn a_trial_goes_on_wherever_the_file_was_cut(count in 0usize..8, cut in 0usize..3_000, seed: u64) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("trial.jsonl");
            let trial = trial(&["kernel", "tandem"], 4, seed);
            let events = events(&trial, count);
            let mut state = StateFile::create(&path, &trial).unwrap();
            let header = fs::metadata(&path).unwrap().len() as usize;
            events.iter().for_each(|event| state.append(event).unwrap());
            drop(state);
            let bytes = fs::read(&path).unwrap();
            let kept = (header + cut).min(bytes.len());
            fs::write(&path, &bytes[..kept]).unwrap();

            let (mut state, recorded, mut history) = StateFile::resume(&path, &trial, false).unwrap();
            prop_assert_eq!(&recorded, &trial);
            let whole = history.events.len();
            prop_assert_eq!(&history.events[..], &events[..whole]);
            prop_assert!(whole == count || kept < bytes.len());
            // The interrupted block runs again, and then the others.
            prop_assert_eq!(history.next(&trial).map(|(at, _)| at), Some(whole));
            let next = Event::Block(block(&trial, whole, |_| 2.0));
            state.append(&next).unwrap();
            drop(state);
            history.events.push(next);
            prop_assert_eq!(StateFile::resume(&path, &trial, false).unwrap().2, history);
        }

        #[test]
        fn no_content_makes_it_panic(content: Vec<u8>) {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("trial.jsonl");
            fs::write(&path, &content).unwrap();
            prop_assert!(StateFile::resume(&path, &trial(&["a", "b"], 1, 1), true).is_err());
            prop_assert_eq!(fs::read(&path).unwrap(), content, "what is no trial's stays as it is");
        }
    }

    #[test]
    fn the_end_of_a_trial_unlocks_its_file_while_a_process_is_being_started() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.jsonl");
        let trial = trial(&["kernel", "tandem"], 4, 1);
        let state = StateFile::create(&path, &trial).unwrap();
        let _copy_of_the_process = state.file.try_clone().unwrap();
        assert!(matches!(StateFile::resume(&path, &trial, false), Err(StateError::Locked { .. })));
        drop(state);
        StateFile::resume(&path, &trial, false).unwrap();
    }

    #[test]
    fn a_file_of_another_trial_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.jsonl");
        let first = trial(&["kernel", "tandem"], 4, 1);
        drop(StateFile::create(&path, &first).unwrap());
        let refused = |trial: &Trial| {
            let text = StateFile::resume(&path, trial, false).unwrap_err().to_string();
            text.split("with another ").nth(1).unwrap_or(&text).to_owned()
        };
        let again = "; repeat the options with which it began";
        assert_eq!(refused(&trial(&["kernel", "lavd"], 4, 1)), format!("list of arms{again}"));
        assert_eq!(refused(&trial(&["kernel", "tandem"], 5, 1)), format!("number of blocks{again}"));
        assert_eq!(refused(&trial(&["kernel", "tandem"], 4, 2)), format!("seed{again}"));
        assert_eq!(refused(&Trial { settle_ns: 1, ..first.clone() }), format!("settling time{again}"));
        assert_eq!(
            refused(&Trial { metric: Some("true".into()), ..first.clone() }),
            format!("metric{again}")
        );
        let (_locked, recorded, _) =
            StateFile::resume(&path, &trial(&["kernel", "tandem"], 4, 2), true).unwrap();
        assert_eq!(recorded, first, "the seed is that of the file");
        assert!(
            StateFile::resume(&path, &first, false)
                .unwrap_err()
                .to_string()
                .starts_with("another trial writes")
        );
    }

    #[test]
    fn no_file_is_overwritten_and_no_other_version_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trial.jsonl");
        let trial = trial(&["kernel", "tandem"], 4, 1);
        drop(StateFile::create(&path, &trial).unwrap());
        let error = StateFile::create(&path, &trial).unwrap_err().to_string();
        assert!(
            error.ends_with("exists already; add --resume to go on with its trial, or name another file"),
            "{error}"
        );
        let text = fs::read_to_string(&path).unwrap().replace("\"version\":1", "\"version\":2");
        fs::write(&path, text).unwrap();
        let error = StateFile::resume(&path, &trial, false).unwrap_err().to_string();
        assert!(
            error.ends_with("jsonl:1: is of version 2 of the format; this tandem knows version 1"),
            "{error}"
        );
    }
}
