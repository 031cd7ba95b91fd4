//! The scheduler for Linux's sched_ext: the object that `build.rs` compiles from `tandem.bpf.c`, and its skeleton.
//!
//! `tandem.bpf.c` says what the scheduler does. The headers that it shares with user space are `settings.h`,
//! `counters.h` and `requests.h`; their types come out of the object's own type information, in [`types`].

use libbpf_rs::libbpf_sys;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

#[allow(missing_docs, clippy::all)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/tandem_skel.rs"));
}

pub use skeleton::{OpenTandemSkel, TandemSkel, TandemSkelBuilder, types};

/// The object file, as the kernel gets it.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tandem.bpf.o"));

/// The source of the counters, with their descriptions: one `COUNTER(name, "description")` a line.
pub const COUNTERS_H: &str = include_str!("counters.h");

/// Runs a loaded program that takes a request, and returns what the program returned: 0 or a negative error number.
/// The program may change the request.
///
/// # Errors
/// If the kernel does not run it.
pub fn run_request(
    program: BorrowedFd<'_>,
    request: &mut types::preference_request,
) -> libbpf_rs::Result<i32> {
    let mut options = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        ctx_in: ptr::from_mut(request).cast(),
        ctx_size_in: size_of::<types::preference_request>() as _,
        ..Default::default()
    };
    // SAFETY: the kernel reads and writes the request during the call only, and its fields are plain integers.
    let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    match error {
        0 => Ok(options.retval as i32),
        error => Err(libbpf_rs::Error::from_raw_os_error(-error)),
    }
}
