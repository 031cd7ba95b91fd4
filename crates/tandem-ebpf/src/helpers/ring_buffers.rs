//! Records in ring buffers.

use super::Table;
use crate::fault::Fault;
use crate::maps::Map;
use crate::runtime::Run;

pub(super) const TABLE: Table = &[
    ("bpf_ringbuf_reserve", reserve),
    ("bpf_ringbuf_submit", submit),
    ("bpf_ringbuf_discard", discard),
    ("bpf_ringbuf_output", output),
    ("bpf_ringbuf_query", query),
];

fn reserve(run: &mut Run, [map, size, flags, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    match &mut run.state.maps[map] {
        Map::RingBuffer(_) if flags != 0 => Ok(0),
        Map::RingBuffer(buffer) => buffer.reserve(&mut run.state.memory, size),
        _ => Err(crate::maps::unsupported("reserving a record")),
    }
}

fn submit(run: &mut Run, [record, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    commit(run, record, true)
}

fn discard(run: &mut Run, [record, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    commit(run, record, false)
}

fn commit(run: &mut Run, record: u64, submit: bool) -> Result<u64, Fault> {
    for map in &mut run.state.maps {
        if let Map::RingBuffer(buffer) = map
            && buffer.commit(&mut run.state.memory, record, submit)?
        {
            return Ok(0);
        }
    }
    Err(Fault(format!("{record:#x} is not a reserved record of a ring buffer")))
}

fn output(run: &mut Run, [map, data, size, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    match &mut run.state.maps[map] {
        Map::RingBuffer(buffer) => buffer.output(&run.state.memory, data, size),
        _ => Err(crate::maps::unsupported("writing a record")),
    }
}

fn query(run: &mut Run, [map, what, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    Ok(run.state.ring_buffer(map)?.query(what))
}
