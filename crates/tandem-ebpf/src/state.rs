//! The state of an instance, except for its code.

use crate::budget::Budget;
use crate::fault::Fault;
use crate::helpers::{Timer, format};
use crate::image::{Image, MapDefinition};
use crate::maps::{Map, RingBuffer, unsupported};
use crate::memory::Memory;
use crate::objects::Objects;
use crate::runtime::Run;
use std::collections::{BTreeMap, VecDeque};

/// The state of an instance, except for its code. Its maps have numbers: their positions in [`Image::maps`].
#[derive(Debug)]
pub struct State {
    /// All that programs can see.
    pub memory: Memory,
    /// The first address beyond the stack.
    pub(crate) stack_end: u64,
    /// The address from which the stack is free for a call from outside.
    pub(crate) stack_top: u64,
    pub(crate) cpu_count: usize,
    pub(crate) maps: Vec<Map>,
    /// Their definitions: those of the image first.
    definitions: Vec<MapDefinition>,
    /// See [`Image::places_of_arrays`].
    places_of_arrays: u64,
    /// Maps that contain a value for each object of the kernel.
    storages: Vec<usize>,
    variables: Vec<Variable>,
    /// By the addresses of their structures.
    pub(crate) timers: BTreeMap<u64, Timer>,
    /// Objects that programs have allocated.
    pub(crate) objects: Objects,
    printed: VecDeque<String>,
    /// See [`State::instructions`].
    pub(crate) instructions: u64,
    /// What its calls may still execute.
    pub(crate) budget: Budget,
}

/// A variable of the kernel.
#[derive(Debug)]
struct Variable {
    name: String,
    /// The address by which programs refer to it.
    stands_at: u64,
    /// Address of its contents, one block a CPU.
    contents: u64,
}

impl State {
    /// Bytes that each variable of the kernel has on each CPU.
    pub const VARIABLE_SIZE: usize = 4096;
    /// Lines that [`State::printed`] keeps.
    pub const PRINTED_MAX: usize = 1000;
    /// Enough for calls that nest through loops, timers and the kernel.
    const STACK_SIZE: u64 = 64 * Run::FRAME_SIZE;

    /// Instructions that programs have executed so far. Machine code does not count them.
    pub fn instructions(&self) -> u64 {
        self.instructions
    }

    pub(crate) fn new(image: &Image, cpu_count: usize) -> Result<Self, Fault> {
        let mut memory = Memory::new();
        let data_size = image.data_end() - Memory::BASE;
        if data_size > 0 {
            memory.allocate(data_size.next_multiple_of(64) as usize)?;
        }
        for section in &image.sections {
            memory.slice_mut(section.address, section.bytes.len())?.copy_from_slice(&section.bytes);
        }
        let stack = memory.allocate(Self::STACK_SIZE as usize)?;
        let mut variables = Vec::new();
        for (name, stands_at) in &image.kernel_variables {
            let contents = memory.allocate(Self::VARIABLE_SIZE * cpu_count)?;
            variables.push(Variable { name: name.clone(), stands_at: *stands_at, contents });
        }
        let maps =
            image.maps.iter().enumerate().map(|(number, map)| {
                Map::new(&mut memory, map, cpu_count, Some(image.recent_values(number)))
            });
        let mut maps = maps.collect::<Result<Vec<_>, _>>()?;
        for (map, definition) in maps.iter_mut().zip(&image.maps) {
            let Map::MapOfMaps(map) = map else { continue };
            for &(position, inner) in &definition.initial {
                let mut key = position.to_le_bytes().to_vec();
                key.resize(definition.key_size, 0);
                map.set(&key, Image::MAPS + inner as u64);
            }
        }
        for (map, place) in maps.iter().zip((image.places_of_arrays()..).step_by(8)) {
            if let Map::Array(array) = map {
                memory.store(place, 8, array.values)?;
            }
        }
        let is_storage = |map: usize| image.maps[map].kind.is_storage();
        Ok(Self {
            memory,
            stack_end: stack + Self::STACK_SIZE,
            stack_top: stack,
            cpu_count,
            maps,
            definitions: image.maps.clone(),
            places_of_arrays: image.places_of_arrays(),
            storages: (0..image.maps.len()).filter(|&map| is_storage(map)).collect(),
            variables,
            timers: BTreeMap::new(),
            objects: Objects::default(),
            printed: VecDeque::new(),
            instructions: 0,
            budget: Budget::default(),
        })
    }

