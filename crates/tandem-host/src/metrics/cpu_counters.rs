//! Busy and idle times of the CPUs of each node and last-level cache, as counters that never decrease.

use crate::cpu_time::CpuTimes;
use std::collections::BTreeMap;
use tandem_machine::Machine;

/// CPUs of one node that share a last-level cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuGroup {
    /// The node's number in the operating system.
    pub node: u32,
    /// Index of the cache in the machine; `None` if the CPUs report none.
    pub llc: Option<usize>,
}

/// The times of a place's CPUs since the counters began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuGroupTimes {
    /// The number of CPUs.
    pub cpus: u64,
    /// Time in which they were busy, ns.
    pub busy_ns: u64,
    /// Time in which they idled, ns.
    pub idle_ns: u64,
    /// Time in which the hypervisor below ran something else, ns.
    pub steal_ns: u64,
    /// The part of the busy time in which they ran guests, ns.
    pub guest_ns: u64,
}

/// Adds up the times of CPUs between readings. The kernel's own counters may decrease a little, and those of
/// a CPU that goes offline disappear.
#[derive(Debug)]
pub struct CpuCounters {
    places: BTreeMap<u32, CpuGroup>,
    last: BTreeMap<u32, CpuTimes>,
    sums: BTreeMap<CpuGroup, CpuGroupTimes>,
}

impl CpuCounters {
    /// Begins to count at the reading `times`.
    pub fn start(machine: &Machine, times: &[CpuTimes]) -> Self {
        let mut sums: BTreeMap<CpuGroup, CpuGroupTimes> = BTreeMap::new();
        let mut places = BTreeMap::new();
        for cpu in machine.cpus() {
            let node = machine.nodes()[cpu.node.index()].os_index;
            let place = CpuGroup { node, llc: cpu.llc.map(|llc| llc.index()) };
            sums.entry(place).or_default().cpus += 1;
            places.insert(cpu.os_index, place);
        }
        Self { places, last: times.iter().map(|times| (times.cpu, *times)).collect(), sums }
    }

    /// Adds another reading.
    pub fn count(&mut self, times: &[CpuTimes]) {
        for now in times {
            let last = self.last.insert(now.cpu, *now).unwrap_or(*now);
            let Some(sum) = self.places.get(&now.cpu).and_then(|place| self.sums.get_mut(place)) else {
                continue;
            };
            sum.busy_ns += now.busy_ns.saturating_sub(last.busy_ns);
            sum.idle_ns += now.idle_ns.saturating_sub(last.idle_ns);
            sum.steal_ns += now.steal_ns.saturating_sub(last.steal_ns);
            sum.guest_ns += now.guest_ns.saturating_sub(last.guest_ns);
        }
    }

    /// The places, with their times.
    pub fn places(&self) -> impl Iterator<Item = (CpuGroup, CpuGroupTimes)> {
        self.sums.iter().map(|(place, times)| (*place, *times))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(cpu: u32, busy_ns: u64, idle_ns: u64) -> CpuTimes {
        CpuTimes { cpu, busy_ns, idle_ns, steal_ns: 0, guest_ns: busy_ns / 2 }
    }

    #[test]
    fn sums_are_those_of_a_place_and_never_fall() {
        let folder = tempfile::tempdir().unwrap();
        let tree = crate::vms::testing::Tree::new(folder.path());
        tree.machine(2, 2);
        let machine = crate::topology::read_sysfs(tree.root()).unwrap();
        let mut counters = CpuCounters::start(&machine, &[0, 1, 2, 3].map(|cpu| times(cpu, 1000, 1000)));
        counters.count(&[
            times(0, 1010, 1005),
            times(1, 1002, 1000),
            times(2, 1000, 990),
            times(3, 1001, 1000),
        ]);
        // One went offline, another came back with slightly smaller counters.
        counters.count(&[times(0, 1010, 1000), times(2, 1000, 992), times(3, 1001, 1001)]);
        let by_node = |node| {
            let of_node = counters.places().filter(|(place, _)| place.node == node);
            of_node.fold((0, 0, 0, 0), |sum, (_, times)| {
                (sum.0 + times.cpus, sum.1 + times.busy_ns, sum.2 + times.idle_ns, sum.3 + times.guest_ns)
            })
        };
        assert_eq!((by_node(0), by_node(1)), ((2, 12, 5, 6), (2, 1, 3, 0)));
    }
}
