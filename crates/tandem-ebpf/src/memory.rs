//! Everything that programs can see, in one linear memory.
//!
//! Addresses begin at [`Memory::BASE`], so that null pointers with offsets are out of bounds. The layout is
//! the same in each run: addresses are as deterministic as everything else.

use crate::fault::Fault;

/// A linear memory, which grows by allocation.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Its length is a multiple of 8, with [`SLACK`] bytes that belong to no address: an access of up to 8
    /// bytes only needs a check of its first one.
    bytes: Vec<u8>,
    /// End of the memory that is allocated.
    used: usize,
    /// Free blocks, by size class.
    free: Vec<Vec<u64>>,
}

/// Bytes beyond the end.
const SLACK: usize = 8;
/// Bytes of the smallest block.
const GRAIN: usize = 8;

impl Memory {
    /// The first address.
    pub const BASE: u64 = 1 << 32;
    /// Bytes of a page.
    pub const PAGE: usize = 4096;
    /// Most bytes that an instance may have.
    pub const SIZE_MAX: usize = 1 << 30;

    /// An empty memory.
    pub fn new() -> Self {
        Self { bytes: vec![0; SLACK], used: 0, free: Vec::new() }
    }

    /// Bytes that have addresses.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Whether nothing has been allocated.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Allocates this many bytes, all 0; the address is a multiple of 8, of 64 for blocks of 64 bytes and more,
    /// and of a page for blocks of a page and more.
    ///
    /// # Errors
    /// If the memory would become too large.
    pub fn allocate(&mut self, size: usize) -> Result<u64, Fault> {
        if size > Self::SIZE_MAX {
            return Err(Fault(format!("an allocation of {size} bytes is more than the simulator allows")));
        }
        let size = block_size(size);
        if let Some(address) = self.free.get_mut(class_of(size)).and_then(Vec::pop) {
            self.slice_mut(address, size)?.fill(0);
            return Ok(address);
        }
        let start = self.used.next_multiple_of(match size {
            Self::PAGE.. => Self::PAGE,
            64.. => 64,
            _ => GRAIN,
        });
        if start + size > Self::SIZE_MAX {
            return Err(Fault(format!(
                "the scheduler uses more than {} MiB of memory",
                Self::SIZE_MAX >> 20
            )));
        }
        self.used = start + size;
        if self.used + SLACK > self.bytes.len() {
            let length = (self.used + SLACK).next_power_of_two();
            self.bytes.resize(length, 0);
        }
        Ok(Self::BASE + start as u64)
    }

    /// Frees what [`Memory::allocate`] has returned for this size.
    pub fn free(&mut self, address: u64, size: usize) {
        let class = class_of(block_size(size));
        if self.free.len() <= class {
            self.free.resize(class + 1, Vec::new());
        }
        self.free[class].push(address);
    }

    /// The bytes at an address.
    ///
    /// # Errors
    /// If they are not all inside.
    #[inline]
    pub fn slice(&self, address: u64, length: usize) -> Result<&[u8], Fault> {
        let start = self.position(address, length)?;
        Ok(&self.bytes[start..start + length])
    }

    /// The bytes at an address, to be changed.
    ///
    /// # Errors
    /// If they are not all inside.
    #[inline]
    pub fn slice_mut(&mut self, address: u64, length: usize) -> Result<&mut [u8], Fault> {
        let start = self.position(address, length)?;
        Ok(&mut self.bytes[start..start + length])
    }

    /// The number of this many bytes (1, 2, 4 or 8) at an address.
    ///
    /// # Errors
    /// If it is not inside.
    #[inline]
    pub fn load(&self, address: u64, bytes: usize) -> Result<u64, Fault> {
        let start = address.wrapping_sub(Self::BASE) as usize;
        // There is slack beyond the end.
        match self.bytes.get(start..).and_then(|rest| rest.first_chunk()) {
            Some(word) if start + bytes <= self.used => {
                Ok(u64::from_le_bytes(*word) & u64::MAX >> (64 - 8 * bytes))
            }
            _ => Err(out_of_bounds(address, bytes)),
        }
    }

    /// Writes the lowest bytes (1, 2, 4 or 8) of a number.
    ///
    /// # Errors
    /// If they are not inside.
    #[inline]
    pub fn store(&mut self, address: u64, bytes: usize, value: u64) -> Result<(), Fault> {
        let start = address.wrapping_sub(Self::BASE) as usize;
        // There is slack beyond the end.
        match self.bytes.get_mut(start..).and_then(|rest| rest.first_chunk_mut::<8>()) {
            // Copies of a known length take an instruction each.
            Some(place) if start + bytes <= self.used => match bytes {
                1 => place[0] = value as u8,
                2 => place[..2].copy_from_slice(&(value as u16).to_le_bytes()),
                4 => place[..4].copy_from_slice(&(value as u32).to_le_bytes()),
                _ => *place = value.to_le_bytes(),
            },
            _ => return Err(out_of_bounds(address, bytes)),
        }
        Ok(())
    }

    /// The text at an address, up to a 0 or to the length.
    ///
    /// # Errors
    /// If it is not inside.
    pub fn text(&self, address: u64, length_max: usize) -> Result<String, Fault> {
        self.position(address, 1)?;
        let room = Self::BASE as usize + self.used - address as usize;
        let bytes = self.slice(address, length_max.min(room))?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Copies bytes from one address to another.
    ///
    /// # Errors
    /// If they are not all inside.
    #[inline]
    pub fn copy(&mut self, from: u64, to: u64, length: usize) -> Result<(), Fault> {
        let from = self.position(from, length)?;
        let to = self.position(to, length)?;
        self.bytes.copy_within(from..from + length, to);
        Ok(())
    }

    /// Whether this many bytes at an address are inside.
    #[inline]
    pub fn contains(&self, address: u64, length: usize) -> bool {
        let start = address.wrapping_sub(Self::BASE);
        start.checked_add(length as u64).is_some_and(|end| end <= self.used as u64)
    }

    #[inline]
    fn position(&self, address: u64, length: usize) -> Result<usize, Fault> {
        if self.contains(address, length) {
            Ok((address - Self::BASE) as usize)
        } else {
            Err(out_of_bounds(address, length))
        }
    }

    /// All words of 8 bytes at addresses that are multiples of 8.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.bytes[..self.used].as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
    }

    /// The bytes, for machine code: where they begin, and how many have addresses.
    pub(crate) fn raw(&mut self) -> (*mut u8, u64) {
        (self.bytes.as_mut_ptr(), self.used as u64)
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::new()
    }
}

#[cold]
fn out_of_bounds(address: u64, length: usize) -> Fault {
    Fault(match address {
        0..4096 => format!("a null pointer was followed ({length} bytes at offset {address})"),
        _ => format!("{length} bytes at address {address:#x} are outside of the scheduler's memory"),
    })
}

/// Blocks have sizes of powers of two up to a page, and multiples of a page beyond.
fn block_size(size: usize) -> usize {
    match size.max(GRAIN) {
        size @ ..Memory::PAGE => size.next_power_of_two(),
        size => size.next_multiple_of(Memory::PAGE),
    }
}

fn class_of(block_size: usize) -> usize {
    match block_size {
        ..Memory::PAGE => block_size.trailing_zeros() as usize,
        _ => 12 + block_size / Memory::PAGE,
    }
}
