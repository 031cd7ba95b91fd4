//! The memory of a VM: how much is resident, and on which nodes.
//!
//! `/proc/PID/status` has the resident size. Two sources have the nodes:
//!
//! - The cgroup's `memory.numa_stat`, if the cgroup holds this VM alone. Every user may read it, and it costs
//!   nothing. Anonymous and shared memory count, cached files do not. Huge pages are in
//!   `hugetlb.SIZE.numa_stat`, since Linux 5.17. A cgroup counts memory that was touched while the process
//!   was in it; a count below [`TRUSTED_SHARE`] of the resident memory is not used.
//! - `/proc/PID/numa_maps`, which has everything, huge pages with their size. It needs the right to trace the
//!   process, and the kernel visits every page of the VM: some 10 ns each, so seconds for hundreds of GiB in
//!   small pages.
//!
//! `Documentation/admin-guide/cgroup-v2.rst`, `cgroup-v1/memory.rst` and `Documentation/filesystems/proc.rst`
//! describe the files.

use super::Vm;
use super::limits::VmCgroup;
use super::process::{read_text, read_user};
use crate::cgroups::Hierarchies;
use crate::guarded::{ProcessFile, read_of_process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, Read};
use std::path::Path;

/// A cgroup that has counted less than this share of the resident memory is not a source: the memory of a VM
/// that entered the cgroup after its start does not count there.
pub const TRUSTED_SHARE: f64 = 0.8;

/// The base page size, in which files of version 1 count pages: on x86, and on the ARM and RISC-V kernels of
/// distributions.
const PAGE_BYTES: u64 = 4096;

/// Longest line of `numa_maps` that is read, bytes: a path has at most 4096, and may be escaped.
const MAX_LINE_BYTES: u64 = 1 << 15;

/// The memory of a VM at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Resident memory, huge pages included; `None` if it cannot be read.
    pub resident_bytes: Option<u64>,
    /// Resident memory on each node; `None` if neither source can be read, which never means zero.
    pub by_node: Option<MemoryByNode>,
}

/// The resident memory on each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryByNode {
    /// Nodes that have some, in ascending order, with the number of bytes.
    pub bytes: BTreeMap<u32, u64>,
    /// Where the numbers come from.
    pub source: MemorySource,
}

/// A source for the nodes of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemorySource {
    /// The statistics of the VM's cgroup.
    Cgroup,
    /// The page tables of the process.
    NumaMaps,
}

/// Reads the memory of a VM; `cgroup` is the VM's cgroup.
pub(super) fn read(vm: &Vm, cgroup: Option<&VmCgroup>) -> Memory {
    let status = read_text(&vm.directory.join("status")).unwrap_or_default();
    let bytes = |key: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    // Kernels without huge pages have no such line.
    let huge_bytes = bytes("HugetlbPages").unwrap_or(0);
    let resident_bytes = bytes("VmRSS").map(|rss| rss.saturating_add(huge_bytes));
    let files_bytes = bytes("RssFile").unwrap_or(0);
    let expected = resident_bytes.map(|resident| resident.saturating_sub(files_bytes));

    let own = cgroup.filter(|cgroup| cgroup.is_own);
    let counted = own.and_then(|cgroup| of_cgroup(&cgroup.membership.directory, cgroup.version));
    let counted = counted.filter(|bytes| {
        let sum = bytes.values().fold(0, |sum: u64, &bytes| sum.saturating_add(bytes));
        expected.is_some_and(|expected| sum as f64 >= TRUSTED_SHARE * expected as f64)
    });
    let of_cgroup = counted.map(|bytes| MemoryByNode { bytes, source: MemorySource::Cgroup });
    let of_maps = || {
        let user = read_user(&vm.directory)?;
        let maps = read_of_process(&vm.directory, ProcessFile::NumaMaps, user)?;
        let bytes = of_maps(&maps[..])?;
        Some(MemoryByNode { bytes, source: MemorySource::NumaMaps })
    };
    Memory { resident_bytes, by_node: of_cgroup.or_else(of_maps) }
}

/// The bytes that a cgroup has counted on each node.
fn of_cgroup(directory: &Path, version: u32) -> Option<BTreeMap<u32, u64>> {
    let mut sums = BTreeMap::new();
    let text = read_text(&directory.join("memory.numa_stat"))?;
    for line in text.lines() {
        // In version 2 `file` holds `shmem` and the cache. In version 1 shared memory is on the lists of the
        // anonymous pages, or is unevictable once VFIO or `mlock` has pinned it; `hierarchical_` sums up the
        // cgroups within.
        let (key, fields, unit_bytes) = match version {
            2 => (line.split(' ').next()?, line.split(' ').skip(1), 1),
            _ => (line.split('=').next()?, line.split(' ').skip(1), PAGE_BYTES),
        };
        if matches!(
            (version, key),
            (2, "anon" | "shmem") | (1, "hierarchical_anon" | "hierarchical_unevictable")
        ) {
            fields.for_each(|field| add(&mut sums, field, unit_bytes));
        }
    }
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("hugetlb.") && name.ends_with(".numa_stat") {
            // `total=0 N0=0`, in bytes; version 1 has a line for the hierarchy, which is the last.
            let text = read_text(&entry.path()).unwrap_or_default();
            text.lines().last().unwrap_or_default().split(' ').for_each(|field| add(&mut sums, field, 1));
        }
    }
    sums.retain(|_, &mut bytes| bytes > 0);
    Some(sums)
}

