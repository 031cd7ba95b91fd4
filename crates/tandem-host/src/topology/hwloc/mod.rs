//! Reads a machine from hwloc's XML, as `lstopo --of xml` writes it.
//!
//! hwloc's `hwloc.dtd` (version 1) and `hwloc2.dtd` (versions 2 and 3) describe the format. The differences:
//! - Version 1 puts NUMA nodes between packages and caches, later versions attach them at the side. Both give
//!   a node's `cpuset`, which is all that this reader uses.
//! - Version 1 calls packages `Socket` and every cache `Cache`, and writes distances relative to a base.
//!
//! A CPU (hwloc: PU) counts if its own `cpuset` is not empty and the root's `online_cpuset` and
//! `allowed_cpuset` hold it. A CPU in several nodes (heterogeneous memory) belongs to the smallest of them,
//! then to the one with the lowest number; the others are nodes without CPUs. A CPU whose node is hidden
//! (disallowed to the process that wrote the file) is on a node without memory. A file without nodes has one,
//! with the memory of the `Machine` object. Speeds of hybrid cores are those of the `cpukind` elements, if
//! they cover every CPU.
//!
//! Not supported: more than one `Machine` in a file, CPU or node numbers above [`MAX_NUMBER`], and XML
//! entities, which hwloc does not write. Groups, dies, memory-side caches, I/O and miscellaneous objects are
//! ignored.

mod assemble;
mod bitmap;
mod distances;

use super::TopologyError;
use bitmap::Bitmap;
use roxmltree::{Document, Node as Element, ParsingOptions};
use std::path::Path;
use std::str::FromStr;
use tandem_file::named_file::{HWLOC_MAX, read_string};
use tandem_machine::{Llc, MAX_NUMBER, Machine};

/// Most elements of a file; a machine of 8192 CPUs has about 100 000.
const MAX_ELEMENTS: u32 = 2_000_000;
/// Deepest nesting of objects; hwloc itself stays below 128 levels.
const MAX_DEPTH: u32 = 128;
/// Value of `cache_type` that marks an instruction cache.
const INSTRUCTION_CACHE: u32 = 2;

/// Reads the machine that this file describes.
pub fn read_hwloc(file: &Path) -> Result<Machine, TopologyError> {
    let xml = read_string(file, HWLOC_MAX)
        .map_err(|cause| TopologyError::Unreadable { file: file.to_owned(), cause })?;
    parse(&xml, &file.display().to_string())
}

/// The machine that this text describes. No text makes it panic.
pub fn parse_hwloc(xml: &str) -> Result<Machine, TopologyError> {
    parse(xml, "hwloc XML")
}

fn parse(xml: &str, file: &str) -> Result<Machine, TopologyError> {
    let malformed = |message: String| TopologyError::Malformed { place: file.to_owned(), message };
    if xml.contains("<!ENTITY") {
        return Err(malformed("declares XML entities, which hwloc does not write".to_owned()));
    }
    // lstopo writes a reference to its DTD, which this reader does not fetch.
    let options = ParsingOptions { allow_dtd: true, nodes_limit: MAX_ELEMENTS, ..ParsingOptions::default() };
    let document = Document::parse_with_options(xml, options)
        .map_err(|error| malformed(format!("is not XML as lstopo writes it: {error}")))?;
    let reader = Reader { document: &document, file };
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

/// The contents of the tree of objects.
#[derive(Default)]
struct HwlocObjects {
    pus: Vec<Pu>,
    nodes: Vec<NumaNode>,
    /// Number of each package, if it has one.
    packages: Vec<Option<u32>>,
    /// Size of each cache; the index is its label.
    cache_sizes: Vec<u64>,
    cores: u32,
    largest_l2_bytes: u64,
}

/// The objects around an object.
#[derive(Clone, Copy, Default)]
struct Surroundings {
    package: Option<usize>,
    core: Option<u32>,
    /// Level and label.
    llc: Option<(u32, u32)>,
    depth: u32,
}

/// The usable CPUs.
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
            return self.malformed(root, "expected <topology>, as lstopo --of xml writes it".to_owned());
        }
        let mut machines = root.descendants().filter(|element| is_object(*element, "Machine"));
        match (machines.next(), machines.next()) {
            (Some(machine), None) => Ok(machine),
            (None, _) => self.malformed(root, "has no object of type Machine".to_owned()),
            (_, Some(second)) => {
                self.malformed(second, "several objects of type Machine are not supported".to_owned())
            }
        }
    }

    fn collect(&self, machine: Element<'a, 'a>) -> Result<HwlocObjects, TopologyError> {
        let mut usable = Usable { sets: Vec::new() };
        for name in ["cpuset", "online_cpuset", "allowed_cpuset"] {
            usable.sets.extend(self.bitmap(machine, name)?);
        }
        let mut found = HwlocObjects::default();
        self.walk(machine, Surroundings::default(), &usable, &mut found)?;
        Ok(found)
    }

    fn walk(
        &self,
        object: Element<'a, 'a>,
        mut around: Surroundings,
        usable: &Usable,
        found: &mut HwlocObjects,
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
            "PU" => found.pus.extend(self.pu(object, around, usable, &mut found.cores)?),
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
        let offline = self.bitmap(object, "cpuset")?.is_some_and(|cpuset| cpuset.is_empty());
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

    /// Records a cache; the outermost one of the highest level is the last-level cache of what is inside.
    fn cache(
        &self,
        object: Element<'a, 'a>,
        around: &mut Surroundings,
        found: &mut HwlocObjects,
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

    fn os_index(&self, object: Element<'a, 'a>) -> Result<u32, TopologyError> {
        match self.number(object, "os_index")? {
            Some(os_index) if os_index <= MAX_NUMBER => Ok(os_index),
            _ => self.malformed(object, format!("expected an os_index from 0 to {MAX_NUMBER}")),
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
            Err(_) => self.malformed(element, format!("{name} `{text:.40}` is not a number in range")),
        }
    }

    fn malformed<T>(&self, element: Element<'a, 'a>, message: String) -> Result<T, TopologyError> {
        let line = self.document.text_pos_at(element.range().start).row;
        Err(TopologyError::Malformed { place: format!("{}:{line}", self.file), message })
    }
}

fn is_object(element: Element<'_, '_>, kind: &str) -> bool {
    element.has_tag_name("object") && element.attribute("type") == Some(kind)
}
