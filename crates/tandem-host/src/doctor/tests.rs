use super::*;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// A host of VMs without faults: 2 CPUs, one on each node.
const GOOD: [(&str, &str); 26] = [
    ("proc/sys/kernel/osrelease", "7.3.4-amd64\n"),
    ("proc/sys/kernel/sched_schedstats", "1\n"),
    ("proc/sys/kernel/numa_balancing", "1\n"),
    ("proc/sys/net/core/bpf_jit_enable", "1\n"),
    ("proc/self/status", "Name:\ttandem\nUid:\t0\t0\t0\t0\nCapEff:\t000001ffffffffff\n"),
    (
        "proc/self/mountinfo",
        "25 30 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
         27 30 0:25 / /sys/fs/bpf rw - bpf bpf rw,mode=700\n\
         33 30 0:7 / /sys/kernel/debug rw - debugfs debugfs rw\n",
    ),
    ("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vmx ept\n"),
    (
        "proc/7/status",
        "Name:\tsshd\nState:\tS (sleeping)\nTgid:\t7\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-1\n",
    ),
    ("sys/kernel/sched_ext/state", "disabled\n"),
    ("sys/kernel/btf/vmlinux", ""),
    ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n"),
    ("sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu io memory pids\n"),
    ("sys/fs/cgroup/system.slice/tandem.service/cgroup.procs", "99\n"),
    ("sys/module/kvm_intel/parameters/ple_gap", "128\n"),
    ("sys/devices/system/cpu/online", "0-1\n"),
    ("sys/devices/system/cpu/possible", "0-1\n"),
    ("sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0\n"),
    ("sys/devices/system/cpu/cpu1/topology/core_cpus_list", "1\n"),
    ("sys/devices/system/node/online", "0-1\n"),
    ("sys/devices/system/node/node0/cpulist", "0\n"),
    ("sys/devices/system/node/node1/cpulist", "1\n"),
    ("dev/kvm", ""),
    ("etc/group", "root:x:0:\ntandem:x:998:\n"),
    ("run/systemd/system/x", ""),
    ("run/tandem/x", ""),
    ("usr/lib/systemd/system/tandem.service", "[Service]\n"),
];

fn write(root: &TempDir, path: &str, text: &str) {
    let path = root.path().join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn remove(root: &TempDir, path: &str) {
    let path = root.path().join(path);
    if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
}

fn good_host() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in GOOD {
        write(&root, path, text);
    }
    let wants = root.path().join("etc/systemd/system/multi-user.target.wants");
    fs::create_dir_all(&wants).unwrap();
    symlink("/usr/lib/systemd/system/tandem.service", wants.join("tandem.service")).unwrap();
    root
}

/// The differences from the good host: subject, level and message.
fn differing(root: &TempDir) -> Vec<(&'static str, Severity, String)> {
    let good = examine(good_host().path());
    let findings = examine(root.path()).into_iter().filter(|finding| !good.contains(finding));
    findings.map(|Finding { subject, level, message }| (subject, level, message)).collect()
}

/// Checks that this finding alone differs from the good host.
#[track_caller]
fn only(root: &TempDir, subject: &str, level: Severity, message: &str) {
    let found = differing(root);
    let [(found_subject, found_level, found_message)] = &found[..] else { panic!("{subject}: {found:?}") };
    assert_eq!((*found_subject, *found_level), (subject, level), "{found_message}");
    assert!(found_message.contains(message), "{found_message}");
}

#[test]
fn on_a_good_host_all_is_well() {
    let findings = examine(good_host().path());
    assert!(findings.iter().all(|finding| finding.level == Severity::Ok), "{findings:#?}");
    assert!(is_loadable(&findings));
    let message = |subject| &findings.iter().find(|finding| finding.subject == subject).unwrap().message;
    assert_eq!(message("sched_ext"), "in Linux 7.3.4-amd64");
    assert_eq!(message("topology"), "CPUs: 2, last-level caches: 2");
    assert!(
        message("NUMA")
            .starts_with("2 nodes; the kernel's NUMA balancing is on, but moves no memory of tasks")
    );
    assert_eq!(message("service"), "active; starts at boot");
}

