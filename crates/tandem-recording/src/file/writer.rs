//! Writing of recordings, group by group.

use super::columns::{COLUMNS, Column, dictionary, encoding, physical};
use super::thrift::{Writer, structure};
use super::{ABOUT_KEY, EVENTS_MAX, FORMAT, FORMAT_KEY, GROUP, check_about, check_event};
use crate::NO_TASK;
use crate::error::TraceError;
use crate::event::{Event, KINDS, Kind, Source};
use crate::facts::About;
use std::io::{self, Write};

/// How hard Zstandard compresses: its fastest normal level, because a recorder compresses while it records.
const LEVEL: i32 = 1;
/// `CompressionCodec::ZSTD` of `parquet.thrift`.
pub const ZSTD: i32 = 6;
/// `PageType` of `parquet.thrift`.
pub mod page {
    pub const DATA: i32 = 0;
    pub const DICTIONARY: i32 = 2;
}
/// `ConvertedType::UTF8` of `parquet.thrift`.
const UTF8: i32 = 0;
/// What a Parquet file begins and ends with.
pub const MAGIC: &[u8; 4] = b"PAR1";

/// Why a recording cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The writer failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The recording contradicts itself.
    #[error("the recording {0}")]
    Wrong(#[from] TraceError),
}

/// Writes a recording while it is made. Its memory is that of a group of events.
///
/// The file is complete after [`RecordingWriter::finish`]; before, it is no Parquet file.
pub struct RecordingWriter<W> {
    out: W,
    /// Bytes that have been written.
    length: u64,
    pending: Vec<Event>,
    groups: Vec<Group>,
    rows: u64,
    extremes: Extremes,
    // Kept, so that groups need no allocation.
    values: Vec<i64>,
    raw: Vec<u8>,
}

/// What the footer says of a group.
struct Group {
    rows: usize,
    chunks: Vec<Chunk>,
}

/// What it says of the values of a column.
struct Chunk {
    dictionary_at: Option<u64>,
    at: u64,
    raw_bytes: u64,
    bytes: u64,
}

/// The last time and the largest numbers that events have used. What these may be is known at the end.
#[derive(Default)]
struct Extremes {
    at_ns: u64,
    cpu: u32,
    task: Option<u32>,
    timer: Option<u32>,
}

impl<W: Write> RecordingWriter<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn new(out: W) -> io::Result<Self> {
        let mut writer = Self {
            out,
            length: 0,
            pending: Vec::with_capacity(GROUP),
            groups: Vec::new(),
            rows: 0,
            extremes: Extremes::default(),
            values: Vec::new(),
            raw: Vec::new(),
        };
        writer.put(MAGIC)?;
        Ok(writer)
    }

    /// Adds an event. Events come in the order of time.
    ///
    /// # Errors
    /// If the writer fails, if the event is earlier than the one before, or if there are more than a
    /// recording may have.
    pub fn push(&mut self, event: Event) -> Result<(), WriteError> {
        let wrong = |what: String| Err(TraceError::Event { event: self.rows, what }.into());
        if event.at_ns < self.extremes.at_ns {
            return wrong(format!("is at {} ns, after one at {} ns", event.at_ns, self.extremes.at_ns));
        }
        if self.rows == EVENTS_MAX as u64 {
            return wrong("is one more than a recording may have".into());
        }
        self.extremes.add(&event);
        self.rows += 1;
        self.pending.push(event);
        if self.pending.len() == GROUP {
            self.group()?;
        }
        Ok(())
    }

    /// How many events it has been given.
    pub fn events(&self) -> u64 {
        self.rows
    }

    /// Ends the file, and gives back what it was written to.
    ///
    /// # Errors
    /// If the writer fails, or events are later than the end of the recording, or about CPUs, tasks or timers
    /// that it does not have.
    pub fn finish(mut self, about: &About) -> Result<W, WriteError> {
        check_about(about)?;
        for event in self.extremes.events() {
            check_event(&event, 0, about)
                .map_err(|what| TraceError::Unsupported(format!("has an event that {what}")))?;
        }
        self.group()?;
        let about = serde_json::to_string(about).map_err(io::Error::from)?;
        let mut footer = Vec::new();
        structure(&mut footer, |file| self.metadata(file, &about));
        let length = u32::try_from(footer.len())
            .map_err(|_| TraceError::Unsupported("has too many tasks to be described in a file".into()))?;
        footer.extend(length.to_le_bytes());
        footer.extend_from_slice(MAGIC);
        self.put(&footer)?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.length += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    /// Writes the events that wait.
    fn group(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let rows = self.pending.len();
        let mut chunks = Vec::with_capacity(COLUMNS.len());
        for column in &COLUMNS {
            chunks.push(self.column(column)?);
        }
        self.groups.push(Group { rows, chunks });
        self.pending.clear();
        Ok(())
    }

    /// Writes the values of a column: a page, and before it one with the dictionary if it has one.
    fn column(&mut self, column: &Column) -> io::Result<Chunk> {
        let start = self.length;
        let mut raw_bytes = 0;
        let dictionary_at = column.has_dictionary().then_some(start);
        if column.has_dictionary() {
            raw_bytes += self.page(
                &dictionary(),
                |header| {
                    header.i32(1, page::DICTIONARY);
                },
                |header| {
                    header.structure(7, |page| {
                        page.i32(1, KINDS.len() as i32).i32(2, encoding::PLAIN);
                    });
                },
            )?;
        }
        let at = self.length;
        let rows = self.pending.len();
        self.values.clear();
        self.values.extend(self.pending.iter().map(column.get));
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        column.encode(&self.values, &mut raw);
        let page = self.page(
            &raw,
            |header| {
                header.i32(1, page::DATA);
            },
            |header| {
                header.structure(5, |page| {
                    page.i32(1, rows as i32)
                        .i32(2, column.encoding)
                        .i32(3, encoding::RLE)
                        .i32(4, encoding::RLE);
                });
            },
        );
        self.raw = raw;
        raw_bytes += page?;
        Ok(Chunk { dictionary_at, at, raw_bytes, bytes: self.length - start })
    }

    /// Writes a page: its header, then its bytes, compressed. Gives their size before that, with the header.
    fn page(
        &mut self,
        raw: &[u8],
        kind: impl FnOnce(&mut Writer),
        rest: impl FnOnce(&mut Writer),
    ) -> io::Result<u64> {
        let packed = zstd::bulk::compress(raw, LEVEL)?;
        let mut header = Vec::new();
        structure(&mut header, |header| {
            kind(header);
            header.i32(2, raw.len() as i32).i32(3, packed.len() as i32);
            rest(header);
        });
        self.put(&header)?;
        self.put(&packed)?;
        Ok((header.len() + raw.len()) as u64)
    }

    /// `FileMetaData`.
    fn metadata(&self, file: &mut Writer, about: &str) {
        // The schema is a tree in the order in which it is walked: the root, then the columns.
        let schema = [None].into_iter().chain(COLUMNS.iter().map(Some)).collect::<Vec<_>>();
        file.i32(1, 2)
            .structures(2, schema.into_iter(), |element, column| match column {
                None => {
                    element.text(4, "schema").i32(5, COLUMNS.len() as i32);
                }
                Some(column) => {
                    element.i32(1, column.physical).i32(3, 0).text(4, column.name);
                    if column.physical == physical::BYTE_ARRAY {
                        // The converted type for old readers, the logical one for new ones.
                        element.i32(6, UTF8).structure(10, |logical| {
                            logical.structure(1, |_| ());
                        });
                    }
                }
            })
            .i64(3, self.rows as i64)
            .structures(4, self.groups.iter(), |out, group| group.write(out))
            .structures(5, [(ABOUT_KEY, about), (FORMAT_KEY, FORMAT)].into_iter(), |pair, (key, value)| {
                pair.text(1, key).text(2, value);
            })
            .text(6, concat!("tandem version ", env!("CARGO_PKG_VERSION")));
    }
}

