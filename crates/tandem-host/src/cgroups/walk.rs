//! Iterates over the cgroups of a hierarchy.

use rustix::io::Errno;
use std::io;
use std::path::Path;
use walkdir::{DirEntry, Error, IntoIter, WalkDir};

/// Most levels that are visited, not counting the first; containers of orchestrators are on the fifth or
/// sixth.
pub(crate) const DEPTH_MAX: usize = 64;

/// The directories of a cgroup and of those in it, each before those in it and otherwise in no particular
/// order. The caller may pause at any time. The last level is one beyond [`DEPTH_MAX`], which shows whether
/// there are more. The iterator leaves out a cgroup that is removed meanwhile, and may leave out one that is
/// created meanwhile. Errors are about cgroups that cannot be read, and do not end the iteration.
#[derive(Debug)]
pub(crate) struct CgroupWalk(IntoIter);

impl CgroupWalk {
    /// Begins at a directory.
    pub(crate) fn begin(directory: &Path) -> Self {
        // As many directories are open as there are levels: otherwise the walker would read one as a whole,
        // however large a user has made it.
        let levels = DEPTH_MAX + 1;
        let entries = WalkDir::new(directory).same_file_system(true).max_depth(levels).max_open(levels + 1);
        Self(entries.into_iter())
    }

    /// Skips the cgroups within the one that was returned last.
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

/// Whether a cgroup was removed meanwhile: the files of one that is being removed exist but cannot be read.
pub(crate) fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || Errno::from_io_error(error) == Some(Errno::NODEV)
}
