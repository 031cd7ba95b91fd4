//! Reads a machine from hwloc's XML, as `lstopo --of xml` writes it.
//!
//! The format is described by hwloc's `hwloc.dtd` (version 1) and `hwloc2.dtd` (versions 2 and 3). What differs:
//! - Version 1 puts NUMA nodes between packages and caches, later versions hang them beside. Both give a node's
//!   `cpuset`, and that alone is used.
//! - Version 1 calls packages `Socket` and every cache `Cache`, and writes distances relative to a base.
//!
//! A CPU (hwloc: PU) counts if its own `cpuset` is not empty and the root's `online_cpuset` and `allowed_cpuset`
//! hold it. A CPU in several nodes (heterogeneous memory) belongs to the smallest of them, then to the one with
//! the lowest number; the others are nodes without CPUs. A CPU whose node is hidden (disallowed to the process
//! that wrote the file) is on a node without memory. A file without nodes has one, with the memory of the
//! `Machine` object. Speeds of hybrid cores are those of the `cpukind` elements, if they cover every CPU.
//!
//! Not supported: more than one `Machine` in a file, CPU or node numbers above [`MAX_NUMBER`], and XML entities,
//! which hwloc does not write. Groups, dies, memory-side caches, I/O and miscellaneous objects are ignored.

mod bitmap;
mod distances;

use super::TopologyError;
use bitmap::Bitmap;
use roxmltree::{Document, Node as Element, ParsingOptions};
use std::collections::BTreeSet;
use std::path::Path;
use std::str::FromStr;
use tandem_sim::machine::{
    CpuSpec, Hardware, Llc, MAX_CPUS, MAX_NODES, MAX_NUMBER, Machine, MachineBuilder, MachineError, NodeSpec,
};

/// Most elements of a file; a machine of 8192 CPUs has about 100 000.
const MAX_ELEMENTS: u32 = 2_000_000;
/// Deepest nesting of objects; hwloc itself stays below 128 levels.
const MAX_DEPTH: u32 = 128;
/// Value of `cache_type` that marks an instruction cache.
const INSTRUCTION_CACHE: u32 = 2;

/// The machine that this file describes.
pub fn read_hwloc(file: &Path) -> Result<Machine, TopologyError> {
    let xml = std::fs::read_to_string(file).map_err(|source| TopologyError::Unreadable {
        file: file.to_owned(),
        source,
    })?;
    parse(&xml, &file.display().to_string())
}

/// The machine that this text describes. No text makes it panic.
pub fn parse_hwloc(xml: &str) -> Result<Machine, TopologyError> {
    parse(xml, "hwloc XML")
}

fn parse(xml: &str, file: &str) -> Result<Machine, TopologyError> {
    let malformed = |message: String| TopologyError::Malformed {
        place: file.to_owned(),
        message,
    };
    if xml.contains("<!ENTITY") {
        return Err(malformed(
            "declares XML entities, which hwloc does not write".to_owned(),
        ));
    }
    // lstopo writes a reference to its DTD, which is not fetched.
    let options = ParsingOptions {
        allow_dtd: true,
        nodes_limit: MAX_ELEMENTS,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(xml, options)
        .map_err(|error| malformed(format!("is not XML as lstopo writes it: {error}")))?;
    let reader = Reader {
        document: &document,
        file,
    };
    let machine = reader.machine_object()?;
    let found = reader.collect(machine)?;
    reader.assemble(machine, found)
}

/// A logical CPU.
struct Pu {
    os_index: u32,
    /// Index into the packages found.
    package: Option<usize>,
    core: u32,
    llc: Option<u32>,
    complete_nodeset: Option<Bitmap>,
}

/// A NUMA node.
struct NumaNode {
    os_index: u32,
    gp_index: Option<u64>,
    memory_bytes: u64,
    cpuset: Bitmap,
    /// Levels below the `Machine` object.
    depth: u32,
}

/// What the tree of objects holds.
#[derive(Default)]
struct Found {
    pus: Vec<Pu>,
    nodes: Vec<NumaNode>,
    /// Number of each package, if it has one.
    packages: Vec<Option<u32>>,
    /// Size of each cache; the index is its label.
    cache_sizes: Vec<u64>,
    cores: u32,
    largest_l2_bytes: u64,
}

/// What surrounds an object.
#[derive(Clone, Copy, Default)]
struct Surroundings {
    package: Option<usize>,
    core: Option<u32>,
    /// Level and label.
    llc: Option<(u32, u32)>,
    depth: u32,
}

/// The CPUs that count.
struct Usable {
    sets: Vec<Bitmap>,
}

impl Usable {
    fn contains(&self, cpu: u32) -> bool {
        self.sets.iter().all(|set| set.contains(cpu))
    }
}

struct Reader<'a> {
    document: &'a Document<'a>,
    file: &'a str,
}

