//! The file in which an agent publishes where each VM lives: `/run/tandem/homes.json`.
//!
//! A new file replaces the old one in one step, so that readers find one or the other. An entry is about one
//! process with one start time: readers ignore entries of VMs that are gone, or of an earlier boot.

use super::Identity;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::ops::Add;
use std::path::{Path, PathBuf};
use tandem_file::named_file::{TEXT_MAX, read_string};
use tandem_file::new_file::NewFile;
use tandem_machine::homes::Saving;
use thiserror::Error;

/// The path of the file, from the root.
pub const HOMES_PATH: &str = "run/tandem/homes.json";

/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// Where VMs live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HomesFile {
    /// Version of the format: [`VERSION`].
    pub version: u32,
    /// When it was written, in seconds since 1970.
    pub written_unix_s: u64,
    /// Whether these homes are plans of an agent that only observes.
    #[serde(default)]
    pub are_planned: bool,
    /// An entry for each VM.
    pub vms: Vec<HomeEntry>,
}

/// Where a VM lives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HomeEntry {
    /// The VM.
    #[serde(flatten)]
    pub identity: Identity,
    /// Its name, for readers of the file.
    pub name: String,
    /// Its nodes, by the operating system's numbers; empty if it has no home.
    pub home: Vec<u32>,
    /// Why it has these nodes, or none: a clause without a full stop.
    pub why: String,
    /// The homes of its virtual nodes, if each has its own; [`HomeEntry::home`] has the nodes of all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartHome>,
    /// What a planned home is expected to save.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saving: Option<HomeSaving>,
    /// How it is isolated from others on their cores, if the settings ask for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cores: Option<Cores>,
}

/// How a VM is isolated from others on their cores, if the settings ask for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cores {
    /// No other task runs on a core while it does: its threads have a core scheduling cookie.
    CoreScheduling,
    /// Other VMs have their homes on other nodes, as long as there are enough; others may still share its
    /// cores.
    Placement,
    /// Cores have one thread each, so no two tasks share one.
    OneThread,
    /// Not isolated.
    Shared,
}

/// Where a virtual node of a VM lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartHome {
    /// Its number in the guest.
    pub virtual_node: u32,
    /// The numbers of its vCPUs, in ascending order.
    pub vcpus: Vec<u32>,
    /// Its nodes, by the operating system's numbers; empty if it has no home.
    pub home: Vec<u32>,
    /// Why it has these nodes, or none: a clause without a full stop.
    pub why: String,
}

/// What a planned home is expected to save, in CPUs: CPU time per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HomeSaving {
    /// At least, if the VM waits for memory as little as the least memory-bound programs.
    pub least_cpus: f64,
    /// With the planner's own assumption.
    pub expected_cpus: f64,
    /// At most.
    pub most_cpus: f64,
}

impl From<Saving> for HomeSaving {
    fn from(Saving { least, expected, most }: Saving) -> Self {
        Self { least_cpus: least, expected_cpus: expected, most_cpus: most }
    }
}

impl Add for HomeSaving {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            least_cpus: self.least_cpus + other.least_cpus,
            expected_cpus: self.expected_cpus + other.expected_cpus,
            most_cpus: self.most_cpus + other.most_cpus,
        }
    }
}

/// Why the file cannot be used.
#[derive(Debug, Error)]
pub enum HomesFileError {
    /// The system cannot read or write the file.
    #[error("{}: {cause}", path.display())]
    Inaccessible {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The content is not a file of homes.
    #[error("{}: {cause}; restart the service, which writes the file anew", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The error, with line and column.
        cause: serde_json::Error,
    },
    /// A later Tandem has written the file.
    #[error("{}: the file has version {found}; this tandem reads only version {VERSION}", path.display())]
    OtherVersion {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
}

impl HomesFile {
    /// Reads the file under a root, which is `/` for this machine; `None` if there is none.
    ///
    /// # Errors
    /// If it cannot be read, or is not such a file.
    pub fn read(root: &Path) -> Result<Option<Self>, HomesFileError> {
        /// What every version has.
        #[derive(Deserialize)]
        struct AnyVersion {
            version: u32,
        }
        let path = root.join(HOMES_PATH);
        let text = match read_string(&path, TEXT_MAX) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(HomesFileError::Inaccessible { path, cause }),
        };
        match serde_json::from_str(&text) {
            Ok(AnyVersion { version: VERSION }) => {}
            Ok(AnyVersion { version: found }) => return Err(HomesFileError::OtherVersion { path, found }),
            Err(cause) => return Err(HomesFileError::Malformed { path, cause }),
        }
        match serde_json::from_str(&text) {
            Ok(file) => Ok(Some(file)),
            Err(cause) => Err(HomesFileError::Malformed { path, cause }),
        }
    }

