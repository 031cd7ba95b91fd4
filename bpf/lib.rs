//! The scheduler for Linux's sched_ext: the object that `build.rs` compiles from `tandem.bpf.c`, and its skeleton.
//!
//! `tandem.bpf.c` says what the scheduler does. The headers that it shares with user space are `settings.h`,
//! `counters.h` and `requests.h`; their types come out of the object's own type information, in [`types`].

#[allow(missing_docs, clippy::all)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/tandem_skel.rs"));
}

pub use skeleton::{OpenTandemSkel, TandemSkel, TandemSkelBuilder, types};

/// The source of the counters, with their descriptions: one `COUNTER(name, "description")` a line.
pub const COUNTERS_H: &str = include_str!("counters.h");
