//! The scheduler for Linux's sched_ext: the object that `build.rs` compiles from `tandem.bpf.c`, and its
//! skeleton.
//!
//! `tandem.bpf.c` documents the scheduler. The headers that it shares with user space are `settings.h`,
//! `counters.h` and `requests.h`; their types come from the object's own type information, in [`types`].

use libbpf_rs::libbpf_sys;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

#[allow(missing_docs, clippy::all)]
mod skeleton {
    include!(concat!(env!("OUT_DIR"), "/tandem_skel.rs"));
}

pub use skeleton::{OpenTandemSkel, TandemSkel, TandemSkelBuilder, types};

/// The object file itself.
pub const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/tandem.bpf.o"));

/// Headers for the sources of other schedulers.
pub mod headers {
    #[allow(missing_docs)]
    mod packed {
        include!(concat!(env!("OUT_DIR"), "/headers.rs"));
    }

    /// The path by which a source includes each, and its text, compressed with zstd: those of sched-ext/scx and of
    /// libbpf, and the kernel's types, `vmlinux.h`.
    pub const HEADERS: &[(&str, &[u8])] = packed::HEADERS;
    /// The architecture of the kernel's types, as its own macros name it: `x86`.
    pub const TARGET: &str = packed::TARGET;
}

/// The source of the counters, with their descriptions: one `COUNTER(name, "description")` per line.
pub const COUNTERS_H: &str = include_str!("counters.h");

/// Runs a loaded program that takes a request, and returns what the program returned: 0 or a negative error
/// number. The program may change the request.
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
    // SAFETY: the kernel accesses the request only during the call, and its fields are plain integers.
    let error = unsafe { libbpf_sys::bpf_prog_test_run_opts(program.as_raw_fd(), &mut options) };
    match error {
        0 => Ok(options.retval as i32),
        error => Err(libbpf_rs::Error::from_raw_os_error(-error)),
    }
}

/// The scheduler's read-only data with changes: `initial` are the bytes of the object's section `.rodata`.
///
/// # Panics
/// If they are not as long as the section.
pub fn changed_rodata(initial: &[u8], change: impl FnOnce(&mut types::rodata)) -> Vec<u8> {
    assert!(initial.len() <= size_of::<types::rodata>(), "the data of another object");
    // SAFETY: numbers, and switches that may have any value.
    let mut data = unsafe { Box::<types::rodata>::new_zeroed().assume_init() };
    // SAFETY: the structure is plain data of at least that length, and the bytes are those that clang has
    // laid out for it.
    unsafe { ptr::copy_nonoverlapping(initial.as_ptr(), ptr::from_mut(&mut *data).cast(), initial.len()) };
    change(&mut data);
    let mut bytes = initial.to_vec();
    // SAFETY: as above, in the other direction. Padding was copied from `initial`, so all of it is
    // initialised.
    unsafe { ptr::copy_nonoverlapping(ptr::from_ref(&*data).cast(), bytes.as_mut_ptr(), bytes.len()) };
    bytes
}

/// The bytes of a request, as [`run_request`] passes them.
pub fn request_bytes(request: &types::preference_request) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<types::preference_request>()];
    // SAFETY: the structure is plain integers without padding between them.
    unsafe { ptr::copy_nonoverlapping(ptr::from_ref(request).cast(), bytes.as_mut_ptr(), bytes.len()) };
    bytes
}
