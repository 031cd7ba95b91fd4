//! What a process tells of itself gives a VM or none for any text, within bounds; it never panics.
//!
//! The input is the files of a process, one after the other, with a byte that no text has between them.

use std::fs;
use std::path::Path;
use tandem_host::untrusted::SHOWN_MAX;
use tandem_host::vms::Finder;

const BETWEEN: u8 = 0xff;
const FILES: [&str; 12] = [
    "proc/7/cmdline",
    "proc/7/comm",
    "proc/7/task/8/comm",
    "proc/7/stat",
    "proc/7/status",
    "proc/7/cgroup",
    "proc/7/maps",
    "proc/7/numa_maps",
    "vm.conf",
    "proc/7/task/8/schedstat",
    "proc/self/mountinfo",
    "sys/fs/cgroup/vm/memory.numa_stat",
];

/// Reads an input, and checks what comes of it.
pub fn read(input: &[u8]) {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let root = folder.path();
    for folder in ["proc/7/task/8", "proc/7/fd", "proc/self", "sys/fs/cgroup/vm"] {
        fs::create_dir_all(root.join(folder)).expect("it can be made");
    }
    let mut texts = input.split(|&byte| byte == BETWEEN);
    for file in FILES {
        fs::write(root.join(file), texts.next().unwrap_or_default()).expect("it can be written");
    }
    fs::write(root.join("sys/fs/cgroup/vm/cgroup.procs"), "7\n").expect("it can be written");
    fs::copy(root.join("proc/7/stat"), root.join("proc/7/task/8/stat")).expect("it can be copied");
    look(root);
}

fn look(root: &Path) {
    let mut finder = Finder::new(root).with_emulated(true);
    finder.scan().expect("the folder is there");
    for vm in finder.vms() {
        assert!(vm.name.chars().count() <= SHOWN_MAX && !vm.name.contains(char::is_control));
        let threads = vm.read_threads();
        let limits = vm.read_limits(&threads, &[0]);
        vm.read_memory(&limits);
        vm.read_far_mappings(&[1]);
        vm.read_times(&threads, &mut Vec::new());
        vm.asks_for_cookies();
    }
}
