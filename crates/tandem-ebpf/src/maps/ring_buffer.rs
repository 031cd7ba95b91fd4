//! Ring buffers: records for a reader outside.
//!
//! A record is read as soon as it is submitted, so only records that a program has reserved take room. Read
//! records wait to be fetched; as the simulator need not fetch them, the oldest go when they fill the buffer.

use super::errno;
use crate::fault::Fault;
use crate::memory::Memory;
use std::collections::VecDeque;

/// Bytes before each record, in the kernel's buffer.
const HEADER: usize = 8;
/// Arguments of [`RingBuffer::query`]: unread bytes, size, positions of the reader and the writers.
const AVAILABLE: u64 = 0;
const SIZE: u64 = 1;
const READ: u64 = 2;
const WRITTEN: u64 = 3;

#[derive(Debug)]
pub(crate) struct RingBuffer {
    size: usize,
    /// Records that a program has reserved: address, bytes.
    reserved: Vec<(u64, usize)>,
    reserved_bytes: usize,
    written_bytes: u64,
    records: VecDeque<Vec<u8>>,
    record_bytes: usize,
    /// Number of records that were dropped before they were fetched.
    pub dropped: u64,
}

impl RingBuffer {
    pub fn new(size: usize) -> Self {
        Self {
            size,
            reserved: Vec::new(),
            reserved_bytes: 0,
            written_bytes: 0,
            records: VecDeque::new(),
            record_bytes: 0,
            dropped: 0,
        }
    }

    /// The address of a new record; 0 if there is no room.
    pub fn reserve(&mut self, memory: &mut Memory, size: u64) -> Result<u64, Fault> {
        let Some(size) = self.fitting(size) else { return Ok(0) };
        let address = memory.allocate(size)?;
        self.reserved.push((address, size));
        self.reserved_bytes += room(size);
        self.written_bytes += room(size) as u64;
        Ok(address)
    }

    /// Submits or discards a record; returns whether it was one.
    pub fn commit(&mut self, memory: &mut Memory, address: u64, submit: bool) -> Result<bool, Fault> {
        let Some(position) = self.reserved.iter().position(|&(start, _)| start == address) else {
            return Ok(false);
        };
        let (_, size) = self.reserved.remove(position);
        self.reserved_bytes -= room(size);
        if submit {
            self.keep(memory.slice(address, size)?.to_vec());
        }
        memory.free(address, size);
        Ok(true)
    }

    /// Writes the bytes at an address as a record.
    pub fn output(&mut self, memory: &Memory, data: u64, size: u64) -> Result<u64, Fault> {
        let Some(size) = self.fitting(size) else { return Ok(errno::EAGAIN) };
        self.written_bytes += room(size) as u64;
        self.keep(memory.slice(data, size)?.to_vec());
        Ok(0)
    }

    pub fn query(&self, what: u64) -> u64 {
        match what {
            AVAILABLE => self.reserved_bytes as u64,
            SIZE => self.size as u64,
            READ => self.written_bytes - self.reserved_bytes as u64,
            WRITTEN => self.written_bytes,
            _ => 0,
        }
    }

    /// Fetches the submitted records.
    pub fn drain(&mut self) -> impl Iterator<Item = Vec<u8>> + '_ {
        self.record_bytes = 0;
        self.records.drain(..)
    }

    fn fitting(&self, size: u64) -> Option<usize> {
        let size = usize::try_from(size).ok().filter(|&size| size <= self.size)?;
        (self.reserved_bytes + room(size) <= self.size).then_some(size)
    }

    fn keep(&mut self, record: Vec<u8>) {
        self.record_bytes += room(record.len());
        self.records.push_back(record);
        while self.record_bytes > self.size {
            let oldest = self.records.pop_front().expect("bytes are of records");
            self.record_bytes -= room(oldest.len());
            self.dropped += 1;
        }
    }
}

/// The room that a record takes, bytes.
fn room(size: usize) -> usize {
    size.next_multiple_of(8) + HEADER
}
