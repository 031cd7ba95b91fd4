//! The machine that schedulers share out, and where virtual machines live on it.
//!
//! Problem: the agent on a host, the simulator, and the tools have to agree on what a machine is, and on
//! which NUMA nodes a VM belongs. A service that runs as root needs that without the simulator.
//!
//! Approach: a [`Machine`] contains only what is online and usable, in flat arrays with [typed indices](ids);
//! it keeps the operating system's own numbers for display. Only [`MachineBuilder`] creates one, and checks
//! it: every `Machine` is consistent. [`placement`] finds the nodes of a new VM by Xen's rule; [`homes`]
//! chooses and moves homes while VMs come and go and their load changes.
//!
//! Limits: nothing here reads a file or asks a kernel. A machine's CPUs do not change: after hotplug there is
//! another `Machine`. Terms are hwloc's.

mod builder;
mod cpulist;
pub mod cpumask;
mod error;
pub mod homes;
pub mod ids;
mod named;
pub mod placement;
mod presets;
mod reported;
mod shape;

pub use builder::{CpuSpec, LOCAL_DISTANCE, MAX_CPUS, MAX_NODES, MachineBuilder, NodeSpec, REMOTE_DISTANCE};
pub use cpulist::{CpuListError, MAX_NUMBER, format_cpulist, parse_cpulist};
pub use error::MachineError;
pub use named::machine_named;
pub use presets::{preset, preset_names};
pub use shape::{Shape, ShapeError};

use crate::cpumask::CpuMask;
use crate::ids::{CoreId, CpuId, LlcId, NodeId, PackageId};
use std::borrow::Cow;

/// Bytes of a cache line: x86 since the Pentium 4.
pub const CACHE_LINE_BYTES: u64 = 64;

/// A logical CPU (an SMT thread, or a core without SMT).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The operating system's number.
    pub os_index: u32,
    /// Its core.
    pub core: CoreId,
    /// Its last-level cache, if one is reported.
    pub llc: Option<LlcId>,
    /// Its NUMA node.
    pub node: NodeId,
    /// Its package.
    pub package: PackageId,
    /// Speed in thousandths of the machine's fastest CPU: 1000, or less on the small cores of a hybrid
    /// machine.
    pub capacity_permille: u32,
}

/// A core and its SMT threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Core {
    /// Its CPUs.
    pub cpus: CpuMask,
}

/// A last-level cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Llc {
    /// Size in bytes.
    pub size_bytes: u64,
    /// The CPUs that share it.
    pub cpus: CpuMask,
}

impl Llc {
    /// Size where it is not reported: that of a Xeon Platinum 8160 (Intel's product specification).
    pub const GENERIC_SIZE_BYTES: u64 = 33 << 20;
}

/// A NUMA node. It may have no CPUs (memory expanders) or no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The operating system's number.
    pub os_index: u32,
    /// Its CPUs.
    pub cpus: CpuMask,
    /// Its memory in bytes; 0 for none.
    pub memory_bytes: u64,
    /// The sustained bandwidth of its memory, in bytes per second; 0 without memory.
    pub bandwidth_bytes_per_s: u64,
}

/// A package (socket).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The operating system's number.
    pub os_index: u32,
    /// Its CPUs.
    pub cpus: CpuMask,
}

/// Constants of a machine's cores and memory that the cost models need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// Clock in MHz.
    pub clock_mhz: u32,
    /// Private cache of a core (L2) in bytes.
    pub l2_bytes: u64,
    /// Load from the last-level cache, ns.
    pub llc_latency_ns: u32,
    /// Load from memory of the own node (distance 10), ns.
    pub local_memory_latency_ns: u32,
    /// Load from memory at distance 20, ns.
    pub remote_memory_latency_ns: u32,
}

impl Hardware {
    /// Values for a machine where only the topology is known: a two-socket server of the late 2010s.
    ///
    /// Clock, caches and latency of the last-level cache are those of a Xeon Platinum 8160 (Skylake-SP: 2.1
    /// GHz, 1 MiB of L2, 50 to 70 cycles to the L3; Intel 64 and IA-32 Architectures Optimization Reference
    /// Manual). Memory latencies are what Intel's Memory Latency Checker 3.9 reports for a two-socket server:
    /// 89.3 ns to the own node, 138.9 ns to the other.
    pub const GENERIC: Self = Self {
        clock_mhz: 2_100,
        l2_bytes: 1 << 20,
        llc_latency_ns: 29,
        local_memory_latency_ns: 89,
        remote_memory_latency_ns: 139,
    };

    /// Load from memory of a node at this distance, ns.
    fn memory_latency_ns(&self, distance: u32) -> f64 {
        let local = f64::from(self.local_memory_latency_ns);
        let hop = f64::from(self.remote_memory_latency_ns) - local;
        local + hop * (f64::from(distance) - f64::from(LOCAL_DISTANCE)) / 10.0
    }
}

/// A machine, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    name: String,
    packages: Vec<Package>,
    nodes: Vec<Node>,
    llcs: Vec<Llc>,
    cores: Vec<Core>,
    cpus: Vec<Cpu>,
    /// Row by row, `nodes.len()` squared.
    distances: Vec<u32>,
    /// Row by row: the nodes from near to far, seen from each node.
    nodes_by_distance: Vec<NodeId>,
    /// Row by row: [`Machine::memory_latency_ns`], rounded.
    memory_latencies_ns: Vec<u64>,
    all_cpus: CpuMask,
    isolated: CpuMask,
    housekeeping: CpuMask,
    tickless: CpuMask,
    hardware: Hardware,
}

