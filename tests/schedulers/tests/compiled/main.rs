//! Compiled schedulers in the simulator: examples to read, and published ones.

mod accounts;
mod cids;
mod determinism;
mod idle;
mod idle_nodes;
mod immediate;
mod levels;
mod mistakes;
mod objects;
mod queue_locks;
mod recipes;
mod settings;
mod shares;
mod support;
mod ticks;
mod user_space;
mod world;
