//! Arrays of performance events, in which user space installs counters and buffers for records.
//!
//! Nothing is installed here: a machine that is simulated has no performance counters, and nobody reads the
//! records, which are only counted.

use super::errno;
use crate::image::MapDefinition;

/// Flags of the functions: the position in the array, and the position that means the present CPU's.
const POSITION: u64 = 0xffff_ffff;
const CURRENT_CPU: u64 = POSITION;

#[derive(Debug)]
pub(crate) struct PerfEventArray {
    count: u64,
    /// Number of records that nobody received.
    pub dropped: u64,
}

impl PerfEventArray {
    pub fn new(definition: &MapDefinition) -> Self {
        Self { count: definition.max_entries as u64, dropped: 0 }
    }

    /// Checks the position that flags name, for a program on this CPU; or the error number.
    pub fn check(&self, flags: u64, cpu: usize) -> Result<(), u64> {
        let position = match flags & POSITION {
            CURRENT_CPU => cpu as u64,
            position => position,
        };
        match flags & !POSITION {
            0 if position < self.count => Ok(()),
            0 => Err(errno::E2BIG),
            _ => Err(errno::EINVAL),
        }
    }
}
