//! What things cost on a machine.

/// The cost models of a machine; each can be switched off by itself.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct CostModels {}
