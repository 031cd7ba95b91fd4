//! The cgroups of a process, in either version of cgroups: `Documentation/admin-guide/cgroup-v1` and
//! `cgroup-v2.rst`.
//!
//! A system mounts the unified hierarchy (version 2), or one for each set of controllers (version 1), or
//! both, where each controller is in one of them ("hybrid").

use super::mounts::{Mount, hierarchies};
use super::walk::{CgroupWalk, DEPTH_MAX, is_gone};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};

/// Most cgroups within one of a VM: libvirt makes one for each thread, and a user may make as many as memory
/// holds.
const INNER_MAX: usize = 8192;

/// The beginning of the unified hierarchy's line: it has number 0 and no controllers.
const UNIFIED: &str = "0::";

/// The hierarchies of a system, as they were mounted at construction.
#[derive(Clone, Debug)]
pub struct Hierarchies {
    root: PathBuf,
    mounts: Vec<Mount>,
}

/// A cgroup of a process, in the hierarchy that has a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// Its path in the hierarchy; that of the root is `/`.
    pub path: PathBuf,
    /// Its directory, under the root that was read.
    pub directory: PathBuf,
    /// Whether the hierarchy is the unified one, version 2.
    pub is_unified: bool,
}

impl Hierarchies {
    /// Finds the mounted hierarchies.
    pub fn find(root: &Path) -> Self {
        Self { root: root.to_owned(), mounts: hierarchies(root) }
    }

    /// The cgroup of a process in the hierarchy of a controller, such as `memory`; `None` if the process is
    /// gone or that hierarchy is not mounted.
    ///
    /// A controller that no hierarchy of version 1 has is assumed to be in the unified one.
    pub fn of_process(&self, pid: u32, controller: &str) -> Option<Membership> {
        // A user may give a cgroup any name, valid UTF-8 or not.
        let text = fs::read(self.root.join(format!("proc/{pid}/cgroup"))).ok()?;
        let text = String::from_utf8_lossy(&text);
        let of_version_1 = self.mounts.iter().find(|mount| mount.has(controller));
        let unified = self.mounts.iter().find(|mount| mount.controllers.is_none());
        let mount = of_version_1.or(unified)?;
        let path = text.lines().find_map(|line| {
            // NUMBER:CONTROLLERS:PATH
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let is_it = match of_version_1 {
                Some(_) => controllers.split(',').any(|one| one == controller),
                None => line.starts_with(UNIFIED),
            };
            is_it.then_some(Path::new(path))
        })?;
        let directory = mount.directory(path)?;
        Some(Membership { path: path.to_owned(), directory, is_unified: mount.controllers.is_none() })
    }
}

/// The path of a task's cgroup in the unified hierarchy, with or without controllers, by the task's directory
/// in `/proc`; `None` if the task is gone, no unified hierarchy is mounted, or the cgroup is outside of this
/// process's namespace. The kernel's time for it grows with the square of the levels, and it cuts a path of
/// more than `PATH_MAX` bytes.
pub(crate) fn unified_cgroup(directory: &Path) -> Option<PathBuf> {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    let text = fs::read(directory.join("cgroup")).ok()?;
    let path = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(UNIFIED.as_bytes()))?;
    let path = Path::new(OsStr::from_bytes(path));
    (!path.starts_with("/..")).then(|| path.to_owned())
}

