//! Giving up what is not needed any more.
//!
//! A process of root has all capabilities. What it keeps here is all that it, and whatever it executes, can have from
//! then on. It stays the user root, whose files it may use.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
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
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets)
}
