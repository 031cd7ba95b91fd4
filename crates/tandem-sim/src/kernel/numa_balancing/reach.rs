//! Which memory is scanned, and where it may move (`task_numa_work()`).
//!
//! The kernel passes over areas with a policy of their own, or of the task, unless that policy has
//! `MPOL_F_MOF` (`vma_policy_mof()`, `mm/mempolicy.c` of 4.2 to 7.1), as its default one has. A cpuset is no
//! policy: such memory is scanned, and a page that should move to a node outside finds no room there. 6.18 does
//! not scan for a task whose cpuset has a single node.
//!
//! Limits: policies that ask for balancing (`MPOL_F_NUMA_BALANCING`, `MPOL_MF_LAZY`), and shared memory, which
//! has no policy and is not scanned either.

use crate::policy::linux::LinuxEra;
use crate::scenario::{MemoryPolicy, Pages, Workload};
use tandem_machine::ids::NodeId;

/// The nodes that the memory of a workload may move to.
#[derive(Clone, Debug)]
pub(super) struct Reach(Box<[bool]>);

impl Reach {
    /// Those that NUMA balancing of that release may move it to, of so many; `None` if it does not scan it.
    pub fn new(workload: &Workload, era: LinuxEra, nodes: usize) -> Option<Self> {
        // A thread of the kernel has no memory of its own (`mm` is null); `is_vm_hugetlb_page()`.
        if workload.is_kernel() || workload.pages == Pages::Hugetlb {
            return None;
        }
        match &workload.memory_policy {
            MemoryPolicy::FirstTouch => Some(Self(vec![true; nodes].into())),
            MemoryPolicy::Own => None,
            MemoryPolicy::Cpuset(allowed) if allowed.len() == 1 && era >= LinuxEra::V6_18 => None,
            MemoryPolicy::Cpuset(allowed) => {
                Some(Self((0..nodes).map(|node| allowed.contains(&node.into())).collect()))
            }
        }
    }

    pub fn contains(&self, node: NodeId) -> bool {
        self.0[node.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{MemoryPolicy, Workload, WorkloadKind};

    /// The nodes, of three, that memory of that policy may move to; `None` if it is not scanned.
    fn reach(memory_policy: MemoryPolicy, era: LinuxEra) -> Option<Vec<bool>> {
        let plain = Workload::new("vm", WorkloadKind::vm(Vec::new()), vec![1.0, 0.0, 0.0]);
        Reach::new(&Workload { memory_policy, ..plain }, era, 3).map(|reach| reach.0.into())
    }

    const ERAS: [LinuxEra; 5] =
        [LinuxEra::V4_2, LinuxEra::V5_2, LinuxEra::V6_12, LinuxEra::V6_18, LinuxEra::V7_3];

    #[test]
    fn vma_policy_mof_spares_memory_with_a_policy_of_its_own() {
        for era in ERAS {
            assert_eq!(reach(MemoryPolicy::FirstTouch, era), Some(vec![true; 3]));
            assert_eq!(reach(MemoryPolicy::Own, era), None);
        }
    }

    #[test]
    fn task_numa_work_scans_within_a_cpuset() {
        for era in ERAS {
            let two = MemoryPolicy::Cpuset(vec![NodeId(0), NodeId(2)]);
            assert_eq!(reach(two, era), Some(vec![true, false, true]));
            let one = reach(MemoryPolicy::Cpuset(vec![NodeId(1)]), era);
            match era >= LinuxEra::V6_18 {
                true => assert_eq!(one, None, "there is nowhere to go"),
                false => assert_eq!(one, Some(vec![false, true, false])),
            }
        }
    }

    #[test]
    fn is_vm_hugetlb_page_spares_reserved_pages() {
        let plain = Workload::new("vm", WorkloadKind::vm(Vec::new()), vec![1.0]);
        let reach = |pages| Reach::new(&Workload { pages, ..plain.clone() }, LinuxEra::V6_12, 1);
        assert!(reach(Pages::Hugetlb).is_none());
        assert!(reach(Pages::Transparent(100)).is_some());
    }

    #[test]
    fn task_tick_numa_passes_over_kernel_threads() {
        let threads = Workload::new("kworker", WorkloadKind::KernelThreads(Vec::new()), vec![1.0]);
        assert!(Reach::new(&threads, LinuxEra::V6_12, 1).is_none());
    }
}
