//! The twin of recordings: by hand, of simulated machines, and of real ones.

mod by_hand;
mod held;
mod pairs;
mod recorded;
mod simulated;
mod together;
