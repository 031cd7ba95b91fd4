//! Mounted file systems: the kernel's `Documentation/filesystems/proc.rst` on `/proc/PID/mountinfo`.

use std::fs;
use std::path::{Path, PathBuf};

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The directory in the file system that is mounted; usually `/`.
    pub from: PathBuf,
    /// The mount point, as this process sees it.
    pub at: PathBuf,
    /// Its type, such as `cgroup2`.
    pub file_system: String,
    /// The options of the file system, such as the controllers of a hierarchy of cgroups.
    pub options: Vec<String>,
}

/// All mounted file systems, in the order of mounting.
///
/// `root` is `/`, or a directory with a copy of `/proc`.
pub fn mounts(root: &Path) -> Vec<Mount> {
    let text = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    text.lines().filter_map(mount).collect()
}

/// The mount points of file systems of this type, in the order of mounting.
pub fn mount_points(root: &Path, file_system: &str) -> Vec<PathBuf> {
    let of_type = mounts(root).into_iter().filter(|mount| mount.file_system == file_system);
    of_type.map(|mount| mount.at).collect()
}

fn mount(line: &str) -> Option<Mount> {
    let (place, file_system) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3).map(unescape);
    let (from, at) = (place.next()?, place.next()?);
    let mut fields = file_system.split(' ');
    let file_system = fields.next()?.to_owned();
    let options = fields.nth(1).map(|options| options.split(',').map(str::to_owned).collect());
    Some(Mount { from: from.into(), at: at.into(), file_system, options: options.unwrap_or_default() })
}

/// In `mountinfo`, blanks and backslashes are three octal digits.
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
    fn finds_mounts_among_others() {
        let root = tempfile::tempdir().unwrap();
        assert!(mounts(root.path()).is_empty());
        let text = "22 27 0:21 / /proc rw,nosuid - proc proc rw\n\
            30 23 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
            31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n\
            32 30 0:28 /a\\040b /other rw - cgroup cgroup rw,cpu,cpuacct\n\
            33 30 0:29 / /x\n";
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/mountinfo"), text).unwrap();
        assert_eq!(mount_points(root.path(), "cgroup2"), [PathBuf::from("/sys/fs/cgroup/unified")]);
        assert!(mount_points(root.path(), "bpf").is_empty());
        let found = mounts(root.path());
        assert_eq!(found.len(), 4);
        assert_eq!(found[3].from, Path::new("/a b"));
        assert_eq!(found[3].options, ["rw", "cpu", "cpuacct"]);
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
