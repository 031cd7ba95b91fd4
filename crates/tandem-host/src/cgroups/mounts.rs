//! The mounted hierarchies of cgroups.

use crate::mounts;
use std::path::{Path, PathBuf};

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The directory in the hierarchy that is mounted; `/` outside of containers.
    pub from: PathBuf,
    /// The mount point, under the root that was read.
    pub at: PathBuf,
    /// The controllers of a hierarchy of version 1, such as `cpu` and `cpuacct`; `None` for the unified one,
    /// version 2.
    pub controllers: Option<Vec<String>>,
}

impl Mount {
    /// The directory of a cgroup; `None` if it is outside of what is mounted.
    pub fn directory(&self, cgroup: &Path) -> Option<PathBuf> {
        Some(self.at.join(cgroup.strip_prefix(&self.from).ok()?))
    }

    /// Whether it is a hierarchy of version 1 with that controller.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.as_ref().is_some_and(|all| all.iter().any(|one| one == controller))
    }
}

/// All mounted hierarchies, in the order of mounting.
pub(super) fn hierarchies(root: &Path) -> Vec<Mount> {
    let hierarchy = |mount: mounts::Mount| {
        let controllers = match mount.file_system.as_str() {
            "cgroup2" => None,
            "cgroup" => Some(mount.options),
            _ => return None,
        };
        let at = root.join(mount.at.strip_prefix("/").unwrap_or(&mount.at));
        Some(Mount { from: mount.from, at, controllers })
    };
    mounts::mounts(root).into_iter().filter_map(hierarchy).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn finds_hierarchies_among_other_mounts() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        let text = "30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n\
            32 30 0:28 /a\\040b /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        fs::write(root.path().join("proc/self/mountinfo"), text).unwrap();
        let found = hierarchies(root.path());
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].at, root.path().join("sys/fs/cgroup/unified"));
        assert_eq!(found[0].controllers, None);
        assert!(found[1].has("cpuacct") && !found[1].has("memory"));
        let at = root.path().join("sys/fs/cgroup/cpu,cpuacct/c");
        assert_eq!(found[1].directory(Path::new("/a b/c")), Some(at));
        assert_eq!(found[1].directory(Path::new("/c")), None);
    }
}
