//! Maps as objects define them: variables of `.maps` whose types describe the map.
//!
//! Numbers are lengths of arrays that members point to (`__uint(max_entries, 8)`), types are the targets of
//! member pointers (`__type(key, u32)`).

use crate::btf::{Btf, Type, TypeId};
use crate::data_types::Collector;
use crate::fault::LoadError;
use crate::image::{MapDefinition, MapKind};

/// A map of the object.
pub(crate) enum DefinedMap {
    Supported(MapDefinition),
    /// Using it is an error, for this reason.
    Unsupported(LoadError),
}

/// The definition in the type of a variable of `.maps`.
pub(crate) fn read_map(
    name: &str,
    id: TypeId,
    btf: &Btf,
    types: &mut Collector<'_>,
) -> Result<DefinedMap, LoadError> {
    let Type::Composite { members, .. } = btf.resolved(id)? else {
        return Err(LoadError(format!("the definition of map `{name}` is not a structure")));
    };
    let mut of = [None; 2];
    let (mut kind, mut key_size, mut value_size, mut max_entries) = (0, 0, 0, 0);
    for member in members {
        let Some(pointee) = btf.pointee(member.of)? else { continue };
        let number = || match btf.resolved(pointee)? {
            Type::Array { count, .. } => Ok(u64::from(*count)),
            _ => Err(LoadError(format!("`{}` of map `{name}` is not a number", member.name))),
        };
        match member.name {
            "type" => kind = number()?,
            "max_entries" => max_entries = number()?,
            "key_size" => key_size = number()?,
            "value_size" => value_size = number()?,
            "key" => (key_size, of[0]) = (btf.size(pointee)?, Some(types.add(pointee)?)),
            "value" => (value_size, of[1]) = (btf.size(pointee)?, Some(types.add(pointee)?)),
            _ => {}
        }
    }
    if key_size > SIZE_MAX || value_size > SIZE_MAX {
        return Err(LoadError(format!("the keys or values of map `{name}` are too large")));
    }
    Ok(match map_kind(kind) {
        Ok(kind) => DefinedMap::Supported(MapDefinition {
            name: name.into(),
            kind,
            key_size: key_size as usize,
            value_size: value_size as usize,
            max_entries: max_entries as usize,
            types: of,
        }),
        Err(kind) => DefinedMap::Unsupported(LoadError(format!(
            "map `{name}` is of type {kind}, which the simulator does not have"
        ))),
    })
}

/// Bytes of the largest key or value that kernels allow.
const SIZE_MAX: u64 = i32::MAX as u64;

/// The kind of a number, or the name of the type that is not supported.
fn map_kind(number: u64) -> Result<MapKind, String> {
    Ok(match number {
        1 => MapKind::Hash,
        2 => MapKind::Array,
        4 => MapKind::PerfEventArray,
        5 => MapKind::PerCpuHash,
        6 => MapKind::PerCpuArray,
        9 => MapKind::LruHash,
        10 => MapKind::LruPerCpuHash,
        22 => MapKind::Queue,
        23 => MapKind::Stack,
        27 => MapKind::RingBuffer,
        29 => MapKind::TaskStorage,
        32 => MapKind::CgroupStorage,
        33 => MapKind::Arena,
        _ => {
            let name = UNSUPPORTED.iter().find(|(known, _)| *known == number);
            return Err(name.map_or(format!("{number}"), |(_, name)| format!("BPF_MAP_TYPE_{name}")));
        }
    })
}

const UNSUPPORTED: &[(u64, &str)] = &[
    (3, "PROG_ARRAY"),
    (7, "STACK_TRACE"),
    (8, "CGROUP_ARRAY"),
    (11, "LPM_TRIE"),
    (12, "ARRAY_OF_MAPS"),
    (13, "HASH_OF_MAPS"),
    (14, "DEVMAP"),
    (15, "SOCKMAP"),
    (16, "CPUMAP"),
    (17, "XSKMAP"),
    (18, "SOCKHASH"),
    (19, "CGROUP_STORAGE"),
    (20, "REUSEPORT_SOCKARRAY"),
    (21, "PERCPU_CGROUP_STORAGE"),
    (24, "SK_STORAGE"),
    (25, "DEVMAP_HASH"),
    (26, "STRUCT_OPS"),
    (28, "INODE_STORAGE"),
    (30, "BLOOM_FILTER"),
    (31, "USER_RINGBUF"),
    (34, "INSN_ARRAY"),
];
