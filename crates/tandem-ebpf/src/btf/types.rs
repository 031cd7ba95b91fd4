//! Types and their names, sizes and parts.

use super::{MAGIC, Reader};
use crate::fault::LoadError;

/// The number of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TypeId(pub u32);

/// All types of an object.
pub(crate) struct Btf<'a> {
    types: Vec<(&'a str, Type<'a>)>,
    strings: &'a [u8],
}

/// A type. Sizes are in bytes.
#[derive(Debug)]
pub(crate) enum Type<'a> {
    Void,
    Integer {
        size: u32,
        is_signed: bool,
    },
    Pointer(TypeId),
    Array {
        element: TypeId,
        count: u32,
    },
    /// A structure or union.
    Composite {
        size: u32,
        members: Vec<Member<'a>>,
    },
    Enumeration {
        size: u32,
        is_signed: bool,
        values: Vec<(&'a str, u64)>,
    },
    /// A structure or union of which only the name is known.
    Forward,
    Typedef(TypeId),
    /// `const` and the like.
    Qualified(TypeId),
    Function {
        prototype: TypeId,
    },
    Prototype {
        result: TypeId,
        parameters: Vec<TypeId>,
    },
    Variable {
        of: TypeId,
        is_static: bool,
    },
    Section(Section),
    Float {
        size: u32,
    },
    /// A remark, which is not a type.
    Tag,
}

/// A member of a structure or union.
#[derive(Debug)]
pub(crate) struct Member<'a> {
    /// Empty for a member whose own members count as the outer type's.
    pub name: &'a str,
    pub of: TypeId,
    /// Offset from the beginning, bits.
    pub bit_offset: u32,
    /// Width of a bit-field, bits.
    pub bit_field: Option<u32>,
}

/// The variables of a section.
#[derive(Debug)]
pub(crate) struct Section {
    pub variables: Vec<SectionVariable>,
}

/// A variable (or function) in a section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionVariable {
    pub id: TypeId,
    /// Only correct for static variables: others have symbols.
    pub offset: u32,
}

