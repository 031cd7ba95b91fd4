//! The scheduler on this machine: from a file of settings to the running BPF object, and what can be asked of it.
//!
//! ```text
//! settings file ──> Settings ─┐
//! /sys ──> Machine ──> Places ┴─> Scheduler::load ──> the kernel runs it
//!                                        │ pins: /sys/fs/bpf/tandem
//!                                        └──────> Preferences, Counters: other processes reach it there
//! ```
//!
//! [`Instance`] makes sure that there is one at a time, and holds the pins; it outlives a [`Scheduler`], because a
//! change of the online CPUs means loading again while preferences and counters stay.

mod error;
mod exit;
mod instance;
mod kernel;
mod load;
mod messages;
mod places;
mod settings;

pub use error::SchedulerError;
pub use exit::Exit;
pub use instance::Instance;
pub use kernel::{Kernel, State};
pub use load::{ObjectStorage, Scheduler};
pub use places::{Places, PlacesError};
pub use settings::{
    DirectedYield, Fairness, Guest, Mode, NumaHomes, RateControl, Settings, SoftAffinity, settings_schema,
};
