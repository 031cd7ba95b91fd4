//! What of a Parquet file says where its pages are, and the pages.
//!
//! Only what [`Frame`](super::Frame) writes is understood. Memory grows with the bytes that are there, not with what they say.

use super::frame::{MAGIC, ZSTD, page};
use super::thrift::{Value, read_structure};
use crate::bytes::Bytes;
use crate::error::TraceError;
use std::io::Read;

/// What the end of a file says of it.
#[derive(Default)]
pub struct Footer<'a> {
    /// The columns, in order.
    pub columns: Vec<ColumnSeen<'a>>,
    /// The groups of rows.
    pub groups: Vec<GroupSeen>,
    /// Texts by their keys.
    texts: Vec<(&'a [u8], &'a [u8])>,
}

/// A column.
pub struct ColumnSeen<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The type of its values.
    pub physical: i64,
}

/// A group of rows.
pub struct GroupSeen {
    /// How many.
    pub rows: usize,
    /// Where the first page of each column is: that of its dictionary if it has one.
    pub columns: Vec<u64>,
}

/// A page, decompressed.
pub struct Page {
    /// What it is.
    pub kind: i64,
    /// How many values it has, of a page of values.
    pub values: i64,
    /// How they are encoded.
    pub encoding: i64,
    /// The values.
    pub bytes: Vec<u8>,
}

/// The metadata at the end of the file, before its own length.
pub fn footer_bytes(bytes: &[u8]) -> Result<&[u8], TraceError> {
    let body = bytes.strip_prefix(MAGIC).ok_or(TraceError::Unknown)?;
    let end = body.strip_suffix(MAGIC).and_then(|body| body.split_last_chunk());
    let (body, &length) = end.ok_or_else(|| {
        TraceError::damaged(bytes.len(), "its end is missing, as that of an interrupted copy")
    })?;
    let length = u32::from_le_bytes(length);
    let start = body.len().checked_sub(length as usize);
    let start =
        start.ok_or_else(|| TraceError::damaged(bytes.len(), format!("its footer has {length} bytes")))?;
    Ok(&body[start..])
}

