//! How many files may be open: a program that samples often keeps one open for each thread of a VM.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Allows as many open files as the administrator lets it.
pub fn raise() -> nix::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
}
