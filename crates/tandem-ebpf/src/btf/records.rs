//! Instructions that depend on the layout of the kernel's types (`.BTF.ext`): CO-RE records.

use super::{Btf, MAGIC, Reader, TypeId};
use crate::fault::LoadError;

/// An instruction that depends on a type of the kernel.
pub(crate) struct CoreRecord<'a> {
    /// The section that it is in, and its offset there, bytes.
    pub section: &'a str,
    pub offset: u64,
    /// The type as the program declares it.
    pub root: TypeId,
    /// The part of it: indices of members and elements, separated by colons.
    pub access: &'a str,
    pub kind: RecordKind,
}

/// The information that the instruction needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    FieldOffset,
    FieldSize,
    FieldExists,
    FieldSigned,
    FieldShiftLeft,
    FieldShiftRight,
    TypeIdLocal,
    TypeIdTarget,
    TypeExists,
    TypeSize,
    EnumeratorExists,
    EnumeratorValue,
    TypeMatches,
}

impl RecordKind {
    fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::FieldOffset,
            1 => Self::FieldSize,
            2 => Self::FieldExists,
            3 => Self::FieldSigned,
            4 => Self::FieldShiftLeft,
            5 => Self::FieldShiftRight,
            6 => Self::TypeIdLocal,
            7 => Self::TypeIdTarget,
            8 => Self::TypeExists,
            9 => Self::TypeSize,
            10 => Self::EnumeratorExists,
            11 => Self::EnumeratorValue,
            12 => Self::TypeMatches,
            _ => return None,
        })
    }
}

/// Reads all records of `.BTF.ext`.
pub(crate) fn read_records<'a>(bytes: &[u8], btf: &Btf<'a>) -> Result<Vec<CoreRecord<'a>>, LoadError> {
    let mut header = Reader::new(bytes, "the extended type information (.BTF.ext)");
    if header.u16()? != MAGIC {
        return Err(header.error("does not begin as it should"));
    }
    header.take(2)?;
    let header_length = header.u32()?;
    // Offsets and lengths of information on functions and lines, which linking does not need. Old headers end
    // there.
    header.take(16)?;
    if header_length < 32 {
        return Ok(Vec::new());
    }
    let (offset, length) = (header.u32()?, header.u32()?);
    let mut reader = Reader::new(header.part(header_length, offset, length)?, "the list of CO-RE records");
    if reader.at_end() {
        return Ok(Vec::new());
    }
    let record_size = reader.u32()? as usize;
    if record_size < 16 {
        return Err(reader.error("has records that are too short"));
    }
    let mut records = Vec::new();
    while !reader.at_end() {
        let section = btf.text(reader.u32()?)?;
        for _ in 0..reader.u32()? {
            let offset = u64::from(reader.u32()?);
            let root = TypeId(reader.u32()?);
            let access = btf.text(reader.u32()?)?;
            let kind = reader.u32()?;
            let kind =
                RecordKind::from_number(kind).ok_or_else(|| reader.error("has a record of unknown kind"))?;
            reader.take(record_size - 16)?;
            records.push(CoreRecord { section, offset, root, access, kind });
        }
    }
    Ok(records)
}
