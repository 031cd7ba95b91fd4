//! Machine files: a machine in TOML, written by hand or by `tandem topology --format toml`.
//!
//! ```toml
//! name = "two sockets"
//! isolated = "3"                   # CPUs kept for tasks that name them; may be left out
//! tickless = "3"                   # CPUs whose tick stops while one task runs; may be left out
//!
//! [hardware]                       # each key may be left out; `Hardware::GENERIC` stands in
//! clock = "2.4 GHz"
//! l2 = "256 KiB"
//! llc_latency = "17 ns"
//! local_memory_latency = "84 ns"
//! remote_memory_latency = "122 ns"
//!
//! [[node]]
//! number = 0
//! memory = "6 GiB"
//! bandwidth = "20.4 GB/s"
//! distances = [10, 20]             # to each node, in the order of the file
//!
//! [[node]]
//! number = 1                       # no memory
//! distances = [20, 10]
//!
//! [[llc]]
//! number = 0
//! size = "12 MiB"
//!
//! [[cores]]                        # cores that have package, node, cache and capacity in common
//! package = 0
//! node = 0
//! llc = 0                          # left out if no last-level cache is reported
//! cpus = ["0,4", "1,5"]            # the threads of each core
//!
//! [[cores]]
//! package = 1
//! node = 1
//! cpus = ["2-3"]
//! capacity = 500                   # of the 1000 of the fastest core
//! ```
//!
//! Which keys a reader allows is in the schema (`MachineFile` implements `JsonSchema`).

mod write;

pub use write::to_toml;

use crate::schema;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::path::Path;
use tandem_file::file_error::{FileError, read_text};
use tandem_file::located::SourceFile;
use tandem_file::units::{Bandwidth, Duration, Frequency, Size};
use tandem_machine::{
    CpuSpec, Hardware, MAX_CPUS, Machine, MachineBuilder, MachineError, NodeSpec, ShapeError, machine_named,
    parse_cpulist, preset_names,
};
use toml::Spanned;

/// A machine file.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MachineFile {
    /// Name of the machine.
    name: String,
    /// CPUs that run only tasks that name them, as a list such as "2-3"; none if left out.
    #[schemars(with = "Option<String>")]
    isolated: Option<Spanned<String>>,
    /// CPUs whose tick the kernel stops while one task runs there, as a list such as "2-3"; none if left out.
    #[schemars(with = "Option<String>")]
    tickless: Option<Spanned<String>>,
    /// Constants of its cores and its memory.
    #[schemars(with = "Option<HardwareTable>")]
    hardware: Option<Spanned<HardwareTable>>,
    /// NUMA nodes.
    #[schemars(with = "Vec<NodeTable>")]
    node: Vec<Spanned<NodeTable>>,
    /// Last-level caches.
    #[serde(default)]
    #[schemars(with = "Vec<LlcTable>")]
    llc: Vec<Spanned<LlcTable>>,
    /// Groups of cores.
    #[schemars(with = "Vec<CoresTable>")]
    cores: Vec<Spanned<CoresTable>>,
}

/// Constants of cores and memory; those of a generic server stand in for what is left out.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct HardwareTable {
    /// Clock, in whole MHz.
    clock: Option<Frequency>,
    /// Size of the private cache of a core.
    l2: Option<Size>,
    /// Latency of a load from the last-level cache.
    llc_latency: Option<Duration>,
    /// Latency of a load from memory of the core's own node.
    local_memory_latency: Option<Duration>,
    /// Latency of a load from memory at distance 20.
    remote_memory_latency: Option<Duration>,
}

/// A NUMA node.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    /// Its number.
    number: u32,
    /// Its memory; none if left out.
    memory: Option<Size>,
    /// Bandwidth that its memory controllers sustain; required with `memory`.
    bandwidth: Option<Bandwidth>,
    /// Distances to all nodes, in the order of the file; all nodes give them, or none.
    #[schemars(with = "Option<Vec<u32>>")]
    distances: Option<Spanned<Vec<u32>>>,
}

/// A last-level cache.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LlcTable {
    /// The number by which cores name it.
    number: u32,
    /// Its size.
    size: Size,
}

/// Cores that have everything but their CPUs in common.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CoresTable {
    /// Number of the package.
    package: u32,
    /// Number of the NUMA node.
    node: u32,
    /// Number of the last-level cache; none if left out.
    llc: Option<u32>,
    /// The CPUs of each core, as a list such as "0,8" or "0-3".
    #[schemars(with = "Vec<String>")]
    cpus: Vec<Spanned<String>>,
    /// Speed in thousandths of the fastest core.
    #[serde(default = "full_capacity")]
    #[schemars(range(min = 1, max = 1000))]
    capacity: u32,
}

const FULL_CAPACITY: u32 = 1000;

fn full_capacity() -> u32 {
    FULL_CAPACITY
}

