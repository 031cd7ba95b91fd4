//! The threads of a VM: which of them are vCPUs, which do I/O.
//!
//! Their names identify them. QEMU names its threads only with `-name NAME,debug-threads=on`, which libvirt
//! and Proxmox pass, and LXD and Incus do not. For threads without names, KVM has the threads of vCPUs in
//! `/sys/kernel/debug/kvm/PID-FD/vcpuN/pid` (since Linux 6.0, commit e36de87d34a7), which only root may read.
//! Otherwise a thread that has run a guest is a vCPU: `guest_time` in its `stat`. That finds a vCPU only
//! after a clock tick has interrupted it in the guest, and does not give its number.
//!
//! | thread | name | source |
//! |---|---|---|
//! | vCPU | `CPU 0/KVM`, `CPU 0/TCG`, `ALL CPUs/TCG` (one thread for all) | QEMU's `accel/*/*-accel-ops.c` |
//! | | `vcpu0` | Cloud Hypervisor's `vmm/src/cpu.rs` |
//! | | `fc_vcpu 0` | Firecracker's `vmm/src/vstate/vcpu.rs` |
//! | | `crosvm_vcpu0` | crosvm's `src/crosvm/sys/linux/vcpu.rs` |
//! | | `kvm-vcpu-0` | kvmtool's `builtin-run.c` |
//! | | `EMT-0` | VirtualBox's `VMMR3/VM.cpp` |
//! | I/O | `IO NAME` | QEMU's `iothread.c`; libvirt's `IO mon_iothread` serves its monitor |
//! | | `worker` | the pool of QEMU's `util/thread-pool.c`, for disks |
//! | | `_disk0_q0`, `_net1_qp0` | Cloud Hypervisor: a device's id and queue |
//! | | `vhost-PID` | `drivers/vhost/vhost.c`; a thread of the kernel before Linux 6.4 |
//! | | `iou-wrk-TID`, `iou-sqp-TID` | the kernel's `io_uring/` |
//! | emulator | all others, the main loop first | |

use super::process::{read_name, read_stat};
use crate::guarded::vcpus_told_by_kvm;
use crate::tasks;
use crate::untrusted::Untrusted;
use serde::Serialize;
use std::fs;
use std::path::Path;

/// What a thread of a VM does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadKind {
    /// Runs the guest.
    Vcpu,
    /// Moves the data of disks and networks.
    Io,
    /// Everything else: the main loop, displays, migration.
    Emulator,
}

/// A thread of a VM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// What it does.
    pub kind: ThreadKind,
    /// The number of the vCPU, if it is one and the number is known.
    pub vcpu: Option<u32>,
    /// Its name, of at most 15 bytes, safe to display.
    pub name: String,
    /// Its process: the VM's, or that of a thread of the kernel that works for the VM.
    pub(super) process: u32,
}

impl Thread {
    /// Whether it belongs to this process, rather than being a thread of the kernel that works for it.
    pub fn is_of(&self, pid: u32) -> bool {
        self.process == pid
    }
}

