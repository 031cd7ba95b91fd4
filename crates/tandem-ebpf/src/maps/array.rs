//! Arrays: all elements exist from the beginning.

use super::{Key, errno, stride_of};
use crate::fault::Fault;
use crate::image::MapDefinition;
use crate::maps::NOEXIST;
use crate::memory::Memory;

#[derive(Debug)]
pub(crate) struct Array {
    /// The address of the first value. Those of an element, one a CPU, follow each other.
    pub values: u64,
    pub value_size: usize,
    /// Distance from one value to the next, bytes.
    stride: u64,
    count: u64,
    /// Number of values of an element; 1 if all CPUs share it.
    cpu_count: usize,
}

impl Array {
    pub fn new(memory: &mut Memory, definition: &MapDefinition, cpu_count: usize) -> Result<Self, Fault> {
        let stride = stride_of(definition.value_size);
        let size = stride.saturating_mul(cpu_count).saturating_mul(definition.max_entries);
        Ok(Self {
            values: memory.allocate(size)?,
            value_size: definition.value_size,
            stride: stride as u64,
            count: definition.max_entries as u64,
            cpu_count,
        })
    }

    #[inline]
    pub fn value(&self, index: u64, cpu: usize) -> u64 {
        if index >= self.count {
            return 0;
        }
        let position = match self.cpu_count {
            1 => index,
            cpu_count => {
                debug_assert!(cpu < cpu_count, "the kernel has as many CPUs as it said");
                index * cpu_count as u64 + cpu as u64
            }
        };
        self.values + position * self.stride
    }

    pub fn update(
        &mut self,
        memory: &mut Memory,
        key: u64,
        value: u64,
        flags: u64,
        cpu: usize,
    ) -> Result<u64, Fault> {
        match self.value(memory.load(key, 4)?, cpu) {
            0 => Ok(errno::E2BIG),
            _ if flags == NOEXIST => Ok(errno::EEXIST),
            address => memory.copy(value, address, self.value_size).map(|()| 0),
        }
    }

    pub fn elements(&self, cpu: usize) -> impl Iterator<Item = (Key, u64)> {
        (0..self.count).map(move |index| (Key::Index(index as u32), self.value(index, cpu)))
    }

    pub fn element_of(&self, address: u64) -> Option<(Key, u64)> {
        let index = address.checked_sub(self.values)? / (self.stride.max(1) * self.cpu_count as u64);
        (index < self.count).then(|| (Key::Index(index as u32), self.value(index, 0)))
    }
}
