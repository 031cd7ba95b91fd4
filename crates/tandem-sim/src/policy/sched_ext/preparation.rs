//! What a scheduler's own user space does between the load of its object and its start, besides writing
//! variables: it changes operations, fills maps, and runs programs (`BPF_PROG_RUN`).
//!
//! scx's library of arenas (`lib/arena.bpf.c` in the object, the crate `scx_arena` in user space) needs a
//! conversation: user space asks for a set of CPUs, fills it in, and passes it on, for each part of the
//! machine. [`Call::ArenaLibrary`] holds it.

use super::scheduler::Scheduler;
use super::settings::SchedExtSettings;
use std::collections::BTreeMap;
use std::sync::Arc;
use tandem_ebpf::{DataType, DataTypeId, Fault, Image, MapKind, Value};
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;

/// What user space does before it starts the scheduler, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preparation {
    /// Numbers of the scheduler's operations (`struct sched_ext_ops`), by name; `None` removes a callback.
    pub operations: Vec<(String, Option<u64>)>,
    /// Numbers of elements that maps get, by the maps' positions in [`Image::maps`].
    pub sizes: Vec<(usize, usize)>,
    /// Elements of maps.
    pub elements: Vec<Element>,
    /// Maps that are put into maps of maps.
    pub inner_maps: Vec<InnerMap>,
    /// Programs that run before the scheduler starts.
    pub calls: Vec<Call>,
    /// Programs that run once it has its tasks.
    pub calls_after_start: Vec<Call>,
}

/// An element of a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// The number of the map: its position in [`Image::maps`].
    pub map: usize,
    /// The CPU whose value it is, in a map with values for each; `None`: of all.
    pub cpu: Option<usize>,
    /// The key's bytes.
    pub key: Vec<u8>,
    /// The value's bytes.
    pub value: Vec<u8>,
}

/// A map that is put into a map of maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InnerMap {
    /// The number of the map of maps: its position in [`Image::maps`].
    pub map: usize,
    /// The key's bytes.
    pub key: Vec<u8>,
    /// The map.
    pub contents: InnerMapContents,
}

/// Where a map in a map of maps comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InnerMapContents {
    /// It is one of the object's, by its position in [`Image::maps`].
    Named(usize),
    /// User space makes it.
    New {
        /// Another number of elements than the map of maps says.
        max_entries: Option<usize>,
        /// Its elements; their numbers of the map mean nothing.
        elements: Vec<Element>,
    },
}

/// A call of programs from user space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A program, with the bytes of its argument; empty if it has none.
    Program(String, Vec<u8>),
    /// What scx's `ArenaLib` does: it sets up the library in the object, whose tasks have contexts of so many
    /// bytes, and describes the machine to it.
    ArenaLibrary(u64),
}

/// Pages that the library's allocator takes at a time (`STATIC_ALLOC_PAGES_GRANULARITY` of `scx_arena`).
const STATIC_PAGES: i128 = 8;

impl Scheduler {
    /// Fills maps and runs programs.
    pub(super) fn prepare(&mut self) -> Result<(), Fault> {
        let settings = Arc::clone(&self.settings);
        let Preparation { sizes, elements, inner_maps, calls, .. } = &settings.preparation;
        for &(map, max_entries) in sizes {
            self.instance.state_mut().resize_map(map, max_entries)?;
        }
        for element in elements {
            self.set_element(element, element.map)?;
        }
        for inner in inner_maps {
            self.set_inner_map(inner)?;
        }
        self.make_calls(calls)
    }

    /// Runs the programs that user space runs after the start.
    pub(super) fn finish_start(&mut self) -> Result<(), Fault> {
        let settings = Arc::clone(&self.settings);
        self.make_calls(&settings.preparation.calls_after_start)
    }

    fn make_calls(&mut self, calls: &[Call]) -> Result<(), Fault> {
        for call in calls {
            match call {
                Call::Program(name, argument) => self.run_program(name, &mut argument.clone())?,
                Call::ArenaLibrary(task_context_bytes) => self.set_up_arena_library(*task_context_bytes)?,
            }
        }
        Ok(())
    }

    fn set_inner_map(&mut self, inner: &InnerMap) -> Result<(), Fault> {
        let number = match &inner.contents {
            InnerMapContents::Named(map) => *map,
            InnerMapContents::New { max_entries, elements } => {
                let number = self.instance.state_mut().make_inner_map(inner.map, *max_entries)?;
                for element in elements {
                    self.set_element(element, number)?;
                }
                number
            }
        };
        let state = self.instance.state_mut();
        match state.set_inner_map(inner.map, &inner.key, number)? {
            true => Ok(()),
            false => {
                let name = &state.map_definition(inner.map).name;
                Err(Fault(format!("the map `{name}` has no room for a map of the settings")))
            }
        }
    }

    fn set_element(&mut self, element: &Element, map: usize) -> Result<(), Fault> {
        let definition = self.instance.state().map_definition(map);
        let name = definition.name.clone();
        let cpus = match definition.kind {
            MapKind::PerCpuArray | MapKind::PerCpuHash | MapKind::LruPerCpuHash => {
                self.kernel.machine().cpu_count()
            }
            _ => 1,
        };
        for cpu in element.cpu.map_or(0..cpus, |cpu| cpu..cpu + 1) {
            let state = self.instance.state_mut();
            if !state.set_element(map, &element.key, cpu, &element.value)? {
                return Err(Fault(format!("the map `{name}` has no room for an element of the settings")));
            }
        }
        Ok(())
    }

