//! The machine in the form of the scheduler's tables: a place for each CPU, last-level cache and node.
//!
//! An LLC here is a set of CPUs that share a last-level cache *inside one NUMA node*: with sub-NUMA
//! clustering one cache spans nodes, and a queue should not. CPUs without a reported cache form one such
//! group per node. So do CPUs whose last-level cache is private to their core, as on Arm servers without an
//! L3 that the kernel knows: with one queue per core no CPU would share a queue, and the cache would have no
//! other core that could take a task. The group of a node is no larger than that of a package with one cache.
//! Clusters would be too small, and some firmware does not report them.
//!
//! Isolated CPUs are in their group, because tasks that are bound to them need a queue. They do not count in
//! its size, by which the scheduler compares load: no other task can run there.
//!
//! Nodes without CPUs are left out. In guest mode one group has all CPUs, whatever topology the hypervisor
//! reports.

use super::Mode;
use std::collections::BTreeMap;
use tandem_bpf::types::{llc_place, node_place, rodata};
use tandem_machine::Machine;
use tandem_machine::ids::{CpuId, LlcId, NodeId};
use thiserror::Error;

/// The kernel's `NUMA_NO_NODE`: the number of a node that the kernel does not have.
const NO_NODE: i32 = -1;

/// The machine has more of something than the scheduler's tables hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this machine has {found} {what}; the scheduler supports at most {max}")]
pub struct PlacesError {
    what: &'static str,
    found: usize,
    max: usize,
}

