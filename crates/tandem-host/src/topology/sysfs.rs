//! Reads a machine from `/sys/devices/system/{cpu,node}`, or from a copy of that tree under another root.
//!
//! The kernel's `Documentation/ABI/stable/sysfs-devices-node`,
//! `Documentation/ABI/stable/sysfs-devices-system-cpu` and `Documentation/admin-guide/cputopology.rst`
//! describe the files. Kernels, hypervisors and copies leave parts out; these are the substitutes:
//!
//! | missing | then |
//! |---|---|
//! | `cpu/online` | CPUs with a `topology` directory are online |
//! | `cpuN/online` | `cpu/online` alone decides |
//! | `cpu/isolated`, or it is `(null)` | `isolcpus=` isolates no CPU |
//! | `cpuset.cpus.isolated` of the root of the unified hierarchy of cgroups | no cpuset isolates any |
//! | `cpu/nohz_full`, or it is `(null)` | no CPU is without a tick |
//! | `topology` of an online CPU | a core of its own, in package 0 |
//! | `physical_package_id`, or it is -1 | package 0 |
//! | `cpuN/cache` | no last-level cache |
//! | `node` directory (a kernel without NUMA), or all nodes in it | one node; its memory is `MemTotal` of `/proc/meminfo` |
//! | `size` of a cache | [`Llc::GENERIC_SIZE_BYTES`] |
//! | `nodeN/meminfo` | no memory |
//! | `nodeN/distance` | 10 to itself, 20 to others |
//! | a list such as `cpulist` | the mask beside it: `cpumap` |
//! | `nodeN/cpulist` and `cpumap` | the node has no CPUs (*) |
//! | `cpuN` of an online CPU, `nodeN` of an online node | the CPU or node is offline (*) |
//! | the node of an online CPU | the first node (*) |
//! | distances of some nodes | by the numbers of nodes, if there are enough; or else 10 and 20 (*) |
//! | one package, node and cache for all threads of a core | those of the first thread count for all (*) |
//!
//! [`read_sysfs_assuming`] reports those with (*), which no kernel should leave out. Texts may be padded with
//! NUL bytes.
//!
//! The last-level cache of a CPU is its data or unified cache of the highest level. Speeds of hybrid cores
//! are `cpu_capacity`, or else `cpufreq/cpuinfo_max_freq`, if every CPU has it; otherwise all CPUs are equal.
//! A CPU on several nodes (`numa=fake`) belongs to the lowest of them. Dies and clusters do not matter here.

mod files;

use super::TopologyError;
use crate::cgroups::Hierarchy;
use files::{malformed, numbered_dirs, read_list, read_list_or_mask, read_number, read_row, read_text};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tandem_machine::{
    CpuSpec, Hardware, LOCAL_DISTANCE, Llc, MAX_NODES, Machine, MachineBuilder, MachineError, NodeSpec,
    REMOTE_DISTANCE, format_cpulist,
};

/// Reads the machine whose `/sys` (and `/proc`) are under `root`: `/` for this one.
pub fn read_sysfs(root: &Path) -> Result<Machine, TopologyError> {
    read_sysfs_assuming(root).map(|(machine, _)| machine)
}

/// As [`read_sysfs`]; also returns the assumptions, each a clause without a full stop.
pub fn read_sysfs_assuming(root: &Path) -> Result<(Machine, Vec<String>), TopologyError> {
    let mut assumed = Vec::new();
    let machine = read(root, &mut assumed)?;
    Ok((machine, assumed))
}

