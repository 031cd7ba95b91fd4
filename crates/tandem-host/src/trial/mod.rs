//! A trial of schedulers on this machine: loads one after the other, and measures meanwhile.
//!
//! Problem: schedulers are to take turns on a machine that others depend on. Whatever happens to the process
//! that makes the trial, no scheduler of it may stay.
//!
//! Approach: a scheduler of sched_ext is unloaded when its process ends, so an [`Arm`] is a process below a
//! [keeper](keep), which ends it, and all that it has started, as soon as its own standard input is closed: on
//! request, or because the process of the trial is gone in whatever way. If the keeper itself is killed, the
//! kernel kills the arm. A scheduler that stays loaded even then is ejected by the system request S.
//!
//! [`Window`] measures what tasks and VMs get while an arm is loaded.

mod arm;
mod keeper;
mod kept;
mod pressure;
mod ready;
mod window;

pub use arm::{Arm, ArmError, ArmScheduler};
pub use keeper::{InvokingUser, begin_as, exit_code, keep};
pub use kept::{Keeping, Kept, shell};
pub use ready::{NotReady, check_ready};
pub use window::{MeasuredValue, Measures, Subject, Window};
