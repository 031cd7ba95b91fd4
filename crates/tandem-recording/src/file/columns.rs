//! The columns of the table of events, their types and encodings.

use crate::bytes::Bytes;
use crate::error::TraceError;
use crate::event::{Event, KINDS};
use crate::parquet::ColumnKind;
use crate::parquet::delta::{self, unpack};
use crate::parquet::encode::{bits_for, encoding, packed_run, physical, texts};

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
const KIND_BITS: u8 = bits_for(KINDS.len());

impl Column {
    pub fn has_dictionary(&self) -> bool {
        self.encoding == encoding::RLE_DICTIONARY
    }

    /// What the footer says of it.
    pub fn kind(&self) -> ColumnKind<'static> {
        let Self { name, physical, encoding, .. } = *self;
        ColumnKind { name, physical, encoding, is_unsigned: false, is_optional: false }
    }

    /// Appends the values of a page.
    pub fn encode(&self, values: &[i64], out: &mut Vec<u8>) {
        match self.encoding {
            encoding::DELTA_BINARY_PACKED => delta::encode(values, out),
            encoding::RLE_DICTIONARY => {
                out.push(KIND_BITS);
                packed_run(values.iter().map(|&value| value as u64), KIND_BITS, out);
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
    texts(KINDS.iter().map(|(_, name)| *name), &mut page);
    page
}
