//! Compiled schedulers in the simulator: examples to read, and published ones.

mod accounts;
mod determinism;
mod idle;
mod immediate;
mod levels;
mod mistakes;
mod settings;
mod shares;
mod support;
mod ticks;
mod world;
