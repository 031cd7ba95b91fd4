//! Counters of performance, and records for their readers.

use super::Table;
use crate::fault::Fault;
use crate::maps::{Map, PerfEventArray, errno, unsupported};
use crate::runtime::Run;

pub(super) const TABLE: Table = &[
    ("bpf_perf_event_output", output),
    ("bpf_perf_event_read", read),
    ("bpf_perf_event_read_value", read_value),
];

/// Bytes of `struct bpf_perf_event_value`: the counter, and the times that it was enabled and running.
const VALUE_SIZE: u64 = 24;

fn events<'a>(run: &'a mut Run, map: u64) -> Result<&'a mut PerfEventArray, Fault> {
    let map = run.state.map_number(map)?;
    match &mut run.state.maps[map] {
        Map::PerfEventArray(events) => Ok(events),
        _ => Err(unsupported("using performance events")),
    }
}

/// The record is checked and dropped.
fn output(run: &mut Run, [_, map, flags, data, size]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let cpu = run.kernel.cpu();
    run.state.memory.slice(data, size as usize)?;
    let events = events(run, map)?;
    Ok(match events.check(flags, cpu) {
        Ok(()) => {
            events.dropped += 1;
            0
        }
        Err(error) => error,
    })
}

/// No counter is installed anywhere.
fn read(run: &mut Run, [map, flags, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let cpu = run.kernel.cpu();
    Ok(events(run, map)?.check(flags, cpu).err().unwrap_or(errno::ENOENT))
}

fn read_value(run: &mut Run, [map, flags, value, size, _]: [u64; 5], frame: u64) -> Result<u64, Fault> {
    run.state.memory.slice_mut(value, size as usize)?.fill(0);
    match size {
        VALUE_SIZE => read(run, [map, flags, 0, 0, 0], frame),
        _ => Ok(errno::EINVAL),
    }
}
