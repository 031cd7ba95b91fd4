//! Maps: state of programs that outlives a call.
//!
//! Values lie in [`Memory`] at addresses that stay while the element exists. Indices over them lie outside,
//! where a program cannot reach them. Everything is deterministic: elements are visited in the order of their
//! insertion, and a map that replaces its least recently used element does exactly that (the kernel's is an
//! approximation).
//!
//! Results are those of the kernel: 0, an address, or a negative error number. A fault is what a verifier
//! would refuse.
//!
//! Limits: an update of an element overwrites locks and pointers to the kernel's objects in its value, which the
//! kernel would leave alone, or release.

mod arena;
mod array;
mod hash;
mod map_of_maps;
mod perf_event_array;
mod queue;
mod ring_buffer;
#[cfg(test)]
mod tests;

use crate::fault::Fault;
use crate::image::{MapDefinition, MapKind};
use crate::memory::Memory;
use arena::Arena;
pub(crate) use arena::follow;
use array::Array;
use hash::Hash;
pub(crate) use hash::Recent;
use map_of_maps::MapOfMaps;
pub(crate) use perf_event_array::PerfEventArray;
use queue::Queue;
pub(crate) use ring_buffer::RingBuffer;

/// Error numbers, as functions return them.
pub(crate) mod errno {
    pub const ENOENT: u64 = -2_i64 as u64;
    pub const E2BIG: u64 = -7_i64 as u64;
    pub const EAGAIN: u64 = -11_i64 as u64;
    pub const EFAULT: u64 = -14_i64 as u64;
    pub const ENOMEM: u64 = -12_i64 as u64;
    pub const EBUSY: u64 = -16_i64 as u64;
    pub const EEXIST: u64 = -17_i64 as u64;
    pub const EINVAL: u64 = -22_i64 as u64;
    pub const EDEADLK: u64 = -35_i64 as u64;
}

/// Flags of an update: only if there is no such element, only if there is one. 0 allows both.
pub(crate) const NOEXIST: u64 = 1;
pub(crate) const EXIST: u64 = 2;
/// The update takes the lock in the value, which has no effect here.
pub(crate) const LOCK: u64 = 4;

/// A map.
#[derive(Debug)]
pub(crate) enum Map {
    Array(Array),
    /// Also the storage of tasks and cgroups, whose keys are addresses, and which has no limit.
    Hash(Hash),
    Queue(Queue),
    RingBuffer(RingBuffer),
    PerfEventArray(PerfEventArray),
    Arena(Arena),
    MapOfMaps(MapOfMaps),
}

/// The key of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    /// The number of the element; it is not in memory.
    Index(u32),
    /// At an address in memory.
    At(u64),
}

impl Key {
    /// The number of an array's element from the bytes of its key.
    fn index_of(key: &[u8]) -> Option<u32> {
        key.try_into().ok().map(u32::from_le_bytes)
    }
}

impl Map {
    /// An empty map, for this many CPUs. A map of values of objects without `recent` is never searched by machine
    /// code alone.
    pub fn new(
        memory: &mut Memory,
        definition: &MapDefinition,
        cpu_count: usize,
        recent: Option<Recent>,
    ) -> Result<Self, Fault> {
        Ok(match definition.kind {
            MapKind::Array => Self::Array(Array::new(memory, definition, 1)?),
            MapKind::PerCpuArray => Self::Array(Array::new(memory, definition, cpu_count)?),
            MapKind::Hash | MapKind::LruHash => Self::Hash(Hash::new(definition, 1)),
            MapKind::PerCpuHash | MapKind::LruPerCpuHash => Self::Hash(Hash::new(definition, cpu_count)),
            MapKind::TaskStorage | MapKind::CgroupStorage => Self::Hash(Hash::storage(definition, recent)),
            MapKind::Queue | MapKind::Stack => Self::Queue(Queue::new(definition)),
            MapKind::RingBuffer => Self::RingBuffer(RingBuffer::new(definition.max_entries)),
            MapKind::PerfEventArray => Self::PerfEventArray(PerfEventArray::new(definition)),
            MapKind::Arena => Self::Arena(Arena::new(definition)),
            MapKind::ArrayOfMaps | MapKind::HashOfMaps => Self::MapOfMaps(MapOfMaps::new(definition)),
        })
    }

