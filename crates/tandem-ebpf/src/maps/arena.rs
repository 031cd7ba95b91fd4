//! Arenas: pages of memory that programs share with user space, for structures of their own making.
//!
//! In a kernel, a pointer into an arena is an address of user space, and an instruction makes of its lower
//! half an address that programs can follow. Here pages come from [`Memory`], whose addresses begin at 2^32:
//! both kinds of addresses are the same, and [`follow`] only restores the upper half. So an access through
//! such a pointer is checked as any other is.
//!
//! Limits: pages have the addresses that they get, not those that a program asks for. A wrong pointer may
//! point to what is not the arena's, and pages that are freed stay readable, where a kernel would make loads
//! give 0.

use crate::fault::Fault;
use crate::image::MapDefinition;
use crate::memory::Memory;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(crate) struct Arena {
    pages_max: u64,
    /// Addresses of the pages that are in use.
    pages: BTreeSet<u64>,
}

impl Arena {
    pub fn new(definition: &MapDefinition) -> Self {
        Self { pages_max: definition.max_entries as u64, pages: BTreeSet::new() }
    }

    /// The address of this many new pages, all 0; 0 if the arena has no room for them.
    pub fn allocate(&mut self, memory: &mut Memory, count: u64) -> Result<u64, Fault> {
        if count == 0 || count > self.pages_max - self.pages.len() as u64 {
            return Ok(0);
        }
        let bytes = usize::try_from(count).ok().and_then(|count| count.checked_mul(Memory::PAGE));
        let first = memory.allocate(bytes.unwrap_or(usize::MAX))?;
        self.pages.extend((first..).step_by(Memory::PAGE).take(count as usize));
        Ok(first)
    }

    /// Frees this many pages; those that are not in use do not matter.
    pub fn free(&mut self, memory: &mut Memory, first: u64, count: u64) {
        let first = follow(first) / Memory::PAGE as u64 * Memory::PAGE as u64;
        let end = first.saturating_add(count.saturating_mul(Memory::PAGE as u64));
        let freed: Vec<u64> = self.pages.range(first..end).copied().collect();
        for page in freed {
            self.pages.remove(&page);
            memory.free(page, Memory::PAGE);
        }
    }
}

/// The address that a pointer into an arena means, by its lower half; 0 is no address.
pub(crate) fn follow(pointer: u64) -> u64 {
    match pointer & u64::from(u32::MAX) {
        0 => 0,
        low => Memory::BASE | low,
    }
}
