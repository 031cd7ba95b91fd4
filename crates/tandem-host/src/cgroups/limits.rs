//! CPU limits of cgroups: `cpu.max` of the unified hierarchy, and for a single cgroup also `cpu.cfs_quota_us`
//! of version 1.
//!
//! **Problem.** Users who own a part of the hierarchy create cgroups there, as many and as deep as the kernel
//! allows, with any name.
//!
//! **Approach.** A walk level by level, so that it finds the limits of managers before those of users. It
//! stops at a number and at a depth, reads the beginning of one file for each cgroup, and reports whether it
//! was complete. A cgroup that hides whether it has a limit counts as having one.
//!
//! **Limits.** The walk does not visit hierarchies of version 1.

use super::walk::{DEPTH_MAX, is_gone};
use super::{CgroupError, hierarchies};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Most cgroups that are visited: as many as the kernel's memory controller can number (`MEM_CGROUP_ID_MAX`).
const CGROUPS_MAX: usize = 65_535;
/// Longest text of `cpu.max`: two numbers of 64 bits.
const TEXT_MAX: u64 = 64;
/// The period where the file has none: the kernel's `default_bw_period_us`.
const PERIOD_US: u64 = 100_000;
/// Limits that are named; the rest are counted.
const NAMED_MAX: usize = 3;

/// Which cgroups have CPU limits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuLimits {
    /// The number of limits found.
    pub count: usize,
    /// The paths of the first ones, from the root down; they may contain any character.
    pub first: Vec<PathBuf>,
    /// Whether all cgroups were visited.
    pub is_complete: bool,
}

/// Finds cgroups with CPU limits.
///
/// # Errors
/// If no unified hierarchy is mounted.
pub fn cpu_limits(root: &Path) -> Result<CpuLimits, CgroupError> {
    let unified = hierarchies(root).into_iter().find(|mount| mount.controllers.is_none());
    Ok(walk(&unified.ok_or(CgroupError::NotMounted)?.at, CGROUPS_MAX, DEPTH_MAX))
}

fn walk(mount: &Path, cgroups_max: usize, depth_max: usize) -> CpuLimits {
    let mut limits = CpuLimits { is_complete: true, ..CpuLimits::default() };
    let mut seen = 0;
    let mut level = vec![mount.to_owned()];
    for depth in 0.. {
        let mut next = Vec::new();
        for directory in level {
            if has_limit(&directory) {
                limits.count += 1;
                if limits.first.len() < NAMED_MAX {
                    let path = directory.strip_prefix(mount).unwrap_or(&directory);
                    limits.first.push(Path::new("/").join(path));
                }
            }
            // There are no links in this file system.
            let entries = match fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(error) => {
                    // A cgroup that was removed meanwhile has no limit, and none within.
                    limits.is_complete &= is_gone(&error);
                    continue;
                }
            };
            for entry in entries.flatten() {
                if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    continue;
                }
                if depth == depth_max || seen == cgroups_max {
                    limits.is_complete = false;
                    break;
                }
                seen += 1;
                next.push(entry.path());
            }
        }
        if next.is_empty() {
            break;
        }
        next.sort_unstable();
        level = next;
    }
    limits
}

/// Whether a cgroup may use less than all CPUs, or its owner prevents reading it: otherwise a user could hide
/// a limit that another user has set.
fn has_limit(directory: &Path) -> bool {
    let hides = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    File::open(directory.join("cpu.max")).as_ref().is_err_and(hides) || limit_cpus(directory, true).is_some()
}

