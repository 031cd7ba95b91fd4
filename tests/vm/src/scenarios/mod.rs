//! What is tried in guests, a file a subject. [`crate::leg`] has the table of what runs where.

pub mod harness;
pub mod programs;
