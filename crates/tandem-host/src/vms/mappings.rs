//! The mappings of a VM whose pages can move to its home.
//!
//! `/proc/PID/maps` has the bounds of mappings and the files behind them; `numa_maps` has their memory
//! policies and the nodes of their pages. `Documentation/filesystems/proc.rst` describes both. The process
//! chooses nothing in them except the paths of files, in which the kernel escapes blanks.
//!
//! Memory of guests counts: anonymous pages, `memfd`, and hugetlbfs. Other files do not: moving a page of
//! theirs may wait for their file system, which may belong to an untrusted user (FUSE). Nor does a mapping
//! with an explicit policy, such as `bind`, which moving would fight.

use super::Vm;
use super::process::read_user;
use crate::guarded::{ProcessFile, read_of_process};
use rustix::fs::{MemfdFlags, fstat, major, memfd_create, minor};
use std::collections::HashMap;
use std::ops::Range;

/// A mapping that has pages outside the home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Its bounds in the process's address space.
    pub addresses: Range<u64>,
    /// The size of its pages, bytes; the base page size where the kernel has merged pages by itself.
    pub page_bytes: u64,
}

/// Major and minor number of the device of a file.
type Device = (u32, u32);

/// The mappings of a VM that have pages outside these nodes and can move; `None` if the files cannot be read.
pub(super) fn read(vm: &Vm, home: &[u32]) -> Option<Vec<Mapping>> {
    let user = read_user(&vm.directory)?;
    let read = |file| {
        let bytes = read_of_process(&vm.directory, file, user)?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    Some(parse(&read(ProcessFile::Maps)?, &read(ProcessFile::NumaMaps)?, home, device_of_memfd()))
}

/// The device of all files of `memfd_create`, which distinguishes them from files that only have such a name.
fn device_of_memfd() -> Option<Device> {
    let file = memfd_create("", MemfdFlags::CLOEXEC).ok()?;
    let device = fstat(&file).ok()?.st_dev;
    Some((major(device), minor(device)))
}

fn parse(maps: &str, numa_maps: &str, home: &[u32], memfd: Option<Device>) -> Vec<Mapping> {
    let far: HashMap<u64, Far> = numa_maps.lines().filter_map(|line| Far::parse(line, home)).collect();
    let mappings = maps.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (hex(start)?, hex(end)?);
        let (major, minor) = fields.nth(2)?.split_once(':')?;
        let device = (hex(major)?.try_into().ok()?, hex(minor)?.try_into().ok()?);
        let is_anonymous = device == (0, 0) && fields.next()? == "0";
        let far = far.get(&start)?;
        let is_memory = is_anonymous || far.is_huge || memfd == Some(device);
        (is_memory && start < end).then_some(Mapping { addresses: start..end, page_bytes: far.page_bytes })
    });
    mappings.collect()
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

/// The pages of a mapping outside the home, for a mapping without an explicit policy.
struct Far {
    is_huge: bool,
    page_bytes: u64,
}

impl Far {
    /// Parses a line; also returns the address where the mapping begins.
    fn parse(line: &str, home: &[u32]) -> Option<(u64, Self)> {
        let (start, fields) = line.split_once(' ')?;
        let (policy, fields) = fields.split_once(' ')?;
        let fields = || fields.split(' ');
        let is_far = |field: &str| {
            let node = field.strip_prefix('N').and_then(|field| field.split_once('='));
            node.and_then(|(node, _)| node.parse().ok()).is_some_and(|node: u32| !home.contains(&node))
        };
        if !matches!(policy, "default" | "local") || !fields().any(is_far) {
            return None;
        }
        let kib = fields().find_map(|field| field.strip_prefix("kernelpagesize_kB=")?.parse::<u64>().ok())?;
        let page_bytes = kib.checked_mul(1024).filter(|bytes| bytes.is_power_of_two())?;
        Some((hex(start)?, Self { is_huge: fields().any(|field| field == "huge"), page_bytes }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAPS: &str = "\
        1000-3000 rw-p 00000000 00:00 0 \n\
        3000-5000 rw-s 00000000 00:01 77                         /memfd:pc.ram (deleted)\n\
        5000-7000 rw-s 00000000 00:2f 78                         /memfd:fake (deleted)\n\
        200000-600000 rw-s 00000000 00:11 79                     /dev/hugepages/vm\n\
        700000-701000 rw-p 00000000 00:00 0                      [heap]\n\
        800000-801000 rw-p 00000000 00:00 0 \n\
        900000-901000 rw-p 00000000 00:00 0 \n\
        a00000-a01000 rw-p 0000";
    const NUMA_MAPS: &str = "\
        1000 default anon=2 dirty=2 N0=1 N1=1 kernelpagesize_kB=4\n\
        3000 local file=/memfd:pc.ram\\040(deleted) dirty=2 N1=2 kernelpagesize_kB=4\n\
        5000 default file=/memfd:fake\\040(deleted) dirty=2 N1=2 kernelpagesize_kB=4\n\
        200000 default file=/dev/hugepages/vm huge dirty=2 N1=2 kernelpagesize_kB=2048\n\
        700000 default heap anon=1 dirty=1 N0=1 kernelpagesize_kB=4\n\
        800000 bind:1 anon=1 dirty=1 N1=1 kernelpagesize_kB=4\n\
        900000 prefer (many):1 anon=1 dirty=1 N1=1 kernelpagesize_kB=4\n\
        a00000 default anon=1 dirty=1 N1=1 kernelpagesize_kB=4\n";

    #[test]
    fn memory_outside_the_home_without_a_policy_may_be_moved() {
        let found = parse(MAPS, NUMA_MAPS, &[0], Some((0, 1)));
        let mapping = |addresses, page_bytes| Mapping { addresses, page_bytes };
        let wanted = [
            mapping(0x1000..0x3000, 4096),
            mapping(0x3000..0x5000, 4096),
            mapping(0x20_0000..0x60_0000, 1 << 21),
        ];
        assert_eq!(found, wanted);
        assert_eq!(parse(MAPS, NUMA_MAPS, &[0, 1], Some((0, 1))), []);
        assert_eq!(parse(MAPS, NUMA_MAPS, &[0], None).len(), 2, "no file is taken for one of memfd");
    }

    #[test]
    fn the_kernels_own_files_are_read() {
        let file = memfd_create("tandem-test", MemfdFlags::CLOEXEC).unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        assert!(std::fs::metadata(path).is_ok_and(|metadata| {
            let device = std::os::unix::fs::MetadataExt::dev(&metadata);
            Some((major(device), minor(device))) == device_of_memfd()
        }));
        let read = |file| std::fs::read_to_string(format!("/proc/self/{file}"));
        // A kernel without NUMA has no such file.
        if let (Ok(maps), Ok(numa_maps)) = (read("maps"), read("numa_maps")) {
            let all = parse(&maps, &numa_maps, &[u32::MAX], device_of_memfd());
            assert!(all.iter().any(|mapping| mapping.page_bytes == 4096), "{all:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(
            maps in "([0-9a-f]{0,17}[-: \n]|0 |r|\\PC)*",
            numa_maps in "([0-9a-f]{0,17} (default|local)|N[0-9]{0,12}=[0-9]{0,22}|kernelpagesize_kB=[0-9]{0,21}|[ \n=-]|\\PC)*",
        ) {
            let _ = parse(&maps, &numa_maps, &[0], Some((0, 0)));
        }
    }
}
