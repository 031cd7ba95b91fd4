//! The questions to a reader.

use crate::untrusted;
use crate::vms::read_user;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// A file of a process that the kernel generates from the process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProcessFile {
    /// Its arguments.
    Cmdline,
    /// Its mappings.
    Maps,
    /// Its mappings, with their policies and nodes.
    NumaMaps,
}

impl ProcessFile {
    fn name(self) -> &'static str {
        match self {
            Self::Cmdline => "cmdline",
            Self::Maps => "maps",
            Self::NumaMaps => "numa_maps",
        }
    }

    /// The most bytes that are read of it. Command lines of managers have some ten thousand; a mapping takes
    /// some hundred, and a process may have 65,530 by default (`vm.max_map_count`).
    fn max_bytes(self) -> u64 {
        match self {
            Self::Cmdline => 1 << 18,
            Self::Maps | Self::NumaMaps => 1 << 24,
        }
    }
}

/// The file to read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum What {
    OfProcess(ProcessFile),
    /// A file that the process of this user has named, by its path from a folder on.
    Named {
        start: PathBuf,
        path: String,
        user: u32,
    },
}

/// Longest file of a monitor's configuration that is read, bytes.
const NAMED_MAX_BYTES: u64 = 1 << 20;

/// A question about a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Question {
    /// The process's directory in `/proc`.
    pub process: PathBuf,
    pub what: What,
}

impl Question {
    /// The longest possible answer, bytes.
    pub fn max_bytes(&self) -> u64 {
        match self.what {
            What::OfProcess(file) => file.max_bytes(),
            What::Named { .. } => NAMED_MAX_BYTES,
        }
    }

    /// Reads the file.
    pub fn answer(&self) -> Option<Vec<u8>> {
        match &self.what {
            What::OfProcess(file) => {
                let mut bytes = Vec::new();
                let file = File::open(self.process.join(file.name())).ok()?;
                file.take(self.max_bytes()).read_to_end(&mut bytes).ok()?;
                Some(bytes)
            }
            What::Named { start, path, user } => untrusted::read_file(start, path, *user, self.max_bytes()),
        }
    }

    /// The user of the process in question, if the question is about a process of this machine and asks only
    /// for what may be revealed about it: the asking process is not trusted.
    pub fn checked(&self) -> Option<u32> {
        let number = self.process.strip_prefix("/proc").ok()?.to_str()?;
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let owner = read_user(&self.process)?;
        match &self.what {
            What::OfProcess(_) => Some(owner),
            What::Named { start, user, .. } => {
                let starts = [Path::new("/").to_owned(), self.process.join("root"), self.process.join("cwd")];
                // Compares text: `Path` would take `/proc/1/root/.` for `/proc/1/root`.
                let is_start = starts.iter().any(|known| known.as_os_str() == start.as_os_str());
                (is_start && *user == owner).then_some(owner)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::getuid;

    fn question(process: &str, what: What) -> Question {
        Question { process: process.into(), what }
    }

    fn named(start: impl Into<PathBuf>, user: u32) -> What {
        What::Named { start: start.into(), path: "etc/shadow".into(), user }
    }

    #[test]
    fn the_asking_process_is_not_trusted() {
        let own = format!("/proc/{}", std::process::id());
        let user = getuid().as_raw();
        let maps = || What::OfProcess(ProcessFile::Maps);
        assert_eq!(question(&own, maps()).checked(), Some(user));
        for start in ["/".to_owned(), format!("{own}/root"), format!("{own}/cwd")] {
            assert_eq!(question(&own, named(&start, user)).checked(), Some(user), "{start}");
            assert_eq!(question(&own, named(&start, user + 1)).checked(), None, "another user's files");
        }
        for start in
            ["/root", "", "/proc/1/root", "/etc", &format!("{own}/root/.."), &format!("{own}/root/.")]
        {
            assert_eq!(question(&own, named(start, user)).checked(), None, "{start}");
        }
        let elsewhere =
            ["/proc", "/proc/", "/proc/self", "/etc", "1", "/proc/1/../2", "/proc/1/task/1", "/proc/+1", ""];
        for process in elsewhere {
            assert_eq!(question(process, maps()).checked(), None, "{process}");
        }
        assert_eq!(question("/proc/4194305", maps()).checked(), None, "there is no such process");
    }
}
