//! Instructions that depend on the layout of the kernel's types (CO-RE), fitted to the types of an
//! [`Environment`].
//!
//! Programs declare the kernel's types themselves, with only the members that they need. Clang records which
//! instructions contain an offset, a size and so on of such a type. Here each is found in the environment, by
//! the names of the type and of its fields, and filled in. Members of unnamed structures and unions count as
//! the outer one's, in the environment as well.
//!
//! If the environment lacks a type or a field, a check for its existence gives 0; any other record cannot be
//! filled in, and the program fails if it gets there. Enumerations differ: if the environment lacks one
//! entirely, its values are those that the program declares, since most of them never change.
//!
//! Limits: the environment has no bit-fields. Programs that read one with the macros for it
//! (`BPF_CORE_READ_BITFIELD`) get the whole field instead; those that read it directly fail there.

use crate::btf::{Btf, CoreRecord, DEPTH_MAX, RecordKind, Type, TypeId, essential_name};
use crate::decode::{Instruction, Linked};
use crate::environment::{Environment, FieldType, KernelStruct};
use crate::fault::LoadError;
use crate::op::Size;

/// The type or field that the environment lacks, for a message.
pub(crate) struct Missing(pub String);

/// Fills in an instruction.
pub(crate) fn relocate(
    record: &CoreRecord,
    btf: &Btf,
    environment: &Environment,
    instruction: &mut Instruction,
) -> Result<Result<Linked, Missing>, LoadError> {
    let types = Types { btf, environment };
    if record.kind == RecordKind::FieldOffset && instruction.is_access() && !instruction.is_load_immediate() {
        let field = types.local_field(record)?;
        return Ok(types.target(&field).and_then(|target| fit_access(&field, &target, instruction)));
    }
    if !instruction.has_imm() {
        return Err(LoadError(format!(
            "the CO-RE record of section `{}` at offset {:#x} is for an instruction without a constant",
            record.section, record.offset
        )));
    }
    Ok(types.value(record)?.map(|value| {
        instruction.imm = value as i64;
        Linked::Plain
    }))
}

/// Sets offset and width of an access.
fn fit_access(
    field: &LocalField,
    target: &TargetField,
    instruction: &mut Instruction,
) -> Result<Linked, Missing> {
    if field.is_bit_field {
        return Err(Missing(format!("the bit-{field}, which can only be read with BPF_CORE_READ_BITFIELD")));
    }
    instruction.offset = i16::try_from(target.offset)
        .map_err(|_| Missing(format!("{field}, which is too far from its beginning")))?;
    let is_whole = instruction.access_size().bytes() == field.size;
    if target.is_scalar && is_whole && field.size != u64::from(target.size) {
        let size = match target.size {
            1 => Size::B,
            2 => Size::H,
            4 => Size::W,
            8 => Size::D,
            _ => return Err(Missing(format!("{field}, which has another size in the simulator"))),
        };
        // The program extends the sign from the bits that it declares, unless the load does.
        if field.is_signed && instruction.is_load() && !instruction.is_signed_load() {
            return Err(Missing(format!("{field}, which has another size in the simulator")));
        }
        if instruction.is_signed_load() && size == Size::D {
            instruction.opcode = instruction.opcode & !0xe0 | 0x60;
        }
        instruction.set_access_size(size);
    }
    Ok(Linked::Probe)
}

struct Types<'a> {
    btf: &'a Btf<'a>,
    environment: &'a Environment,
}

/// A field as the program declares it.
struct LocalField<'a> {
    /// The type's name, and the name to try if the environment lacks it.
    roots: [&'a str; 2],
    /// Index of the element, if the type is that of an array's elements.
    index: u32,
    steps: Vec<Step<'a>>,
    is_bit_field: bool,
    is_signed: bool,
    /// Bytes.
    size: u64,
}

enum Step<'a> {
    Field(&'a str),
    Element(u32),
}

/// A field as the environment has it; bytes.
struct TargetField {
    offset: u64,
    size: u32,
    is_scalar: bool,
}

impl std::fmt::Display for LocalField<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("field `")?;
        for (position, step) in self.steps.iter().enumerate() {
            match step {
                Step::Field(name) if position == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Element(index) => write!(f, "[{index}]")?,
            }
        }
        write!(f, "` of `struct {}`", self.roots[0])
    }
}

