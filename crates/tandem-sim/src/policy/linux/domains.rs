//! Scheduling domains.

/// The scheduling domains of every CPU.
#[derive(Clone, Debug, Default)]
pub(super) struct DomainTree {}
