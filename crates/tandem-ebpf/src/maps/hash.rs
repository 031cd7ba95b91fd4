//! Hash maps: an open-addressed table of positions, and elements in a list, in the order of insertion or use.
//!
//! An element has a block of memory: its key, then its values, one per CPU.

use super::{EXIST, Key, NOEXIST, errno, stride_of};
use crate::fault::Fault;
use crate::image::{MapDefinition, MapKind};
use crate::memory::Memory;

/// No position.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Hash {
    pub key_size: usize,
    pub value_size: usize,
    cpu_count: usize,
    max_entries: usize,
    /// Makes room by dropping the element that was used the longest time ago.
    replaces: bool,
    elements: Vec<Element>,
    /// Positions in `elements` that are not in use.
    free: Vec<u32>,
    count: usize,
    /// Positions in `elements`, or [`NONE`]. The length is a power of two, at least twice the number of
    /// elements.
    table: Vec<u32>,
    /// The ends of the list.
    first: u32,
    last: u32,
    /// Of storage: where machine code finds the values of some objects.
    pub recent: Option<Recent>,
    /// The block of an element that an update or deletion has removed, for callers with further state of it.
    pub removed: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Element {
    block: u64,
    hash: u64,
    before: u32,
    after: u32,
}

impl Hash {
    pub fn new(definition: &MapDefinition, cpu_count: usize) -> Self {
        Self {
            key_size: definition.key_size,
            value_size: definition.value_size,
            cpu_count,
            max_entries: definition.max_entries,
            replaces: matches!(definition.kind, MapKind::LruHash | MapKind::LruPerCpuHash),
            elements: Vec::new(),
            free: Vec::new(),
            count: 0,
            table: vec![NONE; 8],
            first: NONE,
            last: NONE,
            recent: None,
            removed: None,
        }
    }

    /// As [`Hash::new`], for values of objects, whose keys are their addresses.
    pub fn storage(definition: &MapDefinition, recent: Option<Recent>) -> Self {
        let unlimited = MapDefinition { key_size: 8, max_entries: usize::MAX, ..definition.clone() };
        Self { recent, ..Self::new(&unlimited, 1) }
    }

    #[inline]
    pub fn lookup(&mut self, memory: &Memory, key: u64, cpu: usize) -> Result<u64, Fault> {
        let key = memory.slice(key, self.key_size)?;
        let Some(position) = self.position(memory, hash_of(key), key) else { return Ok(0) };
        self.use_now(position);
        Ok(self.value(position, cpu))
    }

    pub fn find(&self, memory: &Memory, key: &[u8], cpu: usize) -> u64 {
        self.position(memory, hash_of(key), key).map_or(0, |position| self.value(position, cpu))
    }

    /// As [`Hash::find`], for storage; machine code finds the value by itself from now on, until another object
    /// takes the place.
    #[inline]
    pub fn find_object(&self, memory: &mut Memory, object: u64) -> Result<u64, Fault> {
        let hash = mix(mix(0, object), 0);
        let Some(position) = self.position(memory, hash, &object.to_le_bytes()) else { return Ok(0) };
        let value = self.value(position, 0);
        if let Some(recent) = &self.recent {
            recent.note(memory, object, value)?;
        }
        Ok(value)
    }

    pub fn update(
        &mut self,
        memory: &mut Memory,
        key: u64,
        value: u64,
        flags: u64,
        cpu: usize,
    ) -> Result<u64, Fault> {
        memory.slice(value, self.value_size)?;
        let bytes = memory.slice(key, self.key_size)?;
        let hash = hash_of(bytes);
        let position = match self.position(memory, hash, bytes) {
            Some(_) if flags == NOEXIST => return Ok(errno::EEXIST),
            None if flags == EXIST => return Ok(errno::ENOENT),
            Some(position) => position,
            None if self.count < self.max_entries => self.insert_copy(memory, hash, key)?,
            None if self.replaces && self.first != NONE => {
                self.removed = Some(self.remove(memory, self.first));
                self.insert_copy(memory, hash, key)?
            }
            None => return Ok(errno::E2BIG),
        };
        self.use_now(position);
        memory.copy(value, self.value(position, cpu), self.value_size)?;
        Ok(0)
    }

