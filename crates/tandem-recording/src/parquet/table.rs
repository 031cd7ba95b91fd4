//! Tables of results: named columns of texts, counts and numbers.
//!
//! Results repeat few texts, such as the names of groups. A column of texts has each once, and their numbers.

use super::delta;
use super::encode::{bits_for, encoding, packed_run, physical, presence, texts};
use super::{ColumnKind, Dictionary, Frame};
use std::collections::HashMap;
use std::io::{self, Write};
use std::ops::Range;

/// A table: columns of equal length.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub(super) columns: Vec<Column>,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// One for each row.
    pub values: Values,
}

/// The values of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Texts.
    Texts(Words),
    /// Whole numbers, none of which is missing.
    Counts(Vec<u64>),
    /// Numbers; `None` where there is none.
    Numbers(Vec<Option<f64>>),
}

/// Texts, each of which is kept once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Words {
    words: Vec<String>,
    numbers: HashMap<String, u32>,
    rows: Vec<Option<u32>>,
}

impl Words {
    /// Appends a text, or that there is none.
    ///
    /// # Panics
    /// With more different texts than a `u32` counts.
    pub fn push(&mut self, text: Option<&str>) {
        let number = text.map(|text| match self.numbers.get(text) {
            Some(&number) => number,
            None => {
                let number = u32::try_from(self.words.len()).expect("memory ends before the numbers do");
                self.words.push(text.to_owned());
                self.numbers.insert(text.to_owned(), number);
                number
            }
        });
        self.rows.push(number);
    }

    /// The texts of the rows.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.rows.iter().map(|number| number.map(|number| self.words[number as usize].as_str()))
    }
}

impl<'a> FromIterator<Option<&'a str>> for Words {
    fn from_iter<T: IntoIterator<Item = Option<&'a str>>>(texts: T) -> Self {
        let mut words = Self::default();
        texts.into_iter().for_each(|text| words.push(text));
        words
    }
}

impl Values {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Texts(words) => words.rows.len(),
            Self::Counts(counts) => counts.len(),
            Self::Numbers(numbers) => numbers.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn kind<'a>(&self, name: &'a str) -> ColumnKind<'a> {
        let (physical, encoding) = match self {
            Self::Texts(_) => (physical::BYTE_ARRAY, encoding::RLE_DICTIONARY),
            Self::Counts(_) => (physical::INT64, encoding::DELTA_BINARY_PACKED),
            Self::Numbers(_) => (physical::DOUBLE, encoding::PLAIN),
        };
        let is_counts = matches!(self, Self::Counts(_));
        ColumnKind { name, physical, encoding, is_unsigned: is_counts, is_optional: !is_counts }
    }

    /// Some of them.
    pub(super) fn part(&self, rows: Range<usize>) -> Self {
        match self {
            Self::Texts(words) => Self::Texts(words.iter().skip(rows.start).take(rows.len()).collect()),
            Self::Counts(counts) => Self::Counts(counts[rows].to_vec()),
            Self::Numbers(numbers) => Self::Numbers(numbers[rows].to_vec()),
        }
    }

    /// Appends values of the same kind.
    ///
    /// # Panics
    /// If they are of another one.
    pub(super) fn append(&mut self, more: &Self) {
        match (self, more) {
            (Self::Texts(words), Self::Texts(more)) => more.iter().for_each(|text| words.push(text)),
            (Self::Counts(counts), Self::Counts(more)) => counts.extend(more),
            (Self::Numbers(numbers), Self::Numbers(more)) => numbers.extend(more),
            _ => panic!("a column has values of one kind"),
        }
    }

    /// Writes these rows of it.
    pub(super) fn write(&self, rows: Range<usize>, out: &mut Frame<impl Write>) -> io::Result<()> {
        let encoding = self.kind("").encoding;
        let (count, mut raw) = (rows.len(), Vec::new());
        match self {
            Self::Texts(words) => {
                let rows = &words.rows[rows];
                let mut dictionary = Vec::new();
                texts(words.words.iter().map(String::as_str), &mut dictionary);
                let dictionary = Dictionary { bytes: &dictionary, words: words.words.len() };
                presence(rows.iter().map(Option::is_some), &mut raw);
                let bits = bits_for(words.words.len());
                raw.push(bits);
                let there: Vec<u64> = rows.iter().flatten().map(|&number| number.into()).collect();
                packed_run(there.into_iter(), bits, &mut raw);
                out.column(count, encoding, Some(dictionary), &raw)
            }
            Self::Counts(counts) => {
                // The bits of a number without a sign.
                let counts: Vec<i64> = counts[rows].iter().map(|&count| count as i64).collect();
                delta::encode(&counts, &mut raw);
                out.column(count, encoding, None, &raw)
            }
            Self::Numbers(numbers) => {
                let rows = &numbers[rows];
                presence(rows.iter().map(Option::is_some), &mut raw);
                rows.iter().flatten().for_each(|number| raw.extend(number.to_le_bytes()));
                out.column(count, encoding, None, &raw)
            }
        }
    }
}

impl Table {
    /// A table of these columns.
    ///
    /// # Panics
    /// If they have not all as many rows.
    pub fn new(columns: Vec<Column>) -> Self {
        let is_even = columns.windows(2).all(|pair| pair[0].values.len() == pair[1].values.len());
        assert!(is_even, "the columns of a table have equally many rows");
        Self { columns }
    }

    /// Its columns.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// How many rows it has.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_once() {
        let words: Words = [Some("a"), None, Some("b"), Some("a")].into_iter().collect();
        assert_eq!(
            (&words.words[..], &words.rows[..]),
            (&["a".into(), "b".into()][..], &[Some(0), None, Some(1), Some(0)][..])
        );
        assert_eq!(words.iter().collect::<Vec<_>>(), [Some("a"), None, Some("b"), Some("a")]);
    }

    #[test]
    #[should_panic(expected = "equally many rows")]
    fn columns_of_different_lengths_are_no_table() {
        let column = |rows| Column { name: "n".into(), values: Values::Counts(vec![0; rows]) };
        Table::new(vec![column(1), column(2)]);
    }
}
