//! The object file: sections, symbols and relocations (ELF), before linking.

use crate::fault::LoadError;
use crate::memory::Memory;
use object::LittleEndian;
use object::elf;
use object::read::elf::{FileHeader, SectionHeader, Sym};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;

/// An object file.
pub(crate) struct Object<'a> {
    /// By their numbers in the file; the first one is empty.
    pub sections: Vec<Section<'a>>,
    /// By their numbers in the file.
    pub symbols: Vec<Symbol<'a>>,
}

/// A section.
pub(crate) struct Section<'a> {
    pub name: &'a str,
    /// Its contents; of one without any in the file (`.bss`), zeros.
    pub bytes: Cow<'a, [u8]>,
    /// By their offsets in it.
    pub relocations: BTreeMap<u64, Relocation>,
}

impl Section<'_> {
    /// Whether it is global data, which has an address.
    pub fn is_data(&self) -> bool {
        self.is_in_arena()
            || [".rodata", ".data", ".bss"].iter().any(|kind| {
                self.name.strip_prefix(kind).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
    }

    /// Whether it is global data in the object's arena.
    pub fn is_in_arena(&self) -> bool {
        self.name == ".addr_space.1"
    }

    /// Whether it is data that programs do not change.
    pub fn is_read_only(&self) -> bool {
        self.name.starts_with(".rodata")
    }
}

/// A name for a place.
pub(crate) struct Symbol<'a> {
    pub name: &'a str,
    /// Its address; `None` if it is not in this object.
    pub section: Option<usize>,
    /// From the beginning of the section, bytes.
    pub value: u64,
    /// Bytes.
    pub size: u64,
    pub is_function: bool,
    pub is_weak: bool,
}

/// A place that linking fills in.
#[derive(Clone, Copy)]
pub(crate) struct Relocation {
    /// The number of the symbol.
    pub symbol: usize,
    pub kind: RelocationKind,
}

/// What a place holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelocationKind {
    /// The constant of an instruction of two slots.
    LoadImmediate,
    /// The function that an instruction calls.
    Call,
    /// An address of 64 bits, in data.
    Address,
    /// Another one, which is only for information about types and lines.
    Other,
}

impl<'a> Object<'a> {
    /// Reads a file.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, LoadError> {
        let header = elf::FileHeader64::<LittleEndian>::parse(bytes).map_err(unreadable)?;
        let endian = header.endian().map_err(unreadable)?;
        if header.e_machine.get(endian) != elf::EM_BPF || header.e_type.get(endian) != elf::ET_REL {
            return Err(LoadError(
                "the file is not an eBPF object: compile it with clang -target bpf".into(),
            ));
        }
        let table = header.sections(endian, bytes).map_err(unreadable)?;
        let mut sections = Vec::with_capacity(table.len());
        let mut size_zeros = 0;
        for section in table.iter() {
            let name = table.section_name(endian, section).map_err(unreadable)?;
            let contents = if section.sh_type(endian) == elf::SHT_NOBITS {
                // Zeros take no room in the file: a short file may demand many.
                size_zeros = u64::saturating_add(size_zeros, section.sh_size.get(endian));
                if size_zeros > Memory::SIZE_MAX as u64 {
                    return Err(LoadError(format!(
                        "section `{}` makes the object's data larger than {} MiB",
                        text(name),
                        Memory::SIZE_MAX >> 20
                    )));
                }
                Cow::Owned(vec![0; section.sh_size.get(endian) as usize])
            } else {
                Cow::Borrowed(section.data(endian, bytes).map_err(unreadable)?)
            };
            sections.push(Section { name: text(name), bytes: contents, relocations: BTreeMap::new() });
        }

        let table_of_symbols = table.symbols(endian, bytes, elf::SHT_SYMTAB).map_err(unreadable)?;
        let strings = table_of_symbols.strings();
        let mut symbols = Vec::with_capacity(table_of_symbols.len());
        for symbol in table_of_symbols.iter() {
            let section = usize::from(symbol.st_shndx.get(endian).0);
            symbols.push(Symbol {
                name: text(symbol.name(endian, strings).map_err(unreadable)?),
                section: (1..sections.len()).contains(&section).then_some(section),
                value: symbol.st_value.get(endian),
                size: symbol.st_size.get(endian),
                is_function: symbol.st_type() == elf::STT_FUNC,
                is_weak: symbol.st_bind() == elf::STB_WEAK,
            });
        }

        for section in table.iter() {
            let Some((relocations, _)) = section.rel(endian, bytes).map_err(unreadable)? else { continue };
            let Some(target) = sections.get_mut(section.sh_info.get(endian) as usize) else {
                return Err(LoadError(
                    "the object has relocations of a section that it does not have".into(),
                ));
            };
            for relocation in relocations {
                let symbol = relocation.r_sym(endian) as usize;
                if symbol >= symbols.len() {
                    return Err(LoadError(format!(
                        "a relocation of section `{}` is for symbol {symbol}, which the object does not have",
                        target.name
                    )));
                }
                let kind = match relocation.r_type(endian).0 {
                    1 => RelocationKind::LoadImmediate,
                    2 => RelocationKind::Address,
                    10 => RelocationKind::Call,
                    _ => RelocationKind::Other,
                };
                target.relocations.insert(relocation.r_offset.get(endian), Relocation { symbol, kind });
            }
        }
        Ok(Self { sections, symbols })
    }

    /// The contents of the section of this name.
    pub fn section(&self, name: &str) -> Option<&[u8]> {
        self.sections.iter().find(|section| section.name == name).map(|section| &*section.bytes)
    }
}

fn unreadable(error: impl Display) -> LoadError {
    LoadError(format!("the object file cannot be read: {error}"))
}

/// Names are identifiers of C. A program cannot refer to a place by any other name.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("")
}
