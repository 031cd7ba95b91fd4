//! What scans find among processes, and what they do not.

use super::super::testing::{Process, Tree, host};
use super::super::*;
use super::{QEMU, found, tree};

#[test]
fn other_processes_are_not_vms() {
    let script = {
        let mut script = Process::new(7, "/usr/bin/qemu-system-x86_64", &[]).thread("CPU 0/KVM");
        (script.program, script.has_vm) = (None, None);
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
fn a_process_is_a_vm_by_the_kernels_word() {
    let (_folder, tree) = tree();
    let mut fake = Process::libvirt(7, "rt", 2);
    fake.has_vm = Some(false);
    let mut unknown = Process::new(8, "/opt/vmm/frobnicate", &["--memory", "9T"]).thread("crosvm_vcpu0");
    unknown.has_vm = Some(true);
    tree.process(&fake);
    tree.process(&unknown);
    let scan = |with_emulated| {
        let mut finder = Finder::new(tree.root()).with_emulated(with_emulated);
        finder.scan().unwrap();
        let mut vms: Vec<_> = finder.vms().map(|vm| (vm.identity.pid, vm.name.clone(), vm.monitor)).collect();
        vms.sort();
        let unfinished: Vec<u32> = finder.monitors_without_vcpus().collect();
        (vms, unfinished)
    };
    let other = (8, "other-8".to_owned(), Monitor::Other);
    assert_eq!(scan(false), (vec![other.clone()], vec![7]));
    assert_eq!(scan(true), (vec![(7, "rt".to_owned(), Monitor::Qemu), other], vec![]));
}

#[test]
fn a_process_that_resembles_a_monitor_for_ever_is_examined_ever_more_rarely() {
    let (_folder, tree) = tree();
    let mut late = Process::libvirt(7, "late", 1);
    late.has_vm = Some(false);
    tree.process(&late);
    let mut finder = Finder::new(tree.root());
    finder.scan().unwrap();
    for _ in 0..64 {
        finder.examine_unfinished();
    }
    late.has_vm = Some(true);
    tree.process(&late);
    let looks = (1..=64).find(|_| !finder.examine_unfinished().appeared.is_empty());
    assert!(looks.is_some_and(|looks| looks <= 32), "{looks:?}");
}

#[test]
fn claimed_memory_is_no_more_than_there_can_be() {
    let (_folder, tree) = tree();
    let claims = |pid, claim: &str| {
        let process = Process::new(pid, QEMU, &["-m", claim]).thread("CPU 0/KVM").in_cgroup("/a/b");
        tree.process(&process);
        examine(tree.root(), pid).unwrap().memory_bytes
    };
    assert_eq!(claims(7, "9T"), Some(9 << 40), "nothing is known of limits");
    tree.write("proc/meminfo", "MemTotal:       67108864 kB\nMemFree: 1 kB\n");
    assert_eq!((claims(8, "9T"), claims(9, "4G")), (Some(64 << 30), Some(4 << 30)));
    tree.cgroup("/a", "memory.max", "8589934592\n");
    tree.cgroup("/a/b", "memory.max", "max\n");
    assert_eq!(claims(10, "9T"), Some(8 << 30));
}

#[test]
fn files_that_a_command_line_names_are_read_if_they_are_files() {
    let (folder, tree) = tree();
    let at = |name: &str| folder.path().join(name);
    tree.write("etc/vm.conf", "[memory]\nsize = \"1024M\"\n");
    let fifo = std::process::Command::new("mkfifo").arg(at("etc/fifo")).status().unwrap();
    assert!(fifo.success());
    let memory = |pid, file: &str| {
        tree.process(&Process::new(pid, QEMU, &["-readconfig", file]).thread("CPU 0/KVM"));
        examine(tree.root(), pid).unwrap().memory_bytes
    };
    assert_eq!(memory(7, "/etc/vm.conf"), Some(1 << 30));
    // Reading it would wait for a writer for ever.
    assert_eq!(memory(8, "/etc/fifo"), None);
    assert_eq!(memory(9, "/etc"), None);
}

#[test]
fn without_root_a_name_and_an_argument_tell() {
    for (program, name) in [(QEMU, "qemu-system-x86"), ("/usr/libexec/qemu-kvm", "qemu-kvm"), ("kvm", "kvm")]
    {
        let mut process = Process::new(7, program, &["-name", "x"]).thread("CPU 0/KVM");
        (process.program, process.has_vm) = (None, None);
        assert_eq!(process.threads[0].name, name);
        assert_eq!(found(&process).map(|vm| vm.name).as_deref(), Some("x"), "{program}");
    }
}

#[test]
fn a_program_that_an_update_has_replaced_stays_a_vm() {
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
    // Another process has the number now, which the finder has not examined yet.
    tree.remove(4800);
    tree.process(&Process::of_kernel(4800, "kworker/0:1"));
    assert_eq!(tids(&finder), Some((4713, ThreadKind::Vcpu)));
}

#[test]
fn scans_report_changes() {
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

/// A tree in which the finder has settled that process 20 is not a VM.
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
    // The process continues as another program, as after `exec`.
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
fn forgotten_processes_are_examined_again() {
    let (_folder, tree, mut finder) = with_settled_process();
    tree.process(&Process::libvirt(20, "a", 1));
    assert_eq!(finder.scan().unwrap(), Changes::default());
    finder.forget();
    assert_eq!(finder.scan().unwrap().appeared.len(), 1);
}

#[test]
fn without_proc_a_scan_is_an_error() {
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