    /// The address of a CPU's value of the element whose key is at an address; 0 if there is no such element.
    #[inline]
    pub fn lookup(&mut self, memory: &Memory, key: u64, cpu: usize) -> Result<u64, Fault> {
        match self {
            Self::Array(array) => Ok(array.value(memory.load(key, 4)?, cpu)),
            Self::Hash(hash) => hash.lookup(memory, key, cpu),
            Self::MapOfMaps(maps) => maps.lookup(memory, key),
            _ => Err(unsupported("looking up an element")),
        }
    }

    /// As [`Map::lookup`], for callers outside of programs: this does not count as a use.
    pub fn find(&self, memory: &Memory, key: &[u8], cpu: usize) -> Option<u64> {
        let address = match self {
            Self::Array(array) => array.value(Key::index_of(key)?.into(), cpu),
            Self::Hash(hash) => hash.find(memory, key, cpu),
            _ => 0,
        };
        (address != 0).then_some(address)
    }

    /// Sets a CPU's value of an element; key and value are at addresses.
    pub fn update(
        &mut self,
        memory: &mut Memory,
        key: u64,
        value: u64,
        flags: u64,
        cpu: usize,
    ) -> Result<u64, Fault> {
        let flags = flags & !LOCK;
        if flags > EXIST {
            return Ok(errno::EINVAL);
        }
        match self {
            Self::Array(array) => array.update(memory, key, value, flags, cpu),
            Self::Hash(hash) => hash.update(memory, key, value, flags, cpu),
            _ => Err(unsupported("updating an element")),
        }
    }

    /// Removes the element whose key is at an address.
    pub fn delete(&mut self, memory: &mut Memory, key: u64) -> Result<u64, Fault> {
        match self {
            Self::Array(_) => Ok(errno::EINVAL),
            Self::Hash(hash) => hash.delete(memory, key),
            _ => Err(unsupported("deleting an element")),
        }
    }

    /// All elements, with their values for a CPU, in the order of their insertion.
    pub fn elements(&self, cpu: usize) -> Result<Vec<(Key, u64)>, Fault> {
        match self {
            Self::Array(array) => Ok(array.elements(cpu).collect()),
            Self::Hash(hash) => Ok(hash.elements(cpu).collect()),
            _ => Err(unsupported("a loop over the elements")),
        }
    }

    /// The element in whose value an address is. This walks over all elements of a hash map.
    pub fn element_of(&self, address: u64) -> Option<(Key, u64)> {
        let size = self.value_size() as u64;
        let holds = |&(_, value): &(Key, u64)| (value..value + size).contains(&address);
        match self {
            Self::Array(array) => array.element_of(address).filter(holds),
            Self::Hash(hash) => hash.elements(0).find(holds),
            _ => None,
        }
    }

    /// Where machine code finds values of this map.
    pub fn recent(&self) -> Option<Recent> {
        match self {
            Self::Hash(hash) => hash.recent,
            _ => None,
        }
    }

    /// Bytes of a value.
    pub fn value_size(&self) -> usize {
        match self {
            Self::Array(array) => array.value_size,
            Self::Hash(hash) => hash.value_size,
            Self::Queue(queue) => queue.value_size,
            Self::RingBuffer(_) | Self::PerfEventArray(_) | Self::Arena(_) | Self::MapOfMaps(_) => 0,
        }
    }

    /// Bytes of a key.
    pub fn key_size(&self) -> usize {
        match self {
            Self::Array(_) => 4,
            Self::Hash(hash) => hash.key_size,
            Self::MapOfMaps(maps) => maps.key_size,
            _ => 0,
        }
    }
}

#[cold]
pub(crate) fn unsupported(what: &str) -> Fault {
    Fault(format!("{what} is not possible with a map of this type"))
}

/// Values are aligned to 8 bytes.
pub(crate) fn stride_of(value_size: usize) -> usize {
    value_size.next_multiple_of(8)
}
