//! Timers in the values of maps: `struct bpf_timer`, known by its address. The kernel keeps the time.

use super::Table;
use crate::fault::Fault;
use crate::image::FunctionId;
use crate::maps::{Key, errno};
use crate::runtime::Run;

pub(super) const TABLE: Table = &[
    ("bpf_timer_init", init),
    ("bpf_timer_set_callback", set_callback),
    ("bpf_timer_start", start),
    ("bpf_timer_cancel", cancel),
];

/// A timer that has been initialised.
#[derive(Debug)]
pub(crate) struct Timer {
    /// The number of the map that it is in, and its element there: key, and address of the value.
    map: usize,
    key: Key,
    value: u64,
    callback: Option<u32>,
    is_armed: bool,
    /// Its callback is being called.
    pub is_running: bool,
}

impl Timer {
    /// Begins the callback of a timer: its function, with the map, the key and the value.
    pub fn expire(&mut self) -> Option<(FunctionId, usize, Key, u64)> {
        let callback = self.callback.filter(|_| self.is_armed)?;
        self.is_armed = false;
        self.is_running = true;
        Some((FunctionId(callback), self.map, self.key, self.value))
    }
}

/// Flags of a start: at an absolute time, and on this CPU, where callbacks run anyway.
const ABSOLUTE: u64 = 1;
const PINNED: u64 = 2;

fn init(run: &mut Run, [timer, map, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let map = run.state.map_number(map)?;
    if run.state.timers.contains_key(&timer) {
        return Ok(errno::EBUSY);
    }
    let Some((key, value)) = run.state.maps[map].element_of(timer) else {
        return Err(Fault(format!(
            "the timer at {timer:#x} is in no value of the map to which it should belong"
        )));
    };
    let new = Timer { map, key, value, callback: None, is_armed: false, is_running: false };
    run.state.timers.insert(timer, new);
    Ok(0)
}

fn set_callback(run: &mut Run, [timer, callback, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    let callback = run.function_number(callback)?;
    match run.state.timers.get_mut(&timer) {
        Some(timer) => {
            timer.callback = Some(callback);
            Ok(0)
        }
        None => Ok(errno::EINVAL),
    }
}

fn start(run: &mut Run, [address, nsecs, flags, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    match run.state.timers.get_mut(&address) {
        Some(timer) if timer.callback.is_some() && flags & !(ABSOLUTE | PINNED) == 0 => {
            if !run.kernel.start_timer(address, nsecs, flags & ABSOLUTE != 0) {
                return Ok(errno::ENOMEM);
            }
            timer.is_armed = true;
            Ok(0)
        }
        _ => Ok(errno::EINVAL),
    }
}

/// Stops a timer; returns whether it had been started.
fn cancel(run: &mut Run, [address, ..]: [u64; 5], _: u64) -> Result<u64, Fault> {
    match run.state.timers.get_mut(&address) {
        None => Ok(errno::EINVAL),
        Some(timer) if timer.is_running => Ok(errno::EDEADLK),
        Some(timer) => {
            timer.is_armed = false;
            Ok(run.kernel.cancel_timer(address).into())
        }
    }
}
