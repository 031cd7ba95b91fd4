//! Maps as objects define them: variables of `.maps` whose types describe the map.
//!
//! Numbers are lengths of arrays that members point to (`__uint(max_entries, 8)`), types are the targets of
//! member pointers (`__type(key, u32)`). A map of maps has an array of pointers to the type of the maps in it
//! (`__array(values, struct inner)`); the object may say which of its maps are in it from the beginning.

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
    read(name, id, btf, types, true)
}

/// The array of the maps that are in a map from the beginning: its offset in the map's variable, bytes.
pub(crate) fn offset_of_values(id: TypeId, btf: &Btf) -> Result<Option<u64>, LoadError> {
    let Type::Composite { members, .. } = btf.resolved(id)? else { return Ok(None) };
    let values = members.iter().find(|member| member.name == "values");
    Ok(values.map(|values| u64::from(values.bit_offset) / 8))
}

fn read(
    name: &str,
    id: TypeId,
    btf: &Btf,
    types: &mut Collector<'_>,
    may_contain_maps: bool,
) -> Result<DefinedMap, LoadError> {
    let Type::Composite { members, .. } = btf.resolved(id)? else {
        return Err(LoadError(format!("the definition of map `{name}` is not a structure")));
    };
    let mut of = [None; 2];
    let (mut kind, mut key_size, mut value_size, mut max_entries) = (0, 0, 0, 0);
    let mut values = None;
    for member in members {
        if member.name == "values"
            && let Type::Array { element, .. } = btf.resolved(member.of)?
        {
            values = btf.pointee(*element)?;
        }
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
    let kind = match map_kind(kind) {
        Ok(kind) => kind,
        Err(kind) => {
            return Ok(DefinedMap::Unsupported(LoadError(format!(
                "map `{name}` is of type {kind}, which the simulator does not have"
            ))));
        }
    };
    let mut inner = None;
    if kind.is_of_maps() {
        if !may_contain_maps {
            return Err(LoadError(format!("map `{name}` is in a map of maps, and a map of maps itself")));
        }
        let Some(values) = values else {
            return Err(LoadError(format!(
                "map `{name}` does not say which maps are in it: declare them with __array(values, ...)"
            )));
        };
        match read(&format!("{name}.inner"), values, btf, types, false)? {
            DefinedMap::Supported(definition) => inner = Some(Box::new(definition)),
            unsupported @ DefinedMap::Unsupported(_) => return Ok(unsupported),
        }
        if kind == MapKind::ArrayOfMaps && key_size != 4 || key_size > KEY_OF_MAPS_MAX {
            let allowed = if kind == MapKind::ArrayOfMaps { "4" } else { "1 to 512" };
            return Err(LoadError(format!("the keys of map `{name}` have {key_size} bytes, not {allowed}")));
        }
    }
    Ok(DefinedMap::Supported(MapDefinition {
        name: name.into(),
        kind,
        key_size: key_size as usize,
        value_size: value_size as usize,
        max_entries: max_entries as usize,
        types: of,
        inner,
        initial: Vec::new(),
    }))
}

/// Bytes of the largest key or value that kernels allow.
const SIZE_MAX: u64 = i32::MAX as u64;
/// Bytes of the largest key of a map of maps: keys of hashes fit on a stack.
const KEY_OF_MAPS_MAX: u64 = 512;

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
        12 => MapKind::ArrayOfMaps,
        13 => MapKind::HashOfMaps,
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
