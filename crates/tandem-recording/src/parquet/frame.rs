//! A file under construction: its pages, and the footer that says where they are.

use super::encode::{encoding, physical};
use super::thrift::{Writer, structure};
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
/// `ConvertedType` of `parquet.thrift`.
mod converted {
    pub const UTF8: i32 = 0;
    pub const UINT_64: i32 = 14;
}
/// `FieldRepetitionType` of `parquet.thrift`.
mod repetition {
    pub const REQUIRED: i32 = 0;
    pub const OPTIONAL: i32 = 1;
}
/// What a Parquet file begins and ends with.
pub const MAGIC: &[u8; 4] = b"PAR1";

/// What the footer says of a column.
#[derive(Clone, Copy)]
pub struct ColumnKind<'a> {
    pub name: &'a str,
    pub physical: i32,
    pub encoding: i32,
    /// Of 64-bit numbers: they have no sign.
    pub is_unsigned: bool,
    /// Some values may be missing.
    pub is_optional: bool,
}

/// A page of words, of which the values of a column are the numbers.
pub struct Dictionary<'a> {
    pub bytes: &'a [u8],
    pub words: usize,
}

/// A file that is written group by group, complete after [`Frame::finish`].
pub struct Frame<W> {
    out: W,
    /// Bytes that have been written.
    length: u64,
    groups: Vec<Group>,
    /// The columns of the group that is being written.
    chunks: Vec<Chunk>,
    rows: u64,
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

impl<W: Write> Frame<W> {
    /// Begins a file.
    pub fn new(out: W) -> io::Result<Self> {
        let mut frame = Self { out, length: 0, groups: Vec::new(), chunks: Vec::new(), rows: 0 };
        frame.put(MAGIC)?;
        Ok(frame)
    }

    /// Writes the next column of a group of so many rows; `raw` are its values in the encoding.
    pub fn column(
        &mut self,
        rows: usize,
        encoding: i32,
        dictionary: Option<Dictionary>,
        raw: &[u8],
    ) -> io::Result<()> {
        let start = self.length;
        let mut raw_bytes = 0;
        let dictionary_at = dictionary.is_some().then_some(start);
        if let Some(Dictionary { bytes, words }) = dictionary {
            raw_bytes += self.page(bytes, page::DICTIONARY, |header| {
                header.structure(7, |page| {
                    page.i32(1, words as i32).i32(2, encoding::PLAIN);
                });
            })?;
        }
        let at = self.length;
        raw_bytes += self.page(raw, page::DATA, |header| {
            header.structure(5, |page| {
                page.i32(1, rows as i32).i32(2, encoding).i32(3, encoding::RLE).i32(4, encoding::RLE);
            });
        })?;
        self.chunks.push(Chunk { dictionary_at, at, raw_bytes, bytes: self.length - start });
        Ok(())
    }

    /// Ends a group, all of whose columns have been written.
    pub fn end_group(&mut self, rows: usize) {
        self.rows += rows as u64;
        self.groups.push(Group { rows, chunks: std::mem::take(&mut self.chunks) });
    }

    /// Ends the file, whose footer has these texts by their keys, and gives back what it was written to.
    pub fn finish(mut self, columns: &[ColumnKind], texts: &[(&str, &str)]) -> io::Result<W> {
        let mut footer = Vec::new();
        structure(&mut footer, |file| self.metadata(file, columns, texts));
        let length = u32::try_from(footer.len()).map_err(|_| {
            io::Error::new(io::ErrorKind::FileTooLarge, "its description has more than 4 GiB")
        })?;
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

    /// Writes a page: its header, then its bytes, compressed. Gives their size before that, with the header.
    fn page(&mut self, raw: &[u8], kind: i32, rest: impl FnOnce(&mut Writer)) -> io::Result<u64> {
        let packed = zstd::bulk::compress(raw, LEVEL)?;
        let mut header = Vec::new();
        structure(&mut header, |header| {
            header.i32(1, kind).i32(2, raw.len() as i32).i32(3, packed.len() as i32);
            rest(header);
        });
        self.put(&header)?;
        self.put(&packed)?;
        Ok((header.len() + raw.len()) as u64)
    }

    /// `FileMetaData`.
    fn metadata(&self, file: &mut Writer, columns: &[ColumnKind], texts: &[(&str, &str)]) {
        // The schema is a tree in the order in which it is walked: the root, then the columns.
        let schema = [None].into_iter().chain(columns.iter().map(Some)).collect::<Vec<_>>();
        file.i32(1, 2)
            .structures(2, schema.into_iter(), |element, column| match column {
                None => {
                    element.text(4, "schema").i32(5, columns.len() as i32);
                }
                Some(column) => column.element(element),
            })
            .i64(3, self.rows as i64)
            .structures(4, self.groups.iter(), |out, group| group.write(columns, out))
            .structures(5, texts.iter(), |pair, (key, text)| {
                pair.text(1, key).text(2, text);
            })
            .text(6, concat!("tandem version ", env!("CARGO_PKG_VERSION")));
    }
}

impl ColumnKind<'_> {
    /// `SchemaElement`.
    fn element(&self, element: &mut Writer) {
        let repetition = if self.is_optional { repetition::OPTIONAL } else { repetition::REQUIRED };
        element.i32(1, self.physical).i32(3, repetition).text(4, self.name);
        if self.physical == physical::BYTE_ARRAY {
            // The converted type for old readers, the logical one for new ones.
            element.i32(6, converted::UTF8).structure(10, |logical| {
                logical.structure(1, |_| ());
            });
        } else if self.is_unsigned {
            // New readers know this one, too.
            element.i32(6, converted::UINT_64);
        }
    }
}

impl Group {
    /// `RowGroup`.
    fn write(&self, columns: &[ColumnKind], out: &mut Writer) {
        let bytes: u64 = self.chunks.iter().map(|chunk| chunk.raw_bytes).sum();
        out.structures(1, columns.iter().zip(&self.chunks), |out, (column, chunk)| {
            out.i64(2, 0).structure(3, |meta| {
                let encodings: &[i32] = match chunk.dictionary_at {
                    Some(_) => &[encoding::PLAIN, encoding::RLE, column.encoding],
                    None => &[encoding::RLE, column.encoding],
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
