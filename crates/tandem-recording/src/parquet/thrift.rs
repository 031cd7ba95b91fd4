//! Thrift's compact protocol, as far as the metadata of Parquet needs it.
//!
//! Approach: a writer of fields, and a reader that calls a function for each field of a structure. The reader
//! allocates nothing, so that no count in a file decides about memory.
//!
//! Source: Apache Thrift, `doc/specs/thrift-compact-protocol.md`.

use crate::bytes::{Bytes, push_varint, push_zigzag};
use crate::error::TraceError;

/// Types of fields and of elements of lists.
pub mod kind {
    pub const TRUE: u8 = 1;
    pub const FALSE: u8 = 2;
    pub const I8: u8 = 3;
    pub const I32: u8 = 5;
    pub const I64: u8 = 6;
    pub const DOUBLE: u8 = 7;
    pub const BINARY: u8 = 8;
    pub const LIST: u8 = 9;
    pub const SET: u8 = 10;
    pub const STRUCT: u8 = 12;
}

/// How deep structures and lists may be nested: those of Parquet are less than ten deep.
const DEPTH_MAX: u32 = 16;

/// Writes a structure. Fields come in the order of their numbers.
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    last: u8,
}

impl<'a> Writer<'a> {
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, last: 0 }
    }

    fn field(&mut self, number: u8, kind: u8) {
        let step = number - self.last;
        assert!((1..16).contains(&step), "fields come in order, without large gaps");
        self.out.push(step << 4 | kind);
        self.last = number;
    }

    pub fn i32(&mut self, number: u8, value: i32) -> &mut Self {
        self.field(number, kind::I32);
        push_zigzag(self.out, value.into());
        self
    }

    pub fn i64(&mut self, number: u8, value: i64) -> &mut Self {
        self.field(number, kind::I64);
        push_zigzag(self.out, value);
        self
    }

    pub fn text(&mut self, number: u8, value: &str) -> &mut Self {
        self.field(number, kind::BINARY);
        push_text(self.out, value);
        self
    }

    pub fn structure(&mut self, number: u8, write: impl FnOnce(&mut Writer)) -> &mut Self {
        self.field(number, kind::STRUCT);
        structure(self.out, write);
        self
    }

    /// A list of structures.
    pub fn structures<T>(
        &mut self,
        number: u8,
        items: impl ExactSizeIterator<Item = T>,
        mut write: impl FnMut(&mut Writer, T),
    ) -> &mut Self {
        self.list(number, kind::STRUCT, items.len());
        for item in items {
            structure(self.out, |writer| write(writer, item));
        }
        self
    }

    pub fn i32s(&mut self, number: u8, items: &[i32]) -> &mut Self {
        self.list(number, kind::I32, items.len());
        items.iter().for_each(|&item| push_zigzag(self.out, item.into()));
        self
    }

    pub fn texts(&mut self, number: u8, items: &[&str]) -> &mut Self {
        self.list(number, kind::BINARY, items.len());
        items.iter().for_each(|item| push_text(self.out, item));
        self
    }

    fn list(&mut self, number: u8, element: u8, count: usize) {
        self.field(number, kind::LIST);
        match u8::try_from(count) {
            Ok(few @ 0..15) => self.out.push(few << 4 | element),
            _ => {
                self.out.push(0xf0 | element);
                push_varint(self.out, count as u64);
            }
        }
    }
}

/// Writes a structure that is no field of another one.
pub fn structure(out: &mut Vec<u8>, write: impl FnOnce(&mut Writer)) {
    write(&mut Writer::new(out));
    out.push(0);
}

fn push_text(out: &mut Vec<u8>, text: &str) {
    push_varint(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Calls a function for each field of a structure, with the field's number and its value.
pub fn read_structure<'a>(
    bytes: &mut Bytes<'a>,
    mut field: impl FnMut(i64, Value<'a, '_>) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    read_at_depth(bytes, DEPTH_MAX, &mut field)
}

fn read_at_depth<'a>(
    bytes: &mut Bytes<'a>,
    depth: u32,
    field: &mut dyn FnMut(i64, Value<'a, '_>) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let mut number = 0_i64;
    loop {
        let byte = bytes.u8()?;
        if byte == 0 {
            return Ok(());
        }
        number = match byte >> 4 {
            0 => bytes.zigzag()?,
            step => number.saturating_add(step.into()),
        };
        read_value(bytes, byte & 15, depth, &mut |value| field(number, value))?;
    }
}

/// Calls the function with the value, and goes on after it, however much of it the function has read.
fn read_value<'a>(
    bytes: &mut Bytes<'a>,
    kind: u8,
    depth: u32,
    then: &mut dyn FnMut(Value<'a, '_>) -> Result<(), TraceError>,
) -> Result<(), TraceError> {
    let start = bytes.position();
    let Some(depth) = depth.checked_sub(1) else {
        return Err(TraceError::damaged(start, "its metadata is nested too deep"));
    };
    match kind {
        kind::TRUE | kind::FALSE => then(Value::Bool),
        kind::I8 => {
            bytes.u8()?;
            then(Value::Other)
        }
        4..=kind::I64 => then(Value::Number(bytes.zigzag()?)),
        kind::DOUBLE => {
            bytes.u64()?;
            then(Value::Other)
        }
        kind::BINARY => {
            let length = bytes.varint()?;
            then(Value::Binary(bytes.take(length)?))
        }
        kind::LIST | kind::SET => {
            let header = bytes.u8()?;
            let count = match header >> 4 {
                15 => bytes.varint()?,
                few => few.into(),
            };
            // An element has at least a byte.
            if count > bytes.left() as u64 {
                return Err(TraceError::damaged(
                    start,
                    format!("a list has {count} elements, more than bytes"),
                ));
            }
            for _ in 0..count {
                // A list of booleans has a byte for each; no list of Parquet's metadata has any.
                match header & 15 {
                    kind::TRUE | kind::FALSE => {
                        bytes.u8()?;
                        then(Value::Bool)?;
                    }
                    element => read_value(bytes, element, depth, then)?,
                }
            }
            Ok(())
        }
        kind::STRUCT => {
            // Twice if the function reads it: once to find its end, which also proves it well-formed.
            let mut inner = *bytes;
            read_at_depth(bytes, depth, &mut |_, _| Ok(()))?;
            then(Value::Struct(&mut inner))
        }
        _ => Err(TraceError::damaged(start, format!("its metadata has a value of type {kind}"))),
    }
}

/// A value of a field. A list is each of its elements, one after the other.
pub enum Value<'a, 'b> {
    Bool,
    Number(i64),
    Binary(&'a [u8]),
    Struct(&'b mut Bytes<'a>),
    /// Of a type that this file format does not use.
    Other,
}