    /// The number of a map, by its name in the source.
    pub fn map(&self, name: &str) -> Option<usize> {
        self.definitions.iter().position(|map| map.name == name)
    }

    /// What a map is like.
    pub fn map_definition(&self, map: usize) -> &MapDefinition {
        &self.definitions[map]
    }

    /// The value that a map has for a key on a CPU (which matters in maps with values for each). Storage of
    /// tasks and cgroups has as keys the addresses of their structures.
    pub fn element(&self, map: usize, key: &[u8], cpu: usize) -> Option<&[u8]> {
        let value = self.maps[map].find(&self.memory, key, cpu)?;
        self.memory.slice(value, self.maps[map].value_size()).ok()
    }

    /// Sets the value of a key on a CPU, as a program would; returns whether the map accepted it.
    ///
    /// # Errors
    /// If key or value have other sizes than those of the map, or memory is used up.
    pub fn set_element(&mut self, map: usize, key: &[u8], cpu: usize, value: &[u8]) -> Result<bool, Fault> {
        let (key_size, value_size) = (self.maps[map].key_size(), self.maps[map].value_size());
        if (key.len(), value.len()) != (key_size, value_size) {
            return Err(Fault(format!(
                "an element of the map `{}` has a key of {key_size} bytes and a value of {value_size}, \
                 not of {} and {}",
                self.definitions[map].name,
                key.len(),
                value.len()
            )));
        }
        let key_address = self.memory.allocate(key_size)?;
        let value_address = self.memory.allocate(value_size)?;
        self.memory.slice_mut(key_address, key_size)?.copy_from_slice(key);
        self.memory.slice_mut(value_address, value_size)?.copy_from_slice(value);
        let result = self.update(map, key_address, value_address, 0, cpu);
        self.memory.free(key_address, key_size);
        self.memory.free(value_address, value_size);
        Ok(result? == 0)
    }

    /// Gives a map that is still empty another number of elements, as user space does before it loads the object.
    ///
    /// # Errors
    /// If the object itself says how many an array has, which its code relies on; or memory is used up.
    pub fn resize_map(&mut self, map: usize, max_entries: usize) -> Result<(), Fault> {
        let definition = &mut self.definitions[map];
        let is_array = matches!(self.maps[map], Map::Array(_));
        if is_array && definition.max_entries != 0 {
            return Err(Fault(format!(
                "the map `{}` has {} elements, as the object says, and cannot have another number",
                definition.name, definition.max_entries
            )));
        }
        definition.max_entries = max_entries;
        let recent = self.maps[map].recent();
        self.maps[map] = Map::new(&mut self.memory, definition, self.cpu_count, recent)?;
        match &self.maps[map] {
            Map::Array(array) => self.memory.store(self.places_of_arrays + 8 * map as u64, 8, array.values),
            _ => Ok(()),
        }
    }

    /// Makes a map to be put into a map of maps, which says what it is like; returns its number. `max_entries`
    /// is another number of elements than the map of maps says.
    ///
    /// # Errors
    /// If the map is not of maps, an array would have another length, or memory is used up.
    pub fn make_inner_map(&mut self, outer: usize, max_entries: Option<usize>) -> Result<usize, Fault> {
        let mut definition = match &self.definitions[outer] {
            MapDefinition { inner: Some(inner), .. } => (**inner).clone(),
            other => return Err(Fault(format!("the map `{}` has no maps in it", other.name))),
        };
        definition.max_entries = max_entries.unwrap_or(definition.max_entries);
        self.check_inner(outer, &definition)?;
        let map = Map::new(&mut self.memory, &definition, self.cpu_count, None)?;
        if definition.kind.is_storage() {
            self.storages.push(self.maps.len());
        }
        self.maps.push(map);
        self.definitions.push(definition);
        Ok(self.maps.len() - 1)
    }

