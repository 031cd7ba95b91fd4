//! VMs of each manager, as they stand in `/proc`, and what is not one.

use super::testing::{Cgroups, Process, Tree, host};
use super::*;
use proptest::prelude::*;
use std::fs;

fn tree() -> (tempfile::TempDir, Tree) {
    let folder = tempfile::tempdir().unwrap();
    let tree = Tree::new(folder.path());
    tree.machine(2, 4);
    tree.cgroups(Cgroups::Unified);
    (folder, tree)
}

/// The VM of a process that is the only one.
fn found(process: &Process) -> Option<Vm> {
    let (_folder, tree) = tree();
    tree.process(process);
    examine(tree.root(), process.pid)
}

/// Name, manager, memory in MiB and devices of a VM with that command line.
fn told(program: &str, vcpu: &str, arguments: &[&str]) -> (String, Manager, Option<u64>, Vec<String>) {
    let vm = found(&Process::new(7, program, arguments).thread(vcpu)).unwrap();
    let devices = vm.devices.into_iter().map(|device| device.name).collect();
    (vm.name, vm.manager, vm.memory_bytes.map(|bytes| bytes >> 20), devices)
}

fn kinds(threads: &[Thread]) -> Vec<(ThreadKind, Option<u32>)> {
    threads.iter().map(|thread| (thread.kind, thread.vcpu)).collect()
}

const QEMU: &str = "/usr/bin/qemu-system-x86_64";

#[test]
fn libvirt() {
    let vm = found(&Process::libvirt(4711, "web", 2)).unwrap();
    assert_eq!((vm.name.as_str(), vm.monitor, &vm.manager), ("web", Monitor::Qemu, &Manager::Libvirt));
    assert_eq!(vm.identity, Identity { pid: 4711, start_ticks: 5711 });
    assert_eq!(vm.memory_bytes, Some(4 << 30));
}

#[test]
fn libvirt_with_dimms_and_devices() {
    let arguments = [
        "-name",
        "guest=a,,b,debug-threads=on",
        "-object",
        "secret,id=masterKey0,format=raw,file=/x",
        "-m",
        "size=1048576k,slots=16,maxmem=1099511627776k",
        "-object",
        r#"{"qom-type":"memory-backend-ram","id":"memdimm0","size":536870912}"#,
        "-device",
        r#"{"driver":"pc-dimm","node":0,"memdev":"memdimm0","id":"dimm0","slot":0}"#,
        "-device",
        r#"{"driver":"vfio-pci","host":"0000:81:00.0","id":"hostdev0","bus":"pci.5","addr":"0x0"}"#,
        "-device",
        "virtio-net-pci,host=no",
    ];
    let expected = ("a,b".into(), Manager::Libvirt, Some(1536), vec!["0000:81:00.0".into()]);
    assert_eq!(told(QEMU, "CPU 0/KVM", &arguments), expected);
}

#[test]
fn proxmox() {
    let (_folder, tree) = tree();
    let process = Process::proxmox(900, 100, "mail", 4);
    tree.process(&process);
    let vm = examine(tree.root(), 900).unwrap();
    assert_eq!((vm.name.as_str(), &vm.manager), ("mail", &Manager::Proxmox { id: 100 }));
    assert_eq!(vm.memory_bytes, Some(4 << 30));
    let cgroup = vm.read_limits(&vm.read_threads(), &[]).cgroup.unwrap();
    assert_eq!((cgroup.path.to_str(), cgroup.is_own), (Some("/qemu.slice/100.scope"), true));
}

#[test]
fn proxmox_passes_devices_through() {
    let arguments =
        ["-id", "7", "-name", "gpu", "-m", "2048", "-device", "vfio-pci,host=81:00.0,id=hostpci0"];
    let expected = ("gpu".into(), Manager::Proxmox { id: 7 }, Some(2048), vec!["0000:81:00.0".into()]);
    assert_eq!(told("/usr/bin/kvm", "CPU 0/KVM", &arguments), expected);
}

