//! Tables as Parquet files: written, table after table of the same columns, and read again.

use super::delta::{self, unpack};
use super::frame::page;
use super::read::{Footer, Page, footer_bytes};
use super::table::{Column, Table, Values};
use super::{ColumnKind, Frame};
use crate::bytes::Bytes;
use crate::error::TraceError;
use std::io::{self, Write};

/// Rows of a group. Larger ones compress hardly better.
const GROUP: usize = 1 << 18;
/// Bytes of the largest dictionary that is read, and of the values of the largest group, with their presence.
const PAGE_MAX: usize = 64 << 20;

/// A file of tables with the same columns, one below the other, complete after [`TableFile::finish`].
pub struct TableFile<W> {
    file: Frame<W>,
    /// Rows that are not written yet. A group has many, or it compresses badly.
    waiting: Option<Table>,
    /// An empty table with the columns.
    columns: Option<Table>,
}

impl<W: Write> TableFile<W> {
    /// Begins a file.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn new(out: W) -> io::Result<Self> {
        Ok(Self { file: Frame::new(out)?, waiting: None, columns: None })
    }

    /// Appends the rows of a table.
    ///
    /// # Errors
    /// If the writer fails.
    ///
    /// # Panics
    /// If it has other columns than the ones before.
    pub fn push(&mut self, table: &Table) -> io::Result<()> {
        let columns = self.columns.get_or_insert_with(|| table.part(0..0));
        assert!(columns.is_like(table), "all tables of a file have the same columns");
        match &mut self.waiting {
            Some(waiting) => waiting.append(table),
            None => self.waiting = Some(table.clone()),
        }
        match self.waiting.take_if(|waiting| waiting.rows() >= GROUP) {
            Some(table) => self.write(&table),
            None => Ok(()),
        }
    }

    fn write(&mut self, table: &Table) -> io::Result<()> {
        for start in (0..table.rows()).step_by(GROUP) {
            let rows = start..table.rows().min(start + GROUP);
            for column in table.columns() {
                column.values.write(rows.clone(), &mut self.file)?;
            }
            self.file.end_group(rows.len());
        }
        Ok(())
    }

    /// Ends the file, whose footer has these texts by their keys, and gives back what it was written to.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn finish(mut self, texts: &[(&str, &str)]) -> io::Result<W> {
        if let Some(table) = self.waiting.take() {
            self.write(&table)?;
        }
        let columns = self.columns.unwrap_or_default();
        let kinds: Vec<ColumnKind> =
            columns.columns().iter().map(|column| column.values.kind(&column.name)).collect();
        self.file.finish(&kinds, texts)
    }
}

impl Table {
    /// Writes it as a Parquet file.
    ///
    /// # Errors
    /// If the writer fails.
    pub fn write_parquet(&self, out: impl Write) -> io::Result<()> {
        let mut file = TableFile::new(out)?;
        file.write(self)?;
        file.columns = Some(self.part(0..0));
        file.finish(&[]).map(drop)
    }

    /// Reads a file that this module has written, in which these columns are of texts, counts or numbers as here.
    ///
    /// # Errors
    /// If it is another file, or damaged.
    pub fn read_parquet(bytes: &[u8], columns: &Self) -> Result<Self, TraceError> {
        let footer = Footer::read(footer_bytes(bytes)?, GROUP)?;
        let kinds = columns.columns.iter().map(|column| column.values.kind(&column.name));
        let kinds: Vec<ColumnKind> = kinds.collect();
        let seen = footer.columns.iter().map(|column| (column.name, column.physical));
        if !seen.eq(kinds.iter().map(|kind| (kind.name.as_bytes(), i64::from(kind.physical)))) {
            return Err(TraceError::Foreign("it has other columns".into()));
        }
        let mut table = columns.part(0..0);
        for group in &footer.groups {
            for ((column, kind), &at) in table.columns.iter_mut().zip(&kinds).zip(&group.columns) {
                column.values.read(kind, &mut Bytes::at(bytes, at)?, group.rows)?;
            }
        }
        Ok(table)
    }

