//! Reads that survive wrong addresses, and comparison of texts.

use super::Table;
use crate::fault::Fault;
use crate::maps::errno;
use crate::memory::Memory;
use crate::runtime::Run;
use std::cmp::Ordering;

pub(super) const TABLE: Table = &[
    ("bpf_probe_read", read),
    ("bpf_probe_read_kernel", read),
    ("bpf_probe_read_user", read),
    ("bpf_probe_read_str", read_text),
    ("bpf_probe_read_kernel_str", read_text),
    ("bpf_probe_read_user_str", read_text),
    ("bpf_strncmp", compare),
];

/// Copies `length` bytes; zeros and an error if the addresses are invalid.
fn read(run: &mut Run, [destination, size, source, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let size = size as u32 as usize;
    let memory = &mut run.state.memory;
    if memory.contains(source, size) {
        memory.copy(source, destination, size)?;
        return Ok(0);
    }
    memory.slice_mut(destination, size)?.fill(0);
    Ok(errno::EFAULT)
}

/// Copies a text, cut to the size and always with a 0 at its end; returns the number of bytes including the
/// 0.
fn read_text(run: &mut Run, [destination, size, source, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let size = size as u32 as usize;
    let memory = &mut run.state.memory;
    if size == 0 {
        return Ok(0);
    }
    if !memory.contains(source, 1) {
        memory.slice_mut(destination, size)?.fill(0);
        return Ok(errno::EFAULT);
    }
    let length = text_bytes(memory, source, size - 1)?.len();
    memory.copy(source, destination, length)?;
    memory.store(destination + length as u64, 1, 0)?;
    Ok(length as u64 + 1)
}

/// Compares a text of at most this many bytes with another one: less than 0, 0, or more.
fn compare(run: &mut Run, [a, size, b, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let size = size as u32 as usize;
    let memory = &run.state.memory;
    Ok(match text_bytes(memory, a, size)?.cmp(text_bytes(memory, b, size)?) {
        Ordering::Less => -1_i64 as u64,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    })
}

/// The bytes of a text without the terminating 0, at most this many.
fn text_bytes(memory: &Memory, address: u64, length_max: usize) -> Result<&[u8], Fault> {
    let room = (Memory::BASE + memory.len() as u64).saturating_sub(address);
    let bytes = memory.slice(address, length_max.min(usize::try_from(room).unwrap_or(usize::MAX)))?;
    Ok(&bytes[..bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len())])
}