impl<'a> Footer<'a> {
    /// Reads it from [`footer_bytes`], with groups of at most so many rows.
    pub fn read(bytes: &'a [u8], rows_max: usize) -> Result<Self, TraceError> {
        let mut footer = Self::default();
        let mut elements = 0;
        read_structure(&mut Bytes::new(bytes), |field, value| {
            match (field, value) {
                (2, Value::Struct(element)) => {
                    let mut column = ColumnSeen { name: &[], physical: -1 };
                    read_structure(element, |field, value| {
                        match (field, value) {
                            (1, Value::Number(physical)) => column.physical = physical,
                            (4, Value::Binary(name)) => column.name = name,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    // The first element is the root of the schema.
                    elements += 1;
                    if elements > 1 {
                        footer.columns.push(column);
                    }
                }
                (4, Value::Struct(group)) => footer.groups.push(GroupSeen::read(group, rows_max)?),
                (5, Value::Struct(pair)) => {
                    let (mut key, mut text): (&[u8], &[u8]) = (&[], &[]);
                    read_structure(pair, |field, value| {
                        match (field, value) {
                            (1, Value::Binary(name)) => key = name,
                            (2, Value::Binary(value)) => text = value,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    footer.texts.push((key, text));
                }
                _ => {}
            }
            Ok(())
        })?;
        for group in &footer.groups {
            if group.columns.len() != footer.columns.len() {
                return Err(TraceError::Foreign(format!(
                    "it has {} columns, and a group of its rows {}",
                    footer.columns.len(),
                    group.columns.len()
                )));
            }
        }
        Ok(footer)
    }

    /// The text under a key; the last one counts.
    pub fn text(&self, key: &str) -> Option<&'a [u8]> {
        self.texts.iter().rev().find(|(known, _)| *known == key.as_bytes()).map(|(_, text)| *text)
    }
}

impl GroupSeen {
    fn read(bytes: &mut Bytes, rows_max: usize) -> Result<Self, TraceError> {
        let start = bytes.position();
        let (mut rows, mut columns) = (0, Vec::new());
        read_structure(bytes, |field, value| {
            match (field, value) {
                (1, Value::Struct(chunk)) => columns.push(read_chunk(chunk)?),
                (3, Value::Number(number)) => rows = number,
                _ => {}
            }
            Ok(())
        })?;
        match usize::try_from(rows).ok().filter(|rows| (1..=rows_max).contains(rows)) {
            Some(rows) => Ok(Self { rows, columns }),
            None => Err(TraceError::Foreign(format!(
                "a group at byte {start} of its footer has {} columns and {rows} rows",
                columns.len()
            ))),
        }
    }
}

/// Where the first page of a column of a group is.
fn read_chunk(bytes: &mut Bytes) -> Result<u64, TraceError> {
    let (mut data, mut dictionary, mut codec) = (0, None, -1);
    read_structure(bytes, |field, value| {
        if let (3, Value::Struct(meta)) = (field, value) {
            read_structure(meta, |field, value| {
                match (field, value) {
                    (4, Value::Number(number)) => codec = number,
                    (9, Value::Number(at)) => data = at,
                    (11, Value::Number(at)) => dictionary = Some(at),
                    _ => {}
                }
                Ok(())
            })?;
        }
        Ok(())
    })?;
    if codec != i64::from(ZSTD) {
        return Err(TraceError::Foreign("a column is not compressed by Zstandard".into()));
    }
    Ok(dictionary.unwrap_or(data) as u64)
}

impl Page {
    /// Reads the next page, which has at most so many bytes, decompressed.
    pub fn read(pages: &mut Bytes, bytes_max: usize) -> Result<Self, TraceError> {
        let start = pages.position();
        let mut found = Self { kind: -1, values: -1, encoding: -1, bytes: Vec::new() };
        let (mut raw, mut packed) = (-1, -1);
        read_structure(pages, |field, value| {
            match (field, value) {
                (1, Value::Number(number)) => found.kind = number,
                (2, Value::Number(number)) => raw = number,
                (3, Value::Number(number)) => packed = number,
                (5, Value::Struct(data)) => read_structure(data, |field, value| {
                    match (field, value) {
                        (1, Value::Number(number)) => found.values = number,
                        (2, Value::Number(number)) => found.encoding = number,
                        _ => {}
                    }
                    Ok(())
                })?,
                _ => {}
            }
            Ok(())
        })?;
        let sizes = (usize::try_from(raw), u64::try_from(packed));
        let (Ok(raw), Ok(packed)) = sizes else {
            return Err(TraceError::damaged(start, format!("a page has {raw} bytes, {packed} compressed")));
        };
        if raw > bytes_max {
            return Err(TraceError::damaged(start, format!("a page has {raw} bytes")));
        }
        let packed = pages.take(packed)?;
        let wrong =
            |what: String| TraceError::damaged(start, format!("a page cannot be decompressed: {what}"));
        zstd::Decoder::with_buffer(packed)
            .and_then(|decoder| decoder.take(raw as u64 + 1).read_to_end(&mut found.bytes))
            .map_err(|error| wrong(error.to_string()))?;
        match found.bytes.len() == raw {
            true => Ok(found),
            false => Err(wrong(format!("it has not the {raw} bytes that its header says"))),
        }
    }

    /// Checks that it has so many values in this encoding, of the column of that name.
    pub fn check(&self, at: usize, name: &str, rows: usize, encoding: i32) -> Result<(), TraceError> {
        let expected = (i64::from(page::DATA), rows as i64, i64::from(encoding));
        match (self.kind, self.values, self.encoding) == expected {
            true => Ok(()),
            false => Err(TraceError::Foreign(format!(
                "the page at byte {at} is not all of column `{name}` in its encoding"
            ))),
        }
    }
}
