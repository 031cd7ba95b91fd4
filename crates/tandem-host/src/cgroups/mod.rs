//! Cgroups: those of the unified hierarchy by their path, and those of a process in either version. The
//! kernel's `Documentation/admin-guide/cgroup-v2.rst`.

mod limits;
mod membership;
mod mounts;
mod walk;

pub(crate) use limits::limit_cpus;
pub use limits::{CpuLimits, cpu_limits};
pub(crate) use membership::unified_cgroup;
pub use membership::{Hierarchies, Membership};
pub(crate) use walk::DEPTH_MAX;
pub(crate) use walk::{CgroupWalk, is_gone};

use mounts::hierarchies;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tandem_machine::parse_cpulist;
use thiserror::Error;

/// Why a cgroup cannot be used.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// The hierarchy is not mounted.
    #[error("no cgroup2 file system is mounted; run `mount -t cgroup2 none /sys/fs/cgroup`")]
    NotMounted,
    /// The path does not exist, or cannot be read.
    #[error("cgroup {}: {cause}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The path leads to something else.
    #[error("{} is not a cgroup; give a directory below {}, or its path from there", path.display(), mount.display())]
    NoCgroup {
        /// The path.
        path: PathBuf,
        /// The mount point of the hierarchy.
        mount: PathBuf,
    },
}

/// A cgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// Its path in the hierarchy; that of the root is `/`.
    pub path: PathBuf,
    /// Its number: the inode number of its directory.
    pub id: u64,
    /// The owner of its directory, who may change it.
    pub owner: u32,
    /// The CPUs that its tasks may use, where the `cpuset` controller limits them.
    pub allowed: Option<Vec<u32>>,
}

/// The unified hierarchy.
#[derive(Debug)]
pub struct Hierarchy {
    mount: PathBuf,
}

impl Hierarchy {
    /// Finds its mount point under `root`: `/` for this machine.
    ///
    /// # Errors
    /// If it is not mounted.
    pub fn find(root: &Path) -> Result<Self, CgroupError> {
        let unified = hierarchies(root).into_iter().find(|mount| mount.controllers.is_none());
        Ok(Self { mount: unified.ok_or(CgroupError::NotMounted)?.at })
    }

    /// The cgroup of a directory, or of a path from the mount point of the hierarchy.
    ///
    /// # Errors
    /// If the path is not a cgroup.
    pub fn cgroup(&self, path: &Path) -> Result<Cgroup, CgroupError> {
        let directory = self.mount.join(path);
        let directory = directory
            .canonicalize()
            .map_err(|cause| CgroupError::Unreadable { path: path.to_owned(), cause })?;
        self.at(&directory)
            .ok_or_else(|| CgroupError::NoCgroup { path: path.to_owned(), mount: self.mount.clone() })
    }

    /// All cgroups, each before those in it, and otherwise in no particular order; the iterator finds them as
    /// it advances.
    pub fn all(&self) -> impl Iterator<Item = Cgroup> {
        // Skips a cgroup that was removed meanwhile, or cannot be read.
        walk::CgroupWalk::begin(&self.mount).flatten().filter_map(|entry| self.at(entry.path()))
    }

    /// The directory of a cgroup, which may not exist.
    pub(crate) fn directory(&self, cgroup: &Path) -> PathBuf {
        self.mount.join(cgroup.strip_prefix("/").unwrap_or(cgroup))
    }

    /// The path in the hierarchy of a cgroup's directory; that of the root is `/`.
    pub(crate) fn path_of(&self, directory: &Path) -> PathBuf {
        Path::new("/").join(directory.strip_prefix(&self.mount).unwrap_or(directory))
    }

    /// Whether a cgroup is a cpuset partition, whose CPUs no task outside of it may use, except kernel
    /// threads that are pinned there.
    pub fn is_partition(&self, cgroup: &Path) -> bool {
        let kind =
            fs::read_to_string(self.directory(cgroup).join("cpuset.cpus.partition")).unwrap_or_default();
        ["root", "isolated"].contains(&kind.trim())
    }