/// The machine in a scenario file: a name or a path, or the tables of a machine file.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum MachineForm {
    /// The name of a built-in machine, PACKAGESxCORESxTHREADS such as 2x64x2, or the path of a machine file.
    Named(String),
    /// The contents of a machine file.
    Inline(Box<MachineFile>),
}

impl<'de> Deserialize<'de> for MachineForm {
    /// By hand, because an untagged enum loses the positions in the file.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = MachineForm;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a machine, the path of a machine file, or the tables of one")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<MachineForm, E> {
                Ok(MachineForm::Named(name.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<MachineForm, A::Error> {
                MachineFile::deserialize(MapAccessDeserializer::new(map))
                    .map(Box::new)
                    .map(MachineForm::Inline)
            }
        }
        deserializer.deserialize_any(Form)
    }
}

/// Why there is no machine of a name.
#[derive(Debug, thiserror::Error)]
pub enum MachineNameError {
    /// The name has the form of one, with wrong numbers.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// Its file is wrong.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is nothing.
    #[error(
        "`{name}` is neither a file nor a machine like 2x64x2 nor a preset; the presets are {}",
        preset_names().collect::<Vec<_>>().join(", ")
    )]
    Unknown {
        /// The name.
        name: String,
    },
}

/// The machine of that name, or of that file. A name comes before that of a file, which is still reached as `./NAME`.
///
/// # Errors
/// If there is none, or it is wrong.
pub fn named_or_file(name: &str) -> Result<Machine, MachineNameError> {
    if let Some(machine) = machine_named(name)? {
        return Ok(machine);
    }
    let path = Path::new(name);
    match path.exists() {
        true => Ok(load_machine(path)?),
        false => Err(MachineNameError::Unknown { name: name.to_owned() }),
    }
}

/// The machine in this file.
pub fn load_machine(path: &Path) -> Result<Machine, FileError> {
    parse_machine(&read_text(path)?, &path.display().to_string())
}

/// The machine in this text; `file_name` is for errors.
pub fn parse_machine(text: &str, file_name: &str) -> Result<Machine, FileError> {
    let source = SourceFile::new(Path::new(file_name), text);
    source.check_shape(&schema::MACHINE)?;
    let file: MachineFile =
        toml::from_str(text).map_err(|error| FileError::from_toml(file_name, text, &error))?;
    source.check_texts()?;
    file.machine(|span, message| match span {
        Some(span) => FileError::at(file_name, text, span, message),
        None => FileError::whole(file_name, message),
    })
}

impl MachineFile {
    /// The machine that it describes; `wrong` makes an error of a place, if known, and a sentence.
    ///
    /// # Errors
    /// If it is not a machine.
    pub fn machine(
        &self,
        wrong: impl Fn(Option<Range<usize>>, String) -> FileError,
    ) -> Result<Machine, FileError> {
        let file = self;
        let at = |span: Range<usize>, message: String| wrong(Some(span), message);
        let mut builder = MachineBuilder::new(&file.name);
        if let Some(table) = &file.hardware {
            let hardware = hardware(table.get_ref()).map_err(|message| at(table.span(), message))?;
            builder = builder.hardware(hardware);
        }
        for node in &file.node {
            let node = node.get_ref();
            builder = builder.node(NodeSpec {
                os_index: node.number,
                memory_bytes: node.memory.unwrap_or_default().bytes,
                bandwidth_bytes_per_s: node.bandwidth.unwrap_or_default().bytes_per_s,
            });
        }
        if let Some(rows) = distances(&file.node).map_err(|(span, message)| at(span, message))? {
            builder = builder.distances(rows);
        }
        for llc in &file.llc {
            builder = builder.llc(llc.get_ref().number, llc.get_ref().size.bytes);
        }
        let mut core = 0;
        let mut count = 0;
        let mut of_all_cores = BTreeSet::<u32>::new();
        for cores in &file.cores {
            let table = cores.get_ref();
            if !(1..=FULL_CAPACITY).contains(&table.capacity) {
                let message = format!("capacity {} is outside 1 to {FULL_CAPACITY}", table.capacity);
                return Err(at(cores.span(), message));
            }
            for list in &table.cpus {
                let cpus =
                    parse_cpulist(list.get_ref()).map_err(|error| at(list.span(), error.to_string()))?;
                if cpus.is_empty() {
                    return Err(at(
                        list.span(),
                        "a core needs at least one CPU, as in \"0\" or \"0,8\"".to_owned(),
                    ));
                }
                count += cpus.len();
                if count > MAX_CPUS {
                    // Refused early: a short list can name many CPUs.
                    return Err(at(list.span(), MachineError::TooManyCpus(count).to_string()));
                }
                of_all_cores.extend(&cpus);
                for os_index in cpus {
                    builder = builder.cpu(CpuSpec {
                        os_index,
                        core,
                        llc: table.llc,
                        node: table.node,
                        package: table.package,
                        capacity: table.capacity,
                    });
                }
                core += 1;
            }
        }
        let of_cores = |list: &Spanned<String>, what: &str| {
            let cpus = parse_cpulist(list.get_ref()).map_err(|error| at(list.span(), error.to_string()))?;
            match cpus.iter().find(|&cpu| !of_all_cores.contains(cpu)) {
                Some(cpu) => Err(at(
                    list.span(),
                    format!("CPU {cpu} is {what} and in no core; CPUs of cores are allowed"),
                )),
                None => Ok(cpus),
            }
        };
        if let Some(list) = &file.isolated {
            builder = builder.isolated(of_cores(list, "isolated")?);
        }
        if let Some(list) = &file.tickless {
            builder = builder.tickless(of_cores(list, "tickless")?);
        }
        builder.build().map_err(|error| wrong(place_of(&error, file), error.to_string()))
    }
}