/// The kind of a thread and the number of its vCPU, by the thread's name.
fn kind_by_name(name: &str) -> (ThreadKind, Option<u32>) {
    let number = |text: &str| text.parse::<u32>().ok();
    let of_qemu = name.strip_prefix("CPU ").and_then(|rest| number(rest.split_once('/')?.0));
    let of_others = || {
        ["vcpu", "fc_vcpu ", "crosvm_vcpu", "kvm-vcpu-", "EMT-"]
            .iter()
            .find_map(|start| number(name.strip_prefix(start)?))
    };
    if let Some(vcpu) = of_qemu.or_else(of_others) {
        return (ThreadKind::Vcpu, Some(vcpu));
    }
    if name.starts_with("ALL CPUs/") {
        return (ThreadKind::Vcpu, None);
    }
    let is_queue = ["_qp", "_q"].iter().any(|queue| {
        name.rsplit_once(queue).is_some_and(|(device, number)| {
            !device.is_empty() && !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    });
    let is_io = name.starts_with("IO ") && name != "IO mon_iothread"
        || ["vhost-", "iou-wrk-", "iou-sqp-", "_disk", "_net", "_fs", "_pmem"]
            .iter()
            .any(|start| name.starts_with(start))
        || name == "worker"
        || is_queue;
    (if is_io { ThreadKind::Io } else { ThreadKind::Emulator }, None)
}

/// Most threads of a process that are examined: KVM's limit is 4096 vCPUs. A process may have as many as its
/// user.
const THREADS_MAX: usize = 8192;

/// The process for which a thread of the kernel moves data, by the thread's name.
pub(super) fn served_by(kernel_thread: &Untrusted) -> Option<u32> {
    kernel_thread.text().strip_prefix("vhost-")?.parse().ok()
}

/// The threads of a process and those of the kernel that work for it, in ascending order of their numbers.
pub(super) fn read(root: &Path, pid: u32, helpers: &[u32]) -> Vec<Thread> {
    let one = |process: u32, tid: u32| {
        let name = read_name(&root.join(format!("proc/{process}/task/{tid}")))?;
        let (kind, vcpu) = kind_by_name(name.text());
        Some(Thread { tid, kind, vcpu, name: name.shown(), process })
    };
    let mut threads: Vec<Thread> =
        tasks::threads(root, pid).iter().take(THREADS_MAX).filter_map(|&tid| one(pid, tid)).collect();
    // Only QEMU leaves its threads without names, and then all of them.
    if !threads.iter().any(|thread| thread.kind == ThreadKind::Vcpu) {
        find_vcpus(root, pid, &mut threads);
    }
    // Other threads may have these numbers by now, and any process may use the name.
    let serves = |thread: &Thread| {
        let stat = read_stat(&root.join(format!("proc/{0}/task/{0}", thread.tid)));
        stat.is_some_and(|stat| stat.is_kernel_thread)
            && served_by(&Untrusted::new(thread.name.as_str())) == Some(pid)
    };
    threads.extend(helpers.iter().filter_map(|&tid| one(tid, tid)).filter(serves));
    threads.sort_unstable_by_key(|thread| thread.tid);
    threads
}

/// Finds the vCPUs among threads whose names do not identify them.
fn find_vcpus(root: &Path, pid: u32, threads: &mut [Thread]) {
    let told = vcpus_told_by_kvm(root, pid);
    for thread in threads {
        if let Some(&(vcpu, _)) = told.iter().find(|(_, tid)| *tid == thread.tid) {
            (thread.kind, thread.vcpu) = (ThreadKind::Vcpu, Some(vcpu));
        } else if told.is_empty() {
            let stat = read_stat(&root.join(format!("proc/{pid}/task/{}", thread.tid)));
            if stat.is_some_and(|stat| stat.guest_ticks > 0) {
                thread.kind = ThreadKind::Vcpu;
            }
        }
    }
}

/// Numbers of vCPUs with those of their threads, from KVM.
pub(crate) fn told_by_kvm(root: &Path, pid: u32) -> Vec<(u32, u32)> {
    let vms = fs::read_dir(root.join("sys/kernel/debug/kvm")).into_iter().flatten().flatten();
    let own = vms.filter(|vm| {
        let name = vm.file_name();
        name.to_str().and_then(|name| name.split_once('-')?.0.parse().ok()) == Some(pid)
    });
    let vcpus = own.flat_map(|vm| fs::read_dir(vm.path()).into_iter().flatten().flatten());
    let found = vcpus.filter_map(|vcpu| {
        let number = vcpu.file_name().to_str()?.strip_prefix("vcpu")?.parse().ok()?;
        let tid = fs::read_to_string(vcpu.path().join("pid")).ok()?.trim().parse().ok()?;
        Some((number, tid))
    });
    found.take(THREADS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_identify_kinds_of_threads() {
        let cases = [
            ("CPU 0/KVM", ThreadKind::Vcpu, Some(0)),
            ("CPU 127/KVM", ThreadKind::Vcpu, Some(127)),
            ("CPU 1/TCG", ThreadKind::Vcpu, Some(1)),
            ("ALL CPUs/TCG", ThreadKind::Vcpu, None),
            ("vcpu3", ThreadKind::Vcpu, Some(3)),
            ("fc_vcpu 2", ThreadKind::Vcpu, Some(2)),
            ("crosvm_vcpu1", ThreadKind::Vcpu, Some(1)),
            ("kvm-vcpu-3", ThreadKind::Vcpu, Some(3)),
            ("EMT-0", ThreadKind::Vcpu, Some(0)),
            ("IO iothread1", ThreadKind::Io, None),
            ("IO mon_iothread", ThreadKind::Emulator, None),
            ("worker", ThreadKind::Io, None),
            ("vhost-4711", ThreadKind::Io, None),
            ("_disk0_q0", ThreadKind::Io, None),
            ("root_q3", ThreadKind::Io, None),
            ("_net1_ctrl", ThreadKind::Io, None),
            ("_console", ThreadKind::Emulator, None),
            ("_q1", ThreadKind::Emulator, None),
            ("vcpu", ThreadKind::Emulator, None),
            ("CPU x/KVM", ThreadKind::Emulator, None),
            ("qemu-system-x86", ThreadKind::Emulator, None),
            ("SPICE Worker", ThreadKind::Emulator, None),
            ("", ThreadKind::Emulator, None),
        ];
        for (name, kind, vcpu) in cases {
            assert_eq!(kind_by_name(name), (kind, vcpu), "{name}");
        }
    }
}
