//! Loads a compiled scheduler into the kernel that runs, and keeps it there until it is killed:
//! `load-scheduler FILE.bpf.o [PREPARATION]`, as root.
//!
//! Of what a scheduler's own loader does, this is what all need: the constants of the kernel are filled in, by
//! which scx's headers name its enums (`__SCX_SLICE_DFL` and the like), and its operations are attached. The rest
//! is different for each, and stands in a file, a [`Preparation`]; without it, settings keep the object's values.

use libbpf_rs::btf::types::{DataSec, Enum, Enum64, Int, MemberAttr, Struct, Var};
use libbpf_rs::{
    Btf, Link, MapCore, MapFlags, MapType, Object, ObjectBuilder, OpenObject, ProgramInput, btf::HasSize,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use scheduler_tests::preparation::{Call, CpuSetUse, Element, Patch, Preparation};
use std::collections::HashMap;
use std::error::Error;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// What ends it, in words.
type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().ok_or("name the object file of a scheduler")?;
    let preparation: Preparation = match arguments.next() {
        Some(file) => serde_json::from_slice(&fs::read(&file)?)?,
        None => Preparation::default(),
    };
    let mut object = ObjectBuilder::default().open_file(&path)?;
    let types = Btf::from_path(Path::new(&path))?;
    set_constants(&mut object, &types)?;
    for patch in &preparation.variables {
        set_variable(&mut object, &types, patch)?;
    }
    for (member, value) in &preparation.operations {
        set_operation(&mut object, &types, member, value.unwrap_or(0))?;
    }
    for (name, size) in &preparation.sizes {
        let map = object.maps_mut().find(|map| map.name() == OsStr::new(name));
        map.ok_or_else(|| format!("there is no map {name}"))?.set_max_entries(*size)?;
    }
    let mut object = object.load()?;
    for element in &preparation.elements {
        set_element(&object, element)?;
    }
    // Where the simulator runs them; some check that.
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(None, &first)?;
    call(&object, &preparation.calls)?;
    let operations = object.maps_mut().filter(|map| map.map_type() == MapType::StructOps);
    let links: Vec<Link> =
        operations.map(|mut map| map.attach_struct_ops()).collect::<std::result::Result<_, _>>()?;
    call(&object, &preparation.calls_after_start)?;
    println!("loaded {} scheduler", links.len());
    loop {
        std::thread::park();
    }
}

/// Fills in the constants that the object asks for and the kernel has; a kernel without one has 0.
fn set_constants(object: &mut OpenObject, types: &Btf<'_>) -> Result<()> {
    let values = enumerators(&Btf::from_vmlinux()?);
    for section in types.type_by_kind::<DataSec<'_>>() {
        for place in section.iter() {
            let Some(variable) = types.type_by_id::<Var<'_>>(place.ty) else { continue };
            let name = variable.name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if let Some(value) = name.strip_prefix("__").and_then(|name| values.get(name)) {
                let patch = Patch { variable: name, offset: 0, bytes: value.to_ne_bytes().to_vec() };
                set_variable(object, types, &patch)?;
            }
        }
    }
    Ok(())
}

/// Writes into a global variable before the object is loaded.
fn set_variable(object: &mut OpenObject, types: &Btf<'_>, patch: &Patch) -> Result<()> {
    let Patch { variable, offset, bytes } = patch;
    let missing = || format!("there is no variable {variable}");
    let (section, at) = types
        .type_by_kind::<DataSec<'_>>()
        .find_map(|section| {
            let is_it =
                |ty| types.type_by_id::<Var<'_>>(ty).and_then(|it| it.name()) == Some(OsStr::new(variable));
            let at = section.iter().find(|place| is_it(place.ty))?.offset as usize;
            Some((section.name()?.to_string_lossy().into_owned(), at))
        })
        .ok_or_else(missing)?;
    let map = object.maps_mut().find(|map| map.name().to_string_lossy().ends_with(&section));
    let mut map = map.ok_or_else(missing)?;
    let data = map.initial_value_mut().ok_or_else(missing)?;
    let from = at + offset;
    let place = data.get_mut(from..from + bytes.len());
    place
        .ok_or_else(|| format!("{variable} has no {} bytes from {offset} on", bytes.len()))?
        .copy_from_slice(bytes);
    Ok(())
}