    /// Runs a program with an argument, which it may change.
    pub(super) fn run_program(&mut self, name: &str, argument: &mut [u8]) -> Result<(), Fault> {
        let program = self.instance.image().programs.get(name);
        let function = program.ok_or_else(|| Fault(format!("the object has no program `{name}`")))?.function;
        let memory = &mut self.instance.state_mut().memory;
        let address = memory.allocate(argument.len())?;
        memory.slice_mut(address, argument.len())?.copy_from_slice(argument);
        let result = self.instance.call(&mut self.kernel, function, [address, 0, 0, 0, 0])? as i32;
        let memory = &mut self.instance.state_mut().memory;
        argument.copy_from_slice(memory.slice(address, argument.len())?);
        memory.free(address, argument.len());
        match result {
            0 => Ok(()),
            error => Err(Fault(format!("the program `{name}`, called by user space, returned {error}"))),
        }
    }

    fn set_up_arena_library(&mut self, task_context_bytes: u64) -> Result<(), Fault> {
        let sizes = [("static_pages", STATIC_PAGES), ("task_ctx_size", task_context_bytes.into())];
        self.run_with("arena_init", &sizes)?;
        let machine = self.kernel.machine().clone();
        if self.instance.image().programs.contains_key("arena_topology_init") {
            let children = children_max(&machine).map(|count| Value::Number(count as i128));
            let argument = [("max_children".to_owned(), Value::List(children.into()))];
            self.run_with_value("arena_topology_init", argument.into())?;
        }
        for (id, cpus) in parts(&machine).into_iter().filter(|(_, cpus)| !cpus.is_empty()) {
            let bitmap = self.run_with("arena_alloc_mask", &[("bitmap", 0)])?;
            let memory = &mut self.instance.state_mut().memory;
            for (word, address) in cpus.words().zip((bitmap..).step_by(8)) {
                memory.store(address, 8, word)?;
            }
            let node = [("bitmap", bitmap.into()), ("id", id as i128)];
            self.run_with("arena_topology_node_init", &node)?;
        }
        Ok(())
    }

    /// Runs a program with an argument of these numbers; returns the first one as the program leaves it.
    fn run_with(&mut self, name: &str, numbers: &[(&str, i128)]) -> Result<u64, Fault> {
        let argument =
            numbers.iter().map(|&(field, number)| (field.to_owned(), Value::Number(number))).collect();
        let (bytes, of) = self.run_with_value(name, argument)?;
        let DataType::Structure { fields } = self.instance.image().types.get(of) else { return Ok(0) };
        let first = numbers.first().and_then(|(field, _)| fields.get(*field));
        let word = first.and_then(|field| bytes.get(field.offset..)?.first_chunk());
        Ok(word.map_or(0, |word| u64::from_le_bytes(*word)))
    }

    fn run_with_value(
        &mut self,
        name: &str,
        argument: BTreeMap<String, Value>,
    ) -> Result<(Vec<u8>, DataTypeId), Fault> {
        let image = self.instance.image();
        let typed = image.programs.get(name).and_then(|program| program.argument);
        let typed = typed.ok_or_else(|| {
            Fault(format!(
                "the object has no program `{name}` of scx's library of arenas; use no `scx_arena`"
            ))
        })?;
        let bytes = image.types.bytes(name, typed, &Value::Table(argument), &|_| None);
        let mut bytes = bytes.map_err(Fault)?;
        self.run_program(name, &mut bytes)?;
        Ok((bytes, typed.0))
    }
}

/// The most children of a part at each of the library's levels: the machine, nodes, caches, cores, CPUs.
fn children_max(machine: &Machine) -> [usize; 5] {
    let in_node = |cpus: &CpuMask| machine.llcs().iter().filter(|llc| llc.cpus.is_subset(cpus)).count();
    let in_cache = |cpus: &CpuMask| machine.cores().iter().filter(|core| core.cpus.is_subset(cpus)).count();
    [
        machine.node_count(),
        machine.nodes().iter().map(|node| in_node(&node.cpus)).max().unwrap_or(0),
        machine.llcs().iter().map(|llc| in_cache(&llc.cpus)).max().unwrap_or(0),
        machine.cores().iter().map(|core| core.cpus.count()).max().unwrap_or(0),
        0,
    ]
}

/// The parts of a machine from the whole to its CPUs, each with its number at its level.
fn parts(machine: &Machine) -> Vec<(usize, CpuMask)> {
    let count = machine.cpu_count();
    let whole = [(0, machine.all_cpus().clone())];
    let nodes = machine.nodes().iter().map(|node| node.cpus.clone()).enumerate();
    let caches = machine.llcs().iter().map(|llc| llc.cpus.clone()).enumerate();
    let cores = machine.cores().iter().map(|core| core.cpus.clone()).enumerate();
    let cpus = machine.all_cpus().iter().map(|cpu| (cpu.index(), CpuMask::from_cpus(count, [cpu])));
    whole.into_iter().chain(nodes).chain(caches).chain(cores).chain(cpus).collect()
}

impl SchedExtSettings {
    /// The numbers and callbacks of the scheduler's operations, as user space leaves them.
    pub(super) fn operations(&self) -> Option<tandem_ebpf::StructOps> {
        let image: &Image = self.code.image();
        let mut ops = image.struct_ops.first()?.clone();
        for (name, number) in &self.preparation.operations {
            match number {
                Some(number) => _ = ops.numbers.insert(name.clone(), *number),
                None => _ = ops.callbacks.remove(name),
            }
        }
        Some(ops)
    }
}
