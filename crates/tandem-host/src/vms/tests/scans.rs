//! What is found among processes, and what is not.

use super::super::testing::{Process, Tree, host};
use super::super::*;
use super::{QEMU, found, tree};

#[test]
fn others_are_no_vms() {
    let script = {
        let mut script = Process::new(7, "/usr/bin/qemu-system-x86_64", &[]).thread("CPU 0/KVM");
        script.program = None;
        script.arguments.insert(0, "/bin/sh".into());
        script
    };
    let mut vanished = Process::libvirt(7, "web", 1);
    vanished.threads.truncate(1);
    let cases = [
        Process::new(7, "/usr/bin/qemu-img", &["convert"]).thread("CPU 0/KVM"),
        Process::new(7, "/bin/bash", &["/usr/bin/qemu-system-x86_64", "-name", "x"]).thread("CPU 0/KVM"),
        Process::new(7, QEMU, &["-machine", "none"]).thread("qemu-system-x86"),
        Process::of_kernel(7, "kvm"),
        script,
        vanished,
    ];
    for process in cases {
        assert_eq!(found(&process), None, "{process:?}");
    }
}

#[test]
fn without_root_a_name_and_an_argument_tell() {
    for (program, name) in [(QEMU, "qemu-system-x86"), ("/usr/libexec/qemu-kvm", "qemu-kvm"), ("kvm", "kvm")]
    {
        let mut process = Process::new(7, program, &["-name", "x"]).thread("CPU 0/KVM");
        process.program = None;
        assert_eq!(process.threads[0].name, name);
        assert_eq!(found(&process).map(|vm| vm.name).as_deref(), Some("x"), "{program}");
    }
}

#[test]
fn a_program_that_an_update_has_replaced_goes_on() {
    let mut process = Process::libvirt(7, "web", 1);
    process.program = Some("/usr/bin/qemu-system-x86_64 (deleted)".into());
    "my process (name)".clone_into(&mut process.threads[0].name);
    assert_eq!(found(&process).unwrap().name, "web");
}

#[test]
fn a_thread_of_the_kernel_may_work_for_a_vm() {
    let (_folder, tree) = tree();
    tree.process(&Process::libvirt(4711, "web", 1));
    tree.process(&Process::of_kernel(4800, "vhost-4711"));
    tree.process(&Process::of_kernel(4801, "vhost-4712"));
    let mut finder = Finder::new(tree.root());
    finder.scan().unwrap();
    let tids =
        |finder: &Finder| finder.vm(4711).unwrap().read_threads().last().map(|last| (last.tid, last.kind));
    assert_eq!(tids(&finder), Some((4800, ThreadKind::Io)));
    finder.examine(4711);
    assert_eq!(tids(&finder), Some((4800, ThreadKind::Io)));
    // Another one has the number now, which the finder has not seen yet.
    tree.remove(4800);
    tree.process(&Process::of_kernel(4800, "kworker/0:1"));
    assert_eq!(tids(&finder), Some((4713, ThreadKind::Vcpu)));
}

#[test]
fn scans_tell_what_came_and_went() {
    let (_folder, tree) = tree();
    let mut finder = Finder::new(tree.root());
    tree.process(&Process::new(10, "/bin/sh", &[]));
    tree.process(&Process::libvirt(20, "a", 1));
    let first = finder.scan().unwrap();
    assert_eq!(first.appeared, [Identity { pid: 20, start_ticks: 1020 }]);
    assert_eq!(finder.scan().unwrap(), Changes::default());

    tree.remove(20);
    let mut starting = Process::libvirt(30, "b", 1);
    starting.threads.truncate(1);
    tree.process(&starting);
    let second = finder.scan().unwrap();
    assert_eq!((second.appeared.len(), second.gone[0].name.as_str()), (0, "a"));
    assert_eq!(finder.monitors_without_vcpus().collect::<Vec<_>>(), [30]);

    tree.process(&Process::libvirt(30, "b", 1));
    assert_eq!(finder.scan().unwrap().appeared, [Identity { pid: 30, start_ticks: 1030 }]);
    assert_eq!(finder.vms().map(|vm| vm.name.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(finder.monitors_without_vcpus().count(), 0);
}

#[test]
fn a_number_that_is_used_again_is_another_vm() {
    let (_folder, tree) = tree();
    let mut finder = Finder::new(tree.root());
    let mut process = Process::libvirt(20, "a", 1);
    tree.process(&process);
    finder.scan().unwrap();
    let old = finder.vm(20).unwrap().clone();
    process.start_ticks += 1;
    process.arguments[2] = "guest=b".into();
    tree.remove(20);
    tree.process(&process);
    assert!(!old.is_alive());
    assert_eq!(old.read_threads(), []);
    let changes = finder.scan().unwrap();
    assert_eq!((changes.appeared.len(), changes.gone[0].name.as_str()), (1, "a"));
    assert_eq!(finder.vm(20).unwrap().name, "b");
}

/// A tree in which process 20 has been seen often enough to be no VM for good.
fn with_settled_process() -> (tempfile::TempDir, Tree, Finder) {
    let (folder, tree) = tree();
    let mut finder = Finder::new(tree.root());
    tree.process(&Process::new(20, "/bin/sh", &[]));
    for _ in 0..3 {
        finder.scan().unwrap();
    }
    (folder, tree, finder)
}

#[test]
fn a_process_that_becomes_a_monitor_is_found_when_it_is_examined() {
    let (_folder, tree, mut finder) = with_settled_process();
    // What `exec` does: the process goes on as another.
    tree.process(&Process::libvirt(20, "a", 1));
    finder.scan().unwrap();
    assert_eq!(finder.vms().count(), 0, "settled processes are not read");
    finder.examine(20);
    assert_eq!(finder.vm(20).map(|vm| vm.name.as_str()), Some("a"));

    let mut other = Finder::new(tree.root());
    other.scan().unwrap();
    assert_eq!(other.vms().count(), 1);
    other.examine(21);
    assert_eq!(other.vm(21), None);
}

#[test]
fn forgotten_processes_are_looked_at_again() {
    let (_folder, tree, mut finder) = with_settled_process();
    tree.process(&Process::libvirt(20, "a", 1));
    assert_eq!(finder.scan().unwrap(), Changes::default());
    finder.forget();
    assert_eq!(finder.scan().unwrap().appeared.len(), 1);
}

#[test]
fn without_proc_nothing_can_be_told() {
    let folder = tempfile::tempdir().unwrap();
    let error = Finder::new(folder.path()).scan().unwrap_err().to_string();
    let place = folder.path().join("proc").display().to_string();
    assert!(
        error.starts_with(&format!("the processes in {place} cannot be listed: No such file")),
        "{error}"
    );
}

#[test]
fn a_host_of_many_is_built_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let tree = host(folder.path(), 20, 3);
    let mut finder = Finder::new(tree.root());
    assert_eq!(finder.scan().unwrap().appeared.len(), 20);
    let vcpus = finder.vms().flat_map(Vm::read_threads).filter(|thread| thread.kind == ThreadKind::Vcpu);
    assert_eq!(vcpus.count(), 60);
}

#[test]
fn this_machine_can_be_scanned() {
    Finder::new(Path::new("/")).scan().unwrap();
    assert_eq!(examine(Path::new("/"), std::process::id()), None);
}