    pub fn delete(&mut self, memory: &mut Memory, key: u64) -> Result<u64, Fault> {
        let key = memory.slice(key, self.key_size)?;
        let Some(position) = self.position(memory, hash_of(key), key) else { return Ok(errno::ENOENT) };
        self.removed = Some(self.remove(memory, position));
        Ok(0)
    }

    /// Makes the value of an object that has none yet: a copy of what is at an address, or zeros if that is
    /// 0. Returns the address of the value.
    pub fn create(&mut self, memory: &mut Memory, object: u64, value: u64) -> Result<u64, Fault> {
        let position = self.insert(memory, hash_of(&object.to_le_bytes()))?;
        memory.store(self.elements[position as usize].block, 8, object)?;
        let address = self.value(position, 0);
        if value != 0 {
            memory.copy(value, address, self.value_size)?;
        }
        Ok(address)
    }

    /// Removes the value of an object; returns whether there was one.
    pub fn forget(&mut self, memory: &mut Memory, key: &[u8]) -> bool {
        let position = self.position(memory, hash_of(key), key);
        if let Some(position) = position {
            self.removed = Some(self.remove(memory, position));
        }
        position.is_some()
    }

    /// In the order of the list.
    pub fn elements(&self, cpu: usize) -> impl Iterator<Item = (Key, u64)> {
        let existing = |position: u32| (position != NONE).then_some(position);
        std::iter::successors(existing(self.first), move |&position| {
            existing(self.elements[position as usize].after)
        })
        .map(move |position| (Key::At(self.elements[position as usize].block), self.value(position, cpu)))
    }

    /// Bytes of the block of an element.
    pub fn block_size(&self) -> usize {
        stride_of(self.key_size) + self.cpu_count * stride_of(self.value_size)
    }

    fn value(&self, position: u32, cpu: usize) -> u64 {
        let cpu = if self.cpu_count == 1 { 0 } else { cpu };
        debug_assert!(cpu < self.cpu_count, "the kernel has as many CPUs as it said");
        let offset = stride_of(self.key_size) + cpu * stride_of(self.value_size);
        self.elements[position as usize].block + offset as u64
    }

    #[inline]
    fn position(&self, memory: &Memory, hash: u64, key: &[u8]) -> Option<u32> {
        let mask = self.table.len() - 1;
        let mut slot = hash as usize & mask;
        while self.table[slot] != NONE {
            let element = &self.elements[self.table[slot] as usize];
            // Keys of one word have hashes of their own.
            if element.hash == hash
                && (self.key_size == 8 || memory.slice(element.block, self.key_size).ok()? == key)
            {
                return Some(self.table[slot]);
            }
            slot = (slot + 1) & mask;
        }
        None
    }

    fn insert_copy(&mut self, memory: &mut Memory, hash: u64, key: u64) -> Result<u32, Fault> {
        let position = self.insert(memory, hash)?;
        memory.copy(key, self.elements[position as usize].block, self.key_size)?;
        Ok(position)
    }

    /// Creates an element of zeros, whose key is still to be written.
    fn insert(&mut self, memory: &mut Memory, hash: u64) -> Result<u32, Fault> {
        let block = memory.allocate(self.block_size())?;
        let element = Element { block, hash, before: NONE, after: NONE };
        let position = match self.free.pop() {
            Some(position) => {
                self.elements[position as usize] = element;
                position
            }
            None => {
                self.elements.push(element);
                self.elements.len() as u32 - 1
            }
        };
        self.append(position);
        self.count += 1;
        if self.count * 2 > self.table.len() {
            self.grow();
        } else {
            self.enter(position);
        }
        Ok(position)
    }

    fn grow(&mut self) {
        self.table = vec![NONE; self.table.len() * 2];
        let mut position = self.first;
        while position != NONE {
            self.enter(position);
            position = self.elements[position as usize].after;
        }
    }

    /// Puts an element into the table.
    fn enter(&mut self, position: u32) {
        let mask = self.table.len() - 1;
        let mut slot = self.elements[position as usize].hash as usize & mask;
        while self.table[slot] != NONE {
            slot = (slot + 1) & mask;
        }
        self.table[slot] = position;
    }