fn read(root: &Path, assumed: &mut Vec<String>) -> Result<Machine, TopologyError> {
    let name = match root.parent() {
        None => "this machine".to_owned(),
        Some(_) => root.display().to_string(),
    };
    let system = system_dir(root)?;
    let (cpu_dir, node_dir) = (system.join("cpu"), system.join("node"));
    let online = online_cpus(&cpu_dir, assumed)?;
    let nodes = match node_dir.is_dir() {
        true => read_nodes(&node_dir, assumed)?,
        false => NodeTable::default(),
    };
    let nodes = match nodes.specs.is_empty() {
        true => NodeTable::single(&root.join("proc/meminfo"), &online)?,
        false => nodes,
    };

    let isolated = read_isolated(root)?;
    let tickless = read_reserved(&cpu_dir.join("nohz_full"))?;
    let mut builder =
        MachineBuilder::new(name).distances(nodes.distances).isolated(isolated).tickless(tickless);
    for &node in &nodes.specs {
        builder = builder.node(node);
    }
    let mut speeds = Speeds::default();
    let mut hardware = Hardware::GENERIC;
    let mut largest_l2 = 0;
    let mut llc_sizes = BTreeMap::new();
    let mut cpus = Vec::new();
    for &os_index in &online {
        let dir = cpu_dir.join(format!("cpu{os_index}"));
        let node = nodes.of_cpu.get(&os_index).copied().unwrap_or_else(|| {
            let node = nodes.specs.first().map_or(0, |first| first.os_index);
            assumed.push(format!("online CPU {os_index} is on node {node}, since no node lists it"));
            node
        });
        let caches = read_caches(&dir.join("cache"))?;
        let l2_sizes = caches.iter().filter(|cache| cache.level == 2).filter_map(|cache| cache.size_bytes);
        largest_l2 = l2_sizes.fold(largest_l2, u64::max);
        let llc = caches.iter().max_by_key(|cache| cache.level).map(|cache| {
            let label = first_online(&cache.shared_with, &online, os_index);
            llc_sizes.insert(label, cache.size_bytes.unwrap_or(Llc::GENERIC_SIZE_BYTES));
            label
        });
        speeds.read(&dir)?;
        cpus.push(CpuSpec {
            os_index,
            core: first_online(&read_siblings(&dir.join("topology"))?, &online, os_index),
            llc,
            node,
            package: read_package(&dir.join("topology/physical_package_id"))?,
            capacity: 1,
        });
    }
    join_cores(&mut cpus, assumed);
    for (label, size_bytes) in llc_sizes {
        builder = builder.llc(label, size_bytes);
    }
    for (mut cpu, capacity) in cpus.into_iter().zip(speeds.capacities()) {
        cpu.capacity = capacity;
        builder = builder.cpu(cpu);
    }
    if largest_l2 > 0 {
        hardware.l2_bytes = largest_l2;
    }
    if let Some(max_khz) = speeds.max_khz.iter().flatten().max().filter(|&&khz| khz >= 1000) {
        hardware.clock_mhz = max_khz / 1000;
    }
    builder
        .hardware(hardware)
        .build()
        .map_err(|cause| TopologyError::Inconsistent { place: root.display().to_string(), cause })
}

/// Gives the threads of a core the same package, node and cache.
fn join_cores(cpus: &mut [CpuSpec], assumed: &mut Vec<String>) {
    let mut firsts = BTreeMap::new();
    for cpu in cpus {
        let (first, place) =
            *firsts.entry(cpu.core).or_insert((cpu.os_index, (cpu.package, cpu.node, cpu.llc)));
        if (cpu.package, cpu.node, cpu.llc) != place {
            (cpu.package, cpu.node, cpu.llc) = place;
            assumed.push(format!(
                "CPU {} has the package, node and cache of CPU {first}, the first of its core",
                cpu.os_index
            ));
        }
    }
}

/// The directory of CPUs and nodes. A copy of /sys alone suffices.
fn system_dir(root: &Path) -> Result<PathBuf, TopologyError> {
    let [system, copied] = ["sys/devices/system", "devices/system"].map(|path| root.join(path));
    match [&system, &copied].into_iter().find(|system| system.join("cpu").is_dir()) {
        Some(found) => Ok(found.clone()),
        None => {
            malformed(&system.join("cpu"), "is not a folder; give a root that contains a machine's `sys`")
        }
    }
}

/// The CPUs that `isolcpus=` isolates, and those of cpuset partitions, which not every kernel includes in the
/// former. They are in ascending order, and some may be offline.
///
/// # Errors
/// If the kernel's list cannot be read.
pub fn read_isolated(root: &Path) -> Result<Vec<u32>, TopologyError> {
    let mut isolated = read_reserved(&system_dir(root)?.join("cpu/isolated"))?;
    isolated.extend(Hierarchy::find(root).map(|cgroups| cgroups.isolated_cpus()).unwrap_or_default());
    isolated.sort_unstable();
    isolated.dedup();
    Ok(isolated)
}

/// The CPUs that a kernel parameter reserves. Some kernels print `(null)` if the parameter was not given.
fn read_reserved(file: &Path) -> Result<Vec<u32>, TopologyError> {
    match read_text(file)?.as_deref() {
        None | Some("(null)") => Ok(Vec::new()),
        Some(_) => Ok(read_list(file)?.unwrap_or_default()),
    }
}

