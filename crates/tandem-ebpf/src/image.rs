//! A linked object: code and data with their addresses, and the functions that it imports.

use crate::data_types::{DataTypeId, DataTypes};
use crate::kernel::KernelFunction;
use crate::known::KnownResult;
use crate::maps::Recent;
use crate::memory::Memory;
use crate::op::Op;
use std::collections::BTreeMap;

/// The number of a function in an [`Image`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId(pub u32);

/// A linked object.
#[derive(Clone, Debug)]
pub struct Image {
    /// All functions that can be reached, programs and those that they call.
    pub functions: Vec<Function>,
    /// Functions of the kernel that are called.
    pub imports: Vec<Import>,
    /// The reason for each [`Op::Poison`].
    pub poisons: Vec<String>,
    /// Global data. Addresses follow each other from [`crate::Memory::BASE`] on, aligned to 64 bytes, in this
    /// order.
    pub sections: Vec<DataSection>,
    /// Maps, by number.
    pub maps: Vec<MapDefinition>,
    /// The schedulers that it defines; usually one.
    pub struct_ops: Vec<StructOps>,
    /// Programs that are not part of a scheduler, by name.
    pub programs: BTreeMap<String, Program>,
    /// Global variables, by name.
    pub variables: BTreeMap<String, Variable>,
    /// The types of its variables, of elements of its maps, and of arguments of its programs.
    pub types: DataTypes,
    /// The types of which programs make objects, by the numbers that they use for them.
    pub objects: BTreeMap<u64, ObjectType>,
    /// Variables of the kernel that it refers to: name, and the address that stands for each.
    pub kernel_variables: Vec<(String, u64)>,
}

impl Image {
    /// The address that stands for a map, by number: `MAPS + number`. It cannot be dereferenced.
    pub const MAPS: u64 = 2 << 48;
    /// The address that stands for a function, by number.
    pub const FUNCTIONS: u64 = 3 << 48;
    /// Addresses of kernel variables: one every [`Image::VARIABLE_SPACING`]. Their contents are at
    /// [`crate::State::variable`].
    pub const VARIABLES: u64 = 4 << 48;
    /// See [`Image::VARIABLES`].
    pub const VARIABLE_SPACING: u64 = 1 << 20;
    /// With the address of its memory, the address that stands for an object of which each CPU has its own.
    pub const PER_CPU_OBJECTS: u64 = 5 << 48;

    /// The address behind global data where machine code finds, for each map that is an array, the address of
    /// its first value; 8 bytes a map.
    pub(crate) fn places_of_arrays(&self) -> u64 {
        let ends = self.sections.iter().map(|section| section.address + section.bytes.len() as u64);
        ends.max().unwrap_or(Memory::BASE).next_multiple_of(8)
    }

    /// Behind these, where machine code finds values of storage, by number of the map.
    pub(crate) fn recent_values(&self, map: usize) -> Recent {
        let before = self.maps[..map].iter().filter(|map| map.kind.is_storage()).count() as u64;
        let begin =
            (self.places_of_arrays() + 8 * self.maps.len() as u64).next_multiple_of(Recent::PLACE_SIZE);
        Recent { places: begin + before * Recent::SIZE }
    }

    /// The first address beyond global data, and beyond what machine code finds there.
    pub(crate) fn data_end(&self) -> u64 {
        self.recent_values(self.maps.len()).places
    }
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name in the source.
    pub name: String,
    /// Its instructions. The last one does not fall through.
    pub ops: Vec<Op>,
}

/// A function of the kernel that is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Import {
    /// Done by the runtime: helper or kfunc by name.
    Runtime(&'static str),
    /// Known without a call.
    Known(KnownResult),
    /// Done by the kernel.
    Kernel(KernelFunction, String),
}

/// Global data.
#[derive(Clone, Debug)]
pub struct DataSection {
    /// As in the file, `.rodata` for instance.
    pub name: String,
    /// Its first address.
    pub address: u64,
    /// Its initial content.
    pub bytes: Vec<u8>,
}

