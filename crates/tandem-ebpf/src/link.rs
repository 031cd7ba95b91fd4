//! Links an object and an environment to an [`Image`].
//!
//! The linker decodes the programs, and all functions that they call or take the address of. The rest of the
//! object does not matter: it may be for other kernels.

use crate::btf::{Btf, CoreRecord, RecordKind, TypeId, read_records};
use crate::core_relocation::relocate;
use crate::data::Layout;
use crate::data_types::{Collector, DataTypeId, DataTypes};
use crate::decode::{Instruction, Linked, SLOT, decode};
use crate::environment::Environment;
use crate::externs::{Extern, Lack};
use crate::fault::LoadError;
use crate::helper_numbers::helper_name;
use crate::image::{Function, FunctionId, Image, Program};
use crate::map_definition::{DefinedMap, offset_of_values, read_map};
use crate::object::{Object, Relocation, RelocationKind, Symbol};
use crate::object_types::read_object_type;
use crate::op::Op;
use std::collections::{BTreeMap, HashMap};

impl Image {
    /// Links an object file, as `clang -g -target bpf` makes it, against what a kernel offers.
    ///
    /// # Errors
    /// If the file is not such an object; if it uses features that the simulator lacks (maps of some types);
    /// if it calls functions or uses variables that the environment does not have,
    /// and that it does not declare to be optional (`__weak`).
    pub fn link(object: &[u8], environment: &Environment) -> Result<Self, LoadError> {
        let object = Object::parse(object)?;
        let btf = object.section(".BTF").ok_or_else(|| {
            LoadError(
                "the object has no information about its types: its source defines nothing, or it was compiled without \
                 clang's -g"
                    .into(),
            )
        })?;
        let btf = Btf::parse(btf)?;
        let records = match object.section(".BTF.ext") {
            Some(bytes) => read_records(bytes, &btf)?,
            None => Vec::new(),
        };
        let mut linker = Linker::new(&object, &btf, environment);
        linker.place_records(records);
        linker.lay_out_data()?;
        linker.read_maps()?;
        linker.read_externs()?;
        let struct_ops = linker.read_struct_ops()?;
        let programs = linker.read_programs()?;
        linker.relocate_data()?;
        linker.decode_functions()?;
        let variables = linker.global_variables()?;
        linker.check_nothing_is_missing()?;
        let mut image = linker.image;
        image.sections = linker.layout.sections;
        image.kernel_variables = linker.kernel_variables;
        Ok(Self { struct_ops, programs, variables, types: linker.types.finish(), ..image })
    }
}

