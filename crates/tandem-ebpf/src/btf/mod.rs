//! Type information (BTF), as clang puts it into objects: the parts of each type.
//!
//! The format is that of the kernel's documentation. A type is identified by its number; 0 is `void`.

mod records;
mod types;

pub(crate) use records::{CoreRecord, RecordKind, read_records};
pub(crate) use types::{Btf, DEPTH_MAX, SectionVariable, Type, TypeId, essential_name};

use crate::fault::LoadError;

/// Reads numbers one after the other.
struct Reader<'a> {
    bytes: &'a [u8],
    position: usize,
    /// The part of the file, for messages.
    what: &'static str,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { bytes, position: 0, what }
    }

    fn at_end(&self) -> bool {
        self.position >= self.bytes.len()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], LoadError> {
        let rest = self.bytes.get(self.position..).unwrap_or_default();
        let bytes = rest.get(..length).ok_or_else(|| self.error("ends too early"))?;
        self.position += length;
        Ok(bytes)
    }

    fn u16(&mut self) -> Result<u16, LoadError> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, LoadError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn error(&self, problem: &str) -> LoadError {
        LoadError(format!("{} {problem}, at offset {:#x}", self.what, self.position))
    }

    /// The part that a header describes: the offset is from the header's end.
    fn part(&self, header_length: u32, offset: u32, length: u32) -> Result<&'a [u8], LoadError> {
        let start = header_length as usize + offset as usize;
        let part = self.bytes.get(start..).and_then(|rest| rest.get(..length as usize));
        part.ok_or_else(|| self.error("has a header with a part that is not inside"))
    }
}

const MAGIC: u16 = 0xeb9f;