/// How many CPUs a cgroup may use on average, by its own limit: `QUOTA PERIOD` in us, the quota `max` without
/// a limit; two files in version 1, with a quota of -1 for no limit. The root has no such file, nor has any
/// cgroup where the controller is off.
pub(crate) fn limit_cpus(directory: &Path, is_unified: bool) -> Option<f64> {
    let text = match is_unified {
        true => read(&directory.join("cpu.max"))?,
        false => {
            read(&directory.join("cpu.cfs_quota_us"))? + " " + &read(&directory.join("cpu.cfs_period_us"))?
        }
    };
    let mut numbers = text.split_whitespace().map(|number| number.parse::<u64>().ok());
    let (quota, period) = (numbers.next()??, numbers.next().flatten().unwrap_or(PERIOD_US));
    (period > 0).then(|| quota as f64 / period as f64)
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(TEXT_MAX).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    /// A hierarchy of cgroups with these limits.
    fn hierarchy(cgroups: &[(&str, &str)]) -> tempfile::TempDir {
        let mount = tempfile::tempdir().unwrap();
        for (path, limit) in cgroups {
            let directory = mount.path().join(path);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("cpu.max"), limit).unwrap();
        }
        mount
    }

    fn found(mount: &tempfile::TempDir) -> CpuLimits {
        walk(mount.path(), CGROUPS_MAX, DEPTH_MAX)
    }

    fn paths(limits: &CpuLimits) -> Vec<&str> {
        limits.first.iter().map(|path| path.to_str().unwrap()).collect()
    }

    #[test]
    fn the_first_are_named_from_the_root_down() {
        let none = "max 100000\n";
        let mount = hierarchy(&[
            ("a", none),
            ("a/a/a", "5000 100000\n"),
            ("a/b", "150000 100000\n"),
            ("b", none),
            ("b/a", "1000 1000000\n"),
            ("c", "100000 100000\n"),
            ("d", "x"),
        ]);
        fs::create_dir(mount.path().join("off")).unwrap();
        let limits = found(&mount);
        assert_eq!((limits.count, limits.is_complete), (4, true));
        assert_eq!(paths(&limits), ["/c", "/a/b", "/b/a"]);
        assert_eq!(
            found(&hierarchy(&[("a", none)])),
            CpuLimits { is_complete: true, ..CpuLimits::default() }
        );
    }

    #[test]
    fn a_walk_ends_at_a_number_and_at_a_depth() {
        let mount = hierarchy(&[("a", "1 1"), ("a/a", "1 1"), ("a/a/a", "1 1"), ("b", "1 1")]);
        let counted = |cgroups, depth| {
            let limits = walk(mount.path(), cgroups, depth);
            (limits.count, limits.is_complete)
        };
        assert_eq!(counted(4, 3), (4, true));
        assert_eq!(counted(3, 3), (3, false));
        assert_eq!(counted(0, 3), (0, false));
        assert_eq!(counted(4, 2), (3, false));
        assert_eq!(counted(4, 1), (2, false));
    }

    #[test]
    fn no_link_and_no_long_file_leads_astray() {
        let mount = hierarchy(&[("a", "1 1")]);
        symlink(mount.path(), mount.path().join("a/loop")).unwrap();
        fs::create_dir(mount.path().join("b")).unwrap();
        fs::write(mount.path().join("b/cpu.max"), " ".repeat(1 << 20) + "1 1").unwrap();
        let limits = found(&mount);
        assert_eq!((paths(&limits), limits.is_complete), (vec!["/a"], true));
    }

    #[test]
    fn a_cgroup_that_hides_its_limit_counts_as_limited() {
        let mount = hierarchy(&[("a", "max 100000\n"), ("b", "max 100000\n")]);
        fs::set_permissions(mount.path().join("a"), fs::Permissions::from_mode(0o000)).unwrap();
        let limits = std::thread::scope(|scope| {
            // Root may read it anyway.
            let without_rights = scope.spawn(|| {
                crate::privileges::keep_only(crate::privileges::Capabilities::empty()).unwrap();
                found(&mount)
            });
            without_rights.join().unwrap()
        });
        assert_eq!((paths(&limits), limits.count, limits.is_complete), (vec!["/a"], 1, false));
        fs::set_permissions(mount.path().join("a"), fs::Permissions::from_mode(0o700)).unwrap();
    }

    #[test]
    fn without_the_hierarchy_there_is_nothing_to_walk() {
        let root = tempfile::tempdir().unwrap();
        assert!(matches!(cpu_limits(root.path()), Err(CgroupError::NotMounted)));
    }
}