impl<'a> Reader<'a> {
    fn machine_object(&self) -> Result<Element<'a, 'a>, TopologyError> {
        let root = self.document.root_element();
        if !root.has_tag_name("topology") {
            return self.malformed(
                root,
                "expected is <topology>, as lstopo --of xml writes it".to_owned(),
            );
        }
        let mut machines = root
            .descendants()
            .filter(|element| is_object(*element, "Machine"));
        match (machines.next(), machines.next()) {
            (Some(machine), None) => Ok(machine),
            (None, _) => self.malformed(root, "has no object of type Machine".to_owned()),
            (_, Some(second)) => self.malformed(
                second,
                "several objects of type Machine are not supported".to_owned(),
            ),
        }
    }

    fn collect(&self, machine: Element<'a, 'a>) -> Result<Found, TopologyError> {
        let mut usable = Usable { sets: Vec::new() };
        for name in ["cpuset", "online_cpuset", "allowed_cpuset"] {
            usable.sets.extend(self.bitmap(machine, name)?);
        }
        let mut found = Found::default();
        self.walk(machine, Surroundings::default(), &usable, &mut found)?;
        Ok(found)
    }

    fn walk(
        &self,
        object: Element<'a, 'a>,
        mut around: Surroundings,
        usable: &Usable,
        found: &mut Found,
    ) -> Result<(), TopologyError> {
        if around.depth > MAX_DEPTH {
            return self.malformed(object, format!("objects are nested more than {MAX_DEPTH} deep"));
        }
        match object.attribute("type").unwrap_or_default() {
            "Bridge" | "PCIDev" | "OSDev" | "Misc" => return Ok(()),
            "Package" | "Socket" => {
                around.package = Some(found.packages.len());
                found.packages.push(self.number(object, "os_index")?);
            }
            "Core" => {
                around.core = Some(found.cores);
                found.cores += 1;
            }
            "NUMANode" => found.nodes.push(self.numa_node(object, around.depth)?),
            "PU" => found
                .pus
                .extend(self.pu(object, around, usable, &mut found.cores)?),
            kind if kind.ends_with("Cache") && kind != "MemCache" => {
                self.cache(object, &mut around, found)?
            }
            _ => {}
        }
        around.depth += 1;
        for child in object.children().filter(|child| child.has_tag_name("object")) {
            self.walk(child, around, usable, found)?;
        }
        Ok(())
    }

    /// The CPU of this object, unless it is offline or disallowed.
    fn pu(
        &self,
        object: Element<'a, 'a>,
        around: Surroundings,
        usable: &Usable,
        cores: &mut u32,
    ) -> Result<Option<Pu>, TopologyError> {
        let os_index = self.os_index(object)?;
        let offline = self
            .bitmap(object, "cpuset")?
            .is_some_and(|cpuset| cpuset.is_empty());
        if offline || !usable.contains(os_index) {
            return Ok(None);
        }
        let core = around.core.unwrap_or_else(|| {
            // Without Core objects every CPU is a core.
            *cores += 1;
            *cores - 1
        });
        Ok(Some(Pu {
            os_index,
            package: around.package,
            core,
            llc: around.llc.map(|(_, label)| label),
            complete_nodeset: self.bitmap(object, "complete_nodeset")?,
        }))
    }

    fn numa_node(&self, object: Element<'a, 'a>, depth: u32) -> Result<NumaNode, TopologyError> {
        let Some(cpuset) = self.bitmap(object, "cpuset")? else {
            return self.malformed(object, "this NUMANode has no cpuset".to_owned());
        };
        Ok(NumaNode {
            os_index: self.os_index(object)?,
            gp_index: self.number(object, "gp_index")?,
            memory_bytes: self.number(object, "local_memory")?.unwrap_or(0),
            cpuset,
            depth,
        })
    }

