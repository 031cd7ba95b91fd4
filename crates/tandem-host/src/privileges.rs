//! Giving up what is not needed any more.
//!
//! A process of root has all capabilities, and one of the service's user those of the unit. What it keeps here is all that it, and whatever
//! it executes, can have from then on. It stays the user that it is, whose files it may use.

use crate::guarded::is_delegated;
use rustix::io::Errno;
use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, remove_capability_from_bounding_set, set_capabilities,
    set_no_new_privs,
};

pub use rustix::thread::CapabilitySet as Capabilities;

/// Gives up all capabilities but these, and those that files of programs could give. Of the calling thread and those
/// that it starts from now on: call it before there are others.
///
/// # Errors
/// If the kernel refuses, as it does to who does not have what is to be kept.
pub fn keep_only(kept: Capabilities) -> Result<(), Errno> {
    set_no_new_privs(true)?;
    for capability in CapabilitySet::all().iter() {
        if !kept.contains(capability) {
            match remove_capability_from_bounding_set(capability) {
                // One that this kernel does not know; or a process that may not, as that of a unit without CAP_SETPCAP: what it
                // executes gets no more than it has all the same, for it can gain no privileges.
                Err(Errno::INVAL | Errno::PERM) | Ok(()) => {}
                Err(error) => return Err(error),
            }
        }
    }
    // What a service's user has been given for what it executes stays so, as far as it is kept.
    let inheritable = capabilities(None)?.inheritable & kept;
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })
}

/// Which of these the calling thread has.
///
/// # Errors
/// If the kernel does not tell.
pub fn held(wanted: Capabilities) -> Result<Capabilities, Errno> {
    Ok(capabilities(None)?.effective & wanted)
}

/// Whether this process is shown what the kernel tells of other users' processes: itself, or by its broker.
pub fn sees_all_processes() -> bool {
    let may_trace = || held(Capabilities::SYS_PTRACE).is_ok_and(|held| !held.is_empty());
    geteuid().is_root() || is_delegated() || may_trace()
}
