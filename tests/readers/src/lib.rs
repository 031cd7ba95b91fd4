//! Readers of what users and strangers bring, each with what has to hold for any input.
//!
//! Problem: whoever can write a file, a line on a socket or the name of a process must neither end a reader nor make it
//! say what it does not mean.
//!
//! Approach: `read` in each module takes any bytes, and panics if something does not hold. The test of this crate gives
//! it seeds and changes of them; `fuzz` looks for inputs by coverage (`make fuzz`). Both have the seeds and the words in
//! `fuzz`.

pub mod control;
pub mod hwloc;
pub mod object;
pub mod process;
pub mod recording;
pub mod scenario;
pub mod service;
pub mod sysfs;
