//! Builds machines, and checks them.
//!
//! Every source of machines (presets, files, sysfs, hwloc, tests) provides the same: for each CPU, its core,
//! cache, node and package, by whatever numbers the source uses. The builder turns these labels into dense
//! indices: CPUs, nodes and packages in the order of their numbers, cores and caches in the order of their
//! first CPU. A core or cache that no CPU uses does not exist, a node does.

use super::error::MachineError;
use super::shape::Shape;
use super::{Core, Cpu, Hardware, Llc, Machine, Node, Package};
use crate::cpumask::CpuMask;
use crate::ids::{CoreId, CpuId, LlcId, NodeId, PackageId};
use std::collections::BTreeMap;

/// Most CPUs of a machine: the largest `NR_CPUS` that Linux can be configured with on x86-64.
pub const MAX_CPUS: usize = 8192;
/// Most NUMA nodes of a machine: 2 to the largest `NODES_SHIFT` of Linux.
pub const MAX_NODES: usize = 1024;
/// Distance of a node to itself (ACPI specification, System Locality Information Table).
pub const LOCAL_DISTANCE: u32 = 10;
/// Default distance between two nodes (`REMOTE_DISTANCE` of Linux).
pub const REMOTE_DISTANCE: u32 = 20;
/// Largest distance: ACPI uses one byte, in which this value means "unreachable".
pub(super) const MAX_DISTANCE: u32 = 255;

/// Distance between nodes of one package: what firmware says of AMD's NPS2 and NPS4 (issue 165 of
/// github.com/numactl/numactl shows a Threadripper 3960X) and of Intel's sub-NUMA clusters (the table of an
/// eight-socket machine in Linux's commit 528d89a4707e, "x86/topo: Fix SNC topology mess").
const SAME_PACKAGE_DISTANCE: u32 = 12;

/// Least memory of a package of [`MachineBuilder::of_shape`].
const GENERIC_PACKAGE_MEMORY_BYTES: u64 = 64 << 30;
/// Memory for each of its CPUs, if that is more: what hosts are commonly bought with.
const GENERIC_CPU_MEMORY_BYTES: u64 = 4 << 30;

/// Which of `parts` nearly equal shares of `number` things the one at this place is in.
fn share(place: u32, number: u32, parts: u32) -> u32 {
    // Smaller than `parts`, as the place is smaller than the number.
    (u64::from(place) * u64::from(parts) / u64::from(number)) as u32
}

/// A CPU as its source describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuSpec {
    /// The operating system's number.
    pub os_index: u32,
    /// Label of its core; unique over the machine.
    pub core: u32,
    /// Label of its last-level cache, if one is reported.
    pub llc: Option<u32>,
    /// The operating system's number of its NUMA node.
    pub node: u32,
    /// The operating system's number of its package.
    pub package: u32,
    /// Speed in any unit that all CPUs share; the fastest becomes 1000 permille. The threads of a core are
    /// equally fast: the largest of their values counts.
    pub capacity: u32,
}

/// A NUMA node as its source describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeSpec {
    /// The operating system's number.
    pub os_index: u32,
    /// Its memory in bytes; 0 for none.
    pub memory_bytes: u64,
    /// The sustained bandwidth of its memory, in bytes per second.
    pub bandwidth_bytes_per_s: u64,
}

impl NodeSpec {
    /// Bandwidth of a node where only the topology is known: what Intel's Memory Latency Checker reports for
    /// the own node of a two-socket server, 69.3 GB/s.
    pub const GENERIC_BANDWIDTH_BYTES_PER_S: u64 = 69_300_000_000;
}

/// Collects the parts of a machine; [`build`](Self::build) checks them.
///
/// ```
/// use tandem_machine::MachineBuilder;
///
/// let machine = MachineBuilder::symmetric(2, 4, 2).name("small").build()?;
/// assert_eq!((machine.cpu_count(), machine.node_count()), (16, 2));
/// # Ok::<(), tandem_machine::MachineError>(())
/// ```
#[derive(Clone, Debug)]
pub struct MachineBuilder {
    name: String,
    cpus: Vec<CpuSpec>,
    nodes: Vec<NodeSpec>,
    llcs: Vec<(u32, u64)>,
    distances: Option<Vec<Vec<u32>>>,
    isolated: Vec<u32>,
    tickless: Vec<u32>,
    hardware: Hardware,
}

