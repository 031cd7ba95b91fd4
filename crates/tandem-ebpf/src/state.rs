//! The state of an instance, except for its code.

use crate::fault::Fault;
use crate::helpers::{Timer, format};
use crate::image::Image;
use crate::maps::{Map, RingBuffer, unsupported};
use crate::memory::Memory;
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
    map_names: Vec<String>,
    /// Maps that contain a value for each object of the kernel.
    storages: Vec<usize>,
    variables: Vec<Variable>,
    /// By the addresses of their structures.
    pub(crate) timers: BTreeMap<u64, Timer>,
    printed: VecDeque<String>,
    /// See [`State::instructions`].
    pub(crate) instructions: u64,
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
        let maps = image
            .maps
            .iter()
            .enumerate()
            .map(|(number, map)| Map::new(&mut memory, map, cpu_count, image.recent_values(number)));
        let maps = maps.collect::<Result<Vec<_>, _>>()?;
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
            map_names: image.maps.iter().map(|map| map.name.clone()).collect(),
            storages: (0..image.maps.len()).filter(|&map| is_storage(map)).collect(),
            variables,
            timers: BTreeMap::new(),
            printed: VecDeque::new(),
            instructions: 0,
        })
    }

    /// The number of a map, by its name in the source.
    pub fn map(&self, name: &str) -> Option<usize> {
        self.map_names.iter().position(|map| map == name)
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
                self.map_names[map],
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

    /// Drops the stored values of a task or cgroup that no longer exists, by the address of its structure.
    pub fn forget(&mut self, object: u64) {
        for &map in &self.storages {
            if let Map::Hash(storage) = &mut self.maps[map] {
                storage.forget(&mut self.memory, &object.to_le_bytes());
            }
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

    /// As [`Map::update`]; timers end with their elements.
    pub(crate) fn update(
        &mut self,
        map: usize,
        key: u64,
        value: u64,
        flags: u64,
        cpu: usize,
    ) -> Result<u64, Fault> {
        let result = self.maps[map].update(&mut self.memory, key, value, flags, cpu);
        self.end_timers(map);
        result
    }

    /// As [`Map::delete`]; timers end with their elements.
    pub(crate) fn delete(&mut self, map: usize, key: u64) -> Result<u64, Fault> {
        let result = self.maps[map].delete(&mut self.memory, key);
        self.end_timers(map);
        result
    }

    /// Forgets the timers of an element that has been removed. The kernel may still report their expiry,
    /// which then has no effect.
    fn end_timers(&mut self, map: usize) {
        if let Map::Hash(hash) = &mut self.maps[map]
            && let Some(block) = hash.removed.take()
            && !self.timers.is_empty()
        {
            let end = block + hash.block_size() as u64;
            self.timers.retain(|timer, _| !(block..end).contains(timer));
        }
    }
}

#[cold]
fn no_map(address: u64) -> Fault {
    Fault(format!("{address:#x} is not a map"))
}