impl Machine {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its packages, by [`PackageId`].
    pub fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// Its NUMA nodes, by [`NodeId`]; at least one.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Its last-level caches, by [`LlcId`]; empty if none is reported.
    pub fn llcs(&self) -> &[Llc] {
        &self.llcs
    }

    /// The same machine, in which the CPUs of a node that report no last-level cache share one: for those that want each CPU
    /// to have a cache.
    pub fn with_caches(&self) -> Cow<'_, Self> {
        if self.cpus.iter().all(|cpu| cpu.llc.is_some()) {
            return Cow::Borrowed(self);
        }
        let mut machine = self.clone();
        for node in &self.nodes {
            let without = |cpu: &CpuId| self.cpu(*cpu).llc.is_none();
            let cpus = CpuMask::from_cpus(self.cpu_count(), node.cpus.iter().filter(without));
            if cpus.is_empty() {
                continue;
            }
            let llc = LlcId::from(machine.llcs.len());
            cpus.iter().for_each(|cpu| machine.cpus[cpu.index()].llc = Some(llc));
            machine.llcs.push(Llc { size_bytes: Llc::GENERIC_SIZE_BYTES, cpus });
        }
        Cow::Owned(machine)
    }

    /// Its cores, by [`CoreId`].
    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    /// Its CPUs, by [`CpuId`], in the order of the operating system's numbers; at least one.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// One CPU.
    #[inline]
    pub fn cpu(&self, cpu: CpuId) -> &Cpu {
        &self.cpus[cpu.index()]
    }

    /// Number of CPUs: the capacity of every [`CpuMask`] of this machine.
    #[inline]
    pub fn cpu_count(&self) -> usize {
        self.cpus.len()
    }

    /// Number of NUMA nodes.
    #[inline]
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Every CPU.
    #[inline]
    pub fn all_cpus(&self) -> &CpuMask {
        &self.all_cpus
    }

    /// CPUs that Linux reserves for tasks which are bound to them (`isolcpus=`): it runs other tasks
    /// elsewhere, and balances none onto them.
    #[inline]
    pub fn isolated(&self) -> &CpuMask {
        &self.isolated
    }

    /// CPUs whose tick Linux stops while one task runs there (`nohz_full=`), if the scheduler allows it.
    #[inline]
    pub fn tickless(&self) -> &CpuMask {
        &self.tickless
    }

    /// The CPUs of a task without an affinity: all that are not isolated. Linux keeps one; here they are all
    /// CPUs, if all are isolated.
    #[inline]
    pub fn housekeeping_cpus(&self) -> &CpuMask {
        &self.housekeeping
    }

    /// The CPU with the operating system's number, if the machine has it.
    pub fn find_cpu(&self, os_index: u32) -> Option<CpuId> {
        self.cpus.binary_search_by_key(&os_index, |cpu| cpu.os_index).ok().map(CpuId::from)
    }

    /// The CPUs of this CPU's core, itself included.
    #[inline]
    pub fn siblings(&self, cpu: CpuId) -> &CpuMask {
        &self.cores[self.cpu(cpu).core.index()].cpus
    }

    /// Whether some core has more than one thread.
    pub fn has_smt(&self) -> bool {
        self.cores.iter().any(|core| core.cpus.count() > 1)
    }

    /// The CPUs that share this CPU's last-level cache, itself included; those of its core if no cache is
    /// reported.
    #[inline]
    pub fn llc_cpus(&self, cpu: CpuId) -> &CpuMask {
        match self.cpu(cpu).llc {
            Some(llc) => &self.llcs[llc.index()].cpus,
            None => self.siblings(cpu),
        }
    }

    /// The CPUs of a node.
    #[inline]
    pub fn node_cpus(&self, node: NodeId) -> &CpuMask {
        &self.nodes[node.index()].cpus
    }

    /// The CPUs of a package.
    #[inline]
    pub fn package_cpus(&self, package: PackageId) -> &CpuMask {
        &self.packages[package.index()].cpus
    }

    /// How far memory of node `to` is from the CPUs of node `from`, in the units of ACPI's table of distances
    /// (SLIT): 10 is the own node, 20 costs twice that.
    #[inline]
    pub fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        self.distances[from.index() * self.nodes.len() + to.index()]
    }

    /// Load from memory of node `to` by a CPU of node `from`, ns: linear in the distance, without contention.
    pub fn memory_latency_ns(&self, from: NodeId, to: NodeId) -> f64 {
        self.hardware.memory_latency_ns(self.distance(from, to))
    }

    /// How long a cache line that CPU `from` has written takes to CPU `to`, ns, rounded: a load from the
    /// last-level cache that they share, or one from memory as far away as the other's cache is.
    pub fn line_transfer_ns(&self, from: CpuId, to: CpuId) -> u64 {
        if self.llc_cpus(from).contains(to) {
            return u64::from(self.hardware.llc_latency_ns);
        }
        self.memory_latencies_ns[self.cpu(from).node.index() * self.nodes.len() + self.cpu(to).node.index()]
    }

    /// Every node from near to far, seen from `node`: itself first, equally far ones by number.
    #[inline]
    pub fn nodes_by_distance(&self, node: NodeId) -> &[NodeId] {
        let count = self.nodes.len();
        &self.nodes_by_distance[node.index() * count..][..count]
    }

    /// The operating system's numbers of these CPUs, as a list: `0-3,8`.
    pub fn os_list(&self, cpus: &CpuMask) -> String {
        format_cpulist(cpus.iter().map(|cpu| self.cpu(cpu).os_index))
    }

    /// Constants of its cores and memory.
    pub fn hardware(&self) -> &Hardware {
        &self.hardware
    }
}
