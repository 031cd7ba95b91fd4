//! Reading of recordings.

use super::columns::{COLUMNS, Column, dictionary};
use super::{ABOUT_KEY, EVENTS_MAX, FORMAT, FORMAT_KEY, GROUP_MAX};
use crate::bytes::Bytes;
use crate::error::TraceError;
use crate::event::{Event, KINDS, Kind};
use crate::facts::About;
use crate::parquet::frame::{MAGIC, ZSTD, page};
use crate::parquet::thrift::{Value, read_structure};
use crate::{NO_TASK, Recording};
use std::io::Read;

/// Bytes of the largest page of a group of so many rows: 64-bit numbers of which each needs all bits, with
/// the heads of blocks; or the dictionary.
fn page_max(rows: usize) -> usize {
    9 * rows + 2048
}

/// Whether bytes are the beginning of a Parquet file.
pub fn is_parquet(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Reads the file.
pub fn read(bytes: &[u8]) -> Result<Recording, TraceError> {
    let footer = Footer::read(footer_bytes(bytes)?)?;
    let about = footer.about()?;
    let mut events = Vec::new();
    for group in &footer.groups {
        if events.len() + group.rows > EVENTS_MAX {
            return Err(TraceError::Unsupported(format!(
                "has more than {EVENTS_MAX} events; record for less"
            )));
        }
        let first = events.len();
        let empty = Event { at_ns: 0, cpu: 0, kind: Kind::Switch, task: NO_TASK, other: NO_TASK, detail: 0 };
        for (column, &at) in COLUMNS.iter().zip(&group.columns) {
            let values = read_column(bytes, column, at, group.rows)?;
            // The memory for events comes after values that were there.
            events.resize(first + group.rows, empty);
            for (event, value) in events[first..].iter_mut().zip(values) {
                (column.set)(event, value).ok_or_else(|| {
                    TraceError::damaged(
                        at as usize,
                        format!("its column `{}` has the value {value}", column.name),
                    )
                })?;
            }
        }
    }
    let recording = Recording { about, events };
    recording.check()?;
    Ok(recording)
}

/// The metadata at the end of the file, before its own length.
fn footer_bytes(bytes: &[u8]) -> Result<&[u8], TraceError> {
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

/// What matters of the metadata.
#[derive(Default)]
struct Footer<'a> {
    /// Names and types of the elements of the schema.
    schema: Vec<(&'a [u8], i64)>,
    groups: Vec<Group>,
    about: Option<&'a [u8]>,
    format: Option<&'a [u8]>,
}

struct Group {
    rows: usize,
    /// Where the first page of each column is.
    columns: Vec<u64>,
}

impl<'a> Footer<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, TraceError> {
        let mut footer = Self::default();
        read_structure(&mut Bytes::new(bytes), |field, value| {
            match (field, value) {
                (2, Value::Struct(element)) => {
                    let mut column: (&[u8], i64) = (&[], -1);
                    read_structure(element, |field, value| {
                        match (field, value) {
                            (1, Value::Number(physical)) => column.1 = physical,
                            (4, Value::Binary(name)) => column.0 = name,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    footer.schema.push(column);
                }
                (4, Value::Struct(group)) => footer.groups.push(Group::read(group)?),
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
                    if key == ABOUT_KEY.as_bytes() {
                        footer.about = Some(text);
                    } else if key == FORMAT_KEY.as_bytes() {
                        footer.format = Some(text);
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        Ok(footer)
    }

    /// What the recording knows beside its events, if the file is one of ours.
    fn about(&self) -> Result<About, TraceError> {
        let foreign = |what: &str| Err(TraceError::Foreign(what.into()));
        let (Some(about), Some(format)) = (self.about, self.format) else {
            return foreign("its metadata has no key `tandem` and `tandem_format`");
        };
        if format != FORMAT.as_bytes() {
            let format = String::from_utf8_lossy(format);
            return Err(TraceError::Unsupported(format!(
                "has version {format:.20} of the format of recordings; this tandem reads version {FORMAT}; record again with it, or use the tandem that has made it"
            )));
        }
        let columns = COLUMNS.iter().map(|column| (column.name.as_bytes(), column.physical.into()));
        if !self.schema.iter().skip(1).copied().eq(columns) {
            return foreign("it has other columns");
        }
        serde_json::from_slice(about).map_err(|error| {
            TraceError::Unsupported(format!("has a text under the key `tandem` that cannot be used ({error}); record again with this tandem"))
        })
    }
}

impl Group {
    fn read(bytes: &mut Bytes) -> Result<Self, TraceError> {
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
        match usize::try_from(rows) {
            Ok(rows @ 1..=GROUP_MAX) if columns.len() == COLUMNS.len() => Ok(Self { rows, columns }),
            _ => Err(TraceError::Foreign(format!(
                "a group at byte {start} of its footer has {} columns and {rows} rows",
                columns.len()
            ))),
        }
    }
}

/// Where the first page of a column of a group is: that of its dictionary if it has one.
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

/// Reads the values of a column of a group.
fn read_column(bytes: &[u8], column: &Column, at: u64, rows: usize) -> Result<Vec<i64>, TraceError> {
    let mut pages = Bytes::at(bytes, at)?;
    if column.has_dictionary() {
        let (header, names) = read_page(&mut pages, rows)?;
        if header.kind != i64::from(page::DICTIONARY) || names != dictionary() {
            return Err(TraceError::Foreign(format!(
                "the kinds of its events are not the {} of this tandem",
                KINDS.len()
            )));
        }
    }
    let start = pages.position();
    let (header, values) = read_page(&mut pages, rows)?;
    let expected = (i64::from(page::DATA), rows as i64, i64::from(column.encoding));
    if (header.kind, header.values, header.encoding) != expected {
        return Err(TraceError::Foreign(format!(
            "the page at byte {start} is not all of column `{}` in its encoding",
            column.name
        )));
    }
    column.decode(&values, rows).map_err(|error| match error {
        TraceError::Damaged { at, what } => TraceError::Damaged {
            at: start as u64,
            what: format!("{what} (byte {at} of column `{}`, decompressed)", column.name),
        },
        other => other,
    })
}

/// What matters of the header of a page.
struct Header {
    kind: i64,
    values: i64,
    encoding: i64,
}

/// Reads a page of a group of so many rows, decompressed.
fn read_page(pages: &mut Bytes, rows: usize) -> Result<(Header, Vec<u8>), TraceError> {
    let start = pages.position();
    let mut header = Header { kind: -1, values: -1, encoding: -1 };
    let (mut raw, mut packed) = (-1, -1);
    read_structure(pages, |field, value| {
        match (field, value) {
            (1, Value::Number(number)) => header.kind = number,
            (2, Value::Number(number)) => raw = number,
            (3, Value::Number(number)) => packed = number,
            (5, Value::Struct(data)) => read_structure(data, |field, value| {
                match (field, value) {
                    (1, Value::Number(number)) => header.values = number,
                    (2, Value::Number(number)) => header.encoding = number,
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
    if raw > page_max(rows) {
        return Err(TraceError::damaged(start, format!("a page of {rows} rows has {raw} bytes")));
    }
    let packed = pages.take(packed)?;
    let wrong = |what: String| TraceError::damaged(start, format!("a page cannot be decompressed: {what}"));
    // Memory grows with what is there, not with what the header says.
    let mut page = Vec::new();
    zstd::Decoder::with_buffer(packed)
        .and_then(|decoder| decoder.take(raw as u64 + 1).read_to_end(&mut page))
        .map_err(|error| wrong(error.to_string()))?;
    match page.len() == raw {
        true => Ok((header, page)),
        false => Err(wrong(format!("it has not the {raw} bytes that its header says"))),
    }
}
