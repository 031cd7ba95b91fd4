//! The twin of a machine: what was recorded there, as programs that run again under other circumstances.
//!
//! **Problem.** The order of events in a recording is what one scheduler happened to do. Played back as it is,
//! it says nothing about another one.
//!
//! **Approach.** A [model] keeps the work and its dependencies: how long each task computed between two things
//! that matter to others, what it waited for, and what it did for others at which point of its work. The
//! simulator schedules that anew, on the recorded machine or on another one, and the same [measures] are taken
//! of the recording and of the run. [Guests](guest) that were recorded at the same time as their host run in
//! kernels of their own, once their clocks have been [matched](together).
//!
//! **Limits.** The work of a task is what it was, whatever happens to others: a program that does something
//! else when it comes too late, or spins until something happens, is not understood. [Trust](trust) says of
//! which tasks that must be feared.

mod cgroups;
pub mod comparison;
pub mod grouping;
pub mod guest;
pub mod latency;
pub mod measures;
pub mod model;
pub mod observed;
pub mod picture;
pub mod plan;
pub mod replay;
pub mod situation;
pub mod stage;
mod ticks;
mod timers;
pub mod together;
pub mod trust;
pub mod tune;
mod understand;
mod wakers;
pub mod what_if;
mod work;

pub use model::Model;
