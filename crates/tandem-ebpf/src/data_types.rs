//! Types of the data that user space shares with programs: global variables, keys and values of maps,
//! arguments of programs.
//!
//! Approach: the types that can be reached from those become a table, each once, so that its size is at most
//! that of the object's type information. A type that contains itself, as in a damaged object, is found by
//! whoever follows it: values nest only finitely.
//!
//! Limits: members that are bit-fields have no names here, and cannot be set.

use crate::btf::{Btf, Type, TypeId};
use crate::fault::LoadError;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

/// The number of a type in [`DataTypes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataTypeId(u32);

/// A type of data. Sizes are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataType {
    /// A number or a pointer; the values that have names, of an enumeration.
    Number {
        /// Its size.
        size: usize,
        /// Names and values.
        names: Vec<(String, u64)>,
    },
    /// An array.
    Array {
        /// The type of its elements.
        element: DataTypeId,
        /// Their size.
        stride: usize,
        /// How many there are.
        count: usize,
    },
    /// A structure or union.
    Structure {
        /// Its members; those of a member without a name count as its own.
        fields: BTreeMap<String, DataField>,
    },
    /// Another type, such as a floating-point number.
    Other,
}

/// A member of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataField {
    /// From the beginning of the structure, bytes.
    pub offset: usize,
    /// Its type.
    pub of: DataTypeId,
}

/// The types of an image's data.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct DataTypes {
    types: Vec<DataType>,
    /// Bytes of each structure that has a name.
    sizes: HashMap<String, u64>,
}

/// They follow from the object: the hash of a scenario, which covers this text, needs only the object.
impl fmt::Debug for DataTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DataTypes").field(&self.types.len()).finish()
    }
}

impl DataTypes {
    /// A type.
    pub fn get(&self, id: DataTypeId) -> &DataType {
        &self.types[id.0 as usize]
    }

    /// Bytes of the structure with a name.
    pub fn structure_size(&self, name: &str) -> Option<u64> {
        self.sizes.get(name).copied()
    }
}

/// Makes the table.
pub(crate) struct Collector<'a> {
    btf: &'a Btf<'a>,
    numbers: HashMap<TypeId, DataTypeId>,
    /// Types that have a number, and whose entries are not made yet.
    waiting: Vec<(DataTypeId, TypeId)>,
    found: DataTypes,
}

/// Most members of a structure, with those of members without a name.
const FIELDS_MAX: usize = 1 << 16;

impl<'a> Collector<'a> {
    pub fn new(btf: &'a Btf<'a>) -> Self {
        Self { btf, numbers: HashMap::new(), waiting: Vec::new(), found: DataTypes::default() }
    }

    /// The number of a type in the table.
    pub fn add(&mut self, of: TypeId) -> Result<DataTypeId, LoadError> {
        let first = self.number(of)?;
        while let Some((at, id)) = self.waiting.pop() {
            self.found.types[at.0 as usize] = self.convert(id)?;
        }
        Ok(first)
    }

    /// The number of an array of elements of a type, which the object does not have.
    pub fn add_array(&mut self, element: TypeId, count: usize) -> Result<DataTypeId, LoadError> {
        let stride = usize::try_from(self.btf.size(element)?).unwrap_or(usize::MAX);
        let element = self.add(element)?;
        self.found.types.push(DataType::Array { element, stride, count });
        Ok(DataTypeId(self.found.types.len() as u32 - 1))
    }

    /// The table.
    pub fn finish(mut self) -> DataTypes {
        self.found.sizes = self.btf.structures().map(|(name, size)| (name.to_owned(), size.into())).collect();
        self.found
    }

    fn number(&mut self, of: TypeId) -> Result<DataTypeId, LoadError> {
        let id = self.btf.resolve(of)?;
        let next = DataTypeId(self.found.types.len() as u32);
        let number = *self.numbers.entry(id).or_insert(next);
        if number == next {
            self.found.types.push(DataType::Other);
            self.waiting.push((number, id));
        }
        Ok(number)
    }

    fn convert(&mut self, id: TypeId) -> Result<DataType, LoadError> {
        let btf = self.btf;
        Ok(match btf.get(id)? {
            Type::Integer { size: size @ (1 | 2 | 4 | 8), .. } => {
                DataType::Number { size: *size as usize, names: Vec::new() }
            }
            Type::Enumeration { size: size @ (1 | 2 | 4 | 8), values, .. } => DataType::Number {
                size: *size as usize,
                names: values.iter().map(|&(name, value)| (name.to_owned(), value)).collect(),
            },
            Type::Pointer(_) => DataType::Number { size: 8, names: Vec::new() },
            Type::Array { element, count } => DataType::Array {
                stride: usize::try_from(btf.size(*element)?).unwrap_or(usize::MAX),
                element: self.number(*element)?,
                count: *count as usize,
            },
            Type::Composite { .. } => {
                let mut fields = BTreeMap::new();
                self.add_fields(id, 0, &mut fields, &mut 0)?;
                DataType::Structure { fields }
            }
            _ => DataType::Other,
        })
    }

    /// Adds the members of a structure that begins at an offset.
    fn add_fields(
        &mut self,
        id: TypeId,
        start: usize,
        fields: &mut BTreeMap<String, DataField>,
        visited: &mut usize,
    ) -> Result<(), LoadError> {
        let btf = self.btf;
        let mut parts = vec![(id, start)];
        while let Some((id, start)) = parts.pop() {
            let Type::Composite { members, .. } = btf.resolved(id)? else { continue };
            for member in members.iter().filter(|member| member.bit_field.is_none()) {
                *visited += 1;
                if *visited > FIELDS_MAX {
                    return Err(LoadError(format!(
                        "`struct {}` has more than {FIELDS_MAX} members",
                        btf.name(id)
                    )));
                }
                let offset = start + member.bit_offset as usize / 8;
                match member.name {
                    "" => parts.push((member.of, offset)),
                    name => {
                        let field = DataField { offset, of: self.number(member.of)? };
                        fields.insert(name.to_owned(), field);
                    }
                }
            }
        }
        Ok(())
    }
}
