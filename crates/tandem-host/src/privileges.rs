//! Dropping privileges that are no longer needed.
//!
//! A process of root has all capabilities, one of the service's user those of the unit. What it keeps here is
//! all that it, and every program that it executes, can have from then on. It stays the same user, and keeps
//! access to that user's files.

use crate::guarded::is_delegated;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

pub use rustix::thread::CapabilitySet as Capabilities;

/// Drops all capabilities but these, and those that files of programs could give. Applies to the calling
/// thread and those that it starts from now on: call it before there are others.
///
/// # Errors
/// If the kernel refuses, for example because the caller lacks a capability that it is to keep.
pub fn keep_only(kept: Capabilities) -> Result<(), Errno> {
    set_no_new_privs(true)?;
    for capability in CapabilitySet::all().iter() {
        if !kept.contains(capability) {
            match remove_capability_from_bounding_set(capability) {
                // This kernel does not know the capability; or the process may not, as in a unit without
                // CAP_SETPCAP: a program that it executes gets no more than it has anyway, because it cannot
                // gain privileges.
                Err(Errno::INVAL | Errno::PERM) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
    }
    // The inheritable capabilities of a service's user stay, as far as they are kept.
    let inheritable = capabilities(None)?.inheritable & kept;
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })
}

/// The subset of these capabilities that the calling thread has.
///
/// # Errors
/// If the kernel does not say.
pub fn held(wanted: Capabilities) -> Result<Capabilities, Errno> {
    Ok(capabilities(None)?.effective & wanted)
}

/// Whether this process can read about other users' processes: itself, or through its broker.
pub fn sees_all_processes() -> bool {
    let may_trace = || held(Capabilities::SYS_PTRACE).is_ok_and(|held| !held.is_empty());
    geteuid().is_root() || is_delegated() || may_trace()
}
