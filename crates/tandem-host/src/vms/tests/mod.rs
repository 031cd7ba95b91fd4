//! VMs in trees of `/proc`, `/sys` and cgroups that the tests build.

mod hostile;
mod managers;
mod readings;
mod scans;

use super::testing::{Cgroups, Process, Tree};
use super::*;

fn tree() -> (tempfile::TempDir, Tree) {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path());
    tree.machine(2, 4);
    tree.cgroups(Cgroups::Unified);
    (folder, tree)
}

/// The VM of the only process.
fn found(process: &Process) -> Option<Vm> {
    let (_folder, tree) = tree();
    tree.process(process);
    examine(tree.root(), process.pid)
}

/// Name, manager, memory in MiB and devices of a VM with this command line.
fn told(program: &str, vcpu: &str, arguments: &[&str]) -> (String, Manager, Option<u64>, Vec<String>) {
    let vm = found(&Process::new(7, program, arguments).thread(vcpu)).unwrap();
    let devices = vm.devices.into_iter().map(|device| device.name).collect();
    (vm.name, vm.manager, vm.memory_bytes.map(|bytes| bytes >> 20), devices)
}

fn kinds(threads: &[Thread]) -> Vec<(ThreadKind, Option<u32>)> {
    threads.iter().map(|thread| (thread.kind, thread.vcpu)).collect()
}

const QEMU: &str = "/usr/bin/qemu-system-x86_64";
