//! Global data: addresses, pointers in it, and its variables.
//!
//! An array of one element that has a section of its own, of its name (`.data.NAME`), is one to which user space
//! gives its length before it loads the object: `RESIZABLE_ARRAY` of scx's headers. Addresses are final when the
//! object is linked, so it gets room for the largest machine then.

use crate::btf::{SectionVariable, Type, TypeId};
use crate::fault::LoadError;
use crate::image::{DataSection, Variable};
use crate::link::Linker;
use crate::memory::Memory;
use crate::object::RelocationKind;
use std::collections::BTreeMap;

/// Sections with their addresses, one after the other.
#[derive(Default)]
pub(crate) struct Layout {
    pub sections: Vec<DataSection>,
}

impl Layout {
    /// Adds a section; returns its address.
    pub fn add(&mut self, name: &str, bytes: Vec<u8>) -> Result<u64, LoadError> {
        let address = self.end().next_multiple_of(64);
        self.add_at(address, name, bytes)
    }

    /// Adds a section of an arena: in pages of its own, where no pointer has a lower half of 0, which would be
    /// none.
    fn add_to_arena(&mut self, name: &str, bytes: Vec<u8>) -> Result<u64, LoadError> {
        const PAGE: u64 = Memory::PAGE as u64;
        let address = self.end().max(Memory::BASE + 1).next_multiple_of(PAGE);
        self.add_at(address, name, bytes)
    }

    fn end(&self) -> u64 {
        self.sections.last().map_or(Memory::BASE, |last| last.address + last.bytes.len() as u64)
    }

    fn add_at(&mut self, address: u64, name: &str, bytes: Vec<u8>) -> Result<u64, LoadError> {
        if address + bytes.len() as u64 > Memory::BASE + Memory::SIZE_MAX as u64 {
            return Err(LoadError(format!(
                "the object's data is larger than {} MiB",
                Memory::SIZE_MAX >> 20
            )));
        }
        self.sections.push(DataSection { name: name.into(), address, bytes });
        Ok(address)
    }
}

/// A variable and its place.
pub(crate) struct PlacedVariable<'a> {
    pub name: &'a str,
    pub of: TypeId,
    pub section: usize,
    /// Offset from the beginning of the section, bytes.
    pub offset: u64,
    pub is_static: bool,
}

impl<'a> Linker<'a> {
    /// Assigns addresses to all sections with global data.
    pub(crate) fn lay_out_data(&mut self) -> Result<(), LoadError> {
        for (number, section) in self.object.sections.iter().enumerate() {
            if section.is_data() {
                let mut bytes = section.bytes.to_vec();
                if let Some((_, _, length)) = self.resizable(number)? {
                    bytes.resize(length, 0);
                }
                let address = match section.is_in_arena() {
                    true => self.layout.add_to_arena(section.name, bytes)?,
                    false => self.layout.add(section.name, bytes)?,
                };
                self.addresses.insert(number, address);
            }
        }
        Ok(())
    }

    /// The element's type and the number of elements of the array of any length that is a section, and the bytes
    /// of all; `None` if the section is not such an array.
    fn resizable(&self, section: usize) -> Result<Option<(TypeId, usize, usize)>, LoadError> {
        let (name, bytes) = (self.object.sections[section].name, &self.object.sections[section].bytes);
        let Some((".data" | ".rodata" | ".bss", of_variable)) = name.rsplit_once('.') else {
            return Ok(None);
        };
        let Some((_, contents)) = self.btf.sections().find(|(known, _)| *known == name) else {
            return Ok(None);
        };
        let [variable] = contents.variables[..] else { return Ok(None) };
        let Type::Variable { of, .. } = self.btf.get(variable.id)? else { return Ok(None) };
        let Type::Array { element, count: 1 } = self.btf.resolved(*of)? else { return Ok(None) };
        let size = self.btf.size(*element)?;
        if self.btf.name(variable.id) != of_variable
            || size != bytes.len() as u64
            || !(1..=RESIZABLE_SIZE_MAX as u64).contains(&size)
        {
            return Ok(None);
        }
        let count = (RESIZABLE_SIZE_MAX / size as usize).min(RESIZABLE_COUNT);
        Ok(Some((*element, count, count * size as usize)))
    }