    /// Appends the rows of a table with the same columns.
    ///
    /// # Panics
    /// If a column is of another kind.
    pub fn append(&mut self, other: &Self) {
        for (column, more) in self.columns.iter_mut().zip(&other.columns) {
            column.values.append(&more.values);
        }
    }

    /// Whether it has columns of the same names and kinds.
    fn is_like(&self, other: &Self) -> bool {
        let kinds = |table: &'_ Self| -> Vec<(String, i32)> {
            let kind = |column: &Column| (column.name.clone(), column.values.kind("").physical);
            table.columns.iter().map(kind).collect()
        };
        kinds(self) == kinds(other)
    }

    /// Some of its rows.
    fn part(&self, rows: std::ops::Range<usize>) -> Self {
        let part =
            |column: &Column| Column { name: column.name.clone(), values: column.values.part(rows.clone()) };
        Self { columns: self.columns.iter().map(part).collect() }
    }
}

/// The text under a key of a Parquet file's footer. `None` if it has none.
///
/// # Errors
/// If it is no Parquet file.
pub fn text_of<'a>(bytes: &'a [u8], key: &str) -> Result<Option<&'a [u8]>, TraceError> {
    Ok(Footer::read(footer_bytes(bytes)?, GROUP)?.text(key))
}

impl Values {
    /// Appends what the pages of a group of so many rows have.
    fn read(&mut self, kind: &ColumnKind, pages: &mut Bytes, rows: usize) -> Result<(), TraceError> {
        let words = match self {
            Self::Texts(_) => {
                let words = Page::read(pages, PAGE_MAX)?;
                if words.kind != i64::from(page::DICTIONARY) {
                    return Err(TraceError::Foreign(format!("column `{}` has no dictionary", kind.name)));
                }
                words.bytes
            }
            Self::Counts(_) | Self::Numbers(_) => Vec::new(),
        };
        let dictionary = words_of(&words)?;
        let start = pages.position();
        let values = Page::read(pages, PAGE_MAX)?;
        values.check(start, kind.name, rows, kind.encoding)?;
        let mut raw = Bytes::new(&values.bytes);
        let wrong = || TraceError::damaged(start, format!("column `{}` has not {rows} values", kind.name));
        match self {
            Self::Texts(words) => {
                let is_there = present(&mut raw, rows)?;
                let bits = raw.u8()?;
                let count = is_there.iter().filter(|is_there| **is_there).count();
                let packed = packed_run(&mut raw, bits, count).ok_or_else(wrong)?;
                let mut at = 0;
                for is_there in is_there {
                    let number = is_there.then(|| unpack(packed, at, bits) as usize);
                    at += usize::from(is_there);
                    let text = number.map(|number| dictionary.get(number).ok_or_else(wrong)).transpose()?;
                    words.push(text.copied());
                }
            }
            Self::Counts(counts) => {
                counts.extend(delta::decode(&values.bytes, rows)?.into_iter().map(|count| count as u64));
                return Ok(());
            }
            Self::Numbers(numbers) => {
                for is_there in present(&mut raw, rows)? {
                    numbers.push(is_there.then(|| raw.u64().map(f64::from_bits)).transpose()?);
                }
            }
        }
        if raw.is_empty() { Ok(()) } else { Err(wrong()) }
    }
}

/// The words of a dictionary's page.
fn words_of(bytes: &[u8]) -> Result<Vec<&str>, TraceError> {
    let (mut left, mut words) = (Bytes::new(bytes), Vec::new());
    while !left.is_empty() {
        let length = left.u32()?;
        let word = str::from_utf8(left.take(length.into())?);
        words.push(word.map_err(|_| TraceError::damaged(left.position(), "a text is not UTF-8"))?);
    }
    Ok(words)
}