impl<'a> Btf<'a> {
    /// Reads `.BTF`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let mut header = Reader::new(bytes, "the type information (.BTF)");
        if header.u16()? != MAGIC {
            return Err(header.error("does not begin as it should"));
        }
        header.take(2)?;
        let header_length = header.u32()?;
        let (types_offset, types_length) = (header.u32()?, header.u32()?);
        let (strings_offset, strings_length) = (header.u32()?, header.u32()?);
        let strings = header.part(header_length, strings_offset, strings_length)?;
        let mut btf = Self { types: vec![("", Type::Void)], strings };
        let mut reader =
            Reader::new(header.part(header_length, types_offset, types_length)?, "the list of types (.BTF)");
        while !reader.at_end() {
            let name = btf.text(reader.u32()?)?;
            let decoded = btf.read_type(&mut reader)?;
            btf.types.push((name, decoded));
        }
        Ok(btf)
    }

    fn read_type(&self, reader: &mut Reader<'a>) -> Result<Type<'a>, LoadError> {
        let info = reader.u32()?;
        let size = reader.u32()?;
        let (kind, count, flag) = (info >> 24 & 0x1f, info & 0xffff, info >> 31 != 0);
        let of = TypeId(size);
        Ok(match kind {
            1 => Type::Integer { size, is_signed: reader.u32()? >> 24 & 1 != 0 },
            2 => Type::Pointer(of),
            3 => {
                let element = TypeId(reader.u32()?);
                reader.u32()?;
                Type::Array { element, count: reader.u32()? }
            }
            4 | 5 => {
                let mut members = Vec::new();
                for _ in 0..count {
                    let (name, of, offset) =
                        (self.text(reader.u32()?)?, TypeId(reader.u32()?), reader.u32()?);
                    let bits = if flag { offset >> 24 } else { 0 };
                    let bit_offset = if flag { offset & 0xff_ffff } else { offset };
                    members.push(Member { name, of, bit_offset, bit_field: (bits != 0).then_some(bits) });
                }
                Type::Composite { size, members }
            }
            6 | 19 => {
                let mut values = Vec::new();
                for _ in 0..count {
                    let (name, low) = (self.text(reader.u32()?)?, reader.u32()?);
                    let value = match (kind, flag) {
                        (19, _) => u64::from(reader.u32()?) << 32 | u64::from(low),
                        (_, true) => low as i32 as u64,
                        (_, false) => u64::from(low),
                    };
                    values.push((name, value));
                }
                Type::Enumeration { size, is_signed: flag, values }
            }
            7 => Type::Forward,
            8 => Type::Typedef(of),
            9..=11 | 18 => Type::Qualified(of),
            12 => Type::Function { prototype: of },
            13 => {
                let mut parameters = Vec::new();
                for _ in 0..count {
                    reader.u32()?;
                    parameters.push(TypeId(reader.u32()?));
                }
                Type::Prototype { result: of, parameters }
            }
            14 => Type::Variable { of, is_static: reader.u32()? == 0 },
            15 => {
                let mut variables = Vec::new();
                for _ in 0..count {
                    variables.push(SectionVariable { id: TypeId(reader.u32()?), offset: reader.u32()? });
                    reader.u32()?;
                }
                Type::Section(Section { variables })
            }
            16 => Type::Float { size },
            17 => {
                reader.u32()?;
                Type::Tag
            }
            _ => return Err(reader.error("has a type of unknown kind")),
        })
    }

    /// The text at an offset among the texts.
    pub fn text(&self, offset: u32) -> Result<&'a str, LoadError> {
        let rest = self.strings.get(offset as usize..);
        let end = rest.and_then(|rest| rest.iter().position(|&byte| byte == 0));
        let bytes = rest.zip(end).map(|(rest, end)| &rest[..end]);
        bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).ok_or_else(|| {
            LoadError(format!("the type information (.BTF) has no text at offset {offset:#x} of its texts"))
        })
    }

    /// A type's name; empty if it has none.
    pub fn name(&self, id: TypeId) -> &'a str {
        self.types.get(id.0 as usize).map_or("", |(name, _)| name)
    }

    /// A type.
    pub fn get(&self, id: TypeId) -> Result<&Type<'a>, LoadError> {
        self.types.get(id.0 as usize).map(|(_, found)| found).ok_or_else(|| {
            LoadError(format!("the type information (.BTF) refers to type {}, which it does not have", id.0))
        })
    }

    /// The number and the type without `const`, `typedef` and the like.
    pub fn resolve(&self, mut id: TypeId) -> Result<TypeId, LoadError> {
        for _ in 0..DEPTH_MAX {
            match self.get(id)? {
                Type::Typedef(of) | Type::Qualified(of) => id = *of,
                _ => return Ok(id),
            }
        }
        Err(self.too_deep(id))
    }

    /// The type without `const`, `typedef` and the like.
    pub fn resolved(&self, id: TypeId) -> Result<&Type<'a>, LoadError> {
        self.get(self.resolve(id)?)
    }

    /// Bytes of a value of a type.
    pub fn size(&self, mut id: TypeId) -> Result<u64, LoadError> {
        let mut factor = 1_u64;
        for _ in 0..DEPTH_MAX {
            let size = match self.resolved(id)? {
                Type::Integer { size, .. }
                | Type::Composite { size, .. }
                | Type::Enumeration { size, .. }
                | Type::Float { size } => u64::from(*size),
                Type::Pointer(_) => 8,
                Type::Array { element, count } => {
                    factor = factor.saturating_mul(u64::from(*count));
                    id = *element;
                    continue;
                }
                Type::Variable { of, .. } => {
                    id = *of;
                    continue;
                }
                _ => 0,
            };
            return Ok(factor.saturating_mul(size));
        }
        Err(self.too_deep(id))
    }

    /// The structures and unions that have names, with their sizes.
    pub fn structures(&self) -> impl Iterator<Item = (&'a str, u32)> {
        self.types.iter().filter_map(|(name, found)| match found {
            Type::Composite { size, .. } if !name.is_empty() => Some((*name, *size)),
            _ => None,
        })
    }

    /// The functions, with the types of their first parameters.
    pub fn functions(&self) -> impl Iterator<Item = (&'a str, Option<TypeId>)> {
        self.types.iter().filter_map(|(name, found)| match found {
            Type::Function { prototype } => match self.get(*prototype) {
                Ok(Type::Prototype { parameters, .. }) => Some((*name, parameters.first().copied())),
                _ => None,
            },
            _ => None,
        })
    }

    /// The type that a pointer points to.
    pub fn pointee(&self, id: TypeId) -> Result<Option<TypeId>, LoadError> {
        Ok(match self.resolved(id)? {
            Type::Pointer(of) => Some(*of),
            _ => None,
        })
    }

    /// The sections with known variables, with their names.
    pub fn sections(&self) -> impl Iterator<Item = (&'a str, &Section)> {
        self.types.iter().filter_map(|(name, found)| match found {
            Type::Section(section) => Some((*name, section)),
            _ => None,
        })
    }

    fn too_deep(&self, id: TypeId) -> LoadError {
        LoadError(format!("the type information (.BTF) nests type {} in others too deeply", id.0))
    }
}

/// Deepest nesting of types: beyond it, a type contains itself.
pub(crate) const DEPTH_MAX: usize = 64;

/// A name without its flavour: the suffix after the last `___` distinguishes variants of one type or function
/// of the kernel.
pub(crate) fn essential_name(name: &str) -> &str {
    let bytes = name.as_bytes();
    let separator = (1..bytes.len().saturating_sub(3))
        .rev()
        .find(|&at| &bytes[at..at + 3] == b"___" && bytes[at - 1] != b'_' && bytes[at + 3] != b'_');
    separator.map_or(name, |at| &name[..at])
}