/// The sums over the lines of `numa_maps`; `None` if there is no line, which happens only for a process
/// without memory.
fn of_maps(mut maps: impl BufRead) -> Option<BTreeMap<u32, u64>> {
    let mut sums = BTreeMap::new();
    let mut line = Vec::new();
    let mut is_empty = true;
    loop {
        line.clear();
        let length = maps.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line).ok()?;
        if length == 0 {
            break;
        }
        is_empty = false;
        let Ok(text) = str::from_utf8(&line) else { continue };
        let fields = || text.split_ascii_whitespace().skip(1);
        let kib = fields().find_map(|field| field.strip_prefix("kernelpagesize_kB=")?.parse::<u64>().ok());
        if let Some(bytes) = kib.and_then(|kib| kib.checked_mul(1024)) {
            fields().for_each(|field| add(&mut sums, field, bytes));
        }
    }
    sums.retain(|_, &mut bytes| bytes > 0);
    (!is_empty).then_some(sums)
}

/// Adds a field such as `N0=1031` to the sum of its node; ignores other fields.
fn add(sums: &mut BTreeMap<u32, u64>, field: &str, unit_bytes: u64) {
    let node = field.strip_prefix('N').and_then(|field| field.split_once('='));
    if let Some((node, count)) = node
        && let (Ok(node), Ok(count)) = (node.parse::<u32>(), count.parse::<u64>())
    {
        let sum = sums.entry(node).or_insert(0_u64);
        *sum = sum.saturating_add(count.saturating_mul(unit_bytes));
    }
}

/// The largest mapping of a process of this user: usually all the memory of a guest, or the largest part.
pub(super) fn largest_mapping(directory: &Path, user: u32) -> Option<u64> {
    let text = read_of_process(directory, ProcessFile::Maps, user)?;
    let text = String::from_utf8_lossy(&text);
    let sizes = text.lines().filter_map(|line| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        address(end)?.checked_sub(address(start)?)
    });
    sizes.max()
}

/// The most memory that a process can have: the memory of the machine, and the limits of its cgroup and those
/// around it (`memory.max`, or `memory.limit_in_bytes` in version 1); `None` if neither can be read.
pub(super) fn most(root: &Path, pid: u32) -> Option<u64> {
    let info = read_text(&root.join("proc/meminfo")).unwrap_or_default();
    let kib = info
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    let mut most = kib.map(|kib: u64| kib.saturating_mul(1024));
    let mut cgroup = Hierarchies::find(root).of_process(pid, "memory");
    while let Some(membership) = cgroup {
        let file = if membership.is_unified { "memory.max" } else { "memory.limit_in_bytes" };
        let limit = read_text(&membership.directory.join(file)).and_then(|text| text.trim().parse().ok());
        most = limit.map_or(most, |limit: u64| Some(most.map_or(limit, |most| most.min(limit))));
        cgroup = membership.parent();
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn huge_pages_have_their_size() {
        let maps = "7f00 bind:0-1 file=/dev/hugepages/vm huge anon=2 dirty=2 N0=1 N1=2 kernelpagesize_kB=2048\n\
            7f01 prefer (many):0 anon=3 N1=3 active=0 kernelpagesize_kB=4\n\
            7f02 default\n";
        let bytes = of_maps(maps.as_bytes()).unwrap();
        assert_eq!(bytes, BTreeMap::from([(0, 2 << 20), (1, (4 << 20) + 3 * 4096)]));
        assert_eq!(of_maps(&b""[..]), None);
    }

    #[test]
    fn guard_pages_do_not_count_as_the_largest() {
        let directory = tempfile::tempdir().unwrap();
        let maps = "7f0000000000-7f0040000000 rw-p 00000000 00:00 0 \nx\n1-0 r\n7f0040000000-7f0040001000 ---p 0 0:0 0\n";
        fs::write(directory.path().join("maps"), maps).unwrap();
        assert_eq!(largest_mapping(directory.path(), 0), Some(1 << 30));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(N[0-9]{0,12}=[0-9]{0,22}|kernelpagesize_kB=[0-9]{0,21}|[ \n=-]|\\PC)*") {
            let _ = of_maps(text.as_bytes());
        }
    }
}
