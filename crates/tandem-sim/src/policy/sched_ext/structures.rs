//! Access to structures of the kernel in the memory of programs: a task's, and fields of any.

use super::types::{SignalStruct, Task};
use tandem_ebpf::{Fault, Memory};

/// The structure of a task, followed by the data that programs get by its address, and in memory by its set
/// of CPUs.
#[repr(C)]
pub struct TaskBlock {
    pub task: Task,
    /// The simulator's number of the task.
    pub number: u64,
    /// The address of its cgroup.
    pub cgroup: u64,
    /// Its own address; 0 after the task has ended.
    pub address: u64,
    /// The structure that threads of a process share, for a task with a process of its own.
    pub signal: SignalStruct,
}

impl TaskBlock {
    /// Size, bytes.
    pub const SIZE: usize = size_of::<Self>();
}

/// Offset and size of a field in its structure, bytes.
pub type Field = (u64, usize);

/// The [`Field`] of a structure with that path.
macro_rules! field {
    ($type:ty, $($field:ident).+) => {
        (std::mem::offset_of!($type, $($field).+) as u64, $crate::policy::sched_ext::structures::size_of_field(
            |t: &$type| &t.$($field).+,
        ))
    };
}
pub(super) use field;

/// Bytes of the field that a function gives access to.
pub(super) const fn size_of_field<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// A field of 64 bits in the structure of a task. The compiler knows its offset, so that this takes no check.
#[inline]
pub(super) fn word(block: &mut [u8; TaskBlock::SIZE], (offset, _): Field) -> &mut [u8; 8] {
    block[offset as usize..].first_chunk_mut().expect("a field lies in the structure")
}

/// Writes a field of the structure at an address.
pub(super) fn store(
    memory: &mut Memory,
    structure: u64,
    (offset, bytes): Field,
    value: u64,
) -> Result<(), Fault> {
    memory.store(structure + offset, bytes, value)
}
