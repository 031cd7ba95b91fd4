//! Mounted file systems: the kernel's `Documentation/filesystems/proc.rst` on `/proc/PID/mountinfo`.

use std::fs;
use std::path::{Path, PathBuf};

/// Where file systems of this type are mounted, as this process sees it; the first mounted comes first.
///
/// `root` is `/`, or a directory with a copy of `/proc`.
pub fn mount_points(root: &Path, file_system: &str) -> Vec<PathBuf> {
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    mounts.lines().filter_map(|line| mount_point(line, file_system)).map(PathBuf::from).collect()
}

fn mount_point<'a>(line: &'a str, file_system: &str) -> Option<&'a str> {
    let (mount, rest) = line.split_once(" - ")?;
    (rest.split(' ').next() == Some(file_system)).then(|| mount.split(' ').nth(4))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_mounts_among_others() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(mount_points(root.path(), "cgroup2"), [""; 0].map(PathBuf::from));
        let mounts = "22 27 0:21 / /proc rw,nosuid - proc proc rw\n\
            30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n\
            32 30 0:28 / /other rw - cgroup2 cgroup2 rw\n";
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/mountinfo"), mounts).unwrap();
        let found = mount_points(root.path(), "cgroup2");
        assert_eq!(found, ["/sys/fs/cgroup/unified", "/other"].map(PathBuf::from));
        assert!(mount_points(root.path(), "cgroup").is_empty());
    }
}
