//! The memory that nodes can still give: free pages, and pages that only cache files, which the kernel
//! reclaims.
//!
//! The kernel's `Documentation/ABI/stable/sysfs-devices-node` describes
//! `/sys/devices/system/node/nodeN/meminfo`.

use std::fs;
use std::path::Path;
use tandem_machine::Machine;

/// The available memory of each node, in the machine's order, bytes; all its memory for a node without a
/// readable file.
pub fn free_bytes(root: &Path, machine: &Machine) -> Vec<u64> {
    machine
        .nodes()
        .iter()
        .map(|node| available_bytes(root, node.os_index).unwrap_or(node.memory_bytes))
        .collect()
}

/// The available memory of a node, by the operating system's number, bytes; `None` if the file cannot be
/// read.
pub fn available_bytes(root: &Path, node: u32) -> Option<u64> {
    let file = root.join(format!("sys/devices/system/node/node{node}/meminfo"));
    parse(&fs::read_to_string(file).ok()?)
}

/// Sums up lines such as `Node 0 MemFree:  123 kB`.
fn parse(text: &str) -> Option<u64> {
    let bytes = |key: &str| {
        let value = text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.split(' ').next_back()? == key).then_some(value)
        })?;
        value.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
    };
    let files = bytes("Active(file)").unwrap_or(0) + bytes("Inactive(file)").unwrap_or(0);
    Some(bytes("MemFree")?.saturating_add(files))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_make_room() {
        let text = "Node 1 MemTotal:       4000 kB\nNode 1 MemFree:         100 kB\nNode 1 Active(file):     20 kB\n\
            Node 1 Inactive(file):   30 kB\nNode 1 Active(anon):    900 kB\n";
        assert_eq!(parse(text), Some(150 * 1024));
        assert_eq!(parse("Node 1 MemTotal: 4000 kB\n"), None);
    }
}
