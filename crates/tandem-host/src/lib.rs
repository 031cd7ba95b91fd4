//! The real machine: what it is, the virtual machines on it, and the scheduler that runs it.

#[cfg(feature = "scheduler")]
pub mod agent;
pub mod cgroups;
#[cfg(feature = "scheduler")]
pub mod control;
#[cfg(feature = "scheduler")]
pub mod core_scheduling;
pub mod cpu_time;
#[cfg(feature = "scheduler")]
pub mod doctor;
pub mod guarded;
pub mod log_entry;
#[cfg(feature = "scheduler")]
pub mod metrics;
pub mod mounts;
pub mod privileges;
#[cfg(feature = "scheduler")]
pub mod process_events;
#[cfg(feature = "scheduler")]
pub mod scheduler;
pub mod shares;
pub mod tasks;
pub mod topology;
pub mod untrusted;
mod users;
pub mod vms;