    /// Fills in the pointers in global data.
    pub(crate) fn relocate_data(&mut self) -> Result<(), LoadError> {
        let object = self.object;
        // The sections of the object come first, in its order.
        let data_sections = object.sections.iter().filter(|section| section.is_data());
        for (position, section) in data_sections.enumerate() {
            for (&offset, relocation) in &section.relocations {
                let cannot = |problem: &str| {
                    LoadError(format!("section `{}` {problem} at offset {offset:#x}", section.name))
                };
                if relocation.kind != RelocationKind::Address {
                    return Err(cannot("has a relocation of a kind that data should not have"));
                }
                let start = usize::try_from(offset).map_err(|_| cannot("has no bytes"))?;
                let bytes = section.bytes.get(start..).and_then(|rest| rest.first_chunk::<8>());
                let addend = u64::from_le_bytes(*bytes.ok_or_else(|| cannot("has no pointer"))?);
                let symbol = &object.symbols[relocation.symbol];
                let value = self.defined_address(symbol, addend, None)?;
                let value = value.ok_or_else(|| cannot("points to something without an address"))?;
                self.layout.sections[position].bytes[start..start + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
        Ok(())
    }

    /// The place of a section's variable; `None` if there is none, or the section has no contents.
    pub(crate) fn placed_variable(
        &self,
        section: &str,
        variable: &SectionVariable,
    ) -> Result<Option<PlacedVariable<'a>>, LoadError> {
        let (Type::Variable { of, is_static }, Some(&section)) =
            (self.btf.get(variable.id)?, self.section_numbers.get(section))
        else {
            return Ok(None);
        };
        let name = self.btf.name(variable.id);
        let symbol = if *is_static { None } else { self.variable_symbols.get(&(section, name)) };
        let offset = symbol.map_or(u64::from(variable.offset), |&symbol| self.object.symbols[symbol].value);
        Ok(Some(PlacedVariable { name, of: *of, section, offset, is_static: *is_static }))
    }

    /// All global variables, by name. Static ones are left out: several may have one name.
    pub(crate) fn global_variables(&mut self) -> Result<BTreeMap<String, Variable>, LoadError> {
        let mut variables = BTreeMap::new();
        let btf = self.btf;
        for (section_name, section) in btf.sections() {
            for variable in &section.variables {
                let Some(placed) = self.placed_variable(section_name, variable)? else { continue };
                let Some(&address) = self.addresses.get(&placed.section) else { continue };
                if placed.is_static {
                    continue;
                }
                if let Some((element, count, length)) = self.resizable(placed.section)? {
                    let is_setting = self.object.sections[placed.section].is_read_only();
                    let of = self.types.add_array(element, count)?;
                    let found = Variable { address, size: length, is_setting, of };
                    variables.insert(placed.name.to_string(), found);
                    continue;
                }
                let data = &self.object.sections[placed.section];
                let size = self.btf.size(placed.of)?;
                if placed.offset.checked_add(size).is_none_or(|end| end > data.bytes.len() as u64) {
                    return Err(LoadError(format!(
                        "variable `{}` is not inside section `{section_name}`",
                        placed.name
                    )));
                }
                let found = Variable {
                    address: address + placed.offset,
                    size: size as usize,
                    is_setting: data.is_read_only(),
                    of: self.types.add(placed.of)?,
                };
                variables.insert(placed.name.to_string(), found);
            }
        }
        Ok(variables)
    }
}

/// Elements for which an array of any length has room: CPUs of the largest kernel (`CONFIG_NR_CPUS`).
const RESIZABLE_COUNT: usize = 8192;
/// Bytes for which it has room at most.
const RESIZABLE_SIZE_MAX: usize = 1 << 20;
