//! Reading of recordings.

use super::columns::{COLUMNS, Column, dictionary};
use super::{ABOUT_KEY, EVENTS_MAX, FORMAT, FORMAT_KEY, GROUP_MAX};
use crate::bytes::Bytes;
use crate::error::TraceError;
use crate::event::{Event, KINDS, Kind};
use crate::facts::About;
use crate::parquet::frame::{MAGIC, page};
use crate::parquet::read::{Footer, Page, footer_bytes};
use crate::{NO_TASK, Recording};

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
    let footer = Footer::read(footer_bytes(bytes)?, GROUP_MAX)?;
    let about = about(&footer)?;
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

/// What the recording knows beside its events, if the file is one of ours.
fn about(footer: &Footer) -> Result<About, TraceError> {
    let foreign = |what: &str| Err(TraceError::Foreign(what.into()));
    let (Some(about), Some(format)) = (footer.text(ABOUT_KEY), footer.text(FORMAT_KEY)) else {
        return foreign("its metadata has no key `tandem` and `tandem_format`");
    };
    if format != FORMAT.as_bytes() {
        let format = String::from_utf8_lossy(format);
        return Err(TraceError::Unsupported(format!(
            "has version {format:.20} of the format of recordings; this tandem reads version {FORMAT}; record again with it, or use the tandem that has made it"
        )));
    }
    let columns = COLUMNS.iter().map(|column| (column.name.as_bytes(), column.physical.into()));
    if !footer.columns.iter().map(|column| (column.name, column.physical)).eq(columns) {
        return foreign("it has other columns");
    }
    serde_json::from_slice(about).map_err(|error| {
        TraceError::Unsupported(format!(
            "has a text under the key `tandem` that cannot be used ({error}); record again with this tandem"
        ))
    })
}

/// Reads the values of a column of a group.
fn read_column(bytes: &[u8], column: &Column, at: u64, rows: usize) -> Result<Vec<i64>, TraceError> {
    let mut pages = Bytes::at(bytes, at)?;
    if column.has_dictionary() {
        let names = Page::read(&mut pages, page_max(rows))?;
        if names.kind != i64::from(page::DICTIONARY) || names.bytes != dictionary() {
            return Err(TraceError::Foreign(format!(
                "the kinds of its events are not the {} of this tandem",
                KINDS.len()
            )));
        }
    }
    let start = pages.position();
    let values = Page::read(&mut pages, page_max(rows))?;
    values.check(start, column.name, rows, column.encoding)?;
    column.decode(&values.bytes, rows).map_err(|error| match error {
        TraceError::Damaged { at, what } => TraceError::Damaged {
            at: start as u64,
            what: format!("{what} (byte {at} of column `{}`, decompressed)", column.name),
        },
        other => other,
    })
}
