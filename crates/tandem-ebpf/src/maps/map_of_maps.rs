//! Maps of maps. Programs only look maps up in them: user space, or the object, puts maps there.
//!
//! What they contain lies outside of the memory of programs: the addresses that stand for maps.

use super::Key;
use crate::fault::Fault;
use crate::image::{MapDefinition, MapKind};
use crate::memory::Memory;
use std::collections::BTreeMap;

#[derive(Debug)]
pub(crate) struct MapOfMaps {
    pub key_size: usize,
    is_array: bool,
    max_entries: usize,
    /// The addresses that stand for maps, by the bytes of their keys.
    maps: BTreeMap<Vec<u8>, u64>,
}

impl MapOfMaps {
    pub fn new(definition: &MapDefinition) -> Self {
        Self {
            key_size: definition.key_size,
            is_array: definition.kind == MapKind::ArrayOfMaps,
            max_entries: definition.max_entries,
            maps: BTreeMap::new(),
        }
    }

    /// The address that stands for the map whose key is at an address; 0 if there is none.
    pub fn lookup(&self, memory: &Memory, key: u64) -> Result<u64, Fault> {
        Ok(self.find(memory.slice(key, self.key_size)?))
    }

    /// The same by the key's bytes.
    pub fn find(&self, key: &[u8]) -> u64 {
        self.maps.get(key).copied().unwrap_or(0)
    }

    /// Puts a map there; returns whether there is room for it.
    pub fn set(&mut self, key: &[u8], map: u64) -> bool {
        let has_room = match self.is_array {
            true => Key::index_of(key).is_some_and(|index| (index as usize) < self.max_entries),
            false => self.maps.len() < self.max_entries || self.maps.contains_key(key),
        };
        if has_room {
            self.maps.insert(key.to_vec(), map);
        }
        has_room
    }
}
