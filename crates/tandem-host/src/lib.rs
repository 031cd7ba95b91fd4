//! The real machine: its topology, the virtual machines on it, and the scheduler that it runs.

pub mod agent;
pub mod cgroups;
pub mod control;
pub mod core_scheduling;
pub mod cpu_time;
pub mod doctor;
pub mod guarded;
pub mod log_entry;
pub mod metrics;
pub mod mounts;
pub mod privileges;
pub mod process_events;
pub mod recording;
pub mod scheduler;
pub mod shares;
pub mod tasks;
pub mod topology;
pub mod trial;
pub mod untrusted;
mod users;
pub mod vms;