const NOT_MODELLED: &str = "which the simulator does not model";

impl<'a> Types<'a> {
    /// The constant that an instruction asks for.
    fn value(&self, record: &CoreRecord<'a>) -> Result<Result<u64, Missing>, LoadError> {
        use RecordKind::*;
        Ok(match record.kind {
            FieldOffset | FieldSize | FieldExists | FieldSigned | FieldShiftLeft | FieldShiftRight => {
                let field = self.local_field(record)?;
                let target = self.target(&field);
                match record.kind {
                    FieldExists => Ok(u64::from(target.is_ok())),
                    FieldOffset => target.map(|target| target.offset),
                    FieldSize => target.map(|target| u64::from(target.size)),
                    FieldSigned => target.map(|_| u64::from(field.is_signed)),
                    // The number's bits are moved to the upper end of 64, and back.
                    _ => target.map(|target| 64_u64.saturating_sub(8 * u64::from(target.size))),
                }
            }
            // Numbers of types have no meaning here, except that 0 means no type.
            TypeIdLocal => Ok(u64::from(record.root.0)),
            TypeIdTarget => Ok(if self.type_exists(record)? { record.root.0.into() } else { 0 }),
            TypeExists => Ok(u64::from(self.type_exists(record)?)),
            TypeMatches => Ok(u64::from(self.type_matches(record)?)),
            TypeSize => Ok(match self.structure(self.roots(record.root)?) {
                Some((_, found)) => u64::from(found.size),
                None if self.type_exists(record)? => self.btf.size(record.root)?,
                None => 0,
            }),
            EnumeratorExists | EnumeratorValue => self.enumerator(record)?,
        })
    }

    fn enumerator(&self, record: &CoreRecord<'a>) -> Result<Result<u64, Missing>, LoadError> {
        let index = *indices(record)?.first().unwrap_or(&0) as usize;
        let Type::Enumeration { values, .. } = self.btf.resolved(record.root)? else {
            return Err(invalid(record, "is not for an enumeration"));
        };
        let &(name, local) =
            values.get(index).ok_or_else(|| invalid(record, "is for no value of its type"))?;
        let name = essential_name(name);
        let roots = self.roots(record.root)?;
        let target = roots.iter().find_map(|root| self.environment.enums.get(*root));
        let found = match target {
            Some(target) => target.values.iter().find(|(known, _)| *known == name).map(|&(_, value)| value),
            None => Some(local),
        };
        Ok(match (record.kind, found) {
            (RecordKind::EnumeratorExists, found) => Ok(u64::from(found.is_some())),
            (_, Some(value)) => Ok(value),
            (_, None) => Err(Missing(format!("value `{name}` of `enum {}`, {NOT_MODELLED}", roots[0]))),
        })
    }

    /// The names under which the environment may have a type: its own, and that of the type that it is an
    /// alias of.
    fn roots(&self, id: TypeId) -> Result<[&'a str; 2], LoadError> {
        let resolved = essential_name(self.btf.name(self.btf.resolve(id)?));
        let own = essential_name(self.btf.name(id));
        Ok(if own.is_empty() { [resolved, own] } else { [own, resolved] })
    }

    fn structure(&self, roots: [&str; 2]) -> Option<(&'static str, &'a KernelStruct)> {
        let found = roots.iter().find_map(|root| self.environment.structs.get_key_value(*root));
        found.map(|(&root, found)| (root, found))
    }

    /// Whether the environment has a type. Types without parts are the same everywhere, and enumerations that
    /// it does not have are the program's.
    fn type_exists(&self, record: &CoreRecord<'a>) -> Result<bool, LoadError> {
        Ok(match self.btf.resolved(record.root)? {
            Type::Composite { .. } | Type::Forward => self.structure(self.roots(record.root)?).is_some(),
            _ => true,
        })
    }

    /// Whether the environment has a type with all the members that the program declares.
    fn type_matches(&self, record: &CoreRecord<'a>) -> Result<bool, LoadError> {
        let Some((_, target)) = self.structure(self.roots(record.root)?) else {
            return self.type_exists(record);
        };
        self.members_exist(record.root, target, 0)
    }

