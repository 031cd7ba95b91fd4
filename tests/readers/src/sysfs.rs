//! What the kernel's files tell of CPUs and nodes gives a machine or an error for any text; it never panics.
//!
//! The input is some files of a machine of two CPUs, one after the other, with a byte that no text has
//! between them.

use std::fs;
use tandem_host::topology::read_sysfs_assuming;

const BETWEEN: u8 = 0xff;
const FILES: [&str; 14] = [
    "cpu/online",
    "cpu/isolated",
    "cpu/nohz_full",
    "cpu/cpu0/topology/core_cpus",
    "cpu/cpu0/topology/physical_package_id",
    "cpu/cpu0/cache/index3/level",
    "cpu/cpu0/cache/index3/size",
    "cpu/cpu0/cache/index3/shared_cpu_map",
    "cpu/cpu1/topology/core_cpus_list",
    "cpu/cpu1/cpu_capacity",
    "node/online",
    "node/node0/cpumap",
    "node/node0/distance",
    "node/node1/cpulist",
];

/// Reads an input, and checks what comes of it.
pub fn read(input: &[u8]) {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    for (file, text) in FILES.iter().zip(input.split(|&byte| byte == BETWEEN)) {
        let file = folder.path().join("sys/devices/system").join(file);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent).expect("it can be made");
        }
        fs::write(file, text).expect("it can be written");
    }
    let _ = read_sysfs_assuming(folder.path());
}