/// Sets a number of the scheduler's operations.
fn set_operation(object: &mut OpenObject, types: &Btf<'_>, member: &str, value: u64) -> Result<()> {
    let missing = || format!("the operations have no member {member}");
    let operations =
        types.type_by_kind::<Struct<'_>>().filter(|it| it.name() == Some(OsStr::new("sched_ext_ops")));
    let place = operations.flat_map(|it| {
        it.iter()
            .filter(|it| it.name == Some(OsStr::new(member)))
            .filter_map(|it| match it.attr {
                MemberAttr::Normal { offset } => Some((offset as usize / 8, it.ty)),
                MemberAttr::BitField { .. } => None,
            })
            .collect::<Vec<_>>()
    });
    let (at, ty) = { place }.next().ok_or_else(missing)?;
    let ty =
        types.type_by_id::<libbpf_rs::btf::BtfType<'_>>(ty).ok_or_else(missing)?.skip_mods_and_typedefs();
    // A callback is a pointer.
    let bytes = Int::try_from(ty).map_or(8, |number| number.size());
    let mut maps = object.maps_mut().filter(|map| map.map_type() == MapType::StructOps);
    let mut map = maps.next().ok_or_else(missing)?;
    let data = map.initial_value_mut().ok_or_else(missing)?;
    let place = data.get_mut(at..at + bytes).ok_or_else(missing)?;
    place.copy_from_slice(value.to_ne_bytes().get(..bytes).ok_or_else(missing)?);
    Ok(())
}

fn set_element(object: &Object, Element { map, cpu, key, value }: &Element) -> Result<()> {
    let found = object.maps().find(|it| it.name() == OsStr::new(map));
    let found = found.ok_or_else(|| format!("there is no map {map}"))?;
    let is_per_cpu =
        matches!(found.map_type(), MapType::PercpuArray | MapType::PercpuHash | MapType::LruPercpuHash);
    if !is_per_cpu {
        return Ok(found.update(key, value, MapFlags::ANY)?);
    }
    let cpus = libbpf_rs::num_possible_cpus()?;
    let before = found.lookup_percpu(key, MapFlags::ANY)?;
    let mut values = before.unwrap_or_else(|| vec![vec![0; value.len()]; cpus]);
    for of in cpu.map_or(0..cpus, |cpu| cpu..cpu + 1) {
        let place = values.get_mut(of).ok_or_else(|| format!("there is no CPU {of}"))?;
        place.clone_from(value);
    }
    Ok(found.update_percpu(key, &values, MapFlags::ANY)?)
}

/// Runs programs of the object.
fn call(object: &Object, calls: &[Call]) -> Result<()> {
    let mut address = [0; 8];
    for Call { program, argument, set } in calls {
        let found = object.progs_mut().find(|it| it.name() == OsStr::new(program));
        let found = found.ok_or_else(|| format!("there is no program {program}"))?;
        let mut argument = argument.clone();
        if let Some(CpuSetUse::Pass(at)) = *set {
            argument[at..at + 8].copy_from_slice(&address);
        }
        let context_in = (!argument.is_empty()).then_some(&mut argument[..]);
        let output = found.test_run(ProgramInput { context_in, ..ProgramInput::default() })?;
        if output.return_value != 0 {
            return Err(format!("the program {program} returned {}", output.return_value as i32).into());
        }
        if let Some(CpuSetUse::Fill(at, words)) = set {
            address.copy_from_slice(&argument[*at..at + 8]);
            fill(u64::from_ne_bytes(address), words)?;
        }
    }
    Ok(())
}

/// Writes words to the memory that this process shares with the scheduler.
fn fill(address: u64, words: &[u64]) -> Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // The compiler does not know of the object's memory; the kernel does.
    let memory = OpenOptions::new().write(true).open("/proc/self/mem")?;
    Ok(memory.write_all_at(&bytes, address)?)
}

/// All enumerators of sched_ext in a kernel.
fn enumerators(kernel: &Btf<'_>) -> HashMap<String, u64> {
    let mut values = HashMap::new();
    let mut add = |name: Option<&OsStr>, value: u64| {
        if let Some(name) = name.and_then(|name| name.to_str()).filter(|name| name.starts_with("SCX_")) {
            values.insert(name.to_owned(), value);
        }
    };
    for of in kernel.type_by_kind::<Enum<'_>>() {
        of.iter().for_each(|member| add(member.name, member.value as u64));
    }
    for of in kernel.type_by_kind::<Enum64<'_>>() {
        of.iter().for_each(|member| add(member.name, member.value as u64));
    }
    values
}