impl MachineBuilder {
    /// A machine without parts.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            cpus: Vec::new(),
            nodes: Vec::new(),
            llcs: Vec::new(),
            distances: None,
            isolated: Vec::new(),
            tickless: Vec::new(),
            hardware: Hardware::GENERIC,
        }
    }

    /// A machine of equal packages, each of which is a NUMA node with one last-level cache:
    /// [`of_shape`](Self::of_shape) of PACKAGESxCORESxTHREADS.
    pub fn symmetric(packages: u32, cores_per_package: u32, threads_per_core: u32) -> Self {
        Self::of_shape(&Shape::new(packages, cores_per_package, threads_per_core))
    }

    /// A machine of equal packages. Cores that do not divide evenly are spread so that no part has more than
    /// one more than another.
    ///
    /// Assumed is what a shape does not say. CPUs are numbered as by Xen: the threads of a core side by side,
    /// package after package. Nodes and caches hold neighbouring cores. A package has 64 GiB of memory, or
    /// 4 GiB for each CPU if that is more, and the bandwidth of a generic server's; its nodes share both
    /// equally. A last-level cache is that of a generic server, and so are the latencies. Nodes of one package
    /// are at distance 12, other nodes at 20.
    pub fn of_shape(shape: &Shape) -> Self {
        let &Shape { packages, cores, threads, llcs, nodes } = shape;
        let mut builder = Self::new(shape.to_string());
        let package_memory = GENERIC_CPU_MEMORY_BYTES * u64::from(cores) * u64::from(threads);
        let package_memory = package_memory.max(GENERIC_PACKAGE_MEMORY_BYTES);
        for package in 0..packages {
            for node in 0..nodes {
                builder = builder.node(NodeSpec {
                    os_index: package * nodes + node,
                    memory_bytes: package_memory / u64::from(nodes),
                    bandwidth_bytes_per_s: NodeSpec::GENERIC_BANDWIDTH_BYTES_PER_S / u64::from(nodes),
                });
            }
            for llc in 0..llcs {
                builder = builder.llc(package * llcs + llc, Llc::GENERIC_SIZE_BYTES);
            }
            for core in 0..cores {
                // The part of its package that the core is in, of so many.
                let part = |parts: u32| package * parts + share(core, cores, parts);
                for thread in 0..threads {
                    builder = builder.cpu(CpuSpec {
                        os_index: (package * cores + core) * threads + thread,
                        core: package * cores + core,
                        llc: (llcs > 0).then(|| part(llcs)),
                        node: part(nodes),
                        package,
                        capacity: 1,
                    });
                }
            }
        }
        if nodes > 1 {
            builder = builder.package_distances(
                nodes,
                |from, to| match from == to {
                    true => LOCAL_DISTANCE,
                    false => SAME_PACKAGE_DISTANCE,
                },
                REMOTE_DISTANCE,
            );
        }
        builder
    }

    /// Sets the distances of nodes that were added package after package, `nodes` in each: within a package by
    /// their places in it, and between packages.
    pub(super) fn package_distances(
        self,
        nodes: u32,
        within: impl Fn(u32, u32) -> u32,
        between: u32,
    ) -> Self {
        let all = 0..self.nodes.len() as u32;
        let distance = |from: u32, to: u32| match from / nodes == to / nodes {
            true => within(from % nodes, to % nodes),
            false => between,
        };
        let rows = all.clone().map(|from| all.clone().map(|to| distance(from, to)).collect()).collect();
        self.distances(rows)
    }

    /// Numbers the CPUs as Linux does on x86: the first threads of all cores, then the second ones.
    pub(super) fn threads_apart(mut self, threads: u32) -> Self {
        let cores = self.cpus.len() as u32 / threads;
        for cpu in &mut self.cpus {
            cpu.os_index = cpu.os_index % threads * cores + cpu.os_index / threads;
        }
        self
    }

    /// Names the machine.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Adds a CPU.
    pub fn cpu(mut self, cpu: CpuSpec) -> Self {
        self.cpus.push(cpu);
        self
    }

    /// Adds a NUMA node.
    pub fn node(mut self, node: NodeSpec) -> Self {
        self.nodes.push(node);
        self
    }

    /// Adds a last-level cache under the label that its CPUs use.
    pub fn llc(mut self, label: u32, size_bytes: u64) -> Self {
        self.llcs.push((label, size_bytes));
        self
    }

    /// Gives every last-level cache added so far this size.
    pub fn every_llc(mut self, size_bytes: u64) -> Self {
        self.llcs.iter_mut().for_each(|llc| llc.1 = size_bytes);
        self
    }

    /// Gives every node added so far this memory.
    pub fn every_node(mut self, memory_bytes: u64, bandwidth_bytes_per_s: u64) -> Self {
        for node in &mut self.nodes {
            node.memory_bytes = memory_bytes;
            node.bandwidth_bytes_per_s = bandwidth_bytes_per_s;
        }
        self
    }

    /// Sets the distances between nodes: a row for each node, rows and columns in the order in which the
    /// nodes were added. By default a node is 10 from itself and 20 from every other.
    pub fn distances(mut self, rows: Vec<Vec<u32>>) -> Self {
        self.distances = Some(rows);
        self
    }

    /// Sets the isolated CPUs, by the operating system's numbers; CPUs that the machine does not have are
    /// ignored.
    pub fn isolated(mut self, numbers: impl IntoIterator<Item = u32>) -> Self {
        self.isolated.extend(numbers);
        self
    }

    /// Sets the CPUs without a tick while one task runs (`nohz_full=`), by the operating system's numbers;
    /// CPUs that the machine does not have are ignored.
    pub fn tickless(mut self, numbers: impl IntoIterator<Item = u32>) -> Self {
        self.tickless.extend(numbers);
        self
    }

    /// Sets the constants of cores and memory; by default they are [`Hardware::GENERIC`].
    pub fn hardware(mut self, hardware: Hardware) -> Self {
        self.hardware = hardware;
        self
    }

    /// Builds the machine, if its parts are consistent.
    pub fn build(mut self) -> Result<Machine, MachineError> {
        self.check_hardware()?;
        let (nodes, distances) = self.build_nodes()?;
        self.cpus.sort_unstable_by_key(|cpu| cpu.os_index);
        self.check_cpus()?;
        Ok(self.assemble(nodes, distances))
    }

    fn check_hardware(&self) -> Result<(), MachineError> {
        let hardware = &self.hardware;
        if hardware.clock_mhz == 0 {
            return Err(MachineError::NoClock);
        }
        if hardware.l2_bytes == 0 {
            return Err(MachineError::EmptyL2);
        }
        let (llc_ns, local_ns, remote_ns) =
            (hardware.llc_latency_ns, hardware.local_memory_latency_ns, hardware.remote_memory_latency_ns);
        if llc_ns > local_ns || local_ns > remote_ns {
            return Err(MachineError::LatencyOrder { llc_ns, local_ns, remote_ns });
        }
        Ok(())
    }

    /// The nodes in the order of their numbers, still without CPUs, and the distances in the same order.
    fn build_nodes(&self) -> Result<(Vec<Node>, Vec<u32>), MachineError> {
        let count = self.nodes.len();
        if count == 0 {
            return Err(MachineError::NoNode);
        }
        if count > MAX_NODES {
            return Err(MachineError::TooManyNodes(count));
        }
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_unstable_by_key(|&at| self.nodes[at].os_index);
        if let Some(pair) = order.windows(2).find(|w| self.nodes[w[0]].os_index == self.nodes[w[1]].os_index)
        {
            return Err(MachineError::DuplicateNode(self.nodes[pair[0]].os_index));
        }
        let mut nodes = Vec::with_capacity(count);
        for &at in &order {
            let spec = self.nodes[at];
            if spec.memory_bytes > 0 && spec.bandwidth_bytes_per_s == 0 {
                return Err(MachineError::NoBandwidth(spec.os_index));
            }
            nodes.push(Node {
                os_index: spec.os_index,
                cpus: CpuMask::empty(self.cpus.len()),
                memory_bytes: spec.memory_bytes,
                bandwidth_bytes_per_s: if spec.memory_bytes > 0 { spec.bandwidth_bytes_per_s } else { 0 },
            });
        }
        Ok((nodes, self.ordered_distances(&order)?))
    }

    fn ordered_distances(&self, order: &[usize]) -> Result<Vec<u32>, MachineError> {
        let count = order.len();
        if let Some(rows) = &self.distances
            && (rows.len() != count || rows.iter().any(|row| row.len() != count))
        {
            return Err(MachineError::DistanceShape { nodes: count });
        }
        let mut distances = Vec::with_capacity(count * count);
        for &from in order {
            for &to in order {
                let distance = match &self.distances {
                    Some(rows) => rows[from][to],
                    None if from == to => LOCAL_DISTANCE,
                    None => REMOTE_DISTANCE,
                };
                // No task runs on a node without CPUs; real firmware gives some of them another own distance.
                let odd_but_harmless = || !self.cpus.iter().any(|cpu| cpu.node == self.nodes[from].os_index);
                let in_range = (LOCAL_DISTANCE..=MAX_DISTANCE).contains(&distance);
                if !in_range || (from == to && distance != LOCAL_DISTANCE && !odd_but_harmless()) {
                    let (from, to) = (self.nodes[from].os_index, self.nodes[to].os_index);
                    return Err(MachineError::BadDistance { from, to, distance });
                }
                distances.push(distance);
            }
        }
        Ok(distances)
    }

    /// Checks the CPUs, which are sorted by number.
    fn check_cpus(&self) -> Result<(), MachineError> {
        if self.cpus.is_empty() {
            return Err(MachineError::NoCpu);
        }
        if self.cpus.len() > MAX_CPUS {
            return Err(MachineError::TooManyCpus(self.cpus.len()));
        }
        if let Some(pair) = self.cpus.windows(2).find(|pair| pair[0].os_index == pair[1].os_index) {
            return Err(MachineError::DuplicateCpu(pair[0].os_index));
        }
        let mut llc_sizes = BTreeMap::new();
        for &(label, size_bytes) in &self.llcs {
            if size_bytes == 0 {
                return Err(MachineError::EmptyLlc(label));
            }
            if llc_sizes.insert(label, size_bytes).is_some() {
                return Err(MachineError::DuplicateLlc(label));
            }
        }
        let mut first_of_core = BTreeMap::new();
        for cpu in &self.cpus {
            if cpu.capacity == 0 {
                return Err(MachineError::NoCapacity(cpu.os_index));
            }
            if !self.nodes.iter().any(|node| node.os_index == cpu.node) {
                return Err(MachineError::UnknownNode { cpu: cpu.os_index, node: cpu.node });
            }
            if let Some(llc) = cpu.llc.filter(|llc| !llc_sizes.contains_key(llc)) {
                return Err(MachineError::UnknownLlc { cpu: cpu.os_index, llc });
            }
            let first: &CpuSpec = first_of_core.entry(cpu.core).or_insert(cpu);
            let differs = [
                ("NUMA node", first.node != cpu.node),
                ("package", first.package != cpu.package),
                ("last-level cache", first.llc != cpu.llc),
            ];
            if let Some(&(what, _)) = differs.iter().find(|(_, differs)| *differs) {
                return Err(MachineError::SplitCore { first: first.os_index, second: cpu.os_index, what });
            }
        }
        Ok(())
    }

    /// Assembles checked parts.
    fn assemble(self, mut nodes: Vec<Node>, distances: Vec<u32>) -> Machine {
        let count = self.cpus.len();
        let llc_sizes: BTreeMap<u32, u64> = self.llcs.into_iter().collect();
        let node_ids: BTreeMap<u32, NodeId> =
            nodes.iter().enumerate().map(|(at, node)| (node.os_index, NodeId::from(at))).collect();
        let mut packages: Vec<Package> = Vec::new();
        let mut package_numbers: Vec<u32> = self.cpus.iter().map(|cpu| cpu.package).collect();
        package_numbers.sort_unstable();
        package_numbers.dedup();
        for &os_index in &package_numbers {
            packages.push(Package { os_index, cpus: CpuMask::empty(count) });
        }
        let mut core_capacities: BTreeMap<u32, u32> = BTreeMap::new();
        for cpu in &self.cpus {
            let capacity = core_capacities.entry(cpu.core).or_insert(cpu.capacity);
            *capacity = cpu.capacity.max(*capacity);
        }
        let fastest = self.cpus.iter().map(|cpu| cpu.capacity).max().unwrap_or(1);

        let (mut core_ids, mut cores) = (BTreeMap::new(), Vec::new());
        let (mut llc_ids, mut llcs) = (BTreeMap::new(), Vec::new());
        let mut cpus = Vec::with_capacity(count);
        for (at, spec) in self.cpus.iter().enumerate() {
            let id = CpuId::from(at);
            let core = *core_ids.entry(spec.core).or_insert_with(|| {
                cores.push(Core { cpus: CpuMask::empty(count) });
                CoreId::from(cores.len() - 1)
            });
            cores[core.index()].cpus.insert(id);
            let llc = spec.llc.map(|label| {
                *llc_ids.entry(label).or_insert_with(|| {
                    llcs.push(Llc { size_bytes: llc_sizes[&label], cpus: CpuMask::empty(count) });
                    LlcId::from(llcs.len() - 1)
                })
            });
            if let Some(llc) = llc {
                llcs[llc.index()].cpus.insert(id);
            }
            let node = node_ids[&spec.node];
            nodes[node.index()].cpus.insert(id);
            let package = PackageId::from(package_numbers.partition_point(|&number| number < spec.package));
            packages[package.index()].cpus.insert(id);
            let permille = u64::from(core_capacities[&spec.core]) * 1000 / u64::from(fastest);
            let capacity_permille = u32::try_from(permille.max(1)).expect("no capacity exceeds the fastest");
            cpus.push(Cpu { os_index: spec.os_index, core, llc, node, package, capacity_permille });
        }
        let of_numbers = |numbers: &[u32]| {
            let mut mask = CpuMask::empty(count);
            for (at, cpu) in cpus.iter().enumerate() {
                if numbers.contains(&cpu.os_index) {
                    mask.insert(CpuId::from(at));
                }
            }
            mask
        };
        let (isolated, tickless) = (of_numbers(&self.isolated), of_numbers(&self.tickless));
        let all_cpus = CpuMask::first(count);
        let mut housekeeping = all_cpus.clone();
        if !all_cpus.is_subset(&isolated) {
            housekeeping.remove_all(&isolated);
        }
        Machine {
            name: self.name,
            packages,
            nodes_by_distance: nodes_by_distance(&distances, nodes.len()),
            memory_latencies_ns: (distances.iter())
                .map(|&distance| self.hardware.memory_latency_ns(distance).round() as u64)
                .collect(),
            nodes,
            llcs,
            cores,
            cpus,
            distances,
            all_cpus,
            isolated,
            housekeeping,
            tickless,
            hardware: self.hardware,
        }
    }
}

/// For each node all nodes from near to far, itself first.
fn nodes_by_distance(distances: &[u32], count: usize) -> Vec<NodeId> {
    let mut all = Vec::with_capacity(distances.len());
    for (from, row) in distances.chunks_exact(count).enumerate() {
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&to| (to != from, row[to], to));
        all.extend(order.into_iter().map(NodeId::from));
    }
    all
}