/// A global variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its address.
    pub address: u64,
    /// Bytes.
    pub size: usize,
    /// It is in a read-only section: a setting.
    pub is_setting: bool,
    /// Its type.
    pub of: DataTypeId,
}

/// A program that is not part of a scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// The section that contains it, which is the kind of program: `syscall`.
    pub section: String,
    /// Its code.
    pub function: FunctionId,
    /// What its argument points to: the type, and its size in bytes. `None` if it has none.
    pub argument: Option<(DataTypeId, usize)>,
}

/// A type of which programs make objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectType {
    /// The name of the structure.
    pub name: String,
    /// Bytes.
    pub size: usize,
    /// The nodes that it has for lists and trees, with their offsets.
    pub nodes: Vec<(usize, NodeKind)>,
    /// It has a counter of references (`struct bpf_refcount`).
    pub is_counted: bool,
}

/// Kinds of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NodeKind {
    List,
    Tree,
}

impl NodeKind {
    /// The structure that it is in a program.
    pub(crate) fn structure(self) -> &'static str {
        match self {
            Self::List => "bpf_list_node",
            Self::Tree => "bpf_rb_node",
        }
    }

    /// What has such nodes.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Tree => "tree",
        }
    }
}

/// A structure of callbacks and values.
#[derive(Clone, Debug)]
pub struct StructOps {
    /// Its name in the source.
    pub name: String,
    /// Its type is `sched_ext_ops_cid`, not `sched_ext_ops`: callbacks get and give topological numbers of CPUs.
    pub is_by_cid: bool,
    /// The callbacks that are set.
    pub callbacks: BTreeMap<String, FunctionId>,
    /// The values that are set, numbers up to 64 bits, by name.
    pub numbers: BTreeMap<String, u64>,
    /// The values that are texts.
    pub texts: BTreeMap<String, String>,
}

/// A map as the object defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapDefinition {
    /// Its name in the source.
    pub name: String,
    /// Kind of the map.
    pub kind: MapKind,
    /// Bytes of a key; 0 if it has none.
    pub key_size: usize,
    /// Bytes of a value.
    pub value_size: usize,
    /// Most elements; of a ring buffer, bytes.
    pub max_entries: usize,
    /// Types of a key and of a value, if the object says them.
    pub types: [Option<DataTypeId>; 2],
    /// The definition of the maps in it, of a map of maps.
    pub inner: Option<Box<MapDefinition>>,
    /// The maps that are in it from the beginning, of a map of maps: positions in an array, and numbers of maps.
    pub initial: Vec<(u32, usize)>,
}

impl MapDefinition {
    /// Whether a map of another definition may be in a map of maps instead of one of this definition.
    pub(crate) fn stands_for(&self, other: &Self) -> bool {
        let is_sized = matches!(self.kind, MapKind::Array | MapKind::PerCpuArray);
        self.kind == other.kind
            && self.key_size == other.key_size
            && self.value_size == other.value_size
            && (!is_sized || self.max_entries == other.max_entries)
    }
}

/// Kinds of maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MapKind {
    Hash,
    PerCpuHash,
    LruHash,
    LruPerCpuHash,
    Array,
    PerCpuArray,
    /// One value a task, cgroup: the key is the address of its structure.
    TaskStorage,
    CgroupStorage,
    RingBuffer,
    Queue,
    Stack,
    PerfEventArray,
    Arena,
    ArrayOfMaps,
    HashOfMaps,
}

impl MapKind {
    /// Whether it has values of objects, by their addresses.
    pub(crate) fn is_storage(self) -> bool {
        matches!(self, Self::TaskStorage | Self::CgroupStorage)
    }

    /// Whether its values are maps.
    pub fn is_of_maps(self) -> bool {
        matches!(self, Self::ArrayOfMaps | Self::HashOfMaps)
    }
}
