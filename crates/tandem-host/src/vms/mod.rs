//! The virtual machines of a host, found by observation alone.
//!
//! Problem: a scheduler on a host has to know its VMs, whatever program has started them, and must not need
//! the manager's permission, its socket or its library for that.
//!
//! Approach: a VM is a process that has one of KVM's, according to the kernel, and at least one thread that
//! is a vCPU. A [`Monitor`] that runs without KVM counts if the caller asks for it
//! ([`Finder::with_emulated`]), and where the evidence cannot be read, as by users other than root.
//! Everything that such a process claims about itself is [`Untrusted`](crate::untrusted::Untrusted). A [`Vm`]
//! holds what is fixed when it starts, read once: its name as its [`Manager`] shows it, the memory that it
//! was given, its devices. Each kind of changing data has a call of its own, so that callers pay for what
//! they need: [`Vm::read_threads`], [`Vm::read_times`], [`Vm::read_cpu`], [`Vm::read_limits`],
//! [`Vm::read_memory`]. [`Finder`] remembers which processes are not VMs.
//!
//! | call | reads, for a VM with n threads | costs, measured on one core of a cloud server |
//! |---|---|---|
//! | [`Finder::scan`] | the list of processes; new ones, and a file for each VM | 1 to 3 us a process |
//! | [`Vm::read_times`] | n files | 3 to 5 us a thread |
//! | [`Vm::open_times`], then [`OpenTimes::read`] | n files that stay open | 0.3 to 0.7 us a thread |
//! | [`Vm::read_cpu`] | a file | 6 us |
//! | [`Vm::read_migrations`] | a file | 4 us |
//! | [`Vm::read_threads`] | a directory and n files | 4 to 7 us a thread |
//! | [`Vm::read_limits`] | a file for each vCPU, some for the cgroup | 20 us a vCPU |
//! | [`Vm::read_memory`] | two files, or the page tables of the VM | 0.1 ms, or [seconds](MemorySource::NumaMaps) |
//!
//! Everything takes a root: `/` for this machine, or a copy of its `/proc` and `/sys`. Nothing is written,
//! and nothing needs root. A value that may not be read is `None`.
//!
//! Limits: monitors inside of containers appear with the numbers that they have outside, but their
//! configuration files cannot be read where those lie in the container. A guest's own VMs are invisible, and
//! so is a process whose `/proc` is hidden from the caller (`hidepid`).

mod cloud_hypervisor;
mod description;
mod devices;
mod finder;
mod firecracker;
mod homes;
pub mod homes_file;
mod kvm;
mod limits;
mod mappings;
mod memory;
mod monitor;
mod options;
mod process;
mod qemu;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod threads;
mod times;
mod usage;
mod virtual_nodes;

pub use devices::Device;
pub use finder::{Changes, Finder, ProcUnreadable, examine};
pub use homes::{HomeSource, Homes, home_of};
pub(crate) use homes::{name_nodes, nodes_of};
pub use limits::{Limits, VmCgroup};
pub use mappings::Mapping;
pub use memory::{Memory, MemoryByNode, MemorySource, TRUSTED_SHARE};
pub use monitor::Monitor;
pub(crate) use process::{read_stat, read_user};
pub(crate) use threads::told_by_kvm;
pub use threads::{Thread, ThreadKind};
pub use times::{OpenTimes, ThreadTimes};
pub(crate) use usage::node_of;
pub use usage::{ThreadUsage, Usage, VmUsage};
pub use virtual_nodes::{VCPUS_MAX, VirtualNode};

use crate::tasks;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Identifies a VM: another process that has the number later has another start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The number of its process.
    pub pid: u32,
    /// When the process was started, in ticks of 10 ms since the machine booted.
    pub start_ticks: u64,
}

/// The manager that started a VM and knows it by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "manager", rename_all = "lowercase")]
pub enum Manager {
    /// No manager: started by hand, by a script, or by Firecracker's jailer.
    #[serde(rename = "none")]
    None,
    /// libvirt, and tools that build on it, such as OpenStack and KubeVirt.
    Libvirt,
    /// Proxmox VE, which knows VMs by number as well.
    Proxmox {
        /// The number.
        id: u32,
    },
    /// LXD, in which a name is unique in its project.
    Lxd {
        /// The project.
        project: String,
    },
    /// Incus, in which a name is unique in its project.
    Incus {
        /// The project.
        project: String,
    },
}

impl fmt::Display for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Libvirt => "libvirt",
            Self::Proxmox { .. } => "proxmox",
            Self::Lxd { .. } => "lxd",
            Self::Incus { .. } => "incus",
        })
    }
}