/// Linking in progress.
pub(crate) struct Linker<'a> {
    pub object: &'a Object<'a>,
    pub btf: &'a Btf<'a>,
    pub environment: &'a Environment,
    pub section_numbers: HashMap<&'a str, usize>,
    /// Symbols of variables, by section and name.
    pub variable_symbols: HashMap<(usize, &'a str), usize>,
    /// Offsets and symbols of the functions of each section.
    functions: HashMap<usize, BTreeMap<u64, usize>>,
    records: HashMap<(usize, u64), CoreRecord<'a>>,
    pub externs: HashMap<&'a str, Extern>,
    pub layout: Layout,
    pub types: Collector<'a>,
    /// Addresses of sections with global data.
    pub addresses: HashMap<usize, u64>,
    pub kernel_addresses: HashMap<&'static str, u64>,
    pub kernel_variables: Vec<(String, u64)>,
    /// Maps by their offsets in `.maps`: the number, or why the map cannot be used.
    maps: HashMap<(usize, u64), Result<u64, LoadError>>,
    ids: HashMap<(usize, u64), FunctionId>,
    /// Reachable functions, by number: section, offset, and the program through which they were found.
    reached: Vec<(usize, u64, &'a str)>,
    imports: HashMap<String, Result<u32, Lack>>,
    poisons: HashMap<String, u32>,
    /// Functions that the kernel lacks, each with the first program that calls it.
    missing: BTreeMap<(Lack, &'a str), &'a str>,
    image: Image,
}

impl<'a> Linker<'a> {
    fn new(object: &'a Object<'a>, btf: &'a Btf<'a>, environment: &'a Environment) -> Self {
        let names = object.sections.iter().enumerate().skip(1);
        let section_numbers = names.map(|(number, section)| (section.name, number)).collect();
        let mut variable_symbols = HashMap::new();
        let mut functions: HashMap<_, BTreeMap<_, _>> = HashMap::new();
        for (number, symbol) in object.symbols.iter().enumerate() {
            match symbol.section {
                Some(section) if symbol.is_function => {
                    functions.entry(section).or_default().insert(symbol.value, number);
                }
                Some(section) => {
                    variable_symbols.insert((section, symbol.name), number);
                }
                None => {}
            }
        }
        Self {
            object,
            btf,
            environment,
            section_numbers,
            variable_symbols,
            functions,
            records: HashMap::new(),
            externs: HashMap::new(),
            layout: Layout::default(),
            types: Collector::new(btf),
            addresses: HashMap::new(),
            kernel_addresses: HashMap::new(),
            kernel_variables: Vec::new(),
            maps: HashMap::new(),
            ids: HashMap::new(),
            reached: Vec::new(),
            imports: HashMap::new(),
            poisons: HashMap::new(),
            missing: BTreeMap::new(),
            image: Image {
                functions: Vec::new(),
                imports: Vec::new(),
                poisons: Vec::new(),
                sections: Vec::new(),
                maps: Vec::new(),
                struct_ops: Vec::new(),
                programs: BTreeMap::new(),
                variables: BTreeMap::new(),
                types: DataTypes::default(),
                kernel_variables: Vec::new(),
                objects: BTreeMap::new(),
            },
        }
    }

    fn place_records(&mut self, records: Vec<CoreRecord<'a>>) {
        for record in records {
            if let Some(&section) = self.section_numbers.get(record.section) {
                self.records.insert((section, record.offset), record);
            }
        }
    }

    fn read_maps(&mut self) -> Result<(), LoadError> {
        let btf = self.btf;
        let variables = btf.sections().filter(|(name, _)| *name == ".maps");
        let mut of_maps = Vec::new();
        for variable in variables.flat_map(|(_, section)| &section.variables) {
            let Some(placed) = self.placed_variable(".maps", variable)? else { continue };
            let number = match read_map(placed.name, placed.of, btf, &mut self.types)? {
                DefinedMap::Supported(definition) => {
                    if definition.kind.is_of_maps() {
                        of_maps.push((self.image.maps.len(), placed.section, placed.offset, placed.of));
                    }
                    self.image.maps.push(definition);
                    Ok(self.image.maps.len() as u64 - 1)
                }
                DefinedMap::Unsupported(error) => Err(error),
            };
            self.maps.insert((placed.section, placed.offset), number);
        }
        for (map, section, offset, of) in of_maps {
            self.read_initial_maps(map, (section, offset), of)?;
        }
        Ok(())
    }

    /// Finds the maps that are in a map of maps from the beginning.
    fn read_initial_maps(
        &mut self,
        map: usize,
        (section, offset): (usize, u64),
        of: TypeId,
    ) -> Result<(), LoadError> {
        let object = self.object;
        let contents = &object.sections[section];
        let Some(values) = offset_of_values(of, self.btf)? else { return Ok(()) };
        let begin = offset.saturating_add(values);
        let others = self.maps.keys().filter(|key| key.0 == section && key.1 > offset);
        let end = others.map(|key| key.1).min().unwrap_or(contents.bytes.len() as u64).max(begin);
        for (&at, relocation) in contents.relocations.range(begin..end) {
            let definition = &self.image.maps[map];
            let cannot = |problem: String| LoadError(format!("map `{}` {problem}", definition.name));
            let symbol = &object.symbols[relocation.symbol];
            let addend = usize::try_from(at).ok().and_then(|at| contents.bytes.get(at..)?.first_chunk());
            let addend = addend.map_or(0, |addend| u64::from_le_bytes(*addend));
            let target = symbol.section.map(|section| (section, symbol.value.wrapping_add(addend)));
            let number = target.and_then(|target| self.maps.get(&target)).ok_or_else(|| {
                cannot(format!("has `{}` in it, which is not a map of the object", symbol.name))
            })?;
            let number = number.clone()? as usize;
            let inner = &self.image.maps[number];
            if definition.inner.as_ref().is_none_or(|expected| !inner.stands_for(expected)) {
                return Err(cannot(format!("has map `{}` in it, which is of another type", inner.name)));
            }
            let position = ((at - begin) / 8) as u32;
            if position as usize >= definition.max_entries {
                return Err(cannot(format!("has no place {position} for map `{}`", inner.name)));
            }
            self.image.maps[map].initial.push((position, number));
        }
        Ok(())
    }

    /// Finds the programs, in the order of the file.
    fn read_programs(&mut self) -> Result<BTreeMap<String, Program>, LoadError> {
        let parameters: HashMap<_, _> = self.btf.functions().collect();
        let mut programs = BTreeMap::new();
        for (number, section) in self.object.sections.iter().enumerate() {
            let required = section.name.strip_prefix('?').is_none();
            let kind = section.name.trim_start_matches('?').split('/').next().unwrap_or_default();
            if !matches!(kind, "struct_ops" | "struct_ops.s" | "syscall") {
                continue;
            }
            let starts = self.functions.get(&number).cloned().unwrap_or_default();
            for (offset, symbol) in starts {
                // Callbacks of schedulers are known already. Programs with `?` are only included as
                // callbacks.
                if self.ids.contains_key(&(number, offset)) || !required {
                    continue;
                }
                let name = self.object.symbols[symbol].name;
                if let Some(function) = self.reach(number, offset, None) {
                    let argument = self.argument(parameters.get(name).copied().flatten())?;
                    let program = Program { section: section.name.into(), function, argument };
                    programs.insert(name.to_string(), program);
                }
            }
        }
        Ok(programs)
    }

    /// What an argument of a program points to, and its size.
    fn argument(&mut self, parameter: Option<TypeId>) -> Result<Option<(DataTypeId, usize)>, LoadError> {
        let Some(pointee) = parameter.map(|of| self.btf.pointee(of)).transpose()?.flatten() else {
            return Ok(None);
        };
        match usize::try_from(self.btf.size(pointee)?) {
            Ok(size @ 1..=ARGUMENT_SIZE_MAX) => Ok(Some((self.types.add(pointee)?, size))),
            _ => Ok(None),
        }
    }

    fn decode_functions(&mut self) -> Result<(), LoadError> {
        // More are reached on the way.
        while let Some(&(section, start, program)) = self.reached.get(self.image.functions.len()) {
            let object = self.object;
            let starts = &self.functions[&section];
            let symbol = &object.symbols[starts[&start]];
            let contents = &object.sections[section];
            let next =
                starts.range(start + 1..).next().map_or(contents.bytes.len() as u64, |(&next, _)| next);
            let end = if symbol.size == 0 { next } else { start.saturating_add(symbol.size) };
            let bytes = (end <= next).then(|| contents.bytes.get(start as usize..end as usize)).flatten();
            let Some(bytes) = bytes.filter(|bytes| bytes.len() % SLOT == 0) else {
                return Err(LoadError(format!(
                    "function `{}` is not {} bytes at offset {start:#x} of section `{}`",
                    symbol.name, symbol.size, contents.name
                )));
            };
            let ops = decode(symbol.name, bytes, |slot, instruction| {
                let offset = start + (slot * SLOT) as u64;
                self.link_instruction(Location { section, offset, program }, instruction)
            })?;
            self.image.functions.push(Function { name: symbol.name.into(), ops });
        }
        Ok(())
    }

    fn link_instruction(
        &mut self,
        place: Location<'a>,
        instruction: &mut Instruction,
    ) -> Result<Linked, LoadError> {
        let Location { section, offset, program } = place;
        if let Some(record) = self.records.get(&(section, offset)) {
            if record.kind == RecordKind::TypeIdLocal
                && let Some(found) = read_object_type(record.root, self.btf)?
            {
                self.image.objects.insert(record.root.0.into(), found);
            }
            return Ok(match relocate(record, self.btf, self.environment, instruction)? {
                Ok(linked) => linked,
                Err(missing) => Linked::As(self.poison(missing.0)),
            });
        }
        let relocation = self.object.sections[section].relocations.get(&offset);
        match relocation.filter(|relocation| relocation.kind != RelocationKind::Other) {
            Some(&Relocation { symbol, kind: RelocationKind::LoadImmediate })
                if instruction.is_load_immediate() =>
            {
                let dst = instruction.dst;
                // The lower half is the distance from the symbol.
                let addend = i64::from(instruction.imm as i32) as u64;
                let target = &self.object.symbols[symbol];
                let value = match target.section {
                    None => self.extern_address(symbol, program)?,
                    Some(_) => self
                        .defined_address(target, addend, Some(program))?
                        .ok_or_else(|| self.invalid(place, "refers to something without an address"))?,
                };
                Ok(Linked::As(Op::LoadImmediate { dst, value }))
            }
            Some(&Relocation { symbol, kind: RelocationKind::Call }) if instruction.is_call() => {
                let target = &self.object.symbols[symbol];
                if target.section.is_none() {
                    return Ok(Linked::As(self.kernel_call(target.name, target.is_weak, program)?));
                }
                // The addend is in slots, and counts from the end of the instruction.
                let addend = (instruction.imm + 1).wrapping_mul(SLOT as i64) as u64;
                let function = self.function_of(target, addend, Some(program));
                let function =
                    function.ok_or_else(|| self.invalid(place, "calls something that is not a function"))?;
                Ok(Linked::As(Op::Call { function: function.0 }))
            }
            Some(_) => Err(self.invalid(place, "has a relocation that does not fit it")),
            None if instruction.is_call() => Ok(Linked::As(match instruction.src {
                0 => {
                    let name = helper_name(instruction.imm as i32).ok_or_else(|| {
                        self.invalid(place, &format!("calls helper {}, which no kernel has", instruction.imm))
                    })?;
                    self.kernel_call(name, false, program)?
                }
                1 => {
                    let start = offset.wrapping_add_signed((instruction.imm + 1) * SLOT as i64);
                    let function = self.reach(section, start, Some(program));
                    let function = function
                        .ok_or_else(|| self.invalid(place, "calls something that is not a function"))?;
                    Op::Call { function: function.0 }
                }
                _ => return Err(self.invalid(place, "is a call of a kind that objects should not have")),
            })),
            None => Ok(Linked::Plain),
        }
    }

    /// A call of a function of the kernel.
    fn kernel_call(&mut self, name: &'a str, is_weak: bool, program: &'a str) -> Result<Op, LoadError> {
        let import = match self.imports.get(name) {
            Some(&import) => import,
            None => {
                let import = self.function_of_kernel(name)?.map(|import| {
                    self.image.imports.push(import);
                    self.image.imports.len() as u32 - 1
                });
                self.imports.insert(name.to_string(), import);
                import
            }
        };
        Ok(match import {
            Ok(import) => Op::CallKernel { import },
            Err(lack) => {
                if !is_weak {
                    self.note_missing(name, program, lack);
                }
                self.poison(match lack {
                    Lack::Absent => format!("function `{name}`, which the simulated kernel does not have"),
                    Lack::Different => format!(
                        "function `{name}`, which the simulated kernel has with other parameters or another result"
                    ),
                })
            }
        })
    }

    fn poison(&mut self, reason: String) -> Op {
        let next = self.image.poisons.len() as u32;
        let number = *self.poisons.entry(reason).or_insert_with_key(|reason| {
            self.image.poisons.push(reason.clone());
            next
        });
        Op::Poison { reason: number }
    }

    /// Records that the kernel lacks a function that a program needs.
    pub(crate) fn note_missing(&mut self, name: &'a str, program: &'a str, lack: Lack) {
        self.missing.entry((lack, name)).or_insert(program);
    }

    fn check_nothing_is_missing(&self) -> Result<(), LoadError> {
        let list = |lack: Lack| {
            let found = self.missing.iter().filter(|((known, _), _)| *known == lack);
            found.map(|((_, name), program)| format!("`{name}` (called by `{program}`)")).collect::<Vec<_>>()
        };
        let [absent, different] = [Lack::Absent, Lack::Different].map(list);
        let mut problems = Vec::new();
        if !absent.is_empty() {
            problems.push(format!(
                "the object needs functions that the simulated kernel does not have: {}",
                absent.join(", ")
            ));
        }
        if !different.is_empty() {
            problems.push(format!(
                "the object declares functions of the kernel with other parameters or results than the simulated \
                 kernel's: {}",
                different.join(", ")
            ));
        }
        if problems.is_empty() { Ok(()) } else { Err(LoadError(problems.join("; "))) }
    }

    /// The address of a name that the object defines; `None` if it does not. See [`Linker::reach`].
    pub(crate) fn defined_address(
        &mut self,
        symbol: &Symbol<'a>,
        addend: u64,
        program: Option<&'a str>,
    ) -> Result<Option<u64>, LoadError> {
        let Some(section) = symbol.section else { return Ok(None) };
        let offset = symbol.value.wrapping_add(addend);
        if let Some(address) = self.addresses.get(&section) {
            return Ok(Some(address.wrapping_add(offset)));
        }
        if let Some(map) = self.maps.get(&(section, offset)) {
            return map.clone().map(|number| Some(Image::MAPS + number));
        }
        let function = self.function_of(symbol, addend, program);
        Ok(function.map(|function| Image::FUNCTIONS + u64::from(function.0)))
    }

    /// The function at a symbol, which becomes reachable; `None` if there is none.
    pub(crate) fn function_of(
        &mut self,
        symbol: &Symbol<'a>,
        addend: u64,
        program: Option<&'a str>,
    ) -> Option<FunctionId> {
        self.reach(symbol.section?, symbol.value.wrapping_add(addend), program)
    }

    /// The number of the function that begins at a place, which is a program or was found through one; `None`
    /// if there is none.
    fn reach(&mut self, section: usize, offset: u64, program: Option<&'a str>) -> Option<FunctionId> {
        let symbol = *self.functions.get(&section)?.get(&offset)?;
        let next = FunctionId(self.reached.len() as u32);
        let id = *self.ids.entry((section, offset)).or_insert(next);
        if id == next {
            self.reached.push((section, offset, program.unwrap_or(self.object.symbols[symbol].name)));
        }
        Some(id)
    }

    fn invalid(&self, place: Location, problem: &str) -> LoadError {
        LoadError(format!(
            "the instruction at offset {:#x} of section `{}` {problem}",
            place.offset, self.object.sections[place.section].name
        ))
    }
}

/// Bytes of the largest argument of a program, as in the kernel (`U16_MAX`).
const ARGUMENT_SIZE_MAX: usize = u16::MAX as usize;

/// The place of an instruction, and the program through which it was found.
#[derive(Clone, Copy)]
struct Location<'a> {
    section: usize,
    offset: u64,
    program: &'a str,
}
