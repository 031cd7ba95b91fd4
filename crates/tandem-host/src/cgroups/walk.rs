//! Walking through the cgroups of a hierarchy.

use rustix::io::Errno;
use std::io;
use std::path::Path;
use walkdir::{DirEntry, Error, IntoIter, WalkDir};

/// Levels that are looked at, the first one's not counted; containers of orchestrators are on the fifth or sixth.
pub(crate) const DEPTH_MAX: usize = 64;

/// The directories of a cgroup and of those in it, in no certain order but each before those in it: whoever takes them may pause at any
/// time. The last level is one beyond [`DEPTH_MAX`], so that one can tell whether there is more. A cgroup that is removed meanwhile is
/// left out, and one that is made meanwhile may be. Errors are about cgroups that cannot be looked into, and end nothing.
#[derive(Debug)]
pub(crate) struct CgroupWalk(IntoIter);

impl CgroupWalk {
    /// Begins one.
    pub(crate) fn begin(directory: &Path) -> Self {
        // As many directories are open as there are levels: one that is not is read as a whole, however much somebody has put there.
        let levels = DEPTH_MAX + 1;
        let entries = WalkDir::new(directory).same_file_system(true).max_depth(levels).max_open(levels + 1);
        Self(entries.into_iter())
    }

    /// Leaves out those in the cgroup that was taken last.
    pub(crate) fn skip_inner(&mut self) {
        self.0.skip_current_dir();
    }
}

impl Iterator for CgroupWalk {
    type Item = Result<DirEntry, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.find(|entry| match entry {
            Ok(entry) => entry.file_type().is_dir(),
            Err(error) => !error.io_error().is_some_and(is_gone),
        })
    }
}

/// Whether a cgroup was removed meanwhile: the files of one that is being removed are there and cannot be read.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::NODEV)
}