    /// Puts a map into a map of maps; returns whether there is room for it.
    ///
    /// # Errors
    /// If the map is not of maps, or not of maps like that, or the key has another size.
    pub fn set_inner_map(&mut self, outer: usize, key: &[u8], inner: usize) -> Result<bool, Fault> {
        self.check_inner(outer, &self.definitions[inner])?;
        let name = &self.definitions[outer].name;
        match &mut self.maps[outer] {
            Map::MapOfMaps(maps) if maps.key_size == key.len() => {
                Ok(maps.set(key, Image::MAPS + inner as u64))
            }
            _ => Err(Fault(format!("a key of the map `{name}` does not have {} bytes", key.len()))),
        }
    }

    fn check_inner(&self, outer: usize, inner: &MapDefinition) -> Result<(), Fault> {
        let outer = &self.definitions[outer];
        match &outer.inner {
            Some(expected) if inner.stands_for(expected) => Ok(()),
            Some(_) => Err(Fault(format!(
                "the map `{}` cannot be in the map `{}`, which is for maps of another type or size",
                inner.name, outer.name
            ))),
            None => Err(Fault(format!("the map `{}` has no maps in it", outer.name))),
        }
    }

    /// Drops the stored values of a task or cgroup that no longer exists, by the address of its structure.
    pub fn forget(&mut self, object: u64) {
        let storages = std::mem::take(&mut self.storages);
        for &map in &storages {
            self.forget_in(map, object);
        }
        self.storages = storages;
    }

    /// Drops the value that a map has for a task or cgroup; returns whether there was one.
    pub(crate) fn forget_in(&mut self, map: usize, object: u64) -> bool {
        let Map::Hash(storage) = &mut self.maps[map] else { return false };
        let existed = storage.forget(&mut self.memory, &object.to_le_bytes());
        // Memory of objects is there while they are.
        let _ = self.end_contents(map);
        existed
    }

    /// A call from outside has ended: memory of objects that have gone is used again.
    #[inline]
    pub(crate) fn end_call(&mut self) {
        if self.objects.wants_sweep() && self.stack_top == self.stack_end - Self::STACK_SIZE {
            self.objects.sweep(&mut self.memory);
        }
    }

    /// Fetches the records that programs have written to a ring buffer.
    pub fn drain(&mut self, map: usize) -> Vec<Vec<u8>> {
        self.ring_buffer(map).map(|buffer| buffer.drain().collect()).unwrap_or_default()
    }

    /// Number of records of a map that nobody received: of a ring buffer, those that newer ones replaced before
    /// they were fetched; of an array of performance events, all.
    pub fn dropped(&self, map: usize) -> u64 {
        match &self.maps[map] {
            Map::RingBuffer(buffer) => buffer.dropped,
            Map::PerfEventArray(events) => events.dropped,
            _ => 0,
        }
    }

    /// How many objects that programs have allocated live.
    pub fn object_count(&self) -> usize {
        self.objects.count()
    }

    /// The last texts that programs printed, one for each call.
    pub fn printed(&self) -> impl Iterator<Item = &str> {
        self.printed.iter().map(String::as_str)
    }

    /// The address of the contents of a variable of the kernel for a CPU, [`State::VARIABLE_SIZE`] bytes, if
    /// programs refer to it.
    pub fn variable(&self, name: &str, cpu: usize) -> Option<u64> {
        let variable = self.variables.iter().find(|variable| variable.name == name)?;
        Some(variable.contents + (cpu * Self::VARIABLE_SIZE) as u64)
    }

    /// A text with values in it, as `bpf_printk` makes it: the format at an address, and 64 bits for each
    /// value at another one.
    ///
    /// # Errors
    /// If the format is not one of the kernel's, or there are too few values for it.
    pub fn format(&self, format: u64, values: u64, values_bytes: usize) -> Result<String, Fault> {
        let bytes = if values_bytes == 0 { &[] } else { self.memory.slice(values, values_bytes)? };
        let number = |value: &[u8]| u64::from_le_bytes(value.try_into().expect("chunks are of 8 bytes"));
        let values: Vec<u64> = bytes.chunks_exact(8).map(number).collect();
        self.format_values(format, &values)
    }