#[test]
fn an_old_kernel_cannot_load_it() {
    let root = good_host();
    remove(&root, "sys/kernel/sched_ext");
    write(&root, "proc/sys/kernel/osrelease", "6.1.0-41-amd64\n");
    only(
        &root,
        "sched_ext",
        Severity::Missing,
        "this kernel (6.1.0-41-amd64) has no sched_ext, which begins with Linux 6.12",
    );
    assert!(!is_loadable(&examine(root.path())));
}

#[test]
fn the_loaders_needs_are_reported_one_by_one() {
    let mounts =
        "25 30 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n33 30 0:7 / /debug rw - debugfs debugfs rw\n";
    let cases: [(&str, Option<&str>, &str, &str); 7] = [
        ("sys/kernel/btf/vmlinux", None, "type information", "CONFIG_DEBUG_INFO_BTF=y"),
        ("proc/self/mountinfo", Some(mounts), "BPF file system", "mount -t bpf bpf /sys/fs/bpf"),
        ("proc/sys/net/core/bpf_jit_enable", Some("0\n"), "BPF compiler", "sysctl net.core.bpf_jit_enable=1"),
        (
            "sys/kernel/sched_ext/root/ops",
            Some("scx_lavd\n"),
            "loaded",
            "another sched_ext scheduler, `scx_lavd`; stop it",
        ),
        ("proc/self/status", Some("Uid:\t0\t1000\t0\t0\n"), "permissions", "needs root; run it with sudo"),
        (
            "proc/self/status",
            Some("Uid:\t0\t0\t0\t0\nCapEff:\t0000004000000000\n"),
            "permissions",
            "without CAP_BPF;",
        ),
        ("proc/self/status", Some("Uid:\t0\t0\t0\t0\n"), "permissions", "without CAP_BPF and CAP_PERFMON;"),
    ];
    for (path, text, subject, message) in cases {
        let root = good_host();
        match text {
            Some(text) => write(&root, path, text),
            None => remove(&root, path),
        }
        only(&root, subject, Severity::Missing, message);
    }
}

#[test]
fn a_machine_that_is_too_large_or_unreadable_is_reported() {
    let root = good_host();
    write(&root, "sys/devices/system/cpu/online", "0,2000\n");
    write(&root, "sys/devices/system/cpu/cpu2000/topology/core_cpus_list", "2000\n");
    write(&root, "sys/devices/system/node/node1/cpulist", "2000\n");
    only(&root, "topology", Severity::Missing, "2001");
    write(&root, "sys/devices/system/cpu/online", "many\n");
    only(&root, "topology", Severity::Missing, "cpu/online");
}

#[test]
fn one_capability_stands_in_for_the_others() {
    let root = good_host();
    write(&root, "proc/self/status", "Uid:\t0\t0\t0\t0\nCapEff:\t0000000000200000\n");
    assert_eq!(differing(&root), []);
}

#[test]
fn our_own_scheduler_is_no_other() {
    let root = good_host();
    write(&root, "sys/kernel/sched_ext/state", "enabled\n");
    write(&root, "sys/kernel/sched_ext/root/ops", "tandem\n");
    only(&root, "loaded", Severity::Ok, "tandem (enabled)");
}

