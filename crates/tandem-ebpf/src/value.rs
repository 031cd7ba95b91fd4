//! Values that user space gives to variables, elements of maps and arguments of programs, as bytes.
//!
//! A value names the parts that it sets, and leaves the others as they are: a list is for the first elements
//! of an array, a table for members of a structure, or for elements of an array by their positions.

use crate::data_types::{DataType, DataTypeId, DataTypes};
use std::collections::BTreeMap;

/// A value, or the values of some parts of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A number, `true` and `false` as 1 and 0. A negative one stands for its two's complement.
    Number(i128),
    /// The text of an array of bytes; for a number, names of constants, separated by `|`.
    Text(String),
    /// The first elements of an array.
    List(Vec<Value>),
    /// Members of a structure by their names, or elements of an array by their positions.
    Table(BTreeMap<String, Value>),
}

/// Bytes at an offset.
pub type Patch = (usize, Vec<u8>);

impl DataTypes {
    /// The bytes that a value sets, in a variable (or the like) of a type and a size. `constant` knows names
    /// beside those of the type.
    ///
    /// # Errors
    /// A sentence: what does not fit, `name` first.
    pub fn patches(
        &self,
        name: &str,
        (of, size): (DataTypeId, usize),
        value: &Value,
        constant: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Vec<Patch>, String> {
        let mut writer = Writer { types: self, constant, size, patches: Vec::new() };
        writer.write(&mut name.to_owned(), of, 0, value)?;
        Ok(writer.patches)
    }

    /// The same as the bytes of the whole, 0 where the value sets nothing.
    ///
    /// # Errors
    /// As [`DataTypes::patches`].
    pub fn bytes(
        &self,
        name: &str,
        (of, size): (DataTypeId, usize),
        value: &Value,
        constant: &dyn Fn(&str) -> Option<u64>,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = vec![0; size];
        for (offset, patch) in self.patches(name, (of, size), value, constant)? {
            bytes[offset..offset + patch.len()].copy_from_slice(&patch);
        }
        Ok(bytes)
    }
}

struct Writer<'a> {
    types: &'a DataTypes,
    constant: &'a dyn Fn(&str) -> Option<u64>,
    /// Bytes of the whole.
    size: usize,
    patches: Vec<Patch>,
}

impl Writer<'_> {
    /// Writes a value at an offset; `path` is what it is called in messages.
    fn write(
        &mut self,
        path: &mut String,
        of: DataTypeId,
        offset: usize,
        value: &Value,
    ) -> Result<(), String> {
        let types = self.types;
        match (types.get(of), value) {
            (&DataType::Number { size, .. }, Value::Number(number)) => {
                self.write_number(path, offset, size, *number)
            }
            (DataType::Number { size, names }, Value::Text(text)) => {
                let number = self.constants(path, names, text)?;
                self.write_number(path, offset, *size, number.into())
            }
            (&DataType::Array { element, stride: 1, count }, Value::Text(text))
                if matches!(types.get(element), DataType::Number { .. }) =>
            {
                if text.len() >= count {
                    return Err(format!(
                        "`{path}` has room for {} bytes of text, not {}",
                        count.saturating_sub(1),
                        text.len()
                    ));
                }
                // What was there is overwritten, not continued.
                let mut bytes = text.clone().into_bytes();
                bytes.push(0);
                self.put(path, offset, bytes)
            }
            (&DataType::Array { element, stride, count }, Value::List(values)) => {
                if values.len() > count {
                    return Err(format!("`{path}` has room for {count} elements, not {}", values.len()));
                }
                for (position, value) in values.iter().enumerate() {
                    self.write_element(path, element, (offset, stride), position, value)?;
                }
                Ok(())
            }
            (&DataType::Array { element, stride, count }, Value::Table(values)) => {
                for (key, value) in values {
                    let position = key.parse().ok().filter(|&position: &usize| position < count);
                    let position = position.ok_or_else(|| {
                        format!(
                            "`{path}` has no element `{key}`; positions are 0 to {}",
                            count.saturating_sub(1)
                        )
                    })?;
                    self.write_element(path, element, (offset, stride), position, value)?;
                }
                Ok(())
            }
            (DataType::Structure { fields }, Value::Table(values)) => {
                for (key, value) in values {
                    let field = fields.get(key).ok_or_else(|| {
                        format!("`{path}` has no member `{key}`; it has {}", listed(fields.keys()))
                    })?;
                    let length = path.len();
                    path.push('.');
                    path.push_str(key);
                    self.write(path, field.of, offset.saturating_add(field.offset), value)?;
                    path.truncate(length);
                }
                Ok(())
            }
            (of, value) => Err(format!("`{path}` is {}, not {}", described(of), form(value))),
        }
    }

    fn write_element(
        &mut self,
        path: &mut String,
        of: DataTypeId,
        (offset, stride): (usize, usize),
        position: usize,
        value: &Value,
    ) -> Result<(), String> {
        let length = path.len();
        path.push_str(&format!("[{position}]"));
        let offset = offset.saturating_add(stride.saturating_mul(position));
        self.write(path, of, offset, value)?;
        path.truncate(length);
        Ok(())
    }

    fn write_number(&mut self, path: &str, offset: usize, size: usize, number: i128) -> Result<(), String> {
        let bits = 8 * size;
        if !(-(1_i128 << (bits - 1))..1_i128 << bits).contains(&number) {
            return Err(format!("{number} does not fit into `{path}`, which has {bits} bits"));
        }
        self.put(path, offset, number.to_le_bytes()[..size].to_vec())
    }

    /// The constants that a text names.
    fn constants(&self, path: &str, names: &[(String, u64)], text: &str) -> Result<u64, String> {
        text.split('|').map(str::trim).try_fold(0, |all, name| {
            let own = names.iter().find(|(known, _)| known == name).map(|&(_, value)| value);
            let value = own.or_else(|| (self.constant)(name));
            value.map(|value| all | value).ok_or_else(|| {
                format!("`{path}` is a number, and `{name}` is no constant that its type or the kernel has")
            })
        })
    }

    fn put(&mut self, path: &str, offset: usize, bytes: Vec<u8>) -> Result<(), String> {
        if offset.checked_add(bytes.len()).is_none_or(|end| end > self.size) {
            return Err(format!("`{path}` lies outside of what contains it: the object's types are damaged"));
        }
        self.patches.push((offset, bytes));
        Ok(())
    }
}

/// Names for a message: the first ones, if there are many.
pub fn listed<'a>(names: impl ExactSizeIterator<Item = &'a String>) -> String {
    const COUNT_MAX: usize = 40;
    let count = names.len();
    let first: Vec<_> = names.take(COUNT_MAX).map(|name| format!("`{name}`")).collect();
    match count {
        0 => "none".to_owned(),
        1..=COUNT_MAX => first.join(", "),
        _ => format!("{} and {} more", first.join(", "), count - COUNT_MAX),
    }
}

fn described(of: &DataType) -> String {
    match of {
        DataType::Number { .. } => "a number".to_owned(),
        DataType::Array { count, .. } => format!("an array of {count} elements"),
        DataType::Structure { .. } => "a structure".to_owned(),
        DataType::Other => "of a type that cannot be set".to_owned(),
    }
}

fn form(value: &Value) -> &'static str {
    match value {
        Value::Number(_) => "a number",
        Value::Text(_) => "a text",
        Value::List(_) => "a list",
        Value::Table(_) => "a table",
    }
}