/// The CPUs that are online, in ascending order.
fn online_cpus(cpu_dir: &Path, assumed: &mut Vec<String>) -> Result<Vec<u32>, TopologyError> {
    let online = match read_list(&cpu_dir.join("online"))? {
        Some(listed) => listed,
        None => {
            let mut present = numbered_dirs(cpu_dir, "cpu")?;
            present.retain(|cpu| cpu_dir.join(format!("cpu{cpu}/topology")).is_dir());
            present
        }
    };
    let mut usable = Vec::new();
    for cpu in with_folders(online, cpu_dir, ["cpu", "CPU"], assumed) {
        if read_number::<u32>(&cpu_dir.join(format!("cpu{cpu}/online")))? != Some(0) {
            usable.push(cpu);
        }
    }
    Ok(usable)
}

/// The CPUs or nodes of a list that have a folder: a short list may name many more than exist.
fn with_folders(
    listed: Vec<u32>,
    dir: &Path,
    [prefix, kind]: [&str; 2],
    assumed: &mut Vec<String>,
) -> Vec<u32> {
    let (found, missing): (Vec<u32>, Vec<u32>) =
        listed.into_iter().partition(|number| dir.join(format!("{prefix}{number}")).is_dir());
    match missing {
        none if none.is_empty() => {}
        one if one.len() == 1 => {
            assumed.push(format!("{kind} {} is offline, since it has no folder", one[0]))
        }
        many => {
            assumed.push(format!("{kind}s {} are offline, since they have no folders", format_cpulist(many)))
        }
    }
    found
}

/// The NUMA nodes.
#[derive(Default)]
struct NodeTable {
    specs: Vec<NodeSpec>,
    distances: Vec<Vec<u32>>,
    /// Node of each CPU.
    of_cpu: BTreeMap<u32, u32>,
}

impl NodeTable {
    /// The only node of a kernel without NUMA.
    fn single(meminfo: &Path, online: &[u32]) -> Result<Self, TopologyError> {
        Ok(Self {
            specs: vec![node_spec(0, read_memory(meminfo)?)],
            distances: vec![vec![LOCAL_DISTANCE]],
            of_cpu: online.iter().map(|&cpu| (cpu, 0)).collect(),
        })
    }
}

fn node_spec(os_index: u32, memory_bytes: u64) -> NodeSpec {
    NodeSpec { os_index, memory_bytes, bandwidth_bytes_per_s: NodeSpec::GENERIC_BANDWIDTH_BYTES_PER_S }
}

fn read_nodes(node_dir: &Path, assumed: &mut Vec<String>) -> Result<NodeTable, TopologyError> {
    let online = match read_list(&node_dir.join("online"))? {
        Some(listed) => listed,
        None => numbered_dirs(node_dir, "node")?,
    };
    let online = with_folders(online, node_dir, ["node", "node"], assumed);
    if online.len() > MAX_NODES {
        // Before a distance for each pair of them exists.
        let cause = MachineError::TooManyNodes(online.len());
        return Err(TopologyError::Inconsistent { place: node_dir.display().to_string(), cause });
    }
    let mut table = NodeTable::default();
    for (at, &node) in online.iter().enumerate() {
        let dir = node_dir.join(format!("node{node}"));
        let cpus = read_list_or_mask(&dir.join("cpulist"), &dir.join("cpumap"))?;
        if cpus.is_none() {
            assumed.push(format!("node {node} has no CPUs, since it lists none"));
        }
        for cpu in cpus.unwrap_or_default() {
            table.of_cpu.entry(cpu).or_insert(node);
        }
        table.specs.push(node_spec(node, read_memory(&dir.join("meminfo"))?));
        let distance = dir.join("distance");
        let usual =
            || (0..online.len()).map(|to| if to == at { LOCAL_DISTANCE } else { REMOTE_DISTANCE }).collect();
        let by_number = |row: &[u32]| -> Option<Vec<u32>> {
            online.iter().map(|&to| row.get(to as usize).copied()).collect()
        };
        table.distances.push(match read_row(&distance)? {
            None => usual(),
            Some(row) if row.len() == online.len() => row,
            // The row includes nodes that are offline.
            Some(row) => by_number(&row).unwrap_or_else(|| {
                assumed.push(format!(
                    "node {node} is {LOCAL_DISTANCE} from itself and {REMOTE_DISTANCE} from others, since it lists {} of {} distances",
                    row.len(),
                    online.len()
                ));
                usual()
            }),
        });
    }
    Ok(table)
}