#[test]
fn lxd_and_incus_have_projects() {
    let file = "[memory]\nsize = \"1024M\"\n[device \"dev-lxd_gpu\"]\ndriver = \"vfio-pci\"\nhost = \"0000:02:00.0\"\n";
    let lxd = |project: &str| Manager::Lxd { project: project.into() };
    let incus = |project: &str| Manager::Incus { project: project.into() };
    let cases = [
        ("/var/snap/lxd/common/lxd/logs/v1/qemu.conf", lxd("default")),
        ("/var/snap/lxd/common/lxd/logs/shop_v1/qemu.conf", lxd("shop")),
        ("/var/log/lxd/v1/qemu.conf", lxd("default")),
        ("/run/incus/shop_v1/qemu.conf", incus("shop")),
        ("/var/log/incus/v1/qemu.conf", incus("default")),
    ];
    for (path, manager) in cases {
        let (_folder, tree) = tree();
        tree.write(&path[1..], file);
        tree.process(&Process::lxd_or_incus(50, "v1", path, 2));
        let vm = examine(tree.root(), 50).unwrap();
        assert_eq!((vm.name.as_str(), vm.manager), ("v1", manager), "{path}");
        assert_eq!((vm.memory_bytes, vm.devices[0].name.as_str()), (Some(1 << 30), "0000:02:00.0"));
    }
}