    /// Notes a cache; the outermost one of the highest level is the last-level cache of what is inside.
    fn cache(
        &self,
        object: Element<'a, 'a>,
        around: &mut Surroundings,
        found: &mut Found,
    ) -> Result<(), TopologyError> {
        if self.number(object, "cache_type")? == Some(INSTRUCTION_CACHE) {
            return Ok(());
        }
        let level: u32 = self.number(object, "depth")?.unwrap_or(0);
        // hwloc writes 0 for an unknown size.
        let told: Option<u64> = self.number(object, "cache_size")?.filter(|&size| size > 0);
        if level == 2 {
            found.largest_l2_bytes = found.largest_l2_bytes.max(told.unwrap_or(0));
        }
        if around.llc.is_none_or(|(outer, _)| level > outer) {
            let label = u32::try_from(found.cache_sizes.len()).expect("elements are limited");
            found.cache_sizes.push(told.unwrap_or(Llc::GENERIC_SIZE_BYTES));
            around.llc = Some((level, label));
        }
        Ok(())
    }

    fn assemble(&self, machine: Element<'a, 'a>, mut found: Found) -> Result<Machine, TopologyError> {
        let inconsistent = |source| TopologyError::Inconsistent {
            place: self.file.to_owned(),
            source,
        };
        if found.pus.len() > MAX_CPUS {
            return Err(inconsistent(MachineError::TooManyCpus(found.pus.len())));
        }
        if found.nodes.len() > MAX_NODES {
            return Err(inconsistent(MachineError::TooManyNodes(found.nodes.len())));
        }
        if found.nodes.is_empty() {
            found.nodes.push(NumaNode {
                os_index: 0,
                gp_index: None,
                memory_bytes: self.number(machine, "local_memory")?.unwrap_or(0),
                cpuset: Bitmap::everything(),
                depth: 0,
            });
        }
        let node_of_cpu = self.node_of_cpu(machine, &mut found)?;
        let packages = package_numbers(&found.packages);
        let kinds = self.cpu_kinds()?;
        let capacities = capacities(&found.pus, &kinds);

        let mut builder = MachineBuilder::new(file_stem(self.file));
        for node in &found.nodes {
            builder = builder.node(NodeSpec {
                os_index: node.os_index,
                memory_bytes: node.memory_bytes,
                bandwidth_bytes_per_s: NodeSpec::GENERIC_BANDWIDTH_BYTES_PER_S,
            });
        }
        for (label, &size_bytes) in (0..).zip(&found.cache_sizes) {
            builder = builder.llc(label, size_bytes);
        }
        for ((pu, &node), &capacity) in found.pus.iter().zip(&node_of_cpu).zip(&capacities) {
            builder = builder.cpu(CpuSpec {
                os_index: pu.os_index,
                core: pu.core,
                llc: pu.llc,
                node,
                package: packages[pu.package.unwrap_or(found.packages.len())],
                capacity,
            });
        }
        if let Some(rows) = self.distances(machine, &found.nodes, &node_of_cpu)? {
            builder = builder.distances(rows);
        }
        let mut hardware = Hardware::GENERIC;
        if found.largest_l2_bytes > 0 {
            hardware.l2_bytes = found.largest_l2_bytes;
        }
        if let Some(mhz) = kinds.iter().filter_map(|kind| kind.max_mhz).max() {
            hardware.clock_mhz = mhz;
        }
        builder
            .hardware(hardware)
            .build()
            .map_err(|source| TopologyError::Inconsistent {
                place: self.file.to_owned(),
                source,
            })
    }

    /// The number of each CPU's node; adds nodes that are hidden.
    fn node_of_cpu(&self, machine: Element<'a, 'a>, found: &mut Found) -> Result<Vec<u32>, TopologyError> {
        let mut by_size: Vec<usize> = (0..found.nodes.len()).collect();
        by_size.sort_by_key(|&at| (found.nodes[at].cpuset.count(), found.nodes[at].os_index));
        let mut numbers = Vec::with_capacity(found.pus.len());
        for pu in &found.pus {
            let visible = by_size
                .iter()
                .map(|&at| &found.nodes[at])
                .find(|node| node.cpuset.contains(pu.os_index));
            let number = match (visible, &pu.complete_nodeset) {
                (Some(node), _) => node.os_index,
                (None, Some(nodes)) if nodes.first().is_some() => nodes.first().unwrap_or(0),
                _ => {
                    return self.malformed(machine, format!("CPU {} is in no NUMA node", pu.os_index));
                }
            };
            numbers.push(number);
        }
        let known: BTreeSet<u32> = found.nodes.iter().map(|node| node.os_index).collect();
        let hidden: BTreeSet<u32> = numbers
            .iter()
            .copied()
            .filter(|number| !known.contains(number))
            .collect();
        found.nodes.extend(hidden.into_iter().map(|os_index| NumaNode {
            os_index,
            gp_index: None,
            memory_bytes: 0,
            cpuset: Bitmap::nothing(),
            depth: 0,
        }));
        Ok(numbers)
    }