#[test]
fn what_would_help_is_a_warning() {
    let mounts =
        "25 30 0:23 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n27 30 0:25 / /sys/fs/bpf rw - bpf bpf rw\n";
    let bpf =
        "27 30 0:25 / /sys/fs/bpf rw - bpf bpf rw\n33 30 0:7 / /sys/kernel/debug rw - debugfs debugfs rw\n";
    let numad = "Name:\tnumad\nState:\tS (sleeping)\nTgid:\t41\nUid:\t0\t0\t0\t0\nCpus_allowed_list:\t0-1\n";
    let cases: [(&str, Option<&str>, &str, &str); 12] = [
        ("proc/self/mountinfo", Some(mounts), "debugfs", "mount -t debugfs"),
        ("proc/self/mountinfo", Some(bpf), "cgroup2", "mount -t cgroup2"),
        (
            "sys/fs/cgroup/cgroup.subtree_control",
            Some("memory\n"),
            "cgroup2",
            "`echo +cpu +cpuset > /sys/fs/cgroup/cgroup.subtree_control`",
        ),
        ("sys/fs/cgroup/cgroup.subtree_control", Some("cpu\n"), "cgroup2", "the controller cpuset is off"),
        (
            "sys/fs/cgroup/cgroup.controllers",
            Some("hugetlb\n"),
            "cgroup2",
            "systemd.unified_cgroup_hierarchy=1",
        ),
        ("proc/sys/kernel/sched_schedstats", Some("0\n"), "schedstats", "sysctl kernel.sched_schedstats=1"),
        ("proc/sys/kernel/sched_schedstats", None, "schedstats", "CONFIG_SCHEDSTATS=y"),
        ("proc/41/status", Some(numad), "numad", "process 41"),
        ("sys/module/kvm_intel/parameters/ple_gap", Some("0\n"), "directed yield", "ple_gap=0"),
        ("dev/kvm", None, "KVM", "no /dev/kvm"),
        ("etc/group", Some("root:x:0:\n"), "group", "groupadd --system tandem"),
        ("run/tandem", None, "service", "systemctl restart tandem.service"),
    ];
    for (path, text, subject, message) in cases {
        let root = good_host();
        match text {
            Some(text) => write(&root, path, text),
            None => remove(&root, path),
        }
        only(&root, subject, Severity::Warning, message);
        assert!(is_loadable(&examine(root.path())), "{subject}");
    }
}

#[test]
fn anybodys_process_may_be_called_numad() {
    let root = good_host();
    let status =
        "Name:\tnumad\nState:\tS (sleeping)\nTgid:\t41\nUid:\t1000\t0\t0\t0\nCpus_allowed_list:\t0-1\n";
    write(&root, "proc/41/status", status);
    let findings = examine(root.path());
    let numad = findings.iter().find(|finding| finding.subject == "numad").unwrap();
    assert_eq!((numad.level, numad.message.as_str()), (Severity::Ok, "does not run"));
}

#[test]
fn kvms_finding_depends_on_the_cpu() {
    let cases = [
        ("flags\t: fpu vmx\n", Severity::Warning, "modprobe kvm_intel"),
        ("flags\t: fpu svm hypervisor\n", Severity::Warning, "modprobe kvm_amd"),
        ("flags\t: fpu hypervisor\n", Severity::Ok, "--mode guest"),
        ("flags\t: fpu\n", Severity::Warning, "firmware"),
    ];
    for (cpuinfo, level, message) in cases {
        let root = good_host();
        remove(&root, "dev/kvm");
        remove(&root, "sys/module");
        write(&root, "proc/cpuinfo", cpuinfo);
        only(&root, "KVM", level, message);
    }
}

#[test]
fn what_would_end_with_the_scheduler_is_a_warning() {
    let cases = [
        (
            "sys/fs/cgroup/machine.slice/cpu.max",
            "50000 100000\n",
            "CPU limits",
            Severity::Warning,
            "would not be enforced: /machine.slice; `tandem run` refuses: remove the limits, or run it with --ignore limits",
        ),
        ("sys/fs/cgroup/machine.slice/cpu.max", "max 100000\n", "", Severity::Ok, ""),
        (
            "sys/devices/system/cpu/isolated",
            "1\n",
            "isolated CPUs",
            Severity::Ok,
            "1; tasks run there only by their affinity",
        ),
        ("sys/devices/system/cpu/isolated", "\n", "", Severity::Ok, ""),
        (
            "sys/fs/cgroup/cpuset.cpus.isolated",
            "1\n",
            "isolated CPUs",
            Severity::Ok,
            "1; tasks run there only by their affinity, the queues of caches do not count these CPUs, and no VM has its home there",
        ),
        (
            "sys/devices/system/cpu/nohz_full",
            "1\n",
            "CPUs without tick",
            Severity::Ok,
            "1 (nohz_full); the tick stops while a task is alone",
        ),
        ("sys/devices/system/cpu/nohz_full", "  (null)\n", "", Severity::Ok, ""),
    ];
    for (path, text, subject, level, message) in cases {
        let root = good_host();
        write(&root, path, text);
        if subject.is_empty() {
            assert_eq!(differing(&root), [], "{path}: {text}");
        } else {
            only(&root, subject, level, message);
        }
        assert!(is_loadable(&examine(root.path())), "{path}: {text}");
    }
}