/// `MemTotal` in bytes; 0 without the file.
fn read_memory(meminfo: &Path) -> Result<u64, TopologyError> {
    let Some(text) = read_text(meminfo)? else {
        return Ok(0);
    };
    // "Node 0 MemTotal:  6805476 kB" in a node's directory, "MemTotal:  6805476 kB" in /proc.
    let total = text.lines().find_map(|line| line.split_once("MemTotal:")).map(|(_, value)| value.trim());
    let bytes = total
        .and_then(|value| value.strip_suffix("kB"))
        .and_then(|value| value.trim().parse::<u64>().ok())
        .and_then(|kib| kib.checked_mul(1024));
    match bytes {
        Some(bytes) => Ok(bytes),
        None => malformed(meminfo, "has no line such as \"MemTotal: 6805476 kB\""),
    }
}

/// A data or unified cache of a CPU.
struct Cache {
    level: u32,
    /// `None` if the kernel does not know it, which some kernels report as 0.
    size_bytes: Option<u64>,
    shared_with: Vec<u32>,
}

fn read_caches(cache_dir: &Path) -> Result<Vec<Cache>, TopologyError> {
    let mut caches = Vec::new();
    for index in numbered_dirs(cache_dir, "index")? {
        let dir = cache_dir.join(format!("index{index}"));
        let Some(level) = read_number(&dir.join("level"))? else {
            continue;
        };
        if read_text(&dir.join("type"))?.is_some_and(|kind| kind == "Instruction") {
            continue;
        }
        let size = dir.join("size");
        let size_bytes = match read_text(&size)? {
            Some(text) => Some(cache_size(&size, &text)?).filter(|&bytes| bytes > 0),
            None => None,
        };
        let shared_with =
            read_list_or_mask(&dir.join("shared_cpu_list"), &dir.join("shared_cpu_map"))?.unwrap_or_default();
        caches.push(Cache { level, size_bytes, shared_with });
    }
    Ok(caches)
}

/// Bytes of a size such as `12288K`.
fn cache_size(file: &Path, text: &str) -> Result<u64, TopologyError> {
    let (digits, factor) =
        match text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8)) {
            (digits, "K") => (digits, 1 << 10),
            (digits, "M") => (digits, 1 << 20),
            (digits, "G") => (digits, 1 << 30),
            _ => (text, 1),
        };
    match digits.parse::<u64>().ok().and_then(|size| size.checked_mul(factor)) {
        Some(bytes) => Ok(bytes),
        None => malformed(file, format!("`{text:.40}` is not a size such as 12288K")),
    }
}

/// The threads of a CPU's core.
fn read_siblings(topology: &Path) -> Result<Vec<u32>, TopologyError> {
    // Kernels before 5.3 use the second name.
    for name in ["core_cpus", "thread_siblings"] {
        if let Some(cpus) = read_list_or_mask(&topology.join(format!("{name}_list")), &topology.join(name))? {
            return Ok(cpus);
        }
    }
    Ok(Vec::new())
}

/// The package of a CPU; 0 where the kernel does not know it.
fn read_package(file: &Path) -> Result<u32, TopologyError> {
    let package: i64 = read_number(file)?.unwrap_or(-1);
    match package {
        -1 => Ok(0),
        known => match u32::try_from(known) {
            Ok(known) => Ok(known),
            Err(_) => malformed(file, format!("{known} is not the number of a package")),
        },
    }
}

/// The first online CPU of a list, or the CPU itself: a label that all CPUs of the list agree on.
fn first_online(cpus: &[u32], online: &[u32], own: u32) -> u32 {
    match cpus.contains(&own) {
        true => cpus.iter().copied().find(|cpu| online.binary_search(cpu).is_ok()).unwrap_or(own),
        false => own,
    }
}

/// The speeds of the CPUs, in the order in which they are read.
#[derive(Default)]
struct Speeds {
    capacities: Vec<Option<u32>>,
    max_khz: Vec<Option<u32>>,
}

impl Speeds {
    fn read(&mut self, cpu_dir: &Path) -> Result<(), TopologyError> {
        self.capacities.push(read_number(&cpu_dir.join("cpu_capacity"))?);
        self.max_khz.push(read_number(&cpu_dir.join("cpufreq/cpuinfo_max_freq"))?);
        Ok(())
    }

    /// In the first unit in which every CPU has a speed; otherwise all are equal.
    fn capacities(&self) -> Vec<u32> {
        let complete = |speeds: &[Option<u32>]| speeds.iter().copied().collect::<Option<Vec<u32>>>();
        complete(&self.capacities)
            .or_else(|| complete(&self.max_khz))
            .unwrap_or_else(|| vec![1; self.capacities.len()])
    }
}
