//! The scheduler on this machine: from a settings file to the running BPF object, and its status.
//!
//! ```text
//! settings file ──> Settings ─┐
//! /sys ──> Machine ──> Places ┴─> Scheduler::load ──> the kernel runs it
//!                                        │ pins: /sys/fs/bpf/tandem
//!                                        └──────> Loaded: other processes read counters, set Preferences
//! ```
//!
//! [`tandem_settings`] defines its input and its answers.
//!
//! [`Instance`] makes sure that there is one at a time, and holds the pins; it outlives a [`Scheduler`],
//! because a change of the online CPUs requires loading it again while preferences and counters stay.

mod error;
mod exit;
mod faults;
mod history;
mod instance;
mod kernel;
pub(crate) mod kernel_types;
mod load;
mod loaded;
mod log_folder;
mod members;
mod messages;
mod policy;
mod rehome;
mod risks;
mod status;

pub use error::SchedulerError;
pub use exit::{Exit, keep_dump};
pub(crate) use faults::Fault;
pub use history::History;
pub use instance::{Instance, lock_service, lock_trial};
pub use kernel::{RunningKernel, SchedExtState};
pub(crate) use kernel_types::KernelTypes;
pub use load::{ObjectStorage, Scheduler};
pub use loaded::{Loaded, NAME, PreferenceError, Preferences};
pub use log_folder::LOG_FOLDER;
pub use members::{Members, WalkResult};
pub(crate) use policy::slice_ns;
pub use rehome::{cpus_of_nodes, rehome};
pub(crate) use risks::keeps_parts_from_starving;
pub use risks::{Risk, is_endangered_by_cookies, risks};
pub use status::Status;