impl Group {
    /// `RowGroup`.
    fn write(&self, out: &mut Writer) {
        let bytes: u64 = self.chunks.iter().map(|chunk| chunk.raw_bytes).sum();
        out.structures(1, COLUMNS.iter().zip(&self.chunks), |out, (column, chunk)| {
            out.i64(2, 0).structure(3, |meta| {
                let encodings: &[i32] = match column.has_dictionary() {
                    true => &[encoding::PLAIN, encoding::RLE, column.encoding],
                    false => &[encoding::RLE, column.encoding],
                };
                meta.i32(1, column.physical)
                    .i32s(2, encodings)
                    .texts(3, &[column.name])
                    .i32(4, ZSTD)
                    .i64(5, self.rows as i64)
                    .i64(6, chunk.raw_bytes as i64)
                    .i64(7, chunk.bytes as i64)
                    .i64(9, chunk.at as i64);
                if let Some(at) = chunk.dictionary_at {
                    meta.i64(11, at as i64);
                }
            });
        })
        .i64(2, bytes as i64)
        .i64(3, self.rows as i64);
    }
}

impl Extremes {
    fn add(&mut self, event: &Event) {
        self.at_ns = event.at_ns;
        self.cpu = self.cpu.max(event.cpu);
        for task in [event.task, event.other].into_iter().filter(|&task| task != NO_TASK) {
            self.task = self.task.max(Some(task));
        }
        if let (Kind::Interrupt, Source::HrTimer(timer) | Source::Timer(timer)) = (event.kind, event.source())
        {
            self.timer = self.timer.max(Some(timer));
        }
    }

    /// Events that are in order if all are.
    fn events(&self) -> impl Iterator<Item = Event> {
        let task = self.task.unwrap_or(NO_TASK);
        let plain =
            Event { at_ns: self.at_ns, cpu: self.cpu, kind: Kind::Exec, task, other: NO_TASK, detail: 0 };
        let timer = self.timer.map(|timer| {
            let detail = Source::Timer(timer).detail();
            Event { at_ns: 0, cpu: 0, kind: Kind::Interrupt, task: NO_TASK, other: NO_TASK, detail }
        });
        let any = (self.at_ns, self.cpu, self.task) != (0, 0, None);
        any.then_some(plain).into_iter().chain(timer)
    }
}