    /// The CPUs of isolated cpuset partitions; empty where the root does not list them, as before Linux 6.7
    /// and in containers.
    pub fn isolated_cpus(&self) -> Vec<u32> {
        read_list(&self.mount.join("cpuset.cpus.isolated")).unwrap_or_default()
    }

    fn at(&self, directory: &Path) -> Option<Cgroup> {
        directory.starts_with(&self.mount).then_some(())?;
        directory.join("cgroup.procs").exists().then_some(())?;
        let metadata = directory.metadata().ok()?;
        Some(Cgroup {
            path: self.path_of(directory),
            id: metadata.ino(),
            owner: metadata.uid(),
            allowed: read_list(&directory.join("cpuset.cpus.effective")),
        })
    }
}

fn read_list(file: &Path) -> Option<Vec<u32>> {
    parse_cpulist(&fs::read_to_string(file).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that looks like the hierarchy: /, /a, /a/b, and one in it that is not a cgroup.
    fn hierarchy() -> (tempfile::TempDir, Hierarchy) {
        let folder = tempfile::tempdir().unwrap();
        let mount = folder.path().canonicalize().unwrap().join("cgroup");
        for path in ["", "a", "a/b"] {
            fs::create_dir_all(mount.join(path)).unwrap();
            fs::write(mount.join(path).join("cgroup.procs"), "").unwrap();
        }
        fs::write(mount.join("a/cpuset.cpus.effective"), "0-1\n").unwrap();
        fs::create_dir(mount.join("other")).unwrap();
        (folder, Hierarchy { mount })
    }

    #[test]
    fn takes_absolute_paths_and_those_from_the_mount() {
        let (_folder, hierarchy) = hierarchy();
        let absolute = hierarchy.cgroup(&hierarchy.mount.join("a")).unwrap();
        assert_eq!(hierarchy.cgroup(Path::new("a")).unwrap(), absolute);
        assert_eq!((absolute.path.to_str(), absolute.allowed), (Some("/a"), Some(vec![0, 1])));
        assert_eq!(hierarchy.cgroup(Path::new("a/b")).unwrap().allowed, None);
    }

    #[test]
    fn refuses_what_is_no_cgroup() {
        let (folder, hierarchy) = hierarchy();
        let gone = hierarchy.cgroup(Path::new("a/none")).unwrap_err().to_string();
        assert!(gone.starts_with("cgroup a/none: No such file"), "{gone}");
        for path in [Path::new("other"), Path::new(".."), folder.path()] {
            let error = hierarchy.cgroup(path).unwrap_err();
            assert!(matches!(error, CgroupError::NoCgroup { .. }), "{}: {error}", path.display());
        }
    }

    #[test]
    fn the_root_lists_isolated_cpus() {
        let (_folder, hierarchy) = hierarchy();
        for (text, cpus) in
            [(None, &[][..]), (Some("\n"), &[]), (Some("2-3,7\n"), &[2, 3, 7]), (Some("x"), &[])]
        {
            if let Some(text) = text {
                fs::write(hierarchy.mount.join("cpuset.cpus.isolated"), text).unwrap();
            }
            assert_eq!(hierarchy.isolated_cpus(), cpus, "{text:?}");
        }
    }

    #[test]
    fn partitions_are_identified_by_their_state() {
        let (_folder, hierarchy) = hierarchy();
        assert!(!hierarchy.is_partition(Path::new("/a")));
        for (state, is_one) in [
            ("member\n", false),
            ("root\n", true),
            ("isolated\n", true),
            ("root invalid (Cpu list empty)\n", false),
        ] {
            fs::write(hierarchy.mount.join("a/cpuset.cpus.partition"), state).unwrap();
            assert_eq!(hierarchy.is_partition(Path::new("/a")), is_one, "{state}");
        }
    }

    #[test]
    fn lists_parents_before_children() {
        let (_folder, hierarchy) = hierarchy();
        let paths: Vec<_> = hierarchy.all().map(|cgroup| cgroup.path).collect();
        assert_eq!(paths, ["/", "/a", "/a/b"].map(PathBuf::from));
    }
}