#[test]
fn kernels_without_core_scheduling_are_reported() {
    let root = good_host();
    write(&root, "sys/devices/system/cpu/online", "0-2\n");
    for cpu in [0, 2] {
        write(&root, &format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"), "0,2\n");
    }
    write(&root, "sys/devices/system/node/node0/cpulist", "0,2\n");
    let finding =
        examine(root.path()).into_iter().find(|finding| finding.subject == "core scheduling").unwrap();
    assert_eq!(finding.level, Severity::Ok);
    assert!(
        finding.message.starts_with("this kernel has no core scheduling (CONFIG_SCHED_CORE)"),
        "{}",
        finding.message
    );
    assert!(
        finding.message.ends_with("others may share their cores when the machine is busy"),
        "{}",
        finding.message
    );
}

#[test]
fn kernels_that_hang_are_reported() {
    let root = good_host();
    write(&root, "proc/sys/kernel/osrelease", "7.1.3-xanmod1\n");
    let told = |root: &TempDir| -> Vec<_> {
        differing(root).into_iter().filter(|(subject, ..)| *subject != "sched_ext").collect()
    };
    let [(subject, level, message), one_thread] = &told(&root)[..] else { panic!("{:?}", told(&root)) };
    assert_eq!((one_thread.0, one_thread.1), ("pressure triggers", Severity::Warning), "{}", one_thread.2);
    assert_eq!((*subject, *level), ("core scheduling", Severity::Ok), "{message}");

    write(&root, "sys/devices/system/cpu/online", "0-2\n");
    write(&root, "sys/devices/system/cpu/cpu0/topology/core_cpus_list", "0,2\n");
    write(&root, "sys/devices/system/cpu/cpu2/topology/core_cpus_list", "0,2\n");
    write(&root, "sys/devices/system/node/node0/cpulist", "0,2\n");
    let cookies =
        |root: &TempDir| told(root).into_iter().find(|(subject, ..)| *subject == "core scheduling").unwrap();
    let (_, level, message) = cookies(&root);
    assert_eq!(level, Severity::Warning, "{message}");
    assert!(
        message.starts_with("Linux 7.1.3-xanmod1 hangs with a sched_ext scheduler as soon as"),
        "{message}"
    );

    crate::vms::testing::Tree::new(root.path()).process(
        &crate::vms::testing::Process::new(
            700,
            "/usr/bin/cloud-hypervisor",
            &["--api-socket", "/run/web.sock"],
        )
        .thread("vcpu0"),
    );
    let (_, level, message) = cookies(&root);
    assert_eq!(level, Severity::Warning, "{message}");
    assert!(
        message.contains("VM web (process 700, according to its command line) uses; `tandem run` refuses"),
        "{message}"
    );
}

#[test]
fn the_units_state_is_reported() {
    let root = good_host();
    remove(&root, "etc/systemd/system/multi-user.target.wants");
    only(&root, "service", Severity::Ok, "does not start at boot");
    remove(&root, "sys/fs/cgroup/system.slice");
    only(&root, "service", Severity::Ok, "`systemctl enable --now tandem.service` starts it");
    remove(&root, "usr/lib/systemd");
    only(&root, "service", Severity::Ok, "no tandem.service is installed");
    remove(&root, "run/systemd");
    assert_eq!(differing(&root), []);

    let root = good_host();
    remove(&root, "sys/fs/cgroup/system.slice");
    only(&root, "service", Severity::Warning, "systemctl status tandem.service");
}

#[test]
fn an_empty_machine_lacks_much_and_nothing_panics() {
    let findings = examine(tempfile::tempdir().unwrap().path());
    let missing: Vec<_> = findings
        .iter()
        .filter(|finding| finding.level == Severity::Missing)
        .map(|finding| finding.subject)
        .collect();
    assert_eq!(missing, ["sched_ext", "type information", "BPF file system", "permissions", "topology"]);
}
