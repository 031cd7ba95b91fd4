//! What marking, faulting and moving take of the host's time.

use super::super::memory_state::PageSize;
use crate::scenario::{Scenario, Workload};

/// What NUMA balancing of a workload's memory costs, ns; nothing with the cost model off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Price {
    /// Marking a page of either size.
    pub mark_ns: f64,
    /// A fault on a page of either size.
    pub fault_ns: f64,
    /// In addition for a page that moves: of each size.
    pub move_ns: [f64; 2],
}

impl Price {
    /// A vCPU that touches a marked page leaves its guest first, as KVM has dropped the page from its own tables.
    pub fn new(scenario: &Scenario, workload: &Workload) -> Self {
        let Some(cost) = scenario.costs.numa_fault else { return Self::default() };
        let exit_ns = match workload.vm() {
            Some(_) => scenario.costs.vm_exit.map_or(0, |exit| exit.round_trip_ns),
            None => 0,
        };
        let hardware = scenario.machine.hardware();
        Self {
            mark_ns: cost.mark_ns as f64,
            fault_ns: (cost.fault_ns + exit_ns) as f64,
            move_ns: PageSize::ALL.map(|size| cost.move_ns(hardware, size.bytes()) as f64),
        }
    }

    /// The most that a fault on a page of that size takes.
    pub fn most_ns(&self, size: PageSize, is_local: bool) -> f64 {
        self.fault_ns + if is_local { 0.0 } else { self.move_ns[size as usize] }
    }
}