    pub(crate) fn format_values(&self, format: u64, values: &[u64]) -> Result<String, Fault> {
        format::format(&self.memory, &self.memory.text(format, format::FORMAT_MAX)?, values)
    }

    pub(crate) fn print(&mut self, text: &str) {
        if self.printed.len() == Self::PRINTED_MAX {
            self.printed.pop_front();
        }
        self.printed.push_back(text.trim_end_matches('\n').to_owned());
    }

    /// The contents of a variable of the kernel on a CPU, by the address that programs use for it, or one
    /// inside it.
    pub(crate) fn variable_at(&self, address: u64, cpu: usize) -> Result<u64, Fault> {
        if let Some(place) = self.objects.of_cpu(address, cpu) {
            return Ok(place);
        }
        let inside = |variable: &&Variable| {
            address.checked_sub(variable.stands_at).is_some_and(|offset| offset < Self::VARIABLE_SIZE as u64)
        };
        let variable = self.variables.iter().find(inside).ok_or_else(|| {
            Fault(format!("{address:#x} is not the address of a variable that each CPU has"))
        })?;
        Ok(variable.contents + (cpu * Self::VARIABLE_SIZE) as u64 + (address - variable.stands_at))
    }

    /// The number of the map that an address stands for.
    #[inline]
    pub(crate) fn map_number(&self, address: u64) -> Result<usize, Fault> {
        let number = address.wrapping_sub(Image::MAPS);
        if number < self.maps.len() as u64 { Ok(number as usize) } else { Err(no_map(address)) }
    }

    pub(crate) fn ring_buffer(&mut self, map: usize) -> Result<&mut RingBuffer, Fault> {
        match &mut self.maps[map] {
            Map::RingBuffer(buffer) => Ok(buffer),
            _ => Err(unsupported("writing a record")),
        }
    }

    /// As [`Map::update`]; timers and objects end with their elements.
    pub(crate) fn update(
        &mut self,
        map: usize,
        key: u64,
        value: u64,
        flags: u64,
        cpu: usize,
    ) -> Result<u64, Fault> {
        let replaced = self.value_with_objects(map, key, cpu)?;
        let result = self.maps[map].update(&mut self.memory, key, value, flags, cpu)?;
        if let (Some((value, places)), 0) = (replaced, result) {
            let end = value + self.maps[map].value_size() as u64;
            self.objects.release_all_in(&mut self.memory, value, end)?;
            for place in places {
                self.memory.store(place, 8, 0)?;
            }
        }
        self.end_contents(map)?;
        Ok(result)
    }

    /// The value that an update replaces, if objects are in it: in fields, lists and trees at these addresses.
    fn value_with_objects(&self, map: usize, key: u64, cpu: usize) -> Result<Option<(u64, Vec<u64>)>, Fault> {
        if self.objects.are_nowhere() {
            return Ok(None);
        }
        let key = self.memory.slice(key, self.maps[map].key_size())?;
        let Some(value) = self.maps[map].find(&self.memory, key, cpu) else { return Ok(None) };
        let places = self.objects.places_in(value, value + self.maps[map].value_size() as u64);
        Ok((!places.is_empty()).then_some((value, places)))
    }

    /// As [`Map::delete`]; timers and objects end with their elements.
    pub(crate) fn delete(&mut self, map: usize, key: u64) -> Result<u64, Fault> {
        let result = self.maps[map].delete(&mut self.memory, key)?;
        self.end_contents(map)?;
        Ok(result)
    }

    /// Forgets the timers of an element that has been removed, and releases its objects. The kernel may still
    /// report the expiry of timers, which then has no effect.
    fn end_contents(&mut self, map: usize) -> Result<(), Fault> {
        let Map::Hash(hash) = &mut self.maps[map] else { return Ok(()) };
        let Some(block) = hash.removed.take() else { return Ok(()) };
        let end = block + hash.block_size() as u64;
        if !self.timers.is_empty() {
            self.timers.retain(|timer, _| !(block..end).contains(timer));
        }
        match self.objects.are_nowhere() {
            true => Ok(()),
            false => self.objects.release_all_in(&mut self.memory, block, end),
        }
    }
}

#[cold]
fn no_map(address: u64) -> Fault {
    Fault(format!("{address:#x} is not a map"))
}
