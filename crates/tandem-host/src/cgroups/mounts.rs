//! Where hierarchies of cgroups are mounted: the kernel's `Documentation/filesystems/proc.rst`, on `mountinfo`.

use std::fs;
use std::path::{Path, PathBuf};

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    /// The directory in the hierarchy that is mounted; `/` but in containers.
    pub from: PathBuf,
    /// Where it is mounted, under the root that was read.
    pub at: PathBuf,
    /// The controllers of a hierarchy of version 1, such as `cpu` and `cpuacct`; none for the unified one, version 2.
    pub controllers: Option<Vec<String>>,
}

impl Mount {
    /// The directory of a cgroup; nothing if it is outside of what is mounted.
    pub fn directory(&self, cgroup: &Path) -> Option<PathBuf> {
        Some(self.at.join(cgroup.strip_prefix(&self.from).ok()?))
    }

    /// Whether it is a hierarchy of version 1 with that controller.
    pub fn has(&self, controller: &str) -> bool {
        self.controllers.as_ref().is_some_and(|all| all.iter().any(|one| one == controller))
    }
}

/// All hierarchies that are mounted, in the order of `/proc/self/mountinfo`.
pub(super) fn mounts(root: &Path) -> Vec<Mount> {
    let text = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    text.lines().filter_map(|line| mount(root, line)).collect()
}

fn mount(root: &Path, line: &str) -> Option<Mount> {
    let (place, file_system) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3).map(unescape);
    let (from, at) = (place.next()?, place.next()?);
    let mut file_system = file_system.split(' ');
    let controllers = match file_system.next()? {
        "cgroup2" => None,
        "cgroup" => Some(file_system.nth(1)?.split(',').map(str::to_owned).collect()),
        _ => return None,
    };
    Some(Mount { from: from.into(), at: root.join(at.trim_start_matches('/')), controllers })
}

/// Blanks and backslashes stand in `mountinfo` as three octal digits.
fn unescape(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) if code.is_ascii() => {
                text.push(code.into());
                text.push_str(&part[3..]);
            }
            _ => {
                text.push('\\');
                text.push_str(part);
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_hierarchies_among_other_mounts() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        let text = "22 27 0:21 / /proc rw,nosuid - proc proc rw\n\
            30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n\
            32 30 0:28 /a\\040b /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            33 30 0:29 / /x\n";
        fs::write(root.path().join("proc/self/mountinfo"), text).unwrap();
        let found = mounts(root.path());
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].at, root.path().join("sys/fs/cgroup/unified"));
        assert_eq!(found[0].controllers, None);
        assert!(found[1].has("cpuacct") && !found[1].has("memory"));
        let at = root.path().join("sys/fs/cgroup/cpu,cpuacct/c");
        assert_eq!(found[1].directory(Path::new("/a b/c")), Some(at));
        assert_eq!(found[1].directory(Path::new("/c")), None);
    }

    #[test]
    fn escapes_are_octal() {
        let cases = [
            ("a\\040b\\134", "a b\\"),
            ("\\", "\\"),
            ("\\09", "\\09"),
            ("\\777x", "\\777x"),
            ("é\\é1é", "é\\é1é"),
        ];
        for (field, text) in cases {
            assert_eq!(unescape(field), text);
        }
    }
}
