//! Parquet files, as far as this project writes them.
//!
//! **Problem.** Recordings and tables of results are to be read by pandas, Polars, DuckDB and others.
//!
//! **Approach.** A [`Frame`] is a file under construction: a group of rows after the other, each column of a group a
//! page, compressed by Zstandard, with a page of its dictionary before it if it has one; then the footer. What the
//! values of a page are is up to its user: the recordings' [`file`](crate::file), and [`mod@table`] for the tables. [`read`]
//! finds the pages of a file again.
//!
//! **Limits.** There is no library for it that this project could use: `parquet`, `arrow2` and `polars-parquet` are under
//! Apache-2.0 alone, or use parts that are, and `parquet-format-safe` has had no maintainer since 2022. So this has the
//! encodings that are needed and no more. Only files that it has written are read again.
//!
//! Source: Apache Parquet 2.10, `parquet.thrift` and `Encodings.md`.

pub(crate) mod delta;
pub(crate) mod encode;
pub(crate) mod frame;
pub(crate) mod read;
pub mod table;
mod table_file;
pub(crate) mod thrift;

pub(crate) use frame::{ColumnKind, Dictionary, Frame};
pub use table::{Column, Table, Values, Words};
pub use table_file::{TableFile, text_of};
