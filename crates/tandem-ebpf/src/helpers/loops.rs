//! Loops: over numbers, by callback and by iterator, and over the elements of a map.

use super::Table;
use crate::fault::Fault;
use crate::maps::{Key, errno};
use crate::runtime::Run;

pub(super) const TABLE: Table = &[
    ("bpf_loop", times),
    ("bpf_for_each_map_elem", for_each),
    ("bpf_iter_num_new", numbers_new),
    ("bpf_iter_num_next", numbers_next),
    ("bpf_iter_num_destroy", numbers_destroy),
];

/// Most rounds of a loop, as in the kernel.
pub(crate) const ROUNDS_MAX: i64 = 8 << 20;

/// Calls back with 0, 1, ... this many times or until it returns other than 0; returns the number of rounds.
fn times(run: &mut Run, [count, callback, context, flags, _]: [u64; 5], frame: u64) -> Result<u64, Fault> {
    let count = count as u32;
    if flags != 0 {
        return Ok(errno::EINVAL);
    }
    if i64::from(count) > ROUNDS_MAX {
        return Ok(errno::E2BIG);
    }
    for round in 0..u64::from(count) {
        if run.call_address(callback, [round, context, 0, 0, 0], frame)? != 0 {
            return Ok(round + 1);
        }
    }
    Ok(count.into())
}

/// Calls back with each element, or until it returns other than 0; returns the number of elements that it
/// visited. It skips elements that are removed meanwhile.
fn for_each(run: &mut Run, [map, callback, context, flags, _]: [u64; 5], frame: u64) -> Result<u64, Fault> {
    if flags != 0 {
        return Ok(errno::EINVAL);
    }
    let number = run.state.map_number(map)?;
    let cpu = run.kernel.cpu();
    let key_size = run.state.maps[number].key_size();
    // The key of an array's element is in a frame of its own, above the caller's.
    let key_frame = frame + Run::FRAME_SIZE;
    let mut seen = 0;
    for (key, value) in run.state.maps[number].elements(cpu)? {
        let key = match key {
            Key::At(address) => {
                let bytes = run.state.memory.slice(address, key_size)?;
                if run.state.maps[number].find(&run.state.memory, bytes, cpu) != Some(value) {
                    continue;
                }
                address
            }
            Key::Index(index) => {
                run.check_frame(key_frame)?;
                run.state.memory.store(frame, 4, index.into())?;
                frame
            }
        };
        seen += 1;
        if run.call_address(callback, [map, key, value, context, 0], key_frame)? != 0 {
            break;
        }
    }
    Ok(seen)
}

/// Begins an iteration over `start..end`; the iterator contains the number before the next one, and the end.
fn numbers_new(run: &mut Run, [iterator, start, end, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let (start, end) = (start as i32, end as i32);
    let error = match i64::from(end) - i64::from(start) {
        ..0 => errno::EINVAL,
        count if count > ROUNDS_MAX => errno::E2BIG,
        _ => 0,
    };
    let (current, end) = if error == 0 { (start.wrapping_sub(1), end) } else { (0, 0) };
    run.state.memory.store(iterator, 8, u64::from(current as u32) | u64::from(end as u32) << 32)?;
    Ok(error)
}

/// The address of the next number, or 0.
fn numbers_next(run: &mut Run, [iterator, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let word = run.state.memory.load(iterator, 8)?;
    let (next, end) = ((word as i32).wrapping_add(1), (word >> 32) as i32);
    if next >= end {
        run.state.memory.store(iterator, 8, 0)?;
        return Ok(0);
    }
    run.state.memory.store(iterator, 4, next as u64)?;
    Ok(iterator)
}

fn numbers_destroy(run: &mut Run, [iterator, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    run.state.memory.store(iterator, 8, 0)?;
    Ok(0)
}