    fn cpu_kinds(&self) -> Result<Vec<CpuKind>, TopologyError> {
        let mut kinds = Vec::new();
        for element in self
            .document
            .root_element()
            .children()
            .filter(|child| child.has_tag_name("cpukind"))
        {
            let Some(cpuset) = self.bitmap(element, "cpuset")? else {
                return self.malformed(element, "this cpukind has no cpuset".to_owned());
            };
            let info = |name| {
                let mut infos = element.children().filter(|child| child.has_tag_name("info"));
                let value = infos
                    .find(|info| info.attribute("name") == Some(name))?
                    .attribute("value")?;
                value.parse::<u32>().ok().filter(|&value| value > 0)
            };
            kinds.push(CpuKind {
                cpuset,
                capacity: info("LinuxCapacity"),
                max_mhz: info("FrequencyMaxMHz"),
            });
        }
        Ok(kinds)
    }

    fn os_index(&self, object: Element<'a, 'a>) -> Result<u32, TopologyError> {
        match self.number(object, "os_index")? {
            Some(os_index) if os_index <= MAX_NUMBER => Ok(os_index),
            _ => self.malformed(object, format!("expected is an os_index from 0 to {MAX_NUMBER}")),
        }
    }

    fn bitmap(&self, element: Element<'a, 'a>, name: &str) -> Result<Option<Bitmap>, TopologyError> {
        let Some(text) = element.attribute(name) else {
            return Ok(None);
        };
        match Bitmap::parse(text) {
            Some(set) => Ok(Some(set)),
            None => self.malformed(
                element,
                format!("{name} `{text:.40}` is not a set such as 0x0000000f,0xffffffff"),
            ),
        }
    }

    fn number<T: FromStr>(&self, element: Element<'a, 'a>, name: &str) -> Result<Option<T>, TopologyError> {
        let Some(text) = element.attribute(name) else {
            return Ok(None);
        };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(_) => self.malformed(element, format!("{name} `{text:.40}` is not a number that fits")),
        }
    }

    fn malformed<T>(&self, element: Element<'a, 'a>, message: String) -> Result<T, TopologyError> {
        let line = self.document.text_pos_at(element.range().start).row;
        Err(TopologyError::Malformed {
            place: format!("{}:{line}", self.file),
            message,
        })
    }
}

/// CPUs of one speed.
struct CpuKind {
    cpuset: Bitmap,
    capacity: Option<u32>,
    max_mhz: Option<u32>,
}

/// The speed of each CPU in the first unit that is told for all, or all equal.
fn capacities(pus: &[Pu], kinds: &[CpuKind]) -> Vec<u32> {
    let told = |unit: fn(&CpuKind) -> Option<u32>| -> Option<Vec<u32>> {
        pus.iter()
            .map(|pu| {
                kinds
                    .iter()
                    .find(|kind| kind.cpuset.contains(pu.os_index))
                    .and_then(unit)
            })
            .collect()
    };
    told(|kind| kind.capacity)
        .or_else(|| told(|kind| kind.max_mhz))
        .unwrap_or_else(|| vec![1; pus.len()])
}

/// A number for each package found, and one more for CPUs outside all packages: its own, or else the lowest that
/// is free.
fn package_numbers(packages: &[Option<u32>]) -> Vec<u32> {
    let taken: BTreeSet<u32> = packages.iter().flatten().copied().collect();
    let mut free = (0..).filter(|number| !taken.contains(number));
    packages
        .iter()
        .chain([&None])
        .map(|number| number.or_else(|| free.next()).unwrap_or(u32::MAX))
        .collect()
}

fn is_object(element: Element<'_, '_>, kind: &str) -> bool {
    element.has_tag_name("object") && element.attribute("type") == Some(kind)
}

fn file_stem(file: &str) -> String {
    Path::new(file)
        .file_stem()
        .map_or_else(|| file.to_owned(), |stem| stem.to_string_lossy().into_owned())
}
