//! Errors: of an object before it runs, and of a program while it does.

use thiserror::Error;

/// Why an object cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct LoadError(pub String);

/// Why a program ended early. The message names the program and what it did.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Fault(pub String);
