//! Schedulers as objects define them: variables of `struct sched_ext_ops`, or `struct sched_ext_ops_cid`, in sections of
//! their own.

use crate::btf::{Type, essential_name};
use crate::fault::LoadError;
use crate::image::StructOps;
use crate::link::Linker;
use std::collections::BTreeMap;

/// The kernel's types of schedulers. Others have nothing to do with scheduling.
const SCHEDULER: &str = "sched_ext_ops";
const SCHEDULER_BY_CID: &str = "sched_ext_ops_cid";
/// Most schedulers that an object may have.
const COUNT_MAX: usize = 64;

/// Whether a section contains schedulers.
fn is_struct_ops(section: &str) -> bool {
    matches!(section.trim_start_matches('?'), ".struct_ops" | ".struct_ops.link")
}

impl Linker<'_> {
    /// Reads all schedulers; their callbacks are then among the functions that can be reached.
    pub(crate) fn read_struct_ops(&mut self) -> Result<Vec<StructOps>, LoadError> {
        let mut found = Vec::new();
        let btf = self.btf;
        for (section_name, section) in btf.sections().filter(|(name, _)| is_struct_ops(name)) {
            for variable in &section.variables {
                let Some(placed) = self.placed_variable(section_name, variable)? else { continue };
                let id = btf.resolve(placed.of)?;
                let Type::Composite { members, size } = btf.get(id)? else { continue };
                let is_by_cid = match essential_name(btf.name(id)) {
                    SCHEDULER => false,
                    SCHEDULER_BY_CID => true,
                    _ => continue,
                };
                if found.len() == COUNT_MAX {
                    return Err(LoadError(format!("the object defines more than {COUNT_MAX} schedulers")));
                }
                let object = self.object;
                let data = &object.sections[placed.section];
                let bytes = usize::try_from(placed.offset).ok().and_then(|start| data.bytes.get(start..));
                let bytes = bytes.and_then(|bytes| bytes.get(..*size as usize)).ok_or_else(|| {
                    LoadError(format!("scheduler `{}` is not inside its section", placed.name))
                })?;
                let mut scheduler = StructOps {
                    name: placed.name.into(),
                    is_by_cid,
                    callbacks: BTreeMap::new(),
                    numbers: BTreeMap::new(),
                    texts: BTreeMap::new(),
                };
                for member in members.iter().filter(|member| member.bit_field.is_none()) {
                    let start = member.bit_offset as usize / 8;
                    let size = btf.size(member.of)?;
                    let value = bytes
                        .get(start..)
                        .and_then(|rest| rest.get(..usize::try_from(size).ok()?))
                        .ok_or_else(|| {
                        LoadError(format!(
                            "member `{}` of scheduler `{}` is not inside it",
                            member.name, placed.name
                        ))
                    })?;
                    let name = member.name.to_string();
                    match btf.resolved(member.of)? {
                        Type::Pointer(_) => {
                            if let Some(relocation) = data.relocations.get(&(placed.offset + start as u64)) {
                                let symbol = &object.symbols[relocation.symbol];
                                let addend = u64::from_le_bytes(value.try_into().unwrap_or_default());
                                let function = self.function_of(symbol, addend, None).ok_or_else(|| {
                                    LoadError(format!(
                                        "member `{name}` of scheduler `{}` is not a function",
                                        placed.name
                                    ))
                                })?;
                                scheduler.callbacks.insert(name, function);
                            }
                        }
                        Type::Integer { .. } | Type::Enumeration { .. } if size <= 8 => {
                            let mut number = [0; 8];
                            number[..value.len()].copy_from_slice(value);
                            scheduler.numbers.insert(name, u64::from_le_bytes(number));
                        }
                        Type::Array { element, .. } if btf.size(*element)? == 1 => {
                            let text = value.split(|&byte| byte == 0).next().unwrap_or_default();
                            scheduler.texts.insert(name, String::from_utf8_lossy(text).into_owned());
                        }
                        _ => {}
                    }
                }
                found.push(scheduler);
            }
        }
        Ok(found)
    }
}