/// The fixed properties of a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Its process.
    pub identity: Identity,
    /// The program that runs it.
    pub monitor: Monitor,
    /// The manager that started it.
    pub manager: Manager,
    /// Its name, as the manager shows it, safe to display. A VM without a name is called after its disk or
    /// socket, or after its program and process.
    pub name: String,
    /// Its user, for which the kernel vouches.
    pub user: u32,
    /// Its UUID from the command line, safe to display; libvirt and Proxmox give each VM one.
    pub uuid: Option<String>,
    /// The memory that it was given at its start, bytes: the size in the command line or its file, or else
    /// the process's largest mapping, which may be less with several nodes in the guest; at most what its
    /// cgroup allows and the machine has. `None` if neither can be read.
    pub memory_bytes: Option<u64>,
    /// Devices of the host that were passed through to it at its start.
    pub devices: Vec<Device>,
    /// Its virtual NUMA nodes that have vCPUs, in the order of their numbers; empty if its guest sees none.
    pub virtual_nodes: Vec<VirtualNode>,
    root: Arc<Path>,
    /// The process's directory in `/proc`.
    directory: PathBuf,
    /// Threads of the kernel that work for it, in older kernels.
    helpers: Vec<u32>,
}

impl Vm {
    /// Whether its process still exists.
    pub fn is_alive(&self) -> bool {
        // The line of the first thread alone is cheaper than that of the process, for which the kernel adds
        // up all threads.
        let first = self.directory.join(format!("task/{}", self.identity.pid));
        process::read_stat(&first)
            .is_some_and(|stat| stat.start_ticks == self.identity.start_ticks && !stat.has_ended())
    }

    /// CPU time of its process since its start, ns: all threads, including those that have ended; `None` if
    /// it is gone.
    pub fn read_cpu_ns(&self) -> Option<u64> {
        let stat = process::read_stat(&self.directory)?;
        (stat.start_ticks == self.identity.start_ticks && !stat.has_ended()).then_some(stat.run_ns)
    }

    /// The path of the cgroup of one of its threads in the unified hierarchy; `None` if it is gone, or the
    /// kernel does not say. Threads of a process may be in different cgroups.
    pub(crate) fn read_unified_cgroup(&self, thread: &Thread) -> Option<PathBuf> {
        let directory = self.root.join(format!("proc/{}/task/{}", thread.process, thread.tid));
        crate::cgroups::unified_cgroup(&directory)
    }

    /// Its threads, in ascending order of their numbers; empty if it is gone.
    pub fn read_threads(&self) -> Vec<Thread> {
        match self.is_alive() {
            true => threads::read(&self.root, self.identity.pid, &self.helpers),
            false => Vec::new(),
        }
    }

    /// Reads run and wait times of threads into `times`: one entry per thread in their order, `None` for a
    /// thread that is gone. Allocates nothing per thread.
    pub fn read_times(&self, threads: &[Thread], times: &mut Vec<Option<ThreadTimes>>) {
        times::read(&self.root, threads, times);
    }

    /// Opens the files that [`Vm::read_times`] reads, for callers that read them every second or more often.
    ///
    /// # Errors
    /// If too many files are open, or the kernel has no such files: its `CONFIG_SCHED_INFO` is off.
    pub fn open_times(&self, threads: &[Thread]) -> io::Result<OpenTimes> {
        OpenTimes::open(&self.root, threads)
    }

    /// The CPU on which a thread runs or ran last.
    pub fn read_cpu(&self, thread: &Thread) -> Option<u32> {
        times::read_cpu(&self.root, thread)
    }

    /// How often a thread has changed its CPU; `None` if it is gone, or the kernel does not count.
    pub fn read_migrations(&self, thread: &Thread) -> Option<u64> {
        times::read_migrations(&self.root, thread)
    }

    /// Whether its monitor gives its vCPUs core scheduling cookies, according to the command line.
    pub fn asks_for_cookies(&self) -> bool {
        let arguments = || process::read_arguments(&self.directory).unwrap_or_default();
        self.monitor == Monitor::CloudHypervisor && cloud_hypervisor::asks_for_cookies(&arguments())
    }

    /// The CPUs that a thread may use, in ascending order; `None` if it is gone.
    pub fn read_allowed(&self, thread: &Thread) -> Option<Vec<u32>> {
        Some(tasks::thread(&self.root, thread.process, thread.tid)?.allowed)
    }

    /// The virtual node of a vCPU, as an index into [`Vm::virtual_nodes`]; `None` if unknown.
    pub fn virtual_node_of(&self, vcpu: u32) -> Option<usize> {
        self.virtual_nodes.iter().position(|node| node.vcpus.binary_search(&vcpu).is_ok())
    }

    /// Its limits; `online` are the CPUs of the machine, in ascending order.
    pub fn read_limits(&self, threads: &[Thread], online: &[u32]) -> Limits {
        limits::read(self, threads, online)
    }

    /// The mappings that have pages outside these nodes, and whose pages can move; `None` if they cannot be
    /// read. Takes as long as reading page tables.
    pub fn read_far_mappings(&self, home: &[u32]) -> Option<Vec<Mapping>> {
        mappings::read(self, home)
    }

    /// Its memory, and the nodes that hold it. May take seconds for a VM of hundreds of GiB without huge
    /// pages that shares its cgroup.
    pub fn read_memory(&self, limits: &Limits) -> Memory {
        memory::read(self, limits.cgroup.as_ref())
    }
}
