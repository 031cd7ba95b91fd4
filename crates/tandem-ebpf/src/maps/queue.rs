//! Queues and stacks: values without keys.

use super::{EXIST, NOEXIST, errno, stride_of};
use crate::fault::Fault;
use crate::image::{MapDefinition, MapKind};
use crate::memory::Memory;

/// A ring of values. A stack pops from the end to which it pushes.
#[derive(Debug)]
pub(crate) struct Queue {
    /// The address of the first place; 0 before the first value comes: most queues of a map of maps stay empty.
    values: u64,
    pub value_size: usize,
    max_entries: usize,
    is_stack: bool,
    /// Position of the oldest.
    first: usize,
    count: usize,
}

impl Queue {
    pub fn new(definition: &MapDefinition) -> Self {
        Self {
            values: 0,
            value_size: definition.value_size,
            max_entries: definition.max_entries,
            is_stack: definition.kind == MapKind::Stack,
            first: 0,
            count: 0,
        }
    }

    /// Pushes the value at an address; with [`EXIST`] it replaces the oldest if there is no room.
    pub fn push(&mut self, memory: &mut Memory, value: u64, flags: u64) -> Result<u64, Fault> {
        if flags & NOEXIST != 0 || flags > EXIST {
            return Ok(errno::EINVAL);
        }
        if self.values == 0 && self.max_entries > 0 {
            self.values = memory.allocate(stride_of(self.value_size).saturating_mul(self.max_entries))?;
        }
        if self.count == self.max_entries {
            if flags != EXIST || self.count == 0 {
                return Ok(errno::E2BIG);
            }
            self.first = (self.first + 1) % self.max_entries;
            self.count -= 1;
        }
        memory.copy(value, self.at(self.count), self.value_size)?;
        self.count += 1;
        Ok(0)
    }

    /// Copies the next value to an address (zeros if there is none), and removes it if `remove`.
    pub fn take(&mut self, memory: &mut Memory, value: u64, remove: bool) -> Result<u64, Fault> {
        if self.count == 0 {
            memory.slice_mut(value, self.value_size)?.fill(0);
            return Ok(errno::ENOENT);
        }
        let next = if self.is_stack { self.count - 1 } else { 0 };
        memory.copy(self.at(next), value, self.value_size)?;
        if remove {
            self.count -= 1;
            if !self.is_stack {
                self.first = (self.first + 1) % self.max_entries;
            }
        }
        Ok(0)
    }

    /// The address of the value with this index, counted from the oldest.
    fn at(&self, number: usize) -> u64 {
        let position = (self.first + number) % self.max_entries;
        self.values + (position * stride_of(self.value_size)) as u64
    }
}
