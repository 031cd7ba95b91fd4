//! Whether a trial may begin on this machine.

use crate::doctor::is_service_active;
use crate::scheduler::{RunningKernel, SchedulerError, lock_service, lock_trial};
use rustix::process::geteuid;
use std::fs::File;
use thiserror::Error;

/// Why a trial cannot begin. Each message is one sentence: what is wrong, and what to do.
#[derive(Debug, Error)]
pub enum NotReady {
    /// The user is not root.
    #[error("a trial loads schedulers, which needs root; run it with sudo")]
    NotRoot,
    /// The service would be in its way.
    #[error("{unit} is active; run `systemctl stop {unit}` first, and start it again afterwards")]
    ServiceActive {
        /// The unit.
        unit: &'static str,
    },
    /// The kernel cannot load schedulers, or has one.
    #[error(transparent)]
    Scheduler(#[from] SchedulerError),
}

/// Checks that schedulers can be loaded, and that none is loaded or about to be. Closing the file that is
/// returned lets another trial begin.
///
/// # Errors
/// If not.
pub fn check_ready(kernel: &RunningKernel) -> Result<File, NotReady> {
    if !geteuid().is_root() {
        return Err(NotReady::NotRoot);
    }
    kernel.check()?;
    for unit in ["tandem.service", "tandem-observe.service"] {
        if is_service_active(kernel.root(), unit) {
            return Err(NotReady::ServiceActive { unit });
        }
    }
    let locked = lock_trial()?;
    // A `tandem run` that somebody started by hand.
    drop(lock_service()?);
    let state = kernel.state()?;
    if !state.is_disabled() {
        let name = state.scheduler.unwrap_or_else(|| format!("in state {}", state.name));
        return Err(SchedulerError::OtherScheduler { name }.into());
    }
    Ok(locked)
}
