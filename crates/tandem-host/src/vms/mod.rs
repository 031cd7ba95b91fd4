//! The virtual machines of a host, found by looking alone.
//!
//! Problem: whoever runs a scheduler on a host has to know its VMs, whatever has started them, and must not need the
//! manager's permission, its socket or its library for it.
//!
//! Approach: a VM is a process that has one of KVM's, by the kernel's word, and at least one thread that is a vCPU. A [`Monitor`] that runs
//! without KVM counts if the caller says so ([`Finder::with_emulated`]), and where that cannot be seen, as by users other than root. All that
//! such a process says of itself is [`Untrusted`](crate::untrusted::Untrusted). What is fixed when it starts is read once and kept in a [`Vm`]: its name as its [`Manager`] shows it, the memory that it was given, its devices.
//! What changes has a call for each kind, so that callers pay for what they need: [`Vm::read_threads`],
//! [`Vm::read_times`], [`Vm::read_cpu`], [`Vm::read_limits`], [`Vm::read_memory`]. [`Finder`] remembers which processes
//! are none.
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
//! Everything takes a root: `/` for this machine, or a copy of its `/proc` and `/sys`. Nothing is written, and nothing
//! needs root. What may not be read is `None`.
//!
//! Limits: monitors inside of containers are seen with the numbers that they have outside, but their configuration files
//! are not, where those lie in the container. A guest's own VMs are not seen. A process whose `/proc` is hidden from the
//! caller (`hidepid`) is not there.

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

/// What makes a VM the same one: a number that another process has later has another start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// The number of its process.
    pub pid: u32,
    /// When the process was started, in ticks of 10 ms since the machine was.
    pub start_ticks: u64,
}

/// Who started a VM and knows it by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "manager", rename_all = "lowercase")]
pub enum Manager {
    /// Nobody: by hand, by a script, or by Firecracker's jailer.
    #[serde(rename = "none")]
    None,
    /// libvirt, and what is built on it, such as OpenStack and KubeVirt.
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

/// A virtual machine, as far as it does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vm {
    /// Its process.
    pub identity: Identity,
    /// The program that runs it.
    pub monitor: Monitor,
    /// Who started it.
    pub manager: Manager,
    /// Its name, as the manager shows it, and as it may be shown. One that nobody has named is called after its disk or socket, or
    /// after its program and process.
    pub name: String,
    /// Its user, by the kernel's word.
    pub user: u32,
    /// Its UUID, as the command line says, and as it may be shown; libvirt and Proxmox give each VM one.
    pub uuid: Option<String>,
    /// The memory that it was given at its start: what the command line or its file says, or else the process's largest
    /// mapping, which may be less with several nodes in the guest; no more than its cgroup allows, or the machine has. `None` if neither can
    /// be read.
    pub memory_bytes: Option<u64>,
    /// Devices of the host that it had to itself at its start.
    pub devices: Vec<Device>,
    /// Its virtual NUMA nodes that have vCPUs, in the order of their numbers; none if its guest was told of none.
    pub virtual_nodes: Vec<VirtualNode>,
    root: Arc<Path>,
    /// The process's directory in `/proc`.
    directory: PathBuf,
    /// Threads of the kernel that work for it, in older kernels.
    helpers: Vec<u32>,
}

impl Vm {
    /// Whether its process is still there.
    pub fn is_alive(&self) -> bool {
        // The line of the first thread alone is cheaper than that of the process, for which the kernel sums up all.
        let first = self.directory.join(format!("task/{}", self.identity.pid));
        process::read_stat(&first)
            .is_some_and(|stat| stat.start_ticks == self.identity.start_ticks && !stat.has_ended())
    }

    /// CPU time of its process since its start, ns: all threads, and those that have ended; `None` if it is gone.
    pub fn read_cpu_ns(&self) -> Option<u64> {
        let stat = process::read_stat(&self.directory)?;
        (stat.start_ticks == self.identity.start_ticks && !stat.has_ended()).then_some(stat.run_ns)
    }

    /// The path of the cgroup of one of its threads in the unified hierarchy; `None` if it is gone, or the kernel does not tell. Threads
    /// of a process may be in different ones.
    pub(crate) fn read_unified_cgroup(&self, thread: &Thread) -> Option<PathBuf> {
        let directory = self.root.join(format!("proc/{}/task/{}", thread.process, thread.tid));
        crate::cgroups::unified_cgroup(&directory)
    }

    /// Its threads, in ascending order of their numbers; none if it is gone.
    pub fn read_threads(&self) -> Vec<Thread> {
        match self.is_alive() {
            true => threads::read(&self.root, self.identity.pid, &self.helpers),
            false => Vec::new(),
        }
    }

    /// Reads how long threads have run and waited, into `times`: one for each thread in their order, `None` for a thread
    /// that is gone. Allocates nothing for each thread.
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

    /// The CPU on which a thread is, or was when it ran last.
    pub fn read_cpu(&self, thread: &Thread) -> Option<u32> {
        times::read_cpu(&self.root, thread)
    }

    /// How often a thread has changed its CPU; `None` if it is gone, or the kernel does not count.
    pub fn read_migrations(&self, thread: &Thread) -> Option<u64> {
        times::read_migrations(&self.root, thread)
    }

    /// Whether its monitor, by its command line, gives its vCPUs cookies of core scheduling.
    pub fn asks_for_cookies(&self) -> bool {
        let arguments = || process::read_arguments(&self.directory).unwrap_or_default();
        self.monitor == Monitor::CloudHypervisor && cloud_hypervisor::asks_for_cookies(&arguments())
    }

    /// The CPUs that a thread may use, in ascending order; `None` if it is gone.
    pub fn read_allowed(&self, thread: &Thread) -> Option<Vec<u32>> {
        Some(tasks::thread(&self.root, thread.process, thread.tid)?.allowed)
    }

    /// The virtual node of a vCPU, as its place in [`Vm::virtual_nodes`]; `None` if that is not known.
    pub fn virtual_node_of(&self, vcpu: u32) -> Option<usize> {
        self.virtual_nodes.iter().position(|node| node.vcpus.binary_search(&vcpu).is_ok())
    }

    /// What it may use; `online` are the CPUs of the machine, in ascending order.
    pub fn read_limits(&self, threads: &[Thread], online: &[u32]) -> Limits {
        limits::read(self, threads, online)
    }

    /// The mappings that have pages outside these nodes, and whose pages may be moved; `None` if they cannot be read. Takes as long as
    /// reading page tables does.
    pub fn read_far_mappings(&self, home: &[u32]) -> Option<Vec<Mapping>> {
        mappings::read(self, home)
    }

    /// Its memory, and on which nodes that is. May take seconds for a VM of hundreds of GiB without huge pages whose
    /// cgroup is not its own.
    pub fn read_memory(&self, limits: &Limits) -> Memory {
        memory::read(self, limits.cgroup.as_ref())
    }
}
