//! How many files may be open: those who look often keep one open for each thread of a VM.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Allows as many open files as the administrator lets it; how many that are.
pub fn raise() -> nix::Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}