    /// Removes an element, and returns where its block was.
    fn remove(&mut self, memory: &mut Memory, position: u32) -> u64 {
        let element = self.elements[position as usize];
        let mask = self.table.len() - 1;
        let mut hole = element.hash as usize & mask;
        while self.table[hole] != position {
            hole = (hole + 1) & mask;
        }
        // Elements behind the hole move up, unless that would put them before the slot at which a search for
        // them begins.
        let mut slot = (hole + 1) & mask;
        while self.table[slot] != NONE {
            let home = self.elements[self.table[slot] as usize].hash as usize & mask;
            if slot.wrapping_sub(home) & mask >= slot.wrapping_sub(hole) & mask {
                self.table[hole] = self.table[slot];
                hole = slot;
            }
            slot = (slot + 1) & mask;
        }
        self.table[hole] = NONE;
        if let Some(recent) = &self.recent {
            recent.forget(memory, element.block);
        }
        self.unlink(position);
        self.free.push(position);
        self.count -= 1;
        memory.free(element.block, self.block_size());
        element.block
    }

    fn use_now(&mut self, position: u32) {
        if self.replaces && self.last != position {
            self.unlink(position);
            self.append(position);
        }
    }

    fn append(&mut self, position: u32) {
        let before = std::mem::replace(&mut self.last, position);
        self.elements[position as usize].before = before;
        self.elements[position as usize].after = NONE;
        match before {
            NONE => self.first = position,
            _ => self.elements[before as usize].after = position,
        }
    }

    fn unlink(&mut self, position: u32) {
        let Element { before, after, .. } = self.elements[position as usize];
        match before {
            NONE => self.first = after,
            _ => self.elements[before as usize].after = after,
        }
        match after {
            NONE => self.last = before,
            _ => self.elements[after as usize].before = before,
        }
    }
}

/// The values of objects that were asked for last, for machine code: places of [`Recent::PLACE_SIZE`] bytes, each with
/// the address of an object, and of its value. A place without an object has zeros: there is no object at 0, and it has
/// no value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recent {
    /// The address of the first place.
    pub places: u64,
}

impl Recent {
    /// The upper bits of an object's address times this factor are the number of its place.
    pub const FACTOR: u64 = FACTOR;
    pub const BITS: u32 = 9;
    pub const PLACE_SIZE: u64 = 16;
    /// Bytes of all places.
    pub const SIZE: u64 = Self::PLACE_SIZE << Self::BITS;

    fn place_of(self, object: u64) -> u64 {
        let number = object.wrapping_mul(Self::FACTOR) >> (u64::BITS - Self::BITS);
        self.places + number * Self::PLACE_SIZE
    }

    fn note(self, memory: &mut Memory, object: u64, value: u64) -> Result<(), Fault> {
        let place = self.place_of(object);
        memory.store(place, 8, object)?;
        memory.store(place + 8, 8, value)
    }

    /// The object whose address is there has no value any more.
    fn forget(self, memory: &mut Memory, key: u64) {
        let Ok(object) = memory.load(key, 8) else { return };
        if let Ok(place) = memory.slice_mut(self.place_of(object), Self::PLACE_SIZE as usize)
            && place[..8] == object.to_le_bytes()
        {
            place.fill(0);
        }
    }
}

/// An odd number without a pattern: that of the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Multiplies words with an odd number without a pattern, and takes the upper bits, which depend on all
/// others.
#[inline]
fn mix(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word).wrapping_mul(FACTOR);
    product ^ product >> 32
}

/// Mixes the words of a key, the last one padded with zeros. Each step is reversible, so that two keys of 8
/// bytes never have the same hash.
#[inline]
fn hash_of(key: &[u8]) -> u64 {
    let mut words = key.chunks_exact(8);
    let hash = words.by_ref().fold(0, |hash, word| mix(hash, u64::from_le_bytes(word.try_into().unwrap())));
    let mut rest = [0; 8];
    rest[..words.remainder().len()].copy_from_slice(words.remainder());
    mix(hash, u64::from_le_bytes(rest))
}
