//! scx's library of arenas (`lib/arena.bpf.c` in the object, the crate `scx_arena` in user space).
//!
//! Problem: a scheduler that uses it knows no machine, and has no room for its tasks, before user space has described the
//! one to it and said how large the context of a task is.
//!
//! Approach: user space asks for a set of CPUs, fills it in, and passes it on, for each part of the machine
//! ([`CpuSetUse`]). The library's programs say by the types of their arguments what they expect.

use std::collections::BTreeMap;
use tandem_ebpf::{DataType, DataTypeId, Image, Value};
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_sim::policy::sched_ext::{Call, CpuSetUse};

/// Pages that the library's allocator takes at a time (`STATIC_ALLOC_PAGES_GRANULARITY` of `scx_arena`).
const STATIC_PAGES: i128 = 8;

/// The calls that set up the library of an object whose tasks have contexts of so many bytes.
///
/// # Errors
/// A sentence: the object has another library, or none.
pub fn calls(image: &Image, machine: &Machine, task_context_bytes: u64) -> Result<Vec<Call>, String> {
    let library = Library(image);
    let sizes = [("static_pages", STATIC_PAGES), ("task_ctx_size", task_context_bytes.into())];
    let mut calls = vec![library.call("arena_init", &sizes, None)?];
    if image.programs.contains_key("arena_topology_init") {
        let children = children_max(machine).map(|count| Value::Number(count as i128));
        let argument = [("max_children".to_owned(), Value::List(children.into()))];
        calls.push(library.call_with("arena_topology_init", argument.into(), None)?);
    }
    for (id, cpus) in parts(machine).into_iter().filter(|(_, cpus)| !cpus.is_empty()) {
        let at = library.place_of_bitmap("arena_alloc_mask")?;
        let filled = CpuSetUse::Fill { at, words: cpus.words().collect() };
        calls.push(library.call("arena_alloc_mask", &[], Some(filled))?);
        let at = library.place_of_bitmap("arena_topology_node_init")?;
        let passed = CpuSetUse::Pass { at };
        calls.push(library.call("arena_topology_node_init", &[("id", id as i128)], Some(passed))?);
    }
    Ok(calls)
}

/// The object that has it.
struct Library<'a>(&'a Image);

impl Library<'_> {
    fn call(&self, name: &str, numbers: &[(&str, i128)], set: Option<CpuSetUse>) -> Result<Call, String> {
        let argument =
            numbers.iter().map(|&(field, number)| (field.to_owned(), Value::Number(number))).collect();
        self.call_with(name, argument, set)
    }

    fn call_with(
        &self,
        name: &str,
        argument: BTreeMap<String, Value>,
        set: Option<CpuSetUse>,
    ) -> Result<Call, String> {
        let typed = self.argument(name)?;
        let argument = self.0.types.bytes(name, typed, &Value::Table(argument), &|_| None)?;
        Ok(Call { program: name.to_owned(), argument, set })
    }

    /// The place of the field `bitmap` in the argument of a program, bytes from its beginning.
    fn place_of_bitmap(&self, name: &str) -> Result<usize, String> {
        let (of, size) = self.argument(name)?;
        let bitmap = match self.0.types.get(of) {
            DataType::Structure { fields } => fields.get("bitmap").map(|field| field.offset),
            _ => None,
        };
        bitmap.filter(|at| at + size_of::<u64>() <= size).ok_or_else(|| {
            format!(
                "the program `{name}` of the object takes no `bitmap`, as one of scx's library of arenas does"
            )
        })
    }

    /// The type and the size of a program's argument.
    fn argument(&self, name: &str) -> Result<(DataTypeId, usize), String> {
        let argument = self.0.programs.get(name).and_then(|program| program.argument);
        argument.ok_or_else(|| {
            format!("the object has no program `{name}` of scx's library of arenas; use no `scx_arena`")
        })
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