    fn members_exist(&self, id: TypeId, target: &KernelStruct, depth: usize) -> Result<bool, LoadError> {
        let Type::Composite { members, .. } = self.btf.resolved(id)? else { return Ok(true) };
        for member in members {
            let exists = match member.name {
                "" if depth < DEPTH_MAX => self.members_exist(member.of, target, depth + 1)?,
                name => target.fields.iter().any(|field| field.name == name),
            };
            if !exists {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Follows the access of a record through the program's types.
    fn local_field(&self, record: &CoreRecord<'a>) -> Result<LocalField<'a>, LoadError> {
        let indices = indices(record)?;
        let [index, rest @ ..] = &indices[..] else { return Err(invalid(record, "has no access")) };
        let mut steps = Vec::with_capacity(rest.len());
        let mut id = self.btf.resolve(record.root)?;
        let mut is_bit_field = false;
        for &index in rest {
            let of = match self.btf.get(id)? {
                Type::Composite { members, .. } => {
                    let member = members.get(index as usize);
                    let member = member.ok_or_else(|| invalid(record, "is for no member of its type"))?;
                    if !member.name.is_empty() {
                        steps.push(Step::Field(member.name));
                    }
                    is_bit_field = member.bit_field.is_some();
                    member.of
                }
                Type::Array { element, .. } => {
                    steps.push(Step::Element(index));
                    *element
                }
                _ => return Err(invalid(record, "follows what is neither a structure nor an array")),
            };
            id = self.btf.resolve(of)?;
        }
        let is_signed = matches!(
            self.btf.get(id)?,
            Type::Integer { is_signed: true, .. } | Type::Enumeration { is_signed: true, .. }
        );
        Ok(LocalField {
            roots: self.roots(record.root)?,
            index: *index,
            steps,
            is_bit_field,
            is_signed,
            size: self.btf.size(id)?,
        })
    }

    /// Finds a field in the environment.
    fn target(&self, field: &LocalField<'a>) -> Result<TargetField, Missing> {
        let (root, root_struct) =
            self.structure(field.roots).ok_or_else(|| Missing(format!("{field}, {NOT_MODELLED}")))?;
        let mut kind = FieldType::Struct(root);
        let mut offset = u64::from(field.index) * u64::from(root_struct.size);
        let mut size = root_struct.size;
        for step in &field.steps {
            let next = match (kind, step) {
                (FieldType::Struct(name), Step::Field(wanted)) => self
                    .environment
                    .structs
                    .get(name)
                    .and_then(|found| found.fields.iter().find(|known| known.name == *wanted))
                    .map(|known| (u64::from(known.offset), known.size, known.kind)),
                (FieldType::Array(element), Step::Element(index)) => {
                    let offset = u64::from(*index) * u64::from(element);
                    (offset + u64::from(element) <= u64::from(size)).then_some((
                        offset,
                        element,
                        FieldType::Scalar,
                    ))
                }
                (FieldType::Struct(name), Step::Element(index)) => {
                    let element = self.environment.structs.get(name).map_or(0, |found| found.size);
                    let offset = u64::from(*index) * u64::from(element);
                    (element > 0 && offset + u64::from(element) <= u64::from(size))
                        .then_some((offset, element, kind))
                }
                (FieldType::Array(_), Step::Field(_)) | (FieldType::Scalar, _) => None,
            };
            let (step_offset, step_size, step_kind) =
                next.ok_or_else(|| Missing(format!("{field}, {NOT_MODELLED}")))?;
            (offset, size, kind) = (offset + step_offset, step_size, step_kind);
        }
        Ok(TargetField { offset, size, is_scalar: kind == FieldType::Scalar })
    }
}

/// The numbers of an access: an index of an array of the root, then those of members and elements.
fn indices(record: &CoreRecord) -> Result<Vec<u32>, LoadError> {
    let parts = record.access.split(':').take(DEPTH_MAX + 1);
    let numbers: Option<Vec<u32>> = parts.map(|part| part.parse().ok()).collect();
    numbers
        .filter(|numbers| numbers.len() <= DEPTH_MAX)
        .ok_or_else(|| invalid(record, "has an access that is not a list of numbers"))
}

fn invalid(record: &CoreRecord, problem: &str) -> LoadError {
    LoadError(format!(
        "the CO-RE record of section `{}` at offset {:#x} {problem}",
        record.section, record.offset
    ))
}