/// The topology in the scheduler's numbers: LLCs and nodes count from 0 without gaps, CPUs have the kernel's
/// numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Places {
    /// Indexed by the kernel's number; `None` for CPUs that are offline. The table has an entry for them,
    /// since such a CPU runs tasks of the kernel's own before it counts as online.
    cpus: Vec<Option<CpuPlace>>,
    llcs: Vec<LlcPlace>,
    nodes: Vec<NodePlace>,
    smt: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CpuPlace {
    llc: usize,
    node: usize,
    /// The next thread of its core, in a ring; itself if it has none.
    next_thread: usize,
    /// The next CPU of its LLC that is not isolated, in a ring; itself if there is none.
    next_in_llc: usize,
    isolated: bool,
    /// Whether its tick stops while one task runs.
    tickless: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LlcPlace {
    node: usize,
    /// Isolated CPUs do not count; 0 if all are isolated.
    cpu_count: usize,
    first_cpu: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct NodePlace {
    first_llc: usize,
    llc_count: usize,
    /// The kernel's number.
    id: i32,
    by_distance: Vec<usize>,
}

impl Places {
    /// The places of a host whose CPUs have numbers below `possible_cpus`.
    ///
    /// # Errors
    /// If the machine has more CPUs, LLCs or nodes than the scheduler's tables hold.
    pub fn of_host(machine: &Machine, possible_cpus: usize) -> Result<Self, PlacesError> {
        Self::of_topology(machine, empty_cpus(machine, possible_cpus), |cpu| {
            machine.cpu(cpu).os_index as usize
        })
    }

    /// The places of a guest whose CPUs have numbers below `possible_cpus`: all CPUs in one LLC.
    ///
    /// # Errors
    /// As [`Places::of_host`].
    pub fn of_guest(machine: &Machine, possible_cpus: usize) -> Result<Self, PlacesError> {
        Self::in_one(machine, empty_cpus(machine, possible_cpus), |cpu| machine.cpu(cpu).os_index as usize)
    }

    /// The places of a simulated kernel, which numbers its CPUs without gaps.
    ///
    /// # Errors
    /// As [`Places::of_host`].
    pub fn of_simulated(machine: &Machine, mode: Mode) -> Result<Self, PlacesError> {
        let cpus = vec![None; machine.cpu_count()];
        match mode {
            Mode::Host => Self::of_topology(machine, cpus, CpuId::index),
            Mode::Guest => Self::in_one(machine, cpus, CpuId::index),
        }
    }

    fn of_topology(
        machine: &Machine,
        cpus: Vec<Option<CpuPlace>>,
        number: impl Fn(CpuId) -> usize,
    ) -> Result<Self, PlacesError> {
        let with_cpus: Vec<NodeId> = (0..machine.node_count())
            .map(NodeId::from)
            .filter(|&node| !machine.node_cpus(node).is_empty())
            .collect();
        let number_of = |node: &NodeId| with_cpus.iter().position(|other| other == node);
        let mut places = Self { cpus, llcs: Vec::new(), nodes: Vec::new(), smt: machine.has_smt() };
        for (node, &id) in with_cpus.iter().enumerate() {
            let first_llc = places.llcs.len();
            let mut numbers = BTreeMap::<Option<LlcId>, usize>::new();
            for cpu in machine.node_cpus(id).iter() {
                let llc = *numbers.entry(shared_cache(machine, cpu)).or_insert_with(|| {
                    places.llcs.push(LlcPlace { node, cpu_count: 0, first_cpu: 0 });
                    places.llcs.len() - 1
                });
                let next_thread = number(next_thread(machine, cpu));
                places.cpus[number(cpu)] = Some(CpuPlace {
                    llc,
                    node,
                    next_thread,
                    next_in_llc: 0,
                    isolated: machine.isolated().contains(cpu),
                    tickless: machine.tickless().contains(cpu),
                });
            }
            places.nodes.push(NodePlace {
                first_llc,
                llc_count: places.llcs.len() - first_llc,
                id: i32::try_from(machine.nodes()[id.index()].os_index).unwrap_or(NO_NODE),
                by_distance: machine.nodes_by_distance(id).iter().filter_map(number_of).collect(),
            });
        }
        places.checked()
    }

    fn in_one(
        machine: &Machine,
        mut cpus: Vec<Option<CpuPlace>>,
        number: impl Fn(CpuId) -> usize,
    ) -> Result<Self, PlacesError> {
        for cpu in machine.all_cpus().iter() {
            let next_thread = number(cpu);
            let isolated = machine.isolated().contains(cpu);
            let tickless = machine.tickless().contains(cpu);
            cpus[next_thread] =
                Some(CpuPlace { llc: 0, node: 0, next_thread, next_in_llc: 0, isolated, tickless });
        }
        let llcs = vec![LlcPlace { node: 0, cpu_count: 0, first_cpu: 0 }];
        let nodes = vec![NodePlace { first_llc: 0, llc_count: 1, id: NO_NODE, by_distance: vec![0] }];
        Self { cpus, llcs, nodes, smt: false }.checked()
    }

    /// The number of CPUs that are online.
    pub fn cpu_count(&self) -> usize {
        self.cpus.iter().flatten().count()
    }

    /// The number of groups of CPUs that share a last-level cache inside a node.
    pub fn llc_count(&self) -> usize {
        self.llcs.len()
    }

    /// The number of nodes that have CPUs.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Links the CPUs of each LLC that are not isolated into a ring, in the order of their numbers.
    fn link(&mut self) {
        let mut rings = vec![Vec::new(); self.llcs.len()];
        for (number, cpu) in self.cpus.iter().enumerate() {
            if let Some(cpu) = cpu
                && !cpu.isolated
            {
                rings[cpu.llc].push(number);
            }
        }
        for (llc, ring) in self.llcs.iter_mut().zip(&rings) {
            llc.first_cpu = ring.first().copied().unwrap_or(0);
            llc.cpu_count = ring.len();
        }
        for (number, cpu) in self.cpus.iter_mut().enumerate() {
            if let Some(cpu) = cpu {
                let ring = &rings[cpu.llc];
                let next = ring.iter().find(|&&other| other > number).or(ring.first());
                cpu.next_in_llc = next.copied().unwrap_or(number);
            }
        }
    }

    fn checked(mut self) -> Result<Self, PlacesError> {
        self.link();
        let max =
            |what, found, max| if found <= max { Ok(()) } else { Err(PlacesError { what, found, max }) };
        let tables = rodata_lengths();
        max("CPUs (with gaps in their numbers)", self.cpus.len(), tables.cpus)?;
        max("last-level caches", self.llcs.len(), tables.llcs)?;
        max("NUMA nodes", self.nodes.len(), tables.nodes)?;
        Ok(self)
    }

    /// Fills the scheduler's tables.
    pub(super) fn write(&self, rodata: &mut rodata) {
        // The numbers fit: `checked` compared them with the lengths of the tables.
        let settings = &mut rodata.settings;
        settings.nr_cpus = self.cpus.len() as u32;
        settings.nr_llcs = self.llcs.len() as u32;
        settings.nr_nodes = self.nodes.len() as u32;
        settings.nr_online = self.cpu_count() as u32;
        settings.smt.write(self.smt);
        for (to, from) in rodata.cpu_places.iter_mut().zip(&self.cpus) {
            to.online.write(from.is_some());
            if let Some(place) = from {
                to.llc = place.llc as u16;
                to.node = place.node as u16;
                to.next_thread = place.next_thread as u16;
                to.next_in_llc = place.next_in_llc as u16;
                to.isolated.write(place.isolated);
                to.tickless.write(place.tickless);
            }
        }
        for (to, from) in rodata.llc_places.iter_mut().zip(&self.llcs) {
            *to = llc_place {
                node: from.node as u16,
                nr_cpus: from.cpu_count as u16,
                first_cpu: from.first_cpu as u16,
            };
        }
        for (to, from) in rodata.node_places.iter_mut().zip(&self.nodes) {
            *to = node_place {
                first_llc: from.first_llc as u16,
                nr_llcs: from.llc_count as u16,
                id: from.id,
                ..node_place::default()
            };
            for (to, &node) in to.by_distance.iter_mut().zip(&from.by_distance) {
                *to = node as u8;
            }
        }
    }
}

/// The capacity of the scheduler's tables.
struct Lengths {
    cpus: usize,
    llcs: usize,
    nodes: usize,
}

fn rodata_lengths() -> Lengths {
    const fn length<T, const N: usize>(_: fn(&rodata) -> &[T; N]) -> usize {
        N
    }
    Lengths {
        cpus: length(|rodata| &rodata.cpu_places),
        llcs: length(|rodata| &rodata.llc_places),
        nodes: length(|rodata| &rodata.node_places),
    }
}

/// Places for all possible CPUs, up to the capacity of the scheduler's table; the machine's own CPUs must
/// fit.
fn empty_cpus(machine: &Machine, possible: usize) -> Vec<Option<CpuPlace>> {
    let online = machine.cpus().iter().map(|cpu| cpu.os_index as usize + 1).max().unwrap_or(0);
    vec![None; online.max(possible.min(rodata_lengths().cpus))]
}

/// The last-level cache of a CPU, if another core of its node shares it.
fn shared_cache(machine: &Machine, cpu: CpuId) -> Option<LlcId> {
    let (core, node) = (machine.siblings(cpu), machine.node_cpus(machine.cpu(cpu).node));
    let is_shared = machine.llc_cpus(cpu).iter().any(|other| node.contains(other) && !core.contains(other));
    machine.cpu(cpu).llc.filter(|_| is_shared)
}

/// The next thread of the CPU's core; the first one after the last.
fn next_thread(machine: &Machine, cpu: CpuId) -> CpuId {
    let threads = &machine.cores()[machine.cpu(cpu).core.index()].cpus;
    threads.iter().find(|&other| other > cpu).or_else(|| threads.iter().next()).unwrap_or(cpu)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use tandem_machine::{CpuSpec, Llc, MachineBuilder, NodeSpec, preset};

    /// A machine of CPUs, each with (number, core, LLC, node), on nodes with these numbers and distances.
    fn machine(cpus: &[(u32, u32, Option<u32>, u32)], nodes: &[u32], distances: &[&[u32]]) -> Machine {
        let mut builder = MachineBuilder::new("test");
        for &os_index in nodes {
            let bandwidth_bytes_per_s = NodeSpec::GENERIC_BANDWIDTH_BYTES_PER_S;
            builder = builder.node(NodeSpec { os_index, memory_bytes: 1 << 30, bandwidth_bytes_per_s });
        }
        for label in cpus.iter().filter_map(|&(_, _, llc, _)| llc).collect::<BTreeSet<_>>() {
            builder = builder.llc(label, Llc::GENERIC_SIZE_BYTES);
        }
        for &(os_index, core, llc, node) in cpus {
            builder = builder.cpu(CpuSpec { os_index, core, llc, node, package: 0, capacity: 1 });
        }
        builder.distances(distances.iter().map(|row| row.to_vec()).collect()).build().unwrap()
    }

    fn of_cpus(places: &Places) -> Vec<Option<(usize, usize)>> {
        places.cpus.iter().map(|cpu| cpu.map(|cpu| (cpu.llc, cpu.node))).collect()
    }

    #[test]
    fn a_large_host_has_a_queue_for_each_cache() {
        let places = Places::of_host(&preset("westmere-ex-4s").unwrap(), 80).unwrap();
        assert_eq!((places.cpu_count(), places.llc_count(), places.node_count()), (80, 4, 4));
        assert!(places.smt);
        assert_eq!(places.llcs[3], LlcPlace { node: 3, cpu_count: 20, first_cpu: 60 });
        assert_eq!(places.nodes[2].by_distance, [2, 0, 1, 3]);
    }

    #[test]
    fn the_threads_of_a_core_are_a_ring() {
        let cpus = [(0, 0, None, 0), (1, 1, None, 0), (2, 0, None, 0), (5, 0, None, 0)];
        let places = Places::of_host(&machine(&cpus, &[0], &[&[10]]), 6).unwrap();
        let next: Vec<_> = places.cpus.iter().map(|cpu| cpu.map(|cpu| cpu.next_thread)).collect();
        assert_eq!(next, [Some(2), Some(1), Some(5), None, None, Some(0)]);
    }

    #[test]
    fn the_cpus_of_a_cache_that_are_not_isolated_are_a_ring() {
        let machine = MachineBuilder::symmetric(2, 4, 1).isolated([1, 4, 5, 6, 7]).build().unwrap();
        let places = Places::of_host(&machine, 8).unwrap();
        let next: Vec<_> = places.cpus.iter().flatten().map(|cpu| cpu.next_in_llc).collect();
        // An isolated CPU leads into the ring, or to itself where there is none.
        assert_eq!(next, [2, 2, 3, 0, 4, 5, 6, 7]);
    }

    #[test]
    fn numbers_with_gaps_become_numbers_without() {
        let cpus = [(0, 0, Some(0), 2), (3, 1, Some(0), 2), (4, 2, Some(4), 8)];
        // Node 5 has memory alone.
        let machine = machine(&cpus, &[2, 5, 8], &[&[10, 15, 20], &[15, 10, 15], &[20, 15, 10]]);
        let places = Places::of_host(&machine, 6).unwrap();
        assert_eq!(of_cpus(&places), [Some((0, 0)), None, None, Some((0, 0)), Some((1, 1)), None]);
        assert_eq!(
            places.llcs,
            [
                LlcPlace { node: 0, cpu_count: 2, first_cpu: 0 },
                LlcPlace { node: 1, cpu_count: 1, first_cpu: 4 }
            ]
        );
        assert_eq!(places.nodes.iter().map(|node| node.id).collect::<Vec<_>>(), [2, 8]);
        assert_eq!(places.nodes[1].by_distance, [1, 0]);
        assert!(!places.smt);
    }

    #[test]
    fn a_cache_that_spans_nodes_is_one_group_in_each() {
        let cpus = [(0, 0, Some(0), 0), (1, 1, Some(0), 1), (2, 2, Some(2), 0), (3, 3, Some(0), 0)];
        let places = Places::of_host(&machine(&cpus, &[0, 1], &[&[10, 12], &[12, 10]]), 4).unwrap();
        assert_eq!(of_cpus(&places), [Some((0, 0)), Some((2, 1)), Some((1, 0)), Some((0, 0))]);
        let of_nodes: Vec<_> = places.nodes.iter().map(|node| (node.first_llc, node.llc_count)).collect();
        assert_eq!(of_nodes, [(0, 2), (2, 1)]);
    }

    #[test]
    fn cpus_without_a_cache_are_one_group_in_each_node() {
        let cpus = [(0, 0, None, 0), (1, 1, None, 1), (2, 2, None, 0)];
        let places = Places::of_host(&machine(&cpus, &[0, 1], &[&[10, 20], &[20, 10]]), 3).unwrap();
        assert_eq!(of_cpus(&places), [Some((0, 0)), Some((1, 1)), Some((0, 0))]);
    }

    #[test]
    fn cores_with_a_cache_of_their_own_are_one_group_in_each_node() {
        // Two threads a core, and a third core that shares its cache with a fourth.
        let cpus = [
            (0, 0, Some(0), 0),
            (1, 1, Some(1), 0),
            (2, 2, Some(2), 0),
            (3, 3, Some(2), 0),
            (4, 0, Some(0), 0),
            (5, 5, Some(5), 1),
            (6, 6, Some(6), 1),
        ];
        let places = Places::of_host(&machine(&cpus, &[0, 1], &[&[10, 20], &[20, 10]]), 7).unwrap();
        let llcs: Vec<_> = of_cpus(&places).into_iter().map(|place| place.unwrap().0).collect();
        assert_eq!(llcs, [0, 0, 1, 1, 0, 2, 2]);
        let sizes: Vec<_> = places.llcs.iter().map(|llc| llc.cpu_count).collect();
        assert_eq!(sizes, [3, 2, 2]);
    }

    #[test]
    fn isolated_cpus_have_a_place_and_do_not_count() {
        let machine = MachineBuilder::symmetric(2, 2, 2).isolated([2, 3, 4, 5, 6, 7]).build().unwrap();
        let places = Places::of_host(&machine, 8).unwrap();
        assert_eq!(places.cpu_count(), 8);
        assert_eq!(
            places.llcs,
            [
                LlcPlace { node: 0, cpu_count: 2, first_cpu: 0 },
                LlcPlace { node: 1, cpu_count: 0, first_cpu: 0 }
            ]
        );
        assert_eq!(of_cpus(&places)[5], Some((1, 1)));
        assert_eq!(
            Places::of_guest(&machine, 8).unwrap().llcs,
            [LlcPlace { node: 0, cpu_count: 2, first_cpu: 0 }]
        );
    }

    #[test]
    fn in_a_guest_all_are_one() {
        let places = Places::of_guest(&preset("westmere-ex-4s").unwrap(), 100).unwrap();
        assert_eq!((places.cpu_count(), places.llc_count(), places.node_count()), (80, 1, 1));
        assert_eq!((places.cpus.len(), places.cpus[99]), (100, None));
        assert_eq!(
            places.cpus[79],
            Some(CpuPlace {
                llc: 0,
                node: 0,
                next_thread: 79,
                next_in_llc: 0,
                isolated: false,
                tickless: false
            })
        );
        assert!(!places.smt);
    }

    #[test]
    fn what_the_tables_do_not_hold_is_refused() {
        let refusal = |cpu_count: u32, cpus_of_node: u32| {
            let cpus: Vec<_> =
                (0..cpu_count).map(|cpu| (cpu, cpu, Some(cpu / 2), cpu / cpus_of_node)).collect();
            let nodes: Vec<u32> = (0..cpu_count.div_ceil(cpus_of_node)).collect();
            let row = |from| nodes.iter().map(|&to| if to == from { 10 } else { 20 }).collect::<Vec<u32>>();
            let distances: Vec<Vec<u32>> = nodes.iter().map(|&from| row(from)).collect();
            let distances: Vec<&[u32]> = distances.iter().map(Vec::as_slice).collect();
            Places::of_host(&machine(&cpus, &nodes, &distances), 0).map_err(|error| error.to_string())
        };
        assert!(refusal(512, 4).is_ok());
        assert_eq!(
            refusal(514, 6).unwrap_err(),
            "this machine has 257 last-level caches; the scheduler supports at most 256"
        );
        assert_eq!(
            refusal(129, 1).unwrap_err(),
            "this machine has 129 NUMA nodes; the scheduler supports at most 128"
        );
        assert_eq!(
            refusal(1025, 1025).unwrap_err(),
            "this machine has 1025 CPUs (with gaps in their numbers); the scheduler supports at most 1024"
        );
    }

    #[test]
    fn possible_cpus_past_the_table_do_not_matter_while_they_are_not_online() {
        let places = Places::of_host(&machine(&[(0, 0, None, 0)], &[0], &[&[10]]), 4096).unwrap();
        assert_eq!(places.cpus.len(), 1024);
    }
}
