//! Readings that change: threads, times, limits, memory.

use super::super::testing::{Cgroups, Process, Tree};
use super::super::*;
use super::{QEMU, kinds, tree};
use std::fs;

#[test]
fn threads_without_names_are_identified_by_the_kernel() {
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

    // A kernel without scheduler statistics, and a thread that has ended.
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
fn files_that_stay_open_return_new_times() {
    // This thread's own: the kernel counts its run time.
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

    // Pinning the emulator makes no difference.
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
fn memory_comes_from_the_cgroup_or_the_page_tables() {
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
    let home = |vcpu: u32| if vcpu == 0 { &[1][..] } else { &[0, 1] };
    assert_eq!((all.share_of_vcpus(home), all.share_of_vcpus(|_| &[])), (Some(0.75), Some(0.0)));
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
fn the_least_limit_of_cpu_time_counts() {
    let (_folder, tree) = tree();
    let process = Process::libvirt(7, "web", 2);
    tree.process(&process);
    let vm = examine(tree.root(), 7).unwrap();
    let quota = || vm.read_limits(&vm.read_threads(), &[0, 1]).quota_cpus;
    assert_eq!(quota(), None);
    let scope = process.cgroup.trim_end_matches("/libvirt/emulator");
    tree.cgroup(scope, "cpu.max", "max 100000\n");
    assert_eq!(quota(), None);
    tree.cgroup(scope, "cpu.max", "300000 100000\n");
    assert_eq!(quota(), Some(3.0));
    let slice = scope.rsplit_once('/').unwrap().0;
    tree.cgroup(slice, "cpu.max", "50000 25000\n");
    assert_eq!(quota(), Some(2.0), "that of the slice around it is less");
    for wrong in ["", "x", "-1 5", "5 0", "99999999999999999999999 1"] {
        tree.cgroup(slice, "cpu.max", wrong);
        assert_eq!(quota(), Some(3.0), "{wrong}");
    }
}
