//! The memory of a workload, as the host's kernel knows it.

use tandem_machine::ids::NodeId;

/// The pages that the memory of a workload is in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// All of 4 KiB.
    #[default]
    Small,
    /// So many percent of it in transparent huge pages of 2 MiB, the rest in pages of 4 KiB.
    Transparent(u8),
    /// Reserved huge pages (hugetlbfs), which stay where they are.
    Hugetlb,
}

impl Pages {
    /// Share of the memory in transparent huge pages.
    pub fn transparent_share(self) -> f64 {
        match self {
            Self::Transparent(pct) => f64::from(pct) / 100.0,
            Self::Small | Self::Hugetlb => 0.0,
        }
    }
}

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