fn hardware(table: &HardwareTable) -> Result<Hardware, String> {
    let generic = Hardware::GENERIC;
    let latency = |key: &str, value: Option<Duration>, generic: u32| match value {
        None => Ok(generic),
        Some(value) => {
            u32::try_from(value.ns).map_err(|_| format!("{key} is {value}; at most 4.294 s are allowed"))
        }
    };
    let clock_mhz = match table.clock {
        None => generic.clock_mhz,
        Some(clock) => match u32::try_from(clock.hz / 1_000_000) {
            Ok(mhz) if clock.hz % 1_000_000 == 0 => mhz,
            _ => return Err(format!("clock is {clock}; a whole number of MHz is needed")),
        },
    };
    Ok(Hardware {
        clock_mhz,
        l2_bytes: table.l2.map_or(generic.l2_bytes, |size| size.bytes),
        llc_latency_ns: latency("llc_latency", table.llc_latency, generic.llc_latency_ns)?,
        local_memory_latency_ns: latency(
            "local_memory_latency",
            table.local_memory_latency,
            generic.local_memory_latency_ns,
        )?,
        remote_memory_latency_ns: latency(
            "remote_memory_latency",
            table.remote_memory_latency,
            generic.remote_memory_latency_ns,
        )?,
    })
}

/// A mistake: its place in the text, and a sentence.
type Mistake = (Range<usize>, String);

/// The rows of all nodes; nothing if no node has one.
fn distances(nodes: &[Spanned<NodeTable>]) -> Result<Option<Vec<Vec<u32>>>, Mistake> {
    if nodes.iter().all(|node| node.get_ref().distances.is_none()) {
        return Ok(None);
    }
    let mut rows = Vec::with_capacity(nodes.len());
    for node in nodes {
        match &node.get_ref().distances {
            None => {
                let message = "distances are missing here; give them for every node or for none";
                return Err((node.span(), message.to_owned()));
            }
            Some(row) if row.get_ref().len() != nodes.len() => {
                let (found, expected) = (row.get_ref().len(), nodes.len());
                return Err((
                    row.span(),
                    format!("{found} distances for {expected} nodes; one for each is needed"),
                ));
            }
            Some(row) => rows.push(row.get_ref().clone()),
        }
    }
    Ok(Some(rows))
}

/// The table whose line an error about an inconsistency names.
fn place_of(error: &MachineError, file: &MachineFile) -> Option<Range<usize>> {
    let last_node =
        |number: u32| file.node.iter().rev().find(|node| node.get_ref().number == number).map(Spanned::span);
    let last_llc =
        |number: u32| file.llc.iter().rev().find(|llc| llc.get_ref().number == number).map(Spanned::span);
    let last_cpu = |number: u32| {
        let mut lists = file.cores.iter().rev().flat_map(|cores| cores.get_ref().cpus.iter().rev());
        lists
            .find(|list| parse_cpulist(list.get_ref()).is_ok_and(|cpus| cpus.contains(&number)))
            .map(Spanned::span)
    };
    match *error {
        MachineError::DuplicateNode(node) | MachineError::NoBandwidth(node) => last_node(node),
        MachineError::BadDistance { from, .. } => last_node(from),
        MachineError::DuplicateLlc(llc) | MachineError::EmptyLlc(llc) => last_llc(llc),
        MachineError::DuplicateCpu(cpu) | MachineError::NoCapacity(cpu) => last_cpu(cpu),
        MachineError::UnknownNode { cpu, .. } | MachineError::UnknownLlc { cpu, .. } => last_cpu(cpu),
        MachineError::SplitCore { second, .. } => last_cpu(second),
        MachineError::EmptyL2 | MachineError::NoClock | MachineError::LatencyOrder { .. } => {
            file.hardware.as_ref().map(Spanned::span)
        }
        MachineError::NoCpu
        | MachineError::NoNode
        | MachineError::TooManyCpus(_)
        | MachineError::TooManyNodes(_)
        | MachineError::DistanceShape { .. } => None,
    }
}
