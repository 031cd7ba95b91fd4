//! Policies: the code that decides which task runs where and when.

pub mod credit;