/// Which values of a column there are.
fn present(raw: &mut Bytes, rows: usize) -> Result<Vec<bool>, TraceError> {
    let length = raw.u32()?;
    let mut levels = Bytes::new(raw.take(length.into())?);
    let packed = packed_run(&mut levels, 1, rows).filter(|_| levels.is_empty());
    let packed =
        packed.ok_or_else(|| TraceError::damaged(raw.position(), "a column has not a level for each row"))?;
    Ok((0..rows).map(|row| unpack(packed, row, 1) == 1).collect())
}

/// The one run of so many numbers, packed.
fn packed_run<'a>(bytes: &mut Bytes<'a>, bits: u8, count: usize) -> Option<&'a [u8]> {
    let groups = count.div_ceil(8);
    let is_one = bits <= 32 && bytes.varint().ok()? == (groups as u64) << 1 | 1;
    bytes.take((groups * usize::from(bits)) as u64).ok().filter(|_| is_one)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn tables() -> impl Strategy<Value = Table> {
        let text = prop_oneof![Just(None), prop_oneof!["[a-c]", ".*"].prop_map(Some)];
        let number =
            prop_oneof![Just(None), any::<f64>().prop_filter("equal", |n| !n.is_nan()).prop_map(Some)];
        proptest::collection::vec((text, any::<u64>(), number), 0..50).prop_map(|rows| table(&rows))
    }

    fn table(rows: &[(Option<String>, u64, Option<f64>)]) -> Table {
        let texts = rows.iter().map(|(text, ..)| text.as_deref()).collect();
        Table::new(vec![
            Column { name: "who".into(), values: Values::Texts(texts) },
            Column { name: "seed".into(), values: Values::Counts(rows.iter().map(|row| row.1).collect()) },
            Column { name: "value".into(), values: Values::Numbers(rows.iter().map(|row| row.2).collect()) },
        ])
    }

    fn texts(table: &Table) -> Vec<Option<String>> {
        match &table.columns()[0].values {
            Values::Texts(words) => words.iter().map(|word| word.map(str::to_owned)).collect(),
            other => panic!("{other:?}"),
        }
    }

    fn file(tables: &[Table]) -> Vec<u8> {
        let mut file = TableFile::new(Vec::new()).unwrap();
        tables.iter().for_each(|table| file.push(table).unwrap());
        file.finish(&[("about", "it")]).unwrap()
    }

    proptest! {
        #[test]
        fn tables_come_back_one_below_the_other(one in tables(), other in tables()) {
            let bytes = file(&[one.clone(), other.clone()]);
            let read = Table::read_parquet(&bytes, &one).unwrap();
            prop_assert_eq!(texts(&read), [texts(&one), texts(&other)].concat());
            let mut both = one;
            both.append(&other);
            prop_assert_eq!(read, both);
            prop_assert_eq!(text_of(&bytes, "about").unwrap(), Some(&b"it"[..]));
        }

        #[test]
        fn any_change_of_a_file_is_a_table_or_an_error(
            one in tables(),
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in proptest::option::of(any::<prop::sample::Index>()),
        ) {
            let mut bytes = file(std::slice::from_ref(&one));
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len())));
            drop(Table::read_parquet(&bytes, &one));
            drop(text_of(&bytes, "about"));
        }
    }

    #[test]
    fn a_file_begins_and_ends_as_parquet_with_its_columns_named_in_order() {
        let bytes = file(&[table(&[(Some("a".into()), 1, None), (None, u64::MAX, Some(0.5))])]);
        assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
        let at = |name: &str| bytes.windows(name.len()).position(|window| window == name.as_bytes());
        assert!(at("who").is_some() && at("who") < at("seed") && at("seed") < at("value"));
    }

    #[test]
    fn a_file_with_other_columns_is_refused() {
        let mut other = table(&[]);
        other.columns[0].name = "whom".into();
        let error = Table::read_parquet(&file(&[table(&[])]), &other).unwrap_err();
        assert!(matches!(error, TraceError::Foreign(_)), "{error}");
    }
}