#[test]
fn by_hand() {
    let cases: [(&[&str], &str); 6] = [
        (&["-name", "x,debug-threads=on"], "x"),
        (&["-name", "process=y,guest=z"], "z"),
        (&["-drive", "if=pflash,file=/usr/share/OVMF.fd", "-drive", "file=/srv/db.qcow2,format=qcow2"], "db"),
        (&["-blockdev", r#"{"driver":"raw","file":{"driver":"file","filename":"/srv/db.img"}}"#], "db"),
        (&["-hda", "disk.img"], "disk"),
        (&["-name", ""], "qemu-7"),
    ];
    for (arguments, name) in cases {
        assert_eq!(told(QEMU, "CPU 0/TCG", arguments), (name.into(), Manager::None, None, vec![]), "{name}");
    }
}

#[test]
fn cloud_hypervisor() {
    let program = "/usr/bin/cloud-hypervisor";
    let arguments = [
        "--api-socket",
        "/run/ch/web.sock",
        "--memory",
        "size=4G,shared=on",
        "--device",
        "path=/sys/bus/pci/devices/0000:01:00.0/",
        "path=/sys/bus/pci/devices/0000:01:00.1/",
    ];
    let devices = vec!["0000:01:00.0".into(), "0000:01:00.1".into()];
    assert_eq!(told(program, "vcpu0", &arguments), ("web".into(), Manager::None, Some(4096), devices));
    let zones =
        ["--memory", "size=0", "--memory-zone", "id=a,size=1G", "id=b,size=512M", "--api-socket=path=/a/b"];
    assert_eq!(told(program, "vcpu0", &zones), ("b".into(), Manager::None, Some(1536), vec![]));
    let fifo = ["--api-socket", "fd=20", "--event-monitor", "path=/run/libvirt/ch/web-monitor-fifo"];
    assert_eq!(told(program, "vcpu0", &fifo), ("web".into(), Manager::Libvirt, None, vec![]));

    let scope = "/machine.slice/machine-ch\\x2d1\\x2dmy\\x2dvm.scope/libvirt/emulator";
    let process = Process::new(7, program, &["--api-socket", "fd=20"]).thread("vcpu0").in_cgroup(scope);
    let vm = found(&process).unwrap();
    assert_eq!((vm.name.as_str(), vm.manager), ("my-vm", Manager::Libvirt));
}

#[test]
fn firecracker() {
    let (_folder, tree) = tree();
    let config = r#"{"machine-config": {"vcpu_count": 1, "mem_size_mib": 512}}"#;
    let arguments = ["--id", "web", "--config-file", "/vm.json"];
    tree.process(
        &Process::new(7, "/firecracker-v1.7.0-x86_64", &arguments).thread("fc_api").thread("fc_vcpu 0"),
    );
    tree.write("proc/7/root/vm.json", config);
    let vm = examine(tree.root(), 7).unwrap();
    assert_eq!(
        (vm.name.as_str(), vm.monitor, vm.memory_bytes),
        ("web", Monitor::Firecracker, Some(512 << 20))
    );
    let of_socket = told("/usr/bin/firecracker", "fc_vcpu 0", &["--api-sock", "/run/db.socket"]);
    assert_eq!(of_socket, ("db".into(), Manager::None, None, vec![]));
    assert_eq!(told("/usr/bin/firecracker", "fc_vcpu 0", &[]).0, "firecracker-7");
}

#[test]
fn memory_that_nobody_tells_is_the_largest_mapping() {
    let (_folder, tree) = tree();
    tree.process(&Process::new(7, "/usr/bin/firecracker", &[]).thread("fc_vcpu 0"));
    tree.write(
        "proc/7/maps",
        "5000-6000 r-xp 0 0:0 0 /usr/bin/firecracker\n7f0000000000-7f0020000000 rw-p 0 0:0 0\n",
    );
    assert_eq!(examine(tree.root(), 7).unwrap().memory_bytes, Some(512 << 20));
}

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
fn threads_without_names_are_told_by_the_kernel() {
    let (_folder, tree) = tree();
    tree.process(&Process::lxd_or_incus(50, "v1", "/run/incus/v1/qemu.conf", 2));
    let vm = examine(tree.root(), 50).unwrap();
    let (other, vcpu) = (ThreadKind::Emulator, ThreadKind::Vcpu);
    let by_guest_time = [(other, None), (other, None), (other, None), (vcpu, None), (vcpu, None)];
    assert_eq!(kinds(&vm.read_threads()), by_guest_time);

    tree.write("sys/kernel/debug/kvm/50-12/vcpu0/pid", "52\n");
    tree.write("sys/kernel/debug/kvm/50-12/vcpu1/pid", "54\n");
    tree.write("sys/kernel/debug/kvm/5-12/vcpu1/pid", "53\n");
    let by_kvm = [(other, None), (other, None), (vcpu, Some(0)), (other, None), (vcpu, Some(1))];
    assert_eq!(kinds(&vm.read_threads()), by_kvm);
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

    tree.process(&Process::libvirt(30, "b", 1));
    assert_eq!(finder.scan().unwrap().appeared, [Identity { pid: 30, start_ticks: 1030 }]);
    assert_eq!(finder.vms().map(|vm| vm.name.as_str()).collect::<Vec<_>>(), ["b"]);
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

#[test]
fn a_process_that_becomes_a_monitor_is_found_when_it_is_examined() {
    let (_folder, tree) = tree();
    let mut finder = Finder::new(tree.root());
    tree.process(&Process::new(20, "/bin/sh", &[]));
    for _ in 0..3 {
        finder.scan().unwrap();
    }
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
    let (_folder, tree) = tree();
    let mut finder = Finder::new(tree.root());
    tree.process(&Process::new(20, "/bin/sh", &[]));
    for _ in 0..3 {
        finder.scan().unwrap();
    }
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
fn times_are_those_of_each_thread() {
    let (_folder, tree) = tree();
    let mut process = Process::libvirt(7, "web", 2);
    (process.threads[2].run_ns, process.threads[2].wait_ns, process.threads[2].cpu) = (30_000_000, 5, 6);
    tree.process(&process);
    let vm = examine(tree.root(), 7).unwrap();
    let threads = vm.read_threads();
    let mut times = Vec::new();
    vm.read_times(&threads, &mut times);
    assert_eq!(times.len(), 4);
    assert_eq!(times[2], Some(ThreadTimes { run_ns: 30_000_000, wait_ns: Some(5) }));
    assert_eq!(vm.read_cpu(&threads[2]), Some(6));

    // A kernel without statistics of its scheduler, and a thread that has ended.
    for tid in [9, 10] {
        fs::remove_file(tree.root().join(format!("proc/7/task/{tid}/schedstat"))).unwrap();
    }
    fs::remove_dir_all(tree.root().join("proc/7/task/8")).unwrap();
    vm.read_times(&threads, &mut times);
    assert_eq!(times[2], Some(ThreadTimes { run_ns: 30_000_000, wait_ns: None }));
    assert_eq!(times[1], None);
    assert_eq!(vm.open_times(&threads[3..]).unwrap_err().kind(), io::ErrorKind::NotFound);
    let mut open = Vec::new();
    vm.open_times(&threads[..2]).unwrap().read(&mut open);
    assert_eq!(open, times[..2]);
}

#[test]
fn files_that_stay_open_tell_what_is_new() {
    // This thread's own: the kernel counts what it runs.
    let me = fs::read_link("/proc/thread-self").unwrap();
    let tid: u32 = me.file_name().unwrap().to_str().unwrap().parse().unwrap();
    let thread = Thread {
        tid,
        kind: ThreadKind::Emulator,
        vcpu: None,
        name: String::new(),
        process: std::process::id(),
    };
    let open = times::OpenTimes::open(Path::new("/"), &[thread]).unwrap();
    let read = || {
        let mut times = Vec::new();
        open.read(&mut times);
        times[0].unwrap().run_ns
    };
    let before = read();
    while read() == before {
        std::hint::spin_loop();
    }
}

#[test]
fn limits_are_those_of_vcpus() {
    let (_folder, tree) = tree();
    let mut process = Process::libvirt(7, "web", 2);
    tree.process(&process);
    let online: Vec<u32> = (0..8).collect();
    let limits = |tree: &Tree| {
        let vm = examine(tree.root(), 7).unwrap();
        vm.read_limits(&vm.read_threads(), &online)
    };
    let free = limits(&tree);
    assert_eq!(
        (free.is_pinned, free.cpus.as_slice(), free.memory_nodes.as_slice()),
        (false, &online[..], &[0, 1][..])
    );

    // That the emulator is pinned does not matter.
    "4".clone_into(&mut process.threads[0].cpus);
    "4-5".clone_into(&mut process.threads[3].cpus);
    tree.process(&process);
    let pinned = limits(&tree);
    assert_eq!(pinned.vcpus, [(9, online.clone()), (10, vec![4, 5])]);
    assert!(pinned.is_pinned);
    assert_eq!(pinned.cpus, online);
}

#[test]
fn a_cgroup_is_the_whole_vms() {
    for (cgroups, version) in [(Cgroups::Unified, 2), (Cgroups::Separate, 1), (Cgroups::Hybrid, 1)] {
        let (_folder, tree) = tree();
        tree.cgroups(cgroups);
        tree.process(&Process::libvirt(7, "web", 1));
        let vm = examine(tree.root(), 7).unwrap();
        let scope = "/machine.slice/machine-qemu\\x2d1\\x2dweb.scope";
        let (file, path) = match version {
            2 => ("cpuset.cpus.effective", format!("sys/fs/cgroup{scope}")),
            _ => ("cpuset.effective_cpus", format!("sys/fs/cgroup/cpuset{scope}")),
        };
        tree.write(&format!("{path}/{file}"), "0-3\n");
        let cgroup = vm.read_limits(&vm.read_threads(), &[]).cgroup.unwrap();
        assert_eq!((cgroup.path.to_str(), cgroup.version, cgroup.is_own), (Some(scope), version, true));
        assert_eq!(cgroup.cpus, Some(vec![0, 1, 2, 3]));
    }
}

#[test]
fn a_cgroup_that_others_share_is_not_its_own() {
    let (_folder, tree) = tree();
    tree.process(&Process::new(7, QEMU, &[]).thread("CPU 0/KVM").in_cgroup("/user.slice/a.scope"));
    let vm = examine(tree.root(), 7).unwrap();
    let is_own = || vm.read_limits(&vm.read_threads(), &[]).cgroup.unwrap().is_own;
    tree.cgroup("/user.slice/a.scope", "cgroup.procs", "7\n");
    assert!(is_own());
    tree.cgroup("/user.slice/a.scope", "cgroup.procs", "7\n8\n");
    assert!(!is_own());
}

#[test]
fn memory_is_told_by_the_cgroup_or_the_page_tables() {
    let (_folder, tree) = tree();
    let mut process = Process::libvirt(7, "web", 1);
    process.numa_maps = Some("7f00 default anon=3 N0=1 N1=2 kernelpagesize_kB=1048576\n".into());
    tree.process(&process);
    let memory = || {
        let vm = examine(tree.root(), 7).unwrap();
        vm.read_memory(&vm.read_limits(&vm.read_threads(), &[]))
    };
    let told = || {
        let memory = memory().by_node?;
        Some((memory.source, memory.bytes.into_iter().collect::<Vec<_>>()))
    };
    let gib = 1_u64 << 30;
    let scope = "/machine.slice/machine-qemu\\x2d1\\x2dweb.scope";
    let maps = Some((MemorySource::NumaMaps, vec![(0, gib), (1, 2 * gib)]));
    assert_eq!(told(), maps, "there are no statistics");

    let stat =
        |mib: u64| format!("anon N0=0 N1={}\nfile N0=9 N1={}\nshmem N0=4096 N1=0\n", mib << 20, 90_u64 << 30);
    tree.cgroup(scope, "memory.numa_stat", &stat(1000));
    assert_eq!(told(), Some((MemorySource::Cgroup, vec![(0, 4096), (1, 1000 << 20)])));

    tree.cgroup(scope, "memory.numa_stat", &stat(500));
    assert_eq!(told(), maps, "it has counted half");

    process.huge_kib = 1 << 20;
    tree.process(&process);
    tree.cgroup(scope, "memory.numa_stat", &stat(1000));
    assert_eq!(told(), maps, "huge pages are missing");
    tree.cgroup(scope, "hugetlb.2MB.numa_stat", &format!("total={gib} N0={gib} N1=0\n"));
    assert_eq!(told(), Some((MemorySource::Cgroup, vec![(0, gib + 4096), (1, 1000 << 20)])));
    assert_eq!(memory().resident_bytes, Some(2 * gib));
}

#[test]
fn version_1_counts_pages() {
    let (_folder, tree) = tree();
    tree.cgroups(Cgroups::Separate);
    tree.process(&Process::libvirt(7, "web", 1));
    let text = "total=9 N0=9\nanon=1 N0=1\nhierarchical_total=9 N0=9\nhierarchical_file=8 N0=8\n\
        hierarchical_anon=262144 N0=4 N1=262140\nhierarchical_unevictable=1 N0=1\n";
    tree.write("sys/fs/cgroup/memory/machine.slice/machine-qemu\\x2d1\\x2dweb.scope/memory.numa_stat", text);
    let vm = examine(tree.root(), 7).unwrap();
    let memory = vm.read_memory(&vm.read_limits(&vm.read_threads(), &[])).by_node.unwrap();
    assert_eq!(memory.bytes.into_iter().collect::<Vec<_>>(), [(0, 5 * 4096), (1, 262_140 * 4096)]);
}

#[test]
fn what_may_not_be_read_is_not_zero() {
    let (_folder, tree) = tree();
    tree.process(&Process::libvirt(7, "web", 1).in_cgroup("/"));
    let vm = examine(tree.root(), 7).unwrap();
    let memory = vm.read_memory(&vm.read_limits(&vm.read_threads(), &[]));
    assert_eq!(memory, Memory { resident_bytes: Some(1 << 30), by_node: None });
    tree.remove(7);
    let memory = vm.read_memory(&vm.read_limits(&vm.read_threads(), &[]));
    assert_eq!(memory, Memory { resident_bytes: None, by_node: None });
}

#[test]
fn usage_is_what_was_run_between_samples() {
    let (_folder, tree) = tree();
    let machine = crate::topology::read_sysfs(tree.root()).unwrap();
    let mut process = Process::libvirt(7, "web", 2);
    tree.process(&process);
    let vm = examine(tree.root(), 7).unwrap();
    let mut usages =
        [Usage::start(&vm, vm.read_threads()), Usage::start_open(&vm, vm.read_threads()).unwrap()];
    // One vCPU runs on node 0 and then on node 1, the emulator on node 1.
    for (vcpu_ns, cpu) in [(100, 1), (400, 6)] {
        (process.threads[2].run_ns, process.threads[2].cpu) = (vcpu_ns, cpu);
        (process.threads[2].wait_ns, process.threads[0].wait_ns) = (vcpu_ns / 10, vcpu_ns / 100);
        (process.threads[0].run_ns, process.threads[0].cpu) = (vcpu_ns, 7);
        tree.process(&process);
        usages.iter_mut().for_each(|usage| usage.sample(&vm, &machine));
    }
    let [mut usage, open] = usages;
    let all = usage.vm();
    assert_eq!(open.vm(), all);
    assert_eq!((all.run_ns, all.steal_ns, all.wait_ns), (800, Some(40), Some(4)));
    assert_eq!(
        all.vcpu_run_ns_by_node.iter().map(|(&node, &ns)| (node, ns)).collect::<Vec<_>>(),
        [(0, 100), (1, 300)]
    );
    assert_eq!(
        (all.share_on(&[1]), all.share_on(&[0, 1]), all.share_on(&[])),
        (Some(0.75), Some(1.0), Some(0.0))
    );
    assert_eq!(
        usage.threads().map(|(_, usage)| usage.cpu).collect::<Vec<_>>(),
        [Some(7), Some(0), Some(6), Some(0)]
    );
    assert_eq!(VmUsage::default().share_on(&[0]), None);

    tree.remove(7);
    usage.sample(&vm, &machine);
    assert_eq!(usage.vm(), all);
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

proptest! {
    // Each case writes dozens of files.
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Files that are cut, of other lengths, or hold anything: something is found or not, and nothing panics.
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
        let mut finder = Finder::new(tree.root());
        finder.scan().unwrap();
        for vm in finder.vms() {
            let threads = vm.read_threads();
            vm.read_times(&threads, &mut Vec::new());
            let limits = vm.read_limits(&threads, &[0, 1]);
            vm.read_memory(&limits);
        }
    }

    #[test]
    fn no_command_line_makes_it_panic(name in "\\PC*|[,={}\"\n\\\\]*", junk in "(-[a-z]{1,9}|--[a-z]{1,9}=|[,={}\"\n\\\\]*|\\PC*)*") {
        let escaped = name.replace(',', ",,");
        let arguments = ["-name", &format!("guest={escaped}"), &junk];
        let (found, ..) = told(QEMU, "CPU 0/KVM", &arguments);
        // Zeros end arguments.
        if !name.contains('\0') && !name.is_empty() {
            prop_assert_eq!(found, name);
        }
    }
}
