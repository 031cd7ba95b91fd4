//! What can go wrong: with an object before it runs, and with a program while it does.

use thiserror::Error;

/// Why an object cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LoadError(pub String);

/// Why a program ended before its time. The message names the program and what it did.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Fault(pub String);
