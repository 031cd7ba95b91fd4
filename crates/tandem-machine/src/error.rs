//! Errors in the description of a machine.

use super::builder::{LOCAL_DISTANCE, MAX_CPUS, MAX_DISTANCE, MAX_NODES};
use thiserror::Error;

/// Why a description is not a machine. Numbers are the operating system's.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MachineError {
    /// There is no CPU.
    #[error("the machine has no CPU; at least one is needed")]
    NoCpu,
    /// There is no NUMA node.
    #[error("the machine has no NUMA node; at least one is needed")]
    NoNode,
    /// More CPUs than Linux supports on any architecture.
    #[error("the machine has {0} CPUs; at most {MAX_CPUS} are supported")]
    TooManyCpus(usize),
    /// More nodes than Linux supports on any architecture.
    #[error("the machine has {0} NUMA nodes; at most {MAX_NODES} are supported")]
    TooManyNodes(usize),
    /// Two CPUs have the same number.
    #[error("CPU {0} is described twice")]
    DuplicateCpu(u32),
    /// Two nodes have the same number.
    #[error("NUMA node {0} is described twice")]
    DuplicateNode(u32),
    /// Two last-level caches have the same number.
    #[error("last-level cache {0} is described twice")]
    DuplicateLlc(u32),
    /// A CPU is on a node that does not exist.
    #[error("CPU {cpu} is on NUMA node {node}, which is not described")]
    UnknownNode {
        /// The CPU.
        cpu: u32,
        /// The missing node.
        node: u32,
    },
    /// A CPU uses a cache that does not exist.
    #[error("CPU {cpu} uses last-level cache {llc}, which is not described")]
    UnknownLlc {
        /// The CPU.
        cpu: u32,
        /// The missing cache.
        llc: u32,
    },
    /// The threads of a core must share everything above it.
    #[error("CPUs {first} and {second} are threads of one core but differ in {what}")]
    SplitCore {
        /// One thread.
        first: u32,
        /// The other.
        second: u32,
        /// What they should share.
        what: &'static str,
    },
    /// A CPU has no speed.
    #[error("CPU {0} has a capacity of 0; it must be positive")]
    NoCapacity(u32),
    /// The matrix is not nodes by nodes.
    #[error("the distances must be {nodes} rows of {nodes} numbers, one for each NUMA node")]
    DistanceShape {
        /// Number of nodes.
        nodes: usize,
    },
    /// ACPI does not allow the distance.
    #[error(
        "the distance from NUMA node {from} to {to} is {distance}; allowed is {LOCAL_DISTANCE} from a node \
         with CPUs to itself, else {LOCAL_DISTANCE} to {MAX_DISTANCE}"
    )]
    BadDistance {
        /// Row.
        from: u32,
        /// Column.
        to: u32,
        /// The distance.
        distance: u32,
    },
    /// Memory has no bandwidth.
    #[error("NUMA node {0} has memory but a bandwidth of 0; it must be positive")]
    NoBandwidth(u32),
    /// A cache has no size.
    #[error("last-level cache {0} has a size of 0; it must be positive")]
    EmptyLlc(u32),
    /// Cores have no private cache.
    #[error("the L2 cache has a size of 0; it must be positive")]
    EmptyL2,
    /// The clock is zero.
    #[error("the clock is 0 MHz; it must be positive")]
    NoClock,
    /// Latencies decrease with distance.
    #[error(
        "latencies must rise with distance: last-level cache {llc_ns} ns, own memory {local_ns} ns, remote \
         memory {remote_ns} ns"
    )]
    LatencyOrder {
        /// Last-level cache.
        llc_ns: u32,
        /// Memory of the own node.
        local_ns: u32,
        /// Memory at distance 20.
        remote_ns: u32,
    },
}
