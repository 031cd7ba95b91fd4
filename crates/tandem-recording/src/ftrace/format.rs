//! The `format` files of tracepoints: where the fields of a record are.

use crate::error::TraceError;

/// What a `format` file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// The number with which records begin.
    pub id: u16,
    /// The name of the tracepoint, without its system.
    pub name: String,
    /// Its fields.
    pub fields: Vec<Field>,
    /// How the kernel prints it.
    pub print: String,
}

/// A field of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Bytes from the start of the record.
    pub offset: usize,
    /// Its bytes.
    pub size: usize,
    /// A number may be negative.
    pub is_signed: bool,
    /// How it is stored.
    pub shape: Shape,
}

/// How a field is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// As a number, or characters that end with a zero or with the field.
    Plain,
    /// At the end of the record: the field has the offset and the length.
    Elsewhere,
    /// The same, with an offset from the end of the field.
    After,
}

impl Format {
    /// Reads a `format` file.
    ///
    /// # Errors
    /// If it is not of that form.
    pub fn parse(text: &str) -> Result<Self, TraceError> {
        let wrong = |what: &str| TraceError::Unsupported(format!("has a format of a tracepoint {what}"));
        let after = |key: &str| text.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::trim);
        let name = after("name:").ok_or_else(|| wrong("without a name"))?;
        let id = after("ID:").and_then(|id| id.parse().ok());
        let id = id.ok_or_else(|| wrong(&format!("{name:?} without a number")))?;
        let mut fields = Vec::new();
        for line in text.lines().filter(|line| line.trim_start().starts_with("field:")) {
            fields.push(
                field(line).ok_or_else(|| wrong(&format!("{name:?} with the field {:?}", line.trim())))?,
            );
        }
        Ok(Self { id, name: name.into(), fields, print: after("print fmt:").unwrap_or_default().into() })
    }

    /// The field of a name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }
}

/// The field that a line such as `field:int irq; offset:8; size:4; signed:1;` is about. Very old kernels do
/// not say whether it is signed.
pub(super) fn field(line: &str) -> Option<Field> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?.trim();
    let [mut offset, mut size, mut signed] = [None; 3];
    for part in parts.filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once(':')?;
        let place = match key {
            "offset" => &mut offset,
            "size" => &mut size,
            "signed" => &mut signed,
            _ => continue,
        };
        *place = value.parse::<usize>().ok();
    }
    let shape = match declaration {
        _ if declaration.starts_with("__data_loc") => Shape::Elsewhere,
        _ if declaration.starts_with("__rel_loc") => Shape::After,
        _ => Shape::Plain,
    };
    // The last word, without the length of an array.
    let name = declaration.split('[').next().filter(|_| shape == Shape::Plain).unwrap_or(declaration);
    let name = name.split_whitespace().last()?.trim_start_matches('*');
    Some(Field { name: name.into(), offset: offset?, size: size?, is_signed: signed == Some(1), shape })
}

impl Field {
    fn bytes<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        record.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// Its number; `None` if the record is too short, or the field has more than eight bytes.
    pub fn number(&self, record: &[u8]) -> Option<i64> {
        let bytes = self.bytes(record)?;
        let mut all = [0; 8];
        all.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let unused = 64_u32.checked_sub(8 * bytes.len() as u32)?;
        let number = i64::from_le_bytes(all);
        match self.is_signed && unused < 64 {
            true => Some(number << unused >> unused),
            false => Some(number),
        }
    }

    /// Its text, without the zero at its end; `None` if the record is too short.
    pub fn text<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        let bytes = match self.shape {
            Shape::Plain => self.bytes(record)?,
            Shape::Elsewhere | Shape::After => {
                let place = self.number(record)? as u32;
                let base = if self.shape == Shape::After { self.offset + self.size } else { 0 };
                let start = base.checked_add(place as usize & 0xffff)?;
                record.get(start..start + (place as usize >> 16))?
            }
        };
        bytes.split(|&byte| byte == 0).next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXEC: &str = "name: sched_process_exec\nID: 365\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:__data_loc char[] filename;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:char comm[4];\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:void * function;\toffset:16;\tsize:8;\tsigned:0;\n\n\
        print fmt: \"filename=%s\", __get_str(filename)\n";

    #[test]
    fn fields_are_where_the_format_says() {
        let format = Format::parse(EXEC).unwrap();
        assert_eq!((format.id, format.name.as_str()), (365, "sched_process_exec"));
        assert!(format.print.starts_with("\"filename"));
        let mut record = vec![0; 24];
        record[4..8].copy_from_slice(&(-2_i32).to_le_bytes());
        record[8..12].copy_from_slice(&[24, 0, 8, 0]);
        record[12..16].copy_from_slice(b"full");
        record[16] = 7;
        record.extend(b"/bin/sh\0");
        let field = |name| format.field(name).unwrap();
        assert_eq!(field("common_pid").number(&record), Some(-2));
        assert_eq!(field("filename").text(&record), Some(&b"/bin/sh"[..]));
        assert_eq!(field("comm").text(&record), Some(&b"full"[..]));
        assert_eq!(field("function").number(&record), Some(7));
        // A record may be shorter than its format, and may point outside itself.
        assert_eq!(field("function").number(&record[..20]), None);
        assert_eq!(field("filename").text(&record[..30]), None);
    }

    #[test]
    fn what_is_no_format_is_an_error() {
        assert!(Format::parse("name: a").is_err());
        assert!(Format::parse("ID: 3").is_err());
        let error = Format::parse("name: a\nID: 3\n\tfield:int x;\toffset:-1;\tsize:4;").unwrap_err();
        assert_eq!(
            error.to_string(),
            "has a format of a tracepoint \"a\" with the field \"field:int x;\\toffset:-1;\\tsize:4;\""
        );
    }
}
