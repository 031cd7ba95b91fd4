//! A machine: packages, NUMA nodes, last-level caches, cores, CPUs, memory.
//!
//! Words are hwloc's. A [`Machine`] holds only what is online and usable, in flat arrays that typed indices
//! point into; the operating system's own numbers are kept beside them for display. A machine is made by
//! [`MachineBuilder`] alone, which checks it: a `Machine` that exists is consistent.

pub mod cost;

use crate::cpumask::CpuMask;
use crate::ids::{CoreId, LlcId, NodeId, PackageId};

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
    /// Speed in thousandths of the machine's fastest CPU: 1000, or less on the small cores of a hybrid machine.
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

/// A NUMA node. It may have no CPUs (memory expanders) or no memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The operating system's number.
    pub os_index: u32,
    /// Its CPUs.
    pub cpus: CpuMask,
    /// Its memory in bytes; 0 for none.
    pub memory_bytes: u64,
    /// What its memory controllers deliver, in bytes a second.
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
    hardware: Hardware,
}