impl Membership {
    /// The cgroup around it; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let directory = self.directory.parent()?.to_owned();
        Some(Self { path: self.path.parent()?.to_owned(), directory, is_unified: self.is_unified })
    }

    /// Whether it contains that process and no other, nested cgroups included. A cgroup that cannot be read,
    /// or has more than [`INNER_MAX`] cgroups or more than [`DEPTH_MAX`] levels in it, counts as containing
    /// others.
    pub fn is_alone(&self, pid: u32) -> bool {
        let mut found = false;
        for (number, entry) in CgroupWalk::begin(&self.directory).enumerate() {
            let Ok(entry) = entry else { return false };
            if number >= INNER_MAX || entry.depth() > DEPTH_MAX {
                return false;
            }
            let text = match fs::read_to_string(entry.path().join("cgroup.procs")) {
                Ok(text) => text,
                Err(error) if is_gone(&error) => continue,
                // A threaded cgroup does not list processes; a cgroup further up lists the processes of its
                // threads.
                Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => continue,
                Err(_) => return false,
            };
            for line in text.lines() {
                match line.parse() == Ok(pid) {
                    true => found = true,
                    false => return false,
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    fn root(mountinfo: &str, cgroup: &str) -> (tempfile::TempDir, Hierarchies) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [("proc/self/mountinfo", mountinfo), ("proc/7/cgroup", cgroup)] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let hierarchies = Hierarchies::find(root.path());
        (root, hierarchies)
    }

    const UNIFIED_MOUNT: &str = "31 30 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    const HYBRID: &str = "31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
        32 30 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";

    #[test]
    fn a_controller_is_found_in_its_hierarchy() {
        let lines = "4:memory:/old:er\n1:name=systemd:/x\n0::/new/er\n";
        let (root, hybrid) = root(HYBRID, lines);
        let memory = hybrid.of_process(7, "memory").unwrap();
        assert_eq!(memory.path, Path::new("/old:er"));
        assert_eq!(memory.directory, root.path().join("sys/fs/cgroup/memory/old:er"));
        assert!(!memory.is_unified);
        assert_eq!(hybrid.of_process(7, "cpuset").unwrap().path, Path::new("/new/er"));
        assert_eq!(hybrid.of_process(8, "memory"), None);
        let of = |pid: &str| unified_cgroup(&root.path().join("proc").join(pid));
        assert_eq!(of("7"), Some("/new/er".into()));
        assert_eq!(of("8"), None);
    }

    #[test]
    fn the_unified_cgroup_of_a_task_has_any_name_and_is_in_the_namespace() {
        let of = |text: &[u8]| {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join("cgroup"), text).unwrap();
            unified_cgroup(directory.path())
        };
        assert_eq!(of(b"0::/\xff:a b\n"), Some(PathBuf::from(OsStr::from_bytes(b"/\xff:a b"))));
        assert_eq!(of(b"0::/..a\n"), Some("/..a".into()));
        for outside in ["0::/..\n", "0::/../a\n", "1:memory:/a\n", ""] {
            assert_eq!(of(outside.as_bytes()), None, "{outside:?}");
        }
    }

    #[test]
    fn the_unified_hierarchy_has_all() {
        let (root, unified) = root(UNIFIED_MOUNT, "0::/a/b\n");
        let memory = unified.of_process(7, "memory").unwrap();
        assert_eq!(memory.parent().unwrap().directory, root.path().join("sys/fs/cgroup/a"));
        assert!(memory.is_unified);
    }

    #[test]
    fn nothing_is_mounted() {
        let (_root, none) = root("", "0::/a\n");
        assert_eq!(none.of_process(7, "memory"), None);
    }

    #[test]
    fn processes_of_inner_cgroups_count() {
        let (root, unified) = root(UNIFIED_MOUNT, "0::/a/b\n");
        let procs = |path: &str, text: &str| {
            let directory = root.path().join("sys/fs/cgroup").join(path);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("cgroup.procs"), text).unwrap();
        };
        procs("a", "");
        procs("a/b", "7\n");
        let inner = unified.of_process(7, "memory").unwrap();
        let outer = inner.parent().unwrap();
        assert!(inner.is_alone(7) && outer.is_alone(7) && !outer.is_alone(8));
        procs("a/c", "8\n");
        assert!(inner.is_alone(7) && !outer.is_alone(7));
        procs("a/c", "");
        assert!(outer.is_alone(7));
        // No user, not even root, can read a folder as a file.
        fs::create_dir_all(root.path().join("sys/fs/cgroup/a/d/cgroup.procs")).unwrap();
        assert!(inner.is_alone(7) && !outer.is_alone(7), "the processes in it are unknown");
    }
}
