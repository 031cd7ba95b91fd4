//! The columns of the table of events, their types and encodings.

use super::delta::{self, pack, unpack};
use crate::bytes::{Bytes, push_varint};
use crate::error::TraceError;
use crate::event::{Event, KINDS};

/// `Type` of `parquet.thrift`.
pub mod physical {
    pub const INT32: i32 = 1;
    pub const INT64: i32 = 2;
    pub const BYTE_ARRAY: i32 = 6;
}

/// `Encoding` of `parquet.thrift`.
pub mod encoding {
    pub const PLAIN: i32 = 0;
    pub const RLE: i32 = 3;
    pub const DELTA_BINARY_PACKED: i32 = 5;
    pub const RLE_DICTIONARY: i32 = 8;
}

/// A column.
pub struct Column {
    pub name: &'static str,
    pub physical: i32,
    pub encoding: i32,
    /// The value of an event.
    pub get: fn(&Event) -> i64,
    /// Gives an event the value. `None` if it has no such value.
    pub set: fn(&mut Event, i64) -> Option<()>,
}

/// All of them, in their order. The number of a task is -1 for [`NO_TASK`](crate::NO_TASK), which is what its
/// bits mean as a signed number.
pub const COLUMNS: [Column; 6] = [
    Column {
        name: "time_ns",
        physical: physical::INT64,
        encoding: encoding::DELTA_BINARY_PACKED,
        get: |event| event.at_ns as i64,
        set: |event, value| {
            event.at_ns = value.try_into().ok()?;
            Some(())
        },
    },
    Column {
        name: "cpu",
        physical: physical::INT32,
        encoding: encoding::PLAIN,
        get: |event| event.cpu.into(),
        set: |event, value| {
            event.cpu = value.try_into().ok()?;
            Some(())
        },
    },
    Column {
        name: "kind",
        physical: physical::BYTE_ARRAY,
        encoding: encoding::RLE_DICTIONARY,
        get: |event| event.kind as i64,
        set: |event, value| {
            event.kind = KINDS.get(usize::try_from(value).ok()?)?.0;
            Some(())
        },
    },
    Column {
        name: "task",
        physical: physical::INT32,
        encoding: encoding::PLAIN,
        get: |event| (event.task as i32).into(),
        set: |event, value| {
            event.task = value as i32 as u32;
            Some(())
        },
    },
    Column {
        name: "other",
        physical: physical::INT32,
        encoding: encoding::PLAIN,
        get: |event| (event.other as i32).into(),
        set: |event, value| {
            event.other = value as i32 as u32;
            Some(())
        },
    },
    Column {
        name: "detail",
        physical: physical::INT32,
        encoding: encoding::PLAIN,
        get: |event| (event.detail as i32).into(),
        set: |event, value| {
            event.detail = value as i32 as u32;
            Some(())
        },
    },
];

/// Bits of a number of the dictionary of kinds.
const KIND_BITS: u8 = (usize::BITS - (KINDS.len() - 1).leading_zeros()) as u8;

impl Column {
    pub fn has_dictionary(&self) -> bool {
        self.encoding == encoding::RLE_DICTIONARY
    }

    /// Appends the values of a page.
    pub fn encode(&self, values: &[i64], out: &mut Vec<u8>) {
        match self.encoding {
            encoding::DELTA_BINARY_PACKED => delta::encode(values, out),
            // One run of numbers, in groups of eight.
            encoding::RLE_DICTIONARY => {
                let groups = values.len().div_ceil(8);
                out.push(KIND_BITS);
                push_varint(out, (groups as u64) << 1 | 1);
                let padded = values.iter().map(|&value| value as u64).chain(std::iter::repeat(0));
                pack(padded.take(8 * groups), KIND_BITS, out);
            }
            _ => values.iter().for_each(|&value| out.extend((value as i32).to_le_bytes())),
        }
    }

    /// Reads exactly `count` values of a page.
    pub fn decode(&self, bytes: &[u8], count: usize) -> Result<Vec<i64>, TraceError> {
        let wrong = || TraceError::damaged(0, format!("its column `{}` has not {count} values", self.name));
        match self.encoding {
            encoding::DELTA_BINARY_PACKED => delta::decode(bytes, count),
            encoding::RLE_DICTIONARY => {
                let groups = count.div_ceil(8);
                let mut bytes = Bytes::new(bytes);
                let head = (bytes.u8()?, bytes.varint()?);
                let packed = bytes.take(bytes.left() as u64)?;
                if head != (KIND_BITS, (groups as u64) << 1 | 1)
                    || packed.len() != groups * usize::from(KIND_BITS)
                {
                    return Err(wrong());
                }
                Ok((0..count).map(|at| unpack(packed, at, KIND_BITS) as i64).collect())
            }
            _ => {
                let (values, []) = bytes.as_chunks() else { return Err(wrong()) };
                if values.len() != count {
                    return Err(wrong());
                }
                Ok(values.iter().map(|&value| i32::from_le_bytes(value).into()).collect())
            }
        }
    }
}

/// The page with the names of the kinds, in the order of their numbers.
pub fn dictionary() -> Vec<u8> {
    let mut page = Vec::new();
    for (_, name) in KINDS {
        page.extend((name.len() as u32).to_le_bytes());
        page.extend_from_slice(name.as_bytes());
    }
    page
}
