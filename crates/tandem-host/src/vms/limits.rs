//! The limits of a VM: CPUs, memory nodes and CPU time, and its cgroup.
//!
//! A thread's `Cpus_allowed_list` combines `taskset`, libvirt's `vcpupin` and cpusets of cgroups.

use super::threads::{Thread, ThreadKind};
use super::{Manager, Vm};
use crate::cgroups::{DEPTH_MAX, Hierarchies, Membership, limit_cpus};
use crate::tasks;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;
use tandem_machine::parse_cpulist;

/// The current limits of a VM.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// The number of each vCPU's thread with the CPUs that it may use, in ascending order of threads.
    pub vcpus: Vec<(u32, Vec<u32>)>,
    /// The CPUs that any of its vCPUs may use.
    pub cpus: Vec<u32>,
    /// Whether any of its vCPUs may not use some online CPU.
    pub is_pinned: bool,
    /// CPUs that it may use on average: the lowest limit of its cgroup and of those around it; `None` without
    /// one.
    pub quota_cpus: Option<f64>,
    /// The nodes on which it may allocate memory; empty on a kernel without NUMA.
    pub memory_nodes: Vec<u32>,
    /// Its cgroup, if it is known.
    pub cgroup: Option<VmCgroup>,
}

/// The cgroup of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VmCgroup {
    /// Its path in the hierarchy that has the controller `memory`.
    pub path: PathBuf,
    /// The version of cgroups, 1 or 2.
    pub version: u32,
    /// Whether it holds this VM and nothing but the VM's own helpers, such as a software TPM.
    pub is_own: bool,
    /// The CPUs that it may use, where the controller `cpuset` limits them.
    pub cpus: Option<Vec<u32>>,
    #[serde(skip)]
    pub(super) membership: Membership,
}

/// Reads the limits of a VM; `online` are the CPUs of the machine, in ascending order.
pub(super) fn read(vm: &Vm, threads: &[Thread], online: &[u32]) -> Limits {
    let of_vcpus = threads.iter().filter(|thread| thread.kind == ThreadKind::Vcpu);
    let vcpus: Vec<(u32, Vec<u32>)> =
        of_vcpus.filter_map(|thread| Some((thread.tid, vm.read_allowed(thread)?))).collect();
    let mut cpus: Vec<u32> = vcpus.iter().flat_map(|(_, cpus)| cpus).copied().collect();
    cpus.sort_unstable();
    cpus.dedup();
    let may_not = |cpus: &[u32]| online.iter().any(|cpu| cpus.binary_search(cpu).is_err());
    Limits {
        is_pinned: vcpus.iter().any(|(_, cpus)| may_not(cpus)),
        vcpus,
        cpus,
        memory_nodes: tasks::task(&vm.root, vm.identity.pid)
            .map(|task| task.allowed_nodes)
            .unwrap_or_default(),
        quota_cpus: read_quota(vm),
        cgroup: read_cgroup(vm),
    }
}

/// The lowest limit of CPU time of the cgroups around a VM, CPUs. Those that a manager gives each vCPU are
/// inside, and do not count.
fn read_quota(vm: &Vm) -> Option<f64> {
    let cpu = Hierarchies::find(&vm.root).of_process(vm.identity.pid, "cpu")?;
    let around = std::iter::successors(Some(whole_vm(cpu, &vm.manager)), Membership::parent);
    let limits = around.take(DEPTH_MAX).filter_map(|cgroup| limit_cpus(&cgroup.directory, cgroup.is_unified));
    limits.reduce(f64::min)
}

/// Finds the cgroup of a VM.
pub(super) fn read_cgroup(vm: &Vm) -> Option<VmCgroup> {
    let hierarchies = Hierarchies::find(&vm.root);
    let memory = whole_vm(hierarchies.of_process(vm.identity.pid, "memory")?, &vm.manager);
    let cpuset =
        hierarchies.of_process(vm.identity.pid, "cpuset").map(|cpuset| whole_vm(cpuset, &vm.manager));
    let cpus = cpuset.and_then(|cpuset| {
        let file = if cpuset.is_unified { "cpuset.cpus.effective" } else { "cpuset.effective_cpus" };
        parse_cpulist(&fs::read_to_string(cpuset.directory.join(file)).ok()?).ok()
    });
    Some(VmCgroup {
        path: memory.path.clone(),
        version: if memory.is_unified { 2 } else { 1 },
        is_own: is_made_for(&memory, &vm.manager)
            || memory.path.parent().is_some() && memory.is_alone(vm.identity.pid),
        cpus,
        membership: memory,
    })
}

/// libvirt puts the threads of a VM into cgroups of their own, in `libvirt` with systemd and version 2: its
/// `docs/cgroups.rst`. The VM's cgroup is the one around them.
fn whole_vm(mut cgroup: Membership, manager: &Manager) -> Membership {
    if *manager == Manager::Libvirt {
        for inner in ["emulator", "libvirt"] {
            if cgroup.path.ends_with(inner)
                && let Some(outer) = cgroup.parent()
            {
                cgroup = outer;
            }
        }
    }
    cgroup
}

/// Whether the manager has made this cgroup for one VM: `machine-qemu\x2d1\x2dNAME.scope` (`machine-ch` for
/// Cloud Hypervisor) or, without systemd, `NAME.libvirt-qemu` of libvirt; `qemu.slice/100.scope` of Proxmox.
fn is_made_for(cgroup: &Membership, manager: &Manager) -> bool {
    let path = cgroup.path.to_string_lossy();
    match manager {
        Manager::Libvirt => {
            let name = path.rsplit('/').next().unwrap_or_default();
            let is_scope = name.starts_with("machine-") && name.ends_with(".scope");
            is_scope || name.ends_with(".libvirt-qemu") || name.ends_with(".libvirt-ch")
        }
        Manager::Proxmox { id } => path.ends_with(&format!("qemu.slice/{id}.scope")),
        Manager::Lxd { .. } | Manager::Incus { .. } | Manager::None => false,
    }
}
