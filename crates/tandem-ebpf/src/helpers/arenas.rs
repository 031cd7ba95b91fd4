//! Pages of arenas.

use super::Table;
use crate::fault::Fault;
use crate::maps::{Map, unsupported};
use crate::runtime::Run;

pub(super) const TABLE: Table = &[("bpf_arena_alloc_pages", allocate), ("bpf_arena_free_pages", free)];

fn allocate(run: &mut Run, [map, place, count, _, flags]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    match &mut run.state.maps[map] {
        Map::Arena(_) if flags != 0 => Ok(0),
        Map::Arena(_) if place != 0 => Err(unsupported("choosing the place of an arena's pages")),
        Map::Arena(arena) => arena.allocate(&mut run.state.memory, count & u64::from(u32::MAX)),
        _ => Err(unsupported("allocating pages")),
    }
}

fn free(run: &mut Run, [map, first, count, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    match &mut run.state.maps[map] {
        Map::Arena(arena) => arena.free(&mut run.state.memory, first, count & u64::from(u32::MAX)),
        _ => return Err(unsupported("freeing pages")),
    }
    Ok(0)
}
