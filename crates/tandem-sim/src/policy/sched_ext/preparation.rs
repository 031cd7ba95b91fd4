//! What a scheduler's own user space does between the load of its object and its start, besides writing
//! variables: it changes operations, fills maps, and runs programs (`BPF_PROG_RUN`).
//!
//! Programs of some schedulers make a set of CPUs, for user space to fill it in and to pass it on ([`CpuSetUse`]).

use super::scheduler::Scheduler;
use super::settings::SchedExtSettings;
use std::sync::Arc;
use tandem_ebpf::{Fault, Image, MapKind};

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

/// A call of a program from user space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The program's name.
    pub program: String,
    /// The bytes of its argument; empty if it has none.
    pub argument: Vec<u8>,
    /// What the call has to do with a set of CPUs in the scheduler's memory.
    pub set: Option<CpuSetUse>,
}

/// A program makes a set of CPUs, which user space fills in, and another one gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CpuSetUse {
    /// The program leaves the address of a set in its argument.
    Fill {
        /// The place of the address in the argument, bytes from its beginning.
        at: usize,
        /// What is written to the set.
        words: Vec<u64>,
    },
    /// The program gets the address of the last set that was filled in.
    Pass {
        /// The place of the address in the argument, bytes from its beginning.
        at: usize,
    },
}

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
        let mut address = [0; 8];
        for Call { program, argument, set } in calls {
            let mut argument = argument.clone();
            if let Some(CpuSetUse::Pass { at }) = *set {
                argument[at..at + 8].copy_from_slice(&address);
            }
            self.run_program(program, &mut argument)?;
            if let Some(CpuSetUse::Fill { at, words }) = set {
                address.copy_from_slice(&argument[*at..at + 8]);
                let memory = &mut self.instance.state_mut().memory;
                for (word, address) in words.iter().zip((u64::from_le_bytes(address)..).step_by(8)) {
                    memory.store(address, 8, *word)?;
                }
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
