//! Elements of maps, storage of tasks and cgroups.

use super::Table;
use crate::fault::Fault;
use crate::maps::{Map, errno, unsupported};
use crate::runtime::Run;

pub(super) const TABLE: Table = &[
    ("bpf_map_lookup_elem", lookup),
    ("bpf_map_lookup_percpu_elem", lookup_on_cpu),
    ("bpf_map_update_elem", update),
    ("bpf_map_delete_elem", delete),
    ("bpf_map_push_elem", push),
    ("bpf_map_pop_elem", pop),
    ("bpf_map_peek_elem", peek),
    ("bpf_task_storage_get", storage_get),
    ("bpf_task_storage_delete", storage_delete),
    ("bpf_cgrp_storage_get", storage_get),
    ("bpf_cgrp_storage_delete", storage_delete),
];

/// Storage: create the value if there is none.
pub(crate) const CREATE: u64 = 1;

fn lookup(run: &mut Run, [map, key, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let cpu = run.kernel.cpu();
    let map = run.state.map_number(map)?;
    run.state.maps[map].lookup(&run.state.memory, key, cpu)
}

fn lookup_on_cpu(run: &mut Run, [map, key, cpu, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    match cpu as u32 as usize {
        cpu if cpu < run.state.cpu_count => run.state.maps[map].lookup(&run.state.memory, key, cpu),
        _ => Ok(0),
    }
}

fn update(run: &mut Run, [map, key, value, flags, _]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    run.state.update(map, key, value, flags, run.kernel.cpu())
}

fn delete(run: &mut Run, [map, key, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    run.state.delete(map, key)
}

fn push(run: &mut Run, [map, value, flags, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    match &mut run.state.maps[map] {
        Map::Queue(queue) => queue.push(&mut run.state.memory, value, flags),
        _ => Err(unsupported("pushing a value")),
    }
}

fn pop(run: &mut Run, [map, value, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    take(run, map, value, true)
}

fn peek(run: &mut Run, [map, value, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    take(run, map, value, false)
}

fn take(run: &mut Run, map: u64, value: u64, remove: bool) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    match &mut run.state.maps[map] {
        Map::Queue(queue) => queue.take(&mut run.state.memory, value, remove),
        _ => Err(unsupported("taking a value")),
    }
}

/// The value of an object: map, object, address of the initial value (or 0 for zeros), flags.
fn storage_get(run: &mut Run, [map, object, value, flags, _]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    if object == 0 || flags > CREATE {
        return Ok(0);
    }
    let found = match &run.state.maps[map] {
        Map::Hash(storage) => storage.find_object(&mut run.state.memory, object)?,
        _ => 0,
    };
    if found != 0 || flags != CREATE {
        return Ok(found);
    }
    let Map::Hash(storage) = &mut run.state.maps[map] else {
        return Err(unsupported("storage of an object"));
    };
    if run.kernel.storage_is_full() {
        return Ok(0);
    }
    storage.create(&mut run.state.memory, object, value)
}

fn storage_delete(run: &mut Run, [map, object, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    match &run.state.maps[map] {
        _ if object == 0 => Ok(errno::EINVAL),
        Map::Hash(_) => {
            let existed = run.state.forget_in(map, object);
            Ok(if existed { 0 } else { errno::ENOENT })
        }
        _ => Err(unsupported("storage of an object")),
    }
}