    /// Removes the file under a root, if it exists: no agent gives homes any longer.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn remove(root: &Path) -> Result<(), HomesFileError> {
        let path = root.join(HOMES_PATH);
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != ErrorKind::NotFound => {
                Err(HomesFileError::Inaccessible { path, cause })
            }
            _ => Ok(()),
        }
    }

    /// Writes the file under a root and replaces an older one; creates its folder if that is missing.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn write(&self, root: &Path) -> Result<(), HomesFileError> {
        let path = root.join(HOMES_PATH);
        let written = (|| {
            fs::create_dir_all(path.parent().expect("the path has a folder"))?;
            let mut file = NewFile::create(&path)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            file.complete()
        })();
        written.map_err(|cause| HomesFileError::Inaccessible { path, cause })
    }

    /// The entry of a VM.
    pub fn entry(&self, identity: Identity) -> Option<&HomeEntry> {
        self.vms.iter().find(|entry| entry.identity == identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn file() -> HomesFile {
        let identity = Identity { pid: 4711, start_ticks: 99 };
        let (name, home, why) = ("web".into(), vec![1], "it has most free memory".into());
        let entry = HomeEntry { identity, name, home, why, parts: Vec::new(), saving: None, cores: None };
        HomesFile { version: VERSION, written_unix_s: 1_800_000_000, are_planned: false, vms: vec![entry] }
    }

    #[test]
    fn what_is_written_is_read() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(HomesFile::read(root.path()).unwrap(), None);
        for _ in 0..2 {
            file().write(root.path()).unwrap();
            assert_eq!(HomesFile::read(root.path()).unwrap(), Some(file()));
        }
        let text = fs::read_to_string(root.path().join(HOMES_PATH)).unwrap();
        assert!(
            text.contains("\"pid\": 4711,\n      \"start_ticks\": 99,\n      \"name\": \"web\""),
            "{text}"
        );
        for _ in 0..2 {
            HomesFile::remove(root.path()).unwrap();
            assert_eq!(HomesFile::read(root.path()).unwrap(), None);
        }
    }

    proptest! {
        #[test]
        fn a_saving_is_read_to_the_last_bit(least_cpus: f64, expected_cpus: f64, most_cpus: f64) {
            let saving = HomeSaving { least_cpus, expected_cpus, most_cpus };
            let text = serde_json::to_string(&saving).unwrap();
            prop_assert_eq!(serde_json::from_str::<HomeSaving>(&text).unwrap(), saving);
        }
    }

    #[test]
    fn parts_are_added_to_what_there_was() {
        let text = serde_json::to_string(&file()).unwrap();
        assert!(!text.contains("parts"), "{text}");
        let mut with_parts = file();
        let part = PartHome { virtual_node: 1, vcpus: vec![2, 3], home: vec![0], why: "it is".into() };
        with_parts.vms[0].parts.push(part);
        let text = serde_json::to_string(&with_parts).unwrap();
        assert!(
            text.contains(r#""parts":[{"virtual_node":1,"vcpus":[2,3],"home":[0],"why":"it is"}]"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<HomesFile>(&text).unwrap(), with_parts);
    }

    #[test]
    fn another_process_with_the_number_has_no_entry() {
        assert!(file().entry(Identity { pid: 4711, start_ticks: 99 }).is_some());
        assert_eq!(file().entry(Identity { pid: 4711, start_ticks: 100 }), None);
    }

    #[test]
    fn other_files_are_refused_in_one_sentence() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join(HOMES_PATH);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let cases = [
            ("{\"version\": 2}", "the file has version 2; this tandem reads only version 1"),
            (
                "{",
                "EOF while parsing an object at line 1 column 1; restart the service, which writes the file anew",
            ),
            (
                "{\"version\": 1}",
                "missing field `written_unix_s` at line 1 column 14; restart the service, which writes the file anew",
            ),
        ];
        for (text, message) in cases {
            fs::write(&path, text).unwrap();
            let error = HomesFile::read(root.path()).unwrap_err().to_string();
            assert_eq!(error, format!("{}: {message}", path.display()));
        }
    }
}
