//! The names that an object needs from the kernel: functions, variables, configuration.
//!
//! A name may have a flavour, `___` and a suffix, so that a program can declare one function of the kernel
//! several times with different parameters. As in libbpf (`bpf_object__resolve_ksym_func_btf_id()`, 1.7), the
//! kernel has to have the name without its last flavour. Its own names may look as if they had one: the
//! program adds another one then, so that `scx_bpf_dsq_insert___v2___compat` is `scx_bpf_dsq_insert___v2`.
//!
//! A function with that name and other parameters or another result is not the one that the program means. As in
//! libbpf (`bpf_core_types_are_compat()`), their number and kinds count, not their sizes and names.

use crate::btf::{Btf, Type, TypeId, essential_name};
use crate::environment::Environment;
use crate::fault::LoadError;
use crate::helpers;
use crate::image::{Image, Import};
use crate::link::Linker;

/// The meaning of a name that the object does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extern {
    /// A function of the kernel, with its prototype.
    Function(TypeId),
    /// A variable of the kernel.
    Variable,
    /// A value of the kernel's configuration, at an address.
    Config(u64),
}

/// Why the kernel does not have the function that a program means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Lack {
    Absent,
    /// It has one of that name with other parameters or another result.
    Different,
}

/// The function of the kernel that a name means.
pub(crate) fn find_function(name: &str, environment: &Environment) -> Option<Import> {
    let name = essential_name(name);
    if environment.lacks.contains(name) {
        return None;
    }
    let kernel =
        || environment.functions.get(name).map(|&function| Import::Kernel(function, name.to_string()));
    let known = || environment.known.get(name).copied().map(Import::Known);
    helpers::is_runtime(name).map(Import::Runtime).or_else(known).or_else(kernel)
}

/// Whether a type is as a part of a prototype says, which is taken away from its text
/// ([`Environment::prototypes`]).
fn is_like(btf: &Btf, of: TypeId, text: &mut &str) -> Result<bool, LoadError> {
    let Some(kind) = text.chars().next() else { return Ok(false) };
    *text = &text[kind.len_utf8()..];
    Ok(match (kind, btf.resolved(of)?) {
        ('v', Type::Void)
        | ('i', Type::Integer { .. })
        | ('e', Type::Enumeration { .. })
        | ('s', Type::Composite { .. }) => true,
        ('p', Type::Pointer(to)) => is_like(btf, *to, text)?,
        ('(', Type::Prototype { result, parameters }) => {
            for part in [result].into_iter().chain(parameters) {
                if text.starts_with(')') || !is_like(btf, *part, text)? {
                    return Ok(false);
                }
            }
            let is_all = text.starts_with(')');
            *text = text.get(1..).unwrap_or("");
            is_all
        }
        _ => false,
    })
}

impl<'a> Linker<'a> {
    /// The function of the kernel that a program means; if there is none, whether the kernel has one of that name.
    pub(crate) fn function_of_kernel(&self, name: &str) -> Result<Result<Import, Lack>, LoadError> {
        let Some(import) = find_function(name, self.environment) else { return Ok(Err(Lack::Absent)) };
        let known = self.environment.prototypes.get(essential_name(name));
        if let (Some(mut text), Some(Extern::Function(prototype))) = (known.copied(), self.externs.get(name))
            && !is_like(self.btf, *prototype, &mut text)?
        {
            return Ok(Err(Lack::Different));
        }
        Ok(Ok(import))
    }

    /// Finds the meaning of names that the object does not define, and lays out the configuration.
    pub(crate) fn read_externs(&mut self) -> Result<(), LoadError> {
        let btf = self.btf;
        for (section, contents) in btf.sections() {
            if section == ".ksyms" {
                for variable in &contents.variables {
                    let kind = match btf.get(variable.id)? {
                        Type::Function { prototype } => Extern::Function(*prototype),
                        _ => Extern::Variable,
                    };
                    self.externs.insert(btf.name(variable.id), kind);
                }
            } else if section == ".kconfig" {
                let ids: Vec<TypeId> = contents.variables.iter().map(|variable| variable.id).collect();
                self.lay_out_config(&ids)?;
            }
        }
        Ok(())
    }

    fn lay_out_config(&mut self, variables: &[TypeId]) -> Result<(), LoadError> {
        let mut bytes: Vec<u8> = Vec::new();
        let mut offsets = Vec::with_capacity(variables.len());
        for &id in variables {
            let name = self.btf.name(id);
            let size = self.btf.size(id)?;
            if size > CONFIG_SIZE_MAX {
                return Err(LoadError(format!("`{name}` is too large for a value of the configuration")));
            }
            let size = size as usize;
            let offset = bytes.len().next_multiple_of(size.clamp(1, 8).next_power_of_two());
            bytes.resize(offset + size, 0);
            if let Some(value) = self.environment.config.get(name) {
                let length = size.min(8);
                bytes[offset..offset + length].copy_from_slice(&value.to_le_bytes()[..length]);
            }
            offsets.push((name, offset));
        }
        let address = self.layout.add(".kconfig", bytes)?;
        for (name, offset) in offsets {
            self.externs.insert(name, Extern::Config(address + offset as u64));
        }
        Ok(())
    }

    /// The address for a name that the object does not define; 0 if it is weak and the kernel lacks it as
    /// well.
    pub(crate) fn extern_address(&mut self, symbol: usize, program: &'a str) -> Result<u64, LoadError> {
        let symbol = &self.object.symbols[symbol];
        let name = symbol.name;
        match self.externs.get(name) {
            Some(Extern::Function(_)) => match self.function_of_kernel(name)? {
                Ok(_) => Ok(FUNCTION_EXISTS),
                Err(lack) => {
                    if !symbol.is_weak {
                        self.note_missing(name, program, lack);
                    }
                    Ok(0)
                }
            },
            Some(Extern::Variable) => match self.kernel_variable(name)? {
                Some(address) => Ok(address),
                None if symbol.is_weak => Ok(0),
                None => Err(LoadError(format!(
                    "program `{program}` uses the kernel's variable `{name}`, which the simulated kernel does not have"
                ))),
            },
            Some(&Extern::Config(address)) => {
                if symbol.is_weak || self.environment.config.contains_key(name) {
                    return Ok(address);
                }
                Err(LoadError(format!(
                    "program `{program}` uses `{name}`, which the simulated kernel's configuration does not have"
                )))
            }
            None => Err(LoadError(format!(
                "program `{program}` refers to `{name}`, which the object neither defines nor declares to be the kernel's"
            ))),
        }
    }

    fn kernel_variable(&mut self, name: &'a str) -> Result<Option<u64>, LoadError> {
        let names = [name, essential_name(name)];
        let Some((known, variable)) =
            names.iter().find_map(|name| self.environment.variables.get_key_value(*name))
        else {
            return Ok(None);
        };
        if let Some(&address) = self.kernel_addresses.get(known) {
            return Ok(Some(address));
        }
        let address = if variable.per_cpu {
            let address = Image::VARIABLES + self.kernel_variables.len() as u64 * Image::VARIABLE_SPACING;
            self.kernel_variables.push((known.to_string(), address));
            address
        } else {
            self.layout.add(known, vec![0; variable.size as usize])?
        };
        self.kernel_addresses.insert(known, address);
        Ok(Some(address))
    }
}

/// Programs only ask whether the address of a function is 0.
const FUNCTION_EXISTS: u64 = 1;
/// Bytes of the largest value of the configuration: texts are paths at most.
const CONFIG_SIZE_MAX: u64 = 4096;
