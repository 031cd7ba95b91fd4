//! The memory of a workload, as the host's kernel knows it.

use tandem_machine::ids::NodeId;

/// Who says where the memory of a workload lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// Nobody: it lies where tasks touched it first, and NUMA balancing may move it.
    #[default]
    FirstTouch,
    /// A policy of its own, set with mbind(2), set_mempolicy(2) or numactl(8). NUMA balancing leaves such memory
    /// alone.
    Own,
    /// `cpuset.mems` of its cgroup: it lies on these nodes, and moves to no other.
    Cpuset(Vec<NodeId>),
}
