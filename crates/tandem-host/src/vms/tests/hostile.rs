//! Files that are cut, garbled or gone, and misleading names.

use super::super::testing::{Process, Tree};
use super::super::*;
use super::{QEMU, told, tree};
use proptest::prelude::*;
use std::fs;

/// Finds VMs and reads everything about them.
fn read_all(tree: &Tree) {
    let mut finder = Finder::new(tree.root());
    finder.scan().unwrap();
    for vm in finder.vms() {
        let threads = vm.read_threads();
        vm.read_times(&threads, &mut Vec::new());
        let limits = vm.read_limits(&threads, &[0, 1]);
        vm.read_memory(&limits);
    }
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let inner = |path: PathBuf| match path.is_dir() && !path.is_symlink() {
        true => files(&path),
        false => vec![path],
    };
    entries.flat_map(inner).collect()
}

#[test]
fn a_process_may_vanish_between_two_reads() {
    let (_folder, tree) = tree();
    let process = Process::libvirt(7, "web", 1);
    tree.process(&process);
    let all = files(&tree.root().join("proc/7"));
    assert!(all.len() > 12, "{all:?}");
    for file in all {
        fs::remove_file(file).unwrap();
        read_all(&tree);
        tree.process(&process);
    }
    assert!(examine(tree.root(), 7).is_some());
}

#[test]
fn a_command_line_of_any_length_is_read_to_a_limit() {
    let mut process = Process::libvirt(7, "web", 1);
    process.arguments.extend((0..100_000).map(|number| format!("-device virtio-{number}")));
    process.arguments.extend(["-name".to_owned(), "guest=late".to_owned()]);
    let (_folder, tree) = tree();
    tree.process(&process);
    assert_eq!(examine(tree.root(), 7).unwrap().name, "web");
}

proptest! {
    // Each case writes dozens of files.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Files that are cut, of other lengths, or contain anything: the finder finds something or not, and
    /// nothing panics.
    #[test]
    fn no_tree_makes_it_panic(
        file in prop::sample::select(vec![
            "proc/7/stat", "proc/7/status", "proc/7/cmdline", "proc/7/comm", "proc/7/cgroup", "proc/7/numa_maps",
            "proc/7/task/7/stat", "proc/7/task/9/comm", "proc/7/task/9/status", "proc/7/task/9/schedstat",
            "proc/self/mountinfo", "sys/fs/cgroup/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/memory.numa_stat",
        ]),
        cut: prop::sample::Index,
        bytes: Vec<u8>,
    ) {
        let (_folder, tree) = tree();
        tree.cgroup("/machine.slice/machine-qemu\\x2d1\\x2dweb.scope", "memory.numa_stat", "anon N0=1073741824\n");
        tree.process(&Process::libvirt(7, "web", 1));
        let path = tree.root().join(file);
        let mut text = fs::read(&path).unwrap_or_default();
        text.truncate(if text.is_empty() { 0 } else { cut.index(text.len()) });
        text.extend_from_slice(&bytes);
        fs::write(&path, text).unwrap();
        read_all(&tree);
    }

    #[test]
    fn no_command_line_makes_it_panic(name in "\\PC*|[,={}\"\n\\\\]*", junk in "(-[a-z]{1,9}|--[a-z]{1,9}=|[,={}\"\n\\\\]*|\\PC*)*") {
        let escaped = name.replace(',', ",,");
        let arguments = ["-name", &format!("guest={escaped}"), &junk];
        let (found, ..) = told(QEMU, "CPU 0/KVM", &arguments);
        // Zeros end arguments.
        if !name.contains('\0') && !name.trim_matches(' ').is_empty() {
            prop_assert_eq!(found, crate::untrusted::Untrusted::new(name).shown());
        }
    }
}
