//! What the simulator does, by what it measures. One program: each test file of its own would link the simulator again.

mod common;

mod busy_properties;
mod coherence;
mod credit2;
mod deadlocks;
mod guest;
mod guest_checks;
mod guest_properties;
mod halt_poll;
mod homes;
mod numa;
mod paravirt_flush;
mod paravirt_locks;
mod pause_loop;
mod preemption;
mod processes;
mod properties;
mod recount;
mod textbook;
